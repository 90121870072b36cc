#!/usr/bin/env python3
"""Generated patches of a mutating webhook on both servers: the patched object and the audit annotations are compared.

    LOCKGATE=target/debug/lockgate ETCD=… KUBE_APISERVER=… ./patches.py FOLDER COUNT [SEED] [KIND,KIND…]

The patch is in an annotation of the object, and one webhook for both servers responds with it. Patches are differences to
an object varied as in `validation.py`, and random operations. Custom resources are included.
"""

import base64
import copy
import http.server
import json
import os
import random
import re
import ssl
import subprocess
import sys
import threading
import time
import uuid

import validation
from compare import Comparison
from servers import normal, start

PATCH = "example.com/patch"
POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Request}]\n"
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CUSTOM = {"type": "object", "properties": {"spec": {"type": "object", "properties": {
    "text": {"type": "string"}, "count": {"type": "integer", "minimum": 0}, "ratio": {"type": "number"}, "flag": {"type": "boolean"}, "free": ANY, "list": {"type": "array", "items": {"type": "string"}},
    "nested": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}, "b": {"type": "integer"}}}, "maybe": {"type": "string", "nullable": True}, "either": {"x-kubernetes-int-or-string": True}}}}}
WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"text": "a", "count": 1, "ratio": 1.5, "free": {"x": {"y": 1}, "z": [1, 2.5, -0.0]}, "list": ["a"], "nested": {"b": 1}, "maybe": None, "either": "5%"}}


class Hook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        answer = {"uid": request["uid"], "allowed": True}
        patch = ((request["object"].get("metadata") or {}).get("annotations") or {}).get(PATCH)
        if patch:
            answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch.encode()).decode()}
        text = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def serve(folder):
    """Starts the webhook; returns its URL and CA bundle."""
    key, certificate = f"{folder}/hook.key", f"{folder}/hook.crt"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with open(certificate, "rb") as file:
        return f"https://127.0.0.1:{server.server_port}/", base64.b64encode(file.read()).decode()


def escape(key):
    return key.replace("~", "~0").replace("/", "~1")


def difference(old, new, at=""):
    """The JSON Patch operations that turn one value into the other."""
    if type(old) is not type(new) or not isinstance(old, (dict, list)):
        return [] if old == new and type(old) is type(new) else [{"op": "replace", "path": at, "value": new}]
    if isinstance(old, dict):
        made = [{"op": "remove", "path": f"{at}/{escape(key)}"} for key in old if key not in new]
        for key, value in new.items():
            made += difference(old[key], value, f"{at}/{escape(key)}") if key in old else [{"op": "add", "path": f"{at}/{escape(key)}", "value": value}]
        return made
    made = []
    for place, (one, other) in enumerate(zip(old, new)):
        made += difference(one, other, f"{at}/{place}")
    made += [{"op": "add", "path": f"{at}/-", "value": value} for value in new[len(old):]]
    return made + [{"op": "remove", "path": f"{at}/{place}"} for place in range(len(old) - 1, len(new) - 1, -1)]


def paths(value, at=""):
    yield at
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from paths(inner, f"{at}/{escape(str(key))}")


def odd(rng, base):
    """A random operation."""
    known = [at for at in paths(base) if at] + ["/metadata/labels", "/metadata/annotations/a", "/status", "/spec/none/deep", "/metadata/ownerReferences", "/metadata/finalizers/-", "/metadata/labels/x", "/metadata/managedFields", "/metadata/uid", "/metadata/creationTimestamp", "/metadata/generation"]
    value = rng.choice([None, 1, -1, 1.5, -0.0, 0.0, 1e3, 12345678901234567890, "", "a", "é", [], {}, [None], ["a"], {"a": "b"}, {"a": None}, True, {"a": {}}])
    op = rng.choice(["add", "add", "replace", "replace", "remove", "test", "copy", "move"])
    made = {"op": op, "path": rng.choice(known)}
    if op in ("copy", "move"):
        made["from"] = rng.choice(known)
    elif op != "remove":
        made["value"] = value
    return made


class Audit:
    """The audit log of a server, read incrementally."""

    def __init__(self, path):
        self.path, self.offset, self.events = path, 0, {}

    def annotations(self, number):
        end = time.time() + 10
        while number not in self.events and time.time() < end:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self.offset += len(line)
                    event = json.loads(line)
                    if event.get("stage") == "ResponseComplete":
                        self.events[event["auditID"]] = event.get("annotations") or {}
            if number not in self.events:
                time.sleep(0.01)
        found = self.events.pop(number, {"missing": True})
        return {key: value for key, value in found.items() if self.wanted(key)}

    def wanted(self, annotation):
        return "mutation" in annotation or "patch.webhook" in annotation or "missing" in annotation


