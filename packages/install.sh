#!/bin/sh
# Installs lockgate: fetches the archive for this machine, checks it against SHA256SUMS, and unpacks the program.
#
#   install.sh [--to DIR] [--version VERSION] [--from URL] [--kubectl-plugin]
#
#   --to DIR          directory for the program [default: /usr/local/bin as root, ~/.local/bin otherwise]
#   --version VERSION release to install
#   --from URL        where the archives are; file:// works as well. LOCKGATE_RELEASES names it too
#   --kubectl-plugin  also installs it as `kubectl lockgate`
set -eu

# A release fills these in.
version=@VERSION@
from=@BASE_URL@

say() { printf 'install: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 1
}

from=${LOCKGATE_RELEASES:-$from}
to=
plugin=
while [ $# -gt 0 ]; do
    case $1 in
        --to | --version | --from)
            [ $# -ge 2 ] || fail "$1 needs a value"
            case $1 in
                --to) to=$2 ;;
                --version) version=$2 ;;
                --from) from=$2 ;;
            esac
            shift 2
            ;;
        --kubectl-plugin)
            plugin=yes
            shift
            ;;
        -h | --help)
            sed -n '2,/^set/p' "$0" | grep '^#' | cut -c3-
            exit 0
            ;;
        *) fail "unknown argument \`$1\`; see --help" ;;
    esac
done
# The at-sign stands apart so that filling in the values leaves these patterns alone.
case $version in "" | "@"*) fail "this copy is of no release: name one with --version" ;; esac
case $from in "" | "@"*) fail "this copy is of no release: name where its archives are with --from" ;; esac
version=${version#v}
from=${from%/}

if [ -z "$to" ]; then
    if [ "$(id -u)" -eq 0 ]; then to=/usr/local/bin; else to=$HOME/.local/bin; fi
fi

system=$(uname -s | tr '[:upper:]' '[:lower:]')
case $(uname -m) in
    x86_64 | amd64) machine=amd64 ;;
    aarch64 | arm64) machine=arm64 ;;
    *) fail "there is no archive for $(uname -m); build from source: cargo install --locked lockgate-cli" ;;
esac
name=lockgate-$version-$system-$machine

if command -v curl >/dev/null; then
    fetch() { curl -fsSL --retry 3 -o "$2" "$1"; }
elif command -v wget >/dev/null; then
    fetch() { wget -q -O "$2" "$1"; }
else
    fail "neither curl nor wget is installed"
fi
if command -v sha256sum >/dev/null; then
    hash() { sha256sum "$1" | cut -d' ' -f1; }
elif command -v shasum >/dev/null; then
    hash() { shasum -a 256 "$1" | cut -d' ' -f1; }
else
    fail "neither sha256sum nor shasum is installed"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch "$from/SHA256SUMS" "$work/SHA256SUMS" || fail "cannot fetch $from/SHA256SUMS"
expected=$(sed -n "s/^\([0-9a-f]\{64\}\)  $name\.tar\.gz\$/\1/p" "$work/SHA256SUMS")
[ -n "$expected" ] || fail "the release has no archive $name.tar.gz"
fetch "$from/$name.tar.gz" "$work/$name.tar.gz" || fail "cannot fetch $from/$name.tar.gz"
found=$(hash "$work/$name.tar.gz")
[ "$found" = "$expected" ] || fail "checksum of $name.tar.gz is $found, expected $expected: nothing was installed"

tar -C "$work" -xzf "$work/$name.tar.gz" "$name/lockgate"
mkdir -p "$to"
# Renamed into place, so that a program that runs is not overwritten.
cp "$work/$name/lockgate" "$to/.lockgate.$$"
chmod 0755 "$to/.lockgate.$$"
mv "$to/.lockgate.$$" "$to/lockgate"
[ -z "$plugin" ] || ln -sf lockgate "$to/kubectl-lockgate"
say "installed $("$to/lockgate" version) as $to/lockgate"
case :$PATH: in
    *:"$to":*) ;;
    *) say "$to is not on PATH: export PATH=\"$to:\$PATH\"" ;;
esac
