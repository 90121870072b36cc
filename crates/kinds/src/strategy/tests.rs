//! Strategies, compared with a Go program that uses upstream's strategies.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use lockgate_api::meta::time::Time;

use crate::defaults::apply;
use crate::resource::{Resource, by_kind};
use crate::typed::type_of;

use super::*;

fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

fn load(api_version: &str, kind: &str, value: &Value) -> (&'static Resource, Value) {
    let (group, version) = split(api_version);
    let mut value = type_of(group, version, kind)
        .unwrap()
        .decode_value(value)
        .unwrap()
        .value;
    apply(group, version, kind, &mut value);
    (by_kind(group, version, kind).unwrap(), value)
}

fn with_context<R>(then: impl FnOnce(&Context<'_>) -> R) -> R {
    let (groups, extra) = ([String::from("g")], BTreeMap::new());
    let requester = Requester {
        name: "alice",
        uid: "u",
        groups: &groups,
        extra: &extra,
    };
    then(&Context::new(
        Time::from_unix_seconds(1_700_000_000),
        requester,
    ))
}

/// Creates an object, and returns the prepared object or the errors.
fn create(api_version: &str, kind: &str, value: Value) -> Result<Value, Vec<String>> {
    let (resource, mut value) = load(api_version, kind, &value);
    with_context(|context| prepare_create(resource, &mut value, context));
    let errors = with_context(|context| validate_create(resource, &value, context));
    if errors.is_empty() {
        canonicalize_stored(resource, &mut value);
        return Ok(value);
    }
    Err(errors.iter().map(ToString::to_string).collect())
}

/// Updates an object, and returns the prepared object or the errors.
fn update(
    (api_version, kind, subresource): (&str, &str, &str),
    old: &Value,
    value: &Value,
) -> Result<Value, Vec<String>> {
    let (resource, mut value) = load(api_version, kind, value);
    let (_, old) = load(api_version, kind, old);
    with_context(|context| prepare_update(resource, subresource, &mut value, &old, context));
    let errors =
        with_context(|context| validate_update(resource, subresource, &value, &old, context));
    if errors.is_empty() {
        return Ok(value);
    }
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.dedup();
    Err(texts)
}

fn pod(image: &str) -> Value {
    json!({"metadata": {"name": "p", "namespace": "n", "uid": "1", "resourceVersion": "1"},
        "spec": {"containers": [{"name": "a", "image": image}]}})
}

fn deployment(replicas: i64) -> Value {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "i"}]}});
    json!({"metadata": {"name": "d", "namespace": "n", "uid": "1", "resourceVersion": "1", "generation": 4},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template},
        "status": {"replicas": 7}})
}

#[test]
fn a_new_pod_is_pending_and_has_a_class() {
    let mut value = pod("i");
    value["status"] = json!({"phase": "Running"});
    let created = create("v1", "Pod", value).unwrap();
    assert_eq!(
        created["status"],
        json!({"phase": "Pending", "qosClass": "BestEffort"})
    );
    assert_eq!(created["metadata"]["generation"], 1);
}

#[test]
fn quality_of_service_follows_resources() {
    let class = |resources: Value| {
        quality_of_service(&json!({"spec": {"containers": [{"resources": resources}]}}))
    };
    let both = json!({"cpu": "1", "memory": "1Gi"});
    assert_eq!(class(json!({})), "BestEffort");
    assert_eq!(class(json!({"requests": {"cpu": "1"}})), "Burstable");
    assert_eq!(
        class(json!({"limits": both, "requests": both})),
        "Guaranteed"
    );
    assert_eq!(
        class(json!({"limits": both, "requests": {"cpu": "500m", "memory": "1Gi"}})),
        "Burstable"
    );
}

