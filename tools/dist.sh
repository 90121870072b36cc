#!/usr/bin/env bash
# Builds everything that a release publishes.
#
#   tools/dist.sh DIR BASE_URL    the files will be published at BASE_URL
#
# For each platform: an archive, a wheel, an npm package, and container images as OCI layouts (of shaper-webhooks too);
# for all of them: the packages for tests, SHA256SUMS, install.sh, a Homebrew formula, a krew manifest and the release notes. Platforms that
# were built into DIR earlier, on other machines, are kept and listed.
#
# Programs for this machine are built with profile-guided optimization, if llvm-profdata is available
# (tools/profile.sh); PROFILE_GUIDED=no disables it.
#
# TARGETS are the target triples to build. Manual pages and completions are printed by a program that was built: one of
# TARGETS must run on this machine, at least with qemu-user.
#
# LOCKGATE is a prebuilt program (and SHAPER_WEBHOOKS the other one), with which nothing is built; tests use this to
# check the packaging in seconds. PLATFORM is its platform, such as linux-arm64; default: this machine's.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
if [[ $# -ne 2 ]]; then
    sed -n '2,/^set/p' "$0" | grep '^#' | cut -c3- >&2
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
base=${2%/}
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
skipped=()

say() { printf 'dist: %s\n' "$*" >&2; }

# The platform of this machine, in Kubernetes' notation.
here() {
    local machine
    case $(uname -m) in
        x86_64) machine=amd64 ;;
        aarch64 | arm64) machine=arm64 ;;
        *) machine=$(uname -m) ;;
    esac
    printf '%s-%s\n' "$(uname -s | tr '[:upper:]' '[:lower:]')" "$machine"
}

# The platform of a target.
platform() {
    local system machine
    case $1 in
        x86_64-*) machine=amd64 ;;
        aarch64-*) machine=arm64 ;;
        *) machine=${1%%-*} ;;
    esac
    case $1 in
        *-linux-*) system=linux ;;
        *-darwin) system=darwin ;;
        *) system=${1#*-*-} ;;
    esac
    printf '%s-%s\n' "$system" "$machine"
}

# Prints the command that runs programs of a platform here, nothing if none is needed; fails if they cannot run.
runner() {
    local machine emulator
    if [[ $1 == "$(here)" ]]; then return; fi
    case $1 in
        linux-amd64) machine=x86_64 ;;
        linux-arm64) machine=aarch64 ;;
        *) return 1 ;;
    esac
    if [[ $(uname -s) != Linux ]]; then return 1; fi
    for emulator in "qemu-$machine" "qemu-$machine-static"; do
        if command -v "$emulator"; then return; fi
    done
    return 1
}

targets() {
    case $(uname -s) in
        Darwin) printf '%s\n' aarch64-apple-darwin x86_64-apple-darwin ;;
        *) printf '%s\n' x86_64-unknown-linux-musl aarch64-unknown-linux-musl ;;
    esac
}

# Prints the C compiler for a target: ring and mimalloc contain C. Zig supports all targets.
compiler() {
    local target=$1 candidate wrapper
    case $target in
        *-apple-*)
            printf 'cc\n'
            return
            ;;
    esac
    for candidate in "${target/-unknown/}-gcc" "$target-gcc"; do
        if command -v "$candidate" >/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    # Debian's cross compilers are for glibc. The C code here uses nothing that musl lacks, and outline atomics are
    # disabled, since libgcc is not linked. Ubuntu's compiler fortifies by default, with functions of glibc.
    candidate=${target%%-*}-linux-gnu-gcc
    if [[ $target == *-linux-musl && $target != "$(uname -m)"-* ]] && command -v "$candidate" >/dev/null; then
        wrapper=$work/gnu-cc-$target
        printf '#!/bin/sh\nexec %s -U_FORTIFY_SOURCE %s "$@"\n' "$candidate" \
            "$(if [[ $target == aarch64-* ]]; then printf -- -mno-outline-atomics; fi)" >"$wrapper"
        chmod +x "$wrapper"
        printf '%s\n' "$wrapper"
        return
    fi
    if [[ $target == "$(uname -m)-unknown-linux-musl" ]] && command -v musl-gcc >/dev/null; then
        printf 'musl-gcc\n'
        return
    fi
    if command -v zig >/dev/null; then
        wrapper=$work/cc-$target
        # rustc includes musl's files for linking; cc's `--target` is rustc's triple, which Zig does not support.
        cat >"$wrapper" <<WRAPPER
