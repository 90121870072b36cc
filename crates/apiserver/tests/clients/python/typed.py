"""The typed client: what it makes, lists, watches, patches and deletes is what the server has."""

from kubernetes import client, config, utils, watch

config.load_kube_config()
api = client.ApiClient()
core = client.CoreV1Api(api)
apps = client.AppsV1Api(api)

version = client.VersionApi(api).get_code()
assert (version.major, version.minor) == ("1", "36"), version
names = [namespace.metadata.name for namespace in core.list_namespace().items]
assert {"default", "kube-system"} <= set(names), names

made = core.create_namespaced_config_map(
    "default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="py1"), data={"a": "b"})
)
assert made.metadata.uid and made.metadata.creation_timestamp, made
manager = made.metadata.managed_fields[0]
assert (manager.manager, manager.operation) == ("OpenAPI-Generator", "Update"), manager
# Dictionaries are merged, lists are JSON patches.
patched = core.patch_namespaced_config_map("py1", "default", {"data": {"c": "d"}})
assert patched.data == {"a": "b", "c": "d"}, patched
patched = core.patch_namespaced_config_map(
    "py1", "default", [{"op": "add", "path": "/data/e", "value": "f"}]
)
assert patched.data["e"] == "f", patched
found = core.read_namespaced_config_map("py1", "default")
found.data["z"] = "1"
replaced = core.replace_namespaced_config_map("py1", "default", found)
assert int(replaced.metadata.resource_version) > int(found.metadata.resource_version)
try:
    core.replace_namespaced_config_map("py1", "default", found)
    raise AssertionError("an old version was taken")
except client.ApiException as error:
    assert error.status == 409, error
    assert "the object has been modified" in error.body, error.body

seen = watch.Watch()
events = []
for event in seen.stream(core.list_namespaced_config_map, "default", timeout_seconds=20):
    events.append((event["type"], event["object"].metadata.name))
    if len(events) == 1:
        core.delete_namespaced_config_map("py1", "default")
    if event["type"] == "DELETED":
        seen.stop()
assert events == [("ADDED", "py1"), ("DELETED", "py1")], events

page = core.list_namespace(limit=1)
assert len(page.items) == 1 and page.metadata._continue, page.metadata
rest = core.list_namespace(limit=1, _continue=page.metadata._continue)
assert rest.items[0].metadata.name != page.items[0].metadata.name

try:
    core.read_namespaced_pod("none", "default")
    raise AssertionError("there is no such pod")
except client.ApiException as error:
    assert (error.status, error.reason) == (404, "Not Found"), error
container = client.V1Container(name="c", image="nginx")
pod = core.create_namespaced_pod(
    "default",
    client.V1Pod(metadata=client.V1ObjectMeta(name="pypod"), spec=client.V1PodSpec(containers=[container])),
)
assert pod.spec.restart_policy == "Always" and pod.status.phase == "Pending", pod
dry = core.delete_namespaced_pod("pypod", "default", dry_run="All")
assert dry is not None and core.read_namespaced_pod("pypod", "default")

utils.create_from_yaml(api, "dep.yaml")
deployment = apps.read_namespaced_deployment("dep1", "default")
assert deployment.spec.replicas == 1, deployment.spec
scale = apps.patch_namespaced_deployment_scale("dep1", "default", {"spec": {"replicas": 4}})
assert scale.spec.replicas == 4, scale
status = apps.patch_namespaced_deployment_status("dep1", "default", {"status": {"replicas": 4}})
assert status.status.replicas == 4, status
assert apps.list_namespaced_deployment("default", label_selector="app=x").items
assert not apps.list_namespaced_deployment("default", label_selector="app=y").items
apps.delete_collection_namespaced_deployment("default", label_selector="app=x")
assert not apps.list_namespaced_deployment("default").items

review = client.AuthorizationV1Api(api).create_self_subject_access_review(
    client.V1SelfSubjectAccessReview(
        spec=client.V1SelfSubjectAccessReviewSpec(
            resource_attributes=client.V1ResourceAttributes(verb="create", resource="pods", namespace="default")
        )
    )
)
assert review.status.allowed, review
