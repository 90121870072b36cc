//! Writes: create, update, patch and delete, and the metadata that the server sets.

use lockgate_testkit::WebhookServer;
use serde_json::{Value, json};

use crate::support::*;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn path(name: &str) -> String {
    format!("{CONFIG_MAPS}/{name}")
}

#[tokio::test]
async fn gives_new_objects_an_identity() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut object = config_map("a");
    object["metadata"]["uid"] = "mine".into();
    object["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z".into();
    object["metadata"]["deletionTimestamp"] = "2001-01-01T00:00:00Z".into();
    object["metadata"]["selfLink"] = "/x".into();
    let made = client.create(CONFIG_MAPS, object).await;
    let metadata = &made["metadata"];
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert!(metadata["creationTimestamp"].as_str().unwrap() > "2026-01-01T00:00:00Z");
    assert_eq!(metadata.get("deletionTimestamp"), None);
    assert_eq!(metadata.get("selfLink"), None);
    assert_eq!(metadata["namespace"], "default");
    assert_eq!(metadata.get("generation"), None, "of a ConfigMap");
    assert_eq!(client.get(&path("a")).await.expect(200), made);

    // apiVersion and kind of a built-in kind can be omitted.
    let made = client
        .create(CONFIG_MAPS, json!({"metadata": {"name": "b"}}))
        .await;
    assert_eq!(
        (&made["kind"], &made["apiVersion"]),
        (&json!("ConfigMap"), &json!("v1"))
    );
    let made = client.create(DEPLOYMENTS, deployment("d")).await;
    assert_eq!(made["metadata"]["generation"], 1);
    server.stop().await;
}

#[tokio::test]
async fn refuses_objects_that_cannot_be_created() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(CONFIG_MAPS, config_map("taken")).await;
    let named = |name: &str| json!({"metadata": {"name": name}});
    for (collection, object, code, reason, message) in [
        (
            CONFIG_MAPS,
            config_map("taken"),
            409,
            "AlreadyExists",
            String::from("configmaps \"taken\" already exists"),
        ),
        (
            CONFIG_MAPS,
            json!({"metadata": {}}),
            422,
            "Invalid",
            String::from(
                "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
            ),
        ),
        (
            CONFIG_MAPS,
            named("Up"),
            422,
            "Invalid",
            format!(
                "ConfigMap \"Up\" is invalid: metadata.name: Invalid value: \"Up\": {SUBDOMAIN}"
            ),
        ),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "a", "namespace": "other"}}),
            400,
            "BadRequest",
            String::from(
                "the namespace of the provided object does not match the namespace sent on the request",
            ),
        ),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "a", "resourceVersion": "5"}}),
            500,
            "",
            String::from("resourceVersion should not be set on objects to be created"),
        ),
        (
            "/api/v1/namespaces/none/configmaps",
            named("a"),
            404,
            "NotFound",
            String::from("namespaces \"none\" not found"),
        ),
        (
            CONFIG_MAPS,
            pod("a"),
            400,
            "BadRequest",
            String::from(
                "Pod in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion",
            ),
        ),
        (
            DEPLOYMENTS,
            json!({"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {"name": "a"}}),
            400,
            "BadRequest",
            String::from(
                "the API version in the data (apps/v1beta1) does not match the expected API version (apps/v1)",
            ),
        ),
    ] {
        client
            .post(collection, &object)
            .await
            .refused(code, reason, &message);
    }
    server.stop().await;
}

