//! Single responses, each as kube-apiserver returns it.

use http::Method;
use lockgate_kinds::protobuf::Envelope;
use lockgate_testkit::{ScriptedResponse as Script, WebhookServer};
use serde_json::{Value, json};

use crate::support::*;

const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PARTIAL: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

#[tokio::test]
async fn a_resource_version_is_refused_where_an_object_is_stored() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let versioned = |version: &str| {
        let mut object = config_map("a");
        object["metadata"]["resourceVersion"] = version.into();
        object
    };
    let tried = client
        .post(&format!("{CONFIG_MAPS}?dryRun=All"), &versioned("5"))
        .await
        .expect(201);
    assert_eq!(tried["metadata"]["resourceVersion"], "5");
    client.post(CONFIG_MAPS, &versioned("5")).await.refused(
        500,
        "",
        "resourceVersion should not be set on objects to be created",
    );
    client
        .post(CONFIG_MAPS, &versioned("abc"))
        .await
        .expect(201);
    server.stop().await;
}

#[tokio::test]
async fn lists_without_elements_are_null_where_they_are_always_told() {
    let server = start().await;
    let client = Client::admin(&server).await;
    for (name, rules) in [("null", Value::Null), ("empty", json!([]))] {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        let made = client.create(CLUSTER_ROLES, role).await;
        assert_eq!(made.get("rules"), Some(&Value::Null), "{name}");
        let read = client.get(&format!("{CLUSTER_ROLES}/{name}")).await;
        assert_eq!(read.json().get("rules"), Some(&Value::Null), "{name}");
    }
    server.stop().await;
}

#[tokio::test]
async fn built_in_kinds_begin_with_their_kind_and_custom_ones_are_sorted() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let made = client.post(CONFIG_MAPS, &config_map("a")).await;
    let widget = json!({
        "kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "w"}, "spec": {},
    });
    let custom = client.post(WIDGETS, &widget).await;
    let patch = json!({"data": {"b": "2"}});
    let one = format!("{CONFIG_MAPS}/a");
    let table = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let partial = (
        "accept",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    );
    for (answer, beginning) in [
        (made, r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":"#),
        (
            client.patch(&one, "merge", &patch).await,
            r#"{"kind":"ConfigMap","apiVersion":"v1","#,
        ),
        (
            client.get(&one).await,
            r#"{"kind":"ConfigMap","apiVersion":"v1","#,
        ),
        (
            client.request(Method::GET, &one, &[table], "").await,
            r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","#,
        ),
        (
            client.request(Method::GET, &one, &[partial], "").await,
            r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","#,
        ),
        (
            client.delete(&one).await,
            r#"{"kind":"Status","apiVersion":"v1","#,
        ),
        (client.get("/api/v1").await, r#"{"kind":"APIResourceList","#),
        (
            custom,
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":"#,
        ),
        (
            client.get(WIDGETS).await,
            r#"{"apiVersion":"example.com/v1","items":[{"apiVersion":"#,
        ),
    ] {
        let text = answer.text();
        assert!(text.starts_with(beginning), "{text}\n  not\n{beginning}");
    }
    server.stop().await;
}

#[tokio::test]
async fn reviews_have_no_table() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    client
        .with("accept", table)
        .post(path, &review)
        .await
        .refused(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf",
        );
    client
        .with("accept", &format!("{table},application/json"))
        .post(path, &review)
        .await
        .expect(201);
    server.stop().await;
}

