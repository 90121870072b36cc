#!/usr/bin/env python3
"""Generated objects of every built-in kind on both servers: validation errors, defaults, dropped fields and warnings.

    LOCKGATE=target/debug/lockgate ETCD=… KUBE_APISERVER=… ./validation.py FOLDER COUNT [SEED] [KIND,KIND…]

A valid object is changed in a few fields, mostly within its schema: boundary values, and fields that are added, removed,
repeated, emptied, or copied from another object. Half of the objects are created, the others replace the object or its status.
"""

import concurrent.futures
import copy
import gzip
import json
import os
import random
import re
import sys
import time
import urllib.parse

from compare import Comparison
from servers import start

VECTORS = os.path.join(os.path.dirname(__file__), "..", "vectors", "validation", "validation.jsonl.gz")
GROUP = 24
REGISTRATION = "admissionregistration.k8s.io/v1"
RULES = [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"]}]
WEBHOOK = {"name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "rules": RULES, "clientConfig": {"service": {"namespace": "default", "name": "hook", "path": "/x"}}}
CONSTRAINTS = {"resourceRules": RULES}
# Kinds without vectors.
MORE = [
    (REGISTRATION, "ValidatingWebhookConfiguration", {"webhooks": [WEBHOOK]}),
    (REGISTRATION, "MutatingWebhookConfiguration", {"webhooks": [{**WEBHOOK, "reinvocationPolicy": "IfNeeded", "matchConditions": [{"name": "a", "expression": "true"}]}]}),
    (REGISTRATION, "ValidatingAdmissionPolicy", {"spec": {"matchConstraints": CONSTRAINTS, "validations": [{"expression": "has(object.spec)", "message": "no"}], "variables": [{"name": "a", "expression": "1"}]}}),
    (REGISTRATION, "ValidatingAdmissionPolicyBinding", {"spec": {"policyName": "a", "validationActions": ["Deny"], "matchResources": CONSTRAINTS, "paramRef": {"name": "a", "namespace": "default", "parameterNotFoundAction": "Deny"}}}),
    (REGISTRATION, "MutatingAdmissionPolicy", {"spec": {"matchConstraints": CONSTRAINTS, "reinvocationPolicy": "Never", "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}]}}),
    (REGISTRATION, "MutatingAdmissionPolicyBinding", {"spec": {"policyName": "a"}}),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", {"spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "singular": "thing", "kind": "Thing", "shortNames": ["th"]},
        "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "additionalPrinterColumns": [{"name": "a", "type": "string", "jsonPath": ".spec.a"}],
                      "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer", "minimum": 1}}}}}}}]}}),
]
WORDS = ["", "a", "b", "A", "ok-name", "Not_Valid", "x" * 64, "x" * 254, "a.b/c", "a/b/c", "..", ".", "-a", "10.0.0.1", "10.0.0.0/8", "10.0.0.1/8", "::1", "fd00::/64", "1.2.3", "010.0.0.1", "1Gi", "100m", "-1", "0", "1.5", "1.0005",
         "50%", "101%", "http", "TCP", "UDP", "2020-01-01T00:00:00Z", "1h", "/abs/path", "../up", "a/../b", "https://x.example/y", "*", "é", " a ", "kubernetes.io/x", "example.com", "Always", "None", "true", "a=b", "In", "Exists", "{{}}", "default", "kube-system", "1e3"]
NUMBERS = [-2147483648, -1, 0, 1, 2, 3, 5, 80, 100, 101, 443, 1000, 30000, 32768, 65535, 65536, 86400, 1000000001, 2147483647, 2147483648]
# Objects of these kinds affect other requests of their namespace: no other requests run concurrently.
NAMESPACED_APART = {"LimitRange", "ResourceQuota"}


