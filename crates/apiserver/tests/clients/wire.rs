//! Formats other than JSON: protobuf bodies, tables, OpenAPI.

use serde_json::{Value, json};

use crate::support::{Client, Request};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Encodes a length-delimited field.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).unwrap();
    assert!(length < 0x80, "short texts only");
    [&[number << 3 | 2, length], value].concat()
}

/// Wraps a message in the `Unknown` envelope, with its type.
fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let kind = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &kind), field(2, raw)].concat()
}

fn config_map(name: &str, value: &str) -> Vec<u8> {
    let entry = [field(1, b"k"), field(2, value.as_bytes())].concat();
    let raw = [field(1, &field(1, name.as_bytes())), field(2, &entry)].concat();
    envelope("v1", "ConfigMap", &raw)
}

fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}},
            }],
        },
    })
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.org/v1/namespaces/default/widgets";

#[tokio::test]
async fn takes_protobuf_for_built_in_kinds_and_answers_json() {
    let client = Client::start().await;
    let post = |body| Request::post(MAPS, body).content_type(PROTOBUF);
    let made = client.send(post(config_map("a", "v"))).await;
    assert_eq!(made.code, 201, "{made:?}");
    assert_eq!(made.json()["data"], json!({"k": "v"}));
    assert_eq!(made.json()["kind"], "ConfigMap");

    let put = Request::put(&format!("{MAPS}/a"), config_map("a", "w")).content_type(PROTOBUF);
    assert_eq!(client.send(put).await.json()["data"], json!({"k": "w"}));

    // Delete options in protobuf, for a dry run.
    let options = envelope("v1", "DeleteOptions", &field(5, b"All"));
    let delete = Request::delete(&format!("{MAPS}/a"), options).content_type(PROTOBUF);
    assert_eq!(client.send(delete).await.code, 200);
    assert_eq!(client.get(&format!("{MAPS}/a"), "").await.code, 200);

    let wrong = client.send(post(b"{}".to_vec())).await;
    assert_eq!(wrong.code, 400);
    assert_eq!(
        wrong.json()["message"],
        "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear \
         to be a protobuf message, expected prefix [107 56 115 0] ({})"
    );
    let wrong = client
        .send(post(envelope("v1", "ConfigMap", &[8, 1])))
        .await;
    assert_eq!(
        wrong.json()["message"],
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: proto: wrong wireType = 0 for \
         field Metadata"
    );
}

#[tokio::test]
async fn refuses_protobuf_for_custom_resources() {
    let client = Client::start().await;
    client.define(&widgets()).await;
    let body = envelope("example.org/v1", "Widget", &[]);
    let answer = client
        .send(Request::post(WIDGETS, body).content_type(PROTOBUF))
        .await;
    assert_eq!(answer.code, 415);
    assert_eq!(
        answer.json()["message"],
        "the body of the request was in an unknown format - accepted media types include: \
         application/json, application/yaml"
    );
}

#[tokio::test]
async fn answers_with_tables() {
    let client = Client::start().await;
    client
        .post_json(
            MAPS,
            &json!({"metadata": {"name": "a"}, "data": {"x": "y"}}),
        )
        .await;
    let list = client
        .get(&format!("{MAPS}?includeObject=None"), TABLE)
        .await;
    let list = list.json();
    assert_eq!(list["kind"], "Table");
    assert_eq!(list["columnDefinitions"][1]["name"], "Data");
    assert_eq!(list["rows"][0]["cells"][0], "a");
    assert_eq!(list["rows"][0]["cells"][1], 1);
    assert_eq!(list["rows"][0]["object"], Value::Null);
    assert!(list["metadata"]["resourceVersion"].is_string());

    let one = client.get(&format!("{MAPS}/a"), TABLE).await.json();
    assert_eq!(one["kind"], "Table");
    assert_eq!(one["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let missing = client.get(&format!("{MAPS}/b"), TABLE).await;
    assert_eq!(
        (missing.code, &missing.json()["kind"]),
        (404, &json!("Status"))
    );

    let refused = client
        .get(&format!("{MAPS}?includeObject=Much"), TABLE)
        .await;
    assert_eq!(refused.code, 400);

    client.define(&widgets()).await;
    let widget = json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3}});
    client.post_json(WIDGETS, &widget).await;
    let widgets = client
        .get(&format!("{WIDGETS}?includeObject=Object"), TABLE)
        .await
        .json();
    assert_eq!(widgets["rows"][0]["cells"], json!(["w", 3]));
    assert_eq!(widgets["rows"][0]["object"]["kind"], "Widget");
}

#[tokio::test]
async fn names_the_columns_once_in_a_watch() {
    let client = Client::start().await;
    for name in ["a", "b"] {
        client
            .post_json(MAPS, &json!({"metadata": {"name": name}}))
            .await;
    }
    let events = client
        .get(&format!("{MAPS}?watch=true&timeoutSeconds=1"), TABLE)
        .await;
    let events: Vec<Value> = events
        .text()
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events[0]["object"]["columnDefinitions"].is_array());
    assert_eq!(events[1]["object"]["columnDefinitions"], Value::Null);
    assert_eq!(events[1]["object"]["rows"][0]["cells"][0], "b");
}

#[tokio::test]
async fn describes_itself() {
    let client = Client::start().await;
    let before = client.get("/openapi/v3", "").await.json();
    client.define(&widgets()).await;
    let index = client.get("/openapi/v3", "").await;
    let paths = &index.json()["paths"];
    // A CustomResourceDefinition changes the document of its own group only.
    assert_eq!(paths["apis/apps/v1"], before["paths"]["apis/apps/v1"]);
    let url = paths["apis/example.org/v1"]["serverRelativeURL"].clone();
    let url = url.as_str().unwrap();
    let document = client.get(url, "").await;
    let patch = &document.json()["paths"]["/apis/example.org/v1/namespaces/{namespace}/widgets/{name}"]
        ["patch"];
    assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Widget");

    let again = Request::get(url).header("If-None-Match", document.header("etag"));
    assert_eq!(client.send(again).await.code, 304);
    let stale = client
        .get("/openapi/v3/apis/example.org/v1?hash=0", "")
        .await;
    assert_eq!((stale.code, stale.header("location")), (301, url));
    assert_eq!(client.get("/openapi/v3/apis/none/v1", "").await.code, 404);

    let older = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let answer = client.get("/openapi/v2", older).await;
    assert_eq!(answer.code, 200);
    assert_eq!(
        answer.header("content-type"),
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    );
    let answer = client.get("/openapi/v2", "application/json").await;
    assert_eq!(answer.code, 200);
    assert_eq!(client.get("/openapi/v2", "image/png").await.code, 406);
}