#[tokio::test]
async fn a_timeout_that_is_none_is_refused_everywhere() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let stranger = Client::anonymous(&server).await;
    for client in [client, stranger] {
        for path in ["/version", "/healthz", CONFIG_MAPS] {
            client
                .get(&format!("{path}?timeout=invalid"))
                .await
                .refused(
                    400,
                    "BadRequest",
                    "invalid timeout specified in the request URL - time: invalid duration \"invalid\"",
                );
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn head_is_answered_where_upstream_has_a_route_for_it() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    for (path, code) in [
        ("/version", 405),
        ("/api", 405),
        ("/api/v1", 405),
        ("/apis/apps/v1", 405),
        ("/api/v1/namespaces/default", 405),
        (CONFIG_MAPS, 405),
        ("/apis", 200),
        ("/apis/apps", 200),
        ("/apis/example.com/v1", 200),
        (WIDGETS, 200),
        ("/healthz", 200),
        ("/readyz", 200),
        ("/openapi/v3", 200),
        ("/nope", 404),
    ] {
        let answer = client.request(Method::HEAD, path, &[], "").await;
        assert_eq!(answer.code, code, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_scale_can_be_applied() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(DEPLOYMENTS, deployment("d")).await;
    let scale = |name: &str, spec: Value| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": spec});
    let path = |name: &str, force: bool| {
        format!("{DEPLOYMENTS}/{name}/scale?fieldManager=s&force={force}")
    };
    let manager = client.get(&format!("{DEPLOYMENTS}/d")).await.json()["metadata"]["managedFields"]
        [0]["manager"]
        .clone();
    let three = scale("d", json!({"replicas": 3}));
    client
        .patch(&path("d", false), "apply", &three)
        .await
        .refused(
            409,
            "Conflict",
            &format!(
                "Apply failed with 1 conflict: conflict with {manager} using autoscaling/v1: .spec.replicas"
            ),
        );
    let applied = client
        .patch(&path("d", true), "apply", &three)
        .await
        .expect(200);
    assert_eq!(applied["kind"], "Scale");
    assert_eq!(applied["spec"], json!({"replicas": 3}));
    let parent = client.get(&format!("{DEPLOYMENTS}/d")).await.expect(200);
    assert_eq!(parent["spec"]["replicas"], 3);
    let owner = parent["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["manager"] == "s")
        .unwrap();
    assert_eq!(
        (
            &owner["operation"],
            &owner["subresource"],
            &owner["apiVersion"]
        ),
        (&json!("Apply"), &json!("scale"), &json!("apps/v1"))
    );
    assert_eq!(owner["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    client
        .patch(&path("d", true), "apply", &deployment("d"))
        .await
        .refused(
            400,
            "BadRequest",
            "invalid object type: apps/v1, Kind=Deployment",
        );
    client
        .patch(&path("d", true), "apply", &scale("other", json!({})))
        .await
        .refused(
            400,
            "BadRequest",
            "the name of the object (other) does not match the name on the URL (d)",
        );
    client
        .patch(&path("nope", true), "apply", &scale("nope", json!({})))
        .await
        .refused(404, "NotFound", "deployments.apps \"nope\" not found");
    server.stop().await;
}

#[tokio::test]
async fn keys_that_stand_twice_in_a_patch_are_found() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let yaml = "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: w\nspec:\n  foo: foo1\n  foo: foo2\n  deep:\n  - a: 1\n    a: 2\n";
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{WIDGETS}/w?fieldManager=m");
    client
        .request(
            Method::PATCH,
            &format!("{path}&fieldValidation=Strict"),
            &headers,
            yaml,
        )
        .await
        .refused(
            400,
            "BadRequest",
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  \
             line 7: key \"foo\" already set in map\n  line 10: key \"a\" already set in map",
        );
    let answer = client
        .request(
            Method::PATCH,
            &format!("{path}&fieldValidation=Warn"),
            &headers,
            yaml,
        )
        .await;
    assert_eq!(
        answer.warnings(),
        [
            "line 7: key \"foo\" already set in map",
            "line 10: key \"a\" already set in map"
        ]
    );
    assert_eq!(answer.expect(201)["spec"]["foo"], "foo2");
    client.create(CONFIG_MAPS, config_map("c")).await;
    let strict = format!("{CONFIG_MAPS}/c?fieldValidation=Strict");
    let merge = [("content-type", "application/merge-patch+json")];
    let twice = r#"{"data":{"x":"1","x":"2"}}"#;
    let answer = client.request(Method::PATCH, &strict, &merge, twice).await;
    assert_eq!(answer.code, 422);
    assert!(
        answer
            .text()
            .contains(r#"strict decoding error: duplicate field \"data.x\""#),
        "{}",
        answer.text()
    );
    // The message includes the object with its unknown fields.
    let json_patch = [("content-type", "application/json-patch+json")];
    for (media_type, patch) in [
        (merge, r#"{"unknownMember":1}"#),
        (
            json_patch,
            r#"[{"op":"add","path":"/unknownMember","value":1}]"#,
        ),
    ] {
        let answer = client
            .request(Method::PATCH, &strict, &media_type, patch)
            .await;
        assert_eq!(answer.code, 422);
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(r#"\"unknownMember\":1"#), "{message}");
        let why = r#"strict decoding error: unknown field "unknownMember""#;
        assert!(message.ends_with(why), "{message}");
    }
    server.stop().await;
}

#[tokio::test]
async fn versions_of_definitions_are_in_the_order_of_their_stability() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let versions = json!([
        open_version("v1beta1", false),
        open_version("foo", false),
        open_version("v1", true),
        open_version("v10", false),
        open_version("v2", false),
    ]);
    client.create(DEFINITIONS, definition(versions)).await;
    let group = client.get("/apis/example.com").await.expect(200);
    let listed: Vec<&str> = group["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| version["version"].as_str().unwrap())
        .collect();
    assert_eq!(listed, ["v10", "v2", "v1", "v1beta1", "foo"]);
    assert_eq!(group["preferredVersion"]["version"], "v10");
    server.stop().await;
}

#[tokio::test]
async fn a_rule_for_a_version_that_is_not_served_is_equivalent() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut hidden = open_version("v2", false);
    hidden["served"] = false.into();
    client
        .create(
            DEFINITIONS,
            definition(json!([open_version("v1", true), hidden])),
        )
        .await;
    let hooks = WebhookServer::start().await;
    hooks.script("/", [Script::allow()]);
    let mut configuration = hook(
        "ValidatingWebhookConfiguration",
        "hidden",
        &hooks.url("/"),
        hooks.ca_pem(),
    );
    configuration["webhooks"][0]["matchPolicy"] = "Equivalent".into();
    configuration["webhooks"][0]["rules"] = json!([{
        "apiGroups": ["example.com"], "apiVersions": ["v2"], "operations": ["*"],
        "resources": ["widgets"],
    }]);
    client.create(VALIDATING, configuration).await;
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    client.create(WIDGETS, widget).await;
    let review = hooks.requests()[0].json();
    assert_eq!(review["request"]["kind"]["version"], "v2");
    assert_eq!(review["request"]["requestKind"]["version"], "v1");
    assert_eq!(review["request"]["object"]["apiVersion"], "example.com/v2");
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn new_nodes_are_tainted() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let node = client
        .create("/api/v1/nodes", json!({"metadata": {"name": "n"}}))
        .await;
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
    server.stop().await;
}

#[tokio::test]
async fn addresses_are_kept_by_services_that_are_stored_alone() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let service = |name: &str, kind: &str| json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}});
    let ports = |service: &Value| service["spec"]["ports"][0]["nodePort"].as_u64().unwrap();
    let tried = client
        .post(&format!("{SERVICES}?dryRun=All"), &service("a", "NodePort"))
        .await
        .expect(201);
    let made = client.create(SERVICES, service("a", "NodePort")).await;
    // A dry run allocates nothing; the port in its response is not allocated.
    assert_eq!(made["spec"]["clusterIP"], tried["spec"]["clusterIP"]);
    assert_eq!(ports(&made), 30_000);
    // An existing name, and an invalid Service.
    client.post(SERVICES, &service("a", "NodePort")).await;
    let mut wrong = service("b", "NodePort");
    wrong["spec"]["ports"][0]["port"] = 0.into();
    client.post(SERVICES, &wrong).await;
    let next = client.create(SERVICES, service("b", "NodePort")).await;
    assert_eq!(ports(&next), ports(&made) + 1, "failures keep nothing");
    // A port released by an update is free, also if the first update is a dry run.
    let path = format!("{SERVICES}/b");
    let plain = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": null}]}});
    for query in ["?dryRun=All", ""] {
        client
            .patch(&format!("{path}{query}"), "merge", &plain)
            .await
            .expect(200);
    }
    let third = client.create(SERVICES, service("c", "NodePort")).await;
    assert_eq!(ports(&third), ports(&next));
    server.stop().await;
}

/// Recorded from kube-apiserver v1.36.4: a dry run checks for allocated ports, but not for the range.
#[tokio::test]
async fn node_ports_that_are_named_have_to_be_free() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let service = |name: &str, ports: Value| json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": ports}});
    let one = |port: i64| json!([{"name": "a", "port": 80, "nodePort": port}]);
    let refused = |answer: Answer, name: &str, index: usize, port: i64, why: &str| {
        let message = format!(
            "Service \"{name}\" is invalid: spec.ports[{index}].nodePort: Invalid value: {port}: provided port is {why}"
        );
        answer.refused(422, "Invalid", &message);
    };
    let taken = "already allocated";
    let beyond = "not in the valid range. The range of valid ports is 30000-32767";
    client.create(SERVICES, service("a", one(30_100))).await;
    client.create(SERVICES, service("b", one(30_101))).await;
    let dry = format!("{SERVICES}?dryRun=All");
    for path in [SERVICES, &dry] {
        refused(
            client.post(path, &service("c", one(30_100))).await,
            "c",
            0,
            30_100,
            taken,
        );
        let twice = json!([{"name": "a", "port": 80, "nodePort": 30_102}, {"name": "b", "port": 81, "nodePort": 30_102}]);
        refused(
            client.post(path, &service("c", twice)).await,
            "c",
            1,
            30_102,
            taken,
        );
        let query = path.trim_start_matches(SERVICES);
        let patch = json!({"spec": {"ports": [{"port": 80, "nodePort": 30_100}]}});
        let answer = client
            .patch(&format!("{SERVICES}/b{query}"), "strategic", &patch)
            .await;
        refused(answer, "b", 0, 30_100, taken);
    }
    refused(
        client.post(SERVICES, &service("c", one(80))).await,
        "c",
        0,
        80,
        beyond,
    );
    client.post(&dry, &service("c", one(80))).await.expect(201);
    // A rejected Service allocates nothing, and ports of the same number share an explicit node port.
    let shared = json!([{"name": "a", "port": 53, "protocol": "TCP"}, {"name": "b", "port": 53, "protocol": "UDP", "nodePort": 30_102}]);
    let made = client.create(SERVICES, service("c", shared)).await;
    assert_eq!(made["spec"]["ports"][0]["nodePort"], 30_102);
    let balancer = json!({"metadata": {"name": "d"}, "spec": {
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30_100, "ports": [{"port": 80}],
    }});
    client.post(SERVICES, &balancer).await.refused(
        500,
        "InternalError",
        "Internal error occurred: failed to allocate requested HealthCheck NodePort 30100: provided port is \
         already allocated",
    );
    // A released port can be allocated again.
    client.delete(&format!("{SERVICES}/a")).await.expect(200);
    client.create(SERVICES, service("e", one(30_100))).await;
    server.stop().await;
}

/// A CustomResourceDefinition whose versions prune, with a webhook that patches created objects.
async fn patched_by(
    client: &Client,
    hooks: &WebhookServer,
    group: &str,
    resource: &str,
    patch: &Value,
) {
    client.delete(&format!("{MUTATING}/patching")).await;
    hooks.script("/patch", [Script::patch(patch)]);
    let mut configuration = hook(
        "MutatingWebhookConfiguration",
        "patching",
        &hooks.url("/patch"),
        hooks.ca_pem(),
    );
    configuration["webhooks"][0]["rules"] = json!([{
        "apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
        "resources": [resource],
    }]);
    client.create(MUTATING, configuration).await;
}

#[tokio::test]
async fn metadata_that_a_webhook_spoils_is_dropped() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let add = |path: &str, value: Value| json!([{"op": "add", "path": path, "value": value}]);
    for (path, value) in [
        ("/metadata/labels", json!(5)),
        ("/metadata/labels", json!({"a": 5})),
        ("/metadata/annotations", json!(["a"])),
        ("/metadata/finalizers", json!("x")),
        ("/metadata/generateName", json!(5)),
        ("/metadata/uid", json!(5)),
        ("/metadata/creationTimestamp", json!("bad")),
        ("/metadata/deletionGracePeriodSeconds", json!("x")),
        ("/metadata/managedFields", json!("x")),
        ("/metadata/managedFields", json!(["x"])),
        ("/metadata/managedFields", json!([{"manager": 5}])),
    ] {
        patched_by(
            &client,
            &hooks,
            "example.com",
            "widgets",
            &add(path, value.clone()),
        )
        .await;
        let made = client.create(WIDGETS, widget.clone()).await;
        assert_ne!(made.pointer(path), Some(&value), "{path}");
        let changed = client
            .patch(&format!("{WIDGETS}/w"), "merge", &json!({"spec": {"a": 1}}))
            .await
            .expect(200);
        assert_ne!(changed.pointer(path), Some(&value), "{path}");
        assert_eq!(changed["metadata"]["uid"], made["metadata"]["uid"]);
        client.delete(&format!("{WIDGETS}/w")).await.expect(200);
    }
    let refused = |patch: Value| {
        let (client, hooks, widget) = (&client, &hooks, &widget);
        async move {
            patched_by(client, hooks, "example.com", "widgets", &patch).await;
            let answer = client.post(WIDGETS, widget).await;
            let status = answer.json();
            (
                answer.code,
                status["message"].as_str().unwrap_or_default().to_owned(),
            )
        }
    };
    assert_eq!(
        refused(add("/metadata/name", json!(5))).await,
        (
            422,
            String::from(
                "Widget.example.com \"\" is invalid: metadata.name: Required value: name or generateName is required"
            )
        )
    );
    assert_eq!(
        refused(add("/metadata", json!("x"))).await,
        (
            500,
            String::from("Internal error occurred: system metadata was not initialized")
        )
    );
    let references = add("/metadata/ownerReferences", json!([{"name": 5}]));
    let (code, message) = refused(references).await;
    assert_eq!(code, 422);
    assert!(
        message.ends_with("metadata.ownerReferences.uid: Invalid value: \"\": must not be empty]"),
        "{message}"
    );
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn metadata_that_a_webhook_spoils_is_refused_on_its_way_into_another_version() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    let versions = json!([open_version("v1", false), open_version("v2", true)]);
    client.create(DEFINITIONS, definition(versions)).await;
    let widget = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
    client.create(WIDGETS, widget("old")).await;
    for (path, value, message) in [
        (
            "/metadata/annotations",
            json!(["a"]),
            "json: cannot unmarshal array into Go struct field ObjectMeta.annotations of type map[string]string",
        ),
        (
            "/metadata/labels",
            json!({"a": 5}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
        ),
    ] {
        let patch = json!([{"op": "add", "path": path, "value": value}]);
        patched_by(&client, &hooks, "example.com", "widgets", &patch).await;
        let made = client.post(WIDGETS, &widget("new")).await;
        let change = json!({"spec": {"a": 1}});
        let changed = client
            .patch(&format!("{WIDGETS}/old"), "merge", &change)
            .await;
        for answer in [made, changed] {
            assert_eq!(answer.code, 500, "{}", answer.text());
            assert_eq!(answer.json()["message"], message);
        }
    }
    hooks.stop().await;
    server.stop().await;
}

/// Returns true if the audit event of a request records a mutation by its first webhook.
fn is_mutated(log: &std::path::Path, id: &str) -> bool {
    let text = std::fs::read_to_string(log).unwrap();
    let event: Value = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|event| event["auditID"] == id && event["stage"] == "ResponseComplete")
        .unwrap();
    let key = "mutation.webhook.admission.k8s.io/round_0_index_0";
    let told = event["annotations"][key].as_str().unwrap();
    let told: Value = serde_json::from_str(told).unwrap();
    told["mutated"].as_bool().unwrap()
}

#[tokio::test]
async fn the_audit_log_tells_what_a_patch_changed() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let server = start_with(lockgate_apiserver::Settings {
        audit_log_path: Some(log.clone()),
        ..settings()
    })
    .await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    let mut version = open_version("v1", true);
    version["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"spec": {
        "type": "object", "properties": {
            "a": {"type": "integer"},
            "d": {"type": "string", "default": "x"},
            "l": {"type": "array", "items": {"type": "string"}},
            "n": {"type": "string", "nullable": true},
        },
    }}});
    client
        .create(DEFINITIONS, definition(json!([version])))
        .await;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"a": 1},
    });
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    let remove = |path: &str| json!({"op": "remove", "path": path});
    let empty = json!({"metadata": {"name": "w"}});
    for (name, custom, patch, mutated) in [
        (
            "unknown to the schema",
            true,
            add("/spec/zzz", json!(1)),
            true,
        ),
        ("the same", true, add("/spec/a", json!(1)), false),
        (
            "another kind of number",
            true,
            add("/spec/a", json!(1.0)),
            true,
        ),
        ("an empty list", true, add("/spec/l", json!([])), true),
        ("null", true, add("/spec/n", Value::Null), true),
        ("a default", true, remove("/spec/d"), true),
        (
            "empty labels",
            true,
            add("/metadata/labels", json!({})),
            true,
        ),
        (
            "finalizers that are null",
            true,
            add("/metadata/finalizers", Value::Null),
            true,
        ),
        (
            "a time that is null",
            true,
            add("/metadata/creationTimestamp", Value::Null),
            true,
        ),
        (
            "null that nobody knows",
            true,
            add("/metadata/zzz", Value::Null),
            true,
        ),
        ("empty data", false, add("/data", json!({})), false),
        (
            "a time that is null",
            false,
            add("/metadata/creationTimestamp", Value::Null),
            false,
        ),
        ("unknown to the type", false, add("/zzz", json!(1)), false),
        ("data", false, add("/data", json!({"a": "b"})), true),
        ("the kind", false, remove("/kind"), true),
    ] {
        let (group, resource, path, object) = if custom {
            ("example.com", "widgets", WIDGETS, &widget)
        } else {
            ("", "configmaps", CONFIG_MAPS, &empty)
        };
        patched_by(&client, &hooks, group, resource, &json!([patch])).await;
        let answer = client.post(path, object).await;
        assert_eq!(answer.code, 201, "{name}: {}", answer.text());
        let id = answer.header("audit-id").to_owned();
        client.delete(&format!("{path}/w")).await.expect(200);
        assert_eq!(is_mutated(&log, &id), mutated, "{name}");
    }
    hooks.stop().await;
    server.stop().await;
}

