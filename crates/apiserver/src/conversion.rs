//! Conversion between the versions of a resource: built-in kinds by their tables, custom resources by changing the
//! `apiVersion` only or by a conversion webhook.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apiserver/conversion

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate_admission::call::{Caller as _, Post};
use lockgate_admission::host::{Ids as _, RandomIds};
use lockgate_admission::https::HttpsCaller;
use lockgate_api::field::{FieldErrors, Path, aggregate};
use lockgate_api::meta::validation::{validate_annotations, validate_labels};
use lockgate_api::registration::hub::ClientConfig;
use lockgate_go::json;
use lockgate_store::Entry;
use serde_json::{Value, json};

use crate::encoding;
use crate::error::{Failure, Outcome, internal, plain};
use crate::heavy;
use crate::registry::custom::conversion::Conversion;
use crate::registry::{Registry, Resource, Shape, split_api_version};

/// The timeout of a conversion webhook.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Converts objects between the served versions.
#[derive(Debug)]
pub(crate) struct Converter {
    registry: Arc<Registry>,
    caller: Arc<HttpsCaller>,
}

impl Converter {
    pub(crate) fn new(registry: Arc<Registry>, caller: Arc<HttpsCaller>) -> Self {
        Self { registry, caller }
    }

    /// The resource in its storage version.
    pub(crate) fn storage_resource(&self, resource: &Resource) -> Outcome<Arc<Resource>> {
        let (group, version) = &resource.storage_version;
        let snapshot = self.registry.snapshot();
        let stored = snapshot
            .find(group, version, &resource.storage.1)
            .or_else(|| snapshot.hidden(group, version, &resource.storage.1));
        stored
            .cloned()
            .ok_or_else(|| internal("the storage version of the resource is unknown"))
    }

    /// The resource in the stored version of an entry; `None` if it is the requested version.
    fn stored_resource(
        &self,
        entry: &Entry,
        resource: &Resource,
    ) -> Outcome<Option<Arc<Resource>>> {
        let Some(stored) = encoding::stored_version(&entry.value) else {
            return match resource.is_storage_version() {
                true => Ok(None),
                false => self.storage_resource(resource).map(Some),
            };
        };
        if stored == resource.api_version() {
            return Ok(None);
        }
        let (group, version) = split_api_version(stored);
        let snapshot = self.registry.snapshot();
        let found = snapshot.defined(group, version, resource).cloned();
        found
            .map(Some)
            .ok_or_else(|| invalid_version("from", stored))
    }

    /// Decodes the object of an entry, in the version of a resource.
    pub(crate) async fn decode(&self, entry: &Entry, resource: &Resource) -> Outcome<Value> {
        let size = entry.value.len();
        let parse =
            |of: &Resource| heavy::run(size, || encoding::parse_entry(entry, of.type_meta()));
        let stored = self.stored_resource(entry, resource)?;
        let from = stored.as_deref().unwrap_or(resource);
        let mut object = parse(from)?;
        // Defaults are those of the storage version; conversion adds none.
        heavy::run(size, || from.shape.read_stored(&mut object));
        match &stored {
            Some(stored) => self.convert_stored(object, stored, resource).await,
            None => Ok(object),
        }
    }

    /// Converts an object to or from the storage version: the result has the structure of the target version's schema.
    pub(crate) async fn convert_stored(
        &self,
        object: Value,
        from: &Resource,
        to: &Resource,
    ) -> Outcome<Value> {
        let mut object = self.convert(object, from, to).await?;
        to.shape
            .coerce(&mut object)
            .map_err(|error| plain(error.to_string()))?;
        Ok(object)
    }

    /// Converts an object to another version.
    pub(crate) async fn convert(
        &self,
        object: Value,
        from: &Resource,
        to: &Resource,
    ) -> Outcome<Value> {
        if let (Shape::Custom(_), Shape::Custom(custom)) = (&from.shape, &to.shape) {
            if from.version == to.version {
                return Ok(object);
            }
            return match custom.conversion() {
                Conversion::None => Ok(rename(object, to)),
                Conversion::Webhook(config) => {
                    self.call_webhook(config, object, to)
                        .await
                        .map_err(|error| {
                            plain(format!(
                                "conversion webhook for {}, Kind={} {error}",
                                from.api_version(),
                                from.kind()
                            ))
                        })
                }
            };
        }
        from.shape
            .convert(&object, &to.shape)
            .map_err(|error| internal(&error.to_string()))
    }

    async fn call_webhook(
        &self,
        config: &ClientConfig,
        object: Value,
        to: &Resource,
    ) -> Result<Value, WebhookError> {
        let uid = RandomIds.uid();
        let review = json!({
            "kind": "ConversionReview",
            "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": uid, "desiredAPIVersion": to.api_version(), "objects": [&object]},
        });
        let client = self.caller.client(config);
        let client = client.map_err(|error| WebhookError::Call(error.to_string()))?;
        let post = Post {
            body: json::to_string(&review).into(),
            deadline: Some(Instant::now() + TIMEOUT),
        };
        let answer = client.post(post).await.result;
        let answer = answer.map_err(|error| WebhookError::Call(error.message))?;
        if answer.code >= 300 {
            return Err(WebhookError::Code(answer.code));
        }
        let review: Value = serde_json::from_slice(&answer.body).map_err(WebhookError::Json)?;
        converted(&review, &uid, &object, to)
    }
}

