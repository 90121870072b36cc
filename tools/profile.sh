#!/usr/bin/env bash
# Records which code of `lockgate serve` runs how often under load, for profile-guided builds.
#
#   tools/profile.sh TARGET FILE    TARGET as rustc names it; it must run on this machine
#
# Builds an instrumented server for the target, puts the load of bench/apiserver on it (creates with and without webhooks,
# reads, patches, watches), and merges what it recorded into FILE:
#
#   RUSTFLAGS="-Cprofile-use=FILE" cargo build --release -p lockgate-cli --target TARGET
#
# The profile fits builds for the same target only: cargo names symbols by it.
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

# The format belongs to LLVM's major version: of Rust's component llvm-tools, or of the system's package.
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
    # Without flags for the target alone, build scripts would be instrumented as well.
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
