#!/usr/bin/env python3
"""Generated objects through the in-tree admission plugins of both servers.

    LOCKGATE=target/debug/lockgate ETCD=… KUBE_APISERVER=… ./plugins.py FOLDER COUNT [SEED]
"""

import random
import sys

from compare import Comparison
from servers import start

OPTIONAL = ("AlwaysPullImages,ExtendedResourceToleration,LimitPodHardAntiAffinityTopology,PodNodeSelector,"
            "PodTolerationRestriction,DenyServiceExternalIPs,OwnerReferencesPermissionEnforcement,NamespaceExists")
QUANTITIES = ["0", "1", "100m", "250m", "500m", "1500m", "2", "1Ki", "64Mi", "128Mi", "256Mi", "1Gi", "2Gi", "1e3", "1.5Gi", "0.1", "3"]
NAMESPACES = 48


def maybe(rng, chance, value):
    return value() if rng.random() < chance else None


def clean(value):
    if isinstance(value, dict):
        return {key: clean(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [clean(inner) for inner in value]
    return value


def resources(rng, extended=True):
    names = ["cpu", "memory", "ephemeral-storage"] + (["example.com/gpu", "hugepages-2Mi"] if extended else [])

    def some():
        chosen = rng.sample(names, rng.randint(0, 3))
        values = {}
        for name in chosen:
            if name == "example.com/gpu":
                values[name] = str(rng.randint(1, 3))
            elif name == "hugepages-2Mi":
                values[name] = rng.choice(["2Mi", "4Mi"])
            elif name == "cpu":
                values[name] = rng.choice(["100m", "250m", "1", "2", "1500m", "0"])
            else:
                values[name] = rng.choice(["1Mi", "64Mi", "128Mi", "1Gi", "1500M", "0"])
        return values

    limits = some()
    requests = {}
    for name, value in limits.items():
        if name in ("example.com/gpu", "hugepages-2Mi") or rng.random() < 0.3:
            requests[name] = value
    for name, value in some().items():
        if name not in limits and name not in ("example.com/gpu", "hugepages-2Mi"):
            requests[name] = value
    if rng.random() < 0.1:
        requests.update({"cpu": "4"})
    return clean({"limits": limits or None, "requests": requests or None}) or None


def security_context(rng, pod=False):
    context = {
        "runAsNonRoot": maybe(rng, 0.4, lambda: rng.choice([True, False])),
        "runAsUser": maybe(rng, 0.3, lambda: rng.choice([0, 1, 1000])),
        "seccompProfile": maybe(rng, 0.4, lambda: rng.choice([
            {"type": "RuntimeDefault"}, {"type": "Unconfined"}, {"type": "Localhost", "localhostProfile": "a.json"}])),
        "seLinuxOptions": maybe(rng, 0.15, lambda: rng.choice([
            {"type": "container_t"}, {"type": "spc_t"}, {"user": "u"}, {"level": "s0"}, {"role": "r"}, {"type": "container_engine_t"}])),
        "appArmorProfile": maybe(rng, 0.15, lambda: rng.choice([
            {"type": "RuntimeDefault"}, {"type": "Unconfined"}, {"type": "Localhost", "localhostProfile": "x"}])),
        "windowsOptions": maybe(rng, 0.05, lambda: rng.choice([{"hostProcess": True}, {"hostProcess": False}, {"runAsUserName": "ContainerUser"}])),
    }
    if pod:
        context["sysctls"] = maybe(rng, 0.1, lambda: [{"name": rng.choice([
            "kernel.shm_rmid_forced", "net.ipv4.tcp_keepalive_time", "net.core.somaxconn", "kernel.msgmax", "net.ipv4.ip_local_port_range"]), "value": "1"}])
        context["fsGroup"] = maybe(rng, 0.1, lambda: 5)
    else:
        context["privileged"] = maybe(rng, 0.2, lambda: rng.choice([True, False]))
        context["allowPrivilegeEscalation"] = maybe(rng, 0.5, lambda: rng.choice([True, False, False]))
        context["procMount"] = maybe(rng, 0.05, lambda: rng.choice(["Default", "Unmasked"]))
        context["capabilities"] = maybe(rng, 0.5, lambda: clean({
            "add": maybe(rng, 0.4, lambda: rng.sample(["NET_BIND_SERVICE", "SYS_ADMIN", "CHOWN", "NET_RAW", "KILL"], rng.randint(1, 2))),
            "drop": maybe(rng, 0.7, lambda: rng.choice([["ALL"], ["ALL"], ["NET_RAW"], ["all"]]))}))
    return clean(context) or None


def container(rng, name, init=False):
    return clean({
        "name": name,
        "image": rng.choice(["nginx", "nginx:1.25", "registry.io/a/b@sha256:" + "a" * 64, "busybox:latest"]),
        "imagePullPolicy": maybe(rng, 0.3, lambda: rng.choice(["Always", "IfNotPresent", "Never"])),
        "resources": maybe(rng, 0.6, lambda: resources(rng)),
        "securityContext": maybe(rng, 0.6, lambda: security_context(rng)),
        "ports": maybe(rng, 0.3, lambda: [clean({"containerPort": rng.randint(1, 9000), "hostPort": maybe(rng, 0.4, lambda: rng.randint(1, 9000)), "hostIP": maybe(rng, 0.1, lambda: "127.0.0.1")})]),
        "env": maybe(rng, 0.2, lambda: [{"name": "A", "value": "1"}]),
        "volumeMounts": maybe(rng, 0.15, lambda: [{"name": "v0", "mountPath": rng.choice(["/a", "/var/run/secrets/kubernetes.io/serviceaccount"])}]),
        "livenessProbe": maybe(rng, 0.15, lambda: None if init else {"httpGet": clean({"port": 80, "host": maybe(rng, 0.5, lambda: rng.choice(["", "1.2.3.4", "localhost"]))})}),
        "lifecycle": maybe(rng, 0.1, lambda: None if init else {"postStart": {"httpGet": clean({"port": 80, "host": maybe(rng, 0.5, lambda: rng.choice(["evil", "127.0.0.1", "::1"]))})}}),
        "restartPolicy": "Always" if init and rng.random() < 0.4 else None,
    })


def volume(rng, name):
    return {"name": name, **rng.choice([
        {"emptyDir": {}}, {"hostPath": {"path": "/x"}}, {"configMap": {"name": "c"}}, {"secret": {"secretName": "s"}},
        {"nfs": {"server": "s", "path": "/"}}, {"persistentVolumeClaim": {"claimName": "p"}},
        {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}, {"downwardAPI": {"items": []}},
        {"csi": {"driver": "d"}}, {"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
        {"image": {"reference": "nginx"}}, {"iscsi": {"targetPortal": "1.2.3.4:3260", "iqn": "iqn.2001-04.com.example:storage.kube.sys1.xyz", "lun": 0}},
        {"gitRepo": {"repository": "r"}}])}


def toleration(rng):
    return rng.choice([
        {"operator": "Exists"}, {"key": "a", "operator": "Exists"}, {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, {"effect": "NoExecute", "operator": "Exists"},
        {"key": "spot", "operator": "Equal", "value": "x", "effect": "NoExecute", "tolerationSeconds": 10}])


def pod_spec(rng):
    volumes = [volume(rng, f"v{n}") for n in range(rng.choice([0, 0, 0, 1, 1, 2]))]
    containers = [container(rng, f"c{n}") for n in range(rng.randint(1, 3))]
    inits = [container(rng, f"i{n}", True) for n in range(rng.choice([0, 0, 0, 1, 2]))]
    if not volumes:
        for one in containers + inits:
            one.pop("volumeMounts", None)
    term = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": rng.choice(["kubernetes.io/hostname", "zone"])}
    if rng.random() < 0.3:
        term["namespaces"] = ["other"]
    return clean({
        "containers": containers,
        "initContainers": inits or None,
        "volumes": volumes or None,
        "securityContext": maybe(rng, 0.5, lambda: security_context(rng, True)),
        "hostNetwork": maybe(rng, 0.1, lambda: rng.choice([True, False])),
        "hostPID": maybe(rng, 0.05, lambda: True),
        "hostIPC": maybe(rng, 0.05, lambda: True),
        "hostUsers": maybe(rng, 0.05, lambda: rng.choice([True, False])),
        "os": maybe(rng, 0.06, lambda: {"name": rng.choice(["linux", "windows"])}),
        "priorityClassName": maybe(rng, 0.25, lambda: rng.choice(["high", "low", "none", "system-node-critical"])),
        "priority": maybe(rng, 0.08, lambda: rng.choice([0, 10, 1000])),
        "preemptionPolicy": maybe(rng, 0.06, lambda: rng.choice(["Never", "PreemptLowerPriority"])),
        "runtimeClassName": maybe(rng, 0.2, lambda: rng.choice(["plain", "heavy", "picky", "gone"])),
        "overhead": maybe(rng, 0.06, lambda: rng.choice([{"cpu": "10m"}, {"cpu": "250m", "memory": "10Mi"}])),
        "nodeSelector": maybe(rng, 0.2, lambda: rng.choice([{"disk": "ssd"}, {"disk": "hdd"}, {"zone": "a"}, {"arch": "x"}])),
        "tolerations": maybe(rng, 0.3, lambda: [toleration(rng) for _ in range(rng.randint(1, 3))]),
        "serviceAccountName": maybe(rng, 0.25, lambda: rng.choice(["default", "quiet", "strict", "pulls", "gone"])),
        "serviceAccount": maybe(rng, 0.05, lambda: "quiet"),
        "automountServiceAccountToken": maybe(rng, 0.2, lambda: rng.choice([True, False])),
        "imagePullSecrets": maybe(rng, 0.1, lambda: [{"name": "own"}]),
        "restartPolicy": maybe(rng, 0.3, lambda: rng.choice(["Always", "OnFailure", "Never"])),
        "activeDeadlineSeconds": maybe(rng, 0.1, lambda: 30),
        "affinity": maybe(rng, 0.15, lambda: {rng.choice(["podAntiAffinity", "podAffinity"]): {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}),
        "nodeName": maybe(rng, 0.1, lambda: rng.choice(["n1", "n2"])),
        "resources": maybe(rng, 0.12, lambda: {"requests": {"cpu": rng.choice(["100m", "3"])}, "limits": {"memory": "64Mi"}}),
        "terminationGracePeriodSeconds": maybe(rng, 0.1, lambda: 5),
    })


def pod(rng, name):
    annotations = maybe(rng, 0.15, lambda: rng.choice([
        {"container.apparmor.security.beta.kubernetes.io/c0": rng.choice(["unconfined", "runtime/default", "localhost/x"])},
        {"kubernetes.io/config.mirror": "x"}, {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}, {"a": "b"}]))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": clean({"name": name, "annotations": annotations, "labels": maybe(rng, 0.3, lambda: {"app": rng.choice("ab")})}),
            "spec": pod_spec(rng)}


def template(rng):
    return {"metadata": {"labels": {"a": "b"}}, "spec": pod_spec(rng)}


def other(rng, name, n):
    """An object of another kind, with its collection path."""
    core, meta = f"/api/v1/namespaces/ns{n}", {"name": name}
    choice = rng.randrange(12)
    if choice < 2:
        return f"{core}/persistentvolumeclaims", {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": clean({
            "accessModes": [rng.choice(["ReadWriteOnce", "ReadOnlyMany"])], "storageClassName": maybe(rng, 0.5, lambda: rng.choice(["fast", "slow", "", "gone"])),
            "volumeAttributesClassName": maybe(rng, 0.4, lambda: rng.choice(["gold", "silver", "gone", ""])),
            "resources": clean({"requests": {"storage": rng.choice(["1Gi", "500Mi", "10Gi", "1500M", "0.5Gi"])}, "limits": maybe(rng, 0.1, lambda: {"storage": "20Gi"})})})}
    if choice == 2:
        return f"/apis/networking.k8s.io/v1/namespaces/ns{n}/ingresses", {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": clean({**meta, "annotations": maybe(rng, 0.2, lambda: {"kubernetes.io/ingress.class": "x"})}),
                "spec": clean({"ingressClassName": maybe(rng, 0.3, lambda: "a"), "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}})}
    if choice < 5:
        kind = rng.choice(["ClusterIP", "NodePort", "LoadBalancer"])
        return f"{core}/services", {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": clean({
            "type": kind, "ports": [{"name": f"p{k}", "port": 80 + k} for k in range(rng.randint(1, 3))], "clusterIP": "None" if kind == "ClusterIP" else None,
            "externalIPs": maybe(rng, 0.4, lambda: ["10.0.0.1"]), "allocateLoadBalancerNodePorts": False if kind == "LoadBalancer" else None})}
    if choice == 5:
        return "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {**meta, "labels": {"zone": "a"}}, "spec": clean({"taints": maybe(rng, 0.4, lambda: [rng.choice([
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, {"key": "x", "effect": "NoExecute"}])])})}
    if choice < 8:
        kind, path = rng.choice([("Deployment", "apps/v1"), ("DaemonSet", "apps/v1"), ("Job", "batch/v1")])
        spec = {"template": template(rng)}
        if kind == "Job":
            spec["template"]["spec"]["restartPolicy"] = "Never"
            # Upstream, a Job without labels shares the label map of its template, including later additions.
            meta = {**meta, "labels": {"c": "d"}}
        else:
            spec["selector"] = {"matchLabels": {"a": "b"}}
        return f"/apis/{path}/namespaces/ns{n}/{kind.lower()}s", {"apiVersion": path, "kind": kind, "metadata": meta, "spec": spec}
    if choice == 8:
        kind = rng.choice(["ConfigMap", "Secret"])
        return f"{core}/{kind.lower()}s", {"apiVersion": "v1", "kind": kind, "metadata": clean({**meta, "ownerReferences": maybe(rng, 0.5, lambda: [clean({
            "apiVersion": rng.choice(["v1", "apps/v1", "nope/v1"]), "kind": rng.choice(["ConfigMap", "Deployment"]), "name": "o", "uid": "u", "blockOwnerDeletion": maybe(rng, 0.6, lambda: True)})])}), "data": {"a": "Yg=="}}
    if choice == 9:
        return "/api/v1/persistentvolumes", {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}}
    if choice == 10:
        return "/apis/scheduling.k8s.io/v1/priorityclasses", {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": rng.choice([1, 10, 2000000000]), "globalDefault": rng.random() < 0.5}
    return f"{core}/pods/old{rng.randrange(4)}", None


def namespace(rng, n):
    labels, annotations = {}, {}
    for mode in ("enforce", "warn", "audit"):
        if rng.random() < 0.6:
            labels[f"pod-security.kubernetes.io/{mode}"] = rng.choice(["privileged", "baseline", "restricted", "restricted"])
        if rng.random() < 0.3:
            labels[f"pod-security.kubernetes.io/{mode}-version"] = rng.choice(["latest", "v1.0", "v1.8", "v1.19", "v1.22", "v1.24", "v1.25", "v1.28", "v1.30", "v1.34", "v1.36"])
    if rng.random() < 0.3:
        annotations["scheduler.alpha.kubernetes.io/node-selector"] = rng.choice(["disk=ssd", "", "zone=a,disk=ssd"])
    if rng.random() < 0.25:
        annotations["scheduler.alpha.kubernetes.io/defaultTolerations"] = rng.choice(['[{"key":"a","operator":"Exists"}]', "", "[]", '[{"key":"spot","operator":"Equal","value":"x","effect":"NoExecute","tolerationSeconds":10}]'])
    if rng.random() < 0.2:
        annotations["scheduler.alpha.kubernetes.io/tolerationsWhitelist"] = rng.choice(['[{"operator":"Exists"}]', "[]", '[{"operator":"Exists","effect":"NoExecute"},{"key":"a"}]', '[{"key":"a","operator":"Exists"}]'])
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"ns{n}", "labels": labels, "annotations": annotations}}


