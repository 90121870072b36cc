#!/usr/bin/env python3
"""Sequences of writes that are stored on both servers, and what watches see of them.

    LOCKGATE=target/debug/lockgate ETCD=… KUBE_APISERVER=… ./sequences.py FOLDER COUNT [SEED] [KIND,KIND…]

Each sequence creates an object and replaces, patches, applies, scales, marks and deletes it, with versions of before, finalizers,
owners and field managers. Responses are compared, whether a write changed the resourceVersion, and the events of a watch.
"""

import concurrent.futures
import copy
import json
import random
import sys
import time
import urllib.parse

import changes
import validation
from compare import Comparison
from patches import difference
from servers import normal, start

STEPS = 14
# Watches last a second; other sequences run meanwhile.
POOL = concurrent.futures.ThreadPoolExecutor(8)
FORMS = ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]


class Sequence:
    """One object, as each server has it."""

    def __init__(self, comparison, generator, rng, kind, path, base):
        self.comparison, self.generator, self.rng = comparison, generator, rng
        self.sides = (comparison.theirs, comparison.ours)
        self.kind, self.path, self.base = kind, path, base
        self.name = base["metadata"]["name"]
        self.at = f"{path}/{urllib.parse.quote(self.name)}"
        # The last response of each server, the version before it, and all requests.
        self.live, self.versions, self.sent = [None, None], [[], []], []

    def run(self):
        begin = [side.request("GET", f"{self.path}?limit=1")[1]["metadata"]["resourceVersion"] for side in self.sides]
        if not self.ask("create", "POST", f"{self.path}?fieldManager=t", [copy.deepcopy(self.base)] * 2, new=True):
            return
        self.has_status = self.sides[0].request("GET", self.at + "/status")[0] == 200
        for _ in range(self.rng.randrange(3, STEPS)):
            if not self.step():
                break
        for side in self.sides:
            validation.remove(side, self.path, self.name, self.kind)
        self.events = POOL.submit(self.watched, begin)

    def step(self):
        rng = self.rng
        chance = rng.random()
        if self.live[0] is None:
            return self.ask("create again", "POST", f"{self.path}?fieldManager=t", [copy.deepcopy(self.base)] * 2, new=True)
        if chance < 0.3:
            return self.replace()
        if chance < 0.6:
            return self.patch()
        if chance < 0.7:
            finalizers = rng.choice([["example.com/f"], ["example.com/f", "example.com/g"], [], None, ["foregroundDeletion"], ["orphan"]])
            return self.ask("finalizers", "PATCH", f"{self.at}?fieldManager=f", [{"metadata": {"finalizers": finalizers}}] * 2, "merge-patch+json")
        if chance < 0.78 and self.kind in ("Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"):
            return self.ask("scale", "PATCH", f"{self.at}/scale?fieldManager=s", [{"spec": {"replicas": rng.choice([0, 1, 2])}}] * 2, "merge-patch+json", part=True)
        if chance < 0.84:
            labels = {"metadata": {"labels": {"a": rng.choice(["b", "c", None])}, "annotations": rng.choice([None, {"x": "y"}, {}])}}
            return self.ask("labels", "PATCH", f"{self.at}?fieldManager={rng.choice('tu')}", [labels] * 2, "merge-patch+json")
        if chance < 0.9:
            return self.ask("nothing", "PATCH", f"{self.at}?fieldManager={rng.choice('tu')}", [{}] * 2, rng.choice(FORMS[1:3]))
        return self.delete()

    def versioned(self, metadata, side):
        """The version that a client may name: none, the current one or an old one."""
        chance = self.chance
        if chance < 0.4 and self.versions[side]:
            metadata["resourceVersion"] = self.versions[side][-1]
        elif chance < 0.48 and len(self.versions[side]) > 1:
            metadata["resourceVersion"] = self.versions[side][-2]
        elif chance < 0.6:
            metadata["uid"] = self.live[side]["metadata"]["uid"]

    def bodies(self, changed):
        """What is sent to each server: what a server made is its own."""
        self.chance = self.rng.random()
        made = []
        for side, live in enumerate(self.live):
            text = json.dumps(changed)
            for one, other in zip(identities(self.live[0]), identities(live)):
                text = text.replace(one, other) if one and other else text
            body = json.loads(text)
            if isinstance(body, dict) and isinstance(body.get("metadata"), dict):
                self.versioned(body["metadata"], side)
            made.append(body)
        return made

    def changed(self):
        live = copy.deepcopy(self.live[0] if self.rng.random() < 0.7 else self.base)
        for member in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"):
            live["metadata"].pop(member, None)
        changed = self.generator.changed(live)
        if isinstance(changed.get("metadata"), dict):
            changed["metadata"]["name"] = self.name
        return live, changed

    def sub(self):
        return "/status" if self.has_status and self.rng.random() < 0.3 else ""

    def replace(self):
        _, changed = self.changed()
        return self.ask("replace", "PUT", f"{self.at}{self.sub()}?fieldManager={self.rng.choice('tu')}", self.bodies(changed))

    def patch(self):
        form = self.rng.choice(FORMS)
        live, changed = self.changed()
        if form == "json-patch+json":
            body = [difference(live, changed)] * 2
        elif form == "apply-patch+yaml":
            body = self.bodies(changed)
        else:
            body = self.bodies(changes.merged(live, changed))
        force = self.rng.choice(["", "&force=true"]) if form.startswith("apply") else ""
        return self.ask(form.split("-")[0], "PATCH", f"{self.at}{self.sub()}?fieldManager={self.rng.choice('tuv')}{force}", body, form)

    def delete(self):
        body = self.rng.choice([None, {"propagationPolicy": "Background"}, {"propagationPolicy": "Foreground"}, {"propagationPolicy": "Orphan"}, {"gracePeriodSeconds": 0}, {"gracePeriodSeconds": 5}, {"orphanDependents": True}])
        return self.ask("delete", "DELETE", self.at, [body and {"apiVersion": "v1", "kind": "DeleteOptions"} | body] * 2)

    def ask(self, label, method, path, bodies, form=None, new=False, part=False):
        """Sends a write to both; returns whether to go on, which is so while they agree."""
        before = [live and live["metadata"].get("resourceVersion") for live in self.live]
        self.sent.append([method, path, bodies[0], form])
        answers = [side.request(method, path, body, kind=f"application/{form or 'json'}") for side, body in zip(self.sides, bodies)]
        seen, told = [], []
        for side, server in enumerate(self.sides):
            code, body, _ = server.request("GET", self.at)
            seen.append(body if code == 200 else None)
        for side, answer in enumerate(answers):
            code, body, warnings = validation.without_chance(answer, bodies[0] if isinstance(bodies[0], dict) else {})
            version = seen[side] and seen[side]["metadata"]["resourceVersion"]
            told.append((code, {"answer": body, "changed": version != before[side], "stored": seen[side]}, warnings))
            if version and version != before[side]:
                self.versions[side].append(version)
        self.live = seen
        agree = self.comparison.take((f"{self.kind} {label}", copy.deepcopy(self.sent), *told, lambda: told[0]), self.explain)
        return agree and (not new or answers[0][0] == 201)

    def explain(self, one, other, sent):
        last = sent[-1]
        return changes.explain(*[[answer[0], answer[1]["answer"], answer[2]] for answer in (one, other)], [last[0], last[1], last[2], "", f"application/{last[3]}"]) if one[1]["stored"] == other[1]["stored"] and one[1]["changed"] == other[1]["changed"] else None

    def watched(self, begin):
        events = []
        for side, server in enumerate(self.sides):
            text = server.request("GET", f"{self.path}?watch=true&timeoutSeconds=1&resourceVersion={begin[side]}&fieldSelector=metadata.name={urllib.parse.quote(self.name)}")[1]
            lines = text.splitlines() if isinstance(text, str) else [json.dumps(text)]
            seen = [normal(json.loads(line)) for line in lines if line]
            # Another sequence may have begun with the same name.
            end = next((place for place, event in enumerate(seen) if event["type"] == "DELETED"), len(seen))
            events.append(seen[:end + 1])
        return f"{self.kind} watch", self.sent, (200, events[0], []), (200, events[1], []), lambda: (200, events[0], [])


