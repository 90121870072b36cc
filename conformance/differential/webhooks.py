#!/usr/bin/env python3
"""Generated webhook configurations and requests on both servers: responses, calls, audit annotations and metrics.

    LOCKGATE=target/debug/lockgate ETCD=… KUBE_APISERVER=… ./webhooks.py FOLDER COUNT [SEED]

Configurations are created in batches of mutating and validating webhooks with rules, selectors, match conditions, failure and
reinvocation policies. Their responses patch, deny, warn, annotate and fail. Both servers call the same webhooks at two ports.
"""

import base64
import concurrent.futures
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

import patches
from compare import Comparison
from servers import normal, start

GROUP = "/apis/admissionregistration.k8s.io/v1"
REQUESTS = 80
METRICS = re.compile(r"^(apiserver_admission_(?:webhook|match_condition)\w*(?:_total|_count))(\{.*\}) (\S+)$")
UNCOMPARED = ("authorization.k8s.io/", "authentication.k8s.io/", "pod-security.kubernetes.io/", "apiserver.latency.k8s.io/")

CONDITIONS = [
    "true", "true", "true", "false", "request.operation != 'DELETE'", "request.operation == 'DELETE' || object.metadata.name != 'never'", "object.metadata.labels.app == 'a'", "has(object.metadata.labels) && object.metadata.labels.app == 'a'",
    "oldObject == null", "object == null || !has(object.metadata.annotations)", "request.?subResource.orValue('') == ''", "request.userInfo.username == 'admin'", "!('system:masters' in request.userInfo.groups)", "request.resource.group == 'apps'",
    "authorizer.group('').resource('pods').namespace('default').check('get').allowed()", "authorizer.requestResource.check('create').allowed()", "authorizer.serviceAccount('default', 'x').path('/healthz').check('get').reason() == ''", "object.spec.replicas > 1", "request.dryRun",
    "object.metadata.annotations['n'].size() < 2", "request.name.startsWith('o')", "request.namespace == request.?namespace.orValue('')", "request.kind.version == 'v1'", "request.requestKind.version == 'v2'", "request.options.dryRun == ['All']", "request.options.?fieldManager.orValue('') == 't'", "object.data.k == 'v'",
    "1 / 0 == 1", "int(object.metadata.name) == 1", "object.metadata.labels.all(k, k != 'x')", "size(object.metadata.managedFields) == 1", "has(request.requestSubResource)", "quantity('1Gi').isGreaterThan(quantity(object.data.k))", "object.kind == 'ConfigMap'", "dyn(object).metadata.generation == 1",
]
ODD_CONDITIONS = ["1", "'a'", "object.", "variables.a", "params == null", "namespaceObject.metadata.name == 'a'", "unknown", "request.other", "", "object.metadata.labels.map(k, k)"]
WORDS = ["w", "careful", "x" * 300, "ä", "a\nb", "", "\"quoted\"", "tab\t", "back\\slash"]


class Hook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"]))
        review = json.loads(text)
        behaviour = self.server.behaviours[self.path.split("?")[0]]
        self.server.calls.append([self.path, *[self.headers.get(name) for name in ("Content-Type", "Accept", "User-Agent")], normal(review)])
        if behaviour.get("close"):
            self.close_connection = True
            return
        body, code, headers = answered(behaviour, review)
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def answered(behaviour, review):
    """The body, the code and the headers that a webhook answers with."""
    request = review["request"]
    response = {"uid": request["uid"], "allowed": True} | {key: value for key, value in behaviour.items() if key in ("allowed", "status", "warnings", "auditAnnotations", "uid", "patchType")}
    operations = patched(behaviour.get("patch"), request.get("object") or {})
    if operations is not None:
        text = operations if isinstance(operations, str) else json.dumps(operations)
        response["patch"] = base64.b64encode(text.encode()).decode()
        response.setdefault("patchType", "JSONPatch")
    answer = {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}
    answer |= behaviour.get("review") or {}
    for member in behaviour.get("without") or []:
        answer.pop(member, None)
        response.pop(member, None)
    body = behaviour["raw"].encode() if "raw" in behaviour else json.dumps(answer).encode()
    return body, behaviour.get("http", 200), {"Content-Type": "application/json"} | (behaviour.get("headers") or {})