/// Managed fields of these objects have timestamps with a higher resolution than their JSON, which any patch truncates.
#[tokio::test]
async fn a_patch_of_a_part_loses_fine_times() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let server = start_with(lockgate_apiserver::Settings {
        audit_log_path: Some(log.clone()),
        ..settings()
    })
    .await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    client.create(DEPLOYMENTS, deployment("d")).await;
    client.create(PODS, pod("p")).await;
    let patch = json!([{"op": "add", "path": "/zzz", "value": 1}]);
    patched_by(&client, &hooks, "*", "*/*", &patch).await;
    let scale = |replicas: u32| json!({"spec": {"replicas": replicas}});
    let path = format!("{DEPLOYMENTS}/d/scale");
    for (replicas, mutated) in [(7, true), (7, false)] {
        let answer = client.patch(&path, "merge", &scale(replicas)).await;
        assert_eq!(answer.code, 200, "{}", answer.text());
        assert_eq!(is_mutated(&log, answer.header("audit-id")), mutated);
    }
    let binding = |name: &str| json!({"metadata": {"name": name}, "target": {"name": "node"}});
    let answer = client
        .post(&format!("{PODS}/p/binding"), &binding("p"))
        .await;
    assert_eq!(answer.code, 201, "{}", answer.text());
    assert!(is_mutated(&log, answer.header("audit-id")));
    let answer = client
        .post(&format!("{PODS}/p/binding"), &binding("q"))
        .await;
    assert_eq!(answer.code, 400, "{}", answer.text());
    hooks.stop().await;
    server.stop().await;
}

