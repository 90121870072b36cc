#!/usr/bin/env python3
"""Generated apply configurations of MutatingAdmissionPolicies on both servers.

    LOCKGATE=target/debug/lockgate ETCD=… KUBE_APISERVER=… ./merges.py FOLDER COUNT [SEED]

Each policy merges a configuration into objects with its own label: Pods, Deployments, Services and custom resources
whose lists are maps, sets or atomic, and whose maps are granular or atomic.
"""

import json
import random
import sys
import time

import policies
from compare import Comparison
from policies import GROUP, marker
from servers import start

BATCH, REQUESTS = 30, 12
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


def entry(keys, **more):
    properties = {key: TEXT for key in keys} | {"value": TEXT, "port": NUMBER} | more
    return {"type": "object", "required": list(keys), "properties": properties}


SPEC = {
    "byName": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": entry(["name"], tags={"type": "array", "x-kubernetes-list-type": "set", "items": TEXT})},
    "byTwo": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "kind"], "items": entry(["name", "kind"])},
    "byDefault": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "kind"],
                  "items": {"type": "object", "required": ["name"], "properties": {"name": TEXT, "kind": {"type": "string", "default": "usual"}, "value": TEXT}}},
    "words": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
    "numbers": {"type": "array", "x-kubernetes-list-type": "set", "items": NUMBER},
    "whole": {"type": "array", "x-kubernetes-list-type": "atomic", "items": TEXT},
    "plain": {"type": "array", "items": entry(["name"])},
    "free": {"type": "object", "additionalProperties": TEXT},
    "fixed": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": TEXT},
    "struct": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": TEXT, "b": TEXT}},
    "nested": {"type": "object", "properties": {"a": TEXT, "b": NUMBER, "inner": {"type": "object", "properties": {"c": TEXT, "d": {"type": "string", "default": "x"}}}}},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "either": {"x-kubernetes-int-or-string": True},
    "maybe": {"type": "string", "nullable": True},
    "union": {"type": "object", "properties": {"type": TEXT, "git": {"type": "object", "properties": {"url": TEXT}}, "http": TEXT}, "oneOf": [{"required": ["git"]}, {"required": ["http"]}]},
    "count": NUMBER, "ratio": {"type": "number"}, "flag": {"type": "boolean"}, "text": TEXT,
}


def literal(rng, names="abc"):
    return "'" + rng.choice(names) + "'"


# Apply configurations must not set these; few do, so that most are merged.
ATOMIC = {"whole", "fixed", "struct", "plain", "args", "nodeSelector", "tolerations", "imagePullSecrets", "readinessGates", "securityContext", "selector", "loadBalancerSourceRanges", "externalIPs", "resources"}


def members(rng, at, choices):
    """An object literal with some of the fields of its type."""
    choices = {name: make for name, make in choices.items() if name not in ATOMIC or rng.random() < 0.06} or choices
    chosen = rng.sample(list(choices), rng.randint(1, min(3, len(choices))))
    return f"{at}{{" + ", ".join(f"{name}: {choices[name]()}" for name in chosen) + "}"


def some(rng, make, most=3):
    return "[" + ", ".join(make() for _ in range(rng.randint(0 if rng.random() < 0.1 else 1, most))) + "]"


def custom(rng):
    at = "Object.spec"

    def item(name, keys):
        choices = {"value": lambda: literal(rng), "port": lambda: str(rng.randint(0, 3))}
        if name == "byName":
            choices["tags"] = lambda: some(rng, lambda: literal(rng))
        told = [f"{key}: {literal(rng)}" for key in keys if rng.random() < 0.95]
        told += [f"{key}: {choices[key]()}" for key in rng.sample(list(choices), rng.randint(0, len(choices)))]
        return f"{at}.{name}{{{', '.join(told)}}}"

    choices = {
        "byName": lambda: some(rng, lambda: item("byName", ["name"])), "byTwo": lambda: some(rng, lambda: item("byTwo", ["name", "kind"])),
        "byDefault": lambda: some(rng, lambda: f"{at}.byDefault{{name: {literal(rng)}, value: {literal(rng)}" + (f", kind: {literal(rng)}" if rng.random() < 0.5 else "") + "}"),
        "words": lambda: some(rng, lambda: literal(rng), 4), "numbers": lambda: some(rng, lambda: str(rng.randint(0, 3)), 4), "whole": lambda: some(rng, lambda: literal(rng)),
        "plain": lambda: some(rng, lambda: item("plain", ["name"])),
        "free": lambda: "{" + f"{literal(rng)}: {literal(rng)}" + "}", "fixed": lambda: "{" + f"{literal(rng)}: {literal(rng)}" + "}",
        "struct": lambda: members(rng, f"{at}.struct", {"a": lambda: literal(rng), "b": lambda: literal(rng)}),
        "nested": lambda: members(rng, f"{at}.nested", {"a": lambda: literal(rng), "b": lambda: str(rng.randint(0, 3)), "inner": lambda: members(rng, f"{at}.nested.inner", {"c": lambda: literal(rng), "d": lambda: literal(rng)})}),
        "count": lambda: rng.choice(["1", "size(object.metadata.name)", "object.spec.count + 1"]), "ratio": lambda: rng.choice(["1.5", "2.0", "double(3)"]), "flag": lambda: rng.choice(["true", "!object.spec.flag"]),
        "text": lambda: rng.choice(["'t'", "object.spec.text + '!'", "''"]), "either": lambda: rng.choice(["5", "'5'", "dyn('x')"]), "maybe": lambda: rng.choice(["'m'", "''"]),
        "union": lambda: members(rng, f"{at}.union", {"type": lambda: literal(rng, ["Git", "HTTP"]), "git": lambda: f"{at}.union.git{{url: {literal(rng)}}}", "http": lambda: literal(rng)}),
        "any": lambda: rng.choice(["{'x': 1}", "{'x': {'y': ['z']}}", "{}"]),
    }
    return f"Object{{spec: {members(rng, at, choices)}}}"