def amounts(rng, names, low, high):
    """Quantities of some of the resource names, between two powers of two."""
    chosen = rng.sample(names, rng.randint(1, min(3, len(names))))
    units = {"cpu": "m", "memory": "Mi", "ephemeral-storage": "Mi", "storage": "Mi", "example.com/gpu": "", "hugepages-2Mi": "Mi"}
    scale = {"cpu": 50, "memory": 16, "ephemeral-storage": 16, "storage": 256, "example.com/gpu": 1, "hugepages-2Mi": 2}
    return {name: f"{scale[name] << rng.randint(low, high)}{units[name]}" for name in chosen}


def limit_range(rng, name):
    items = []
    for kind in rng.sample(["Container", "Pod", "PersistentVolumeClaim"], rng.randint(1, 3)):
        names = ["storage"] if kind == "PersistentVolumeClaim" else ["cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi"]
        item = {"type": kind}
        if rng.random() < 0.6:
            item["max"] = amounts(rng, names, 4, 6)
        if rng.random() < 0.6:
            item["min"] = amounts(rng, names, 0, 2)
        if rng.random() < 0.4:
            item["maxLimitRequestRatio"] = {one: rng.choice(["1", "2", "4", "1.5", "1500m"]) for one in rng.sample(names, 1)}
        if kind == "Container" or rng.random() < 0.03:
            if rng.random() < 0.6:
                item["default"] = amounts(rng, names, 2, 4)
            if rng.random() < 0.5:
                item["defaultRequest"] = amounts(rng, names, 0, 3)
        if len(item) == 1:
            item["max"] = amounts(rng, names, 4, 6)
        items.append(item)
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": name}, "spec": {"limits": items}}


