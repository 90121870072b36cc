#!/usr/bin/env bash
# Sends the same reviews to a server with this framework and to one with controller-runtime, in sequence, and prints
# the number of responses per second of CPU time. Takes SECONDS_EACH (10) per path.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${SECONDS_EACH:-10}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cargo build --quiet --release
bin=${CARGO_TARGET_DIR:-target}/release
{
    "$bin/load" lockgate "$seconds" 19443 "$work/certs-a" "$bin/server" 19443 "$work/certs-a"
    if command -v go >/dev/null; then
        (cd go && go build -o "$work/peer" .)
        "$bin/load" controller-runtime "$seconds" 19444 "$work/certs-b" \
            "$work/peer" -port 19444 -certs "$work/certs-b"
    else
        echo "go is not there: controller-runtime is left out" >&2
    fi
} >"$work/measurements"

awk -F '\t' '
    { cpu[$1, $2] = $3; wall[$1, $2] = $4 }
    !($2 in seen) { seen[$2] = 1; paths[++n] = $2 }
    END {
        printf "%-10s %22s %22s %8s\n", "PATH", "LOCKGATE per CPU s", "CTRL-RUNTIME per CPU s", "RATIO"
        for (i = 1; i <= n; i++) {
            ours = cpu["lockgate", paths[i]]; theirs = cpu["controller-runtime", paths[i]]
            printf "%-10s %22s %22s %8s\n", paths[i], ours, theirs ? theirs : "-", theirs ? sprintf("%.1fx", ours / theirs) : "-"
        }
    }
' "$work/measurements"