#[tokio::test]
async fn makes_up_names() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let object = json!({"metadata": {"generateName": "web-"}});
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let made = client.create(CONFIG_MAPS, object.clone()).await;
        let name = made["metadata"]["name"].as_str().unwrap().to_owned();
        let suffix = name.strip_prefix("web-").unwrap();
        assert_eq!(suffix.len(), 5);
        assert!(
            suffix
                .chars()
                .all(|letter| "bcdfghjklmnpqrstvwxz2456789".contains(letter)),
            "{name}"
        );
        assert!(seen.insert(name));
    }
    let long = json!({"metadata": {"generateName": "x".repeat(100)}});
    let made = client.create(CONFIG_MAPS, long).await;
    assert_eq!(made["metadata"]["name"].as_str().unwrap().len(), 63);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gives_in_after_eight_names_that_are_taken() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    // A webhook that creates each generated name before the server does.
    let thief = client.clone();
    let handle = tokio::runtime::Handle::current();
    let steal = lockgate_testkit::ScriptedResponse::review(move |review| {
        let name = review["request"]["object"]["metadata"]["name"].clone();
        let object = json!({"metadata": {"name": name}});
        tokio::task::block_in_place(|| handle.block_on(thief.create(CONFIG_MAPS, object)));
        json!({
            "apiVersion": review["apiVersion"], "kind": review["kind"],
            "response": {"uid": review["request"]["uid"], "allowed": true},
        })
    });
    hooks.script("/steal", [steal]);
    let mut configuration = hook(
        "ValidatingWebhookConfiguration",
        "thief",
        &hooks.url("/steal"),
        hooks.ca_pem(),
    );
    configuration["webhooks"][0]["objectSelector"] = json!({"matchLabels": {"watched": "yes"}});
    client.create(VALIDATING, configuration).await;

    let object = json!({"metadata": {"generateName": "g-", "labels": {"watched": "yes"}}});
    let answer = client.post(CONFIG_MAPS, &object).await;
    let status = answer.json();
    let name = status["details"]["name"].as_str().unwrap().to_owned();
    let status = answer.refused(
        409,
        "AlreadyExists",
        &format!(
            "configmaps \"{name}\" already exists, the server was not able to generate a unique name for the object"
        ),
    );
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
    assert_eq!(hooks.requests().len(), 8);
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn replaces_only_the_version_that_is_meant() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let made = client.create(CONFIG_MAPS, config_map("a")).await;
    let mut newer = made.clone();
    newer["data"]["a"] = "2".into();
    let newer = client.put(&path("a"), &newer).await.expect(200);
    assert!(version_of(&newer) > version_of(&made));

    let mut stale = made.clone();
    stale["data"]["a"] = "3".into();
    client.put(&path("a"), &stale).await.refused(
        409,
        "Conflict",
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please \
         apply your changes to the latest version and try again",
    );
    // A future version conflicts like a past one.
    stale["metadata"]["resourceVersion"] = "999999".into();
    assert_eq!(client.put(&path("a"), &stale).await.code, 409);

    let mut unconditional = config_map("a");
    unconditional["data"]["a"] = "4".into();
    let written = client.put(&path("a"), &unconditional).await.expect(200);
    assert_eq!(written["data"]["a"], "4");
    assert_eq!(written["metadata"]["uid"], made["metadata"]["uid"]);
    assert_eq!(
        written["metadata"]["creationTimestamp"],
        made["metadata"]["creationTimestamp"]
    );

    let uid = made["metadata"]["uid"].as_str().unwrap();
    let mut other = config_map("a");
    other["metadata"]["uid"] = "other".into();
    client.put(&path("a"), &other).await.refused(
        409,
        "Conflict",
        &format!(
            "Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, Code: \
             4, Key: /registry/configmaps/default/a, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: other, UID in object meta: {uid}"
        ),
    );
    client.put(&path("b"), &config_map("a")).await.refused(
        400,
        "BadRequest",
        "the name of the object (a) does not match the name on the URL (b)",
    );
    client
        .put(&path("b"), &json!({"metadata": {}}))
        .await
        .refused(
            400,
            "BadRequest",
            "the name of the object (b based on URL) was undeterminable: name must be provided",
        );
    client.put(&path("b"), &config_map("b")).await.refused(
        404,
        "NotFound",
        "configmaps \"b\" not found",
    );
    server.stop().await;
}