#[test]
fn graceful_deletion_waits_for_pods_that_run() {
    let running = json!({"spec": {"nodeName": "w", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}});
    assert_eq!(grace_period(&running, None), 30);
    assert_eq!(grace_period(&running, Some(5)), 5);
    assert_eq!(grace_period(&running, Some(-5)), 1);
    assert_eq!(grace_period(&pod("i"), None), 0);
    let ended = json!({"spec": {"nodeName": "w", "terminationGracePeriodSeconds": 30}, "status": {"phase": "Failed"}});
    assert_eq!(grace_period(&ended, None), 0);
}

#[test]
fn generations_rise_with_what_counts() {
    let kind = ("apps/v1", "Deployment", "");
    let generation = |value: &Value| value["metadata"]["generation"].clone();
    let same = update(kind, &deployment(1), &deployment(1)).unwrap();
    assert_eq!(generation(&same), 4);
    assert_eq!(
        generation(&update(kind, &deployment(1), &deployment(2)).unwrap()),
        5
    );
    let mut annotated = deployment(1);
    annotated["metadata"]["annotations"] = json!({"x": "y"});
    assert_eq!(
        generation(&update(kind, &deployment(1), &annotated).unwrap()),
        5
    );
    let mut labelled = deployment(1);
    labelled["metadata"]["labels"] = json!({"x": "y"});
    labelled["metadata"]["generation"] = json!(99);
    assert_eq!(
        generation(&update(kind, &deployment(1), &labelled).unwrap()),
        4
    );
}

#[test]
fn status_and_the_rest_are_written_apart() {
    let mut change = deployment(3);
    change["status"] = json!({"replicas": 9});
    change["metadata"]["labels"] = json!({"x": "y"});
    let whole = update(("apps/v1", "Deployment", ""), &deployment(1), &change).unwrap();
    assert_eq!(
        (&whole["spec"]["replicas"], &whole["status"]["replicas"]),
        (&json!(3), &json!(7))
    );
    let status = update(("apps/v1", "Deployment", "status"), &deployment(1), &change).unwrap();
    assert_eq!(
        (&status["spec"]["replicas"], &status["status"]["replicas"]),
        (&json!(1), &json!(9))
    );
    assert_eq!(status["metadata"].get("labels"), None);
    assert_eq!(status["metadata"]["generation"], 4);
    let created = create("apps/v1", "Deployment", deployment(1)).unwrap();
    assert_eq!(created["status"], json!({}));
}

#[test]
fn namespaces_carry_name_and_finalizer() {
    let created = create("v1", "Namespace", json!({"metadata": {"name": "n"}})).unwrap();
    assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(created["status"], json!({"phase": "Active"}));
    assert_eq!(
        created["metadata"]["labels"]["kubernetes.io/metadata.name"],
        "n"
    );
    let stored = json!({"metadata": {"name": "n", "uid": "1", "resourceVersion": "1"}, "spec": {"finalizers": ["kubernetes"]}});
    let without = json!({"metadata": {"name": "n", "resourceVersion": "1"}, "spec": {}});
    let whole = update(("v1", "Namespace", ""), &stored, &without).unwrap();
    assert_eq!(whole["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(whole["metadata"]["uid"], "1");
    let finalized = update(("v1", "Namespace", "finalize"), &stored, &without).unwrap();
    assert_eq!(finalized["spec"].get("finalizers"), None);
}

#[test]
fn jobs_select_by_their_uid() {
    let job = json!({"metadata": {"name": "j", "uid": "42"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}]}}}});
    let created = create("batch/v1", "Job", job).unwrap();
    assert_eq!(
        created["spec"]["selector"],
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "42"}})
    );
    assert_eq!(
        created["spec"]["template"]["metadata"]["labels"],
        json!({"job-name": "j", "batch.kubernetes.io/job-name": "j", "controller-uid": "42", "batch.kubernetes.io/controller-uid": "42"})
    );
}

