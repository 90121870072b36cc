//! Conversion webhooks that change more than allowed: identity fields, and fields that are not validated afterwards.

use lockgate_testkit::{ScriptedResponse as Script, WebhookServer};
use serde_json::{Value, json};

use crate::support::*;
use crate::versions::{converted_by, strict};

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
const WIDGETS_V2: &str = "/apis/example.com/v2/namespaces/default/widgets";

/// A webhook that converts, and changes the metadata on the way.
fn changing(change: fn(&mut Value)) -> Script {
    Script::review(move |review| {
        let request = &review["request"];
        let mut object = request["objects"][0].clone();
        object["apiVersion"] = request["desiredAPIVersion"].clone();
        change(&mut object);
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "response": {
                "uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": [object],
            },
        })
    })
}

/// Corrupts the response of a conversion webhook.
type Spoil = fn(&mut Value);

#[tokio::test]
async fn a_conversion_changes_neither_what_an_object_is_nor_what_was_validated() {
    let server = start().await;
    let client = Client::admin(&server).await;
    let hooks = WebhookServer::start().await;
    let versions = json!([strict("v1", true), strict("v2", false)]);
    let definition = converted_by(&hooks, versions);
    client.create(DEFINITIONS, definition).await;
    let widget = |version: &str, name: &str| {
        json!({
            "apiVersion": format!("example.com/{version}"), "kind": "Widget",
            "metadata": {"name": name, "labels": {"a": "b"}},
        })
    };
    let stored = client.create(WIDGETS, widget("v1", "a")).await;
    let uid = stored["metadata"]["uid"].as_str().unwrap();
    let same_uid = format!("returned invalid object: must have the same UID: {uid} != evil");

    let cases: [(Spoil, &str); 8] = [
        (
            |it| it["metadata"]["name"] = "evil".into(),
            "returned invalid object: must have the same name: a != evil",
        ),
        (
            |it| it["metadata"]["namespace"] = "kube-system".into(),
            "returned invalid object: must have the same namespace: default != kube-system",
        ),
        (|it| it["metadata"]["uid"] = "evil".into(), &same_uid),
        (
            |it| it["kind"] = "Secret".into(),
            "returned invalid object at index 0: invalid kind (expected Widget, received Secret)",
        ),
        (
            |it| it["metadata"]["labels"] = json!({"a": "b c"}),
            "returned invalid metadata: metadata.labels: Invalid value: \"b c\": ",
        ),
        (
            |it| it["metadata"]["annotations"] = json!({"!": ""}),
            "returned invalid metadata: metadata.annotation: Invalid value: \"!\": ",
        ),
        (
            |it| it["metadata"]["labels"] = "text".into(),
            "returned invalid metadata: invalid metadata.labels of type string in converted object",
        ),
        (
            |it| it["metadata"]["labels"] = json!({"a": 1}),
            "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
        ),
    ];
    for (change, why) in cases {
        hooks.script("/convert", [changing(change)]);
        let answer = client.get(&format!("{WIDGETS_V2}/a")).await;
        assert_eq!(answer.code, 500, "{why}");
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        let want = format!("conversion webhook for example.com/v1, Kind=Widget {why}");
        assert!(message.starts_with(&want), "{message}\n{want}");
    }
    // For the conversion to the storage version, nothing validates the object after the webhook.
    hooks.script("/convert", [changing(cases[4].0)]);
    let answer = client.post(WIDGETS_V2, &widget("v2", "b")).await;
    assert_eq!(answer.code, 500, "{}", answer.text());
    assert_eq!(client.get(&format!("{WIDGETS}/b")).await.code, 404);

    // Labels may be changed to other valid labels.
    let good = |it: &mut Value| it["metadata"]["labels"] = json!({"c": "d"});
    hooks.script("/convert", [changing(good)]);
    let shown = client.get(&format!("{WIDGETS_V2}/a")).await.expect(200);
    assert_eq!(shown["metadata"]["labels"], json!({"c": "d"}));
    hooks.stop().await;
    server.stop().await;
}