#[tokio::test]
async fn some_kinds_want_a_version_and_some_are_created_by_an_update() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;

    let configuration = hook(
        "ValidatingWebhookConfiguration",
        "hook",
        &hooks.url("/"),
        hooks.ca_pem(),
    );
    let mut rules = configuration.clone();
    rules["webhooks"][0]["rules"][0]["apiGroups"] = json!(["coordination.k8s.io"]);
    rules["webhooks"][0]["rules"][0]["resources"] = json!(["leases"]);
    client.create(VALIDATING, rules).await;
    client
        .put(&format!("{VALIDATING}/hook"), &configuration)
        .await
        .refused(
            422,
            "Invalid",
            "validatingwebhookconfigurations.admissionregistration.k8s.io \"hook\" is invalid: \
             metadata.resourceVersion: Invalid value: 0: must be specified for an update",
        );

    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
    let answer = client.put(&format!("{LEASES}/l"), &lease).await;
    let made = answer.expect(201);
    assert_eq!(hooks.requests()[0].json()["request"]["operation"], "CREATE");
    client.put(&format!("{LEASES}/l"), &lease).await.refused(
        422,
        "Invalid",
        "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: \
         must be specified for an update",
    );
    let mut renewed = made;
    renewed["spec"]["holderIdentity"] = "you".into();
    client
        .put(&format!("{LEASES}/l"), &renewed)
        .await
        .expect(200);
    assert_eq!(
        hooks.requests().last().unwrap().json()["request"]["operation"],
        "UPDATE"
    );
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_change_of_nothing_is_no_change() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let made = client.create(CONFIG_MAPS, config_map("a")).await;
    let version = version_of(&made);
    let mut watch = client
        .watch(&format!("{CONFIG_MAPS}?resourceVersion={version}"))
        .await;
    let put = client.put(&path("a"), &made).await.expect(200);
    assert_eq!(put, made);
    for (kind, patch) in [
        ("merge", json!({"data": {"a": "1"}})),
        ("strategic", json!({"data": {"a": "1"}})),
        (
            "json",
            json!([{"op": "replace", "path": "/data/a", "value": "1"}]),
        ),
        ("json", json!([])),
    ] {
        let patched = client.patch(&path("a"), kind, &patch).await.expect(200);
        assert_eq!(patched["metadata"], made["metadata"], "{kind} {patch}");
    }
    client.create(CONFIG_MAPS, config_map("b")).await;
    assert_eq!(watch.line().await, "ADDED b");
    server.stop().await;
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let made = client.create(CONFIG_MAPS, config_map("a")).await;
    client.create(DEPLOYMENTS, deployment("d")).await;
    client.create(PODS, pod("p")).await;
    let version =
        client.get("/api/v1/configmaps").await.expect(200)["metadata"]["resourceVersion"].clone();

    let created = client
        .post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("b"))
        .await
        .expect(201);
    assert!(created["metadata"]["uid"].is_string());
    assert!(created["metadata"]["creationTimestamp"].is_string());
    assert_eq!(created["metadata"].get("resourceVersion"), None);
    assert_eq!(
        client
            .post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a"))
            .await
            .code,
        409
    );
    let mut other = made.clone();
    other["data"]["a"] = "2".into();
    let put = client
        .put(&format!("{}?dryRun=All", path("a")), &other)
        .await
        .expect(200);
    assert_eq!(put["data"]["a"], "2");
    let patch = json!({"data": {"a": "3"}});
    let patched = client
        .patch(&format!("{}?dryRun=All", path("a")), "merge", &patch)
        .await
        .expect(200);
    assert_eq!(patched["data"]["a"], "3");
    client
        .delete(&format!("{}?dryRun=All", path("a")))
        .await
        .expect(200);
    client
        .delete_with(&path("a"), &json!({"dryRun": ["All"]}))
        .await
        .expect(200);
    client
        .delete(&format!("{CONFIG_MAPS}?dryRun=All"))
        .await
        .expect(200);
    client
        .delete(&format!("{PODS}/p?dryRun=All"))
        .await
        .expect(200);
    let scale = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 7}});
    let scale = client
        .patch(
            &format!("{DEPLOYMENTS}/d/scale?dryRun=All"),
            "merge",
            &scale,
        )
        .await
        .expect(200);
    // The resulting scale, not the request body.
    assert_eq!(scale["spec"]["replicas"], 7);
    assert_eq!(scale["metadata"]["labels"], Value::Null);
    assert_eq!(scale["metadata"]["managedFields"], Value::Null);
    let eviction = json!({"metadata": {"name": "p"}});
    client
        .post(&format!("{PODS}/p/eviction?dryRun=All"), &eviction)
        .await
        .expect(201);
    let status = json!({"status": {"phase": "Running"}});
    client
        .patch(&format!("{PODS}/p/status?dryRun=All"), "merge", &status)
        .await
        .expect(200);
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    client
        .post(&format!("{PODS}/p/binding?dryRun=All"), &binding)
        .await
        .expect(201);
    client
        .post(
            "/api/v1/namespaces?dryRun=All",
            &json!({"metadata": {"name": "dry"}}),
        )
        .await
        .expect(201);
    client
        .delete("/api/v1/namespaces/kube-node-lease?dryRun=All")
        .await
        .expect(200);
    client
        .post(
            &format!("{DEFINITIONS}?dryRun=All"),
            &definition(json!([open_version("v1", true)])),
        )
        .await
        .expect(201);

    let after = client.get("/api/v1/configmaps").await.expect(200);
    assert_eq!(after["metadata"]["resourceVersion"], version);
    assert_eq!(client.get(&path("a")).await.expect(200), made);
    assert_eq!(client.get("/apis/example.com/v1/widgets").await.code, 404);

    client
        .post(&format!("{CONFIG_MAPS}?dryRun=Some"), &config_map("b"))
        .await
        .refused(
            422,
            "Invalid",
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: \
             supported values: \"All\"",
        );
    server.stop().await;
}

