#!/usr/bin/env python3
"""Generated CustomResourceDefinitions and custom resources on both servers.

    LOCKGATE=target/debug/lockgate ETCD=… KUBE_APISERVER=… ./definitions.py FOLDER COUNT [SEED]

Schemas come from a grammar of all schema keywords, in valid and invalid combinations; names, versions, subresources, columns,
selectable fields and conversions are varied. Definitions are dry runs; some that both servers accept are created, and their
custom resources are created, changed, listed, printed as tables and scaled.
"""

import copy
import json
import random
import sys
import time

import changes
from compare import Comparison
from servers import start

GROUP = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMES = ["a", "b", "c", "list", "map", "text", "count", "any", "when"]
PATTERNS = ["^a+$", "^[a-z]*$", "(", "a{1001}", "\\d+", "[[:alpha:]]", "(?=a)", ""]
FORMATS = ["date-time", "date", "duration", "uuid", "ipv4", "ipv6", "cidr", "uri", "email", "hostname", "byte", "password", "int32", "int64", "float", "double", "mac", "isbn", "bsonobjectid", "creditcard", "ssn", "hexcolor", "rgbcolor", "datetime", "unknown", "uuid4", "k8s-short-name", "k8s-long-name"]
RULES = ["true", "self == oldSelf", "self.a == 'x'", "size(self) > 0", "self > 0", "has(self.a)", "self.", "1", "unknown(self)", "self.all(x, x == 'a')", "self.a.b.c", "oldSelf.a != self.a", "self.matches('(')", "self.matches('^a')", "", " ", "self.exists(k, k == 'a')", "self.map(x, x)", "'a' in self",
         "quantity(self).isGreaterThan(quantity('1'))", "self.metadata.name == 'a'", "self.metadata.labels['a'] == 'b'", "self.kind == 'Thing'", "self.spec.a == 'x'", "!has(self.spec.a) || self.spec.a == 'x'", "self.all(x, self.all(y, self.all(z, x == y && y == z)))", "optional.of(self).hasValue()", "self.contains('aaaaaaaaaaaaaaaaaaaaaa')",
         "oldSelf.hasValue()", "oldSelf.orValue('') == self", "self.lowerAscii() == self", "duration(self) > duration('1s')", "isURL(self)", "self in ['a', 'b']", "self.count < 10", "self[0] == self[1]", "self.a + self.b == 3", "ip.isCanonical(self)", "format.dns1123Label().validate(self).hasValue()", "self.__namespace__ == 'a'", "type(self) == string", "self.a == self.b", "dyn(self).x == 1", "self.isSorted()", "self.sum() < 3", "[self].exists(x, x)", "semver(self).major() == 1", "cel.bind(x, self, x == x)"]
MESSAGES = ["'bad'", "'bad ' + self.a", "self", "1", "'a\\nb'", "''", "unknown", "'x' +", "string(self)", "'size is ' + string(size(self))", "' '", "oldSelf"]
PATHS = [".a", ".spec.a", ".a[0]", "['a']", ".none", "a", "", ".map['x']", ".list[0].a", ".a.b", ".", "..a", ".spec.map.x", "[*]"]
WORDS = ["", "a", "A", "things", "thing", "Thing", "a-b", "a.b", "x" * 64, "é", "-a", "UPPER", "list", "Widgets"]
NUMBERS = [0, 1, 2, 3, -1, 5, 10, 100, 1.5, -0.5, 2147483648, 9007199254740993, 1e21]