def load(path):
    with gzip.open(path, "rt", encoding="utf8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


class Schemas:
    """The schemas of the server's OpenAPI v3."""

    def __init__(self, server):
        self.named, self.kinds = {}, {}
        for path, at in server.request("GET", "/openapi/v3")[1]["paths"].items():
            if path.startswith(("api/", "apis/")) and path.count("/") >= 1:
                found = server.request("GET", at["serverRelativeURL"])[1].get("components", {}).get("schemas", {})
                self.named.update(found)
                for name, schema in found.items():
                    for kind in schema.get("x-kubernetes-group-version-kind") or []:
                        version = "/".join(filter(None, [kind["group"], kind["version"]]))
                        self.kinds[version, kind["kind"]] = {"$ref": f"#/components/schemas/{name}"}

    def resolve(self, schema):
        for _ in range(4):
            for inner in (schema or {}).get("allOf") or []:
                if "$ref" in inner:
                    schema = {key: value for key, value in schema.items() if key != "allOf"} | inner
            if "$ref" not in (schema or {}):
                break
            schema = self.named.get(schema["$ref"].rsplit("/", 1)[1], {})
        return schema or {}


def name_of(schema):
    """The name of the schema that a `$ref` refers to."""
    refs = [schema.get("$ref")] + [inner.get("$ref") for inner in schema.get("allOf") or []]
    return next((ref.rsplit("/", 1)[1] for ref in refs if ref), None)


class Generator:
    def __init__(self, rng, schemas, objects):
        self.rng, self.schemas = rng, schemas
        self.words, self.parts = {}, {}
        for one in objects:
            self.learn(one, schemas.kinds.get((one.get("apiVersion"), one.get("kind"))) or {}, "")

    def learn(self, value, schema, member):
        """Collects strings by field name, and objects and lists by type."""
        if isinstance(value, str):
            known = self.words.setdefault(member, [])
            if value not in known and len(known) < 40:
                known.append(value)
        name, resolved = name_of(schema), self.schemas.resolve(schema)
        if name and isinstance(value, (dict, list)):
            self.parts.setdefault(name, []).append(value)
        if isinstance(value, dict):
            for key, inner in value.items():
                self.learn(inner, (resolved.get("properties") or {}).get(key) or resolved.get("additionalProperties") or {}, key)
        if isinstance(value, list):
            for inner in value:
                self.learn(inner, resolved.get("items") or {}, member)

    def word(self, member):
        known = self.words.get(member)
        if known and self.rng.random() < 0.6:
            return self.rng.choice(known)
        if self.rng.random() < 0.15:
            return self.rng.choice(self.rng.choice(list(self.words.values())))
        return self.rng.choice(WORDS)

    def value(self, schema, member, depth=3):
        rng, name = self.rng, name_of(schema)
        if name and self.parts.get(name) and rng.random() < 0.5:
            return copy.deepcopy(rng.choice(self.parts[name]))
        schema = self.schemas.resolve(schema)
        kind = schema.get("type")
        if "oneOf" in schema or schema.get("format") == "int-or-string":
            return rng.choice([rng.choice(NUMBERS), self.word(member), "1", "50%", "100m", "1Gi"])
        if kind == "string":
            if schema.get("format") == "date-time":
                return rng.choice(["2020-01-01T00:00:00Z", "2020-01-01T00:00:00.123456Z", None, "2030-06-01T01:02:03+02:00", "yesterday"])
            if schema.get("format") == "byte":
                return rng.choice(["", "YQ==", "e30=", "no base64"])
            if schema.get("enum") and rng.random() < 0.6:
                return rng.choice(schema["enum"])
            return self.word(member)
        if kind == "integer":
            return rng.choice(NUMBERS)
        if kind == "number":
            return rng.choice([0, 1, 1.5, -0.5, 1e10, -0.0])
        if kind == "boolean":
            return rng.random() < 0.5
        if kind == "array":
            return [] if depth == 0 else [self.value(schema.get("items") or {}, member, depth - 1) for _ in range(rng.choice([0, 1, 1, 1, 2]))]
        properties = schema.get("properties") or {}
        if properties and depth > 0:
            required = [key for key in schema.get("required") or [] if rng.random() < 0.9]
            chosen = set(required) | set(rng.sample(sorted(properties), min(len(properties), rng.choice([0, 1, 1, 2, 3]))))
            return {key: self.value(properties[key], key, depth - 1) for key in sorted(chosen) if key in properties}
        more = schema.get("additionalProperties")
        if more and depth > 0:
            return {self.word(member): self.value(more if isinstance(more, dict) else {}, member, depth - 1) for _ in range(rng.choice([0, 1, 2]))}
        return {} if properties or more or rng.random() < 0.9 else rng.choice([1, "a", [], None])

    def nodes(self, value, schema, member="", into=None):
        """All nested objects and lists of a value, with their schemas."""
        into = [] if into is None else into
        resolved = self.schemas.resolve(schema)
        if isinstance(value, (dict, list)):
            into.append((value, resolved, member))
        if isinstance(value, dict):
            for key, inner in value.items():
                if key not in ("apiVersion", "kind"):
                    self.nodes(inner, (resolved.get("properties") or {}).get(key) or resolved.get("additionalProperties") or {}, key, into)
        if isinstance(value, list):
            for inner in value:
                self.nodes(inner, resolved.get("items") or {}, member, into)
        return into

    def change(self, one):
        """Changes one field of an object in place."""
        rng = self.rng
        nodes = self.nodes(one, self.schemas.kinds.get((one.get("apiVersion"), one.get("kind"))) or {})
        # Metadata is the same for every kind, and rarely changed.
        if rng.random() < 0.85:
            nodes = [node for node in nodes if node[2] not in ("metadata", "labels", "annotations", "managedFields") or "template" in str(node[2])] or nodes
        node, schema, member = rng.choice(nodes)
        if isinstance(node, list):
            act = rng.choice(["append", "append", "repeat", "remove", "replace", "empty", "null"])
            items = schema.get("items") or {}
            if act == "append" or not node:
                node.append(self.value(items, member))
            elif act == "repeat":
                node.append(copy.deepcopy(rng.choice(node)))
            elif act == "remove":
                node.pop(rng.randrange(len(node)))
            elif act == "replace":
                node[rng.randrange(len(node))] = self.value(items, member)
            elif act == "empty":
                node.clear()
            elif rng.random() < 0.1:
                node[rng.randrange(len(node))] = None
            return
        properties = schema.get("properties") or {}
        keys = [key for key in node if not (node is one and key in ("apiVersion", "kind", "metadata"))]
        act = rng.choice(["add", "add", "add", "set", "set", "set", "remove", "empty", "odd"])
        if act == "add" or not keys:
            more = schema.get("additionalProperties")
            if more:
                node[self.word(member)] = self.value(more if isinstance(more, dict) else {}, member)
            elif [key for key in properties if key not in ("apiVersion", "kind")]:
                key = rng.choice([key for key in properties if key not in ("apiVersion", "kind")])
                node[key] = self.value(properties[key], key)
        elif act == "remove":
            del node[rng.choice(keys)]
        elif act == "empty":
            key = rng.choice(keys)
            if isinstance(node[key], (dict, list)):
                node[key] = type(node[key])()
            else:
                node[key] = self.value(properties.get(key) or schema.get("additionalProperties") or {}, key)
        elif act == "odd":
            if rng.random() < 0.3:
                key = rng.choice(keys)
                node[key] = rng.choice([None, 1, "a", [], {}, True, 1.5])
            elif rng.random() < 0.2:
                node["unknownMember"] = 1
        else:
            scalars = [key for key in keys if not isinstance(node[key], (dict, list))] or keys
            key = rng.choice(scalars)
            node[key] = self.value(properties.get(key) or schema.get("additionalProperties") or {}, key)

    def changed(self, base):
        one = copy.deepcopy(base)
        for _ in range(self.rng.choice([1, 1, 1, 2, 2, 3])):
            self.change(one)
        return one


def bases(records, schemas):
    """Valid objects by version, kind and collection path."""
    found = {}
    for record in records:
        if record["op"] == "create" and record["want"]["code"] == 201 and not any(mut[0] in ("unknown", "type", "null") for mut in record.get("mut", [])):
            one = record["object"]
            found.setdefault((one["apiVersion"], one["kind"], record["path"]), []).append(one)
    for version, kind, body in MORE:
        plural = {"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "MutatingAdmissionPolicy": "mutatingadmissionpolicies"}.get(kind, kind.lower() + "s")
        name = "things.example.com" if kind == "CustomResourceDefinition" else "a.example.com"
        found[version, kind, f"/apis/{version}/{plural}"] = [{"apiVersion": version, "kind": kind, "metadata": {"name": name}, **body}]
    return {at: objects for at, objects in found.items() if (at[0], at[1]) in schemas.kinds}


def remove(server, path, name, kind):
    at = f"{path}/{urllib.parse.quote(name)}"
    for attempt in range(40):
        if server.request("DELETE", at + "?gracePeriodSeconds=0&propagationPolicy=Background", {})[0] in (404, 405):
            return
        code, live, _ = server.request("GET", at)
        if code == 404:
            return
        if kind == "Namespace" and code == 200:
            live["spec"] = {"finalizers": []}
            server.request("PUT", at + "/finalize", live)
        server.request("PATCH", at, {"metadata": {"finalizers": None}}, kind="application/merge-patch+json")
        time.sleep(0.02 * attempt)


def explain(one, other, request):
    """Known differences in gaps.toml: empty overheads, duplicate node ports, tokens with a leading space, requested cluster IPs."""
    told = [str((answer[1] or {}).get("message", "")) if isinstance(answer[1], dict) else "" for answer in (one, other)]
    sent = [value for value in parts(request[2]) if isinstance(value, dict)] + [{}]
    if "Pod Overhead set without corresponding RuntimeClass" in told[0] and any(part.get("overhead") == {} for part in sent):
        return "empty overhead"
    if (sent[0].get("kind") == "Service" or "/services/" in request[1]) and one[0] == 500 and told[0].startswith("duplicate nodePort: {") and other[0] == 422 and "nodePort: Duplicate value" in told[1]:
        return "duplicate node ports"
    if "failed to allocate IP" in told[0] and "is not in the valid range" in told[0] and any(part.get("clusterIP") for part in sent):
        return "addresses that are named"
    if one[0] == other[0] in (200, 201) and any(part in ([], {}) for list_ in parts(request[2]) if isinstance(list_, list) for part in parts(list_)) and without_managers(one) == without_managers(other):
        return "managers of lists that gained or lost empty members"
    if sent[0].get("kind") == "TokenReview" and any(str(part.get("token", "")).startswith(" ") for part in sent) and '"username": "system:anonymous"' in json.dumps(one[1]) and "invalid bearer token" in json.dumps(other[1]):
        return "token with a blank"
    return None


def without_managers(answer):
    body = json.loads(json.dumps(answer[1]))
    if isinstance(body, dict) and isinstance(body.get("metadata"), dict):
        body["metadata"].pop("managedFields", None)
    return answer[0], body, answer[2]


def parts(value):
    """A value and all nested values."""
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(inner)


def without_chance(answer, sent):
    """A response without the generated name, and without conditions that a controller writes."""
    code, body, warnings = answer
    sent = sent if isinstance(sent, dict) else {}
    metadata = sent.get("metadata") if isinstance(sent.get("metadata"), dict) else {}
    if metadata.get("generateName") and not metadata.get("name") and isinstance(body, dict):
        made = (body.get("details") or {}).get("name") or (body.get("metadata") or {}).get("name")
        body = json.loads(json.dumps(body).replace(json.dumps(made)[1:-1], "generated")) if made else body
    if isinstance(body, dict) and re.search(r"\bService\b", json.dumps(body)):
        body = json.loads(re.sub(r"\b10\.(9[6-9]|10\d|11[01])\.\d+\.\d+\b", "ADDRESS", json.dumps(body)))
    if isinstance(body, dict) and body.get("kind") in ("FlowSchema", "PriorityLevelConfiguration", "APIService", "CustomResourceDefinition"):
        if body["kind"] != "CustomResourceDefinition":
            body.pop("status", None)
        body.get("metadata", {}).pop("managedFields", None)
    return code, body, warnings


class Run:
    # The fraction of creates.
    CREATES = 0.5

    def __init__(self, comparison, generator, rng):
        self.comparison, self.generator, self.rng = comparison, generator, rng
        self.pool = concurrent.futures.ThreadPoolExecutor(8)

    def both(self, *request):
        sides = (self.comparison.theirs, self.comparison.ours)
        return [answer.result() for answer in [self.pool.submit(side.request, *request) for side in sides]]

    def send(self, requests):
        """Compares requests, several concurrently."""
        def one(request):
            label, ask, *uids = request
            method, path, body, *options = ask
            # Each server has its own uid of a replaced object.
            text = json.dumps(body)
            for one, other in uids:
                text = text.replace(one, other)
            mine = json.loads(text)
            again = lambda: without_chance(self.comparison.theirs.request(*ask), body)
            return label, ask, again(), without_chance(self.comparison.ours.request(method, path, mine, *options), body), again
        for result in self.pool.map(one, requests):
            self.comparison.take(result, explain)

    def create(self, at, objects):
        version, kind, path = at
        changed = (self.generator.changed(self.rng.choice(objects)) for _ in range(GROUP))
        self.send([(f"{kind} create", ("POST", f"{path}?dryRun=All&fieldManager=t", one)) for one in changed])

    def update(self, at, objects):
        version, kind, path = at
        base = copy.deepcopy(self.rng.choice(objects))
        if kind in NAMESPACED_APART and base.get("metadata"):
            path = path.replace("/namespaces/default/", "/namespaces/limits/")
            base["metadata"].pop("namespace", None)
        name = (base.get("metadata") or {}).get("name")
        if not name:
            return
        for side in (self.comparison.theirs, self.comparison.ours):
            remove(side, path, name, kind)
        made = self.both("POST", f"{path}?fieldManager=t", base)
        if any(code != 201 for code, _, _ in made):
            return
        requests = []
        item = f"{path}/{urllib.parse.quote(name)}"
        has_status = self.has_status(item)
        (_, one, _), (_, other, _) = made
        uids = [(one["metadata"]["uid"], other["metadata"]["uid"])] if "uid" in one["metadata"] else []
        # Each server allocates its own addresses.
        addresses = [(side.get("spec") or {}).get("clusterIP") for side in (one, other)]
        uids += [tuple(addresses)] if kind == "Service" and all(address not in ("", None, "None") for address in addresses) else []
        for _ in range(GROUP):
            # The object as sent, or as stored.
            live = copy.deepcopy(base if self.rng.random() < 0.5 else made[0][1])
            for member in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"):
                live["metadata"].pop(member, None)
            sub = "/status" if has_status and self.rng.random() < 0.3 else ""
            changed = self.generator.changed(live)
            if isinstance(changed.get("metadata"), dict) and changed["metadata"].get("name") != name and self.rng.random() < 0.9:
                changed["metadata"]["name"] = name
            requests.append((*self.change(kind, f"{item}{sub}", live, changed), *uids))
        self.send(requests)
        for side in (self.comparison.theirs, self.comparison.ours):
            remove(side, path, name, kind)

    def change(self, kind, path, _live, changed):
        """The request that replaces an object, with its label."""
        sub = "/status" if path.endswith("/status") else ""
        return f"{kind} update{sub}", ("PUT", f"{path}?dryRun=All&fieldManager=t", changed)

    def has_status(self, item):
        return self.comparison.theirs.request("GET", item + "/status")[0] == 200


def main(kind=Run):
    folder, count = sys.argv[1], int(sys.argv[2])
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    only = set(sys.argv[4].split(",")) if len(sys.argv) > 4 else None
    theirs, ours = start(folder, disabled="ServiceAccount,StorageObjectInUseProtection")
    comparison = Comparison(theirs, ours, f"{folder}/differences.jsonl", keep=4)
    records, schemas = load(VECTORS), Schemas(theirs)
    for server in (theirs, ours):
        for record in records:
            if record["op"] == "setup":
                server.request("POST", record["path"], record["object"])
        server.request("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "limits"}})
    time.sleep(2)
    found = bases(records, schemas)
    generator = Generator(rng, schemas, [one for objects in found.values() for one in objects])
    run = kind(comparison, generator, rng)
    # Kinds with more vectors have more validation rules.
    order = sorted(at for at in found if only is None or at[1] in only)
    weights = [max(4, len(found[at])) ** 0.5 for at in order]
    told = 0
    while comparison.count < count:
        at = rng.choices(order, weights)[0]
        (run.create if rng.random() < run.CREATES else run.update)(at, found[at])
        if comparison.count - told >= 2000:
            told = comparison.count
            print(comparison.summary().split("\n")[0], flush=True)
    print(comparison.summary())


if __name__ == "__main__":
    main()