/// Managers that gain fields get a new time. One that only loses fields, or applies unchanged values, keeps its time.
#[tokio::test]
async fn a_patch_of_a_write_that_sets_no_time_is_no_mutation() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let server = start_with(lockgate_apiserver::Settings {
        audit_log_path: Some(log.clone()),
        ..settings()
    })
    .await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    client
        .create(
            &format!("{CONFIG_MAPS}?fieldManager=t"),
            labelled("c", "a", "b"),
        )
        .await;
    let patch = json!([{"op": "add", "path": "/zzz", "value": 1}]);
    patched_by(&client, &hooks, "*", "*/*", &patch).await;
    let kept = config_map("c");
    let mut changed = kept.clone();
    changed["data"]["a"] = json!("changed");
    for (object, mutated) in [(&kept, false), (&changed, true)] {
        let path = format!("{CONFIG_MAPS}/c?fieldManager=t&dryRun=All");
        let answer = client.put(&path, object).await;
        assert_eq!(is_mutated(&log, answer.header("audit-id")), mutated);
        answer.expect(200);
        let path = format!("{CONFIG_MAPS}/c?fieldManager=u&force=true&dryRun=All");
        let answer = client.patch(&path, "apply", object).await;
        assert_eq!(is_mutated(&log, answer.header("audit-id")), mutated);
        answer.expect(200);
    }
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_whole_double_is_an_integer_once_a_patch_was_applied() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let server = start_with(lockgate_apiserver::Settings {
        audit_log_path: Some(log.clone()),
        ..settings()
    })
    .await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let patch = json!([{"op": "replace", "path": "/spec/a", "value": 1}]);
    patched_by(&client, &hooks, "example.com", "widgets", &patch).await;
    let widget = |name: &str, more: Value| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name},
            "spec": {"a": 1, "more": more},
        })
    };
    for (name, more, shown, mutated) in [
        ("half", json!(1.5), json!(1.5), false),
        ("whole", json!(2.0), json!(2), true),
        ("zero", json!(-0.0), json!(0), true),
        ("large", json!(u64::MAX), json!(u64::MAX as f64), false),
    ] {
        let answer = client.post(WIDGETS, &widget(name, more)).await;
        let id = answer.header("audit-id").to_owned();
        let made = answer.expect(201);
        assert_eq!(made["spec"]["more"].as_f64(), shown.as_f64(), "{name}");
        assert_eq!(is_mutated(&log, &id), mutated, "{name}");
    }
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn the_type_that_a_patch_says_is_checked() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    let versions = json!([open_version("v1", true), open_version("v2", false)]);
    client.create(DEFINITIONS, definition(versions)).await;
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let object = json!({"metadata": {"name": "w"}});
    let add = |path: &str, value: Value| json!([{"op": "add", "path": path, "value": value}]);
    let no_text = |field: &str| {
        format!(
            "Internal error occurred: couldn't get version/kind; json parse error: json: cannot unmarshal number \
             into Go struct field .{field} of type string"
        )
    };
    for (custom, patch, code, message) in [
        (
            false,
            add("/kind", json!("Other")),
            500,
            String::from(
                "Internal error occurred: no kind \"Other\" is registered for version \"v1\" in scheme \
                 \"pkg/runtime/scheme.go:111\"",
            ),
        ),
        (
            false,
            add("/apiVersion", json!("v7")),
            500,
            String::from(
                "Internal error occurred: no kind \"ConfigMap\" is registered for version \"v7\" in scheme \
                 \"pkg/runtime/scheme.go:111\"",
            ),
        ),
        (
            false,
            add("/apiVersion", json!(5)),
            500,
            no_text("apiVersion"),
        ),
        (true, add("/kind", json!(5)), 500, no_text("kind")),
        (
            true,
            add("/kind", json!("Other")),
            422,
            String::from(
                "Other.example.com \"w\" is invalid: kind: Invalid value: \"Other\": must be Widget",
            ),
        ),
        (
            true,
            add("/apiVersion", json!("example.com/v7")),
            500,
            String::from("request to convert CR from an invalid group/version: example.com/v7"),
        ),
        (
            true,
            add("/apiVersion", json!("other.io/v1")),
            500,
            String::from(
                "other.io/v1, Kind=Widget is unstructured and is not suitable for converting to \"example.com/v1\"",
            ),
        ),
        (
            true,
            json!([{"op": "remove", "path": "/apiVersion"}]),
            500,
            String::from(
                "/, Kind=Widget is unstructured and is not suitable for converting to \"example.com/v1\"",
            ),
        ),
        (
            true,
            json!([{"op": "remove", "path": "/kind"}]),
            500,
            String::from(
                "Internal error occurred: Object 'Kind' is missing in '{\"apiVersion\":\"example.com/v1\",",
            ),
        ),
    ] {
        let (group, resource, path, object) = if custom {
            ("example.com", "widgets", WIDGETS, &widget)
        } else {
            ("", "configmaps", CONFIG_MAPS, &object)
        };
        patched_by(&client, &hooks, group, resource, &patch).await;
        let answer = client.post(path, object).await;
        assert_eq!(answer.code, code, "{patch}: {}", answer.text());
        let status = answer.json();
        let told = status["message"].as_str().unwrap();
        assert!(told.starts_with(&message), "{told}");
    }
    // Numbers of a patch keep their notation.
    let patch = add("/spec/replicas", json!(2.0));
    patched_by(&client, &hooks, "apps", "deployments", &patch).await;
    client.post(DEPLOYMENTS, &deployment("d")).await.refused(
        500,
        "InternalError",
        "Internal error occurred: json: cannot unmarshal number 2.0 into Go struct field \
         DeploymentSpec.spec.replicas of type int32",
    );
    hooks.stop().await;
    server.stop().await;
}

/// A schema has fields of its own type, which are absent on both sides; comparing them must terminate.
#[tokio::test]
async fn definitions_that_a_webhook_patched_are_compared() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]);
    let (group, resource) = ("apiextensions.k8s.io", "customresourcedefinitions");
    patched_by(&client, &hooks, group, resource, &patch).await;
    let made = definition(json!([open_version("v1", true)]));
    let made = client.post(DEFINITIONS, &made).await.expect(201);
    assert_eq!(made["metadata"]["labels"], json!({"a": "b"}));
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn custom_resources_that_a_policy_replaces_say_their_kind() {
    const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
    let server = start().await;
    let client = Client::admin(&server).await;
    let versions = json!([open_version("v1", true)]);
    client.create(DEFINITIONS, definition(versions)).await;
    let rule = json!({
        "apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["widgets"],
    });
    let policy = json!({
        "metadata": {"name": "replacing"},
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [rule]},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {
                "expression": "[JSONPatch{op: 'replace', path: '', value: {'a': 'b'}}]",
            }}],
        },
    });
    client
        .create(&format!("{GROUP}/mutatingadmissionpolicies"), policy)
        .await;
    let binding = json!({"metadata": {"name": "replacing"}, "spec": {"policyName": "replacing"}});
    client
        .create(&format!("{GROUP}/mutatingadmissionpolicybindings"), binding)
        .await;
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    client.post(WIDGETS, &widget).await.refused(
        500,
        "InternalError",
        "Internal error occurred: Object 'Kind' is missing in '{\"a\":\"b\"}'",
    );
    server.stop().await;
}

#[tokio::test]
async fn metadata_that_a_patch_brings_is_read_as_its_type() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    let mut version = open_version("v1", true);
    version["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"inner": {
        "type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    }}});
    client
        .create(DEFINITIONS, definition(json!([version])))
        .await;
    let patch: Vec<Value> = [
        ("/metadata/zzz", json!(1)),
        ("/metadata/labels", json!({})),
        ("/metadata/finalizers", json!([])),
        ("/metadata/ownerReferences", json!([])),
        ("/metadata/selfLink", json!("x")),
        ("/inner/metadata/zzz", json!(1)),
        ("/inner/metadata/labels", json!({"a": null})),
        ("/inner/metadata/name", json!("")),
    ]
    .into_iter()
    .map(|(path, value)| json!({"op": "add", "path": path, "value": value}))
    .collect();
    patched_by(&client, &hooks, "example.com", "widgets", &json!(patch)).await;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
        "inner": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}},
    });
    let shown = client
        .post(&format!("{WIDGETS}?dryRun=All"), &widget)
        .await
        .expect(201);
    // Recorded from kube-apiserver v1.36.4: selfLink is cleared only in the stored object.
    assert_eq!(shown["metadata"]["selfLink"], "x");
    let made = client.create(WIDGETS, widget).await;
    assert_eq!(made["inner"]["metadata"], json!({"labels": {"a": ""}}));
    for member in ["zzz", "labels", "finalizers", "ownerReferences", "selfLink"] {
        assert_eq!(made["metadata"].get(member), None, "{member}");
    }
    hooks.stop().await;
    server.stop().await;
}

fn opened(answer: &Answer, code: u16) -> Value {
    assert_eq!(answer.code, code, "{}", answer.text());
    assert_eq!(answer.header("content-type"), PROTOBUF);
    let envelope = Envelope::open(&answer.bytes).unwrap();
    envelope.object().unwrap_or_else(|| {
        // Lists have no schema of their own; the envelope has their type.
        json!({"apiVersion": envelope.api_version, "kind": envelope.kind})
    })
}

#[tokio::test]
async fn built_in_kinds_are_answered_in_protobuf() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let typed = client.with("accept", PROTOBUF);
    let made = opened(&typed.post(PODS, &pod("p")).await, 201);
    let path = format!("{PODS}/p");
    assert_eq!(made, client.get(&path).await.expect(200));
    assert_eq!(opened(&typed.get(&path).await, 200), made);
    let list = opened(&typed.get(PODS).await, 200);
    assert_eq!(list["kind"], "PodList");
    let missing = opened(&typed.get(&format!("{PODS}/nope")).await, 404);
    assert_eq!(missing["message"], "pods \"nope\" not found");
    assert_eq!(missing["details"]["name"], "nope");
    // Metadata of any kind has a protobuf message, custom resources have none.
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    client.create(WIDGETS, widget).await;
    let partial = client.with("accept", PARTIAL);
    let shown = opened(&partial.get(&format!("{WIDGETS}/w")).await, 200);
    assert_eq!(shown["kind"], "PartialObjectMetadata");
    assert_eq!(shown["metadata"]["name"], "w");
    let listed = opened(&partial.get(WIDGETS).await, 200);
    assert_eq!(listed["kind"], "PartialObjectMetadataList");
    let refused = typed.get(&format!("{WIDGETS}/w")).await;
    assert_eq!(refused.code, 406);
    let either = client.with("accept", &format!("{PROTOBUF},application/json"));
    let widget = either.get(&format!("{WIDGETS}/w")).await;
    assert_eq!(widget.expect(200)["kind"], "Widget");
    server.stop().await;
}