def identities(live):
    """What a server allocates for an object."""
    spec = live.get("spec") if isinstance(live.get("spec"), dict) else {}
    return [live["metadata"].get("uid"), spec.get("clusterIP") if spec.get("clusterIP") != "None" else None]


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    only = set(sys.argv[4].split(",")) if len(sys.argv) > 4 else None
    theirs, ours = start(folder, disabled="ServiceAccount,StorageObjectInUseProtection")
    comparison = Comparison(theirs, ours, f"{folder}/differences.jsonl", keep=4)
    records, schemas = validation.load(validation.VECTORS), validation.Schemas(theirs)
    for server in (theirs, ours):
        for record in records:
            if record["op"] == "setup":
                server.request("POST", record["path"], record["object"])
        server.request("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "limits"}})
    time.sleep(2)
    found = validation.bases(records, schemas)
    generator = validation.Generator(rng, schemas, [one for objects in found.values() for one in objects])
    # Reviews are not stored; admission registrations and definitions would affect later requests.
    order = sorted(at for at in found if (only is None or at[1] in only) and not at[1].endswith(("Review", "WebhookConfiguration", "AdmissionPolicy", "AdmissionPolicyBinding")) and at[1] not in ("CustomResourceDefinition", "APIService", "Binding", "FlowSchema", "PriorityLevelConfiguration", "Namespace", "LimitRange", "ResourceQuota"))
    told, watches = 0, []
    while comparison.count < count:
        at = rng.choice(order)
        base = copy.deepcopy(rng.choice(found[at]))
        if not isinstance((base.get("metadata") or {}).get("name"), str):
            continue
        for side in (theirs, ours):
            validation.remove(side, at[2], base["metadata"]["name"], at[1])
        sequence = Sequence(comparison, generator, rng, at[1], at[2], base)
        sequence.run()
        watches.append(sequence)
        if comparison.count - told >= 500:
            told = comparison.count
            print(comparison.summary().split("\n")[0], flush=True)
    for sequence in watches:
        if hasattr(sequence, "events"):
            comparison.take(sequence.events.result())
    print(comparison.summary())


if __name__ == "__main__":
    main()
