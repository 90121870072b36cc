#!/usr/bin/env bash
# The archive and envtest: a test of Go that starts controller-runtime's test environment on it.
go_home=$HOME
source "$(dirname "$0")/lib.sh"
need go curl kubectl

# Modules and compiled packages are Go's business, not the package's: whoever writes such tests has them.
export HOME=$go_home
cd "$root/conformance/go"
if ! GOPROXY=off go test -c -o /dev/null ./envtest >"$work/said" 2>&1; then
    echo "skipped $name: the Go modules of conformance/go are not downloaded" >&2
    exit 3
fi

start_clock
"$dist/install.sh" --from "file://$dist" --to "$work/bin" 2>"$work/said" || fail "$(cat "$work/said")"
"$work/bin/lockgate" envtest install "$work/assets" >/dev/null 2>&1
KUBEBUILDER_ASSETS=$work/assets go test -count=1 -v ./envtest >"$work/said" 2>&1 || fail "$(cat "$work/said")"
grep -q '^--- PASS' "$work/said" || fail "no test ran: $(cat "$work/said")"
passed