#!/usr/bin/env bash
arguments=()
for argument in "\$@"; do
    case \$argument in --target=*) ;; *) arguments+=("\$argument") ;; esac
done
exec zig cc -target ${target/-unknown/} "\${arguments[@]}"
WRAPPER
        chmod +x "$wrapper"
        printf '%s\n' "$wrapper"
        return
    fi
    return 1
}

# Builds for a target and prints the path of the program; fails if this machine cannot.
build() {
    local target=$1 cc name
    if ! rustup target list --installed 2>/dev/null | grep -qx "$target" && ! rustup target add "$target" >&2; then
        skipped+=("$target: rustup cannot install it")
        return 1
    fi
    if ! cc=$(compiler "$target"); then
        skipped+=("$target: no C compiler; install musl-tools, gcc-aarch64-linux-gnu, a cross compiler named ${target/-unknown/}-gcc, or Zig")
        return 1
    fi
    name=${target//-/_}
    say "building for $target with $cc"
    # musl and its start files are part of the target. LLVM's linker, which is part of Rust, supports other machines.
    local flags=()
    case $target in
        "$(uname -m)"-* | *-apple-*) ;;
        *) flags=(--config "target.$target.linker='rust-lld'") ;;
    esac
    (
        cd "$root"
        export "CC_$name=$cc"
        if [[ $cc == "$work"/cc-* ]]; then
            printf '#!/bin/sh\nexec zig ar "$@"\n' >"$work/ar"
            chmod +x "$work/ar"
            export "AR_$name=$work/ar"
        fi
        if [[ ${PROFILE_GUIDED:-yes} == yes && $(platform "$target") == "$(here)" ]]; then
            if "$root/tools/profile.sh" "$target" "$work/$target.profdata"; then
                # Code that is not executed under the load has no profile, and needs none.
                export "CARGO_TARGET_${name^^}_RUSTFLAGS=-Cprofile-use=$work/$target.profdata -Cllvm-args=-pgo-warn-missing-function=false"
            else
                say "building $target WITHOUT a profile: it will take more CPU than it could"
            fi
        else
            say "building $target without a profile"
        fi
        cargo build --release --locked -p lockgate-cli -p shaper-webhooks --bins --target "$target" "${flags[@]}" >&2
    ) || {
        say "the build for $target failed"
        exit 1
    }
    program=${CARGO_TARGET_DIR:-$root/target}/$target/release/lockgate
}

# Reproducible: the same files yield the same archive.
pack() {
    local archive=$1
    shift
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 "$@" | gzip -n >"$archive"
}

# Manual pages and completions, which are platform-independent, by a program that runs here.
pages() {
    local command=("$@") shell
    mkdir -p "$work/pages/completions"
    "${command[@]}" man "$work/pages/man/man1" >/dev/null
    for shell in bash zsh fish; do
        "${command[@]}" completions "$shell" >"$work/pages/completions/lockgate.$shell"
    done
}

# All artifacts of one platform.
carry() {
    local platform=$1 program=$2 shaper=$3 name
    name=lockgate-$version-$platform
    say "packing $name"
    rm -rf "${work:?}/$name"
    mkdir -p "$work/$name"
    cp "$program" "$work/$name/lockgate"
    chmod 0755 "$work/$name/lockgate"
    cp -r "$root/LICENSE" "$root/NOTICE" "$root/README.md" "$root/CHANGELOG.md" "$work/pages/." "$work/$name/"
    pack "$out/$name.tar.gz" -C "$work" -c "$name"
    python3 "$root/tools/dist/wheel.py" program "$out" "$version" "$platform" "$program" "$root/packages/wheel/README.md"
    npm_platform "$platform" "$program"
    case $platform in
        linux-*)
            python3 "$root/tools/dist/image.py" "$out" "$version" "$platform" "$program"
            if [[ -n $shaper ]]; then
                python3 "$root/tools/dist/image.py" "$out" "$version" "$platform" "$shaper" shaper-webhooks 9443 8081 8080
            fi
            ;;
    esac
}