#[test]
fn other_kinds_are_prepared() {
    let daemons = json!({"metadata": {"name": "d"}, "spec": deployment(1)["spec"]});
    let created = create("apps/v1", "DaemonSet", daemons).unwrap();
    assert_eq!(
        created["metadata"]["annotations"]["deprecated.daemonset.template.generation"],
        "1"
    );
    let account = json!({"metadata": {"name": "s"}, "secrets": [{"name": "x", "namespace": "y"}]});
    assert_eq!(
        create("v1", "ServiceAccount", account).unwrap()["secrets"],
        json!([{"name": "x"}])
    );
    let request = json!({"metadata": {"name": "c"}, "spec": {"request": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlISE1IQUNBUUF3RGpFTU1Bb0dBMVVFQXd3RFlXNXVNRmt3RXdZSEtvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRApRZ0FFdnVVWHg3cVRQL29DbldwN1RPZ0pCMTA1TEFuNGVmUHpzMUhSZC9RbTBtMENDTWRFVkJndEE2S2V2eHVqCm1XTE5UbHZYdVREYzBWTlNMUVN3STVnT2RxQUFNQW9HQ0NxR1NNNDlCQU1DQTBjQU1FUUNJRSthaStBb3J1ZTkKZ0pTblpCMzBJRXQrb0xhcUk1cDZIRHpJYXJQcTFqODdBaUJmZUVUKzU0dXVxbHVMVmczMWtVWWo5QUFEa2tGMgp1QjdtL0w1a0E3UGRTdz09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=", "signerName": "a.b/c", "usages": ["client auth"], "username": "root"}});
    let request = create(
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        request,
    )
    .unwrap();
    assert_eq!(request["spec"]["username"], "alice");
    let definition = json!({"metadata": {"name": "c"}, "spec": {"versions": [{"name": "v1", "storage": true}]}, "status": {"storedVersions": ["v0"]}});
    let (resource, mut definition) = load(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &definition,
    );
    with_context(|context| prepare_create(resource, &mut definition, context));
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    let volume = json!({"metadata": {"name": "v"}, "spec": {"hostPath": {"path": "/"}}});
    let (resource, mut volume) = load("v1", "PersistentVolume", &volume);
    with_context(|context| prepare_create(resource, &mut volume, context));
    assert_eq!(
        volume["status"]["lastPhaseTransitionTime"],
        "2023-11-14T22:13:20Z"
    );
}

#[test]
fn ephemeral_containers_change_nothing_else() {
    let mut change = pod("other");
    change["spec"]["ephemeralContainers"] = json!([{"name": "e", "image": "x"}]);
    change["metadata"]["labels"] = json!({"x": "y"});
    let updated = update(("v1", "Pod", "ephemeralcontainers"), &pod("i"), &change).unwrap();
    assert_eq!(updated["spec"]["containers"][0]["image"], "i");
    assert_eq!(updated["spec"]["ephemeralContainers"][0]["name"], "e");
    assert_eq!(updated["metadata"].get("labels"), None);
    // A resize must not change the QoS class, so both Pods are burstable.
    let (mut old, mut resized) = (pod("i"), pod("i"));
    old["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    resized["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}});
    resized["spec"]["nodeName"] = json!("w");
    let resized = update(("v1", "Pod", "resize"), &old, &resized).unwrap();
    assert_eq!(
        resized["spec"]["containers"][0]["resources"]["limits"]["cpu"],
        "1"
    );
    assert_eq!(resized["spec"].get("nodeName"), None);
}

#[test]
fn a_service_forgets_what_its_new_type_does_not_use() {
    let service = |kind: &str| {
        json!({"metadata": {"name": "s", "resourceVersion": "1", "uid": "1"},
            "spec": {"type": kind, "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
                "externalName": "a.b", "ports": [{"port": 80, "nodePort": 30000}]}})
    };
    let updated = update(
        ("v1", "Service", ""),
        &service("NodePort"),
        &service("ClusterIP"),
    )
    .unwrap();
    assert_eq!(updated["spec"]["ports"][0].get("nodePort"), None);
    let updated = update(
        ("v1", "Service", ""),
        &service("NodePort"),
        &service("ExternalName"),
    )
    .unwrap();
    assert_eq!(updated["spec"].get("clusterIP"), None);
}

#[test]
fn refuses_new_objects_in_upstreams_words() {
    let metadata = json!({"name": "x", "uid": "1"});
    for (api_version, kind, members, want) in [
        (
            "v1",
            "Pod",
            json!({"spec": {}}),
            vec!["spec.containers: Required value"],
        ),
        (
            "v1",
            "Pod",
            json!({"spec": {"containers": [{}]}}),
            vec![
                "spec.containers[0].name: Required value",
                "spec.containers[0].image: Required value",
            ],
        ),
        (
            "v1",
            "Pod",
            json!({"spec": {"containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/"}]}]}}),
            vec!["spec.containers[0].volumeMounts[0].name: Not found: \"v\""],
        ),
        (
            "v1",
            "Pod",
            json!({"spec": {"containers": [{"name": "a", "image": "i", "imagePullPolicy": "x"}]}}),
            vec![
                "spec.containers[0].imagePullPolicy: Unsupported value: \"x\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
            ],
        ),
        (
            "v1",
            "Pod",
            json!({"spec": {"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}]}}),
            vec![
                "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
            ],
        ),
        (
            "v1",
            "ConfigMap",
            json!({"data": {"..": "x"}}),
            vec!["data[..]: Invalid value: \"..\": must not be '..'"],
        ),
        (
            "v1",
            "ConfigMap",
            json!({"data": {"a": "x"}, "binaryData": {"a": ""}}),
            vec!["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"],
        ),
        (
            "v1",
            "ConfigMap",
            json!({"data": {"a": "x".repeat(1_048_577)}}),
            vec!["[]: Too long: may not be more than 1048576 bytes"],
        ),
        (
            "v1",
            "Secret",
            json!({"type": "kubernetes.io/tls"}),
            vec![
                "data[tls.crt]: Required value",
                "data[tls.key]: Required value",
            ],
        ),
        (
            "v1",
            "Service",
            json!({"spec": {}}),
            vec!["spec.ports: Required value"],
        ),
        (
            "v1",
            "Service",
            json!({"spec": {"ports": [{"port": 70000}]}}),
            vec![
                "spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
                "spec.ports[0].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            ],
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "Role",
            json!({"rules": [{}]}),
            vec![
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ],
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            json!({"roleRef": {"kind": "X", "name": "r"}}),
            vec![
                "roleRef.kind: Unsupported value: \"X\": supported values: \"Role\", \"ClusterRole\"",
            ],
        ),
        (
            "apps/v1",
            "Deployment",
            json!({"spec": {"selector": {"matchLabels": {"a": "c"}}, "template": deployment(1)["spec"]["template"]}}),
            vec![
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
            ],
        ),
        (
            "apps/v1",
            "Deployment",
            json!({"spec": {"template": deployment(1)["spec"]["template"]}}),
            vec![
                "spec.selector: Required value",
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
            ],
        ),
    ] {
        let mut object = members;
        object["metadata"] = metadata.clone();
        let errors = create(api_version, kind, object.clone()).unwrap_err();
        assert_eq!(errors, want, "{kind}");
    }
    let errors = create("v1", "ConfigMap", json!({"metadata": {"name": "A"}})).unwrap_err();
    assert!(
        errors[0]
            .starts_with("metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain")
    );
}

#[test]
fn refuses_changes_in_upstreams_words() {
    let update_of = |kind, old: Value, new: Value| update(kind, &old, &new).unwrap_err();
    let config = |immutable: bool, value: &str| json!({"metadata": {"name": "c", "uid": "1", "resourceVersion": "1"}, "immutable": immutable, "data": {"a": value}});
    assert_eq!(
        update_of(
            ("v1", "ConfigMap", ""),
            config(true, "x"),
            config(true, "y")
        ),
        ["data: Forbidden: field is immutable when `immutable` is set"]
    );
    let mut other = deployment(1);
    other["spec"]["selector"] = json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]});
    assert_eq!(
        update_of(("apps/v1", "Deployment", ""), deployment(1), other),
        [
            "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"},\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Exists\"}]}: field is immutable"
        ]
    );
    let binding = |role: &str| json!({"metadata": {"name": "b", "uid": "1", "resourceVersion": "1"}, "roleRef": {"kind": "Role", "name": role}});
    assert_eq!(
        update_of(
            ("rbac.authorization.k8s.io/v1", "RoleBinding", ""),
            binding("a"),
            binding("b")
        ),
        [
            "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"b\"}: cannot change roleRef"
        ]
    );
    assert!(update(("v1", "Pod", ""), &pod("i"), &pod("j")).is_ok());
    let mut moved = pod("i");
    moved["spec"]["nodeName"] = json!("w");
    let errors = update_of(("v1", "Pod", ""), pod("i"), moved);
    assert!(errors[0].starts_with("spec: Forbidden: pod updates may not change fields other than"));
}

