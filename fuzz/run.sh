#!/usr/bin/env bash
# Builds fuzz targets without cargo-fuzz and runs each for the given number of seconds, with findings in
# fuzz/artifacts. Exits with an error at the first finding.
#
#   fuzz/run.sh SECONDS [TARGET...]
#
# FUZZ_TARGET_DIR is the build directory; PROFILE=dev builds faster and runs slower.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:?usage: fuzz/run.sh SECONDS [TARGET...]}
shift
[[ $# -gt 0 ]] || set -- $(sed -n 's/^name = "\(.*\)"/\1/p' Cargo.toml | grep -v '^lockgate-fuzz$')

coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks"
RUSTFLAGS="--cfg fuzzing $coverage" cargo build --profile "${PROFILE:-release}" --target "$(rustc -vV | sed -n 's/^host: //p')" ${FUZZ_TARGET_DIR:+--target-dir "$FUZZ_TARGET_DIR"}
case ${PROFILE:-release} in dev) folder=debug ;; *) folder=release ;; esac
built=${FUZZ_TARGET_DIR:-target}/$(rustc -vV | sed -n 's/^host: //p')/$folder

for target; do
    mkdir -p "corpus/$target" "artifacts/$target"
    echo "== $target"
    "$built/$target" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="artifacts/$target/" "corpus/$target" 2>&1 | tee "artifacts/$target/log" |
        grep -E '^stat::|ERROR|panicked' || true
    grep -q 'stat::number_of_executed_units' "artifacts/$target/log"
    ! grep -qE 'ERROR: libFuzzer|panicked at' "artifacts/$target/log"
done