def scope_selector(rng):
    """Mostly valid scope selectors: the allowed operators depend on the scope."""
    def one():
        scope = rng.choice(["PriorityClass", "PriorityClass", "VolumeAttributesClass", "VolumeAttributesClass", "CrossNamespacePodAffinity", "Terminating", "NotTerminating", "BestEffort", "NotBestEffort"])
        operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist"]) if scope.endswith("Class") or rng.random() < 0.05 else "Exists"
        values = {"PriorityClass": ["high", "low", "usual", "none"], "VolumeAttributesClass": ["gold", "silver", "gone"]}.get(scope, ["x"])
        given = operator in ("In", "NotIn") and rng.random() < 0.97 or rng.random() < 0.02
        return clean({"scopeName": scope, "operator": operator, "values": rng.sample(values, rng.randint(1, len(values))) if given else None})

    return {"matchExpressions": [one() for _ in range(rng.choice([1, 1, 1, 2, 2, 3]))]}


def quota(rng, name):
    pods = ["pods", "count/pods", "cpu", "requests.cpu", "limits.cpu", "memory", "requests.memory", "limits.memory", "requests.ephemeral-storage", "limits.ephemeral-storage",
            "requests.example.com/gpu", "hugepages-2Mi", "requests.hugepages-2Mi"]
    claims = ["persistentvolumeclaims", "count/persistentvolumeclaims", "requests.storage", "fast.storageclass.storage.k8s.io/requests.storage", "slow.storageclass.storage.k8s.io/persistentvolumeclaims",
              "fast.storageclass.storage.k8s.io/persistentvolumeclaims"]
    others = ["services", "services.nodeports", "services.loadbalancers", "count/deployments.apps", "configmaps", "count/secrets", "count/jobs.batch", "count/ingresses.networking.k8s.io"]
    names = rng.choice([pods, claims, pods + claims + others])
    scopes = maybe(rng, 0.35, lambda: rng.choice([["Terminating"], ["NotTerminating"], ["BestEffort"], ["NotBestEffort"], ["CrossNamespacePodAffinity"], ["NotTerminating", "NotBestEffort"],
                                                  ["Terminating", "BestEffort"], ["PriorityClass"], ["VolumeAttributesClass"]]))
    selector = maybe(rng, 0.1 if scopes else 0.6, lambda: scope_selector(rng))
    told = set(scopes or []) | {one["scopeName"] for one in (selector or {}).get("matchExpressions", [])}
    if "VolumeAttributesClass" in told:
        names = claims
    elif "BestEffort" in told or "CrossNamespacePodAffinity" in told and rng.random() < 0.5:
        names = pods[:2]
    elif told and rng.random() < 0.9:
        names = pods
    hard = {key: rng.choice(["0", "1", "2", "3", "500m", "5Gi"]) if any(word in key for word in ("cpu", "memory", "storage", "hugepages")) and not key.endswith("claims") else str(rng.randint(0, 3))
            for key in rng.sample(names, min(len(names), rng.randint(1, 4)))}
    return clean({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard, "scopes": scopes, "scopeSelector": selector}})


