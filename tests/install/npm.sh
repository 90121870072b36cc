#!/usr/bin/env bash
# The npm packages: a fresh project, and a test of Node's own runner.
source "$(dirname "$0")/lib.sh"
need node npm kubectl

start_clock
mkdir "$work/project" && cd "$work/project"
echo '{ "name": "project", "private": true, "type": "module" }' >package.json
# A registry would find these by their names.
npm install --offline --no-audit --no-fund --silent "$dist"/lockgate-"$version".tgz "$dist"/lockgate-test-"$version".tgz \
    "$dist/lockgate-$(node -p 'process.platform + "-" + process.arch')-$version.tgz" >"$work/said" 2>&1 || fail "$(cat "$work/said")"
cat >policy.test.js <<JAVASCRIPT
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { start } from 'lockgate-test';

test('a ConfigMap needs an owner', async () => {
  const server = await start({ args: ['-f', '$here/policy.yaml'] });
  const denied = spawnSync('kubectl', ['--kubeconfig', server.kubeconfig, 'create', 'configmap', 'bad'], { encoding: 'utf8' });
  assert.notEqual(denied.status, 0);
  assert.match(denied.stderr, /every ConfigMap has an owner/);
  await server.stop();
});
JAVASCRIPT
node --test policy.test.js >"$work/said" 2>&1 || fail "$(cat "$work/said")"
passed
[[ $(npx --no-install lockgate version) == "lockgate $version" ]] || fail "npx lockgate does not work"
# Exit codes are the program's.
code=0
npx --no-install lockgate nonsense 2>/dev/null || code=$?
[[ $code -eq 2 ]] || fail "exit code $code instead of 2"
