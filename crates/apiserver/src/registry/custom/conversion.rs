//! Objects of a custom resource in another of its versions: by name only, or by a webhook.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apiserver/conversion

use std::time::{Duration, Instant};

use lockgate_admission::call::{Caller as _, Post};
use lockgate_admission::host::{Ids as _, RandomIds};
use lockgate_api::decode::Bytes as WireBytes;
use lockgate_api::registration::hub::{ClientConfig, ServiceReference};
use lockgate_go::{base64, json};
use lockgate_kinds::crd;
use serde_json::{Value, json};

use crate::error::{Failure, Outcome, plain};
use crate::registry::Resource;
use crate::server::Server;

/// How long a conversion may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How objects become those of another version.
#[derive(Debug)]
pub(crate) enum Conversion {
    /// Only the version they name changes.
    None,
    /// A webhook knows.
    Webhook(ClientConfig),
}

impl Conversion {
    /// Reads the conversion of a definition.
    pub(crate) fn read(conversion: &crd::Conversion) -> Self {
        let crd::Conversion::Webhook(webhook) = conversion else {
            return Self::None;
        };
        let at = |pointer: &str| webhook.pointer(pointer);
        let text = |pointer: &str| at(pointer).and_then(Value::as_str).map(str::to_owned);
        let service = at("/clientConfig/service").map(|_| ServiceReference {
            namespace: text("/clientConfig/service/namespace").unwrap_or_default(),
            name: text("/clientConfig/service/name").unwrap_or_default(),
            path: text("/clientConfig/service/path"),
            port: at("/clientConfig/service/port")
                .and_then(Value::as_i64)
                .and_then(|port| i32::try_from(port).ok()),
        });
        let bundle = text("/clientConfig/caBundle").and_then(|text| base64::decode(&text).ok());
        Self::Webhook(ClientConfig {
            url: text("/clientConfig/url"),
            service,
            ca_bundle: bundle.map(WireBytes),
        })
    }

    /// Converts objects, which are all of one version.
    pub(crate) async fn convert(
        &self,
        server: &Server,
        objects: Vec<Value>,
        from: &Resource,
        to: &Resource,
    ) -> Outcome<Vec<Value>> {
        if from.version == to.version || objects.is_empty() {
            return Ok(objects);
        }
        match self {
            Self::None => Ok(objects
                .into_iter()
                .map(|object| rename(object, to))
                .collect()),
            Self::Webhook(config) => {
                let failed = |why: &str| -> Failure {
                    plain(format!(
                        "conversion webhook for {}, Kind={} failed: {why}",
                        from.api_version(),
                        from.kind()
                    ))
                };
                ask(server, config, &objects, to)
                    .await
                    .map_err(|why| failed(&why))
            }
        }
    }
}

fn rename(mut object: Value, to: &Resource) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.insert(String::from("apiVersion"), to.api_version().into());
    }
    object
}

async fn ask(
    server: &Server,
    config: &ClientConfig,
    objects: &[Value],
    to: &Resource,
) -> Result<Vec<Value>, String> {
    let uid = RandomIds.uid();
    let review = json!({
        "kind": "ConversionReview",
        "apiVersion": "apiextensions.k8s.io/v1",
        "request": {"uid": uid, "desiredAPIVersion": to.api_version(), "objects": objects},
    });
    let client = server
        .caller
        .client(config)
        .map_err(|error| error.to_string())?;
    let post = Post {
        body: json::to_string(&review).into(),
        deadline: Some(Instant::now() + TIMEOUT),
    };
    let answer = client
        .post(post)
        .await
        .result
        .map_err(|error| error.message)?;
    if answer.code >= 300 {
        return Err(format!(
            "the server responded with the status code {} but did not return more information",
            answer.code
        ));
    }
    let review: Value = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
    let response = review.get("response").ok_or("no response provided")?;
    let found = response
        .get("uid")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if found != uid {
        return Err(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    let result = response
        .pointer("/result/status")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if result != "Success" {
        let message = response.pointer("/result/message").and_then(Value::as_str);
        return Err(message.unwrap_or("unknown error").to_owned());
    }
    let converted = response
        .get("convertedObjects")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    check(objects, converted, to)
}

/// The same objects in the same order, and only labels and annotations of their metadata changed.
fn check(
    objects: &[Value],
    mut converted: Vec<Value>,
    to: &Resource,
) -> Result<Vec<Value>, String> {
    if converted.len() != objects.len() {
        return Err(format!(
            "webhook returned {} objects, expected {}",
            converted.len(),
            objects.len()
        ));
    }
    for (index, (new, old)) in converted.iter_mut().zip(objects).enumerate() {
        let text = |value: &Value, member: &str| {
            value
                .get(member)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        if text(new, "apiVersion") != to.api_version() {
            return Err(format!(
                "returned object at index {index} has invalid apiVersion {:?}, expected {:?}",
                text(new, "apiVersion"),
                to.api_version()
            ));
        }
        if text(new, "kind") != text(old, "kind") {
            return Err(format!(
                "returned object at index {index} has invalid kind {:?}, expected {:?}",
                text(new, "kind"),
                text(old, "kind")
            ));
        }
        let labels = |member: &str| {
            new.get("metadata")
                .and_then(|metadata| metadata.get(member))
                .cloned()
        };
        let (own_labels, own_annotations) = (labels("labels"), labels("annotations"));
        let name = |value: &Value| value.pointer("/metadata/name").cloned();
        if name(new) != name(old) {
            return Err(format!(
                "invalid metadata of object at index {index}: metadata.name: Invalid value: {}: must be equal to {}",
                name(new).unwrap_or_default(),
                name(old).unwrap_or_default()
            ));
        }
        let mut metadata = old.get("metadata").cloned().unwrap_or_else(|| json!({}));
        for (member, own) in [("labels", own_labels), ("annotations", own_annotations)] {
            if let Some(members) = metadata.as_object_mut() {
                match own {
                    Some(own) => members.insert(member.to_owned(), own),
                    None => members.remove(member),
                };
            }
        }
        if let Some(members) = new.as_object_mut() {
            members.insert(String::from("metadata"), metadata);
        }
    }
    Ok(converted)
}
