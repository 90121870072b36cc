//! The metadata of objects that are sent to subresources and not stored, and managed fields reset by an empty list.

use lockgate_testkit::{ScriptedResponse as Script, WebhookServer};
use serde_json::{Value, json};

use crate::support::*;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const AGAIN: &str = ".metadata.ownerReferences contains duplicate entries";

fn owner(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": uid})
}

/// The warning for a request with duplicate owner references.
fn duplicates(when: &str, uids: &str) -> String {
    format!(
        "{AGAIN}{when}; API server dedups owner references in 1.20+, and may reject such requests as \
         early as 1.24; please fix your requests; duplicate UID(s) observed: {uids}"
    )
}

const BEFORE: &str = "";
const AFTER: &str = " after mutating admission happens";

/// A mutating webhook for these resources.
async fn mutating(client: &Client, resources: &[&str]) -> WebhookServer {
    let hooks = WebhookServer::start().await;
    let url = hooks.url("/mutate");
    let mut configuration = hook(
        "MutatingWebhookConfiguration",
        "mutating",
        &url,
        hooks.ca_pem(),
    );
    configuration["webhooks"][0]["rules"] = json!([{
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": resources,
    }]);
    client.create(MUTATING, configuration).await;
    hooks
}

fn seen(hooks: &WebhookServer) -> Value {
    hooks.requests().last().unwrap().json()["request"]["object"].clone()
}

#[tokio::test]
async fn metadata_of_scales_is_judged_and_not_stored() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(DEPLOYMENTS, deployment("d")).await;
    let path = format!("{DEPLOYMENTS}/d/scale");
    let mut scale = client.get(&path).await.expect(200);
    for (metadata, why) in [
        (
            json!({"labels": {"a": "-"}}),
            "metadata.labels: Invalid value: \"-\": a valid label must be an empty string or consist of \
             alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": "1"}]}),
            "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
        ),
        (
            json!({"finalizers": ["mine"]}),
            "metadata.finalizers[0]: Invalid value: \"mine\": name is neither a standard finalizer name \
             nor is it fully qualified",
        ),
    ] {
        let message = format!("Scale.autoscaling \"d\" is invalid: {why}");
        let patch = json!({"metadata": metadata});
        let patched = client.patch(&path, "merge", &patch).await;
        patched.refused(422, "Invalid", &message);
        let mut sent = scale.clone();
        let members = metadata.as_object().unwrap().clone();
        sent["metadata"].as_object_mut().unwrap().extend(members);
        let put = client.put(&path, &sent).await;
        put.refused(422, "Invalid", &message);
    }
    // All errors are reported, that of the replicas last.
    let both = json!({"metadata": {"generation": -1}, "spec": {"replicas": -1}});
    client.patch(&path, "merge", &both).await.refused(
        422,
        "Invalid",
        "Scale.autoscaling \"d\" is invalid: [metadata.generation: Invalid value: -1: must be greater \
         than or equal to 0, spec.replicas: Invalid value: -1: must be greater than or equal to 0]",
    );
    // Resource versions are compared afterwards.
    for version in ["x", "7"] {
        let both = json!({"metadata": {"resourceVersion": version}, "spec": {"replicas": -1}});
        let answer = client.patch(&path, "merge", &both).await;
        answer.refused(
            422,
            "Invalid",
            "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -1: must be greater \
             than or equal to 0",
        );
    }
    let odd = json!({"metadata": {"resourceVersion": "x"}});
    let answer = client.patch(&path, "merge", &odd).await;
    assert_eq!(answer.code, 500, "{}", answer.text());
    let any = json!({"metadata": {"resourceVersion": "0"}});
    let dry = format!("{path}?dryRun=All");
    client.patch(&dry, "merge", &any).await.expect(200);

    // Valid metadata is accepted, and ignored.
    scale["metadata"]["labels"] = json!({"a": "b"});
    scale["metadata"]["ownerReferences"] = json!([owner("1"), owner("1"), owner("1")]);
    scale["spec"]["replicas"] = json!(2);
    let put = client.put(&path, &scale).await;
    assert_eq!(put.warnings(), [duplicates(BEFORE, "1, 1")]);
    let put = put.expect(200);
    assert_eq!(put["spec"]["replicas"], 2);
    assert_eq!(put["metadata"]["labels"], Value::Null);
    let patch = json!({"metadata": {"ownerReferences": [owner("1"), owner("2"), owner("1")]}});
    let patched = client.patch(&path, "merge", &patch).await;
    assert_eq!(patched.warnings(), [duplicates(AFTER, "1")]);
    let object = client.get(&format!("{DEPLOYMENTS}/d")).await.expect(200);
    assert_eq!(object["metadata"]["ownerReferences"], Value::Null);
    server.stop().await;
}

