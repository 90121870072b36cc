#!/usr/bin/env python3
"""Generated requests for every resource on both servers, with varied paths, options, headers and bodies.

    LOCKGATE=target/debug/lockgate ETCD=… KUBE_APISERVER=… ./options.py FOLDER COUNT [SEED] [AREA,AREA…]

Areas: list, get, delete, collection, write, paths, and watch, which takes a second per request. Objects of every kind are stored
beforehand; writes and deletions are dry runs. Status, body, warnings and the headers that clients read are compared.
"""

import base64
import concurrent.futures
import copy
import http.client
import json
import random
import re
import sys
import time
import urllib.parse

import validation
from compare import Comparison
from servers import CONTEXT, TIME, UID, start

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
ACCEPTS = [
    "application/json", "application/yaml", "*/*", "application/*", "text/plain", "application/vnd.kubernetes.protobuf", "application/cbor", "", "application/json;q=0.1,application/yaml",
    TABLE, TABLE + ",application/json", PARTIAL, PARTIAL_LIST, PARTIAL + "," + PARTIAL_LIST, TABLE.replace("v1", "v1beta1"), TABLE.replace("v1", "v2"), TABLE.replace("v1", "v2") + ",application/json",
    PARTIAL.replace("v1", "v1beta1"), "application/json;as=Table", "application/json;as=Other;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1;g=other", "application/yaml;as=Table;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", "application/json;stream=watch", "application/json;charset=utf-8", "application/json;pretty=1", "text/html,application/json", "junk", "application/json;", ";", "application/json, application/yaml;q=0",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
]
CONTENTS = ["application/json", "application/json; charset=utf-8", "application/yaml", "text/plain", "", "application/vnd.kubernetes.protobuf", "application/cbor", "application/merge-patch+json", "application/json-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml", "application/apply-patch+cbor", "junk", "*/*", "application/x-www-form-urlencoded", "application/json;q=1"]
REVISIONS = ["", "0", "1", "-1", "abc", "999999999", "18446744073709551616", "1.5", "00", " 1"]
MATCHES = ["Exact", "NotOlderThan", "", "Other", "exact"]
LIMITS = ["0", "1", "2", "500", "-1", "abc", "", "9223372036854775808", "1.5"]
BOOLEANS = ["true", "false", "1", "0", "", "True", "abc", "t"]
NUMBERS = ["0", "1", "-1", "30", "abc", "", "9223372036854775807", "9223372036854775808", "1.5"]
LABELS = ["", "a=b", "a==b", "a!=b", "a in (b,c)", "a notin (b)", "a", "!a", "a=b,c=d", "a=", "=b", "a b", "a in b", "a in ()", "a>1", "a<x", "A/b/c=d", "-a=b", "a=-b", "a=" + "x" * 64, ",", "a,,b", "a in (b", "(", "é=1", "kubernetes.io/metadata.name=default", "a=b=c", "app,!app"]
FIELDS = ["", "metadata.name=a", "metadata.name!=a", "metadata.namespace=default", "metadata.name==a", "spec.nodeName=n", "status.phase=Running", "type=Opaque", "spec.unknown=1", "metadata.labels=a", "a", "=", "metadata.name", "metadata.name=a,metadata.namespace=b", "metadata.name=a\\,b", "metadata.name=a\\", "metadata.name=a=b", "metadata.name in (a)", ",metadata.name=a", "spec.type=ClusterIP", "reason=x", "involvedObject.kind=Pod", "spec.unschedulable=true", "spec.podIP=1", "status.podIP=1", "spec.schedulerName=a", "status.successful=1", "status.replicas=1", "spec.signerName=a", "regarding.name=a", "spec.driver=a", "spec.serviceAccountName=default", "spec.hostNetwork=true", "spec.restartPolicy=Always", "metadata.name=,metadata.name=x", "metadata.name=a;b", "metadata.uid=1", "spec.clusterIP=None", "source=a", "reportingComponent=a", "status.nominatedNodeName=x"]
TOKENS = ["admin-token"] * 8 + ["jane-token"]
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE", "FOO"]
COMPARED = ("content-type", "allow", "location", "retry-after", "vary", "cache-control", "x-content-type-options", "warning", "content-encoding")


