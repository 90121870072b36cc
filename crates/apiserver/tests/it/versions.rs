//! Versions of custom resources: stored objects keep their storage version, whatever changes in the
//! CustomResourceDefinition.

use std::sync::Arc;

use base64::Engine as _;
use http::Method;
use lockgate_apiserver::{Running, Settings};
use lockgate_store::{List, MemoryStore, Store};
use lockgate_testkit::{ScriptedResponse as Script, WebhookServer};
use serde_json::{Value, json};

use crate::support::*;

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const WIDGETS_V2: &str = "/apis/example.com/v2/namespaces/default/widgets";
const WIDGETS_KEYS: &str = "/custom:example.com/widgets/";
const NAME: &str = "widgets.example.com";

/// Converts `size` in v1 to `length` in v2.
fn renamed(object: &Value, to: &Value) -> Value {
    let mut object = object.clone();
    let (old, new) = match to.as_str() {
        Some("example.com/v2") => ("size", "length"),
        _ => ("length", "size"),
    };
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(value) = spec.remove(old)
    {
        spec.insert(new.to_owned(), value);
    }
    object["apiVersion"] = to.clone();
    object
}

fn convert(review: &Value) -> Value {
    let request = &review["request"];
    let objects = request["objects"].as_array().unwrap();
    let converted: Vec<Value> = objects
        .iter()
        .map(|object| renamed(object, &request["desiredAPIVersion"]))
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "response": {
            "uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": converted,
        },
    })
}

/// A version with one field that prunes all others.
pub(crate) fn strict(name: &str, storage: bool) -> Value {
    let field = if name == "v1" { "size" } else { "length" };
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {field: {"type": "integer"}}},
        }}},
    })
}

pub(crate) fn converted_by(hooks: &WebhookServer, versions: Value) -> Value {
    let mut object = definition(versions);
    object["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {
                "url": hooks.url("/convert"),
                "caBundle": base64::prelude::BASE64_STANDARD.encode(hooks.ca_pem()),
            },
        },
    });
    object
}

/// Changes the storage version to another of the two versions.
async fn store_in(client: &Client, version: &str) {
    let patch = json!([
        {"op": "replace", "path": "/spec/versions/0/storage", "value": version == "v1"},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": version == "v2"},
    ]);
    client
        .patch(&format!("{DEFINITIONS}/{NAME}"), "json", &patch)
        .await
        .expect(200);
}

fn widget(version: &str, name: &str, number: usize) -> Value {
    let field = if version == "v1" { "size" } else { "length" };
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Widget",
        "metadata": {"name": name}, "spec": {field: number},
    })
}

/// The versions of the objects in the webhook's requests.
fn sent_versions(hooks: &WebhookServer) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let requests = hooks.requests();
    let reviews = requests
        .iter()
        .map(|request| request.json()["request"].take());
    reviews
        .map(|request| {
            (
                text(&request["objects"][0]["apiVersion"]),
                text(&request["desiredAPIVersion"]),
            )
        })
        .collect()
}

pub(crate) async fn webhook() -> WebhookServer {
    let hooks = WebhookServer::start().await;
    hooks.script("/convert", [Script::review(convert)]);
    hooks
}

