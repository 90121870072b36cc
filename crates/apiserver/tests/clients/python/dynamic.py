"""The dynamic client: kinds it learns from the server, among them one that was defined a moment ago."""

import yaml
from kubernetes import client, config, dynamic
from kubernetes.dynamic.exceptions import NotFoundError, UnprocessibleEntityError

config.load_kube_config()
api = client.ApiClient()
kinds = dynamic.DynamicClient(api)

deployments = kinds.resources.get(api_version="apps/v1", kind="Deployment")
assert deployments.get(namespace="default").items == []
maps = kinds.resources.get(api_version="v1", kind="ConfigMap")
applied = kinds.server_side_apply(
    maps,
    name="py2",
    namespace="default",
    field_manager="py",
    body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "py2"}, "data": {"a": "1"}},
)
assert applied.metadata.managedFields[0].operation == "Apply", applied
patched = maps.patch(
    name="py2",
    namespace="default",
    body={"metadata": {"name": "py2"}, "data": {"a": "2"}},
    content_type="application/merge-patch+json",
)
assert patched.data.a == "2", patched
gone = maps.delete(name="py2", namespace="default")
assert (gone.kind, gone.status, gone.details.kind) == ("Status", "Success", "configmaps"), gone

definitions = kinds.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
with open("crd.yaml") as file:
    definitions.create(body=yaml.safe_load(file))
for event in definitions.watch(name="widgets.ex.com", timeout=20):
    conditions = (event["raw_object"].get("status") or {}).get("conditions") or []
    if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
        break
kinds.resources.invalidate_cache()
widgets = kinds.resources.get(api_version="ex.com/v1", kind="Widget")
with open("cr.yaml") as file:
    made = widgets.create(body=yaml.safe_load(file), namespace="default")
assert (made.spec.color, made.spec.size) == ("blue", 3), made
try:
    with open("crbad.yaml") as file:
        widgets.create(body=yaml.safe_load(file), namespace="default")
    raise AssertionError("it is too big")
except UnprocessibleEntityError as error:
    assert "too big" in str(error.body), error.body
merge = "application/merge-patch+json"
widgets.patch(name="w1", namespace="default", body={"spec": {"size": 7}}, content_type=merge)
widgets.status.patch(name="w1", namespace="default", body={"status": {"size": 7}}, content_type=merge)
scale = widgets.scale.get(name="w1", namespace="default")
assert (scale.kind, scale.spec.replicas, scale.status.replicas) == ("Scale", 7, 7), scale
assert [each.metadata.name for each in widgets.get(field_selector="spec.color=blue").items] == ["w1"]
widgets.delete(name="w1", namespace="default")
try:
    widgets.get(name="w1", namespace="default")
    raise AssertionError("it is gone")
except NotFoundError:
    pass
