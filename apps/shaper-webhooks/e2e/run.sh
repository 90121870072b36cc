#!/usr/bin/env bash
# Runs the fixtures against the webhooks.
#
#   run.sh kind      a kind cluster with cert-manager and both charts; needs docker or podman, kind, helm,
#                    kubectl, and the network for cert-manager. KEEP=1 leaves the cluster.
#   run.sh cluster   the cluster of the present kubeconfig, where the charts are installed already
#
# Exit code 0 when every fixture ended as its line "# expect:" says.
set -euo pipefail
cd "$(dirname "$0")/../../.."

fixtures=apps/shaper-webhooks/e2e/fixtures
cluster=shaper-webhooks-e2e
cert_manager=${CERT_MANAGER_VERSION:-v1.21.1}
engine=${ENGINE:-$(command -v docker >/dev/null && echo docker || echo podman)}

say() { printf '== %s\n' "$*"; }

install() {
    for program in "$engine" kind helm kubectl; do
        command -v "$program" >/dev/null || { echo "$program is missing" >&2; exit 1; }
    done
    say "building the image"
    "$engine" build -f apps/shaper-webhooks/Containerfile -t localhost/shaper-webhook:test \
        --build-arg "COMMIT=$(git rev-parse --short HEAD)" --build-arg "BUILT=$(date -u +%FT%TZ)" .
    say "making the cluster"
    kind create cluster --name "$cluster" --wait 120s
    if [[ -z ${KEEP:-} ]]; then
        trap 'kind delete cluster --name "$cluster"' EXIT
    fi
    archive=$(mktemp --suffix .tar)
    "$engine" save -o "$archive" localhost/shaper-webhook:test
    kind load image-archive "$archive" --name "$cluster"
    rm -f "$archive"
    say "installing cert-manager $cert_manager"
    kubectl apply -f "https://github.com/cert-manager/cert-manager/releases/download/$cert_manager/cert-manager.yaml"
    kubectl -n cert-manager wait --for=condition=Available deployment --all --timeout=300s
    say "installing the charts"
    helm install shaper-crds charts/shaper-crds --namespace default
    helm install shaper-webhooks charts/shaper-webhooks --namespace shaper-system --create-namespace \
        -f charts/shaper-webhooks/values.test.yaml --wait --timeout 300s
    # The injector follows the Secret, which follows the Certificate.
    for kind in mutating validating; do
        kubectl wait "${kind}webhookconfiguration/shaper-webhooks-$kind" --timeout=60s \
            --for=jsonpath='{.webhooks[0].clientConfig.caBundle}'
    done
    helm test shaper-webhooks --namespace shaper-system
}

failed=0

check() { # what, exit code of the test
    if [[ $2 -eq 0 ]]; then
        printf 'ok      %s\n' "$1"
    else
        printf 'FAILED  %s\n' "$1"
        failed=1
    fi
}

# Creates a fixture and compares with what its first line says.
try() {
    local file=$fixtures/$1.yaml expect output code=0
    expect=$(sed -n 's/^# expect: //p' "$file")
    output=$(kubectl create -f "$file" 2>&1) || code=$?
    case $expect in
        "denied: "*) [[ $code -ne 0 && $output == *"${expect#denied: }"* ]] ;;
        *) [[ $code -eq 0 ]] ;;
    esac && check "$1" 0 || { check "$1" 1; printf '%s\n' "$output"; }
}

labels() { # kind name -> keys of UUID labels, sorted
    kubectl get "$1" "$2" -o go-template='{{range $key, $value := .metadata.labels}}{{$key}}={{$value}}{{"\n"}}{{end}}' |
        grep '^uuid\.shaper\.amahdha\.com/' | sort
}

suite() {
    say "running the fixtures"
    kubectl delete assignments,profiles --all --namespace default --ignore-not-found >/dev/null
    for fixture in test-profile valid-assignment invalid-assignment-uuid invalid-assignment-buildarch \
        invalid-assignment-default invalid-assignment-profile invalid-assignment-taken valid-profile \
        invalid-profile-multiple-content invalid-profile-second-content valid-profile-mutation; do
        try "$fixture"
    done
    [[ $(labels assignment valid-assignment | wc -l) -eq 2 ]] && check "one label for each machine" 0 || check "one label for each machine" 1
    before=$(labels profile valid-profile-mutation)
    [[ $(wc -l <<<"$before") -eq 2 ]] && check "one label for each exposed content" 0 || check "one label for each exposed content" 1
    kubectl patch profile valid-profile-mutation --type merge -p '{"spec":{"ipxeTemplate":"#!ipxe\necho changed"}}' >/dev/null 2>&1
    [[ $(labels profile valid-profile-mutation) == "$before" ]] && check "labels stay when the profile changes" 0 || check "labels stay when the profile changes" 1
    output=$(kubectl delete profile test-profile 2>&1)
    [[ $output == *"still referenced by assignments"* ]] && check "deleting a profile in use warns" 0 || check "deleting a profile in use warns" 1
    kubectl delete assignments,profiles --all --namespace default >/dev/null
    return "$failed"
}

case ${1:-} in
    kind) install && suite ;;
    cluster) suite ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
