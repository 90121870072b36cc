#!/usr/bin/env bash
# The GitHub Action: its one step, with the files and variables of a runner.
source "$(dirname "$0")/lib.sh"
need curl kubectl setsid

start_clock
export RUNNER_TEMP=$work/temp GITHUB_PATH=$work/path GITHUB_ENV=$work/env GITHUB_OUTPUT=$work/output GITHUB_ACTION_PATH=$root
touch "$GITHUB_PATH" "$GITHUB_ENV" "$GITHUB_OUTPUT"
step=$(sed -n "s/^      run: '\(.*\)'$/\1/p" "$root/action.yml")
[[ -n $step ]] || fail "action.yml has no step"
# Every input reaches the step.
for input in $(sed -n '/^inputs:/,/^outputs:/s/^  \([a-z]*\):$/\1/p' "$root/action.yml"); do
    grep -q "INPUT_${input^^}: " "$root/action.yml" || fail "the input $input goes nowhere"
done
INPUT_VERSION=$version INPUT_FROM=file://$dist INPUT_START=true INPUT_ARGS="-f $here/policy.yaml" INPUT_ENVTEST=true \
    INPUT_LINT=$here/policy.yaml bash -c "$step" >"$work/said" 2>&1 || fail "$(cat "$work/said")"
server=$(pgrep -f "^$work/temp/lockgate/bin/lockgate serve" | head -1)
# What a runner does between steps.
export PATH="$(cat "$GITHUB_PATH"):$PATH"
while IFS= read -r line; do export "${line?}"; done <"$GITHUB_ENV"
[[ $(lockgate version) == "lockgate $version" ]] || fail "PATH is not set"
[[ -x $KUBEBUILDER_ASSETS/kube-apiserver ]] || fail "KUBEBUILDER_ASSETS is not set"
grep -q "^kubeconfig=$KUBECONFIG$" "$GITHUB_OUTPUT" || fail "no output kubeconfig"
denies
passed

# Findings fail the step.
sed 's/every ConfigMap has an owner/&/; s/object.metadata/objekt.metadata/' "$here/policy.yaml" >"$work/wrong.yaml"
code=0
INPUT_VERSION=$version INPUT_FROM=file://$dist INPUT_LINT=$work/wrong.yaml bash -c "$step" >"$work/said" 2>&1 || code=$?
[[ $code -eq 3 ]] || fail "exit code $code instead of 3: $(cat "$work/said")"
grep -q '^::error ' "$work/said" || fail "$(cat "$work/said")"
