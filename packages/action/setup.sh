#!/usr/bin/env bash
# The one step of action.yml: its inputs are in the environment as INPUT_NAME.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${RUNNER_TEMP:?}/lockgate
mkdir -p "$home"

"$here/../install.sh" --version "${INPUT_VERSION:?}" --from "${INPUT_FROM:?}" --to "$home/bin"
printf '%s\n' "$home/bin" >>"$GITHUB_PATH"
printf 'path=%s\n' "$home/bin/lockgate" >>"$GITHUB_OUTPUT"

if [[ ${INPUT_ENVTEST:-false} == true ]]; then
    "$home/bin/lockgate" envtest install "$home/envtest"
    printf 'KUBEBUILDER_ASSETS=%s\n' "$home/envtest" >>"$GITHUB_ENV"
fi

if [[ ${INPUT_START:-false} == true ]]; then
    # Inputs are words: there are no quotes to respect.
    read -ra args <<<"${INPUT_ARGS:-}"
    # It lives on when this step ends, and ends with the runner.
    nohup setsid "$home/bin/lockgate" serve --secure-port 0 --kubeconfig-out "$home/kubeconfig" "${args[@]}" \
        >"$home/ready" 2>"$home/server.log" </dev/null &
    server=$!
    for _ in $(seq 600); do
        if [[ -s $home/ready ]]; then break; fi
        if ! kill -0 "$server" 2>/dev/null; then break; fi
        sleep 0.05
    done
    if [[ ! -s $home/ready ]]; then
        cat "$home/server.log" >&2
        echo "::error::lockgate serve did not start"
        exit 1
    fi
    cat "$home/ready"
    printf 'KUBECONFIG=%s\n' "$home/kubeconfig" >>"$GITHUB_ENV"
    printf 'kubeconfig=%s\n' "$home/kubeconfig" >>"$GITHUB_OUTPUT"
fi

if [[ -n ${INPUT_LINT:-} ]]; then
    read -ra paths <<<"$INPUT_LINT"
    "$home/bin/lockgate" lint -o github "${paths[@]}"
fi
