#!/usr/bin/env python3
"""Generated access checks on both servers: RBAC escalation, bindings, impersonation, access reviews and rules reviews.

    LOCKGATE=target/debug/lockgate ETCD=… KUBE_APISERVER=… ./reviews.py FOLDER COUNT [SEED]
"""

import json
import random
import sys

from compare import Comparison
from servers import start

RBAC = "/apis/rbac.authorization.k8s.io/v1"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
VERBS = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind", "escalate", "impersonate", "use", "*", "approve", "sign"]
GROUPS = ["", "apps", "*", "rbac.authorization.k8s.io", "example.com", "batch"]
RESOURCES = ["pods", "pods/log", "secrets", "configmaps", "deployments", "deployments/scale", "roles", "clusterroles", "rolebindings", "*", "*/status", "*/scale", "widgets", "users", "serviceaccounts/token", "nodes"]
NAMES = ["a", "b", "view", "admin", "cluster-admin", "system:node", "x"]
URLS = ["/healthz", "/healthz/*", "*", "/metrics", "/", "/api/*", "/apis/*/v1", "healthz", "", "/a/b"]


class Access:
    def __init__(self, rng):
        self.rng = rng

    def some(self, values, most=2, empty=0.06):
        return [] if self.rng.random() < empty else self.rng.sample(values, self.rng.randint(1, most))

    def rule(self, cluster):
        rng = self.rng
        if cluster and rng.random() < 0.2 or rng.random() < 0.04:
            made = {"verbs": self.some(VERBS[:4] + ["*"]), "nonResourceURLs": self.some(URLS)}
            return made | ({"resources": ["pods"]} if rng.random() < 0.05 else {})
        made = {"verbs": self.some(VERBS, 3), "apiGroups": self.some(GROUPS), "resources": self.some(RESOURCES, 2)}
        if rng.random() < 0.3:
            made["resourceNames"] = self.some(NAMES)
        for member in ("verbs", "apiGroups", "resources"):
            if rng.random() < 0.02:
                made.pop(member)
        return made

    def role(self, cluster, name):
        rng = self.rng
        made = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole" if cluster else "Role", "metadata": {"name": name}, "rules": [self.rule(cluster) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))]}
        if cluster and rng.random() < 0.1:
            made["aggregationRule"] = {"clusterRoleSelectors": [rng.choice([{"matchLabels": {"a": "b"}}, {}, {"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"matchLabels": {"A b": "c"}}])]}
        return made

    def subject(self):
        rng = self.rng
        made = rng.choice([{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}, {"kind": "Group", "name": "devs", "apiGroup": "rbac.authorization.k8s.io"}, {"kind": "ServiceAccount", "name": "default", "namespace": "default"}])
        if rng.random() < 0.1:
            made[rng.choice(["kind", "name", "apiGroup", "namespace"])] = rng.choice(["", "x", "User", "ServiceAccount", "A B"])
        return made

    def binding(self, cluster, name):
        rng = self.rng
        kind = "ClusterRole" if cluster or rng.random() < 0.5 else "Role"
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": rng.choice(NAMES + ["r1", "r2", "none"])}
        if rng.random() < 0.06:
            reference[rng.choice(["apiGroup", "kind", "name"])] = rng.choice(["", "Role", "x"])
        return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding" if cluster else "RoleBinding", "metadata": {"name": name}, "roleRef": reference, "subjects": [self.subject() for _ in range(rng.choice([0, 1, 1, 2]))]}

    def attributes(self):
        rng = self.rng
        if rng.random() < 0.25:
            return {"nonResourceAttributes": {"path": rng.choice(URLS + ["/healthz/x", "/api"]), "verb": rng.choice(VERBS + [""])}}
        made = {"verb": rng.choice(VERBS), "resource": rng.choice(RESOURCES + [""]), "group": rng.choice(GROUPS), "namespace": rng.choice(["", "default", "other"])}
        for member, choices in (("subresource", ["log", "status", "scale", "*"]), ("name", NAMES), ("version", ["v1", "*"])):
            if rng.random() < 0.4:
                made[member] = rng.choice(choices)
        if rng.random() < 0.25:
            made["fieldSelector"] = rng.choice([{"rawSelector": "a=b"}, {"rawSelector": "a"}, {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n"]}]}, {"requirements": [{"key": "a", "operator": "Exists", "values": ["x"]}]}, {}, {"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "In", "values": ["b"]}]}, {"requirements": []}, {"requirements": [{"key": "", "operator": "NotIn", "values": []}]}, {"requirements": [{"key": "a", "operator": "Other"}]}])
        if rng.random() < 0.25:
            made["labelSelector"] = rng.choice([{"rawSelector": "a=b"}, {"rawSelector": "a in ("}, {"requirements": [{"key": "a", "operator": "In", "values": ["n"]}]}, {"requirements": [{"key": "A b", "operator": "Exists"}]}, {}, {"requirements": [{"key": "a", "operator": "DoesNotExist", "values": ["x"]}]}])
        return {"resourceAttributes": made}

    def review(self):
        rng = self.rng
        kind = rng.choice(["SelfSubjectAccessReview", "SubjectAccessReview", "SubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectRulesReview", "SelfSubjectReview"])
        if kind == "SelfSubjectReview":
            return kind, "/apis/authentication.k8s.io/v1/selfsubjectreviews", {"apiVersion": "authentication.k8s.io/v1", "kind": kind}
        if kind == "SelfSubjectRulesReview":
            spec = rng.choice([{"namespace": "default"}, {"namespace": ""}, {}, {"namespace": "other"}, {"namespace": "A"}])
        else:
            spec = self.attributes()
            if rng.random() < 0.05:
                spec |= self.attributes()
            if rng.random() < 0.04:
                spec = {}
            if kind != "SelfSubjectAccessReview":
                spec |= rng.choice([{"user": "jane"}, {"user": "jane", "groups": ["devs"]}, {"groups": ["devs"]}, {"user": "admin", "groups": ["system:masters"]}, {"user": "system:serviceaccount:default:default"}, {}, {"user": "system:anonymous", "groups": ["system:unauthenticated"]}, {"user": "bob", "uid": "1", "extra": {"A/b": ["c"], "scopes": []}}, {"user": "system:node:n1", "groups": ["system:nodes"]}])
        path = f"{AUTHORIZATION}/" + ("namespaces/default/" if kind.startswith("Local") else "") + kind.lower() + "s"
        made = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        if rng.random() < 0.12:
            made["metadata"] = rng.choice([{"name": "a"}, {"namespace": "default"}, {"namespace": "other"}, {"labels": {"a": "b"}}, {"generateName": "x"}])
        return kind, path, made

    def request(self):
        rng, chance = self.rng, self.rng.random()
        who = {"token": rng.choice(["admin-token", "jane-token", "jane-token", "jane-token", "node-token"])}
        if rng.random() < 0.12:
            who["headers"] = {rng.choice(["Impersonate-User", "Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-scopes", "Impersonate-Extra-a%2Fb"]): rng.choice(["jane", "bob", "system:serviceaccount:default:default", "system:serviceaccount:a", "devs", "system:masters", "system:anonymous", "", "system:node:n1"])}
            if rng.random() < 0.5:
                who["headers"]["Impersonate-User"] = rng.choice(["bob", "jane", "system:serviceaccount:default:default"])
        if chance < 0.4:
            kind, path, made = self.review()
            return kind, ("POST", path + rng.choice(["", "?dryRun=All", "?pretty=1"]), made), who
        cluster = rng.random() < 0.5
        what, make = rng.choice([("role", self.role), ("rolebinding", self.binding)])
        path = f"{RBAC}/cluster{what}s" if cluster else f"{RBAC}/namespaces/default/{what}s"
        name = rng.choice(["r1", "r2"])
        if rng.random() < 0.5:
            return f"{what} create", ("POST", f"{path}?dryRun=All", make(cluster, rng.choice(["new", "new", "A:b", "a/b", "a%b", "", ".."]))), who
        if rng.random() < 0.6:
            return f"{what} update", ("PUT", f"{path}/{name}?dryRun=All", make(cluster, name)), who
        return f"{what} patch", ("PATCH", f"{path}/{name}?dryRun=All", make(cluster, name), ), who | {"kind": "application/merge-patch+json"}


def explain(one, other, request):
    """Known difference: upstream returns the rules of a SelfSubjectRulesReview in Go map order."""
    if str((request[2] or {}).get("kind")) == "SelfSubjectRulesReview" and in_any_order(one) == in_any_order(other):
        return "order of rules"
    return None


def in_any_order(answer):
    body = json.loads(json.dumps(answer[1]))
    for rules in ("resourceRules", "nonResourceRules"):
        found = (body.get("status") or {}).get(rules) if isinstance(body.get("status"), dict) else None
        if isinstance(found, list):
            body["status"][rules] = sorted(found, key=lambda rule: json.dumps(rule, sort_keys=True))
    return answer[0], body, answer[2]


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    theirs, ours = start(folder, disabled="ServiceAccount,StorageObjectInUseProtection")
    comparison = Comparison(theirs, ours, f"{folder}/differences.jsonl", keep=4)
    access = Access(rng)
    # Jane's permissions change in each round.
    number = 0
    while comparison.count < count:
        number += 1
        may = [{"verbs": ["create", "update", "patch", "get"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"]}]
        may += [access.rule(True) for _ in range(4)]
        for rule in may:
            rule.setdefault("verbs", ["get"])
            rule["verbs"] = rule["verbs"] or ["get"]
            if "nonResourceURLs" not in rule:
                rule["apiGroups"], rule["resources"] = rule.get("apiGroups") or [""], rule.get("resources") or ["pods"]
            else:
                rule.pop("resources", None)
                rule["nonResourceURLs"] = [url for url in rule["nonResourceURLs"] if url] or ["/a"]
        made = [("/clusterroles", {"kind": "ClusterRole", "metadata": {"name": "jane"}, "rules": may}),
                ("/clusterrolebindings", {"kind": "ClusterRoleBinding", "metadata": {"name": "jane"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jane"}, "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]})]
        for name in ("r1", "r2"):
            for cluster in (True, False):
                at = "/clusterrole" if cluster else "/namespaces/default/role"
                role = {"kind": "ClusterRole" if cluster else "Role", "metadata": {"name": name}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}] if name == "r1" else []}
                made.append((at + "s", role))
                made.append((at + "bindings", {"kind": role["kind"] + "Binding", "metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": rng.choice(["r1", "r2"])}, "subjects": [access.subject()]}))
        paths = []
        for at, one in made:
            answers = comparison.both("POST", RBAC + at, {"apiVersion": "rbac.authorization.k8s.io/v1", **one})
            if all(code == 201 for code, _, _ in answers):
                paths.append(f"{RBAC}{at}/{one['metadata']['name']}")
            elif len({code for code, _, _ in answers}) > 1:
                print(at, one, answers)
        comparison.run((access.request() for _ in range(500)), explain=explain)
        for path in paths:
            comparison.both("DELETE", path)
        print(comparison.summary().split("\n")[0], flush=True)
    print(comparison.summary())


if __name__ == "__main__":
    main()
