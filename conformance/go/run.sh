#!/usr/bin/env bash
# Runs tests that were written for envtest on the drop-in.
#
#   conformance/go/run.sh envtest          start, use and stop it as an operator's tests do
#   conformance/go/run.sh suites [PKG…]    controller-runtime's own suites, from its Go module
#   conformance/go/run.sh kubebuilder      the projects in kubebuilder's testdata, which its plugins make
#   conformance/go/run.sh project DIR…     the tests of other Go projects
#   conformance/go/run.sh setup-envtest    the archive and its index, with setup-envtest
#
# LOCKGATE names the program; the workspace's is built otherwise. KUBEBUILDER names a clone of kubebuilder; one is
# made otherwise. REAL names a folder with the real kube-apiserver
# and etcd: everything is then run on those as well, for comparison.
#
# Exit code 3: Go or its modules are missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${CARGO_TARGET_DIR:-$root/target}/conformance-go
mkdir -p "$work"

say() { printf 'conformance-go: %s\n' "$*" >&2; }

if ! command -v go >/dev/null; then
    say "there is no Go"
    exit 3
fi

program() {
    if [[ -n ${LOCKGATE:-} ]]; then
        printf '%s\n' "$LOCKGATE"
        return
    fi
    (cd "$root" && cargo build --quiet --locked -p lockgate-cli --bin lockgate >&2)
    printf '%s\n' "${CARGO_TARGET_DIR:-$root/target}/debug/lockgate"
}

# Prints the folder with the files for envtest.
assets() {
    local kubectl program
    if kubectl=$("$root/tools/need.sh" kubectl); then
        PATH="$kubectl:$PATH"
    fi
    program=$(program)
    "$program" envtest install "$work/assets" >/dev/null
    printf '%s\n' "$work/assets"
}

# The pairs to run on: names and folders.
pairs() {
    local folder
    folder=$(assets)
    printf 'lockgate %s\n' "$folder"
    if [[ -n ${REAL:-} ]]; then
        printf 'real %s\n' "$REAL"
    fi
}

envtest() {
    cd "$here"
    if ! go mod download >&2; then
        say "the Go modules cannot be downloaded"
        exit 3
    fi
    local name folder
    pairs | while read -r name folder; do
        say "envtest on $name"
        # The real server does not stop in time while watches are open, which is no failure of the test.
        CONTROL=${name#lockgate} KUBEBUILDER_ASSETS=$folder go test -count=1 -v ./envtest
    done
}

# Prints the folder of a copy of controller-runtime that can be written to.
controller_runtime() {
    local from version
    from=$(cd "$here" && go list -m -f '{{.Dir}}' sigs.k8s.io/controller-runtime)
    version=${from##*@}
    if [[ ! -e $work/controller-runtime-$version/go.mod ]]; then
        mkdir -p "$work/controller-runtime-$version"
        cp -r "$from/." "$work/controller-runtime-$version"
        chmod -R u+w "$work/controller-runtime-$version"
    fi
    printf '%s\n' "$work/controller-runtime-$version"
}

suites() {
    local packages=("$@") name folder
    if [[ ${#packages[@]} -eq 0 ]]; then
        packages=(./pkg/builder ./pkg/cache ./pkg/client ./pkg/client/apiutil ./pkg/cluster ./pkg/controller
            ./pkg/envtest ./pkg/handler ./pkg/internal/controller ./pkg/internal/recorder ./pkg/manager ./pkg/recorder
            ./pkg/source ./pkg/webhook ./pkg/webhook/admission ./pkg/webhook/conversion)
    fi
    cd "$(controller_runtime)"
    pairs | while read -r name folder; do
        say "controller-runtime on $name"
        # Its tests of envtest itself look for the files there.
        KUBEBUILDER_ASSETS=$folder go test -count=1 -timeout 15m "${packages[@]}" 2>&1 |
            tee "$work/suites-$name.log" | grep -E '^(ok|FAIL|---|panic|Ran |.*\[FAIL\])|no test files' || true
    done
}

project() {
    local folder name assets
    for folder in "$@"; do
        pairs | while read -r name assets; do
            say "$folder on $name"
            # What needs a cluster is not for envtest.
            (cd "$folder" && KUBEBUILDER_ASSETS=$assets go test -count=1 $(go list ./... | grep -v /e2e))
        done
    done
}

kubebuilder() {
    local from=${KUBEBUILDER:-https://github.com/kubernetes-sigs/kubebuilder} folder
    if [[ ! -e $work/kubebuilder/testdata ]]; then
        if ! git clone --quiet --depth 1 "$from" "$work/kubebuilder" >&2; then
            say "kubebuilder cannot be cloned"
            exit 3
        fi
    fi
    for folder in "$work"/kubebuilder/testdata/project-*; do
        # They are kept without their go.sum.
        GOFLAGS="${GOFLAGS:-} -mod=mod" project "$folder"
    done
}

setup-envtest() {
    local server folder
    "$root/tools/envtest-release.sh" "$work/release" http://127.0.0.1:18099
    python3 -m http.server --bind 127.0.0.1 --directory "$work/release" 18099 >/dev/null 2>&1 &
    server=$!
    trap 'kill "$server"' EXIT
    rm -rf "$work/store"
    cd "$work"
    for _ in $(seq 50); do
        if (exec 3<>/dev/tcp/127.0.0.1/18099) 2>/dev/null; then break; fi
        sleep 0.1
    done
    folder=$(go run sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1 use 1.36.x --bin-dir "$work/store" \
        --index http://127.0.0.1:18099/envtest-releases.yaml -p path)
    "$folder/kube-apiserver" --version
    "$folder/etcd" --version
    say "setup-envtest installed into $folder"
}

case ${1:-} in
    envtest | suites | kubebuilder | project | setup-envtest) "$@" ;;
    *)
        sed -n '2,/^set/p' "$0" | grep '^#' | cut -c3- >&2
        exit 2
        ;;
esac