def pod_spec(rng, at):
    name = lambda: literal(rng, ["c", "d", "e"])
    handler = lambda at: members(rng, at, {"httpGet": lambda: f"{at}.httpGet{{port: {rng.choice([80, 81])}}}", "tcpSocket": lambda: f"{at}.tcpSocket{{port: 80}}", "exec": lambda: f"{at}.exec{{}}"})

    def container(list_name):
        where = f"{at}.{list_name}"
        choices = {
            "image": lambda: literal(rng, ["nginx", "busybox:1"]), "args": lambda: some(rng, lambda: literal(rng)), "env": lambda: some(rng, lambda: f"{where}.env{{name: {literal(rng)}, value: {literal(rng)}}}"),
            "ports": lambda: some(rng, lambda: f"{where}.ports{{containerPort: {rng.choice([80, 81])}" + rng.choice(["", ", protocol: 'UDP'", ", protocol: 'TCP'", ", name: 'p'"]) + "}"),
            "volumeMounts": lambda: some(rng, lambda: f"{where}.volumeMounts{{name: 'v', mountPath: '/{rng.choice('ab')}'}}", 2), "resources": lambda: f"{where}.resources{{limits: {{'cpu': '{rng.choice([1, 2])}'}}}}",
            "securityContext": lambda: f"{where}.securityContext{{capabilities: {where}.securityContext.capabilities{{drop: ['ALL']}}}}", "imagePullPolicy": lambda: "'Always'",
            # Unions: the existing member is kept next to the merged one.
            "lifecycle": lambda: f"{where}.lifecycle{{preStop: " + handler(f"{where}.lifecycle.preStop") + "}", "livenessProbe": lambda: handler(f"{where}.livenessProbe"),
        }
        told = [f"name: {name()}"] + [f"{key}: {choices[key]()}" for key in rng.sample([name for name in choices if name not in ATOMIC or rng.random() < 0.06], rng.randint(0, 3))]
        return f"{where}{{{', '.join(told)}}}"

    choices = {
        "containers": lambda: some(rng, lambda: container("containers"), 2), "initContainers": lambda: some(rng, lambda: container("initContainers"), 2),
        "volumes": lambda: some(rng, lambda: f"{at}.volumes{{name: {literal(rng, ['v', 'w'])}" + rng.choice(["", f", emptyDir: {at}.volumes.emptyDir{{medium: 'Memory'}}", f", configMap: {at}.volumes.configMap{{name: 'c'}}"]) + "}", 2),
        "tolerations": lambda: some(rng, lambda: f"{at}.tolerations{{key: {literal(rng)}, operator: 'Exists'}}", 2), "nodeSelector": lambda: "{'a': 'b'}", "imagePullSecrets": lambda: some(rng, lambda: f"{at}.imagePullSecrets{{name: {literal(rng)}}}", 2),
        "hostAliases": lambda: f"[{at}.hostAliases{{ip: '10.0.0.{rng.randint(1, 2)}', hostnames: [{literal(rng)}]}}]", "securityContext": lambda: f"{at}.securityContext{{runAsUser: {rng.randint(1, 2)}, supplementalGroups: [1, 2]}}",
        "topologySpreadConstraints": lambda: f"[{at}.topologySpreadConstraints{{topologyKey: {literal(rng)}, maxSkew: 1, whenUnsatisfiable: 'ScheduleAnyway'}}]", "serviceAccountName": lambda: "'default'", "terminationGracePeriodSeconds": lambda: "5",
        "readinessGates": lambda: f"[{at}.readinessGates{{conditionType: 'a.b/c'}}]", "schedulingGates": lambda: f"[{at}.schedulingGates{{name: 'a.b/{rng.choice('cd')}'}}]",
    }
    return members(rng, at, choices)


