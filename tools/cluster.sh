#!/usr/bin/env bash
# Runs three servers on three etcd members on this machine until it is interrupted.
#
#   tools/cluster.sh [FOLDER]   data, logs and kubeconfigs are in FOLDER [default: target/cluster]
#
# LOCKGATE and ETCD are the paths of the binaries; by default, lockgate is built, and etcd found or built by
# tools/need.sh.
# PORT is the first of nine consecutive ports [default: 16443].
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(realpath -m "${1:-target/cluster}")
port=${PORT:-16443}
etcd=${ETCD:-$(tools/need.sh etcd)}
if [[ -z ${LOCKGATE:-} ]]; then
    cargo build --release --locked
    LOCKGATE=${CARGO_TARGET_DIR:-target}/release/lockgate
fi
mkdir -p "$folder"

pids=()
stop() {
    trap - EXIT INT TERM
    # Servers first: they write to etcd until they stop.
    for ((index = ${#pids[@]} - 1; index >= 0; index--)); do
        kill -TERM "${pids[index]}" 2>/dev/null || true
        wait "${pids[index]}" 2>/dev/null || true
    done
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 0' TERM

client() { echo "http://127.0.0.1:$((port + 3 + $1 * 2))"; }
peer() { echo "http://127.0.0.1:$((port + 4 + $1 * 2))"; }
members="m0=$(peer 0),m1=$(peer 1),m2=$(peer 2)"
for index in 0 1 2; do
    "$etcd" --name "m$index" --data-dir "$folder/etcd-$index" --initial-cluster "$members" \
        --listen-client-urls "$(client $index)" --advertise-client-urls "$(client $index)" \
        --listen-peer-urls "$(peer $index)" --initial-advertise-peer-urls "$(peer $index)" \
        >"$folder/etcd-$index.log" 2>&1 &
    pids+=($!)
done
for index in 0 1 2; do
    "$LOCKGATE" serve --secure-port $((port + index)) --kubeconfig-out "$folder/kubeconfig-$index" \
        --etcd-servers "$(client 0),$(client 1),$(client 2)" >"$folder/lockgate-$index.out" 2>"$folder/lockgate-$index.log" &
    pids+=($!)
    # The first creates the initial objects and the shared certificates.
    for _ in $(seq 300); do
        grep -q '^Listening on' "$folder/lockgate-$index.out" && break
        if ! kill -0 "${pids[-1]}" 2>/dev/null; then
            cat "$folder/lockgate-$index.log" >&2
            exit 1
        fi
        sleep 0.1
    done
    grep '^Listening on' "$folder/lockgate-$index.out"
done
echo "Interrupt to stop. Logs are in $folder"
wait