def patched(how, value):
    """The patch of an object: what a behaviour names, or operations as they are."""
    metadata = value.get("metadata") or {}
    labels, annotations = metadata.get("labels"), metadata.get("annotations")
    if not isinstance(how, str) or how.startswith("raw:"):
        return how.removeprefix("raw:") if isinstance(how, str) else how
    name, _, argument = how.partition(" ")
    if name == "label":
        if labels is None:
            return [{"op": "add", "path": "/metadata/labels", "value": {argument: "1"}}]
        return None if argument in labels else [{"op": "add", "path": f"/metadata/labels/{argument}", "value": "1"}]
    if name == "again":
        # Changes the object in every call.
        told = (annotations or {}).get("n", "") + argument
        return [{"op": "add", "path": "/metadata/annotations", "value": {"n": told}}] if annotations is None else [{"op": "add", "path": "/metadata/annotations/n", "value": told}]
    if name == "drop":
        return [{"op": "remove", "path": f"/metadata/labels/{argument}"}] if argument in (labels or {}) else []
    return None


class Webhooks:
    """The webhooks of one server, at a port of its own."""

    def __init__(self, key, certificate):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.daemon_threads, server.behaviours, server.calls = True, {}, []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.server, self.port = server, server.server_port

    def taken(self):
        """The calls since the last time, those of validating webhooks sorted."""
        calls, self.server.calls[:] = list(self.server.calls), []
        mutating, validating = [[call for call in calls if call[0].startswith(part)] for part in ("/m", "/v")]
        return mutating + sorted(validating, key=lambda call: json.dumps(call, sort_keys=True))


class Audit(patches.Audit):
    """The annotations of admission, and of what a request made."""

    def wanted(self, annotation):
        return not annotation.startswith(UNCOMPARED)


