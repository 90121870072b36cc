#!/usr/bin/env python3
"""Generated requests of a node through NodeRestriction on both servers.

    LOCKGATE=target/debug/lockgate ETCD=… KUBE_APISERVER=… ./nodes.py FOLDER COUNT [SEED]

RBAC grants the node all permissions, so that only the plugin decides.
"""

import random
import sys

from compare import Comparison
from plugins import clean, maybe
from servers import start

NAMES = ["n1", "n1", "n2", "n3"]
LABELS = ["kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
          "node-restriction.kubernetes.io/x", "sub.node-restriction.kubernetes.io/x", "kubelet.kubernetes.io/a", "node.kubernetes.io/b", "x.kubelet.kubernetes.io/a", "kubernetes.io/other",
          "node-role.kubernetes.io/master", "example.com/free", "free", "k8s.io/x", "a.k8s.io/x", "beta.kubernetes.io/os"]


def labels(rng):
    return {name: rng.choice("ab") for name in rng.sample(LABELS, rng.randint(0, 2))}


def taints(rng):
    return [rng.choice([{"key": "x", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, {"key": "x", "value": "b", "effect": "NoExecute"}]) for _ in range(rng.randint(0, 1))]


def pod(rng, name, mirror=None):
    mirror = rng.random() < 0.6 if mirror is None else mirror
    owner = maybe(rng, 0.75, lambda: [clean({"apiVersion": rng.choice(["v1", "v1", "v2"]), "kind": rng.choice(["Node", "Node", "Pod"]), "name": rng.choice(NAMES), "uid": rng.choice(["UID", "UID", "other"]),
                                             "controller": maybe(rng, 0.85, lambda: rng.choice([True, True, False])), "blockOwnerDeletion": maybe(rng, 0.2, lambda: rng.choice([True, False]))})
                                      for _ in range(rng.choice([1, 1, 1, 2]))])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": clean({"name": name, "labels": maybe(rng, 0.2, lambda: {rng.choice(["a", "node-restriction.kubernetes.io/x"]): "b"}), "ownerReferences": owner,
                                                             "annotations": {"kubernetes.io/config.mirror": "x"} if mirror else None}),
            "spec": clean({"nodeName": maybe(rng, 0.85, lambda: rng.choice(NAMES)), "containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False if rng.random() < 0.8 else None,
                           "serviceAccountName": maybe(rng, 0.1, lambda: "default"), "volumes": maybe(rng, 0.2, lambda: [{"name": "v", **rng.choice([
                               {"secret": {"secretName": "s"}}, {"configMap": {"name": "c"}}, {"emptyDir": {}}, {"persistentVolumeClaim": {"claimName": "claim"}}, {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                               {"projected": {"sources": [{"configMap": {"name": "c"}}]}}])}]), "resourceClaims": maybe(rng, 0.05, lambda: [{"name": "r", "resourceClaimName": "x"}])})}


