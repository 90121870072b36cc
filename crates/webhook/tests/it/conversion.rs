//! Conversion webhooks: the wire format, and conversion beside admission webhooks on one server.

use lockgate_webhook::testing::{ConversionReview, round_trips, serve};
use lockgate_webhook::{Conversion, Fault, Hub, ManifestOptions, Spoke, Webhooks};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{Client, post, webhooks as admission};

const V1: &str = "example.com/v1";
const V2: &str = "example.com/v2";
const V3: &str = "example.com/v3";

#[derive(Serialize, Deserialize)]
struct Widget {
    size: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata>,
}

/// Metadata with no fields other than labels.
#[derive(Serialize, Deserialize)]
struct Metadata {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    labels: Option<serde_json::Map<String, Value>>,
}

#[derive(Serialize, Deserialize)]
struct WidgetV2 {
    length: i64,
}

#[derive(Serialize, Deserialize)]
struct WidgetV3 {
    text: String,
}

impl Hub for Widget {
    const KIND: &str = "Widget";
    const API_VERSION: &str = V1;
}

impl Spoke for WidgetV2 {
    type Hub = Widget;
    const API_VERSION: &str = V2;

    fn to_hub(self) -> Result<Widget, Fault> {
        assert!(self.length != 13, "on purpose");
        let labels =
            (self.length == 7).then(|| serde_json::Map::from_iter([("seven".into(), true.into())]));
        Ok(Widget {
            size: self.length,
            metadata: labels.map(|labels| Metadata {
                labels: Some(labels),
            }),
        })
    }

    fn from_hub(hub: Widget) -> Result<Self, Fault> {
        Ok(Self { length: hub.size })
    }
}

impl Spoke for WidgetV3 {
    type Hub = Widget;
    const API_VERSION: &str = V3;

    fn to_hub(self) -> Result<Widget, Fault> {
        Ok(Widget {
            size: self.text.parse()?,
            metadata: None,
        })
    }

    fn from_hub(hub: Widget) -> Result<Self, Fault> {
        Ok(Self {
            text: hub.size.to_string(),
        })
    }
}

fn webhooks() -> Webhooks {
    let widgets = Conversion::of::<Widget>("widgets").review_versions(&["v1", "v1beta1"]);
    admission().converting(widgets.spoke::<WidgetV2>().spoke::<WidgetV3>())
}

fn widget(version: &str, size: &str) -> String {
    format!(
        "{{apiVersion: {version}, kind: Widget, metadata: {{name: a, uid: u}}, more: [1], {size}}}"
    )
}

#[tokio::test]
async fn every_version_becomes_every_other_and_unknown_fields_stay() {
    let webhooks = webhooks();
    let all = [
        widget(V1, "size: 3"),
        widget(V2, "length: 3"),
        widget(V3, "text: '3'"),
    ];
    for (version, wanted) in [V1, V2, V3].into_iter().zip(&all) {
        let mut review = ConversionReview::to(version);
        for object in &all {
            review = review.object(object);
        }
        let wanted: Vec<&str> = all.iter().map(|_| wanted.as_str()).collect();
        review.ask(&webhooks, "/convert").await.converts_to(&wanted);
        review
            .v1beta1()
            .ask(&webhooks, "/convert")
            .await
            .converts_to(&wanted);
    }
    for object in &all {
        round_trips(&webhooks, "/convert", object);
    }
}

#[tokio::test]
async fn of_the_metadata_labels_and_annotations_change_alone() {
    let review = ConversionReview::to(V1).object(&widget(V2, "length: 7"));
    let outcome = review.ask(&webhooks(), "/convert").await;
    assert_eq!(
        outcome.objects()[0]["metadata"],
        json!({"name": "a", "uid": "u", "labels": {"seven": true}})
    );
}