def agreed(comparison, path, make):
    """Creates the first object that both servers accept; all responses are compared."""
    for _ in range(8):
        body = make()
        result = comparison.compare(body["kind"], ("POST", path, body))
        comparison.take(result)
        if result[2][0] == result[3][0] == 201:
            return body
        for server, answer in ((comparison.theirs, result[2]), (comparison.ours, result[3])):
            if answer[0] == 201:
                server.request("DELETE", f"{path}/{body['metadata']['name']}")
    return None


def set_up(rng, comparison):
    """Creates the same objects on both servers."""
    def create(path, body):
        for server in (comparison.theirs, comparison.ours):
            code, answer, _ = server.request("POST", path, body)
            if code not in (200, 201):
                raise SystemExit(f"{server.name}: {path}: {code} {answer}")

    for name, value, default in (("high", 1000, False), ("low", 1, False), ("usual", 10, True)):
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, "globalDefault": default}
        if name == "low":
            body["preemptionPolicy"] = "Never"
        create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
    for name, more in (("plain", {}), ("heavy", {"overhead": {"podFixed": {"cpu": "250m", "memory": "10Mi"}}}),
                       ("picky", {"scheduling": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "a", "operator": "Exists"}]}})):
        create("/apis/node.k8s.io/v1/runtimeclasses", {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "h", **more})
    for name, default in (("fast", "true"), ("slow", "false")):
        create("/apis/storage.k8s.io/v1/storageclasses", {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "p", "allowVolumeExpansion": name == "fast",
               "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": default}}})
    for name in ("gold", "silver"):
        create("/apis/storage.k8s.io/v1/volumeattributesclasses", {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "driverName": "p", "parameters": {"a": name}, "metadata": {"name": name}})
    create("/apis/networking.k8s.io/v1/ingressclasses", {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "spec": {"controller": "x.io/y"},
           "metadata": {"name": "a", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}})
    for name in ("n1", "n2"):
        create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "z" + name, "topology.kubernetes.io/region": "r"}}})
    create("/apis/rbac.authorization.k8s.io/v1/clusterroles", {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "write"}, "rules": [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "create", "update", "patch"]}]})
    create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "write"},
           "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "write"}, "subjects": [{"kind": "Group", "name": "devs", "apiGroup": "rbac.authorization.k8s.io"}]})
    for n in range(NAMESPACES):
        create("/api/v1/namespaces", namespace(rng, n))
        core = f"/api/v1/namespaces/ns{n}"
        for name, more in (("default", {}), ("quiet", {"automountServiceAccountToken": False}), ("pulls", {"imagePullSecrets": [{"name": "s1"}]}),
                           ("strict", {"secrets": [{"name": "s"}], "metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}})):
            body = {"apiVersion": "v1", "kind": "ServiceAccount", **more}
            body["metadata"] = {**body.get("metadata", {}), "name": name}
            create(f"{core}/serviceaccounts", body)
        # Pods to update, created before limits and quotas.
        for k in range(4):
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"old{k}"}, "spec": {"containers": [{"name": "c0", "image": "nginx", "securityContext": {
                "allowPrivilegeEscalation": False, "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}}]}}
            if k % 2:
                body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}
            for server in (comparison.theirs, comparison.ours):
                server.request("POST", f"{core}/pods", body)
        create(f"{core}/persistentvolumeclaims", {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "claim"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": rng.choice(["fast", "slow"]), "resources": {"requests": {"storage": "1Gi"}}}})
        # At most one: which of several upstream reports first is random.
        if rng.random() < 0.6:
            agreed(comparison, f"{core}/limitranges", lambda: limit_range(rng, "l"))
        body = maybe(rng, 0.75, lambda: agreed(comparison, f"{core}/resourcequotas", lambda: quota(rng, "q")))
        if body:
            used = {key: rng.choice(["0", "0", "1"]) for key in body["spec"]["hard"]}
            if rng.random() < 0.1:
                used.popitem()
            for server in (comparison.theirs, comparison.ours):
                code, found, _ = server.request("GET", f"{core}/resourcequotas/q")
                found["status"] = {"hard": body["spec"]["hard"], "used": used}
                code, answer, _ = server.request("PUT", f"{core}/resourcequotas/q/status", found)
                if code != 200:
                    raise SystemExit(f"{server.name}: {code} {answer}")


def cases(rng, count):
    dry = "?dryRun=All&fieldManager=d"
    for case in range(count):
        n = rng.randrange(NAMESPACES + 1)
        token = rng.choice(["admin-token", "jane-token"])
        choice = rng.random()
        if choice < 0.62:
            yield "pod", ("POST", f"/api/v1/namespaces/ns{n}/pods{dry}", pod(rng, f"p{case}")), {"token": token}
        elif choice < 0.85:
            path, body = other(rng, f"o{case}", n)
            if body is None:
                yield "delete", ("DELETE", path + "?dryRun=All"), {"token": token}
            else:
                yield body["kind"], ("POST", path + dry, body), {"token": token}
        elif choice < 0.93:
            patch = rng.choice([
                {"metadata": {"labels": {"x": "y"}}}, {"spec": {"containers": [{"name": "c0", "image": "other"}]}}, {"spec": {"activeDeadlineSeconds": 5}},
                {"spec": {"tolerations": [toleration(rng)]}}, {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
                {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", "blockOwnerDeletion": True}]}}])
            yield "patch", ("PATCH", f"/api/v1/namespaces/ns{n}/pods/old{rng.randrange(4)}{dry}", patch), {"token": token, "kind": "application/strategic-merge-patch+json"}
        elif choice < 0.96:
            patch = {"spec": {"containers": [{"name": "c0", "resources": resources(rng, False) or {}}]}}
            yield "resize", ("PATCH", f"/api/v1/namespaces/ns{n}/pods/old{rng.randrange(4)}/resize{dry}", patch), {"token": token, "kind": "application/strategic-merge-patch+json"}
        elif choice < 0.98:
            patch = {"spec": {"ephemeralContainers": [container(rng, "e0") | {"resources": None, "ports": None, "livenessProbe": None, "lifecycle": None}]}}
            yield "ephemeral", ("PATCH", f"/api/v1/namespaces/ns{n}/pods/old{rng.randrange(4)}/ephemeralcontainers{dry}", clean(patch)), {"token": token, "kind": "application/strategic-merge-patch+json"}
        elif choice < 0.985:
            core, kind = f"/api/v1/namespaces/ns{n}", rng.choice(["resourcequotas", "limitranges"])
            body = quota(rng, f"q{case}") if kind == "resourcequotas" else limit_range(rng, f"l{case}")
            yield body["kind"], ("POST", f"{core}/{kind}{dry}", body), {"token": token}
        elif choice < 0.99:
            patch = {"spec": {"resources": {"requests": {"storage": rng.choice(["2Gi", "500Mi", "20Gi"])}}}}
            yield "claim", ("PATCH", f"/api/v1/namespaces/ns{n}/persistentvolumeclaims/claim{dry}", patch), {"token": token, "kind": "application/merge-patch+json"}
        else:
            labels = namespace(rng, n)["metadata"]["labels"]
            if rng.random() < 0.2:
                labels["pod-security.kubernetes.io/enforce"] = "strict"
            yield "namespace", ("PATCH", f"/api/v1/namespaces/ns{n}{dry}", {"metadata": {"labels": labels}}), {"token": token, "kind": "application/merge-patch+json"}


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    rng = random.Random(seed)
    enabled = OPTIONAL if len(sys.argv) > 4 else ""
    theirs, ours = start(folder, enabled)
    comparison = Comparison(theirs, ours, f"{folder}/differences.jsonl")
    set_up(rng, comparison)
    comparison.run(cases(rng, count))
    print(comparison.summary())


if __name__ == "__main__":
    main()