npm_platform() {
    local platform=$1 program=$2 cpu
    case ${platform#*-} in
        amd64) cpu=x64 ;;
        *) cpu=${platform#*-} ;;
    esac
    local name=lockgate-${platform%-*}-$cpu
    mkdir -p "$work/npm/$name/package"
    cp "$program" "$work/npm/$name/package/lockgate"
    chmod 0755 "$work/npm/$name/package/lockgate"
    cp "$root/LICENSE" "$work/npm/$name/package/"
    cat >"$work/npm/$name/package/package.json" <<JSON
{
  "name": "$name",
  "version": "$version",
  "description": "The program lockgate for ${platform%-*} on $cpu",
  "license": "Apache-2.0",
  "os": ["${platform%-*}"],
  "cpu": ["$cpu"],
  "files": ["lockgate"]
}
JSON
    pack "$out/$name-$version.tgz" -C "$work/npm/$name" -c package
}

# A JavaScript-only package: the files in package.json.
npm_plain() {
    local from=$1 name=$2 file
    mkdir -p "$work/npm/$name/package"
    for file in package.json README.md $(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["files"])' "$from/package.json"); do
        mkdir -p "$(dirname "$work/npm/$name/package/$file")"
        cp "$from/$file" "$work/npm/$name/package/$file"
    done
    cp "$root/LICENSE" "$work/npm/$name/package/"
    pack "$out/$name-$version.tgz" -C "$work/npm/$name" -c package
}

for manifest in packages/js/package.json packages/npm/package.json packages/python/pyproject.toml; do
    if ! grep -qE "version\"?( =|:) \"$version\"" "$root/$manifest"; then
        say "$manifest is not of version $version: see RELEASING.md"
        exit 1
    fi
done

# Platform, program and, if there is one, shaper-webhooks, separated by tabs.
tab=$'\t'
built=()
if [[ -n ${LOCKGATE:-} ]]; then
    built+=("${PLATFORM:-$(here)}$tab$LOCKGATE$tab${SHAPER_WEBHOOKS:-}")
else
    prints=
    for target in ${TARGETS:-$(targets)}; do
        if runner "$(platform "$target")" >/dev/null; then prints=$target; fi
    done
    if [[ -z $prints ]]; then
        say "none of TARGETS runs here to print the manual pages: add this machine's target, or install qemu-user"
        exit 1
    fi
    for target in ${TARGETS:-$(targets)}; do
        if build "$target"; then built+=("$(platform "$target")$tab$program$tab$(dirname "$program")/shaper-webhooks"); fi
    done
fi

# This machine's program, otherwise another one with an emulator.
printer=()
for each in "${built[@]}"; do
    IFS=$tab read -r system program shaper <<<"$each"
    if prefix=$(runner "$system") && [[ -z $prefix || ${#printer[@]} -eq 0 ]]; then
        printer=(${prefix:+"$prefix"} "$program")
    fi
done
if [[ ${#printer[@]} -eq 0 ]]; then
    say "no program was built that runs here, of which manual pages could be made"
    if [[ ${#skipped[@]} -gt 0 ]]; then printf 'dist:   %s\n' "${skipped[@]}" >&2; fi
    exit 1
fi
pages "${printer[@]}"
for each in "${built[@]}"; do
    IFS=$tab read -r system program shaper <<<"$each"
    carry "$system" "$program" "$shaper"
done

npm_plain "$root/packages/npm" lockgate
npm_plain "$root/packages/js" lockgate-test
python3 "$root/tools/dist/wheel.py" plain "$out" "$root/packages/python"
sed -e "s|@VERSION@|$version|" -e "s|@BASE_URL@|$base|" "$root/packages/install.sh" >"$out/install.sh"
chmod 0755 "$out/install.sh"
"$root/tools/release-notes.sh" "$version" >"$out/NOTES.md"
python3 "$root/tools/dist/manifests.py" "$out" "$version" "$base"
(
    cd "$out"
    rm -f SHA256SUMS
    find . -maxdepth 1 -type f -printf '%f\n' | LC_ALL=C sort | xargs sha256sum >"$work/SHA256SUMS"
    cp "$work/SHA256SUMS" .
)
say "everything is in $out"
if [[ ${#skipped[@]} -gt 0 ]]; then
    say "NOT BUILT:"
    printf 'dist:   %s\n' "${skipped[@]}" >&2
fi
