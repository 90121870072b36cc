#!/usr/bin/env python3
"""Records the API and the accepted expressions of a kube-apiserver release, as a line of conformance/vectors/kube-releases.jsonl.

    KUBE_APISERVER=… ETCD=… LOCKGATE=… kube_versions.py FOLDER >> conformance/vectors/kube-releases.jsonl

Recorded are discovery, feature gates, and expressions of policies and match conditions. With --writes, the creates of
conformance/vectors/validation with another result than on v1.36.4 are printed to standard error. All requests are dry runs.
"""

import gzip
import json
import re
import sys

import servers

HERE = __file__.rsplit("/", 2)[0]
GROUP = "/apis/admissionregistration.k8s.io/v1"
# In addition to those of kube-versions.jsonl.
EXPRESSIONS = [
    ("vap", "[1,2].distinct().size() == 2"),
    ("vap", "[1,2,3].slice(0, 2).size() == 2"),
    ("vap", "[1,2].reverse() == [2,1]"),
    ("vap", "[1,2].min() == 1"),
    ("vap", "isIP('10.0.0.1')"),
    ("vap", "isCIDR('10.0.0.0/8')"),
    ("vap", "'a-b'.split('-').size() == 2"),
    ("vap", "'a'.format([1]) == 'a'"),
    ("vap", "'%d'.format([1]) == '1'"),
    ("vap", "[1, 2].transformMapEntry(i, v, {i: v}).size() == 2"),
    ("vap", "object.spec.containers.exists(i, c, i == 0)"),
    ("vap", "semver('1.2.3').isGreaterThan(semver('1.0.0'))"),
    ("vap", "'abc'.find('[a-z]+') == 'abc'"),
    ("vap", "[1].isSorted()"),
    ("vap", "jsonpatch.escapeKey('a/b') == 'a~1b'"),
    ("vap", "'a' in {'a': 1}"),
    ("vap", "dyn(1) == 1.0"),
    ("vap", "1 + 'a' == 2"),
    ("vap", "object.metadata.labels[?'a'].orValue('b') == 'b'"),
    ("match", "isSemver('1.0.0')"),
    ("match", "[3,1].sort() == [1,3]"),
    ("match", "lists.range(3).size() == 3"),
    ("match", "quantity('1').isInteger()"),
    ("match", "ip.isCanonical('10.0.0.1')"),
    ("match", "variables.foo == 1"),
    ("match", "request.userInfo.username == 1"),
]


def policy(expression):
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return "validatingadmissionpolicies", {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "it"},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": expression}]}}


def webhook(expression):
    return "validatingwebhookconfigurations", {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "it"},
        "webhooks": [{
            "name": "a.b.c", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "matchConditions": [{"name": "x", "expression": expression}]}]}


def resources(server):
    versions = [("/api/v1", "v1")]
    for group in server.request("GET", "/apis")[1]["groups"]:
        versions += [(f"/apis/{v['groupVersion']}", v["groupVersion"]) for v in group["versions"]]
    found = []
    for path, version in versions:
        for resource in server.request("GET", path)[1]["resources"]:
            if "/" not in resource["name"]:
                found.append(f"{version}/{resource['name']}")
    return found


def gates(server):
    text = server.request("GET", "/metrics")[1]
    pattern = r'^kubernetes_feature_enabled\{name="([^"]*)",stage="[^"]*"\} (\d)'
    return {name: value == "1" for name, value in re.findall(pattern, text, re.MULTILINE)}


def expressions(server):
    with open(f"{HERE}/vectors/kube-versions.jsonl") as file:
        known = [json.loads(line) for line in file][-1]["expressions"]
    cases = [(case["kind"], case["expression"]) for case in known] + EXPRESSIONS
    recorded = []
    for kind, expression in cases:
        plural, body = policy(expression) if kind == "vap" else webhook(expression)
        code, answer, _ = server.request("POST", f"{GROUP}/{plural}?dryRun=All", body)
        message = answer["message"] if code >= 400 else None
        recorded.append({"kind": kind, "expression": expression, "code": code, "message": message})
    return recorded


def writes(server):
    """Prints creates whose code or message differs from v1.36.4."""
    with gzip.open(f"{HERE}/vectors/validation/validation.jsonl.gz", "rt") as file:
        for line in file:
            case = json.loads(line)
            if case["op"] == "setup":
                server.request("POST", case["path"], case["object"])
            if case["op"] != "create":
                continue
            code, answer, _ = server.request("POST", f"{case['path']}?dryRun=All&fieldManager=t", case["object"])
            message = answer.get("message") if isinstance(answer, dict) and code >= 400 else None
            if not isinstance(answer, dict):
                message = answer.strip()
            if (code, message) != (case["want"]["code"], case["want"].get("message")):
                print(json.dumps({"id": case["id"], "code": code, "message": message}), file=sys.stderr)


def main():
    theirs, _ = servers.start(sys.argv[1])
    told = theirs.request("GET", "/version")[1]
    recording = {
        "version": f"{told['major']}.{told['minor']}", "release": told["gitVersion"], "resources": resources(theirs),
        "gates": gates(theirs), "expressions": expressions(theirs)}
    print(json.dumps(recording, ensure_ascii=False))
    if "--writes" in sys.argv:
        writes(theirs)


main()