def configuration(rng, kind):
    if rng.random() < 0.15:
        return rng.choice([
            f"Object{{metadata: Object.metadata{{labels: {{{literal(rng)}: {literal(rng)}}}}}}}", "Object{metadata: Object.metadata{finalizers: ['a.b/c']}}", "Object{metadata: Object.metadata{annotations: {'a': 'b'}}}", "Object{}",
            "Object{metadata: Object.metadata{ownerReferences: [Object.metadata.ownerReferences{apiVersion: 'v1', kind: 'Pod', name: 'p', uid: 'u'}]}}", "Object{metadata: Object.metadata{name: 'other'}}"])
    if kind == "Widget":
        return custom(rng)
    if kind == "Pod":
        return f"Object{{spec: {pod_spec(rng, 'Object.spec')}}}"
    if kind == "Deployment" and rng.random() < 0.3:
        at = "Object.spec.strategy"
        return f"Object{{spec: Object.spec{{strategy: " + members(rng, at, {"type": lambda: literal(rng, ["Recreate", "RollingUpdate"]), "rollingUpdate": lambda: f"{at}.rollingUpdate{{maxSurge: {rng.choice([1, 2])}}}"}) + "}}"
    if kind == "Deployment":
        return f"Object{{spec: Object.spec{{template: Object.spec.template{{spec: {pod_spec(rng, 'Object.spec.template.spec')}}}}}}}"
    port = lambda: f"Object.spec.ports{{port: {rng.choice([80, 81])}" + rng.choice(["", ", protocol: 'UDP'", ", name: 'x'", ", targetPort: 8080", ", protocol: 'TCP', appProtocol: 'http'"]) + "}"
    return "Object{spec: " + members(rng, "Object.spec", {"ports": lambda: some(rng, port, 2), "selector": lambda: "{'x': 'y'}", "externalIPs": lambda: some(rng, lambda: f"'1.2.3.{rng.randint(1, 3)}'", 2),
                                                            "sessionAffinity": lambda: "'ClientIP'", "loadBalancerSourceRanges": lambda: "['10.0.0.0/8']"}) + "}"


def body(rng, kind, name, label):
    metadata = {"name": name, "labels": {"case": label}}
    containers = [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}], "env": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}]}
                  | rng.choice([{}, {}, {"livenessProbe": {"httpGet": {"port": 80}}, "lifecycle": {"preStop": {"exec": {"command": ["true"]}}}}])] + ([{"name": "d", "image": "nginx"}] if rng.random() < 0.4 else [])
    spec = {"containers": containers, "volumes": [{"name": "v", "emptyDir": {}}]}
    if rng.random() < 0.3:
        spec["tolerations"] = [{"key": "a", "operator": "Exists"}]
    if rng.random() < 0.2:
        spec["hostAliases"] = [{"ip": "10.0.0.1", "hostnames": ["h"]}]
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
    if kind == "Deployment":
        strategy = rng.choice([{}, {"strategy": {"type": "Recreate"}}, {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}}])
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": strategy | {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}}
    if kind == "Service":
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"name": "x", "port": 80}] + ([{"name": "u", "port": 80, "protocol": "UDP"}] if rng.random() < 0.4 else [])}}
    pick = lambda most=3: rng.sample("abcde", rng.randint(0, most))
    spec = {"byName": [{"name": n, "value": "1", "tags": pick(2)} for n in pick()], "byTwo": [{"name": n, "kind": rng.choice("ab"), "port": 1} for n in pick()], "byDefault": [{"name": n, "value": "1"} for n in pick()], "words": pick(),
            "numbers": rng.sample(range(4), rng.randint(0, 3)), "whole": pick() + ["a", "a"], "plain": [{"name": n} for n in pick()], "free": {n: "1" for n in pick()}, "fixed": {n: "1" for n in pick()}, "struct": {"a": "1", "b": "2"},
            "nested": {"a": "1", "inner": {"c": "2"}}, "any": {"x": {"q": 1}, "w": [1]}, "either": rng.choice([1, "1"]), "maybe": rng.choice([None, "x"]), "union": rng.choice([{"type": "Git", "git": {"url": "u"}}, {"http": "h"}]), "count": 3, "ratio": 0.5, "flag": True, "text": "t"}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": {key: value for key, value in spec.items() if rng.random() < 0.6}}