#[test]
fn app_armor_annotations_become_fields() {
    let annotated = |profile: &str, of_pod: Value| {
        let key = "container.apparmor.security.beta.kubernetes.io/a";
        let mut pod = pod("i");
        pod["metadata"]["annotations"] = json!({key: profile});
        pod["spec"]["securityContext"] = json!({"appArmorProfile": of_pod});
        let (resource, value) = load("v1", "Pod", &pod);
        let warnings = resource.rules.warnings_on_prepare(&value);
        let field = create("v1", "Pod", pod).map(|mut pod| {
            pod["spec"]["containers"][0]["securityContext"]["appArmorProfile"].take()
        });
        (field, warnings.len())
    };
    let none = Value::Null;
    assert_eq!(
        annotated("unconfined", none.clone()),
        (Ok(json!({"type": "Unconfined"})), 1)
    );
    assert_eq!(
        annotated("localhost/x", none.clone()),
        (Ok(json!({"type": "Localhost", "localhostProfile": "x"})), 1)
    );
    // The Pod has the same profile already.
    let of_pod = json!({"type": "RuntimeDefault"});
    assert_eq!(
        annotated("runtime/default", of_pod.clone()),
        (Ok(none.clone()), 0)
    );
    assert_eq!(
        annotated("unconfined", of_pod),
        (Ok(json!({"type": "Unconfined"})), 1)
    );
    let (refused, warnings) = annotated("nonsense", none);
    assert!(refused.is_err());
    assert_eq!(warnings, 1);
}