#[tokio::test]
async fn says_what_it_thinks_of_unknown_fields() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut object = pod("a");
    object["spec"]["bar"] = 1.into();
    object["spec"]["containers"][0]["foo"] = true.into();
    let findings = [
        "unknown field \"spec.bar\"",
        "unknown field \"spec.containers[0].foo\"",
    ];
    client
        .post(&format!("{PODS}?fieldValidation=Strict"), &object)
        .await
        .refused(
            400,
            "BadRequest",
            &format!(
                "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: {}",
                findings.join(", ")
            ),
        );
    for query in ["", "&fieldValidation=Warn"] {
        let answer = client
            .post(&format!("{PODS}?dryRun=All{query}"), &object)
            .await;
        assert_eq!(answer.warnings(), findings, "{query}");
        assert_eq!(answer.expect(201)["spec"].get("bar"), None);
    }
    let answer = client
        .post(&format!("{PODS}?fieldValidation=Ignore"), &object)
        .await;
    assert_eq!(answer.warnings(), Vec::<String>::new());
    answer.expect(201);

    let twice = r#"{"metadata":{"name":"t"},"data":{"a":"1","a":"2"}}"#;
    let json = [("content-type", "application/json")];
    let answer = client
        .request(http::Method::POST, CONFIG_MAPS, &json, twice)
        .await;
    assert_eq!(answer.warnings(), ["duplicate field \"data.a\""]);
    assert_eq!(answer.expect(201)["data"]["a"], "2");
    let strict = format!("{CONFIG_MAPS}?fieldValidation=Strict");
    client
        .request(http::Method::POST, &strict, &json, twice)
        .await
        .refused(
            400,
            "BadRequest",
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
             duplicate field \"data.a\"",
        );
    // A patch is decoded with the same field validation.
    let patch = json!({"spec": {"nope": 1}});
    let answer = client
        .patch(&format!("{PODS}/a?fieldValidation=Strict"), "merge", &patch)
        .await;
    assert_eq!(answer.code, 422);
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(
        message.ends_with("strict decoding error: unknown field \"spec.nope\""),
        "{message}"
    );
    let answer = client.patch(&format!("{PODS}/a"), "merge", &patch).await;
    assert_eq!(answer.warnings(), ["unknown field \"spec.nope\""]);
    client
        .post(&format!("{PODS}?fieldValidation=Maybe"), &object)
        .await
        .refused(
            422,
            "Invalid",
            "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \
             \"Maybe\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
        );
    server.stop().await;
}

#[tokio::test]
async fn patches_in_three_ways() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(DEPLOYMENTS, deployment("d")).await;
    let d = format!("{DEPLOYMENTS}/d");
    let container = json!({"name": "side", "image": "s"});
    let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});

    // Strategic: lists with merge keys are merged; merge: they are replaced.
    let patched = client.patch(&d, "strategic", &patch).await.expect(200);
    let names = |object: &Value| -> Vec<String> {
        let containers = object["spec"]["template"]["spec"]["containers"].as_array();
        let containers = containers.unwrap().iter();
        containers
            .map(|container| container["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&patched), ["side", "c"]);
    assert_eq!(patched["metadata"]["generation"], 2);
    let patched = client.patch(&d, "merge", &patch).await.expect(200);
    assert_eq!(names(&patched), ["side"]);
    let operations = json!([
        {"op": "test", "path": "/spec/replicas", "value": 1},
        {"op": "replace", "path": "/spec/replicas", "value": 3},
        {"op": "add", "path": "/metadata/labels", "value": {"x~/y": "1"}},
    ]);
    let operations = operations.to_string().replace("\"x~/y\"", "\"x\"");
    let operations: Value = serde_json::from_str(&operations).unwrap();
    let patched = client.patch(&d, "json", &operations).await.expect(200);
    assert_eq!(patched["spec"]["replicas"], 3);
    assert_eq!(patched["metadata"]["generation"], 4);

    client.patch(&d, "json", &operations).await.refused(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    );
    client
        .patch(&format!("{DEPLOYMENTS}/none"), "merge", &json!({}))
        .await
        .refused(404, "NotFound", "deployments.apps \"none\" not found");
    // A resourceVersion in the patch is a precondition.
    let stale = json!({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 9}});
    client.patch(&d, "merge", &stale).await.refused(
        409,
        "Conflict",
        "Operation cannot be fulfilled on deployments.apps \"d\": the object has been modified; \
         please apply your changes to the latest version and try again",
    );
    // The name cannot be changed.
    let renamed = json!({"metadata": {"name": "e"}});
    client.patch(&d, "merge", &renamed).await.refused(
        400,
        "BadRequest",
        "the name of the object (e) does not match the name on the URL (d)",
    );
    let headers = [("content-type", "application/json")];
    client
        .request(http::Method::PATCH, &d, &headers, "{}")
        .await
        .refused(415, "UnsupportedMediaType", "415: Unsupported Media Type");
    // A media type that the route accepts may still be rejected by the handler.
    let headers = [("content-type", "application/merge-patch+json ;a=b")];
    client
        .request(http::Method::PATCH, &d, &headers, "{}")
        .await
        .refused(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, \
             application/strategic-merge-patch+json, application/apply-patch+yaml",
        );
    server.stop().await;
}

#[tokio::test]
async fn reads_yaml() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let headers = [("content-type", "application/yaml")];
    let text = "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: text\ndata:\n  a: |\n    one\n    two\n";
    let made = client
        .request(http::Method::POST, CONFIG_MAPS, &headers, text)
        .await
        .expect(201);
    assert_eq!(made["data"]["a"], "one\ntwo\n");
    server.stop().await;
}

