#!/bin/sh
# Keys for a deployment: a certificate authority and the SuperLink's certificate (TLS), a pair of keys
# for each SuperNode (authentication), and one that signs apps: nodes run nothing else.
#
#   ./make_keys.sh FOLDER ADDRESS NODES      e.g.  ./make_keys.sh keys superlink.example.org 4
#
# ADDRESS is the name or the IP address by which nodes reach the SuperLink. Of the result, ca.crt
# and trusted.yaml go to everyone, server.* and public/ to the SuperLink, node-K to node K alone;
# ca.key and app (which signs) are locked up, away from the SuperLink.
set -eu
folder=$1 address=$2 nodes=$3
mkdir -p "$folder"
chmod 700 "$folder"
cd "$folder"

case $address in
    *[!0-9.]*) names="DNS:$address,DNS:localhost,IP:127.0.0.1" ;;
    *) names="IP:$address,IP:127.0.0.1,DNS:localhost" ;;
esac
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -sha384 -days 365 \
    -keyout ca.key -out ca.crt -subj "/O=srpfl/CN=certificate authority" \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign"
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -sha384 \
    -keyout server.key -out server.csr -subj "/O=srpfl/CN=$address"
printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n' "$names" > server.ext
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -sha384 -days 365 \
    -extfile server.ext -out server.crt
rm server.csr server.ext

node=0
while [ "$node" -lt "$nodes" ]; do
    ssh-keygen -q -t ecdsa -b 384 -N "" -C "node-$node" -f "node-$node"
    node=$((node + 1))
done
mkdir -p public
mv node-*.pub public/

ssh-keygen -q -t ed25519 -N "" -C "apps" -f app
signer=$(cut -d ' ' -f 1,2 app.pub)
printf "fpk_%s: '%s'\n" "$(printf %s "$signer" | sha256sum | cut -c 1-16)" "$signer" > trusted.yaml
chmod 600 ca.key server.key
chmod 755 public
chmod 644 public/* ca.crt server.crt trusted.yaml