#[tokio::test]
async fn watches_are_framed_in_protobuf() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    let accept = format!("{PROTOBUF};stream=watch");
    let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1");
    let headers = [("accept", accept.as_str())];
    let answer = client.request(Method::GET, &path, &headers, "").await;
    assert_eq!(answer.code, 200);
    assert_eq!(answer.header("content-type"), accept);
    let length = u32::from_be_bytes(answer.bytes[..4].try_into().unwrap());
    let frame = &answer.bytes[4..4 + usize::try_from(length).unwrap()];
    // The event type, followed by the object with its envelope.
    assert_eq!(&frame[..7], b"\x0a\x05ADDED");
    let start = frame.windows(4).position(|part| part == b"k8s\0").unwrap();
    let object = Envelope::open(&frame[start..]).unwrap().object().unwrap();
    assert_eq!(
        object,
        client.get(&format!("{CONFIG_MAPS}/a")).await.expect(200)
    );
    server.stop().await;
}

#[tokio::test]
async fn the_root_lists_the_paths() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let listed = client.get("/").await.expect(200);
    let paths: Vec<&str> = listed["paths"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert!(paths.is_sorted());
    // Every listed path is served.
    for path in &paths {
        let answer = client.get(path).await;
        assert_eq!(answer.code, 200, "{path}: {}", answer.text());
    }
    for path in [
        "/api/v1",
        "/apis/apps",
        "/apis/apps/v1",
        "/livez/ping",
        "/readyz/shutdown",
        "/version",
    ] {
        assert!(paths.contains(&path), "{path}");
    }
    assert_eq!(client.get("//").await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn health_is_told_check_by_check() {
    let server = start().await;
    let client = Client::admin(&server).await;
    for path in ["healthz", "livez", "readyz"] {
        let told = client.get(&format!("/{path}?verbose")).await.text();
        for check in [
            "ping",
            "etcd",
            "poststarthook/crd-informer-synced",
            "poststarthook/rbac/bootstrap-roles",
        ] {
            assert!(told.contains(&format!("[+]{check} ok\n")), "{told}");
            let one = client.get(&format!("/{path}/{check}")).await;
            assert_eq!((one.code, one.text().as_str()), (200, "ok"));
        }
        assert!(told.ends_with(&format!("{path} check passed\n")), "{told}");
        assert_eq!(client.get(&format!("/{path}/nope")).await.code, 404);
    }
    assert_eq!(client.get("/readyz/shutdown").await.code, 200);
    assert_eq!(client.get("/livez/shutdown").await.code, 404);
    let told = client
        .get("/readyz?verbose&exclude=etcd&exclude=nope")
        .await
        .text();
    assert!(told.contains("[+]etcd excluded: ok\n"), "{told}");
    assert!(
        told.contains(
            "warn: some health checks cannot be excluded: no matches for \"nope\"\nreadyz check passed\n"
        ),
        "{told}"
    );
    server.stop().await;
}

#[tokio::test]
async fn definitions_are_published_as_openapi_v2() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let schema = json!({
        "type": "object", "description": "A widget.",
        "properties": {"spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "description": "Its size."},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "none": {"type": "string", "nullable": true, "default": "x"},
        }}},
    });
    let mut strict = open_version("v1", true);
    strict["schema"]["openAPIV3Schema"] = schema;
    client
        .create(
            DEFINITIONS,
            definition(json!([strict, open_version("v2", false)])),
        )
        .await;
    let document = client.get("/openapi/v2").await;
    let etag = document.header("etag").to_owned();
    let document = document.expect(200);
    assert_eq!(document["swagger"], "2.0");
    let definitions = &document["definitions"];
    let told = &definitions["com.example.v1.Widget"];
    assert_eq!(told["description"], "A widget.");
    assert_eq!(
        told["properties"]["spec"],
        json!({"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "description": "Its size."},
            "open": {"x-kubernetes-preserve-unknown-fields": true},
            "none": {},
        }})
    );
    assert_eq!(
        definitions["com.example.v2.Widget"],
        json!({
            "type": "object",
            "x-kubernetes-group-version-kind":
                [{"group": "example.com", "version": "v2", "kind": "Widget"}],
        })
    );
    let pod = &definitions["io.k8s.api.core.v1.Pod"];
    assert_eq!(
        pod["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "Pod"}])
    );
    // Every reference resolves.
    let text = document.to_string();
    for place in text.split("\"#/definitions/").skip(1) {
        let (name, _) = place.split_once('"').unwrap();
        assert!(definitions[name].is_object(), "{name}");
    }
    let same = client.with("if-none-match", &etag).get("/openapi/v2").await;
    assert_eq!(same.code, 304);
    // A version that is no longer served is removed from the document.
    let patch = json!([{"op": "replace", "path": "/spec/versions/1/served", "value": false}]);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    client.patch(&path, "json", &patch).await.expect(200);
    let document = client.get("/openapi/v2").await.expect(200);
    let definitions = &document["definitions"];
    assert!(definitions["com.example.v1.Widget"].is_object());
    assert_eq!(definitions.get("com.example.v2.Widget"), None);
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let answer = client.with("accept", protobuf).get("/openapi/v2").await;
    assert_eq!(answer.code, 200);
    let name = b"com.example.v1.Widget";
    assert!(answer.bytes.windows(name.len()).any(|part| part == name));
    server.stop().await;
}

/// A subresource object that a webhook patched is validated like one sent by a client.
#[tokio::test]
async fn patched_parts_are_judged_again() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    let mut version = open_version("v1", true);
    version["subresources"] = json!({"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}});
    let definitions = definition(json!([version]));
    client.create(DEFINITIONS, definitions).await;
    let widget = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"replicas": 1},
    });
    client.create(WIDGETS, widget).await;
    client.create(DEPLOYMENTS, deployment("d")).await;
    client.create(PODS, pod("p")).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    client
        .create(accounts, json!({"metadata": {"name": "s"}}))
        .await;
    let token_of = "/api/v1/namespaces/default/serviceaccounts/s/token";
    let scale = json!({"spec": {"replicas": 2}});
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "node"}});
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let token =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let modified = "the object has been modified; please apply your changes to the latest version and try again";
    let storage = "Operation cannot be fulfilled on pods \"p\": StorageError: invalid object, Code: 4, Key: \
                   /registry/pods/default/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: ";
    let no_kind = |kind: &str, version: &str| {
        format!(
            "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
        )
    };
    let add = |path: &str, value: Value| json!([{"op": "add", "path": path, "value": value}]);
    let (deployments, widgets) = (
        format!("{DEPLOYMENTS}/d/scale"),
        format!("{WIDGETS}/w/scale"),
    );
    let (bind, evict) = (format!("{PODS}/p/binding"), format!("{PODS}/p/eviction"));
    for (path, body, patch, code, message) in [
        (
            &evict,
            &eviction,
            add("/metadata/name", json!("q")),
            400,
            String::from("name in URL does not match name in Eviction object"),
        ),
        (
            &bind,
            &binding,
            add("/metadata/resourceVersion", json!("1")),
            409,
            format!(
                "{storage}ResourceVersion in precondition: 1, ResourceVersion in object meta: "
            ),
        ),
        (
            &bind,
            &binding,
            add("/metadata/uid", json!("x")),
            409,
            format!("{storage}UID in precondition: x, UID in object meta: "),
        ),
        (
            &bind,
            &binding,
            add("/target/kind", json!("Pod")),
            500,
            String::from(
                "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\"",
            ),
        ),
        (
            &deployments,
            &scale,
            add("/metadata/resourceVersion", json!("1")),
            409,
            format!("Operation cannot be fulfilled on deployments.apps \"d\": {modified}"),
        ),
        (
            &deployments,
            &scale,
            add("/metadata/uid", json!("x")),
            409,
            String::from(
                "Operation cannot be fulfilled on deployments/scale.apps \"d\": Precondition failed: UID in \
                 precondition: x, UID in object meta: ",
            ),
        ),
        (
            &widgets,
            &scale,
            add("/metadata/resourceVersion", json!("1")),
            409,
            format!("Operation cannot be fulfilled on widgets.example.com \"w\": {modified}"),
        ),
        (
            &widgets,
            &scale,
            add("/spec/replicas", json!("3")),
            500,
            String::from(
                "unable to convert unstructured object to autoscaling/v1, Kind=Scale: unrecognized type: int32",
            ),
        ),
        (
            &widgets,
            &scale,
            add("/kind", json!("Other")),
            500,
            no_kind("Other", "autoscaling/v1"),
        ),
        (
            &widgets,
            &scale,
            add("/apiVersion", json!("x/v1")),
            500,
            no_kind("Scale", "x/v1"),
        ),
        (
            &widgets,
            &scale,
            json!([{"op": "remove", "path": "/kind"}]),
            500,
            String::from(
                "Internal error occurred: Object 'Kind' is missing in '{\"apiVersion\":\"autoscaling/v1\"",
            ),
        ),
        (
            &widgets,
            &scale,
            add("/spec/replicas", json!(3.0)),
            200,
            String::new(),
        ),
        (
            &token_of.to_owned(),
            &token,
            add("/spec", Value::Null),
            201,
            String::new(),
        ),
    ] {
        patched_by(&client, &hooks, "*", "*/*", &patch).await;
        let answer = match path.ends_with("/scale") {
            true => client.patch(path, "merge", body).await,
            false => client.post(path, body).await,
        };
        assert_eq!(answer.code, code, "{path} {patch}: {}", answer.text());
        let said = answer.expect(code)["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(said.starts_with(&message), "{path} {patch}: {said}");
    }
    let scaled = client.get(&widgets).await.expect(200);
    assert_eq!(scaled["spec"]["replicas"], 3);
    hooks.stop().await;
    server.stop().await;
}