def set_up(comparison, url, bundle):
    hook = {"name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {"url": url, "caBundle": bundle}, "matchPolicy": "Exact",
            "matchConditions": [{"name": "has-a-patch", "expression": f"has(object.metadata.annotations) && '{PATCH}' in object.metadata.annotations"}],
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["*"]}]}
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
                  "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": CUSTOM}}]}}
    for server in (comparison.theirs, comparison.ours):
        for path, value in (("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition), ("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "hook"}, "webhooks": [hook]})):
            code, answer, _ = server.request("POST", path, value)
            if code != 201:
                raise SystemExit(f"{server.name}: {path}: {code} {answer}")
    time.sleep(4)


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    only = set(sys.argv[4].split(",")) if len(sys.argv) > 4 else None
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/policy.yaml", "w") as file:
        file.write(POLICY)
    url, bundle = serve(folder)
    theirs, ours = start(folder, disabled="ServiceAccount,StorageObjectInUseProtection", audit=f"{folder}/policy.yaml")
    comparison = Comparison(theirs, ours, f"{folder}/differences.jsonl", keep=4)
    records, schemas = validation.load(validation.VECTORS), validation.Schemas(theirs)
    for server in (theirs, ours):
        for record in records:
            if record["op"] == "setup":
                server.request("POST", record["path"], record["object"])
    set_up(comparison, url, bundle)
    found = validation.bases(records, schemas)
    generator = validation.Generator(rng, schemas, [one for objects in found.values() for one in objects])
    # Reviews and admission configurations are not sent to webhooks, or have other responses.
    found = {at: objects for at, objects in found.items() if not at[1].endswith(("Review", "Binding", "Policy", "WebhookConfiguration")) or at[1] == "NetworkPolicy"}
    found["example.com/v1", "Widget", "/apis/example.com/v1/namespaces/default/widgets"] = [WIDGET]
    order = sorted(at for at in found if only is None or at[1] in only)
    weights = [max(4, len(found[at])) ** 0.5 * (4 if at[1] == "Widget" else 1) for at in order]
    logs = Audit(f"{folder}/audit-kube-apiserver.log"), Audit(f"{folder}/audit-lockgate.log")

    def ask(number):
        at = rng.choices(order, weights)[0]
        base = copy.deepcopy(rng.choice(found[at]))
        patch = difference(base, generator.changed(base)) if at[1] != "Widget" and rng.random() < 0.7 else [odd(rng, base) for _ in range(rng.choice([1, 1, 2]))]
        if not isinstance(base.get("metadata"), dict):
            base["metadata"] = {"name": "a"}
        base["metadata"]["annotations"] = {**(base["metadata"].get("annotations") or {}), PATCH: json.dumps(patch)}
        request = ("POST", f"{at[2]}?dryRun=All&fieldManager=t", base)

        def answer(server, log):
            audit = str(uuid.UUID(int=rng.getrandbits(128), version=4))
            code, body, warnings = server.request(*request, headers={"Audit-ID": audit})
            # The patch may cause a name to be generated.
            code, body, warnings = validation.without_chance((code, body, warnings), {"kind": at[1], "metadata": {"generateName": True}} if "generateName" in json.dumps(base) else base)
            return code, {"answer": body, "audit": log.annotations(audit)} if code and isinstance(body, dict) else body, warnings

        again = lambda: answer(theirs, logs[0])
        return f"{at[1]}", request, again(), answer(ours, logs[1]), again

    for number in range(count):
        comparison.take(ask(number), explain)
        if number % 1000 == 999:
            print(comparison.summary().split("\n")[0], flush=True)
    print(comparison.summary())


def touches_labels(patch):
    """Returns True if a patch adds or removes the labels of an object or of its template."""
    places = ("/metadata", "/metadata/labels", "/spec/template", "/spec/template/metadata", "/spec/template/metadata/labels")
    return any(operation.get(member) in places for operation in json.loads(patch) for member in ("path", "from"))


def explain(one, other, request):
    """Known differences in gaps.toml: top-level fields of definitions, targets of autoscalers, negative zeros, labels of Jobs."""
    if not (isinstance(one[1], dict) and isinstance(other[1], dict) and one[1].get("audit") == other[1].get("audit")):
        return None
    theirs, ours = [one[0], one[1].get("answer"), one[2]], [other[0], other[1].get("answer"), other[2]]
    sent = request[2]
    patch = sent["metadata"]["annotations"][PATCH]
    if sent.get("kind") == "CustomResourceDefinition" and one[0] == 422:
        told = [((answer[1].get("details") or {}).get("causes") or []) if isinstance(answer[1], dict) else [] for answer in (theirs, ours)]
        rest = [cause for cause in told[0] if "top-level and per-version" not in cause.get("message", "")]
        # Without a top-level schema, each version requires one.
        mine = [cause for cause in told[1] if not (cause["reason"] == "FieldValueRequired" and re.fullmatch(r"spec\.versions\[\d+\]\.schema\.openAPIV3Schema", cause["field"]))]
        if len(rest) < len(told[0]) and (rest == mine if other[0] == 422 else not rest and other[0] == 201):
            return "top level of definitions"
    if one[0] == other[0] == 201:
        both = [copy.deepcopy(answer[1]) for answer in (theirs, ours)]
        if sent.get("kind") == "HorizontalPodAutoscaler" and '"remove", "path": "/spec/targetCPUUtilizationPercentage"' in patch and both[1]["spec"].pop("targetCPUUtilizationPercentage", 0) == 80:
            both[0]["spec"].pop("targetCPUUtilizationPercentage", None)
            return "targets of autoscalers" if both[0] == both[1] else None
    if sent.get("kind") == "Job" and one[0] == other[0] == 201 and touches_labels(patch):
        both = [copy.deepcopy(answer[1]) for answer in (theirs, ours)]
        for label in ("batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"):
            for answer in both:
                (answer["metadata"].get("labels") or {}).pop(label, None)
        for answer in both:
            if not answer["metadata"].get("labels"):
                answer["metadata"].pop("labels", None)
        return "labels of Jobs" if both[0] == both[1] else None
    if sent.get("kind") == "Widget" and one[0] == other[0] == 201 and '"/metadata/managedFields", "value": [null]' in patch:
        theirs, ours = [{**answer[1], "metadata": {key: value for key, value in answer[1]["metadata"].items() if key != "managedFields"}} for answer in (theirs, ours)]
        return "nulls in managed fields" if theirs == ours else None
    if "Object 'Kind' is missing in" in json.dumps(theirs) and json.loads(re.sub(r"-0\b(?!\.)", "0", json.dumps(theirs))) == ours:
        return "zeros with a sign"
    return validation.explain(theirs, ours, request)


if __name__ == "__main__":
    main()