class Schemas:
    def __init__(self, rng, odd):
        self.rng, self.odd = rng, odd

    def some(self, chance):
        return self.rng.random() < chance

    def schema(self, depth=3):
        rng = self.rng
        kinds = ["string"] * 4 + ["integer"] * 2 + ["number", "boolean"] + (["object"] * 4 + ["array"] * 3 if depth else []) + ["any", "either"]
        kind = rng.choice(kinds)
        made = {}
        if kind == "any":
            made = {"x-kubernetes-preserve-unknown-fields": True} | ({"type": "object"} if self.some(0.7) else {})
        elif kind == "either":
            made = {"x-kubernetes-int-or-string": True}
            if self.some(0.3):
                made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
        else:
            made["type"] = kind
        if kind == "object":
            if self.some(0.6):
                made["properties"] = {name: self.schema(depth - 1) for name in rng.sample(NAMES, rng.randint(0, 4))}
                if self.some(0.4):
                    made["required"] = rng.sample(NAMES, rng.randint(1, 2)) if self.some(0.2) else [name for name in made["properties"] if self.some(0.5)]
                if self.some(0.1):
                    made["x-kubernetes-embedded-resource"] = True
                    made["x-kubernetes-preserve-unknown-fields"] = self.some(0.8)
            elif self.some(0.9):
                made["additionalProperties"] = self.schema(depth - 1) if self.some(0.9) else self.some(0.5)
            if self.some(0.15):
                made["x-kubernetes-preserve-unknown-fields"] = self.some(0.9)
            if self.some(0.15):
                made["x-kubernetes-map-type"] = rng.choice(["atomic", "granular", "granular", "other"])
            if self.some(0.15):
                made[rng.choice(["minProperties", "maxProperties"])] = rng.choice([0, 1, 2, 5, -1])
        if kind == "array":
            made["items"] = self.schema(depth - 1)
            if self.some(0.5):
                which = rng.choice(["map", "map", "set", "atomic", "other"] if self.some(0.3) else ["map", "set", "atomic"])
                made["x-kubernetes-list-type"] = which
                if which == "map":
                    keys = rng.sample(["a", "b"], rng.choice([1, 1, 2]))
                    if self.some(0.9):
                        made["x-kubernetes-list-map-keys"] = keys
                    if self.some(0.9):
                        made["items"] = {"type": "object", "properties": {key: {"type": rng.choice(["string", "integer"])} for key in keys} | {"c": self.schema(0)}, "required": keys if self.some(0.9) else keys[:1]}
                        if self.some(0.2):
                            made["items"]["properties"][keys[0]]["default"] = rng.choice(["x", 1])
                if which == "set" and self.some(0.7):
                    made["items"] = {"type": rng.choice(["string", "integer"])}
            if self.some(0.3):
                made[rng.choice(["minItems", "maxItems"])] = rng.choice([0, 1, 2, 5, -1])
            if self.some(0.05):
                made["uniqueItems"] = self.some(0.5)
        if kind == "string":
            if self.some(0.25):
                made["format"] = rng.choice(FORMATS)
            if self.some(0.15):
                made["pattern"] = rng.choice(PATTERNS)
            if self.some(0.2):
                made[rng.choice(["minLength", "maxLength"])] = rng.choice([0, 1, 2, 5, 20, -1])
            if self.some(0.2):
                made["enum"] = rng.sample(["x", "y", "z", "", 1, None, "x"], rng.randint(1, 3))
        if kind in ("integer", "number"):
            if self.some(0.3):
                made[rng.choice(["minimum", "maximum"])] = rng.choice(NUMBERS)
            if self.some(0.1):
                made[rng.choice(["exclusiveMinimum", "exclusiveMaximum"])] = self.some(0.6)
            if self.some(0.1):
                made["multipleOf"] = rng.choice([1, 2, 5, 0.5, 0, -1])
            if self.some(0.15):
                made["format"] = rng.choice(["int32", "int64", "float", "double", "uint", "other"])
            if self.some(0.1):
                made["enum"] = rng.sample([0, 1, 2, 1.5, "x"], 2)
        if self.some(0.12):
            made["nullable"] = self.some(0.8)
        if self.some(0.15):
            made["default"] = self.value(made) if self.some(0.8) else rng.choice([None, "x", 1, {}, [], {"a": "x"}, True])
        if self.some(0.08):
            made["description"] = rng.choice(["d", ""])
        if self.some(0.12):
            made["x-kubernetes-validations"] = [self.rule() for _ in range(rng.choice([1, 1, 2]))]
        if self.some(0.08) and depth:
            inner = {"required": ["a"]} if kind == "object" else {"minimum": 1} if kind in ("integer", "number") else {"pattern": "^x"} if kind == "string" else {"minItems": 1}
            if self.odd and self.some(0.4):
                inner = self.schema(depth - 1)
            which = rng.choice(["allOf", "anyOf", "oneOf", "not"])
            made[which] = inner if which == "not" else [inner] + ([{"properties": {"a": {"minLength": 1}}}] if kind == "object" and self.some(0.5) else [])
        if self.odd and self.some(0.08):
            made |= rng.choice([{"$ref": "#/x"}, {"id": "a"}, {"type": "other"}, {"type": ""}, {"definitions": {"a": {"type": "string"}}}, {"dependencies": {"a": ["b"]}}, {"patternProperties": {"^a": {"type": "string"}}}, {"additionalItems": False}, {"items": {"type": "string"}}, {"properties": {"a": {"type": "string"}}},
                                {"additionalProperties": {"type": "string"}}, {"x-kubernetes-int-or-string": True}, {"x-kubernetes-preserve-unknown-fields": False}, {"x-kubernetes-list-type": "map"}, {"x-kubernetes-list-map-keys": ["a", "a"]}, {"nullable": True}, {"example": 1}, {"externalDocs": {"url": "x"}}, {"title": "t"}, {"$schema": "x"},
                                {"items": [{"type": "string"}, {"type": "integer"}]}, {"unknownMember": 1}, {"required": ["", "a", "a"]}, {"enum": []}, {"x-kubernetes-embedded-resource": True}, {"format": ""}, {"type": "null"}, {"minLength": 3, "maxLength": 1}, {"default": None}, {"x-kubernetes-validations": [{}]}, {"exclusiveMinimum": True}, {"type": ["string"]}])
        return made

    def rule(self):
        rng = self.rng
        made = {"rule": rng.choice(RULES)}
        if self.some(0.3):
            made["message"] = rng.choice(["bad", "", " ", "a\nb", "x" * 2100])
        if self.some(0.25):
            made["messageExpression"] = rng.choice(MESSAGES)
        if self.some(0.2):
            made["reason"] = rng.choice(["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate", "Other", ""])
        if self.some(0.25):
            made["fieldPath"] = rng.choice(PATHS)
        if self.some(0.15):
            made["optionalOldSelf"] = self.some(0.7)
        return made

    def value(self, schema, depth=4):
        """A value that mostly conforms to a schema."""
        rng = self.rng
        if self.some(0.06):
            return rng.choice([None, 1, "a", True, [], {}, 1.5, ["a", "a"], {"a": {"b": 1}}, -1, "x" * 30, 0, "", [None], {"a": None}])
        if "default" in schema and self.some(0.1):
            return schema["default"]
        if schema.get("enum") and self.some(0.7):
            return rng.choice(schema["enum"])
        kind = schema.get("type")
        kind = kind if isinstance(kind, str) else "any"
        if schema.get("x-kubernetes-int-or-string"):
            return rng.choice([1, "1", "50%", "x"])
        if kind == "string":
            told = {"date-time": "2020-01-01T00:00:00Z", "date": "2020-01-01", "duration": "1h", "uuid": "9d5ab6a6-6cc2-4d0f-9b2f-3a4ef0f1a2b3", "ipv4": "10.0.0.1", "ipv6": "fd00::1", "cidr": "10.0.0.0/8", "uri": "https://a.b/c", "email": "a@b.c", "hostname": "a.b", "byte": "YQ==", "mac": "00:00:5e:00:53:01"}
            return told[schema["format"]] if schema.get("format") in told and self.some(0.6) else rng.choice(["a", "x", "aa", "xyz", "", "1", "b", "A b", "é", "10.0.0.1", "1Gi"])
        if kind == "integer":
            return rng.choice([0, 1, 2, 3, 5, 10, -1, 100, 2147483648, 4])
        if kind == "number":
            return rng.choice([0, 1, 2.5, -0.5, 10, 1e3, 3])
        if kind == "boolean":
            return self.some(0.5)
        if kind == "array":
            items = schema.get("items") if isinstance(schema.get("items"), dict) else {}
            return [self.value(items, depth - 1) for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))] if depth else []
        if kind == "object":
            made = {}
            properties = schema.get("properties") or {}
            for name, inner in properties.items():
                if self.some(0.9 if name in (schema.get("required") or []) else 0.6):
                    made[name] = self.value(inner, depth - 1)
            more = schema.get("additionalProperties")
            if more and depth:
                for _ in range(rng.choice([0, 1, 2])):
                    made[rng.choice(NAMES)] = self.value(more if isinstance(more, dict) else {}, depth - 1)
            if schema.get("x-kubernetes-embedded-resource") and self.some(0.9):
                made |= {"apiVersion": rng.choice(["v1", "a/b", ""]), "kind": rng.choice(["Pod", "x", ""])} | ({"metadata": rng.choice([{}, {"name": "a"}, {"labels": {"a": 1}}, {"other": 1}, {"name": "A b"}, None])} if self.some(0.5) else {})
            if self.some(0.12):
                made[rng.choice(["unknown", "a", "map"])] = rng.choice([1, "x", {"y": 1}])
            return made
        return rng.choice([1, "a", {"x": {"y": 1}}, [1, "a"], True, None, {}])