#[tokio::test]
async fn scales_of_custom_resources_are_judged_by_the_object() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut version = open_version("v1", true);
    version["subresources"] = json!({"scale": {
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
    }});
    client
        .create(DEFINITIONS, definition(json!([version])))
        .await;
    let widget = |name: &str, spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec});
    client
        .create(WIDGETS, widget("w", json!({"replicas": 1})))
        .await;
    client.create(WIDGETS, widget("empty", json!({}))).await;
    let path = format!("{WIDGETS}/w/scale");
    let odd = json!({"metadata": {"labels": {"a": "-"}}, "spec": {"replicas": 3}});
    let patched = client.patch(&path, "merge", &odd).await.expect(200);
    assert_eq!(patched["spec"]["replicas"], 3);
    let negative = json!({"spec": {"replicas": -1}});
    client.patch(&path, "merge", &negative).await.refused(
        422,
        "Invalid",
        "Widget.example.com \"w\" is invalid: .spec.replicas: Invalid value: -1: should be a \
         non-negative integer",
    );

    // Absent replicas are not zero.
    let path = format!("{WIDGETS}/empty/scale");
    client.get(&path).await.refused(
        500,
        "InternalError",
        "Internal error occurred: the spec replicas field \".spec.replicas\" does not exist",
    );
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    client.patch(&path, "merge", &patch).await.refused(
        400,
        "BadRequest",
        "the spec replicas field \".spec.replicas\" cannot be empty",
    );
    let patch = json!({"spec": {"replicas": 2}});
    let patched = client.patch(&path, "merge", &patch).await.expect(200);
    assert_eq!(patched["spec"]["replicas"], 2);
    server.stop().await;
}

