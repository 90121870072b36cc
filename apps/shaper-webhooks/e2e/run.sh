#!/usr/bin/env bash
# Runs the fixtures against the webhooks.
#
#   run.sh kind      a kind cluster with cert-manager and both charts; needs docker or podman, kind, helm,
#                    kubectl, and network access for cert-manager. KEEP=1 keeps the cluster.
#   run.sh cluster   the cluster of the current kubeconfig, with the charts already installed
#   run.sh lockgate  `lockgate serve --simulate=workloads` with stand-ins for cert-manager and the kubelet:
#                    install, upgrade, rotation of certificates and removal. Needs kubectl and openssl;
#                    LOCKGATE and SHAPER_WEBHOOKS are the paths of the programs, which are built by default.
#
# Exit code 0 if every fixture has the result in its line "# expect:".
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
    # The CA injector waits for the Secret, which is issued for the Certificate.
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

# Creates a fixture and compares the result with its first line.
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

# Waits until a command succeeds.
until_true() {
    local _
    for _ in $(seq 300); do
        if "$@"; then return 0; fi
        sleep 0.1
    done
    echo "gave up waiting: $*" >&2
    return 1
}

# Runs a command and checks that it succeeds.
holds() {
    local what=$1
    shift
    "$@" && check "$what" 0 || check "$what" 1
}

bundles() { # the distinct bundles of both configurations
    kubectl get mutatingwebhookconfiguration/shaper-webhooks-mutating validatingwebhookconfiguration/shaper-webhooks-validating \
        -o jsonpath='{range .items[*].webhooks[*]}{.clientConfig.caBundle}{"\n"}{end}' | sort -u
}

has_one_bundle() { [[ $(bundles | wc -l) -eq 1 && -n $(bundles) ]]; }

revision() { kubectl -n shaper-system get certificate "$1" -o jsonpath='{.status.revision}' 2>/dev/null; }

# The serial number of the webhooks' serving certificate.
shown() { openssl s_client -connect "127.0.0.1:$port" -servername shaper-webhooks.shaper-system.svc </dev/null 2>/dev/null | openssl x509 -noout -serial; }

# Requests a new certificate like `cmctl renew`, and waits for it.
renew() {
    local before
    before=$(revision "$1")
    kubectl -n shaper-system get certificate "$1" -o json | python3 -c '
import json, sys
certificate = json.load(sys.stdin)
certificate["status"]["conditions"].append({"type": "Issuing", "status": "True", "reason": "ManuallyTriggered",
    "message": "renewal was requested", "lastTransitionTime": "2026-01-01T00:00:00Z"})
json.dump(certificate, sys.stdout)' | kubectl replace --subresource=status -f - >/dev/null
    until_true eval "[[ \$(revision $1) == $((before + 1)) ]]"
}

# Creates and deletes a Profile repeatedly, until the file is removed. Every failure is a line in the log.
write_on() {
    local count=0
    while [[ -e $work/writing ]]; do
        if ! kubectl create -f - >/dev/null 2>>"$work/write-failures" <<'YAML'; then continue; fi
apiVersion: shaper.amahdha.com/v1alpha1
kind: Profile
metadata: {name: written-over-and-over, namespace: default}
spec: {ipxeTemplate: "#!ipxe"}
YAML
        kubectl delete profile written-over-and-over >/dev/null 2>>"$work/write-failures" || true
        count=$((count + 1))
        echo "$count" >"$work/writes"
    done
}

# Runs a command during continuous writes, none of which may fail.
undisturbed() {
    local what=$1 writer
    shift
    : >"$work/write-failures"
    echo 0 >"$work/writes"
    touch "$work/writing"
    write_on &
    writer=$!
    local code=0
    "$@" || code=$?
    # At least one write after it.
    local seen
    seen=$(cat "$work/writes")
    until_true eval "[[ \$(cat '$work/writes') -gt $((seen + 1)) ]]" || code=1
    rm -f "$work/writing"
    wait "$writer"
    if [[ -s $work/write-failures ]]; then
        head -3 "$work/write-failures"
        code=1
    fi
    check "$what ($(cat "$work/writes") writes meanwhile, none failed)" "$code"
}

upgraded() {
    helm upgrade shaper-webhooks charts/shaper-webhooks --namespace shaper-system --reuse-values --wait --timeout 120s \
        --set webhooks.validating.timeoutSeconds=7,logging.level=info,replicaCount=2,profileDeletion=Deny >/dev/null || return 1
    # The stand-in for the kubelet replaces the process once the new one is ready.
    until_true eval "[[ \$(grep -c 'started process' '$work/standins.log') -ge 2 ]]"
}

leaf_renewed() {
    local before
    before=$(shown)
    renew shaper-webhooks-cert && until_true eval "[[ \$(shown) != '$before' ]]"
}