#[tokio::test]
async fn objects_keep_the_version_they_were_stored_in() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = webhook().await;
    let versions = json!([strict("v1", true), strict("v2", false)]);
    client
        .create(DEFINITIONS, converted_by(&hooks, versions))
        .await;
    client.create(WIDGETS, widget("v1", "old", 7)).await;
    store_in(&client, "v2").await;
    client.create(WIDGETS_V2, widget("v2", "new", 8)).await;
    assert_eq!(sent_versions(&hooks), [], "nothing was converted so far");

    let list = client.get(WIDGETS_V2).await.expect(200);
    let specs: Vec<&Value> = (list["items"].as_array().unwrap().iter())
        .map(|item| &item["spec"])
        .collect();
    assert_eq!(specs, [&json!({"length": 8}), &json!({"length": 7})]);
    assert_eq!(
        sent_versions(&hooks),
        [("example.com/v1".into(), "example.com/v2".into())],
        "the old one alone, and as what it is"
    );
    let shown = client.get(&format!("{WIDGETS}/old")).await.expect(200);
    assert_eq!(shown["spec"], json!({"size": 7}));
    assert_eq!(sent_versions(&hooks).len(), 1, "it is stored as asked for");
    // A write stores it in the current storage version.
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let patched = client
        .patch(&format!("{WIDGETS}/old"), "merge", &patch)
        .await
        .expect(200);
    assert_eq!(patched["spec"], json!({"size": 7}));
    let before = sent_versions(&hooks).len();
    let shown = client.get(&format!("{WIDGETS_V2}/old")).await.expect(200);
    assert_eq!(shown["spec"], json!({"length": 7}));
    assert_eq!(sent_versions(&hooks).len(), before);
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn changing_the_storage_version_under_load_loses_nothing() {
    const WRITERS: usize = 4;
    const EACH: usize = 12;
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = webhook().await;
    let versions = json!([strict("v1", true), strict("v2", false)]);
    client
        .create(DEFINITIONS, converted_by(&hooks, versions))
        .await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let client = client.clone();
            tokio::spawn(async move {
                for index in 0..EACH {
                    let number = writer * EACH + index;
                    let (version, path) = match number % 2 {
                        0 => ("v1", WIDGETS),
                        _ => ("v2", WIDGETS_V2),
                    };
                    let name = format!("w{number}");
                    client.create(path, widget(version, &name, number)).await;
                    // And an object that exists already, through the other version.
                    let other = if version == "v1" { WIDGETS_V2 } else { WIDGETS };
                    let label = json!({"metadata": {"labels": {"n": number.to_string()}}});
                    client
                        .patch(&format!("{other}/{name}"), "merge", &label)
                        .await
                        .expect(200);
                }
            })
        })
        .collect();
    let mut rounds = 0;
    while writers.iter().any(|writer| !writer.is_finished()) {
        store_in(&client, if rounds % 2 == 0 { "v2" } else { "v1" }).await;
        rounds += 1;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for storage in ["v1", "v2"] {
        store_in(&client, storage).await;
        for (path, field) in [(WIDGETS, "size"), (WIDGETS_V2, "length")] {
            let list = client.get(path).await.expect(200);
            let items = list["items"].as_array().unwrap();
            assert_eq!(items.len(), WRITERS * EACH);
            for item in items {
                let number = item["spec"][field]
                    .as_u64()
                    .map(|number| number.to_string());
                let name = item["metadata"]["name"].as_str().unwrap();
                assert_eq!(
                    number.as_deref(),
                    name.strip_prefix('w'),
                    "{rounds} changes: {item}"
                );
                assert_eq!(item["metadata"]["labels"]["n"].as_str(), number.as_deref());
            }
        }
    }
    hooks.stop().await;
    server.stop().await;
}

async fn run(store: &Arc<MemoryStore>) -> Running {
    let settings = Settings {
        secure_port: 0,
        ..settings()
    };
    let store: Arc<dyn Store> = Arc::clone(store) as _;
    Running::start(settings, store).await.unwrap()
}

#[tokio::test]
async fn a_store_of_the_older_form_is_migrated() {
    let store = Arc::new(MemoryStore::new());
    let server = run(&store).await;
    let client = Client::admin(&server).await;
    let hooks = webhook().await;
    let versions = json!([strict("v1", true), strict("v2", false)]);
    client
        .create(DEFINITIONS, converted_by(&hooks, versions))
        .await;
    client.create(WIDGETS, widget("v1", "a", 7)).await;
    client.create(CONFIG_MAPS, config_map("c")).await;
    let before = client.get(&format!("{CONFIG_MAPS}/c")).await.expect(200);
    server.stop().await;

    // In the format of earlier releases.
    let everything = store.list(List::all("/")).await.unwrap().entries;
    for entry in &everything {
        let text = std::str::from_utf8(&entry.value).unwrap();
        let (_, rest) = text.split_once(",\"metadata\":{").unwrap();
        let older = format!("{{\"metadata\":{{{rest}");
        store
            .update(&entry.key, entry.revision, older.into())
            .await
            .unwrap();
    }

    let server = run(&store).await;
    let client = Client::admin(&server).await;
    for entry in store.list(List::all("/")).await.unwrap().entries {
        let text = std::str::from_utf8(&entry.value).unwrap();
        assert!(
            text.starts_with("{\"apiVersion\":\""),
            "{}: {text}",
            entry.key
        );
    }
    let mut after = client.get(&format!("{CONFIG_MAPS}/c")).await.expect(200);
    after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    assert_eq!(after, before);
    // The storage version is changed only now.
    store_in(&client, "v2").await;
    let shown = client.get(&format!("{WIDGETS_V2}/a")).await.expect(200);
    assert_eq!(shown["spec"], json!({"length": 7}));
    let kept = store.list(List::all(WIDGETS_KEYS)).await.unwrap().entries;
    assert!(
        kept[0]
            .value
            .starts_with(b"{\"apiVersion\":\"example.com/v1\",")
    );
    hooks.stop().await;
    server.stop().await;
}

async fn apply(client: &Client, path: &str, manager: &str, object: &Value) -> Answer {
    let path = format!("{path}?fieldManager={manager}");
    let headers = [("content-type", "application/apply-patch+yaml")];
    client
        .request(Method::PATCH, &path, &headers, object.to_string())
        .await
}