#[tokio::test]
async fn owners_that_stand_twice_are_told() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(PODS, pod("p")).await;
    client.create(PODS, pod("q")).await;
    client
        .create(ACCOUNTS, json!({"metadata": {"name": "robot"}}))
        .await;
    let twice = json!([owner("7"), owner("8"), owner("7")]);
    let told = [duplicates(BEFORE, "7")];
    let mut binding =
        json!({"metadata": {"name": "p", "ownerReferences": twice}, "target": {"name": "n"}});
    let bound = client.post(&format!("{PODS}/p/binding"), &binding).await;
    assert_eq!((bound.code, bound.warnings()), (201, told.to_vec()));
    binding["metadata"]["name"] = json!("q");
    let bound = client
        .post("/api/v1/namespaces/default/bindings", &binding)
        .await;
    assert_eq!((bound.code, bound.warnings()), (201, told.to_vec()));
    let eviction = json!({"metadata": {"name": "p", "ownerReferences": twice}});
    let evicted = client.post(&format!("{PODS}/p/eviction"), &eviction).await;
    assert_eq!((evicted.code, evicted.warnings()), (201, told.to_vec()));
    let request = json!({"metadata": {"ownerReferences": twice}});
    let made = client
        .post(&format!("{ACCOUNTS}/robot/token"), &request)
        .await;
    assert_eq!((made.code, made.warnings()), (201, told.to_vec()));
    let owners = &made.json()["metadata"]["ownerReferences"];
    assert_eq!(*owners, json!([owner("7"), owner("8")]));

    // Duplicates added by a webhook are reported as such.
    client.create(PODS, pod("r")).await;
    let hooks = mutating(&client, &["pods/binding"]).await;
    let patch = json!([{"op": "add", "path": "/metadata/ownerReferences", "value": [owner("9"), owner("9")]}]);
    hooks.script("/mutate", [Script::patch(&patch)]);
    let binding = json!({"metadata": {"name": "r"}, "target": {"name": "n"}});
    let bound = client.post(&format!("{PODS}/r/binding"), &binding).await;
    assert_eq!(
        (bound.code, bound.warnings()),
        (201, vec![duplicates(AFTER, "9")])
    );
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn token_requests_and_bindings_have_managed_fields() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = mutating(&client, &["pods/*", "serviceaccounts/token"]).await;
    client
        .create(ACCOUNTS, json!({"metadata": {"name": "robot"}}))
        .await;
    let path = format!("{ACCOUNTS}/robot/token?fieldManager=me");
    let request = json!({"spec": {"audiences": ["vault"]}});
    let made = client.post(&path, &request).await.expect(201);
    let mut entries = made["metadata"]["managedFields"].clone();
    assert_eq!(seen(&hooks)["metadata"]["managedFields"], entries);
    let time = entries[0].as_object_mut().unwrap().remove("time");
    assert!(time.is_some_and(|time| time.is_string()));
    assert_eq!(
        entries,
        json!([{
            "manager": "me", "operation": "Update", "apiVersion": "authentication.k8s.io/v1",
            "fieldsType": "FieldsV1", "subresource": "token",
            "fieldsV1": {"f:spec": {"f:audiences": {}, "f:expirationSeconds": {}}},
        }])
    );
    // A subresource has no managed fields of its own, whatever clients send.
    let forged = json!([{
        "manager": "eve", "operation": "Update", "apiVersion": "authentication.k8s.io/v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}},
    }]);
    let request = json!({"metadata": {"managedFields": forged}});
    let made = client.post(&path, &request).await.expect(201);
    let entries = made["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0]["manager"], "me");

    client.create(PODS, pod("p")).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    let path = format!("{PODS}/p/binding?fieldManager=binder");
    client.post(&path, &binding).await.expect(201);
    let entry = &seen(&hooks)["metadata"]["managedFields"][0];
    assert_eq!(
        (&entry["manager"], &entry["subresource"], &entry["fieldsV1"]),
        (
            &json!("binder"),
            &json!("binding"),
            &json!({"f:target": {}})
        )
    );
    // They are not those of the Pod.
    let bound = client.get(&format!("{PODS}/p")).await.expect(200);
    let managers = bound["metadata"]["managedFields"].to_string();
    assert!(!managers.contains("binder"), "{managers}");
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn an_empty_list_of_managed_fields_resets_them() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    let url = hooks.url("/");
    let registration = hook("ValidatingWebhookConfiguration", "v", &url, hooks.ca_pem());
    let mut registration = registration;
    registration["webhooks"][0]["failurePolicy"] = json!("Ignore");
    client
        .create(DEFINITIONS, definition(json!([open_version("v1", true)])))
        .await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"a": 1}});
    for (collection, object, resets) in [
        (CONFIG_MAPS, config_map("c"), true),
        (VALIDATING, registration, true),
        // Their metadata is reencoded on read, without empty lists.
        (WIDGETS, widget, false),
    ] {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let path = format!("{collection}/{name}");
        let patches = ["json", "merge", "strategic"];
        let kinds = patches
            .into_iter()
            .filter(|kind| resets || *kind != "strategic");
        for kind in kinds.chain(["put"]) {
            let made = client.create(collection, object.clone()).await;
            assert!(made["metadata"]["managedFields"].is_array());
            let changed = match kind {
                "put" => {
                    let mut sent = made.clone();
                    sent["metadata"]["managedFields"] = json!([]);
                    client.put(&path, &sent).await
                }
                "json" => {
                    let patch =
                        json!([{"op": "replace", "path": "/metadata/managedFields", "value": []}]);
                    client.patch(&path, kind, &patch).await
                }
                _ => {
                    let patch = json!({"metadata": {"managedFields": []}});
                    client.patch(&path, kind, &patch).await
                }
            };
            let changed = changed.expect(200);
            let got = client.get(&path).await.expect(200);
            assert_eq!(got, changed, "{path} {kind}");
            let has_none = changed["metadata"].get("managedFields").is_none();
            assert_eq!(has_none, resets, "{path} {kind}: {changed}");
            client.delete(&path).await.expect(200);
        }
    }
    // Without managed fields in the request they are kept.
    let mut made = client.create(CONFIG_MAPS, config_map("d")).await;
    let before = made["metadata"]["managedFields"].take();
    let changed = client.put(&format!("{CONFIG_MAPS}/d"), &made).await;
    assert_eq!(changed.expect(200)["metadata"]["managedFields"], before);
    hooks.stop().await;
    server.stop().await;
}