#[tokio::test]
async fn deletes_what_is_meant() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let made = client.create(CONFIG_MAPS, config_map("a")).await;
    let (uid, version) = (
        made["metadata"]["uid"].as_str().unwrap(),
        made["metadata"]["resourceVersion"].as_str().unwrap(),
    );
    client
        .delete_with(&path("a"), &json!({"preconditions": {"uid": "other"}}))
        .await
        .refused(
            409,
            "Conflict",
            &format!(
                "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition \
                 (other) does not match the UID in record ({uid}). The object might have been \
                 deleted and then recreated"
            ),
        );
    client
        .delete_with(
            &path("a"),
            &json!({"preconditions": {"resourceVersion": "1"}}),
        )
        .await
        .refused(
            409,
            "Conflict",
            &format!(
                "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the \
                 precondition (1) does not match the ResourceVersion in record ({version}). The \
                 object might have been modified"
            ),
        );
    let options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background",
        "preconditions": {"uid": uid, "resourceVersion": version},
    });
    let status = client.delete_with(&path("a"), &options).await.expect(200);
    assert_eq!(
        status,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "a", "kind": "configmaps", "uid": uid},
        })
    );
    client
        .delete(&path("a"))
        .await
        .refused(404, "NotFound", "configmaps \"a\" not found");
    client
        .delete(&format!("{}?propagationPolicy=Never", path("a")))
        .await
        .refused(
            422,
            "Invalid",
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \
             \"Never\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
        );
    server.stop().await;
}

#[tokio::test]
async fn finalizers_hold_objects() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    client.create(CONFIG_MAPS, object).await;
    let held = client.delete(&path("a")).await.expect(200);
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 0);
    // A repeated delete has the same effect.
    let again = client.delete(&path("a")).await.expect(200);
    assert_eq!(
        again["metadata"]["deletionTimestamp"],
        held["metadata"]["deletionTimestamp"]
    );

    // Finalizers may only be removed, and deletionTimestamp is kept.
    let more = json!({"metadata": {"finalizers": ["example.com/one", "example.com/three"]}});
    client.patch(&path("a"), "merge", &more).await.refused(
        422,
        "Invalid",
        "ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added \
         if the object is being deleted, found new finalizers []string{\"example.com/three\"}",
    );
    let unmark = json!({"metadata": {"deletionTimestamp": null}});
    let still = client.patch(&path("a"), "merge", &unmark).await.expect(200);
    assert_eq!(
        still["metadata"]["deletionTimestamp"],
        held["metadata"]["deletionTimestamp"]
    );
    let mut create = config_map("a");
    create["data"] = json!({});
    client.post(CONFIG_MAPS, &create).await.refused(
        409,
        "AlreadyExists",
        "object is being deleted: configmaps \"a\" already exists",
    );

    let fewer = json!({"metadata": {"finalizers": ["example.com/two"]}});
    client.patch(&path("a"), "merge", &fewer).await.expect(200);
    client.get(&path("a")).await.expect(200);
    let none = json!({"metadata": {"finalizers": null}});
    let last = client.patch(&path("a"), "merge", &none).await.expect(200);
    assert_eq!(last["metadata"]["name"], "a");
    assert_eq!(client.get(&path("a")).await.code, 404);
    server.stop().await;
}

#[tokio::test]
async fn propagation_leaves_its_finalizer() {
    let server = start().await;
    let client = Client::admin(&server).await;
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        let name = policy.to_lowercase();
        client.create(CONFIG_MAPS, config_map(&name)).await;
        let held = client
            .delete_with(&path(&name), &json!({"propagationPolicy": policy}))
            .await
            .expect(200);
        let finalizers = held["metadata"]["finalizers"].clone();
        assert_eq!(finalizers, json!([finalizer]), "{policy}");
    }
    server.stop().await;
}