PATHS = {"Pod": "/api/v1/namespaces/d0/pods", "Deployment": "/apis/apps/v1/namespaces/d0/deployments", "Service": "/api/v1/namespaces/d0/services", "Widget": "/apis/example.com/v1/namespaces/d0/widgets"}


def set_up(comparison):
    def create(path, value):
        for server in (comparison.theirs, comparison.ours):
            code, answer, _ = server.request("POST", path, value)
            if code not in (200, 201):
                raise SystemExit(f"{server.name}: {path}: {code} {answer}")

    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": SPEC}}}}
    create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"}, "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}]}})
    create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "d0"}})
    create("/api/v1/namespaces/d0/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    time.sleep(4)


def explain(one, other, request):
    """Known differences: Go map order of atomic paths; CEL values that upstream fails to convert; empty lists kept in custom resources."""
    told = [str((answer[1] or {}).get("message", "")) if isinstance(answer[1], dict) else "" for answer in (one, other)]
    if "may not mutate atomic" in told[0] and all("structs: " in text for text in told) and len({tuple(sorted(text.split("structs: ")[1].split(", "))) for text in told}) == 1:
        return "order"
    if "errors:\n" in told[0] and sorted(told[0].split("\n")) == sorted(told[1].split("\n")):
        return "order"
    if policies.explain(one, other, request):
        return policies.explain(one, other, request)
    sent = policies.mutations(request)
    strategy = (request[2].get("spec") or {}).get("strategy") or {}
    if one[0] == other[0] == 201 and strategy.get("type") == "Recreate" and len(sent) > 1 and "rollingUpdate" in sent[0] + sent[1] and without_update(one) == without_update(other):
        return "rolling updates of two mutations"
    if one[0] == other[0] == 201 and request[2].get("kind") == "Widget" and any("[]" in expression for expression in sent) and without_new_empties(one[1], other[1]) == one[1]:
        return "empty lists"
    return None


def without_update(answer):
    body = json.loads(json.dumps(answer[1]))
    body["spec"]["strategy"].pop("rollingUpdate", None)
    return body


def without_new_empties(theirs, ours):
    """Lockgate's object without empty lists that are missing in kube-apiserver's (gaps.toml)."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return {key: without_new_empties(theirs.get(key), value) for key, value in ours.items() if value != [] or key in theirs}
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [without_new_empties(one, other) for one, other in zip(theirs, ours)]
    return ours


def batch(comparison, rng, number):
    made, kinds = [], []
    for n in range(BATCH):
        kind, name = rng.choice(["Widget", "Widget", "Pod", "Deployment", "Service"]), f"m{n}-{number}.example.com"
        group, plural = ("example.com", "widgets") if kind == "Widget" else ("apps", "deployments") if kind == "Deployment" else ("", kind.lower() + "s")
        one = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
            "reinvocationPolicy": rng.choice(["Never", "IfNeeded"]), "failurePolicy": "Fail", "matchConstraints": {"objectSelector": {"matchLabels": {"case": f"b{number}-{n}"}},
                "resourceRules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [plural]}]},
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": configuration(rng, kind)}} for _ in range(rng.choice([1, 1, 2]))]}}
        policies.remember(f"b{number}-{n}", one)
        comparison.take(comparison.compare("policy", ("POST", f"{GROUP}/mutatingadmissionpolicies", one)))
        bound = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": {"policyName": name}}
        comparison.both("POST", f"{GROUP}/mutatingadmissionpolicybindings", bound)
        made += [f"{GROUP}/mutatingadmissionpolicybindings/{name}", f"{GROUP}/mutatingadmissionpolicies/{name}"]
        kinds.append(kind)
    marker(comparison, number)
    comparison.run(((kinds[n], ("POST", PATHS[kinds[n]] + "?dryRun=All", body(rng, kinds[n], f"o{k}", f"b{number}-{n}")), {}) for n in range(BATCH) for k in range(REQUESTS)), explain=explain)
    for path in made:
        comparison.both("DELETE", path)


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    theirs, ours = start(folder, disabled="ServiceAccount")
    policies.PATHS.update(PATHS)
    comparison = Comparison(theirs, ours, f"{folder}/differences.jsonl")
    set_up(comparison)
    number = 0
    while comparison.count < count:
        batch(comparison, rng, number)
        number += 1
        print(number, comparison.count, flush=True)
    print(comparison.summary())


if __name__ == "__main__":
    main()