#[tokio::test]
async fn managed_fields_of_another_version_are_converted() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = webhook().await;
    let versions = json!([strict("v1", true), strict("v2", false)]);
    client
        .create(DEFINITIONS, converted_by(&hooks, versions))
        .await;
    let path = format!("{WIDGETS}/a");
    let other = format!("{WIDGETS_V2}/a");
    apply(&client, &path, "one", &widget("v1", "a", 7))
        .await
        .expect(201);
    // The same value in the other version: both are managers of the field.
    let shared = apply(&client, &other, "two", &widget("v2", "a", 7))
        .await
        .expect(200);
    let managers: Vec<(&str, &str)> = shared["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap();
            (text("manager"), text("apiVersion"))
        })
        .collect();
    // The second changed nothing, so its entry has no timestamp and sorts first.
    assert_eq!(
        managers,
        [("two", "example.com/v2"), ("one", "example.com/v1")]
    );
    apply(&client, &other, "two", &widget("v2", "a", 8))
        .await
        .refused(
            409,
            "Conflict",
            "Apply failed with 1 conflict: conflict with \"one\": .spec.size",
        );
    // A field without managers is removed, in whichever version it was applied.
    let less = |version: &str| {
        let mut less = widget(version, "a", 7);
        less.as_object_mut().unwrap().remove("spec");
        less
    };
    let kept = apply(&client, &path, "one", &less("v1")).await.expect(200);
    assert_eq!(kept["spec"], json!({"size": 7}), "the other one wants it");
    let less = less("v2");
    let empty = apply(&client, &other, "two", &less).await.expect(200);
    assert_eq!(empty["spec"]["length"], Value::Null, "{empty}");
    // An update takes the field from managers of the other version.
    apply(&client, &path, "one", &widget("v1", "a", 9))
        .await
        .expect(200);
    let updated = client
        .patch(&other, "merge", &json!({"spec": {"length": 10}}))
        .await
        .expect(200);
    let owners = updated["metadata"]["managedFields"].to_string();
    assert!(!owners.contains("f:size"), "{owners}");
    assert!(owners.contains("f:length"), "{owners}");

    hooks.script("/convert", [Script::http(500, "broken")]);
    let answer = apply(&client, &path, "three", &widget("v1", "a", 10)).await;
    assert_eq!(answer.code, 500, "{}", answer.text());
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("conversion webhook for"), "{message}");
    hooks.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn managed_fields_of_a_version_that_is_gone_are_refused() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let versions = json!([open_version("v1", true), open_version("v2", false)]);
    client.create(DEFINITIONS, definition(versions)).await;
    let path = format!("{WIDGETS}/a");
    apply(&client, &path, "one", &widget("v1", "a", 1))
        .await
        .expect(201);
    let other = format!("{WIDGETS_V2}/a");
    let label = |version: &str| {
        json!({
            "apiVersion": format!("example.com/{version}"), "kind": "Widget",
            "metadata": {"name": "a", "labels": {"by": version}},
        })
    };
    apply(&client, &other, "two", &label("v2"))
        .await
        .expect(200);
    let patch = json!({"spec": {"versions": [open_version("v1", true)]}});
    client
        .patch(&format!("{DEFINITIONS}/{NAME}"), "merge", &patch)
        .await
        .expect(200);
    apply(&client, &path, "one", &widget("v1", "a", 2))
        .await
        .refused(
            500,
            "",
            "request to convert CR to an invalid group/version: example.com/v2",
        );
    // Writes by other managers are no longer tracked, but succeed.
    let put = client
        .patch(&path, "merge", &json!({"spec": {"size": 3}}))
        .await
        .expect(200);
    assert_eq!(put["spec"], json!({"size": 3}));
    server.stop().await;
}

#[tokio::test]
async fn definitions_deleted_together_end() {
    let server = start().await;
    let client = Client::admin(&server).await;
    for name in ["aas", "bbs", "ccs"] {
        let kind = name[..2].to_uppercase();
        let mut object = definition(json!([open_version("v1", true)]));
        object["metadata"] =
            json!({"name": format!("{name}.dc.example.com"), "labels": {"dc": "x"}});
        object["spec"]["group"] = "dc.example.com".into();
        object["spec"]["names"] = json!({"plural": name, "kind": kind});
        client.create(DEFINITIONS, object).await;
        let path = format!("/apis/dc.example.com/v1/namespaces/default/{name}");
        let made =
            json!({"apiVersion": "dc.example.com/v1", "kind": kind, "metadata": {"name": "a"}});
        client.create(&path, made).await;
    }
    client
        .delete(&format!("{DEFINITIONS}?labelSelector=dc%3Dx"))
        .await
        .expect(200);
    for name in ["aas", "bbs", "ccs"] {
        let name = format!("{name}.dc.example.com");
        client.wait_until_gone(DEFINITIONS, &name).await;
    }
    assert_eq!(client.get("/apis/dc.example.com/v1").await.code, 404);
    server.stop().await;
}