#[tokio::test]
async fn pods_go_gracefully() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    let mut configuration = hook(
        "ValidatingWebhookConfiguration",
        "hook",
        &hooks.url("/"),
        hooks.ca_pem(),
    );
    configuration["webhooks"][0]["rules"][0]["resources"] = json!(["pods"]);
    configuration["webhooks"][0]["rules"][0]["operations"] = json!(["DELETE"]);
    client.create(VALIDATING, configuration).await;

    // Without a node there is nothing to wait for: marked and removed in one request, in two passes.
    client.create(PODS, pod("free")).await;
    let gone = client.delete(&format!("{PODS}/free")).await.expect(200);
    assert_eq!(gone["kind"], "Pod");
    assert_eq!(gone["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(client.get(&format!("{PODS}/free")).await.code, 404);
    assert_eq!(hooks.requests().len(), 2);

    let mut bound = pod("bound");
    bound["spec"]["nodeName"] = "n".into();
    client.create(PODS, bound).await;
    let b = format!("{PODS}/bound");
    let going = client.delete(&b).await.expect(200);
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(hooks.requests().len(), 3);
    // A longer grace period changes nothing, a shorter one does, zero removes it.
    let same = client
        .delete(&format!("{b}?gracePeriodSeconds=60"))
        .await
        .expect(200);
    assert_eq!(same["metadata"], going["metadata"]);
    let sooner = client
        .delete(&format!("{b}?gracePeriodSeconds=5"))
        .await
        .expect(200);
    assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 5);
    client
        .delete(&format!("{b}?gracePeriodSeconds=0"))
        .await
        .expect(200);
    assert_eq!(client.get(&b).await.code, 404);
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn deletes_collections() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    client
        .create(
            VALIDATING,
            hook(
                "ValidatingWebhookConfiguration",
                "hook",
                &hooks.url("/"),
                hooks.ca_pem(),
            ),
        )
        .await;
    for (name, value) in [("a", "x"), ("b", "y"), ("c", "x")] {
        client.create(CONFIG_MAPS, labelled(name, "k", value)).await;
    }
    let before = hooks.requests().len();
    let list = client
        .delete(&format!("{CONFIG_MAPS}?labelSelector=k%3Dx"))
        .await
        .expect(200);
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(names(&list), ["a", "c"]);
    let reviews: Vec<Value> = hooks.requests()[before..]
        .iter()
        .map(|request| request.json()["request"].clone())
        .collect();
    assert_eq!(reviews.len(), 2);
    for review in &reviews {
        assert_eq!(review["operation"], "DELETE");
        assert_eq!(review.get("name"), None);
    }
    let left = client.get(CONFIG_MAPS).await.expect(200);
    assert_eq!(names(&left), ["b"]);
    // deletecollection is not served for all namespaces.
    assert_eq!(client.delete("/api/v1/configmaps").await.code, 405);
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn keeps_metadata_in_order() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u1"});
    let mut object = config_map("a");
    object["metadata"]["ownerReferences"] = json!([owner, owner]);
    let answer = client.post(CONFIG_MAPS, &object).await;
    assert_eq!(
        answer.warnings(),
        [
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references \
             in 1.20+, and may reject such requests as early as 1.24; please fix your requests; \
             duplicate UID(s) observed: u1"
        ]
    );
    assert_eq!(
        answer.expect(201)["metadata"]["ownerReferences"],
        json!([owner])
    );

    for (patch, part) in [
        (
            json!({"metadata": {"labels": {"a b": "c"}}}),
            "metadata.labels: Invalid value: \"a b\": name part must consist of",
        ),
        (
            json!({"metadata": {"labels": {"a": "-"}}}),
            "metadata.labels: Invalid value: \"-\": a valid label must be",
        ),
        (
            json!({"metadata": {"annotations": {"": "x"}}}),
            "metadata.annotations: Invalid value: \"\"",
        ),
        (
            json!({"metadata": {"finalizers": ["a b"]}}),
            "metadata.finalizers: Invalid value: \"a b\": name part must consist of",
        ),
        (
            json!({"metadata": {"ownerReferences": [{"kind": "X", "name": "y", "uid": "z"}]}}),
            "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
        ),
        (
            json!({"metadata": {"annotations": {"big": "x".repeat(300_000)}}}),
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
    ] {
        let answer = client.patch(&path("a"), "merge", &patch).await;
        let status = answer.json();
        let message = status["message"].as_str().unwrap_or_default();
        let shown: String = message.chars().take(300).collect();
        assert_eq!(answer.code, 422, "{part}: {shown}");
        assert!(message.contains(part), "{shown}");
    }
    // Fields set by the server are kept.
    let before = client.get(&path("a")).await.expect(200);
    let patch = json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}});
    let after = client.patch(&path("a"), "merge", &patch).await.expect(200);
    for member in ["creationTimestamp", "uid", "generation"] {
        assert_eq!(
            after["metadata"][member], before["metadata"][member],
            "{member}"
        );
    }
    server.stop().await;
}