authority_renewed() {
    local before
    before=$(bundles)
    renew shaper-webhooks-ca && until_true eval "[[ \$(bundles) != '$before' ]]" && renew shaper-webhooks-cert
}

denies_deletion() {
    local output
    kubectl create -f "$fixtures/test-profile.yaml" >/dev/null && kubectl create -f "$fixtures/valid-assignment.yaml" >/dev/null
    if output=$(kubectl delete profile test-profile 2>&1); then return 1; fi
    [[ $output == *"still referenced by assignments"* ]]
}

admits_anything() {
    kubectl apply -f "$fixtures/invalid-profile-multiple-content.yaml" >/dev/null
}

simulated() {
    local clients kubectl_folder
    clients=$(tools/need.sh clients)
    kubectl_folder=$(tools/need.sh kubectl)
    export PATH="$kubectl_folder:$PATH:$clients/bin"
    if [[ -z ${LOCKGATE:-} || -z ${SHAPER_WEBHOOKS:-} ]]; then
        cargo build --quiet --locked -p lockgate-cli -p shaper-webhooks
        LOCKGATE=${CARGO_TARGET_DIR:-target}/debug/lockgate
        SHAPER_WEBHOOKS=${CARGO_TARGET_DIR:-target}/debug/shaper-webhooks
    fi
    work=$(mktemp -d)
    server= standins=
    finish() {
        rm -f "$work/writing"
        if [[ -n $standins ]]; then kill "$standins" 2>/dev/null && wait "$standins" || true; fi
        if [[ -n $server ]]; then kill "$server" 2>/dev/null && wait "$server" || true; fi
        if [[ -n ${KEEP:-} ]]; then say "logs are in $work"; else rm -rf "$work"; fi
    }
    trap finish EXIT
    port=$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
    say "starting the API server"
    export KUBECONFIG=$work/kubeconfig
    "$LOCKGATE" serve --secure-port 0 --simulate=workloads --kubeconfig-out "$KUBECONFIG" \
        --map-service "shaper-system/shaper-webhooks=127.0.0.1:$port" >"$work/ready" 2>"$work/server.log" &
    server=$!
    until_true test -s "$work/ready"
    : >"$work/standins.log"
    "$clients/bin/python" apps/shaper-webhooks/e2e/standins.py --kubeconfig "$KUBECONFIG" --program "$(realpath "$SHAPER_WEBHOOKS")" \
        --port "$port" --folder "$work" >>"$work/standins.log" 2>&1 &
    standins=$!
    until_true grep -q ready "$work/standins.log"

    say "installing the charts"
    helm install shaper-crds charts/shaper-crds --namespace default >/dev/null
    helm install shaper-webhooks charts/shaper-webhooks --namespace shaper-system --create-namespace \
        -f charts/shaper-webhooks/values.test.yaml --wait --timeout 120s >/dev/null
    holds "the authority is injected" until_true has_one_bundle
    holds "the program serves" until_true grep -q "started process" "$work/standins.log"
    holds "helm test" eval 'helm test shaper-webhooks --namespace shaper-system >/dev/null'
    suite || true

    say "upgrading"
    undisturbed "helm upgrade" upgraded
    holds "the injected authority stays" has_one_bundle
    holds "the new configuration is in effect" denies_deletion
    kubectl delete assignments --all --namespace default >/dev/null

    say "rotating certificates"
    undisturbed "a renewed certificate is used" leaf_renewed
    undisturbed "a renewed authority is injected" authority_renewed
    helm upgrade shaper-webhooks charts/shaper-webhooks --namespace shaper-system --reuse-values --wait --timeout 120s \
        --set profileDeletion=Warn >/dev/null
    until_true eval "[[ \$(grep -c 'started process' '$work/standins.log') -ge 3 ]]"
    suite || true

    say "removing"
    kubectl create -f "$fixtures/test-profile.yaml" >/dev/null
    helm uninstall shaper-webhooks --namespace shaper-system --wait >/dev/null
    holds "no configuration is left" eval '[[ -z $(kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations -o name) ]]'
    holds "the program has ended" until_true grep -q "the program ended with 0" "$work/standins.log"
    holds "nothing is refused any more" admits_anything
    helm uninstall shaper-crds --namespace default --wait >/dev/null
    holds "objects and their definitions stay" eval 'kubectl get profile test-profile >/dev/null'
    if [[ $failed -ne 0 ]]; then
        tail -n 20 "$work/standins.log" "$work/server.log" "$work/program.log"
    fi
    return "$failed"
}

case ${1:-} in
    kind) install && suite ;;
    cluster) suite ;;
    lockgate) simulated ;;
    *) sed -n '2,/^set/p' "$0" | grep '^#' | cut -c3-; exit 2 ;;
esac
