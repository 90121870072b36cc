#!/usr/bin/env bash
# Starts `lockgate serve` and prints what it needs to start, to idle, to create ConfigMaps with 0, 1, 2 and 10 webhooks,
# to read and to watch them. In turn with it run the real pair, when KUBE_APISERVER and ETCD name binaries, and another
# build of Lockgate, when LOCKGATE_BEFORE names one. LOCKGATE names a build to measure instead of this source, and
# LOCKGATE_ARGUMENTS has further arguments of `lockgate serve` for --storage.
# Arguments go to the bench: -o json, --seconds N, --connections N, --rounds N, --page FILE, --storage DIR, --growth,
# --on-etcd OBJECTS, --watchers N, --hostile N, --policies PERCENT, --curves.
set -euo pipefail
for binary in LOCKGATE LOCKGATE_BEFORE KUBE_APISERVER ETCD; do
    if [[ -n ${!binary:-} ]]; then
        export "$binary=$(realpath "${!binary}")"
    fi
done
# The bench runs in its own folder, whatever a path among the arguments was relative to.
arguments=()
while (($#)); do
    if [[ ($1 == --page || $1 == --storage) && $# -gt 1 ]]; then
        arguments+=("$1" "$(realpath "$2")")
        shift 2
    else
        arguments+=("$1")
        shift
    fi
done
cd "$(dirname "$0")"
root=$(realpath ../..)

if [[ -z ${LOCKGATE:-} ]]; then
    cargo build --quiet --release --manifest-path "$root/Cargo.toml" --package lockgate-cli
    export LOCKGATE=${CARGO_TARGET_DIR:-$root/target}/release/lockgate
fi
cargo run --quiet --release -- "${arguments[@]}"