/// Controllers that act on Pods with a deletionTimestamp read them from caches, which would miss it on Pods that are
/// removed immediately.
#[tokio::test]
async fn a_pod_without_a_grace_period_is_marked_before_it_is_removed() {
    let server = start().await;
    let (deleter, reader) = (Client::admin(&server).await, Client::admin(&server).await);
    let mut watch = reader.watch(PODS).await;
    let mut seen = 0;
    for number in 0..20 {
        let path = format!("{PODS}/p{number}");
        deleter.create(PODS, pod(&format!("p{number}"))).await;
        assert_eq!(watch.next().await.0, "ADDED");
        // Marked as deleted, and read during the deletion.
        let read = async {
            let (kind, marked) = watch.next().await;
            assert_eq!(kind, "MODIFIED");
            assert!(marked["metadata"]["deletionTimestamp"].is_string());
            reader.get(&path).await
        };
        let (deleted, read) = tokio::join!(deleter.delete(&path), read);
        deleted.expect(200);
        seen += usize::from(read.code == 200);
        assert_eq!(watch.next().await.0, "DELETED");
    }
    assert!(seen > 0, "no mark was there long enough to be read");
    server.stop().await;
}

/// The type of an object that a JSON patch or a merge patch leaves is that of its resource. Strategic merge patches
/// are merged into the type itself.
#[tokio::test]
async fn patches_leave_the_type_of_an_object() {
    let server = start().await;
    let client = Client::admin(&server).await;
    client.create(DEPLOYMENTS, deployment("d")).await;
    let d = format!("{DEPLOYMENTS}/d?dryRun=All");
    let scale = format!("{DEPLOYMENTS}/d/scale?dryRun=All");
    let nameless =
        "the name of the object (d based on URL) was undeterminable: name must be provided";
    let scheme = "in scheme \"pkg/api/legacyscheme/scheme.go:30\"";
    for (path, patch, code, message) in [
        (&d, json!({"kind": null}), 200, String::new()),
        (
            &d,
            json!({"kind": "Deployment", "apiVersion": "apps/v1"}),
            200,
            String::new(),
        ),
        (&d, json!({"apiVersion": null}), 400, nameless.to_owned()),
        (&d, json!({"apiVersion": "apps/"}), 400, nameless.to_owned()),
        (&scale, json!({"apiVersion": ""}), 400, nameless.to_owned()),
        (
            &d,
            json!({"apiVersion": null, "kind": "Pod"}),
            422,
            format!(
                "no kind \"Pod\" is registered for the internal version of group \"apps\" {scheme}"
            ),
        ),
        (
            &d,
            json!({"apiVersion": "v1"}),
            422,
            format!("no kind \"Deployment\" is registered for version \"v1\" {scheme}"),
        ),
        (
            &d,
            json!({"kind": "StatefulSet"}),
            422,
            String::from("converting (v1.StatefulSet) to (apps.Deployment): unknown conversion"),
        ),
        (
            &scale,
            json!({"kind": "Pod"}),
            422,
            format!("no kind \"Pod\" is registered for version \"autoscaling/v1\" {scheme}"),
        ),
        (
            &d,
            json!({"apiVersion": "a/b/c"}),
            422,
            String::from("unexpected GroupVersion string: a/b/c"),
        ),
        (
            &d,
            json!({"kind": 5}),
            422,
            String::from(
                "couldn't get version/kind; json parse error: json: cannot unmarshal number into \
                 Go struct field .kind of type string",
            ),
        ),
    ] {
        let answer = client.patch(path, "merge", &patch).await;
        let told = answer.json()["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert_eq!(answer.code, code, "{patch}: {told}");
        assert!(told.ends_with(&message), "{patch}: {told}");
    }
    let patch = json!({"kind": "Pod", "apiVersion": "v1"});
    client.patch(&d, "strategic", &patch).await.expect(200);
    let answer = client
        .patch(&d, "merge", &json!({"apiVersion": null}))
        .await;
    assert_eq!(
        answer.warnings(),
        ["metadata", "spec", "status"].map(|name| format!("unknown field \"{name}\""))
    );
    server.stop().await;
}

/// Each object of a deleted collection gets a copy of the options; webhooks see those that were sent.
#[tokio::test]
async fn webhooks_see_the_options_that_a_collection_is_deleted_with() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    let mut configuration = hook(
        "ValidatingWebhookConfiguration",
        "observer",
        &hooks.url("/observe"),
        hooks.ca_pem(),
    );
    configuration["webhooks"][0]["rules"][0]["resources"] = json!(["pods"]);
    client.create(VALIDATING, configuration).await;
    let options = |hooks: &WebhookServer| {
        let review = hooks.requests().last().unwrap().json();
        review["request"]["options"].clone()
    };
    client.create(PODS, pod("p")).await;
    client
        .delete(&format!("{PODS}?dryRun=All"))
        .await
        .expect(200);
    assert_eq!(options(&hooks).get("gracePeriodSeconds"), None);
    client
        .delete(&format!("{PODS}/p?dryRun=All"))
        .await
        .expect(200);
    assert_eq!(options(&hooks)["gracePeriodSeconds"], 0);
    hooks.stop().await;
    server.stop().await;
}