/// A webhook's patch creates a new object, whose labels are no longer defaulted from its template.
#[tokio::test]
async fn labels_of_jobs_follow_their_template_until_a_patch() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let job = |name: &str, labels: Value| {
        json!({"metadata": {"name": name, "labels": labels}, "spec": {"template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        }}})
    };
    let labels = |job: &Value| {
        job["metadata"]["labels"]
            .as_object()
            .map(serde_json::Map::len)
    };
    let made = client.create(jobs, job("defaulted", Value::Null)).await;
    assert_eq!(labels(&made), Some(5), "{made}");
    let made = client.create(jobs, job("given", json!({"a": "b"}))).await;
    assert_eq!(labels(&made), Some(1), "{made}");
    for (name, patch, count) in [
        (
            "touched",
            json!([{"op": "add", "path": "/metadata/annotations", "value": {"x": "y"}}]),
            1,
        ),
        ("untouched", json!([]), 5),
    ] {
        patched_by(&client, &hooks, "batch", "jobs", &patch).await;
        let made = client.create(jobs, job(name, Value::Null)).await;
        assert_eq!(labels(&made), Some(count), "{name}: {made}");
    }
    hooks.stop().await;
    server.stop().await;
}

/// Recorded from kube-apiserver v1.36.4: defaulting and validation distinguish an empty list from an absent one,
/// whether sent by a client or left by a patch of a client or webhook.
#[tokio::test]
async fn empty_lists_that_a_patch_leaves_are_judged() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    let autoscalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let autoscaler = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "maxReplicas": 2,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
            "behavior": {"scaleUp": {"policies": [
                {"type": "Pods", "value": 1, "periodSeconds": 60},
            ]}},
        }})
    };
    let refused = |answer: Answer, name: &str| {
        answer.refused(
            422,
            "Invalid",
            &format!(
                "HorizontalPodAutoscaler.autoscaling \"{name}\" is invalid: \
                 spec.behavior.scaleUp.policies: Required value: must specify at least one Policy"
            ),
        );
    };
    let mut sent = autoscaler("sent");
    sent["spec"]["behavior"]["scaleUp"]["policies"] = json!([]);
    refused(client.post(autoscalers, &sent).await, "sent");
    client.create(autoscalers, autoscaler("a")).await;
    let place = "/spec/behavior/scaleUp/policies";
    for (kind, patch) in [
        (
            "json",
            json!([{"op": "remove", "path": format!("{place}/0")}]),
        ),
        (
            "merge",
            json!({"spec": {"behavior": {"scaleUp": {"policies": []}}}}),
        ),
        (
            "strategic",
            json!({"spec": {"behavior": {"scaleUp": {"policies": []}}}}),
        ),
    ] {
        let path = format!("{autoscalers}/a");
        refused(client.patch(&path, kind, &patch).await, "a");
    }
    let mut applied = sent.clone();
    applied["apiVersion"] = "autoscaling/v2".into();
    applied["kind"] = "HorizontalPodAutoscaler".into();
    let path = format!("{autoscalers}/sent?fieldManager=m");
    refused(client.patch(&path, "apply", &applied).await, "sent");
    let patch = json!([{"op": "remove", "path": format!("{place}/0")}]);
    patched_by(
        &client,
        &hooks,
        "autoscaling",
        "horizontalpodautoscalers",
        &patch,
    )
    .await;
    refused(client.post(autoscalers, &autoscaler("b")).await, "b");

    // Reinvoked plugins leave them unchanged.
    let patch = json!([{"op": "remove", "path": "/spec/capacity/storage"}]);
    patched_by(&client, &hooks, "", "persistentvolumes", &patch).await;
    let volume = json!({"metadata": {"name": "v"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
    }});
    client.post("/api/v1/persistentvolumes", &volume).await.refused(
        422,
        "Invalid",
        "PersistentVolume \"v\" is invalid: [spec.capacity: Required value, spec.capacity: Unsupported value: \
         {}: supported values: \"storage\"]",
    );
    hooks.stop().await;
    server.stop().await;
}

/// Recorded from kube-apiserver v1.36.4: the name of an IPAddress is the address.
#[tokio::test]
async fn names_of_addresses_are_not_made_up() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let address = json!({"metadata": {"generateName": "10.96.0.77"}, "spec": {
        "parentRef": {"resource": "services", "namespace": "default", "name": "s"},
    }});
    let addresses = "/apis/networking.k8s.io/v1/ipaddresses";
    let made = client.create(addresses, address).await;
    assert_eq!(made["metadata"]["name"], "10.96.0.77");
    server.stop().await;
}

/// Recorded from kube-apiserver v1.36.4: the plugin's client rejects names that are invalid path segments.
#[tokio::test]
async fn names_of_runtime_classes_that_cannot_be() {
    let server = start().await;
    let client = Client::admin(&server).await;
    for (name, message) in [
        ("", "resource name may not be empty"),
        (
            "a/b%",
            "invalid resource name \"a/b%\": [may not contain '/' may not contain '%']",
        ),
    ] {
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "runtimeClassName": name, "containers": [{"name": "c", "image": "i"}],
        }});
        client.post(PODS, &pod).await.refused(500, "", message);
    }
    server.stop().await;
}

/// Recorded from kube-apiserver v1.36.4: apply configurations are converted, not decoded.
#[tokio::test]
async fn applied_numbers_are_converted() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let apply = |replicas: Value, namespace: Value| {
        let configuration = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "namespace": namespace},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            }},
        });
        let path =
            "/apis/apps/v1/namespaces/default/deployments/d?fieldManager=m&force=true&dryRun=All";
        let client = &client;
        async move { client.patch(path, "apply", &configuration).await }
    };
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "resourceVersion": "x-"},
    });
    let path = format!("{CONFIG_MAPS}/c?fieldManager=m");
    client.patch(&path, "apply", &config_map).await.refused(
        500,
        "",
        "strconv.ParseUint: parsing \"x-\": invalid syntax",
    );
    let made = apply(json!(4_294_967_297_u64), Value::Null)
        .await
        .expect(201);
    assert_eq!(made["spec"]["replicas"], 1);
    client
        .create(
            "/apis/apps/v1/namespaces/default/deployments",
            deployment("d"),
        )
        .await;
    for (namespace, shown) in [(Value::Null, ""), (json!("default"), "default")] {
        apply(json!(1.5), namespace).await.refused(
            500,
            "",
            &format!(
                "failed to convert new object ({shown}/d; apps/v1, Kind=Deployment) to proper \
                 version: unable to convert unstructured object to apps/v1, Kind=Deployment: \
                 cannot convert float64 to int32"
            ),
        );
    }
    server.stop().await;
}