/// The error for a version that the CustomResourceDefinition does not have.
///
/// UPSTREAM: apiextensions-apiserver pkg/apiserver/conversion/converter.go (ConvertToVersion)
pub(crate) fn invalid_version(way: &str, api_version: &str) -> Failure {
    plain(format!(
        "request to convert CR {way} an invalid group/version: {api_version}"
    ))
}

fn rename(mut object: Value, to: &Resource) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.insert(String::from("apiVersion"), to.api_version().into());
    }
    object
}

/// A failed conversion webhook, with upstream's message.
#[derive(Debug, thiserror::Error)]
enum WebhookError {
    #[error("failed: {0}")]
    Call(String),
    #[error(
        "failed: the server responded with the status code {0} but did not return more information"
    )]
    Code(u16),
    #[error("failed: {0}")]
    Json(serde_json::Error),
    #[error("failed: no response provided")]
    NoResponse,
    #[error("failed: expected response.uid={expected:?}, got {found:?}")]
    Uid { expected: String, found: String },
    #[error("failed: {0}")]
    Failed(String),
    #[error("returned {0} objects, expected 1")]
    Count(usize),
    #[error(
        "returned invalid object at index 0: invalid {what} (expected {expected}, received {found})"
    )]
    Type {
        what: &'static str,
        expected: String,
        found: String,
    },
    #[error("returned invalid object: must have the same {what}: {expected} != {found}")]
    Changed {
        what: &'static str,
        expected: String,
        found: String,
    },
    #[error("returned invalid metadata: {0}")]
    Metadata(#[from] MetadataError),
}

/// Invalid labels or annotations.
#[derive(Debug, thiserror::Error)]
enum MetadataError {
    #[error("invalid metadata.{member} of type {kind} in converted object")]
    NotAMap {
        member: &'static str,
        kind: &'static str,
    },
    #[error("metadata.{member}[{key}] must be a string, but is {kind} in converted object")]
    NotText {
        member: &'static str,
        key: String,
        kind: &'static str,
    },
    #[error("{0}")]
    Invalid(String),
}

/// The name of the Go type of a decoded value.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The labels or annotations of a converted object. Unchanged ones are not validated.
///
/// UPSTREAM: apiextensions-apiserver pkg/apiserver/conversion/webhook_converter.go (restoreObjectMeta)
fn checked(member: &'static str, new: &Value, old: &Value) -> Result<Option<Value>, MetadataError> {
    let pointer = format!("/metadata/{member}");
    let Some(found) = new.pointer(&pointer).filter(|found| !found.is_null()) else {
        return Ok(None);
    };
    let kind = go_type(found);
    let members = found
        .as_object()
        .ok_or(MetadataError::NotAMap { member, kind })?;
    let mut texts = BTreeMap::new();
    for (key, value) in members {
        let text = value.as_str().ok_or_else(|| MetadataError::NotText {
            member,
            key: key.clone(),
            kind: go_type(value),
        })?;
        texts.insert(key.clone(), text.to_owned());
    }
    if old.pointer(&pointer) != Some(found) {
        let metadata = Path::root("metadata");
        let mut errors = FieldErrors::new();
        match member {
            "labels" => validate_labels(&mut errors, Some(&texts), &metadata.child(member)),
            // Upstream's path.
            _ => validate_annotations(&mut errors, Some(&texts), &metadata.child("annotation")),
        }
        if !errors.is_empty() {
            return Err(MetadataError::Invalid(aggregate(&errors)));
        }
    }
    Ok(Some(found.clone()))
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

/// The converted object of a ConversionReview: the same object, with only labels and annotations of its metadata
/// changed.
fn converted(review: &Value, uid: &str, old: &Value, to: &Resource) -> Result<Value, WebhookError> {
    let response = review.get("response").ok_or(WebhookError::NoResponse)?;
    let found = text(response, "/uid");
    if found != uid {
        return Err(WebhookError::Uid {
            expected: uid.to_owned(),
            found: found.to_owned(),
        });
    }
    if text(response, "/result/status") != "Success" {
        let message = response.pointer("/result/message").and_then(Value::as_str);
        let message = message.unwrap_or("unknown error");
        return Err(WebhookError::Failed(message.to_owned()));
    }
    let objects = response.get("convertedObjects").and_then(Value::as_array);
    let new = match objects.map(Vec::as_slice).unwrap_or_default() {
        [new] => new,
        others => return Err(WebhookError::Count(others.len())),
    };
    if text(new, "/apiVersion") != to.api_version() {
        return Err(WebhookError::Type {
            what: "groupVersion",
            expected: to.api_version().to_owned(),
            found: text(new, "/apiVersion").to_owned(),
        });
    }
    if text(new, "/kind") != text(old, "/kind") {
        return Err(WebhookError::Type {
            what: "kind",
            expected: text(old, "/kind").to_owned(),
            found: text(new, "/kind").to_owned(),
        });
    }
    for (what, pointer) in [
        ("name", "/metadata/name"),
        ("namespace", "/metadata/namespace"),
        ("UID", "/metadata/uid"),
    ] {
        let (expected, found) = (text(old, pointer), text(new, pointer));
        if expected != found {
            return Err(WebhookError::Changed {
                what,
                expected: expected.to_owned(),
                found: found.to_owned(),
            });
        }
    }
    let mut object = new.clone();
    let mut metadata = old.get("metadata").cloned().unwrap_or_else(|| json!({}));
    for member in ["labels", "annotations"] {
        let own = checked(member, new, old)?;
        if let Some(members) = metadata.as_object_mut() {
            match own {
                Some(own) => members.insert(member.to_owned(), own),
                None => members.remove(member),
            };
        }
    }
    object["metadata"] = metadata;
    Ok(object)
}