def token(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


CONTINUES = ["", "abc", "!!", token({"v": "meta.k8s.io/v1", "rv": -1, "start": "a\x00"}), token({"v": "meta.k8s.io/v1", "rv": 0, "start": "a"}), token({"v": "v2", "rv": 1, "start": "a"}), token({"v": "meta.k8s.io/v1", "rv": 1, "start": "a\x00"}), token({"v": "meta.k8s.io/v1", "rv": 5, "start": "../../x"}),
             token({"v": "meta.k8s.io/v1", "rv": 5}), token([]), token({"v": "meta.k8s.io/v1", "rv": "x", "start": "a"}), token({"v": "meta.k8s.io/v1", "rv": 99999999, "start": "a"}), token({"v": "meta.k8s.io/v1", "rv": -1, "start": ""}), "AAAA", token({"v": "meta.k8s.io/v1", "rv": -1, "start": "/"})]


def query(options):
    return "?" + urllib.parse.urlencode(options) if options else ""


class Options:
    def __init__(self, comparison, rng):
        self.comparison, self.rng = comparison, rng
        self.resources, self.names, self.objects = [], {}, {}

    # Discovery.

    def learn(self):
        """Discovers all resources except those that the servers write themselves: Events, Leases, APIServices."""
        for path in ["/api/v1"] + [f"/apis/{version['groupVersion']}" for group in self.comparison.theirs.request("GET", "/apis")[1]["groups"] for version in group["versions"]]:
            found = {}
            for resource in self.comparison.theirs.request("GET", path)[1]["resources"]:
                found[resource["name"]] = resource
            for name, resource in found.items():
                base, _, sub = name.partition("/")
                if base not in ("events", "leases", "apiservices"):
                    self.resources.append({"at": path, "name": base, "sub": sub, "namespaced": resource["namespaced"], "verbs": set(resource["verbs"]), "kind": resource["kind"], "version": path.removeprefix("/apis/").removeprefix("/api/")})

    def whole(self):
        return self.rng.choice([one for one in self.resources if not one["sub"]])

    def any(self):
        return self.rng.choice(self.resources)

    def at(self, resource, name=None, namespace=None):
        inside = ""
        if resource["namespaced"]:
            inside = f"/namespaces/{namespace or 'default'}"
        return f"{resource['at']}{inside}/{resource['name']}" + (f"/{name}" if name else "")

    def name(self, resource):
        known = self.names.get((resource["at"], resource["name"])) or []
        if known and self.rng.random() < 0.8:
            return self.rng.choice(known)
        return self.rng.choice(["none", "default", "a", "A", "a.b", "x" * 254, "%25", "a%2Fb", "..%2f", "é", "a:b"])

    # Options.

    def some(self, choices, most=3):
        rng = self.rng
        return [(name, rng.choice(choices[name])) for name in rng.sample(sorted(choices), rng.choice([0, 1, 1, 1, 2, 2, most]))]

    def list_options(self):
        fields = FIELDS + [f"metadata.name={name}" for name in ("a", "default")]
        return {"labelSelector": LABELS, "fieldSelector": fields, "resourceVersion": REVISIONS, "resourceVersionMatch": MATCHES, "limit": LIMITS, "continue": CONTINUES, "sendInitialEvents": BOOLEANS,
                "allowWatchBookmarks": BOOLEANS, "timeoutSeconds": ["0", "5", "-1", "abc", ""], "pretty": BOOLEANS, "includeObject": ["Metadata", "None", "Object", "abc", ""], "unknown": ["x"], "shardSelector": ["", "a", "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"]}

    def list(self):
        resource = self.whole()
        path = self.at(resource) if self.rng.random() < 0.7 else f"{resource['at']}/{resource['name']}"
        options = self.some(self.list_options(), 4) + [("watch", "false")] * (self.rng.random() < 0.05)
        return f"list {resource['name']}", ("GET", path + query(options), None), self.headers()

    def watch(self):
        resource = self.whole()
        path = self.at(resource) if self.rng.random() < 0.7 else f"{resource['at']}/{resource['name']}"
        choices = self.list_options()
        for option in ("limit", "continue", "timeoutSeconds"):
            choices[option] = choices[option] if self.rng.random() < 0.1 else [""]
        choices["sendInitialEvents"] = ["true", "true", "false"]
        choices["resourceVersion"] = ["", "0", "abc", "-1", ""]
        options = [one for one in self.some(choices, 5) if one[0] != "timeoutSeconds"]
        options += [("watch", self.rng.choice(["true", "1", "true", "true"])), ("timeoutSeconds", "1")]
        return f"watch {resource['name']}", ("GET", path + query(options), None), self.headers()

    def get(self):
        resource = self.any()
        path = self.at(resource, self.name(resource)) + (f"/{resource['sub']}" if resource["sub"] else "")
        if resource["sub"] in ("proxy", "exec", "attach", "portforward", "log"):
            return self.list()
        options = self.some({"resourceVersion": REVISIONS, "pretty": BOOLEANS, "includeObject": ["Metadata", "None", "Object", "abc", ""], "unknown": ["x"], "limit": LIMITS, "watch": ["0"]})
        return f"get {resource['name']}/{resource['sub']}", ("GET", path + query(options), None), self.headers()

    def headers(self):
        rng = self.rng
        made = {}
        if rng.random() < 0.4:
            made["Accept"] = rng.choice(ACCEPTS)
        if rng.random() < 0.05:
            made["Accept-Encoding"] = rng.choice(["gzip", "identity", "deflate"])
        return {"headers": made, "token": rng.choice(TOKENS)}

    def delete_options(self, resource):
        rng = self.rng
        uid = "9d5ab6a6-6cc2-4d0f-9b2f-3a4ef0f1a2b3"
        choices = {
            "gracePeriodSeconds": [0, 1, 30, -1, None, "1", 1.5, 9223372036854775807], "propagationPolicy": ["Orphan", "Background", "Foreground", "Other", "", None, 1], "orphanDependents": [True, False, None, "true"],
            "preconditions": [{}, {"uid": uid}, {"resourceVersion": "1"}, {"uid": uid, "resourceVersion": "1"}, {"uid": ""}, {"resourceVersion": ""}, None, {"uid": 1}, {"other": 1}], "dryRun": [["All"], [], ["Other"], ["All", "All"], ["All", "Other"], "All", None, [""]],
            "ignoreStoreReadErrorWithClusterBreakingPotential": [True, False, None, "x"], "unknownMember": [1], "kind": ["DeleteOptions", "Pod", "", None, 1], "apiVersion": ["v1", "meta.k8s.io/v1", resource["version"], "apps/v1", "other/v1", "", "a/b/c", None],
        }
        body = {} if rng.random() < 0.15 else {"kind": "DeleteOptions", "apiVersion": rng.choice(["v1", "v1", resource["version"]])}
        for name in rng.sample(sorted(choices), rng.choice([0, 1, 1, 2, 2, 3])):
            body[name] = rng.choice(choices[name])
        return body

    def delete_query(self):
        return [("dryRun", "All")] + self.some({"gracePeriodSeconds": NUMBERS, "propagationPolicy": ["Orphan", "Background", "Foreground", "Other", ""], "orphanDependents": BOOLEANS, "dryRun": ["All", "Other", ""], "pretty": BOOLEANS, "unknown": ["x"],
                                                "ignoreStoreReadErrorWithClusterBreakingPotential": BOOLEANS, "preconditions": ["x"], "kind": ["x"]}, 2)

    def delete_body(self, resource):
        rng = self.rng
        chance = rng.random()
        if chance < 0.3:
            return None
        if chance < 0.36:
            return rng.choice(["", "{", "[]", "null", "1", '"a"', "kind: DeleteOptions\napiVersion: v1\n", " ", "{}{}", '{"kind":"DeleteOptions","apiVersion":"v1"} x'])
        return self.delete_options(resource)

    def delete(self):
        resource = self.rng.choice([one for one in self.resources if not one["sub"]])
        made = self.headers()
        if self.rng.random() < 0.15:
            made["kind"] = self.rng.choice(CONTENTS)
            made["headers"].pop("Accept", None)
        return f"delete {resource['name']}", ("DELETE", self.at(resource, self.name(resource)) + query(self.delete_query()), self.delete_body(resource)), made

    def collection(self):
        resource = self.rng.choice([one for one in self.resources if not one["sub"]])
        choices = self.list_options()
        for option in ("timeoutSeconds",):
            choices.pop(option)
        made = self.headers()
        if self.rng.random() < 0.1:
            made["kind"] = self.rng.choice(CONTENTS)
            made["headers"].pop("Accept", None)
        return f"collection {resource['name']}", ("DELETE", self.at(resource, None, "empty" if self.rng.random() < 0.2 else None) + query(self.delete_query() + self.some(choices, 2)), self.delete_body(resource)), made

    def write(self):
        rng = self.rng
        resource = self.rng.choice([one for one in self.resources if one["verbs"] & {"create", "update", "patch"} and one["sub"] not in ("proxy", "exec", "attach", "portforward")])
        base = copy.deepcopy(rng.choice(self.objects.get((resource["at"], resource["name"])) or [{"apiVersion": resource["version"], "kind": resource["kind"], "metadata": {"name": "a"}}]))
        method = rng.choice(["POST", "PUT", "PATCH"])
        name = (base.get("metadata") or {}).get("name") or "a"
        path = self.at(resource) if method == "POST" and not resource["sub"] else self.at(resource, name if rng.random() < 0.9 else "other") + (f"/{resource['sub']}" if resource["sub"] else "")
        made = self.headers()
        options = [("dryRun", "All")] + self.some({"fieldManager": ["t", "", "é", "x" * 128, "x" * 129, "a\nb", "a b"], "fieldValidation": ["Strict", "Warn", "Ignore", "Other", ""], "dryRun": ["All", "Other", ""], "force": BOOLEANS, "pretty": BOOLEANS, "unknown": ["x"]})
        if rng.random() < 0.6:
            one = rng.choice(["version", "kind", "name", "namespace", "uid", "rv", "generateName", "none", "null", "list", "text", "twice", "yaml", "managed", "creation", "deletion", "metadata", "unknown", "case"])
            metadata = base.setdefault("metadata", {})
            metadata = metadata if isinstance(metadata, dict) else {}
            if one == "version":
                base["apiVersion"] = rng.choice(["", "v1", "apps/v1", "apps/v2", "other/v1", "a/b/c", None, 1, resource["version"] + "x"])
            elif one == "kind":
                base["kind"] = rng.choice(["", "Pod", "Other", None, 1, resource["kind"] + "List", "List", "Status"])
            elif one == "name":
                metadata["name"] = rng.choice(["", None, "other", 1, "A_b", "x" * 254])
            elif one == "namespace":
                metadata["namespace"] = rng.choice(["", None, "other", 1, "default", "kube-system"])
            elif one == "uid":
                metadata["uid"] = rng.choice(["", "x", 1, "9d5ab6a6-6cc2-4d0f-9b2f-3a4ef0f1a2b3"])
            elif one == "rv":
                metadata["resourceVersion"] = rng.choice(["", "0", "1", "x", 1, "-1", "999999"])
            elif one == "generateName":
                metadata.pop("name", None)
                metadata["generateName"] = rng.choice(["a-", "", "A_", "x" * 250])
            elif one == "none":
                base = rng.choice(["", "{}", "[]", "null", "1", "{", "a: b", "---\n", '""', "\x00", '{"apiVersion": "v1"}', '{"kind": "Pod"}', "{]", '{"a": }', '{"metadata": {"name": "a"', "tru", "{} {}"])
            elif one == "null":
                base[rng.choice(["spec", "metadata", "status", "data", "rules"])] = None
            elif one == "list":
                base = {"apiVersion": "v1", "kind": "List", "items": [base]} if rng.random() < 0.5 else [base]
            elif one == "text":
                base["spec"] = rng.choice(["a", [], 1, True, [{}]])
            elif one == "twice":
                base = json.dumps(base)[:-1] + ', "kind": "Pod", "spec": {}, "metadata": {"name": "b"}}'
            elif one == "yaml":
                base = rng.choice(["apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "a: &x 1\nb: *x\n", "a: 1\na: 2\n", "? a\n: b\n", "- a\n", "a:\n\tb: 1\n", "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: a\ndata:\n  a: 1\n", "%YAML 1.2\n---\na: b\n"])
                made["kind"] = "application/yaml"
            elif one == "managed":
                metadata["managedFields"] = rng.choice([[], None, [{}], [{"manager": "a"}], [{"manager": "a", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}}}], [{"manager": "a", "operation": "Other", "apiVersion": "v1"}], [{"manager": "a", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV2"}], "x"])
            elif one == "creation":
                metadata["creationTimestamp"] = rng.choice([None, "2020-01-01T00:00:00Z", "x", 1, ""])
            elif one == "deletion":
                metadata["deletionTimestamp"] = rng.choice([None, "2020-01-01T00:00:00Z", "x"])
                metadata["deletionGracePeriodSeconds"] = rng.choice([None, 0, 5, -1, "x"])
            elif one == "metadata":
                metadata[rng.choice(["labels", "annotations", "finalizers", "ownerReferences", "selfLink", "generation", "clusterName"])] = rng.choice([{"A b": "c"}, {"a": 1}, ["a"], ["kubernetes"], [{}], [{"apiVersion": "v1", "kind": "Event", "name": "a", "uid": "1"}], [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1", "controller": True}] * 2, "x", 5, None, {"a": "x" * 64}])
            elif one == "unknown":
                base["other"] = {"a": 1}
                base.setdefault("spec", {"b": 1})
            elif one == "case":
                base["Spec"] = base.pop("spec", {})
        if method == "PATCH":
            made["kind"] = rng.choice(["application/merge-patch+json", "application/apply-patch+yaml", "application/strategic-merge-patch+json", "application/json-patch+json"])
            if made["kind"] == "application/json-patch+json" and rng.random() < 0.9:
                base = rng.choice([[], [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}], [{"op": "remove", "path": "/none"}], [{"op": "test", "path": "/kind", "value": "x"}], [{"op": "other", "path": "/a"}], [{"op": "add"}], [{}], {}, "x", [{"op": "replace", "path": "/metadata/name", "value": "z"}],
                                   [{"op": "copy", "from": "/none", "path": "/a"}], [{"op": "move", "from": "/metadata", "path": "/metadata/a"}], [{"op": "add", "path": "a", "value": 1}], [{"op": "add", "path": "/metadata/labels/a~2b", "value": "1"}], [1], [None], [{"op": "add", "path": "/metadata/finalizers/7", "value": "a"}], [{"op": "replace", "path": "", "value": {}}],
                                   [{"op": "remove", "path": ""}], [{"op": "test", "path": "/none", "value": None}], [{"op": "add", "path": "/metadata/finalizers/-1", "value": "a.b/c"}], [{"op": "add", "path": "/unknownMember", "value": 1}], [{"op": 1, "path": "/a"}], [{"op": "add", "path": 5, "value": 1}], [{"op": "replace", "path": "/kind", "value": "Other"}], [{"op": "replace", "path": "/apiVersion", "value": "v9"}]])
        if rng.random() < 0.08:
            # One error at a time: the order in which headers and options are validated is not compared.
            made["kind"], options = rng.choice(CONTENTS), [("dryRun", "All")]
            made["headers"].pop("Accept", None)
        if rng.random() < 0.05:
            method = "PUT" if method == "POST" else "POST"
        return f"write {method} {resource['name']}/{resource['sub']}", (method, path + query(options), base), made

    def paths(self):
        rng = self.rng
        resource = self.any()
        path = self.at(resource, self.name(resource)) + (f"/{resource['sub']}" if resource["sub"] else "")
        one = rng.choice(["sub", "slash", "double", "upper", "cut", "namespace", "version", "root", "method", "method", "dots", "across"])
        method = rng.choice(METHODS[:7]) if one in ("method",) else "GET"
        if one == "sub":
            path += "/" + rng.choice(["status", "scale", "none", "log", "finalize", "token", "a/b", "proxy/a", "binding"])
        elif one == "slash":
            path += "/"
        elif one == "double":
            path = path.replace("/", "//", rng.choice([1, 2, 3]))
        elif one == "upper":
            path = path.replace(resource["name"], resource["name"].upper())
        elif one == "cut":
            path = path[:rng.randrange(8, len(path))]
        elif one == "namespace":
            path = self.at(resource, self.name(resource), rng.choice(["none", "A", "x" * 64, "..", "%20"]))
        elif one == "version":
            path = path.replace("/v1/", rng.choice(["/v2/", "/v1beta1/", "/V1/", "/v1alpha1/"]), 1)
        elif one == "root":
            path = rng.choice(["/api/v1", "/api/v1/", "/apis/apps", "/apis/apps/v1", "/apis/none", "/apis/none/v1", "/apis/apps/v9", "/livez/ping", "/livez/none", "/openapi", "/openapi/v2/x", "/none", "/api/v2", "/swagger.json", "/healthz/etcd", "/favicon.ico"])
        elif one == "dots":
            path = path.replace("/", "/./", 1) if rng.random() < 0.5 else path + "/../x"
        elif one == "across":
            path = f"{resource['at']}/{resource['name']}/{self.name(resource)}" if resource["namespaced"] else f"{resource['at']}/namespaces/default/{resource['name']}/{self.name(resource)}"
        if resource["sub"] in ("proxy", "exec", "attach", "portforward") and one != "root":
            return self.list()
        body = {} if method in ("POST", "PUT", "PATCH", "DELETE") else None
        if method in ("POST", "PUT", "PATCH", "DELETE"):
            path += ("&" if "?" in path else "?") + "dryRun=All"
        return f"paths {one}", (method, path, body), self.headers()


def ask(server, request, token="admin-token", kind="application/json", headers=None):
    """Like `Server.request`, with the response headers that clients read, on a new connection."""
    method, path, body = request
    told = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    if body is not None:
        told["Content-Type"] = kind
    told = {name: value for name, value in (told | (headers or {})).items() if value}
    data = None if body is None else (body if isinstance(body, str) else json.dumps(body, separators=(",", ":"))).encode()
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=CONTEXT, timeout=60)
    try:
        connection.request(method, urllib.parse.quote(path, safe="/%?=&:~!$'()*+,;@#"), data, told)
        answer = connection.getresponse()
        text = answer.read()
    except (http.client.HTTPException, OSError) as failure:
        return 0, {"message": repr(failure)}, []
    finally:
        connection.close()
    kept = {name.lower(): value for name, value in answer.getheaders() if name.lower() in COMPARED}
    return answer.status, {"headers": kept, "body": plain(text, kept.get("content-type", ""))}, []


def plain(text, content):
    """The compared part of a body: the prefix of protobuf, YAML without line folding."""
    if "protobuf" in content:
        return text.hex()[:16]
    text = text.decode(errors="replace")
    try:
        return settled(json.loads(text))
    except ValueError:
        pass
    try:
        return [settled(json.loads(line)) for line in text.splitlines() if line]
    except ValueError:
        return re.sub(r"\d+", "N", UID.sub("UID", TIME.sub("NOW", re.sub(r"\s+", " ", text))))


# The field managers of objects that the servers create.
OWN = ("kube-apiserver", "kube-controller-manager", "api-priority-and-fairness-config-producer-v1", "api-priority-and-fairness-config-consumer-v1")


def settled(value):
    """A value without server-specific data: revisions, the server's own objects and their managed fields."""
    if isinstance(value, list):
        return [settled(inner) for inner in value]
    if isinstance(value, str):
        return re.sub(r"Too large resource version: \d+, current: \d+", "Too large resource version", value)
    if not isinstance(value, dict):
        return value
    value = dict(value)
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        metadata = value["metadata"] = dict(metadata)
        if "continue" in metadata:
            metadata["continue"] = opened(metadata["continue"])
        fields = metadata.get("managedFields")
        if isinstance(fields, list):
            metadata["managedFields"] = [entry for entry in fields if not isinstance(entry, dict) or entry.get("manager") not in OWN]
        if not metadata.get("managedFields"):
            metadata.pop("managedFields", None)
    if value.get("kind") in ("FlowSchema", "PriorityLevelConfiguration") or "matchingPrecedence" in (value.get("spec") or {}):
        value.pop("status", None)
    for member in ("items", "rows"):
        if isinstance(value.get(member), list):
            value[member] = [item for item in sorted(value[member], key=name_of) if not is_own(item)]
    if isinstance(value.get("cells"), list):
        # Ages.
        value["cells"] = [re.sub(r"^(\d+[smhdy])+$", "AGE", cell) if isinstance(cell, str) else cell for cell in value["cells"]]
    # The port of the server is that of its own service.
    if value.get("name") == "https" and value.get("port") == 443 and "targetPort" in value:
        value["targetPort"] = "own"
    return {key: settled(inner) for key, inner in value.items()}


def is_own(item):
    """Whether an object is one that a server makes for itself: authentication, suggested priority levels, ranges and addresses of services."""
    item = item if isinstance(item, dict) else {}
    metadata = (item.get("object") or item).get("metadata") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return metadata.get("name") in ("extension-apiserver-authentication", "kube-apiserver-legacy-service-account-token-tracking") or "apf.kubernetes.io/autoupdate-spec" in annotations or labels.get("ipaddress.kubernetes.io/managed-by") == "ipallocator.k8s.io" or name_of(item) == '"kubernetes"' and "cidrs" in (item.get("spec") or {})


def name_of(item):
    item = item if isinstance(item, dict) else {}
    item = item.get("object") or item
    return json.dumps(((item.get("metadata") or {}).get("name")) or (item.get("cells") or [None])[0])


def opened(text):
    try:
        value = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        return text
    # Upstream's keys of cluster-scoped objects begin with a slash.
    return value | {"rv": "REVISION", "start": str(value.get("start")).lstrip("/")}


def explain(one, other, request):
    """Known differences in gaps.toml: column descriptions, PartialObjectMetadata of lists and vice versa, YAML directives, patches of missing objects."""
    theirs, ours = [answer[1] if isinstance(answer[1], dict) else {} for answer in (one, other)]
    method, path, sent, options = request
    accept = (options.get("headers") or {}).get("Accept", "")
    message = str((theirs.get("body") or {}).get("message")) if isinstance(theirs.get("body"), dict) else str(theirs.get("body"))
    if "as=Table" in accept and without_descriptions(theirs) == without_descriptions(ours):
        return "descriptions of columns"
    if "as=PartialObjectMetadata" in accept and one[0] == 406 and re.search(r"you requested PartialObjectMetadata(List)?, but the requested object is", message) and other[0] in (200, 201):
        return "lists as objects, and objects as lists"
    if isinstance(sent, str) and sent.startswith("%YAML") and "found incompatible YAML document" in message:
        return "directives of YAML"
    if "/namespaces/../" in request[1] and one[0] == 500 and "invalid key" in message and other[0] == 404:
        return "namespaces that climb"
    if path.split("?")[0] == "/apis/admissionregistration.k8s.io/v1" and without_hashes(theirs) == without_hashes(ours):
        return "storage versions of mutating policies"
    if "/services/" in path and "/status" in path and one[0] in (201, 409) and other[0] == 404:
        return "statuses of services that are not there"
    if "continue=" in path and one[0] == other[0] == 200 and revision_of_token(path):
        return "pages at a revision of one server"
    if method == "PATCH" and one[0] == 404 and other[0] in (400, 422) and " not found" in message:
        return "patches of what is not there"
    return None


def without_hashes(answer):
    return re.sub(r'"storageVersionHash": "[^"]*"', "", json.dumps(answer))


def revision_of_token(path):
    """The revision at which a continue token continues."""
    found = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(path).query)).get("continue", "")
    try:
        value = json.loads(base64.urlsafe_b64decode(found + "=" * (-len(found) % 4)))
        return isinstance(value, dict) and isinstance(value.get("rv"), int) and value["rv"] > 0
    except ValueError:
        return False


def without_descriptions(answer):
    answer = json.loads(json.dumps(answer))
    body = answer.get("body")
    if isinstance(body, dict):
        for column in body.get("columnDefinitions") or []:
            column["description"] = ""
    elif body:
        answer["body"] = re.sub(r"- description: .*? (?=format:)", "", body)
    return answer


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    areas = sys.argv[4].split(",") if len(sys.argv) > 4 else ["list", "get", "delete", "collection", "write", "paths"]
    theirs, ours = start(folder, disabled="ServiceAccount,StorageObjectInUseProtection")
    comparison = Comparison(theirs, ours, f"{folder}/differences.jsonl", keep=4)
    records, schemas = validation.load(validation.VECTORS), validation.Schemas(theirs)
    for server in (theirs, ours):
        for record in records:
            if record["op"] == "setup":
                server.request("POST", record["path"], record["object"])
        for name in ("empty", "other"):
            server.request("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    options = Options(comparison, rng)
    options.learn()
    for (version, kind, path), objects in validation.bases(records, schemas).items():
        at, name = path.split("/namespaces/default/") if "/namespaces/default/" in path else path.rsplit("/", 1)
        options.objects[at, name] = objects
        if kind in validation.NAMESPACED_APART or kind.endswith("Review") or kind.endswith("Policy") and "admission" in version or kind.endswith("WebhookConfiguration"):
            continue
        for one in objects[:4]:
            if (one.get("metadata") or {}).get("name") and all(code == 201 for code, _, _ in comparison.both("POST", f"{path}?fieldManager=t", one)):
                options.names.setdefault((at, name), []).append(one["metadata"]["name"])
    # kube-apiserver creates its roles in the first seconds, and its informers see them a little later.
    time.sleep(10)

    def one(asked):
        label, request, more = asked
        again = lambda: ask(theirs, request, **more)
        return label, [*request, more], again(), ask(ours, request, **more), again

    made = [getattr(options, rng.choice(areas))() for _ in range(count)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for number, result in enumerate(pool.map(one, made)):
            comparison.take(result, explain)
            if number % 1000 == 999:
                print(comparison.summary().split("\n")[0], flush=True)
    print(comparison.summary())


if __name__ == "__main__":
    main()
