#!/usr/bin/env bash
# Measures the tools as processes, including startup and reading files: explain over 50 configurations, test of
# 5,000 cases on one core, lint of 1,000 configurations, replay of 10,000 requests. Prints the median of ROUNDS runs
# beside the goal, and fails if one is missed. CPU time is that of the last run, which hardly depends on other load.
#
#   LOCKGATE=target/release/lockgate bench/tools.sh
set -euo pipefail

lockgate=${LOCKGATE:-target/release/lockgate}
rounds=${ROUNDS:-9}
[[ -x $lockgate ]] || {
    echo "bench/tools.sh: \`$lockgate\` is no program; set LOCKGATE to a release build" >&2
    exit 2
}
lockgate=$(realpath "$lockgate")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir -p suite/tests

image_policy() {
    cat <<'YAML'
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: images}
spec:
  matchConstraints: {resourceRules: [{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}
  variables: [{name: images, expression: 'object.spec.containers.map(c, c.image)'}]
  validations:
  - {expression: "variables.images.all(i, i.startsWith('registry.example/'))", message: registry}
  - {expression: "variables.images.all(i, !i.endsWith(':latest'))", message: tag}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: images}
spec: {policyName: images, validationActions: [Deny]}
YAML
}

# Webhooks for every Pod with a label, with a match condition on each container.
webhooks() {
    local number kind
    for ((number = 0; number < $1; number++)); do
        kind=Mutating
        ((number % 2)) && kind=Validating
        cat <<YAML
---
apiVersion: admissionregistration.k8s.io/v1
kind: ${kind}WebhookConfiguration
metadata: {name: hook-$number}
webhooks:
- name: hook-$number.example.com
  clientConfig: {service: {namespace: ns-$number, name: hook, path: /admit}}
  rules: [{operations: [CREATE, UPDATE], apiGroups: ['', apps], apiVersions: [v1], resources: [pods, deployments]}]
  namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, ns-$number]}]}
  objectSelector: {matchExpressions: [{key: app, operator: Exists}]}
  matchConditions: [{name: c, expression: "object.spec.containers.all(c, c.image.startsWith('registry.example/')) && request.name != 'n$number'"}]
  timeoutSeconds: 5
  sideEffects: None
  admissionReviewVersions: [v1]
YAML
    done
}

pod() {
    cat <<YAML
apiVersion: v1
kind: Pod
metadata: {name: web-$1, namespace: shop, labels: {app: web}}
spec: {containers: [{name: c, image: '$2/web:$1'}, {name: d, image: 'registry.example/log:2'}]}
YAML
}

requests() {
    local number
    echo '{"format":"lockgate-capture","version":1,"source":"serve"}'
    for ((number = 0; number < $1; number++)); do
        printf '{"request":{"operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"name":"web-%d","namespace":"shop","userInfo":{"username":"user-%d"},"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-%d","namespace":"shop","labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"registry.example/web:%d"},{"name":"d","image":"registry.example/log:2"}]}}},"decision":{"allowed":true}}\n' \
            "$number" "$((number % 100))" "$number" "$number"
    done
}

webhooks 50 >fifty.yaml
webhooks 1000 >thousand.yaml
pod 1 registry.example >pod.yaml
image_policy >suite/policy.yaml
for ((number = 0; number < 5000; number += 2)); do
    pod "$number" registry.example >"suite/tests/images.good-$number.allow.object.yaml"
    pod "$number" elsewhere.example >"suite/tests/images.bad-$number.deny.object.yaml"
done
requests 10000 >capture.jsonl
{
    image_policy
    webhooks 4
} >chain.yaml

# The first CPU in the affinity mask.
core=$(taskset -pc $$ | sed 's/.*: //; s/[-,].*//')

# The median duration of a command, in microseconds. Exit codes above 3 are failures.
median() {
    local round begun code times=()
    for ((round = 0; round <= rounds; round++)); do
        begun=${EPOCHREALTIME/./}
        code=0
        { time "$@" >out 2>err; } 2>cpu || code=$?
        # The first run fills the page cache.
        ((round == 0)) || times+=("$((${EPOCHREALTIME/./} - begun))")
        if ((code > 3 || code == 1 || code == 2)); then
            echo "bench/tools.sh: \`$*\` exits with $code: $(cat err)" >&2
            exit 1
        fi
    done
    printf '%s\n' "${times[@]}" | sort -n | sed -n "$(((rounds + 1) / 2))p"
}

# Fails if the last output of a command does not contain a text, so that only successful runs are measured.
printed() {
    grep -q "$1" out err || {
        echo "bench/tools.sh: expected \`$1\`, found: $(tail -n 3 out err)" >&2
        exit 1
    }
}

missed=0
row() {
    local verdict=ok
    awk -v a="$3" -v b="$4" -v way="$5" 'BEGIN { exit way == "most" ? a <= b : a >= b }' && {
        verdict=missed
        missed=1
    }
    printf '%-40s %12s %12s %10s %s\n' "$1" "$2" "$6" "$(awk '{ printf "%.3f s", $1 + $2 }' cpu)" "$verdict"
}

TIMEFORMAT='%3U %3S'
printf '%-40s %12s %12s %10s\n' 'TOOL' 'MEASURED' 'GOAL' 'CPU'
time=$(median "$lockgate" explain -f fifty.yaml --object pod.yaml)
printed hook-49
row 'explain, 50 configurations' "$(awk -v t="$time" 'BEGIN { printf "%.1f ms", t / 1e3 }')" "$time" 20000 most '<= 20 ms'

time=$(median taskset -c "$core" "$lockgate" test -j 1 suite)
printed '5000 cases, 5000 passed'
rate=$((5000 * 1000000 / time))
row 'test, 5,000 cases on one core' "$rate /s" "$rate" 5000 least '>= 5000 /s'

time=$(median "$lockgate" lint -f thousand.yaml)
printed hook-999
row 'lint, 1,000 configurations' "$(awk -v t="$time" 'BEGIN { printf "%.2f s", t / 1e6 }')" "$time" 1000000 most '<= 1 s'

time=$(median taskset -c "$core" "$lockgate" replay capture.jsonl -f chain.yaml)
printed '10000 requests, 0 changed'
rate=$((10000 * 1000000 / time))
row 'replay, 10,000 requests on one core' "$rate /s" "$rate" 2000 least '>= 2000 /s'

exit "$missed"