def version(schemas, name, storage):
    rng, some = schemas.rng, schemas.some
    root = {"type": "object", "properties": {"spec": schemas.schema(3)}}
    spec = root["properties"]["spec"]
    if some(0.8):
        spec.setdefault("type", "object")
    if some(0.5):
        root["properties"]["status"] = {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}, "a": schemas.schema(1)}}
    if some(0.15):
        root["properties"]["metadata"] = rng.choice([{"type": "object"}, {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5, "pattern": "^[a-z]"}}}, {"type": "object", "properties": {"labels": {"type": "object"}}}, {"type": "string"}, {"type": "object", "required": ["labels"]}, {"type": "object", "properties": {"name": {"type": "string", "enum": ["x"], "default": "a"}}}])
    if some(0.1):
        root["properties"]["apiVersion"] = rng.choice([{"type": "string"}, {"type": "integer"}])
    if some(0.12):
        root["required"] = ["spec"]
    if some(0.12):
        root["x-kubernetes-validations"] = [schemas.rule()]
    if some(0.05):
        root |= rng.choice([{"x-kubernetes-preserve-unknown-fields": True}, {"type": "string"}, {"nullable": True}, {"x-kubernetes-embedded-resource": True}, {"additionalProperties": {"type": "string"}}, {"x-kubernetes-map-type": "atomic"}, {"default": {}}])
    made = {"name": name, "served": some(0.95), "storage": storage, "schema": {"openAPIV3Schema": root}}
    if some(0.5):
        made["subresources"] = {}
        if some(0.7):
            made["subresources"]["status"] = {}
        if some(0.5):
            scale = {"specReplicasPath": rng.choice([".spec.count", ".spec.replicas", ".spec.count", ".status.a", "spec.count", ".spec", "", ".spec.list[0]"]), "statusReplicasPath": rng.choice([".status.replicas", ".status.replicas", ".spec.a", "", ".status"])}
            if some(0.5):
                scale["labelSelectorPath"] = rng.choice([".status.selector", ".spec.text", "", "x", ".status"])
            made["subresources"]["scale"] = scale
            if some(0.8):
                root["properties"].setdefault("status", {"type": "object", "properties": {}})
                spec.setdefault("properties", {})["count"] = {"type": "integer"}
                spec["type"] = "object"
                spec.pop("additionalProperties", None)
    if some(0.35):
        made["additionalPrinterColumns"] = [column(schemas) for _ in range(rng.choice([1, 1, 2, 3]))]
    if some(0.3):
        made["selectableFields"] = [{"jsonPath": rng.choice([".spec.a", ".spec.text", ".spec.count", ".spec.b", ".spec.a.b", ".metadata.name", ".status.a", "spec.a", "", ".spec.list[0]", ".spec['a']"])} for _ in range(rng.choice([1, 1, 2, 9]))]
    if some(0.1):
        made["deprecated"] = some(0.7)
        if some(0.7):
            made["deprecationWarning"] = rng.choice(["w", "", "x" * 257, "a\nb", "é"])
    return made