/// Storage makes empty lists null, which happens after validating webhooks.
#[tokio::test]
async fn validating_webhooks_see_empty_lists() {
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    let mut configuration = hook(
        "ValidatingWebhookConfiguration",
        "observer",
        &hooks.url("/observe"),
        hooks.ca_pem(),
    );
    let rule = &mut configuration["webhooks"][0]["rules"][0];
    rule["apiGroups"] = json!(["rbac.authorization.k8s.io"]);
    rule["resources"] = json!(["clusterroles"]);
    client.create(VALIDATING, configuration).await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": []});
    let seen = |hooks: &WebhookServer| {
        let review = hooks.requests().last().unwrap().json();
        review["request"]["object"]["rules"].clone()
    };
    let made = client.create(ROLES, role.clone()).await;
    assert_eq!((seen(&hooks), &made["rules"]), (json!([]), &Value::Null));
    let path = format!("{ROLES}/r");
    let made = client.put(&path, &role).await.expect(200);
    assert_eq!((seen(&hooks), &made["rules"]), (json!([]), &Value::Null));
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    client.patch(&path, "merge", &patch).await.expect(200);
    assert_eq!(seen(&hooks), Value::Null);
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn yaml_that_cannot_be_read_is_refused_with_its_line() {
    let server = start().await;
    let client = Client::admin(&server).await;
    for (text, problem) in [
        (
            "a:\n\tb: 1\n",
            "yaml: line 2: found character that cannot start any token",
        ),
        ("a: [", "yaml: line 1: did not find expected node content"),
        (
            "a: b: c",
            "yaml: mapping values are not allowed in this context",
        ),
        ("a: 'x", "yaml: found unexpected end of stream"),
        ("a: *x", "yaml: unknown anchor 'x' referenced"),
    ] {
        let headers = [("content-type", "application/yaml")];
        let answer = client
            .request(http::Method::POST, CONFIG_MAPS, &headers, text)
            .await
            .expect(400);
        let told = answer["message"].as_str().unwrap();
        let start =
            format!("the object provided is unrecognized (must be of type ConfigMap): {problem} (");
        assert!(told.starts_with(&start), "{told}");
        let headers = [("content-type", "application/apply-patch+yaml")];
        let path = format!("{CONFIG_MAPS}/a?fieldManager=t");
        let answer = client
            .request(http::Method::PATCH, &path, &headers, text)
            .await
            .expect(400);
        assert_eq!(
            answer["message"],
            format!("error decoding YAML: error converting YAML to JSON: {problem}")
        );
    }
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = format!("{CONFIG_MAPS}/a?fieldManager=t");
    let answer = client
        .request(http::Method::PATCH, &path, &headers, "a")
        .await;
    answer.refused(
        400,
        "BadRequest",
        "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal string \
         into Go value of type map[string]interface {}",
    );
    server.stop().await;
}

/// Events own nothing: no policy and no finalizer of the garbage collector holds them.
#[tokio::test]
async fn events_are_not_held_for_dependents() {
    const EVENTS: &str = "/api/v1/namespaces/default/events";
    let server = start().await;
    let client = Client::admin(&server).await;
    for policy in ["Background", "Foreground", "Orphan"] {
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "finalizers": ["foregroundDeletion"]}, "involvedObject": {"namespace": "default"}});
        client.create(EVENTS, event).await;
        let options = json!({"propagationPolicy": policy});
        let path = format!("{EVENTS}/e");
        client.delete_with(&path, &options).await.expect(200);
        assert_eq!(client.get(&path).await.code, 404, "{policy}");
    }
    server.stop().await;
}
