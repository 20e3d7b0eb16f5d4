#!/bin/sh
# On the SuperLink's machine: a connection to its loopback, and the public keys of N nodes.
#
#   sh register.sh N [KEYS]        KEYS holds ca.crt and public/node-K.pub; /keys by default
set -eu
nodes=$1 keys=${2:-/keys}
home=${FLWR_HOME:-$HOME/.flwr}
mkdir -p "$home"
cat > "$home/config.toml" <<END
[superlink]
default = "ours"

[superlink.ours]
address = "127.0.0.1:8000"
root-certificates = "$keys/ca.crt"
END
node=0
while [ "$node" -lt "$nodes" ]; do
    flwr supernode register "$keys/public/node-$node.pub" ours --name "node-$node"
    node=$((node + 1))
done