#[tokio::test]
async fn failures_name_the_object_and_convert_none() {
    let webhooks = webhooks();
    for (object, desired, message) in [
        (widget(V3, "text: x"), V1, "objects[1]: invalid digit"),
        (
            widget(V2, "size: 1"),
            V1,
            "objects[1]: cannot decode object: missing field",
        ),
        (
            widget("example.com/v9", "size: 1"),
            V1,
            "no conversion of kind `Widget` in version `example.com/v9`",
        ),
        (
            widget(V1, "size: 1"),
            "example.com/v9",
            "objects[0]: `Widget` has no version `example.com/v9`",
        ),
        (
            String::from("{apiVersion: example.com/v1, kind: Gadget}"),
            V2,
            "no conversion of kind `Gadget`",
        ),
        (
            widget(V2, "length: 13"),
            V1,
            "its log has the reason under uid",
        ),
    ] {
        let review = ConversionReview::to(desired)
            .object(&widget(V1, "size: 1"))
            .object(&object);
        review.ask(&webhooks, "/convert").await.fails_with(message);
    }
    let nested = format!("{}{}", "[".repeat(600), "]".repeat(600));
    let deep =
        format!(r#"{{"apiVersion": "{V1}", "kind": "Widget", "size": 1, "deep": {nested}}}"#);
    let conversions = webhooks.conversions_at("/convert").unwrap();
    let refused = conversions.kinds()[0].convert(&deep, V2).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("nests more than 500 levels deep"),
        "{refused}"
    );
}

#[tokio::test]
async fn is_served_beside_admission_with_metrics() {
    let served = serve(webhooks()).await;
    let client = Client::trusting(served.ca_bundle());
    let review = ConversionReview::to(V2)
        .object(&widget(V1, "size: 3"))
        .to_json();
    let reply = client
        .send(served.address(), post("/convert?timeout=30s", review))
        .await
        .unwrap();
    assert_eq!(
        (reply.code, reply.header("content-type")),
        (200, "application/json")
    );
    let body: Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(body["response"]["convertedObjects"][0]["length"], 3);
    assert_eq!(body["response"]["result"], json!({"status": "Success"}));
    assert_eq!(
        client
            .review(served.address(), "/validate")
            .await
            .unwrap()
            .code,
        200
    );

    for (text, code, wanted) in [
        ("{", 400, "the body is not a ConversionReview"),
        (
            "{}",
            400,
            "want a ConversionReview of apiextensions.k8s.io/v1 or v1beta1",
        ),
        (
            r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}"#,
            400,
            "no request",
        ),
        (
            r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {"uid": "u", "objects": 3}}"#,
            200,
            r#""uid":"u""#,
        ),
    ] {
        let reply = client
            .send(served.address(), post("/convert", text))
            .await
            .unwrap();
        assert_eq!(reply.code, code, "{text}");
        assert!(reply.body.contains(wanted), "{}", reply.body);
    }
    let metrics = served.metrics_text();
    for series in [
        format!("conversion_webhook_objects_total{{kind=\"Widget\",from=\"{V1}\",to=\"{V2}\"}} 1"),
        "conversion_webhook_duration_seconds_count{webhook=\"/convert\",result=\"success\"} 1"
            .into(),
        "conversion_webhook_duration_seconds_count{webhook=\"/convert\",result=\"failure\"} 4"
            .into(),
        "controller_runtime_webhook_requests_total{webhook=\"/convert\",code=\"200\"} 2".into(),
    ] {
        assert!(metrics.contains(&series), "{series}\n{metrics}");
    }
    served.stop().await;
}

#[test]
fn definitions_carry_url_bundle_and_review_versions() {
    let options = ManifestOptions::new()
        .url("https://localhost:9443")
        .ca_bundle("PEM")
        .label("a", "b");
    let manifests = webhooks().manifests(&options);
    assert_eq!(
        manifests.definition_patches(),
        [json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com", "labels": {"a": "b"}},
            "spec": {"conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"url": "https://localhost:9443/convert", "caBundle": "UEVN"},
                "conversionReviewVersions": ["v1", "v1beta1"],
            }}},
        })]
    );
}

#[test]
#[should_panic(expected = "two webhooks are served at `/validate`")]
fn a_path_is_for_admission_or_for_conversion() {
    let widgets = Conversion::of::<Widget>("widgets").path("/validate");
    let _ = admission().converting(widgets.spoke::<WidgetV2>());
}

#[test]
#[should_panic(expected = "`widgets.example.com` is converted twice at `/convert`")]
fn a_kind_is_converted_once_at_a_path() {
    let _ = webhooks().converting(Conversion::of::<Widget>("widgets").spoke::<WidgetV2>());
}
