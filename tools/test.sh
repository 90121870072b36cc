#!/usr/bin/env bash
# Runs the tests.
#
#   tools/test.sh check   the inner loop: no network, no clients, nothing installed
#   tools/test.sh all     all checks for a change
set -euo pipefail
cd "$(dirname "$0")/.."

# Tests that run kubectl, Helm or the Python client, by the names of their modules.
kubectl_tests=(
    kubectl::
    kubectl_keeps_notes
    workloads::
    guides::the_commands_of_a_lockout
    guides::the_commands_of_serving
    guides::the_commands_of_simulation
    whoever_comes_directly
    the_cost_of_a_request_through_the_proxy
    chain::installed_by_helm_it_does_what_the_original_promised
    chain::the_paths_of_kubebuilder_and_guarded_profiles_work_as_well
    dev::a_webhook_is_asked
)
client_tests=(helm:: python:: charts:: chain::installed_by_helm chain::the_paths_of_kubebuilder)
# Tests that run a browser.
browser_tests=(browser::)
# Tests that run etcd.
etcd_tests=(on_etcd::)
missing=()

step() { printf '\n== %s\n' "$*" >&2; }

# Prints `--skip` with the name of each of these tests.
skips() { printf -- '--skip\n%s\n' "$@"; }

# Warnings are errors only here, so that work in progress compiles.
lint() {
    step "formatting and lints"
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked "$@" -- -D warnings
}

check() {
    export CARGO_NET_OFFLINE=true
    lint
    step "tests without clients"
    # The slowest suites run in `make test` only: recorded scenarios, kills, load, and tests that compile projects.
    mapfile -t skipped < <(skips "${kubectl_tests[@]}" "${client_tests[@]}" "${browser_tests[@]}" "${etcd_tests[@]}" \
        durability:: a_hundred_writers_and_kills soak:: hostile_bounds:: health_checks_answer_beside \
        messages_are_as_recorded a_new_webhook_compiles)
    cargo test --workspace --lib --bins --test it --locked -- "${skipped[@]}"
}

all() {
    local kubectl clients deny chromium etcd
    if kubectl=$(tools/need.sh kubectl); then
        export PATH="$kubectl:$PATH"
    else
        missing+=("kubectl: ${kubectl_tests[*]}")
    fi
    if etcd=$(tools/need.sh etcd); then
        export LOCKGATE_ETCD=$etcd
    else
        missing+=("etcd: ${etcd_tests[*]}")
    fi
    if ! clients=$(tools/need.sh clients) || [[ -z $clients ]]; then
        missing+=("Helm and the Python client: ${client_tests[*]}")
    fi
    if chromium=$(tools/need.sh chromium); then
        export PATH="$chromium:$PATH"
    else
        missing+=("Chromium: ${browser_tests[*]}")
    fi
    lint

    step "documentation"
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

    # Outside of the workspace, and not built by any other step.
    step "fuzz targets and benches build"
    local target=${CARGO_TARGET_DIR:-target}
    local manifest
    for manifest in fuzz/Cargo.toml bench/*/Cargo.toml; do
        cargo check --quiet --manifest-path "$manifest" --target-dir "$target/outside"
    done

    step "packages"
    cargo package --workspace --no-verify --allow-dirty --locked --quiet --exclude lockgate-testkit

    step "dependencies"
    if deny=$(tools/need.sh deny); then
        export PATH="$deny:$PATH"
        cargo deny --all-features check --hide-inclusion-graph bans licenses sources
        if timeout 120 cargo deny --all-features fetch db; then
            cargo deny --all-features check --disable-fetch advisories
        else
            missing+=("advisories of dependencies: their database cannot be reached")
        fi
    else
        missing+=("cargo deny")
    fi

    # The steps below run the binaries of the tests, so that nothing is built twice.
    step "building tests and programs"
    cargo test --workspace --locked --no-run
    local lockgate
    lockgate=$(realpath "$target/debug/lockgate")

    step "controller-runtime's envtest on the drop-in"
    local code=0
    LOCKGATE=$lockgate conformance/go/run.sh envtest || code=$?
    case $code in
        0) ;;
        3) missing+=("controller-runtime's envtest: Go or its modules are missing") ;;
        *) exit "$code" ;;
    esac

    step "packages for pytest and vitest"
    if [[ -n ${clients:-} ]]; then
        LOCKGATE=$lockgate PYTHONPATH=packages/python/src "$clients/bin/python" -m pytest -q -p no:cacheprovider \
            -p lockgate_test.plugin packages/python/tests
    else
        missing+=("the package for pytest")
    fi
    if command -v node >/dev/null; then
        (cd packages/js && LOCKGATE=$lockgate node --test test/)
    else
        missing+=("the package for vitest: there is no Node.js")
    fi

    # The payload is the debug build, which is larger than a release: hence the limit.
    step "ways to install"
    LOCKGATE=$lockgate LIMIT=120 tests/install/run.sh | tee "$target/install.log"
    case "$(tail -n 1 "$target/install.log")" in
        skipped:*) missing+=("ways to install, $(tail -n 1 "$target/install.log")") ;;
    esac

    step "the charts of shaper: install, upgrade, rotation, removal"
    if [[ -n ${clients:-} ]] && command -v openssl >/dev/null; then
        LOCKGATE=$lockgate SHAPER_WEBHOOKS=$(realpath "$target/debug/shaper-webhooks") apps/shaper-webhooks/e2e/run.sh lockgate
    else
        missing+=("the charts of shaper, deployed: its clients or openssl are missing")
    fi

    # Last, so that the output ends with cargo's own summary.
    step "tests"
    local skipped=()
    case "${missing[*]-}" in *kubectl:*) mapfile -t skipped < <(skips "${kubectl_tests[@]}" "${client_tests[@]}") ;; esac
    case "${missing[*]-}" in *Helm*) mapfile -t -O "${#skipped[@]}" skipped < <(skips "${client_tests[@]}") ;; esac
    case "${missing[*]-}" in *Chromium*) mapfile -t -O "${#skipped[@]}" skipped < <(skips "${browser_tests[@]}") ;; esac
    case "${missing[*]-}" in *etcd:*) mapfile -t -O "${#skipped[@]}" skipped < <(skips "${etcd_tests[@]}") ;; esac
    cargo test --workspace --locked -- "${skipped[@]}"

    if [[ ${#missing[@]} -gt 0 ]]; then
        printf '\n== all tests passed that could run; SKIPPED:\n' >&2
        printf '==   %s\n' "${missing[@]}" >&2
    fi
}

case ${1:-} in
    check | all) "$1" ;;
    *)
        echo "usage: tools/test.sh check|all" >&2
        exit 2
        ;;
esac
