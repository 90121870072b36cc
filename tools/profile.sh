#!/usr/bin/env bash
# Records an execution profile of `lockgate serve` under load, for profile-guided builds.
#
#   tools/profile.sh TARGET FILE    TARGET is a target triple that runs on this machine
#
# Builds an instrumented server for the target, runs the load of bench/apiserver (creates with and without webhooks,
# reads, patches, watches), and merges the recorded profile into FILE:
#
#   RUSTFLAGS="-Cprofile-use=FILE" cargo build --release -p lockgate-cli --target TARGET
#
# The profile is valid for builds of the same target only, which is part of symbol names.
#
# Exit code 3: there is no llvm-profdata of the compiler's LLVM version.
set -euo pipefail
if [[ $# -ne 2 ]]; then
    sed -n '2,/^set/p' "$0" | grep '^#' | cut -c3- >&2
    exit 2
fi
target=$1
mkdir -p "$(dirname "$2")"
profile=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf 'profile: %s\n' "$*" >&2; }

# The format depends on LLVM's major version: from Rust's component llvm-tools, or the system's package.
profdata() {
    local llvm candidate
    llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
    for candidate in "$(rustc --print sysroot)"/lib/rustlib/*/bin/llvm-profdata "llvm-profdata-$llvm" llvm-profdata; do
        if "$candidate" --version 2>/dev/null | grep -q "LLVM version $llvm\."; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    say "there is no llvm-profdata of LLVM $llvm: install the component llvm-tools with rustup, or the package llvm-$llvm"
    return 3
}

tool=$(profdata) || exit $?
build=${CARGO_TARGET_DIR:-$root/target}/instrumented
say "building an instrumented server for $target"
(
    cd "$root"
    # The flags are set for the target only: otherwise build scripts would be instrumented as well.
    variable=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$target")_RUSTFLAGS
    env -u RUSTFLAGS "$variable=-Cprofile-generate=$work" \
        cargo build --release --locked -p lockgate-cli --bin lockgate --target "$target" --target-dir "$build" >&2
)
say "putting load on it"
LLVM_PROFILE_FILE="$work/%p-%m.profraw" LOCKGATE=$build/$target/release/lockgate \
    "$root/bench/apiserver/run.sh" --rounds 1 --seconds "${TRAINING_SECONDS:-3}" >&2
if ! compgen -G "$work/*.profraw" >/dev/null; then
    say "the server recorded nothing"
    exit 1
fi
"$tool" merge -o "$profile" "$work"/*.profraw
say "the profile is $profile"