#[test]
fn only_processor_and_memory_are_resized() {
    let sized = |resources: Value| {
        let mut pod = pod("i");
        pod["spec"]["containers"][0]["resources"] = resources;
        pod
    };
    let resize = |to: Value| {
        let from = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}});
        update(("v1", "Pod", "resize"), &sized(from), &sized(to)).unwrap_err()
    };
    let grown = json!({"requests": {"cpu": "1500m", "memory": "2Gi"}, "limits": {"cpu": "3"}});
    let grown = update(
        ("v1", "Pod", "resize"),
        &sized(json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}})),
        &sized(grown),
    );
    assert!(grown.is_ok(), "{grown:?}");
    assert_eq!(
        resize(
            json!({"requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}, "limits": {"cpu": "2"}})
        ),
        ["spec: Forbidden: only cpu and memory resources are mutable"]
    );
    assert_eq!(
        resize(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}})),
        ["spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"]
    );
}

#[test]
fn warns_of_pods_whose_name_is_no_label() {
    let (resource, value) = load("v1", "Pod", &json!({"metadata": {"name": "a.b"}}));
    assert_eq!(
        with_context(|context| warnings_on_create(resource, &value, context)),
        [
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"
        ]
    );
}

#[test]
fn finalizers_are_known_or_belong_to_a_domain() {
    let with = |finalizers: &[&str]| json!({"metadata": {"name": "a", "namespace": "n", "finalizers": finalizers}});
    let error = "metadata.finalizers[1]: Invalid value: \"mine\": name is neither a standard \
                 finalizer name nor is it fully qualified";
    let right = ["orphan", "kubernetes", "example.com/mine"];
    assert!(create("v1", "ConfigMap", with(&right)).is_ok());
    let wrong = with(&["foregroundDeletion", "mine"]);
    assert_eq!(
        create("v1", "ConfigMap", wrong.clone()),
        Err(vec![error.to_owned()])
    );
    let mut stored = with(&[]);
    stored["metadata"]["uid"] = "1".into();
    stored["metadata"]["resourceVersion"] = "1".into();
    let mut changed = stored.clone();
    changed["metadata"]["finalizers"] = json!(["orphan", "mine"]);
    let errors = update(("v1", "ConfigMap", ""), &stored, &changed).unwrap_err();
    assert_eq!(errors, [error]);
    for kind in ["Role", "ClusterRole"] {
        let api_version = "rbac.authorization.k8s.io/v1";
        let errors = create(api_version, kind, wrong.clone()).unwrap_err();
        assert!(errors.contains(&error.to_owned()), "{kind}: {errors:?}");
    }
    // Some kinds only have the generic metadata validation.
    let budget = create("policy/v1", "PodDisruptionBudget", wrong);
    assert!(budget.is_ok(), "{budget:?}");
}

