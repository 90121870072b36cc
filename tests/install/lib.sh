# What the tests of this folder share. Each installs lockgate from the files of a release into an empty home, and has
# a server deny a request: from nothing to a passing test.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
name=$(basename "$0" .sh)
# The limit is for a release build: a debug build is five times as large.
limit=${LIMIT:-10}

if [[ $# -ne 1 || ! -e $1/SHA256SUMS ]]; then
    echo "usage: $0 DIST    a folder made by tools/dist.sh" >&2
    exit 2
fi
dist=$(cd "$1" && pwd)
version=$(basename "$(ls "$dist"/lockgate-test-*.tgz)" .tgz)
version=${version#lockgate-test-}

work=$(mktemp -d)
server=
finish() {
    if [[ -n $server ]]; then kill "$server" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap finish EXIT
export HOME=$work/home
# Nothing of the machine's own may be found.
unset LOCKGATE KUBECONFIG KUBEBUILDER_ASSETS VIRTUAL_ENV PYTHONPATH
mkdir -p "$HOME"
cd "$work"

fail() {
    printf 'FAILED %s: %s\n' "$name" "$*" >&2
    exit 1
}

# Exit code 3: what this test needs is not installed.
need() {
    local tool
    for tool in "$@"; do
        if ! command -v "$tool" >/dev/null; then
            echo "skipped $name: there is no $tool" >&2
            exit 3
        fi
    done
}

start_clock() { began=$(date +%s%N); }

# Ends the clock: prints how long it took, and fails above the limit.
passed() {
    local taken=$((($(date +%s%N) - began) / 1000000))
    printf 'passed %-8s in %d.%03d s\n' "$name" $((taken / 1000)) $((taken % 1000))
    if [[ $taken -gt $((limit * 1000)) ]]; then fail "took longer than $limit s"; fi
}

# A server that kubectl is pointed at denies what the policy forbids, and admits the rest.
denies() {
    local message
    if message=$(kubectl create configmap bad 2>&1); then fail "a ConfigMap without an owner was admitted"; fi
    case $message in
        *"every ConfigMap has an owner"*) ;;
        *) fail "unexpected message: $message" ;;
    esac
    kubectl label --local -f - -o yaml owner=team <<<'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"good"}}' |
        kubectl create -f - >/dev/null
}