def behaviour(rng, mutating, may_fail):
    """How a webhook answers. Of several validating webhooks that deny, upstream reports the fastest."""
    made, chance = {}, rng.random() if may_fail else 1
    if mutating and chance < 0.62:
        made["patch"] = rng.choice([
            "label x", "label x", "label y", "label app", "again a", "again b", "drop app", "drop x", [], [{"op": "add", "path": "/metadata/annotations", "value": {"z": "1"}}], [{"op": "add", "path": "/data", "value": {"k": "w"}}], [{"op": "replace", "path": "/spec/replicas", "value": 3}],
            [{"op": "test", "path": "/metadata/name", "value": "other"}], [{"op": "remove", "path": "/none"}], [{"op": "add", "path": "/metadata/labels", "value": {"a": 1}}], [{"op": "replace", "path": "/metadata/name", "value": "changed"}], [{"op": "add", "path": "/metadata/labels", "value": {"app": "b"}}],
            [{"op": "add", "path": "/unknown", "value": 1}], [{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/f"]}], [{"op": "add", "path": "/metadata/labels", "value": {"A b": "c"}}], "raw:", "raw:{}", "raw:[", "raw:null", "raw:- op: add\n  path: /metadata/labels\n  value: {yaml: \"1\"}\n", [{"op": "test", "path": "/metadata/none", "value": None}],
            [{"op": "copy", "from": "/metadata/name", "path": "/metadata/labels"}], [{"op": "replace", "path": "/metadata/namespace", "value": "other"}], [{"op": "replace", "path": "/kind", "value": "Other"}]] if rng.random() < 0.45 else ["label x", "label y", "again a", "drop app", "label app", []])
    elif chance < 0.72:
        made["allowed"] = False
        made["status"] = rng.choice([None, {}, {"message": "no"}, {"code": 403}, {"code": 418, "message": "tea", "reason": "Teapot"}, {"code": 200}, {"code": 301, "message": "moved"}, {"code": -1}, {"code": 999}, {"reason": "Invalid", "message": "bad", "details": {"name": "x", "causes": [{"field": "a", "message": "m", "reason": "r"}]}}, {"status": "Success", "code": 422},
                                     {"message": ""}, {"code": 429, "details": {"retryAfterSeconds": 2}}, {"metadata": {"resourceVersion": "1"}, "message": "é"}, {"code": 500}])
    elif chance < 0.8:
        made |= rng.choice([{"http": 500}, {"http": 404, "raw": "gone"}, {"http": 400, "raw": '{"kind":"Status","apiVersion":"v1","status":"Failure","message":"odd","reason":"BadRequest","code":400}'}, {"http": 204, "raw": ""}, {"raw": ""}, {"raw": "{"}, {"raw": "null"}, {"raw": "[]"}, {"raw": "a: 1"}, {"review": {"kind": "Other"}}, {"review": {"apiVersion": "admission.k8s.io/v2"}},
                             {"review": {"apiVersion": "v1"}}, {"review": {"response": None}}, {"without": ["response"]}, {"without": ["allowed"]}, {"without": ["kind"]}, {"without": ["apiVersion"]}, {"uid": "wrong"}, {"uid": ""}, {"close": True}, {"headers": {"Content-Type": "text/plain"}}, {"http": 201}, {"http": 503, "raw": "busy"}, {"raw": '{"a":1}'},
                             {"review": {"extra": 1}}, {"allowed": "yes"}, {"status": "x"}, {"warnings": "w"}, {"patchType": "Other"}, {"patchType": "JSONPatch"}, {"patch": [], "patchType": ""}, {"patch": [{"op": "add", "path": "/metadata/labels", "value": {}}], "without": ["patchType"]}, {"http": 403, "raw": "<html>"}])
    if rng.random() < 0.25:
        made["warnings"] = [rng.choice(WORDS) for _ in range(rng.choice([1, 1, 2, 3]))]
    if rng.random() < 0.25:
        made["auditAnnotations"] = {rng.choice(["k", "a.b", "a/b", "", "A", "é", "x" * 70, "k2"]): rng.choice(["v", "", "é", "x" * 300, "a\nb"]) for _ in range(rng.choice([1, 2]))}
    return made


def rules(rng, mutating):
    if rng.random() < 0.45:
        return [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": [rng.choice(["*", "*/*"])]}]
    made = []
    for _ in range(rng.choice([1, 1, 2])):
        groups, resources = rng.choice([([""], ["configmaps"]), ([""], ["pods", "pods/status"]), (["apps"], ["deployments"]), (["apps"], ["deployments/scale"]), (["apps"], ["deployments/*"]), (["*"], ["*/scale"]), (["example.com"], ["widgets"]), (["example.com"], ["widgets", "widgets/status"]), (["autoscaling"], ["horizontalpodautoscalers"]), ([""], ["serviceaccounts/token"]),
                                        ([""], ["pods/eviction", "pods/binding"]), (["", "apps"], ["*"]), (["rbac.authorization.k8s.io"], ["clusterroles"]), ([""], ["namespaces"]), (["none"], ["*"]), (["*"], ["configmaps", "widgets", "deployments"])])
        one = {"apiGroups": groups, "apiVersions": rng.choice([["*"], ["v1"], ["v1"], ["v2"], ["v1", "v2"], ["v1beta1"]]), "operations": rng.choice([["*"], ["CREATE", "UPDATE"], ["CREATE"], ["UPDATE"], ["DELETE"], ["CREATE", "UPDATE", "DELETE", "CONNECT"]]), "resources": resources}
        if rng.random() < 0.2:
            one["scope"] = rng.choice(["Namespaced", "Cluster", "*"])
        made.append(one)
    return made


def selector(rng):
    return rng.choice([{}, {"matchLabels": {"app": "a"}}, {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, {"matchLabels": {"env": "prod"}}, {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}])


def webhook(rng, name, mutating):
    made = {"name": name, "rules": rules(rng, mutating), "admissionReviewVersions": rng.choice([["v1"], ["v1"], ["v1", "v1beta1"], ["v1beta1"], ["v2", "v1"]]), "sideEffects": rng.choice(["None", "None", "None", "NoneOnDryRun"])}
    if rng.random() < 0.5:
        made["failurePolicy"] = rng.choice(["Fail", "Ignore", "Ignore"])
    if rng.random() < 0.3:
        made["matchPolicy"] = rng.choice(["Exact", "Equivalent"])
    if rng.random() < 0.25:
        made["objectSelector"] = selector(rng)
    made["namespaceSelector"] = selector(rng) if rng.random() < 0.2 else {}
    # kube-apiserver renews a lease of its own.
    made["namespaceSelector"] = {**made["namespaceSelector"], "matchExpressions": made["namespaceSelector"].get("matchExpressions", []) + [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]}
    if rng.random() < 0.4:
        odd = rng.random() < 0.04
        made["matchConditions"] = [{"name": f"c{n}", "expression": rng.choice(ODD_CONDITIONS if odd else CONDITIONS)} for n in range(rng.choice([1, 1, 2, 3]))]
    if mutating and rng.random() < 0.5:
        made["reinvocationPolicy"] = rng.choice(["Never", "IfNeeded", "IfNeeded"])
    if rng.random() < 0.1:
        made["timeoutSeconds"] = rng.choice([1, 5, 30])
    return made


def configuration(rng, number, place, mutating):
    kind = "MutatingWebhookConfiguration" if mutating else "ValidatingWebhookConfiguration"
    hooks = [webhook(rng, f"{'mv'[not mutating]}{place}{n}-{number}.example.com", mutating) for n in range(rng.choice([1, 1, 2, 3]))]
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": f"{'zab'[place % 3]}{place}-{number}"}, "webhooks": hooks}


TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
KINDS = {
    "configmaps": ("v1", "ConfigMap", "/api/v1/namespaces/{}/configmaps", {"data": {"k": "v"}}),
    "pods": ("v1", "Pod", "/api/v1/namespaces/{}/pods", {"spec": TEMPLATE["spec"]}),
    "deployments": ("apps/v1", "Deployment", "/apis/apps/v1/namespaces/{}/deployments", {"spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}),
    "widgets v1": ("example.com/v1", "Widget", "/apis/example.com/v1/namespaces/{}/widgets", {"spec": {"text": "a", "replicas": 1}}),
    "widgets v2": ("example.com/v2", "Widget", "/apis/example.com/v2/namespaces/{}/widgets", {"spec": {"text": "a"}}),
    "scalers v1": ("autoscaling/v1", "HorizontalPodAutoscaler", "/apis/autoscaling/v1/namespaces/{}/horizontalpodautoscalers", {"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}}),
    "scalers v2": ("autoscaling/v2", "HorizontalPodAutoscaler", "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers", {"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}}),
    "clusterroles": ("rbac.authorization.k8s.io/v1", "ClusterRole", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"rules": []}),
    "serviceaccounts": ("v1", "ServiceAccount", "/api/v1/namespaces/{}/serviceaccounts", {}),
    "namespaces": ("v1", "Namespace", "/api/v1/namespaces", {}),
}
PARTS = {"pods": ["status", "binding", "eviction", "ephemeralcontainers"], "deployments": ["scale", "status", "scale"], "widgets v1": ["status", "scale"], "serviceaccounts": ["token"]}
CREATED = {"binding": {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n1"}}, "eviction": {"apiVersion": "policy/v1", "kind": "Eviction"}, "token": {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"]}}}


def thing(rng, kind, name, labelled=True):
    version, named, _, rest = KINDS[kind]
    metadata = {"name": name}
    if labelled and rng.random() < 0.7:
        metadata["labels"] = {"app": rng.choice(["a", "b"])} | ({"x": "0"} if rng.random() < 0.2 else {})
    if rng.random() < 0.2:
        metadata["annotations"] = {"n": rng.choice(["", "a"])}
    return {"apiVersion": version, "kind": named, "metadata": metadata} | copy.deepcopy(rest)


def request(rng):
    kind = rng.choice(list(KINDS) + ["configmaps", "deployments", "pods", "widgets v1", "widgets v2"])
    path, chance = KINDS[kind][2].format(f"d{rng.randrange(3)}"), rng.random()
    query = "?dryRun=All" + rng.choice(["", "&fieldManager=t", "&fieldValidation=Strict"])
    token = {"token": rng.choice(["admin-token", "admin-token", "jane-token"])}
    name = f"o{rng.randrange(2)}"
    if kind in PARTS and chance < 0.3:
        part = rng.choice(PARTS[kind])
        if part in CREATED:
            return f"{kind} {part}", ("POST", f"{path}/{name}/{part}{query}", CREATED[part] | {"metadata": {"name": name}}), token
        patch = {"scale": {"spec": {"replicas": rng.randint(0, 4)}}, "status": {"status": {"message": "m"} if kind == "pods" else {"replicas": 1}}, "ephemeralcontainers": {"spec": {"ephemeralContainers": [{"name": "e", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File"}]}}}[part]
        return f"{kind} {part}", ("PATCH", f"{path}/{name}/{part}{query}", patch), {**token, "kind": "application/merge-patch+json"}
    if chance < 0.6:
        one = thing(rng, kind, f"new{rng.randrange(9)}")
        if rng.random() < 0.1:
            one["metadata"].pop("name")
            one["metadata"]["generateName"] = "gen-"
        return f"{kind} create", ("POST", path + query, one), token
    if chance < 0.7:
        return f"{kind} replace", ("PUT", f"{path}/{name}{query}", thing(rng, kind, name)), token
    if chance < 0.8:
        return f"{kind} patch", ("PATCH", f"{path}/{name}{query}", {"metadata": {"labels": {rng.choice(["app", "x"]): rng.choice(["a", "c", None])}}}), {**token, "kind": "application/merge-patch+json"}
    if chance < 0.88:
        return f"{kind} apply", ("PATCH", f"{path}/{rng.choice([name, 'new'])}?dryRun=All&force=true&fieldManager=t", thing(rng, kind, None) | {"metadata": {"labels": {"app": "a"}}}), {**token, "kind": "application/apply-patch+yaml"}
    if chance < 0.96 or kind == "namespaces":
        return f"{kind} delete", ("DELETE", f"{path}/{name}?dryRun=All", rng.choice([None, {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}])), token
    return f"{kind} collection", ("DELETE", f"{path}?dryRun=All&labelSelector=app", None), token


class Run:
    def __init__(self, folder, comparison, rng):
        key, certificate = f"{folder}/hook.key", f"{folder}/hook.crt"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        with open(certificate, "rb") as file:
            self.bundle = base64.b64encode(file.read()).decode()
        self.comparison, self.rng = comparison, rng
        self.sides = [(server, Webhooks(key, certificate), Audit(f"{folder}/audit-{server.name}.log")) for server in (comparison.theirs, comparison.ours)]
        self.pool = concurrent.futures.ThreadPoolExecutor(2)

    def register(self, number):
        """Creates the configurations of a batch; returns their paths."""
        rng, made = self.rng, []
        denying = rng.randrange(8)
        for place in range(7):
            mutating = place < 4
            one = configuration(rng, number, place, mutating)
            for hook in one["webhooks"]:
                path = f"/{'mv'[not mutating]}/{hook['name']}"
                how = behaviour(rng, mutating, mutating or denying == 0)
                denying -= not mutating
                for _, webhooks, _ in self.sides:
                    webhooks.server.behaviours[path] = how
                hook["path"] = path
            at = f"{GROUP}/{one['kind'].lower()}s"
            answers = []
            for server, webhooks, _ in self.sides:
                sent = copy.deepcopy(one)
                for hook in sent["webhooks"]:
                    hook["clientConfig"] = {"url": f"https://127.0.0.1:{webhooks.port}{hook.pop('path')}", "caBundle": self.bundle}
                answers.append(self.plain(server.request("POST", at, sent), webhooks))
            self.comparison.take(("registration", (at, one), *answers, lambda: answers[0]))
            made.append(f"{at}/{one['metadata']['name']}")
        return made

    def plain(self, answer, webhooks):
        return json.loads(json.dumps(answer).replace(f"127.0.0.1:{webhooks.port}", "127.0.0.1:PORT"))

    def ask(self, side, sent, options):
        server, webhooks, log = side
        webhooks.taken()
        audit = str(uuid.uuid4())
        code, body, warnings = self.plain(server.request(*sent, headers={"Audit-ID": audit}, **options), webhooks)
        calls = json.loads(json.dumps(webhooks.taken()))
        annotations = json.loads(json.dumps(log.annotations(audit)).replace(f"127.0.0.1:{webhooks.port}", "127.0.0.1:PORT"))
        for value in [body] + calls:
            without_chance(value, sent)
        return code, {"answer": body, "calls": calls, "audit": annotations}, sorted(warnings)

    def batch(self, number):
        made = self.register(number)
        time.sleep(1.5)
        results = []
        for _ in range(REQUESTS):
            label, sent, options = request(self.rng)
            theirs, ours = self.pool.map(lambda side: self.ask(side, sent, options), self.sides)
            results.append((label, [*sent, options, made], theirs, ours, lambda sent=sent, options=options: self.ask(self.sides[0], sent, options)))
        counts = [self.counted(server, number) for server, _, _ in self.sides]
        for result in results:
            self.comparison.take(result, explain)
        for key in sorted(set(counts[0]) | set(counts[1])):
            values = [count.get(key) for count in counts]
            self.comparison.take(("metrics " + key.split("{")[0], [key, made], (200, values[0], []), (200, values[1], []), lambda: (200, values[0], [])))
        for path in made:
            self.comparison.both("DELETE", path)
        time.sleep(0.5)

    def counted(self, server, number):
        text = server.request("GET", "/metrics")[1]
        found = (METRICS.match(line) for line in text.splitlines())
        return {one[1] + one[2]: one[3] for one in found if one and f"-{number}.example.com" in one[2]}


def without_chance(value, sent):
    """Removes names that are made up, and what they are part of."""
    if isinstance(value, list) and len(value) == 5:
        value = value[4]
    if isinstance(sent[2], dict) and (sent[2].get("metadata") or {}).get("generateName"):
        for one in (value, (value.get("request") or {}) if isinstance(value, dict) else {}, ((value.get("request") or {}).get("object") or {}) if isinstance(value, dict) else {}):
            if isinstance(one.get("metadata"), dict) and "name" in one["metadata"]:
                one["metadata"]["name"] = "generated"
            if str(one.get("name", "")).startswith("gen-"):
                one["name"] = "generated"
            labels = (one.get("metadata") or {}).get("labels") or {}
            if "kubernetes.io/metadata.name" in labels:
                labels["kubernetes.io/metadata.name"] = "generated"
        for one in (value, value.get("details") or {}) if isinstance(value, dict) else ():
            for member in ("message", "name"):
                if isinstance(one.get(member), str):
                    one[member] = re.sub(r"\bgen-[a-z0-9]{5}\b", "generated", one[member])
    status = value.get("status") if isinstance(value, dict) else None
    if isinstance(status, dict) and "token" in status:
        status["token"] = "made"


def explain(one, other, sent):
    return None


def set_up(comparison):
    def create(path, value):
        for server in (comparison.theirs, comparison.ours):
            code, answer, _ = server.request("POST", path, value)
            if code not in (200, 201):
                raise SystemExit(f"{server.name}: {path}: {code} {answer}")

    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": name, "served": True, "storage": name == "v1", "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"text": {"type": "string"}, "replicas": {"type": "integer"}}}, "status": free}}}} for name in ("v1", "v2")]
    create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"}, "versions": versions}})
    create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "write"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}, "subjects": [{"kind": "Group", "name": "devs", "apiGroup": "rbac.authorization.k8s.io"}]})
    time.sleep(3)
    rng = random.Random(7)
    for n, labels in enumerate(({"env": "prod"}, {"env": "dev", "app": "a"}, {})):
        create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"d{n}", "labels": labels}})
        for kind in KINDS:
            if kind in ("clusterroles", "namespaces") and n or kind in ("widgets v2", "scalers v2"):
                continue
            for k in range(2):
                create(KINDS[kind][2].format(f"d{n}") + "?fieldManager=t", thing(rng, kind, f"o{k}"))


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/policy.yaml", "w") as file:
        file.write(patches.POLICY)
    theirs, ours = start(folder, disabled="ServiceAccount,StorageObjectInUseProtection", audit=f"{folder}/policy.yaml")
    comparison = Comparison(theirs, ours, f"{folder}/differences.jsonl", keep=4)
    set_up(comparison)
    run = Run(folder, comparison, rng)
    number = 0
    while comparison.count < count:
        run.batch(number)
        number += 1
        print(comparison.summary().split("\n")[0], flush=True)
    print(comparison.summary())


if __name__ == "__main__":
    main()
