"""The storage format in etcd: kube-apiserver reads objects that `lockgate serve` stored, and vice versa.

    python3 conformance/differential/layout.py FOLDER

The servers run one after the other on one etcd, with the same prefix: lockgate creates objects of many kinds, kube-apiserver
reads them, creates others and changes some, and lockgate reads all of them. Whole objects are compared, with uids and
resourceVersions. Prints the number of objects and of differences; the exit code is 0 if there are none.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

from servers import TOKENS, Server

POD = {"containers": [{"name": "c", "image": "nginx:1", "ports": [{"containerPort": 80}],
                       "resources": {"requests": {"cpu": "100m", "memory": "1.5Gi"}}}]}
LABELS = {"app": "a"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": POD}
SELECTOR = {"matchLabels": LABELS}
SPACE = "layout"


def objects(name):
    """Collection paths with objects to create in them."""
    def space(group, plural):
        return f"{group}/namespaces/{SPACE}/{plural}"

    core, apps, batch = "/api/v1", "/apis/apps/v1", "/apis/batch/v1"
    networking, rbac = "/apis/networking.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1"
    storage, registration = "/apis/storage.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
    workload = {"selector": SELECTOR, "template": TEMPLATE}
    ports = [{"name": "http", "port": 80, "protocol": "TCP"}]
    found = [
        (space(core, "configmaps"), {"data": {"k": "\"v\"\n<é>"}, "binaryData": {"b": "AAEC"}}),
        (space(core, "secrets"), {"type": "Opaque", "data": {"k": "dg=="}}),
        (space(core, "serviceaccounts"), {"secrets": [{"name": "s"}]}),
        (space(core, "services"), {"spec": {"selector": LABELS, "ports": [{"port": 80}], "clusterIP": "None"}}),
        (space(core, "endpoints"), {"subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": ports}]}),
        (space(core, "pods"), {"metadata": {"labels": LABELS, "annotations": {"a": "b"}}, "spec": POD}),
        (space(core, "podtemplates"), {"template": TEMPLATE}),
        (space(core, "replicationcontrollers"), {"spec": {"selector": LABELS, "template": TEMPLATE}}),
        (space(core, "persistentvolumeclaims"), {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        (f"{core}/persistentvolumes", {"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}}),
        (space(core, "limitranges"), {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}),
        (space(core, "events"), {"involvedObject": {"kind": "Pod", "namespace": SPACE, "name": "p"}, "reason": "r", "message": "m",
                                 "type": "Normal", "firstTimestamp": "2026-01-01T00:00:00Z"}),
        (f"{core}/nodes", {"spec": {"podCIDR": "10.2.0.0/24", "podCIDRs": ["10.2.0.0/24"]}}),
        (space(apps, "deployments"), {"spec": {**workload, "replicas": 2, "strategy": {"rollingUpdate": {"maxSurge": "10%"}}}}),
        (space(apps, "daemonsets"), {"spec": workload}),
        (space(apps, "replicasets"), {"spec": workload}),
        (space(apps, "statefulsets"), {"spec": {**workload, "serviceName": "s"}}),
        (space(apps, "controllerrevisions"), {"revision": 3, "data": {"spec": {"x": [1, 2.5, "y", None]}}}),
        (space(batch, "jobs"), {"spec": {"template": {"spec": {**POD, "restartPolicy": "Never"}}}}),
        (space(batch, "cronjobs"), {"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": {"spec": {**POD, "restartPolicy": "Never"}}}}}}),
        (space("/apis/autoscaling/v2", "horizontalpodautoscalers"), {"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}}),
        (space("/apis/policy/v1", "poddisruptionbudgets"), {"spec": {"minAvailable": "50%", "selector": SELECTOR}}),
        (space("/apis/coordination.k8s.io/v1", "leases"), {"spec": {"holderIdentity": "h", "renewTime": "2026-01-01T00:00:00.123456Z", "leaseDurationSeconds": 40}}),
        (space("/apis/discovery.k8s.io/v1", "endpointslices"), {"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}], "ports": ports}),
        (space(networking, "ingresses"), {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}),
        (space(networking, "networkpolicies"), {"spec": {"podSelector": SELECTOR, "policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": 80}]}]}}),
        (f"{networking}/ingressclasses", {"spec": {"controller": "x.example/c"}}),
        (space(rbac, "roles"), {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        (space(rbac, "rolebindings"), {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}]}),
        (f"{rbac}/clusterroles", {"rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]}),
        (f"{rbac}/clusterrolebindings", {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}}),
        (f"{storage}/storageclasses", {"provisioner": "x.example/p", "parameters": {"a": "b"}}),
        (f"{storage}/csidrivers", {"spec": {"attachRequired": False}}),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", {"value": 7}),
        ("/apis/node.k8s.io/v1/runtimeclasses", {"handler": "h"}),
        (f"{registration}/validatingwebhookconfigurations", {"webhooks": [{
            "name": "w.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None", "failurePolicy": "Ignore",
            "admissionReviewVersions": ["v1"], "rules": [{"operations": ["CREATE"], "apiGroups": ["none.example"], "apiVersions": ["v1"], "resources": ["none"]}]}]}),
        (f"{registration}/validatingadmissionpolicies", {"spec": {
            "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": ["none.example"], "apiVersions": ["v1"], "resources": ["none"]}]},
            "validations": [{"expression": "true"}]}}),
        (f"{registration}/validatingadmissionpolicybindings", {"spec": {"policyName": "p", "validationActions": ["Warn"]}}),
    ]
    kinds = []
    for path, value in found:
        value = json.loads(json.dumps(value))
        value.setdefault("metadata", {})["name"] = name
        kinds.append((path, value))
    return kinds


def definition(name):
    plural = f"{name}s"
    return f"{plural}.{name}.example", {
        "metadata": {"name": f"{plural}.{name}.example"},
        "spec": {"group": f"{name}.example", "scope": "Namespaced", "names": {"plural": plural, "singular": name, "kind": name.capitalize()},
                 "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                     "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]}}


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Runs:
    """Servers that run one after the other on one etcd."""

    def __init__(self, folder):
        self.folder, self.base = folder, int(os.environ.get("PORT", "26543"))
        self.etcd = f"http://127.0.0.1:{self.base + 2}"
        with open(f"{folder}/tokens.csv", "w") as file:
            file.write(TOKENS)
        key = f"{folder}/sa.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        peer = f"http://127.0.0.1:{self.base + 3}"
        self.store = self.run("etcd", [os.environ.get("ETCD", "etcd"), "--data-dir", tempfile.mkdtemp(dir=folder), "--listen-client-urls", self.etcd,
                                       "--advertise-client-urls", self.etcd, "--listen-peer-urls", peer, "--unsafe-no-fsync"])

    def run(self, name, arguments):
        log = open(f"{self.folder}/{name}.log", "a")
        return subprocess.Popen(arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def lockgate(self):
        process = self.run("lockgate", [
            os.environ.get("LOCKGATE", "lockgate"), "serve", f"--secure-port={self.base + 1}", f"--token-auth-file={self.folder}/tokens.csv",
            "--controllers=-*", f"--kubeconfig-out={self.folder}/kubeconfig", "--log-level=warn", f"--etcd-servers={self.etcd}",
            "--disable-admission-plugins=ServiceAccount"])
        server = Server("lockgate", self.base + 1)
        server.ready()
        return process, server

    def kube_apiserver(self):
        key = f"{self.folder}/sa.key"
        process = self.run("kube-apiserver", [
            os.environ.get("KUBE_APISERVER", "kube-apiserver"), f"--etcd-servers={self.etcd}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", f"--secure-port={self.base}", f"--cert-dir={self.folder}/certs",
            f"--token-auth-file={self.folder}/tokens.csv", "--authorization-mode=RBAC", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/12", "--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount"])
        server = Server("kube-apiserver", self.base)
        server.ready()
        return process, server


def stop(process):
    process.terminate()
    process.wait(60)


def made(server, name):
    """Creates an object of every kind; returns the paths of those that were created."""
    paths = []
    named, crd = definition(name)
    for path, value in [(DEFINITIONS, crd), *objects(name)]:
        code, answer, _ = server.request("POST", path, value)
        if code != 201:
            raise SystemExit(f"{server.name}: {path}: {code} {answer}")
        paths.append(f"{path}/{value['metadata']['name']}")
    carts = f"/apis/{name}.example/v1/namespaces/{SPACE}/{name}s"
    for _ in range(100):
        value = {"apiVersion": f"{name}.example/v1", "kind": name.capitalize(), "metadata": {"name": name}, "spec": {"x": [1, 2.5, True, None]}}
        code, answer, _ = server.request("POST", carts, value)
        if code == 201:
            break
        time.sleep(0.1)
    else:
        raise SystemExit(f"{server.name}: {carts}: {code} {answer}")
    return [*paths, f"{carts}/{name}"]


def read(server, paths):
    found = {}
    for path in paths:
        code, value, _ = server.request("GET", path)
        found[path] = value if code == 200 else {"code": code, "message": value.get("message") if isinstance(value, dict) else value}
    return found


def differences(title, wanted, found, log):
    count = 0
    for path, value in wanted.items():
        if path.startswith(DEFINITIONS):
            # Each server writes its own conditions.
            value, other = value.get("spec"), found[path].get("spec")
        else:
            other = found[path]
        if value != other:
            count += 1
            log.write(json.dumps({"step": title, "path": path, "wanted": value, "found": other}) + "\n")
            print(f"{title}: {path} differs")
    print(f"{title}: {len(wanted)} objects, {count} differ")
    return count


def main(folder):
    os.makedirs(folder, exist_ok=True)
    runs = Runs(folder)
    process, log = None, open(f"{folder}/differences.jsonl", "w")
    try:
        process, ours = runs.lockgate()
        ours.request("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
        first = made(ours, "ours")
        by_us = read(ours, first)
        stop(process)
        process, theirs = runs.kube_apiserver()
        count = differences("kube-apiserver reads what lockgate stored", by_us, read(theirs, first), log)
        second = made(theirs, "theirs")
        for path in first:
            patch = {"metadata": {"labels": {"changed": "by-kube-apiserver"}}}
            code, answer, _ = theirs.request("PATCH", path, patch, kind="application/merge-patch+json")
            if code != 200:
                count += 1
                print(f"kube-apiserver cannot change {path}: {code} {answer}")
        by_them = read(theirs, [*first, *second])
        stop(process)
        process, ours = runs.lockgate()
        count += differences("lockgate reads what kube-apiserver stored", by_them, read(ours, [*first, *second]), log)
        for path in second:
            patch = {"metadata": {"labels": {"changed": "by-lockgate"}}}
            code, answer, _ = ours.request("PATCH", path, patch, kind="application/merge-patch+json")
            if code != 200:
                count += 1
                print(f"lockgate cannot change {path}: {code} {answer}")
        by_us = read(ours, [*first, *second])
        stop(process)
        process, theirs = runs.kube_apiserver()
        count += differences("kube-apiserver reads what both stored", by_us, read(theirs, [*first, *second]), log)
    finally:
        for running in (process, runs.store):
            if running is not None and running.poll() is None:
                stop(running)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