def cases(rng, count, uids):
    core, dry, merge = "/api/v1/namespaces/default", "?dryRun=All", "application/merge-patch+json"
    for case in range(count):
        name, node, choice = f"o{case}", rng.choice(NAMES), rng.randrange(18)
        options = {"token": "node-token"}
        patch = {**options, "kind": merge}
        if choice < 2:
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": rng.choice([node, name]), "labels": labels(rng)}, "spec": clean({"taints": taints(rng), "configSource": None, "podCIDR": maybe(rng, 0.1, lambda: "10.1.0.0/24")})}
            yield "node create", ("POST", "/api/v1/nodes" + dry, body), options
        elif choice < 5:
            body = rng.choice([{"metadata": {"labels": {**labels(rng), rng.choice(LABELS): rng.choice(["a", None])}}}, {"metadata": {"annotations": {"a": "b"}}}, {"spec": {"taints": taints(rng)}}, {"spec": {"unschedulable": True}},
                               {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}}])
            yield "node update", ("PATCH", f"/api/v1/nodes/{node}{rng.choice(['', '', '/status'])}{dry}", body), patch
        elif choice == 5:
            yield "node delete", ("DELETE", f"/api/v1/nodes/{node}{dry}"), options
        elif choice < 9:
            body = pod(rng, name)
            for owner in body["metadata"].get("ownerReferences", []):
                if owner["uid"] == "UID":
                    owner["uid"] = uids
            yield "pod create", ("POST", f"{core}/pods{dry}", body), options
        elif choice < 11:
            body = rng.choice([{"status": {"phase": "Running"}}, {"metadata": {"labels": {rng.choice(["a", "node-restriction.kubernetes.io/x"]): rng.choice(["b", "c", None])}}}, {"spec": {"nodeName": "n2"}},
                               {"status": {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "y"}]}}, {"status": {"extendedResourceClaimStatus": {"resourceClaimName": "z", "requestMappings": []}}},
                               {"metadata": {"finalizers": ["a/b"]}}])
            yield "pod update", ("PATCH", f"{core}/pods/{rng.choice(['mine', 'theirs', 'nobody', 'mirror'])}{rng.choice(['/status', '/status', '', '/ephemeralcontainers', '/resize'])}{dry}", body), patch
        elif choice == 11:
            yield "pod delete", ("DELETE", f"{core}/pods/{rng.choice(['mine', 'theirs', 'nobody', 'mirror', 'gone'])}{dry}"), options
        elif choice == 12:
            which = rng.choice(["mine", "theirs", "nobody", "mirror", "gone"])
            yield "evict", ("POST", f"{core}/pods/{which}/eviction{dry}", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": which}}), options
        elif choice == 13:
            which = rng.choice(["mine", "theirs", "nobody", "gone"])
            bound = maybe(rng, 0.8, lambda: clean({"kind": rng.choice(["Pod", "Pod", "Secret"]), "apiVersion": "v1", "name": maybe(rng, 0.9, lambda: which), "uid": maybe(rng, 0.9, lambda: rng.choice([uids, "pod-uid"]))}))
            yield "token", ("POST", f"{core}/serviceaccounts/{rng.choice(['default', 'other'])}/token{dry}", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": clean({"audiences": maybe(rng, 0.5, lambda: [rng.choice(["a", ""])]), "boundObjectRef": bound})}), options
        elif choice == 14:
            space = rng.choice(["kube-node-lease", "kube-node-lease", "default"])
            yield "lease", ("POST", f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases{dry}", {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": rng.choice(NAMES)}, "spec": {"holderIdentity": "x"}}), options
        elif choice == 15:
            yield "csinode", ("POST", f"/apis/storage.k8s.io/v1/csinodes{dry}", {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": rng.choice(NAMES)}, "spec": {"drivers": []}}), options
        elif choice == 16:
            yield "slice", ("POST", f"/apis/resource.k8s.io/v1/resourceslices{dry}", {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": clean({
                "driver": "d.example.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "nodeName": maybe(rng, 0.8, lambda: rng.choice(NAMES)), "allNodes": maybe(rng, 0.2, lambda: True), "devices": []})}), options
        else:
            body = rng.choice([{"status": {"capacity": {"storage": "2Gi"}}}, {"status": {"phase": "Bound"}}, {"status": {"conditions": [{"type": "Resizing", "status": "True"}]}}, {"metadata": {"labels": {"a": "b"}}},
                               {"status": {"allocatedResources": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}}}])
            yield "claim", ("PATCH", f"{core}/persistentvolumeclaims/claim{rng.choice(['/status', '/status', ''])}{dry}", body), patch


def set_up(comparison):
    def create(path, body):
        for server in (comparison.theirs, comparison.ours):
            code, answer, _ = server.request("POST", path, body)
            if code not in (200, 201, 409):
                raise SystemExit(f"{server.name}: {path}: {code} {answer}")

    create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "nodes"},
           "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}, "subjects": [{"kind": "Group", "name": "system:nodes", "apiGroup": "rbac.authorization.k8s.io"}]})
    create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-node-lease"}})
    core = "/api/v1/namespaces/default"
    for name in ("default", "other"):
        create(f"{core}/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    for name in ("n1", "n2"):
        create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "node-restriction.kubernetes.io/x": "a", "kubernetes.io/other": "a"}}, "spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})
    for name, node, more in (("mine", "n1", {}), ("theirs", "n2", {}), ("nobody", None, {}), ("mirror", "n1", {"annotations": {"kubernetes.io/config.mirror": "x"}})):
        create(f"{core}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"a": "b"}, **more}, "spec": clean({"nodeName": node, "automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]})})
    create(f"{core}/persistentvolumeclaims", {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "claim"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    theirs, ours = start(folder, "NodeRestriction")
    comparison = Comparison(theirs, ours, f"{folder}/differences.jsonl")
    set_up(comparison)
    comparison.run(cases(rng, count, "3d3f9f6e-0000-4000-8000-000000000001"))
    print(comparison.summary())


if __name__ == "__main__":
    main()