/// Recorded from kube-apiserver v1.36.4: how numbers of policy mutations are converted to int32.
#[tokio::test]
async fn numbers_of_policies_are_converted() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let negative = |shown: &str| {
        format!(
            "Deployment.apps \"d\" is invalid: spec.replicas: Invalid value: {shown}: must be greater \
             than or equal to 0"
        )
    };
    let undecodable = |found: &str| {
        format!(
            "Internal error occurred: json: cannot unmarshal {found} into Go struct field \
             DeploymentSpec.spec.replicas of type int32"
        )
    };
    let denied = |n: usize, why: &str| {
        format!("policy 'm{n}.example.com' with binding 'm{n}.example.com' denied request: {why}")
    };
    let not_whole = denied(
        4,
        "unable to convert unstructured object to apps/v1, Kind=Deployment: cannot convert float64 to \
         int32",
    );
    let no_number = denied(
        7,
        "error applying patch: failed to convert patch object to typed object: .spec.replicas: \
         expected numeric (int or float), got string",
    );
    // An apply configuration is converted, and a JSON patch is decoded.
    let cases = [
        (true, "9223372036854775807", Err((422, negative("-1")))),
        (true, "4294967297", Ok(1)),
        (true, "2147483648", Err((422, negative("-2147483648")))),
        (true, "-2147483649", Ok(2_147_483_647)),
        (true, "dyn(1.5)", Err((403, not_whole))),
        (true, "dyn(2.0)", Ok(2)),
        (true, "dyn(1e300)", Ok(0)),
        (true, "dyn('3')", Err((403, no_number))),
        (
            false,
            "9223372036854775807",
            Err((500, undecodable("string"))),
        ),
        (
            false,
            "4294967297",
            Err((500, undecodable("number 4294967297"))),
        ),
        (false, "1.5", Err((500, undecodable("number 1.5")))),
        (false, "2.0", Ok(2)),
    ];
    let group = "/apis/admissionregistration.k8s.io/v1";
    for (n, (is_configuration, value, _)) in cases.iter().enumerate() {
        let mutation = if *is_configuration {
            let expression = format!("Object{{spec: Object.spec{{replicas: {value}}}}}");
            json!({
                "patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression},
            })
        } else {
            let expression =
                format!("[JSONPatch{{op: 'replace', path: '/spec/replicas', value: {value}}}]");
            json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
        };
        let name = format!("m{n}.example.com");
        let policy = json!({"metadata": {"name": name}, "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "objectSelector": {"matchLabels": {"case": n.to_string()}},
                "resourceRules": [{
                    "apiGroups": ["apps"], "apiVersions": ["v1"],
                    "operations": ["CREATE"], "resources": ["deployments"],
                }],
            },
            "mutations": [mutation],
        }});
        let policies = format!("{group}/mutatingadmissionpolicies");
        client.create(&policies, policy).await;
        let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name}});
        let bindings = format!("{group}/mutatingadmissionpolicybindings");
        client.create(&bindings, binding).await;
    }
    let deployments = "/apis/apps/v1/namespaces/default/deployments?dryRun=All";
    for (n, (_, value, want)) in cases.iter().enumerate() {
        let mut sent = deployment("d");
        sent["metadata"]["labels"]["case"] = json!(n.to_string());
        let answer = client.post(deployments, &sent).await;
        match want {
            Ok(replicas) => {
                let made = answer.expect(201);
                assert_eq!(made["spec"]["replicas"], *replicas, "{value}");
            }
            Err((code, message)) => {
                assert_eq!(answer.code, *code, "{value}: {}", answer.text());
                assert_eq!(answer.json()["message"], message.as_str(), "{value}");
            }
        }
    }
    server.stop().await;
}

/// Recorded from kube-apiserver v1.36.4: reset fields of an endpoint have no field manager.
#[tokio::test]
async fn fields_that_an_endpoint_resets_have_no_owner() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let owned = |object: &Value, subresource: &str| {
        let entries = object["metadata"]["managedFields"].as_array();
        let of_part = |entry: &&Value| entry["subresource"].as_str().unwrap_or("") == subresource;
        let entry = entries.into_iter().flatten().find(of_part);
        entry.map_or(Value::Null, |entry| entry["fieldsV1"].clone())
    };
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    }});
    client.create(deployments, deployment).await;
    let status = json!({
        "metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}},
        "spec": {"replicas": 5}, "status": {"replicas": 1},
    });
    let path = format!("{deployments}/d/status");
    let changed = client.patch(&path, "merge", &status).await.expect(200);
    assert_eq!(
        owned(&changed, "status"),
        json!({
            "f:metadata": {"f:annotations": {".": {}, "f:x": {}}},
            "f:status": {"f:replicas": {}},
        })
    );
    let schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
    let schema = json!({"metadata": {"name": "f"}, "spec": {
        "priorityLevelConfiguration": {"name": "global-default"}, "matchingPrecedence": 9000,
    }});
    client.create(schemas, schema).await;
    let condition = json!({"type": "Dangling", "status": "False"});
    let status = json!({
        "metadata": {"annotations": {"x": "y"}}, "status": {"conditions": [condition]},
    });
    let path = format!("{schemas}/f/status");
    let changed = client.patch(&path, "merge", &status).await.expect(200);
    assert_eq!(
        owned(&changed, "status").get("f:metadata"),
        None,
        "{changed}"
    );
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let request = json!({"metadata": {"name": "c", "labels": {"a": "b"}}, "spec": {
        "request": crate::subresources::csr(), "signerName": "example.com/signer", "usages": ["digital signature"],
    }});
    let made = client.create(requests, request).await;
    assert_eq!(
        owned(&made, ""),
        json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}})
    );
    server.stop().await;
}

