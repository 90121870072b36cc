#!/usr/bin/env bash
# The wheels: a fresh environment, and a test of pytest (of the standard library where there is no pytest).
source "$(dirname "$0")/lib.sh"
need python3 kubectl

# Where pytest is, if it is installed: it is no part of the package.
pytest=$(HOME=~ python3 -c 'import os, pytest; print(os.path.dirname(os.path.dirname(pytest.__file__)))' 2>/dev/null || true)
pytest=${PYTEST_SITE:-$pytest}

start_clock
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-index --find-links "$dist" lockgate-test
cat >"$work/conftest.py" <<PYTHON
import pytest

@pytest.fixture(scope="session")
def lockgate_arguments():
    return ["-f", "$here/policy.yaml"]
PYTHON
cat >"$work/test_policy.py" <<'PYTHON'
import subprocess

def create(server, name):
    command = ["kubectl", "--kubeconfig", server.kubeconfig, "create", "configmap", name]
    return subprocess.run(command, capture_output=True, text=True)

def test_a_config_map_needs_an_owner(lockgate):
    denied = create(lockgate, "bad")
    assert denied.returncode != 0
    assert "every ConfigMap has an owner" in denied.stderr
PYTHON
if [[ -n $pytest ]]; then
    (cd "$work" && PYTHONPATH=$pytest "$work/venv/bin/python" -m pytest -q -p no:cacheprovider test_policy.py) >"$work/said" 2>&1 || fail "$(cat "$work/said")"
    grep -q '1 passed' "$work/said" || fail "$(cat "$work/said")"
else
    (cd "$work" && "$work/venv/bin/python" -c "
import lockgate_test, test_policy
with lockgate_test.start(['-f', '$here/policy.yaml']) as server:
    test_policy.test_a_config_map_needs_an_owner(server)") || fail "the test did not pass"
fi
passed
[[ $("$work/venv/bin/lockgate" version) == "lockgate $version" ]] || fail "the wheel has no program of this version"
"$work/venv/bin/pip" check --disable-pip-version-check >/dev/null || fail "pip check"
