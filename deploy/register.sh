#!/bin/sh
# On the SuperLink's machine: a connection `ours` to its loopback, and the public keys of N nodes.
#
#   sh register.sh N [KEYS [PUBLIC]]
#
# KEYS holds ca.crt (/keys by default), PUBLIC the files node-K.pub (KEYS/public by default). Other
# connections that Flower knows of are left as they are; so are keys that are registered already.
set -eu
nodes=$1 keys=$(realpath "${2:-/keys}")
public=${3:-$keys/public}
config=${FLWR_HOME:-$HOME/.flwr}/config.toml
mkdir -p "$(dirname "$config")"
[ -e "$config" ] || printf '[superlink]\ndefault = "ours"\n' > "$config"
if ! grep -q '^\[superlink\.ours\]' "$config"; then
    printf '\n[superlink.ours]\naddress = "127.0.0.1:8000"\n' >> "$config"
    printf 'root-certificates = "%s/ca.crt"\n' "$keys" >> "$config"
fi
# The SuperLink may have been started a moment ago, and a key may have been registered before.
register() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        said=$(flwr supernode register "$public/$1.pub" ours --name "$1" 2>&1) && return 0
        case $said in *"already in use"* | *"does not exist"*) break ;; esac
        sleep 3
    done
    case $said in *"already in use"*) return 0 ;; esac
    echo "$said" >&2
    return 1
}

node=0
while [ "$node" -lt "$nodes" ]; do
    register "node-$node"
    echo "node-$node is registered"
    node=$((node + 1))
done