/// Recorded from kube-apiserver v1.36.4: a group handles every path below it.
#[tokio::test]
async fn paths_that_are_not_there() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let versions = json!([open_version("v1", true)]);
    client.create(DEFINITIONS, definition(versions)).await;
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    client.create(WIDGETS, widget.clone()).await;
    let page = "404 page not found\n";
    let none = "the server could not find the requested resource";
    let no_method = "the server does not allow this method on the requested resource";
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let of_widget = |rest: &str| format!("{WIDGETS}{rest}");
    for (method, path, code, message) in [
        (Method::GET, "/api/v1/none", 404, none),
        (Method::GET, "/apis/apps/v1/none", 404, none),
        (Method::GET, "/apis/apps/v1beta1/deployments", 404, none),
        (
            Method::POST,
            "/apis/apiextensions.k8s.io/v1/none",
            404,
            none,
        ),
        (
            Method::GET,
            "/apis/apiregistration.k8s.io/v1/none",
            404,
            none,
        ),
        (Method::GET, "/apis/none.example.com/v1/none", 404, page),
        (Method::GET, &format!("{CONFIG_MAPS}/a/none"), 404, none),
        (Method::POST, &format!("{reviews}/a"), 404, none),
        (Method::GET, reviews, 405, no_method),
        (Method::DELETE, "/api/v1/bindings", 404, none),
        (Method::GET, "/apis/example.com/v1/none", 404, page),
        (Method::GET, "/apis/example.com/v2/widgets", 404, page),
        (Method::POST, "/apis/example.com/v1/widgets", 404, page),
        (
            Method::GET,
            &of_widget("/w/none"),
            404,
            "widgets.example.com \"w\" not found",
        ),
        (
            Method::DELETE,
            &of_widget("/w/a/b"),
            404,
            "widgets.example.com \"w\" not found",
        ),
        (Method::PUT, &of_widget(""), 400, "name must be provided"),
        (
            Method::OPTIONS,
            &of_widget("/w"),
            405,
            " is not supported on resources of kind \"widgets.example.com\"",
        ),
    ] {
        let headers = [("content-type", "application/json")];
        let answer = client.request(method.clone(), path, &headers, "{}").await;
        let told = match answer.header("content-type") {
            "application/json" => answer.json()["message"].as_str().unwrap().to_owned(),
            _ => answer.text(),
        };
        assert_eq!(
            (answer.code, told.as_str()),
            (code, message),
            "{method} {path}"
        );
    }
    // A custom resource is created at the path of the request; validation checks its kind.
    let mut other = widget.clone();
    other["metadata"]["name"] = "v".into();
    client.post(&of_widget("/v"), &other).await.expect(201);
    other["kind"] = "Gadget".into();
    client.post(WIDGETS, &other).await.refused(
        422,
        "Invalid",
        "Gadget.example.com \"v\" is invalid: kind: Invalid value: \"Gadget\": must be Widget",
    );
    for (version, shown) in [("v1", "v1"), ("", ""), ("example.com/v2", "example.com/v2")] {
        let mut other = widget.clone();
        other["apiVersion"] = version.into();
        client.post(WIDGETS, &other).await.refused(
            400,
            "BadRequest",
            &format!(
                "the API version in the data ({shown}) does not match the expected API version \
                 (example.com/v1)"
            ),
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn bodies_of_another_kind() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(CONFIG_MAPS, config_map("a")).await;
    let path = format!("{CONFIG_MAPS}/a");
    for (version, kind, is_known) in [
        ("v1", "Status", true),
        ("apps/v1", "Status", true),
        ("v1", "ConfigMapList", true),
        ("apps/v1", "DeleteOptions", true),
        ("v1", "None", false),
        ("meta.k8s.io/v1", "DeleteOptions", false),
    ] {
        let body = json!({"apiVersion": version, "kind": kind});
        let answer = client.post(CONFIG_MAPS, &body).await.expect(400);
        let message = answer["message"].as_str().unwrap();
        let conversion = format!("converting (v1.{kind}) to (core.ConfigMap): unknown conversion");
        let unknown =
            format!("no kind \"{kind}\" is registered for version \"{version}\" in scheme");
        let wanted = if is_known { conversion } else { unknown };
        assert!(message.contains(&wanted), "{message}");
    }
    for (kind, wanted) in [
        (
            "ConfigMap",
            "no kind \"ConfigMap\" is registered for version \"v1\" in scheme",
        ),
        (
            "Status",
            "converting (v1.Status) to (v1.DeleteOptions): unknown conversion",
        ),
    ] {
        let options = json!({"apiVersion": "v1", "kind": kind});
        let answer = client.delete_with(&path, &options).await.expect(400);
        let message = answer["message"].as_str().unwrap();
        assert!(message.starts_with(wanted), "{message}");
    }
    let into = |what: &str| format!("error decoding patch: json: cannot unmarshal {what}");
    for (patch, kind, query, wanted) in [
        (
            json!({}),
            "json",
            "",
            into("object into Go value of type []handlers.jsonPatchOp"),
        ),
        (
            json!([1]),
            "json",
            "",
            into("number into Go value of type handlers.jsonPatchOp"),
        ),
        (
            json!([{"op": "add", "path": true}]),
            "json",
            "",
            into("bool into Go struct field jsonPatchOp.path of type string"),
        ),
        (
            json!({}),
            "json",
            "?fieldValidation=Ignore",
            String::from("json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
        ),
        (
            json!([]),
            "merge",
            "",
            into("array into Go value of type map[string]interface {}"),
        ),
        (
            json!([]),
            "merge",
            "?fieldValidation=Ignore",
            String::from("Invalid JSON Patch"),
        ),
        (
            json!(1),
            "strategic",
            "",
            String::from(
                "json: cannot unmarshal number into Go value of type map[string]interface {}",
            ),
        ),
    ] {
        let answer = client.patch(&format!("{path}{query}"), kind, &patch).await;
        answer.refused(400, "BadRequest", &wanted);
    }
    let mut changed = config_map("a");
    changed["metadata"]["resourceVersion"] = "x".into();
    let parse = "strconv.ParseUint: parsing \"x\": invalid syntax";
    client.put(&path, &changed).await.refused(500, "", parse);
    changed["metadata"] = json!({"name": "a", "uid": "x"});
    for (query, key) in [("", "/registry/configmaps"), ("?dryRun=All", "/configmaps")] {
        let answer = client.put(&format!("{path}{query}"), &changed).await;
        let answer = answer.expect(409);
        let message = answer["message"].as_str().unwrap();
        let wanted = format!("Code: 4, Key: {key}/default/a, ResourceVersion: 0");
        assert!(message.contains(&wanted), "{message}");
    }
    server.stop().await;
}

#[tokio::test]
async fn reviews_say_why() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let rbac = "rbac.authorization.k8s.io";
    let binding = |name: &str, role: &str, user: &str| {
        json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
        })
    };
    let bindings = format!("/apis/{rbac}/v1/clusterrolebindings");
    client
        .create(&bindings, binding("all", "cluster-admin", "ann"))
        .await;
    client
        .create(&bindings, binding("none", "no-such-role", "bob"))
        .await;
    let review = |user: &str, selector: Value| {
        json!({"spec": {"user": user, "resourceAttributes": {
            "verb": "get", "resource": "pods", "namespace": "default", "labelSelector": selector,
        }}})
    };
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let requirements = |list: Value| json!({"requirements": list});
    let known = json!({"key": "a", "operator": "Exists"});
    let odd = json!({"key": "a", "operator": "Odd"});
    for (user, selector, status) in [
        (
            "ann",
            Value::Null,
            json!({"allowed": true, "reason": "RBAC: allowed by ClusterRoleBinding \"all\" of \
                ClusterRole \"cluster-admin\" to User \"ann\""}),
        ),
        (
            "bob",
            Value::Null,
            json!({"allowed": false, "reason": "RBAC: clusterrole.rbac.authorization.k8s.io \
                \"no-such-role\" not found"}),
        ),
        (
            "eve",
            json!({"rawSelector": "a in ("}),
            json!({"allowed": false, "evaluationError":
                "spec.resourceAttributes.labelSelector ignored due to parse error"}),
        ),
        (
            "eve",
            requirements(json!([known, odd])),
            json!({"allowed": false, "evaluationError":
                "spec.resourceAttributes.labelSelector partially ignored due to parse error"}),
        ),
    ] {
        let answer = client.create(path, review(user, selector)).await;
        assert_eq!(answer["status"], status, "{user}");
        let manager = &answer["metadata"]["managedFields"][0]["operation"];
        assert_eq!(manager, "Update", "{user}");
    }
    let refused = client.taken_for("bob").get(CONFIG_MAPS).await.expect(403);
    let message = refused["message"].as_str().unwrap();
    assert!(
        message.ends_with(
            "in the namespace \"default\": RBAC: clusterrole.rbac.authorization.k8s.io \
             \"no-such-role\" not found"
        ),
        "{message}"
    );
    let mut named = review("eve", Value::Null);
    named["metadata"] = json!({"name": "n", "generation": 2});
    let answer = client.post(path, &named).await.expect(422);
    let message = answer["message"].as_str().unwrap();
    let start = ".authorization.k8s.io \"\" is invalid: metadata: Invalid value: \
                 {\"name\":\"n\",\"generation\":2,\"managedFields\":[{\"manager\":";
    assert!(message.starts_with(start), "{message}");
    server.stop().await;
}

#[tokio::test]
async fn definitions_are_stored_without_empty_lists() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut version = open_version("v1", true);
    version["additionalPrinterColumns"] = json!([]);
    version["schema"]["openAPIV3Schema"]["required"] = json!([]);
    let mut object = definition(json!([version]));
    object["spec"]["names"]["shortNames"] = json!([]);
    object["metadata"]["labels"] = json!({});
    let made = client.create(DEFINITIONS, object).await;
    for path in [
        "/metadata/labels",
        "/spec/names/shortNames",
        "/spec/versions/0/additionalPrinterColumns",
        "/spec/versions/0/schema/openAPIV3Schema/required",
    ] {
        assert_eq!(made.pointer(path), None, "{path}");
    }
    for (versions, shown) in [(Value::Null, "null"), (json!([]), "[]")] {
        let answer = client.post(DEFINITIONS, &definition(versions)).await;
        let answer = answer.expect(422);
        let message = answer["message"].as_str().unwrap();
        let wanted =
            format!("spec.versions: Invalid value: {shown}: must have exactly one version");
        assert!(message.contains(&wanted), "{message}");
    }
    server.stop().await;
}

#[tokio::test]
async fn requests_keep_the_number_a_client_gives_them() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let long = "x".repeat(129);
    for (given, is_taken) in [("some-number", true), (long.as_str(), false)] {
        let answer = client.with("audit-id", given).get("/version").await;
        assert_eq!(answer.header("audit-id") == given, is_taken, "{given}");
        assert!(!answer.header("audit-id").is_empty());
    }
    server.stop().await;
}

#[tokio::test]
async fn quotas_of_more_requests_than_limits_are_warned_about() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let path = "/api/v1/namespaces/default/resourcequotas?dryRun=All";
    for (hard, warnings) in [
        (
            json!({"cpu": "3", "limits.cpu": "0"}),
            vec!["ResourceQuota cpu (3) should be less than limits.cpu (0)"],
        ),
        (
            json!({"cpu": "3", "requests.cpu": "1", "limits.cpu": "2", "requests.memory": "2Gi", "limits.memory": "1Gi"}),
            vec!["ResourceQuota requests.memory (2Gi) should be less than limits.memory (1Gi)"],
        ),
        (json!({"storage": "3", "limits.storage": "1"}), vec![]),
    ] {
        let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
        let answer = client.post(path, &quota).await;
        assert_eq!(answer.warnings(), warnings, "{hard}");
    }
    server.stop().await;
}
