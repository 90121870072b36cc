#!/usr/bin/env bash
# Measures `lockgate serve`: startup, idle memory, and the cost of creating ConfigMaps with 0, 1, 2 and 10 webhooks, of
# reading and of watching them. It alternates with kube-apiserver and etcd, if KUBE_APISERVER and ETCD are set to
# binaries, and with another build of Lockgate, if LOCKGATE_BEFORE is set. LOCKGATE is a build to measure instead of
# this source, LOCKGATE_ARGUMENTS are additional arguments of `lockgate serve` for --storage.
# Arguments are passed to the benchmark: -o json, --seconds N, --connections N, --rounds N, --page FILE, --storage DIR,
# --growth, --on-etcd OBJECTS, --watchers N, --hostile N, --policies PERCENT, --curves.
set -euo pipefail
for binary in LOCKGATE LOCKGATE_BEFORE KUBE_APISERVER ETCD; do
    if [[ -n ${!binary:-} ]]; then
        export "$binary=$(realpath "${!binary}")"
    fi
done
# The benchmark runs in its own folder, so relative paths in arguments are made absolute.
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