/// A kind that follows the instructions in `CONTRIBUTING.md`.
#[derive(Debug)]
struct Gadget;

static GADGETS: Resource = crate::kind::namespaced(
    "test.k8s.io",
    "v1",
    "gadgets",
    "gadget",
    "Gadget",
    "GadgetList",
    &Gadget,
)
.generation(crate::kind::SPEC);

impl crate::kind::Kind for Gadget {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, |object| {
            if let Some(spec) = open(object, "spec") {
                crate::object::fill(spec, "size", 1);
            }
        });
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        let at = crate::at::At::root(new.object(), "spec");
        at.at("size").non_negative(errors);
    }

    fn columns(&self) -> &'static str {
        "Name|Size:integer|Age"
    }

    fn deletion(&self) -> crate::kind::Deletion {
        crate::kind::Deletion::default().returning_object()
    }
}

#[test]
fn a_kind_says_only_how_it_differs() {
    let mut gadget = json!({"metadata": {"name": "g", "namespace": "n"}});
    GADGETS.rules.apply_defaults(&mut gadget);
    with_context(|context| {
        prepare_create(&GADGETS, &mut gadget, context);
        assert_eq!(gadget["metadata"]["generation"], 1);
        assert_eq!(gadget["spec"]["size"], 1);
        assert_eq!(validate_create(&GADGETS, &gadget, context), []);
        let mut changed = gadget.clone();
        changed["spec"]["size"] = json!(-1);
        changed["metadata"]["resourceVersion"] = json!("1");
        prepare_update(&GADGETS, "", &mut changed, &gadget, context);
        assert_eq!(changed["metadata"]["generation"], 2);
        let errors = validate_update(&GADGETS, "", &changed, &gadget, context);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let wanted = "spec.size: Invalid value: -1: must be greater than or equal to 0";
        assert_eq!(texts, [wanted]);
    });
    assert!(GADGETS.rules.deletion().returns_object);
    assert!(GADGETS.rules.field_selectors().is_none());
}

#[test]
fn a_configuration_that_does_not_decode_is_refused() {
    let resource = by_kind(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
    )
    .unwrap();
    let broken = json!({"metadata": {"name": "a"}, "webhooks": [{"name": 7}]});
    with_context(|context| {
        let errors = validate_create(resource, &broken, context);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].error_type.reason(), "InternalError");
        let valid = json!({"metadata": {"name": "a", "resourceVersion": "1"}});
        let errors = validate_update(resource, "", &valid, &broken, context);
        assert!(
            errors
                .iter()
                .any(|error| error.error_type.reason() == "InternalError")
        );
    });
}
