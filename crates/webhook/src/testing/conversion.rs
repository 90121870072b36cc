//! ConversionReviews in tests, and the round-trip property.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::read;
use crate::conversion::Conversion;
use crate::patch::Patch;
use crate::webhooks::Webhooks;

const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// A ConversionReview as the API server sends it.
///
/// ```
/// # use lockgate_webhook::{Conversion, Fault, Hub, Spoke, Webhooks};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)] struct Widget { size: i64 }
/// # #[derive(Serialize, Deserialize)] struct WidgetV2 { length: i64 }
/// # impl Hub for Widget { const KIND: &str = "Widget"; const API_VERSION: &str = "example.com/v1"; }
/// # impl Spoke for WidgetV2 {
/// #     type Hub = Widget;
/// #     const API_VERSION: &str = "example.com/v2";
/// #     fn to_hub(self) -> Result<Widget, Fault> { Ok(Widget { size: self.length }) }
/// #     fn from_hub(hub: Widget) -> Result<Self, Fault> { Ok(Self { length: hub.size }) }
/// # }
/// use lockgate_webhook::testing::{ConversionReview, round_trips};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let webhooks = Webhooks::new().converting(Conversion::of::<Widget>("widgets").spoke::<WidgetV2>());
/// let widget = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}, size: 3}";
/// let outcome = ConversionReview::to("example.com/v2").object(widget).ask(&webhooks, "/convert").await;
/// outcome.converts_to(&["{apiVersion: example.com/v2, kind: Widget, metadata: {name: a}, length: 3}"]);
/// round_trips(&webhooks, "/convert", widget);
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ConversionReview {
    desired: String,
    objects: Vec<Value>,
    version: &'static str,
}

impl ConversionReview {
    /// Creates a review for this desired version.
    #[must_use]
    pub fn to(api_version: impl Into<String>) -> Self {
        Self {
            desired: api_version.into(),
            objects: Vec::new(),
            version: "v1",
        }
    }

    /// Adds an object, as YAML or JSON.
    ///
    /// # Panics
    ///
    /// Panics if it is neither.
    #[must_use]
    pub fn object(mut self, text: &str) -> Self {
        self.objects.push(parsed(text));
        self
    }

    /// Uses `v1beta1` of the review.
    #[must_use]
    pub fn v1beta1(mut self) -> Self {
        self.version = "v1beta1";
        self
    }

    /// The encoded review.
    #[must_use]
    pub fn to_json(&self) -> String {
        json!({
            "apiVersion": format!("apiextensions.k8s.io/{}", self.version),
            "kind": "ConversionReview",
            "request": {"uid": UID, "desiredAPIVersion": self.desired, "objects": self.objects},
        })
        .to_string()
    }

    /// Calls the conversions at a path.
    ///
    /// # Panics
    ///
    /// Panics if there are none, or the response does not match this review.
    pub async fn ask(&self, webhooks: &Webhooks, path: &str) -> ConversionOutcome {
        let Some(conversions) = webhooks.conversions_at(path) else {
            panic!("nothing is converted at `{path}`");
        };
        let converted = conversions.answer(Bytes::from(self.to_json()), None).await;
        let body = String::from_utf8_lossy(&converted.body);
        assert_eq!(converted.code, 200, "{body}");
        let review = parsed(&body);
        let version = format!("apiextensions.k8s.io/{}", self.version);
        assert_eq!(review["apiVersion"], *version, "{body}");
        assert_eq!(review["kind"], "ConversionReview", "{body}");
        assert_eq!(review["response"]["uid"], UID, "{body}");
        ConversionOutcome {
            response: review["response"].clone(),
        }
    }
}

/// The response to a ConversionReview, with assertions as methods.
#[derive(Debug, Clone)]
pub struct ConversionOutcome {
    response: Value,
}

impl ConversionOutcome {
    /// The converted objects.
    ///
    /// # Panics
    ///
    /// Panics if the conversion failed.
    #[must_use]
    pub fn objects(&self) -> &[Value] {
        assert_eq!(
            self.response["result"]["status"], "Success",
            "{}",
            self.response
        );
        let objects = self.response["convertedObjects"].as_array();
        objects.map(Vec::as_slice).unwrap_or_default()
    }

    /// Asserts that exactly these objects are returned, in this order.
    ///
    /// # Panics
    ///
    /// Panics if they differ.
    pub fn converts_to(&self, objects: &[&str]) -> &Self {
        let wanted: Vec<Value> = objects.iter().map(|text| parsed(text)).collect();
        assert_eq!(self.objects(), wanted);
        self
    }

    /// Asserts that the conversion fails with a message that contains `text`, and returns no object.
    ///
    /// # Panics
    ///
    /// Panics otherwise.
    pub fn fails_with(&self, text: &str) -> &Self {
        let result = &self.response["result"];
        assert_eq!(result["status"], "Failure", "{}", self.response);
        let message = result["message"].as_str().unwrap_or_default();
        assert!(message.contains(text), "`{text}` is not in `{message}`");
        assert_eq!(self.response["convertedObjects"], json!([]));
        self
    }
}

/// Asserts that an object is unchanged after conversion to every other version and back: no field is lost, changed or
/// added. Use it with fixtures, or as a property of generated objects.
///
/// # Panics
///
/// Panics otherwise, or if its kind is not converted at this path.
pub fn round_trips(webhooks: &Webhooks, path: &str, object: &str) {
    let object = parsed(object);
    let (api_version, kind) = (text(&object, "apiVersion"), text(&object, "kind"));
    let Some(conversions) = webhooks.conversions_at(path) else {
        panic!("nothing is converted at `{path}`");
    };
    let is_of_kind =
        |one: &&Arc<Conversion>| one.kind() == kind && one.api_versions().contains(&api_version);
    let Some(conversion) = conversions.kinds().iter().find(is_of_kind) else {
        panic!("`{kind}` in `{api_version}` is not converted at `{path}`");
    };
    for version in conversion.api_versions() {
        let there = converted(conversion, &object, version);
        let back = converted(conversion, &there, api_version);
        let lost = Patch::between(&object, &back).to_json();
        assert!(
            object == back,
            "{api_version} to {version} and back changes the object: {lost}"
        );
    }
}

fn converted(conversion: &Conversion, object: &Value, version: &str) -> Value {
    let converted = conversion.convert(&object.to_string(), version);
    converted.unwrap_or_else(|fault| panic!("{object} cannot be converted to {version}: {fault:#}"))
}

fn text<'v>(object: &'v Value, member: &str) -> &'v str {
    object[member].as_str().unwrap_or_default()
}

fn parsed(text: &str) -> Value {
    read(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}