def column(schemas):
    rng = schemas.rng
    made = {"name": rng.choice(["A", "B", "", "Age", "Name"]), "type": rng.choice(["string", "integer", "number", "boolean", "date", "string", "other", ""] if schemas.odd else ["string", "integer", "number", "boolean", "date"]), "jsonPath": rng.choice([".spec.a", ".spec.text", ".spec.count", ".spec", ".metadata.creationTimestamp", ".spec.list[*]", ".spec.list[0].a", ".spec.map.x", ".status.replicas", ".spec.when"] + (["", "x", "{.spec}", ".spec[?(@.a==1)]", ".spec['a']", "."] if schemas.odd else [".spec['a']", ".spec.list[?(@.a=='x')].b", ".spec.list[-1:]"]))}
    if schemas.some(0.3):
        made["format"] = rng.choice(["int32", "int64", "float", "double", "byte", "date", "date-time", "password", "other", ""])
    if schemas.some(0.3):
        made["priority"] = rng.choice([0, 1, -1])
    if schemas.some(0.2):
        made["description"] = "d"
    return made


def definition(schemas, number):
    rng, some = schemas.rng, schemas.some
    plural = f"things{number}"
    spec = {"group": "example.com", "scope": rng.choice(["Namespaced", "Namespaced", "Cluster"]), "names": {"plural": plural, "singular": f"thing{number}", "kind": f"Thing{number}", "listKind": f"Thing{number}List"}, "versions": [version(schemas, "v1", True)]}
    if some(0.25):
        spec["versions"].append(version(schemas, rng.choice(["v2", "v1beta1", "v2alpha1"] + (["v1", "V1", "a.b", ""] if schemas.odd else [])), schemas.odd and some(0.1)))
        if some(0.3):
            spec["versions"][1]["schema"] = copy.deepcopy(spec["versions"][0]["schema"])
    if some(0.15):
        spec["names"]["shortNames"] = rng.choice([["t"], ["T"], ["a-b", "a.b"], [""], ["t", "t"]] if schemas.odd else [[f"t{number}"]])
    if some(0.15):
        spec["names"]["categories"] = rng.choice([["all"], ["A"], ["x" * 64], [""]] if schemas.odd else [["things"]])
    if schemas.odd and some(0.25):
        names = spec["names"]
        rng.choice([lambda: names.update(plural=rng.choice(WORDS)), lambda: names.update(singular=rng.choice(WORDS)), lambda: names.update(kind=rng.choice(WORDS)), lambda: names.update(listKind=rng.choice(WORDS)), lambda: names.pop("listKind"), lambda: names.pop("singular"), lambda: names.pop("kind"), lambda: names.pop("plural"), lambda: names.update(listKind=names["kind"]),
                    lambda: spec.update(scope=rng.choice(["", "Other"])), lambda: spec.update(group=rng.choice(["", "a", "x.k8s.io", "A.b", "other.com", "example.kubernetes.io"])), lambda: spec.update(versions=[]), lambda: spec.update(versions=None), lambda: spec["versions"][0].update(storage=False), lambda: spec["versions"][0].pop("schema"), lambda: spec["versions"][0].update(schema={}), lambda: spec["versions"][0].update(name=rng.choice(WORDS)), lambda: spec.update(preserveUnknownFields=rng.choice([True, False])), lambda: spec["versions"][0].pop("served")])()
    if some(0.15):
        spec["conversion"] = rng.choice([{"strategy": "None"}, {"strategy": "Webhook"}, {"strategy": "Other"}, {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/x"}}}, {"strategy": "Webhook", "webhook": {"conversionReviewVersions": [], "clientConfig": {"url": "http://a"}}}, {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v3", "v1"], "clientConfig": {}}},
                                          {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v2", "A"], "clientConfig": {"service": {"name": "a", "namespace": "b", "path": "x//", "port": 0}, "url": "https://a"}}}, {"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a"}}}, {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1", "v1"], "clientConfig": {"service": {"name": "A", "namespace": ""}, "caBundle": "YQ=="}}}, {}] if schemas.odd else [{"strategy": "None"}])
    name = f"{spec['names'].get('plural')}.{spec['group']}" if some(0.96) else "other"
    metadata = {"name": name}
    if spec["group"].endswith("k8s.io") and some(0.8):
        metadata["annotations"] = {"api-approved.kubernetes.io": rng.choice(["https://github.com/x/y", "unapproved", "x", ""])}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec}


class Objects:
    """Requests for custom resources of one definition that exists on both servers."""

    def __init__(self, comparison, schemas, made):
        self.comparison, self.schemas, self.made = comparison, schemas, made
        spec = made["spec"]
        self.versions = [one for one in spec["versions"] if one["served"]]
        self.inside = "/namespaces/default" if spec["scope"] == "Namespaced" else ""
        self.spec = spec

    def at(self, version, name=""):
        return f"/apis/{self.spec['group']}/{version['name']}{self.inside}/{self.spec['names']['plural']}" + (f"/{name}" if name else "")

    def object(self, version, name):
        root = version["schema"]["openAPIV3Schema"]
        made = {"apiVersion": f"{self.spec['group']}/{version['name']}", "kind": self.spec["names"]["kind"], "metadata": {"name": name}}
        for member in ("spec", "status"):
            if member in (root.get("properties") or {}) and self.schemas.some(0.95):
                made[member] = self.schemas.value(root["properties"][member])
        return made

    def requests(self, count):
        rng, some = self.schemas.rng, self.schemas.some
        stored = []
        for number in range(60):
            version = rng.choice(self.versions)
            one = self.object(version, f"o{number}")
            theirs, ours = self.comparison.both("POST", self.at(version) + "?fieldManager=t", one)
            if theirs[0] == ours[0] == 201:
                stored.append((version, one))
                if len(stored) == 4:
                    break
        for number in range(count):
            version = rng.choice(self.versions)
            chance = rng.random()
            validation = rng.choice(["", "", "&fieldValidation=Strict", "&fieldValidation=Ignore"])
            if chance < 0.35 or not stored:
                yield "object create", ("POST", self.at(version) + "?dryRun=All&fieldManager=t" + validation, self.object(version, f"n{number}")), {}
                continue
            before, old = rng.choice(stored)
            name = old["metadata"]["name"]
            changed = self.object(version, name)
            if some(0.5):
                changed = copy.deepcopy(old) | {"apiVersion": changed["apiVersion"]}
                if isinstance(changed.get("spec"), dict):
                    more = self.object(version, name).get("spec")
                    if isinstance(more, dict) and more:
                        key = rng.choice(sorted(more))
                        changed["spec"][key] = more[key]
            sub = rng.choice(["", "", "", "/status"])
            if chance < 0.55:
                yield f"object update{sub}", ("PUT", self.at(version, name) + sub + "?dryRun=All&fieldManager=t" + validation, changed), {}
            elif chance < 0.7:
                form = rng.choice(["merge-patch+json", "apply-patch+yaml", "strategic-merge-patch+json"])
                yield f"object {form.split('-')[0]}{sub}", ("PATCH", self.at(version, name) + sub + f"?dryRun=All&fieldManager={rng.choice('tu')}" + ("&force=true" if form.startswith("apply") and some(0.7) else "") + validation, changed), {"kind": f"application/{form}"}
            elif chance < 0.8:
                yield "object table", ("GET", self.at(version, rng.choice(["", name])) + rng.choice(["", "?includeObject=None", "?includeObject=Object"]), None), {"headers": {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}}
            elif chance < 0.88:
                path = rng.choice(["spec.a", "spec.text", "spec.count", "spec.b", "spec.a.b", "metadata.name", "status.a"])
                yield "object select", ("GET", self.at(version) + f"?fieldSelector={path}{rng.choice(['=', '!='])}{rng.choice(['a', 'x', '1', '', 'true', '0'])}", None), {}
            elif chance < 0.95:
                body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": rng.choice([0, 1, 5, -1, None, "x"])}}
                method = rng.choice(["GET", "PUT", "PATCH"])
                yield f"object scale {method}", (method, self.at(version, name) + "/scale?dryRun=All", None if method == "GET" else body), {"kind": "application/merge-patch+json" if method == "PATCH" else "application/json"}
            else:
                yield "object delete", ("DELETE", self.at(version, name) + "?dryRun=All", None), {}


def wait(comparison, made):
    for server in (comparison.theirs, comparison.ours):
        for _ in range(100):
            served = [one for one in made["spec"]["versions"] if one["served"]]
            inside = "/namespaces/default" if made["spec"]["scope"] == "Namespaced" else ""
            if all(server.request("GET", f"/apis/{made['spec']['group']}/{one['name']}{inside}/{made['spec']['names']['plural']}")[0] == 200 for one in served):
                break
            time.sleep(0.1)
        else:
            return False
    return True


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    theirs, ours = start(folder, disabled="ServiceAccount,StorageObjectInUseProtection")
    comparison = Comparison(theirs, ours, f"{folder}/differences.jsonl", keep=4)
    number = 0
    while comparison.count < count:
        # Mostly invalid definitions, and a few valid ones with custom resources.
        odd = [definition(Schemas(rng, True), number + n) for n in range(60)]
        comparison.run(((("definition"), ("POST", f"{GROUP}?dryRun=All&fieldManager=t{rng.choice(['', '&fieldValidation=Strict'])}", one), {}) for one in odd), explain=explain)
        number += 60
        for _ in range(12):
            schemas = Schemas(rng, False)
            number += 1
            made = definition(schemas, number)
            first = comparison.compare("definition", ("POST", f"{GROUP}?dryRun=All&fieldManager=t", made))
            if not comparison.take(first, explain) or first[2][0] != 201 or not any(one["served"] for one in made["spec"]["versions"]):
                continue
            comparison.both("POST", f"{GROUP}?fieldManager=t", made)
            at = f"{GROUP}/{made['metadata']['name']}"
            if wait(comparison, made):
                comparison.run(Objects(comparison, schemas, made).requests(80), explain=explain)
                updates = []
                for _ in range(12):
                    new = definition(Schemas(rng, rng.random() < 0.5), number)
                    if rng.random() < 0.5 and new["spec"]["versions"]:
                        new["spec"]["versions"][0] = copy.deepcopy(made["spec"]["versions"][0])
                    if rng.random() < 0.7:
                        new["metadata"]["name"] = made["metadata"]["name"]
                    updates.append(("definition update", ("PUT", f"{at}?dryRun=All&fieldManager=t", new), {}))
                comparison.run(updates, explain=explain)
            else:
                print("not served:", json.dumps(made))
            for server in (theirs, ours):
                server.request("DELETE", at)
        print(comparison.summary().split("\n")[0], flush=True)
    print(comparison.summary())


def explain(one, other, request):
    """Known differences in gaps.toml: columns have no descriptions."""
    columns = [answer[1].get("columnDefinitions") if isinstance(answer[1], dict) else None for answer in (one, other)]
    if all(columns) and len(columns[0]) == len(columns[1]):
        # The columns Name and Age have descriptions upstream only.
        for theirs, ours in zip(*columns):
            if ours.get("description") == "":
                theirs["description"] = ""
        return "descriptions of columns" if one == other else None
    return changes.explain(one, other, request)


if __name__ == "__main__":
    main()
