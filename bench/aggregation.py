#!/usr/bin/env python3
"""The cost of a request through the aggregator: reads of an object of the main server's own, of a note straight from the
server behind, and of the same note by the main one.

    bench/aggregation.py LOCKGATE AGGREGATED_NOTES [COUNT]

Needs openssl, and Linux for the CPU time. Requests go one after another on one connection. CPU per request hardly depends
on what else the machine does; the time it takes does.
"""

import base64
import http.client
import json
import os
import pathlib
import re
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

lockgate, notes = sys.argv[1:3]
count = int(sys.argv[3]) if len(sys.argv) > 3 else 10_000


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def connection(address, context):
    host, port = address.removeprefix("https://").split(":")
    made = http.client.HTTPSConnection(host, int(port), context=context, timeout=60)
    made.connect()
    # Small requests are sent immediately.
    made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def send(to, method, path, body=None):
    to.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
    answer = to.getresponse()
    return answer.status, answer.read()


def cpu(process):
    """Seconds of user and system time."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(to, path):
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        code, _ = send(to, "GET", path)
        taken.append(time.perf_counter() - began)
        assert code == 200, code
    taken.sort()
    return statistics.fmean(taken) * 1e6, taken[len(taken) // 2] * 1e6, taken[len(taken) * 99 // 100] * 1e6


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    ports = free_port()
    names = "subjectAltName=DNS:notes.notes.svc,IP:127.0.0.1"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=notes"]
        + ["-addext", names, "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", folder / "notes.key", "-out", folder / "notes.crt"],
        check=True,
        capture_output=True,
    )
    kubeconfig = folder / "kubeconfig"
    main = subprocess.Popen(
        [lockgate, "serve", "--secure-port", "0", "--kubeconfig-out", kubeconfig, "--map-service", f"notes/notes=127.0.0.1:{ports}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    main.stdout.readline()
    environment = {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "NOTES_CERT_FILE": str(folder / "notes.crt"),
        "NOTES_KEY_FILE": str(folder / "notes.key"),
        "NOTES_ADDRESS": f"127.0.0.1:{ports}",
    }
    behind = subprocess.Popen([notes], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        text = kubeconfig.read_text()
        part = lambda key: re.search(rf'"?{key}"?: *"?([^"\s,]+)', text)[1]
        files = []
        for key in ("client-certificate-data", "client-key-data"):
            (folder / key).write_bytes(base64.b64decode(part(key)))
            files.append(folder / key)
        front = ssl.create_default_context(cadata=base64.b64decode(part("certificate-authority-data")).decode())
        back = ssl.create_default_context(cafile=folder / "notes.crt")
        for context in (front, back):
            context.load_cert_chain(*files)
        by_main = connection(part("server"), front)
        service = {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1.notes.example.com"},
            "spec": {
                "group": "notes.example.com",
                "version": "v1",
                "groupPriorityMinimum": 2000,
                "versionPriority": 20,
                "service": {"namespace": "notes", "name": "notes"},
                "caBundle": base64.b64encode((folder / "notes.crt").read_bytes()).decode(),
            },
        }
        code, answer = send(by_main, "POST", "/apis/apiregistration.k8s.io/v1/apiservices", service)
        assert code == 201, answer
        path = "/apis/notes.example.com/v1/namespaces/default/notes"
        note = {"apiVersion": "notes.example.com/v1", "kind": "Note", "metadata": {"name": "milk"}, "text": "buy"}
        deadline = time.monotonic() + 60
        while (made := send(by_main, "POST", path, note))[0] != 201:
            assert time.monotonic() < deadline, made
            time.sleep(0.1)
        straight = connection(f"https://127.0.0.1:{ports}", back)
        note, own = f"{path}/milk", "/api/v1/namespaces/default"
        for label, to, path in (("own", by_main, own), ("straight", straight, note), ("proxied", by_main, note)):
            before = [cpu(process) for process in (main, behind)]
            mean, median, last = measure(to, path)
            of_main, of_behind = (1e6 * (cpu(process) - was) / count for process, was in zip((main, behind), before))
            print(f"{label:<9} {count} requests: mean {mean:.0f} us, median {median:.0f} us, p99 {last:.0f} us; ", end="")
            print(f"CPU per request {of_main:.0f} us of the main server, {of_behind:.0f} us of the one behind")
    finally:
        for process in (behind, main):
            process.terminate()
            process.wait()
