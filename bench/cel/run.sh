#!/usr/bin/env bash
# Measures match conditions in this and in other CEL implementations, and prints a table. Without Go, cel-go is
# skipped.
set -euo pipefail
cd "$(dirname "$0")"
vectors=$(realpath ../../conformance/vectors/cel)

measurements=$(mktemp)
trap 'rm -f "$measurements"' EXIT

cargo run --quiet --release >"$measurements"
if command -v go >/dev/null; then
    (
        cd go
        go run . "$vectors"
    ) >>"$measurements"
else
    echo "go is not there: cel-go is left out" >&2
fi

awk -F '\t' '
    !($2 in seen) { seen[$2] = 1; names[++n] = $2 }
    { time[$1, $2, $3] = $4 }
    function cell(engine, name, what) { return ((engine, name, what) in time) ? time[engine, name, what] : "-" }
    function ratio(name, what) {
        if (!(("cel-go", name, what) in time) || !time["lockgate", name, what]) return "-"
        return sprintf("%.0fx", time["cel-go", name, what] / time["lockgate", name, what])
    }
    END {
        printf "%-12s %-9s %12s %12s %12s %16s\n", "EXPRESSION", "STEP", "LOCKGATE ns", "CEL CRATE ns", "CEL-GO ns", "CEL-GO/LOCKGATE"
        split("evaluate compile", steps, " ")
        for (s = 1; s <= 2; s++)
            for (i = 1; i <= n; i++)
                printf "%-12s %-9s %12s %12s %12s %16s\n", names[i], steps[s], cell("lockgate", names[i], steps[s]), cell("cel crate", names[i], steps[s]), cell("cel-go", names[i], steps[s]), ratio(names[i], steps[s])
    }
' "$measurements"
