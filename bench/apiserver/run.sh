#!/usr/bin/env bash
# Starts `lockgate serve` and, when KUBE_APISERVER and ETCD name binaries, the real pair after it, and prints
# what each needs to start, to idle and to create ConfigMaps with 0, 1, 2 and 10 webhooks.
# Arguments go to the bench: -o json, --seconds N, --connections N, --starts N, --storage DIR.
set -euo pipefail
for binary in LOCKGATE KUBE_APISERVER ETCD; do
    if [[ -n ${!binary:-} ]]; then
        export "$binary=$(realpath "${!binary}")"
    fi
done
cd "$(dirname "$0")"
root=$(realpath ../..)

cargo build --quiet --release --manifest-path "$root/Cargo.toml" --package lockgate-cli
export LOCKGATE=${LOCKGATE:-${CARGO_TARGET_DIR:-$root/target}/release/lockgate}
cargo run --quiet --release -- "$@"
