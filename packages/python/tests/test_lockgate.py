import os
import ssl
import urllib.error
import urllib.request

import pytest

import lockgate_test


def get(server, path):
    context = ssl.create_default_context(cadata=server.ca)
    with urllib.request.urlopen(server.url + path, context=context, timeout=30) as answer:
        return answer.read().decode()


def test_the_fixture_is_a_server_that_is_ready(lockgate):
    assert get(lockgate, "/readyz") == "ok"
    with open(lockgate.kubeconfig) as file:
        assert lockgate.url in file.read()


def test_a_server_stops_and_takes_its_kubeconfig_along(lockgate):
    with lockgate_test.start() as other:
        assert other.url != lockgate.url
        assert get(other, "/healthz") == "ok"
    assert other.process.returncode == 0
    assert not os.path.exists(other.kubeconfig)
    with pytest.raises(urllib.error.URLError):
        get(other, "/healthz")


def test_a_start_that_fails_says_why():
    with pytest.raises(lockgate_test.LockgateError, match="unexpected argument '--nothing'"):
        lockgate_test.start(["--nothing"])


def test_the_program_is_looked_for(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("LOCKGATE", raising=False)
    with pytest.raises(lockgate_test.LockgateError, match="no lockgate on PATH"):
        lockgate_test.start()


def test_the_python_client_talks_to_it(lockgate):
    kubernetes = pytest.importorskip("kubernetes")
    kubernetes.config.load_kube_config(lockgate.kubeconfig)
    names = [item.metadata.name for item in kubernetes.client.CoreV1Api().list_namespace().items]
    assert "default" in names
