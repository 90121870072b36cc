#!/usr/bin/env python3
"""Every version and level of Pod Security with single changes to a restricted pod, and with random combinations of changes.

    LOCKGATE=target/debug/lockgate ETCD=… KUBE_APISERVER=… ./pod_security.py FOLDER [PAIRS] [SEED]
"""

import copy
import random
import sys

from compare import Comparison
from servers import start

VERSIONS = ["latest"] + [f"v1.{minor}" for minor in range(37)]
LEVELS = ["baseline", "restricted"]
PROFILES = [None, {"type": "RuntimeDefault"}, {"type": "Unconfined"}, {"type": "Localhost", "localhostProfile": "p"}]
SYSCTLS = ["kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
           "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
           "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem",
           "net.ipv4.tcp_wmem", "net.core.somaxconn", "kernel.msgmax"]
VOLUMES = [{"hostPath": {"path": "/x"}}, {"nfs": {"server": "s", "path": "/"}}, {"csi": {"driver": "d"}}, {"image": {"reference": "i"}},
           {"projected": {"sources": []}}, {"gitRepo": {"repository": "r"}}, {"ephemeral": {"volumeClaimTemplate": {"spec": {
               "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
           {"rbd": {"monitors": ["m"], "image": "i"}}, {"portworxVolume": {"volumeID": "v"}}, {"downwardAPI": {"items": []}}]


def pod():
    secure = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {}}, "spec": {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "i", "securityContext": dict(secure)}, {"name": "d", "image": "i", "securityContext": dict(secure)}],
        "initContainers": [{"name": "e", "image": "i", "securityContext": dict(secure)}]}}


def at(path, value):
    """A change that sets a field, or removes it if the value is None."""
    def change(body):
        inner = body
        for step in path[:-1]:
            inner = inner[step] if isinstance(step, int) else inner.setdefault(step, {})
        if value is None:
            inner.pop(path[-1], None)
        else:
            inner[path[-1]] = copy.deepcopy(value)
    return change


def changes():
    spec, yield_all = ["spec"], []
    def add(*path_value):
        yield_all.append(at(*path_value))
    for field in ["hostNetwork", "hostPID", "hostIPC"]:
        add(spec + [field], True)
    for value in [True, False]:
        add(spec + ["hostUsers"], value)
    add(spec + ["os"], {"name": "windows"})
    add(spec + ["os"], {"name": "linux"})
    for volume in VOLUMES:
        add(spec + ["volumes"], [{"name": "v", **volume}])
    for name in SYSCTLS:
        add(spec + ["securityContext", "sysctls"], [{"name": name, "value": "1"}])
    for key in ["container.apparmor.security.beta.kubernetes.io/c", "seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/c"]:
        for value in ["runtime/default", "localhost/x", "unconfined", "docker/default", ""]:
            add(["metadata", "annotations", key], value)
    for where in [spec + ["securityContext"], spec + ["containers", 0, "securityContext"], spec + ["initContainers", 0, "securityContext"]]:
        for value in [None, True, False]:
            add(where + ["runAsNonRoot"], value)
        for value in [0, 1000]:
            add(where + ["runAsUser"], value)
        for profile in PROFILES:
            add(where + ["seccompProfile"], profile)
            add(where + ["appArmorProfile"], profile)
        for value in [{"type": "container_t"}, {"type": "container_init_t"}, {"type": "container_kvm_t"}, {"type": "container_engine_t"}, {"type": "spc_t"}, {"user": "u"}, {"role": "r"}, {"level": "l"}]:
            add(where + ["seLinuxOptions"], value)
        for value in [True, False]:
            add(where + ["windowsOptions"], {"hostProcess": value})
        if where[1] == "securityContext":
            continue
        for value in [True, False]:
            add(where + ["privileged"], value)
        for value in [None, True]:
            add(where + ["allowPrivilegeEscalation"], value)
        for value in ["Default", "Unmasked"]:
            add(where + ["procMount"], value)
        for value in [None, {"drop": ["NET_RAW"]}, {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, {"drop": ["ALL"], "add": ["CHOWN"]},
                      {"drop": ["ALL"], "add": ["SYS_ADMIN", "NET_RAW"]}, {"drop": ["all"]}, {"add": ["AUDIT_WRITE"]}]:
            add(where + ["capabilities"], value)
    for value in [1, 0]:
        add(spec + ["containers", 0, "ports"], [{"containerPort": 1, "hostPort": value}])
    for host in ["1.2.3.4", "", "localhost", "127.0.0.1", "::1"]:
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"]:
            add(spec + ["containers", 0, probe], {"httpGet": {"port": 1, "host": host}})
            add(spec + ["containers", 0, probe], {"tcpSocket": {"port": 1, "host": host}})
        for hook in ["postStart", "preStop"]:
            add(spec + ["containers", 0, "lifecycle"], {hook: {"httpGet": {"port": 1, "host": host}}})
    add(spec + ["containers", 0, "securityContext"], None)
    add(spec + ["securityContext"], None)
    return yield_all


def name_of(level, version):
    return f"{level}-{version.replace('.', '-')}"


def cases(rng, pairs):
    known = changes()
    def made(*chosen):
        body = pod()
        for change in chosen:
            try:
                change(body)
            except (KeyError, TypeError, AttributeError):
                pass
        return body
    for level in LEVELS:
        for version in VERSIONS:
            path = f"/api/v1/namespaces/{name_of(level, version)}/pods?dryRun=All"
            for change in known:
                # Every version with a third of the changes, and `latest` with all.
                if version == "latest" or rng.random() < 0.34:
                    yield f"{level}", ("POST", path, made(change)), {}
    for _ in range(pairs):
        path = f"/api/v1/namespaces/{name_of(rng.choice(LEVELS), rng.choice(VERSIONS))}/pods?dryRun=All"
        yield "pair", ("POST", path, made(*rng.sample(known, rng.randint(2, 4)))), {}


def main():
    folder = sys.argv[1]
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    theirs, ours = start(folder, disabled="ServiceAccount")
    for level in LEVELS:
        for version in VERSIONS:
            labels = {f"pod-security.kubernetes.io/{mode}{suffix}": value for mode in ["enforce", "warn", "audit"]
                      for suffix, value in [("", level), ("-version", version)] if mode != "warn" or version == "latest"}
            for server in (theirs, ours):
                code, answer, _ = server.request("POST", "/api/v1/namespaces", {"metadata": {"name": name_of(level, version), "labels": labels}})
                if code != 201:
                    raise SystemExit(f"{server.name}: {code} {answer}")
    comparison = Comparison(theirs, ours, f"{folder}/differences.jsonl")
    comparison.run(cases(rng, pairs))
    print(comparison.summary())


if __name__ == "__main__":
    main()
