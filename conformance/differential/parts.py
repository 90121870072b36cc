#!/usr/bin/env python3
"""Generated subresource requests on both servers: scale, binding, eviction, token, ephemeralcontainers, resize, approval.

    LOCKGATE=target/debug/lockgate ETCD=… KUBE_APISERVER=… ./parts.py FOLDER COUNT [SEED] [KIND,KIND…]

Bodies are varied as in `validation.py`.
"""

import copy
import re

import validation
from changes import merged
from patches import difference

SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 2}}
BINDING = {"apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "deleteOptions": {"gracePeriodSeconds": 1}}
TOKEN = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"], "expirationSeconds": 3600}}
SCALED = {"scale": SCALE}
# Subresources by kind: the body to create, an object to replace, or None where the body is the object itself.
PARTS = {
    "Pod": {"binding": BINDING, "eviction": EVICTION, "ephemeralcontainers": None, "resize": None},
    "Deployment": SCALED, "ReplicaSet": SCALED, "StatefulSet": SCALED, "ReplicationController": SCALED,
    "ServiceAccount": {"token": TOKEN}, "CertificateSigningRequest": {"approval": None}, "Namespace": {"finalize": None},
}
CREATED = {"binding", "eviction", "token"}
EPHEMERAL = {"name": "e", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File"}
SIZES = [{"requests": {"cpu": "1"}}, {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, {"limits": {"memory": "0"}}, {"requests": {"example.com/x": "1"}}, {}]
FORMS = ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]


class Parts(validation.Run):
    CREATES = 0

    def update(self, at, objects):
        if at[1] in PARTS:
            self.part = self.rng.choice(sorted(PARTS[at[1]]))
            super().update(at, objects)

    def has_status(self, item):
        return False

    def change(self, kind, path, live, _changed):
        rng, part = self.rng, self.part
        name = live["metadata"]["name"]
        sent = PARTS[kind][part]
        base = copy.deepcopy(sent) | {"metadata": {"name": name}} if sent else copy.deepcopy(live)
        if part == "scale":
            base["metadata"]["namespace"] = live["metadata"].get("namespace", "default")
        if part == "ephemeralcontainers":
            base["spec"].setdefault("ephemeralContainers", []).append(copy.deepcopy(EPHEMERAL))
        if part == "resize" and base["spec"].get("containers"):
            base["spec"]["containers"][0]["resources"] = copy.deepcopy(rng.choice(SIZES))
        changed = base if rng.random() < 0.1 else self.generator.changed(base)
        if isinstance(changed.get("metadata"), dict) and rng.random() < 0.9:
            changed["metadata"]["name"] = name
        at = f"{path}/{part}?dryRun=All&fieldManager=t"
        if part in CREATED:
            return f"{kind} {part}", ("POST", at, changed)
        if rng.random() < 0.6:
            return f"{kind} {part}", ("PUT", at, changed)
        form = rng.choice(FORMS)
        old = base if part == "scale" else live
        body = difference(old, changed) if form.startswith("json") else changed if form.startswith("apply") else merged(old, changed)
        return f"{kind} {part} {form.split('-')[0]}", ("PATCH", at + ("&force=true" if form.startswith("apply") else ""), body, "admin-token", f"application/{form}")


def without_token(answer, sent):
    code, body, warnings = plain(answer, sent)
    if isinstance(body, dict) and body.get("kind") == "TokenRequest" and isinstance(body.get("status"), dict):
        body["status"] = {key: re.sub(r".+", "made", value) if value else value for key, value in body["status"].items()}
    return code, body, warnings


plain, validation.without_chance = validation.without_chance, without_token

if __name__ == "__main__":
    validation.main(Parts)
