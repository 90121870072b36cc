//! Decodes reviews and encodes responses.
//!
//! Decoding has two stages. The first decodes the envelope only and keeps objects as text, so that a response can
//! contain the `uid` whatever is invalid in the rest. The second, in [`Context`], decodes an object on first use.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use bytes::Bytes;
use futures_util::FutureExt;
use lockgate_api::admission::{
    GROUP, GroupVersionKind, GroupVersionResource, ReviewVersion, UserInfo, v1,
};
use lockgate_api::decode::Bytes as Base64;
use lockgate_go::json;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::context::{Context, Operation, RequestData};
use crate::denial::{Denial, Fault};
use crate::handler::Handler;
use crate::registration::Role;
use crate::response::{Decision, Response};

/// The response to one review, with the data of its log line.
#[derive(Debug)]
pub struct Answered {
    /// The HTTP status code.
    pub code: u16,
    /// The body: a review, or an error message.
    pub body: Vec<u8>,
    /// The request, unless it could not be decoded.
    pub context: Option<Context>,
    /// The decision.
    pub outcome: Result<Response, ReviewError>,
}

/// The reason of a failed review.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReviewError {
    /// The body is not a review.
    #[error("{0}")]
    Malformed(String),
    /// The webhook could not decide.
    #[error("{0}")]
    Fault(String),
    /// The webhook's code panicked.
    #[error("the webhook panicked: {0}")]
    Panicked(String),
    /// The API server no longer waits.
    #[error("no decision before the deadline")]
    TooLate,
}

/// Handles one review with a handler.
pub async fn answer(
    role: Role,
    handler: &dyn Handler,
    body: Bytes,
    deadline: Option<Instant>,
) -> Answered {
    let facts = match read(body) {
        Ok(facts) => facts,
        Err(unread) => return unread.answered(),
    };
    let ctx = Context::new(facts, deadline);
    let outcome = decide(role, handler, &ctx).await;
    let (code, body) = match &outcome {
        Ok(response) => (200, write(ctx.version(), ctx.uid(), response)),
        // Internal errors are only logged: the message of this response reaches the client.
        Err(_) => {
            let message = format!(
                "the webhook could not decide; its log has the reason under uid {}\n",
                ctx.uid()
            );
            (500, message.into_bytes())
        }
    };
    Answered {
        code,
        body,
        context: Some(ctx),
        outcome,
    }
}

async fn decide(role: Role, handler: &dyn Handler, ctx: &Context) -> Result<Response, ReviewError> {
    let deciding = AssertUnwindSafe(handler.handle(ctx)).catch_unwind();
    let decided = match ctx.deadline() {
        None => deciding.await,
        Some(deadline) => tokio::time::timeout_at(deadline.into(), deciding)
            .await
            .map_err(|_| ReviewError::TooLate)?,
    };
    let mut response = decided
        .map_err(|panic| ReviewError::Panicked(panic_text(&*panic)))?
        .map_err(|fault: Fault| ReviewError::Fault(format!("{fault:#}")))?;
    if role == Role::Validating && !response.changes().is_empty() {
        let message = "a validating webhook may not change the object";
        return Err(ReviewError::Fault(message.to_owned()));
    }
    if let Decision::Deny(denial) = &mut response.decision {
        denial.name_object(ctx.kind(), ctx.name());
    }
    let remarks = ctx.take_remarks();
    response.warnings.splice(0..0, remarks.warnings);
    for (key, value) in remarks.audit_annotations {
        response.audit_annotations.entry(key).or_insert(value);
    }
    Ok(response)
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| String::from("for no reason it gave"))
}

fn write(version: ReviewVersion, uid: &str, response: &Response) -> Vec<u8> {
    let mut wire = v1::AdmissionResponse {
        uid: uid.to_owned(),
        ..v1::AdmissionResponse::default()
    };
    match &response.decision {
        Decision::Allow(patch) => {
            wire.allowed = true;
            // The API server rejects an empty patch.
            if !patch.changes().is_empty() {
                wire.patch = Some(Base64(patch.to_json().into_bytes()));
                wire.patch_type = Some(String::from("JSONPatch"));
            }
        }
        Decision::Deny(denial) => wire.status = Some(denial.status.clone()),
    }
    if !response.warnings.is_empty() {
        wire.warnings = Some(response.warnings.clone());
    }
    if !response.audit_annotations.is_empty() {
        wire.audit_annotations = Some(response.audit_annotations.clone());
    }
    // Both versions have the same encoding.
    json::to_string(&v1::AdmissionReview {
        kind: String::from("AdmissionReview"),
        api_version: format!("{GROUP}/{}", version.name()),
        request: None,
        response: Some(wire),
    })
    .into_bytes()
}

/// A body that is not a valid review, with the data needed for a response.
struct InvalidReview {
    message: String,
    /// The version and the uid, if they could be decoded.
    known: Option<(ReviewVersion, String)>,
}

impl InvalidReview {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            known: None,
        }
    }

    fn answered(self) -> Answered {
        let (code, body) = match self.known {
            None => (400, format!("{}\n", self.message).into_bytes()),
            Some((version, uid)) => {
                let denial = Denial::bad_request(self.message.as_str());
                (200, write(version, &uid, &Response::deny(denial)))
            }
        };
        Answered {
            code,
            body,
            context: None,
            outcome: Err(ReviewError::Malformed(self.message)),
        }
    }
}

/// Decodes `null` as absent, in every field.
pub(crate) fn lenient<'de, D, T>(reader: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(reader)?.unwrap_or_default())
}

/// A review, with its request decoded or as text.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'b, R> {
    #[serde(default, borrow, deserialize_with = "lenient")]
    api_version: Cow<'b, str>,
    #[serde(default, borrow, deserialize_with = "lenient")]
    kind: Cow<'b, str>,
    request: Option<R>,
}

impl<R> Envelope<'_, R> {
    /// The version, if this is an AdmissionReview.
    fn version(&self) -> Option<ReviewVersion> {
        match (&*self.api_version, &*self.kind) {
            ("admission.k8s.io/v1", "AdmissionReview") => Some(ReviewVersion::V1),
            ("admission.k8s.io/v1beta1", "AdmissionReview") => Some(ReviewVersion::V1beta1),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct Uid<'b> {
    #[serde(borrow)]
    uid: Cow<'b, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRequest<'b> {
    uid: String,
    #[serde(default, deserialize_with = "lenient")]
    kind: Kind,
    #[serde(default, deserialize_with = "lenient")]
    resource: Resource,
    #[serde(default, deserialize_with = "lenient")]
    sub_resource: String,
    #[serde(default)]
    request_kind: Option<Kind>,
    #[serde(default)]
    request_resource: Option<Resource>,
    #[serde(default, deserialize_with = "lenient")]
    request_sub_resource: String,
    #[serde(default, deserialize_with = "lenient")]
    name: String,
    #[serde(default, deserialize_with = "lenient")]
    namespace: String,
    #[serde(borrow)]
    operation: Cow<'b, str>,
    #[serde(default, deserialize_with = "lenient")]
    user_info: User,
    #[serde(default, borrow)]
    object: Option<&'b RawValue>,
    #[serde(default, borrow)]
    old_object: Option<&'b RawValue>,
    #[serde(default, deserialize_with = "lenient")]
    dry_run: bool,
    #[serde(default, borrow)]
    options: Option<&'b RawValue>,
}

#[derive(Deserialize, Default)]
struct Kind {
    #[serde(default, deserialize_with = "lenient")]
    group: String,
    #[serde(default, deserialize_with = "lenient")]
    version: String,
    #[serde(default, deserialize_with = "lenient")]
    kind: String,
}

#[derive(Deserialize, Default)]
struct Resource {
    #[serde(default, deserialize_with = "lenient")]
    group: String,
    #[serde(default, deserialize_with = "lenient")]
    version: String,
    #[serde(default, deserialize_with = "lenient")]
    resource: String,
}

#[derive(Deserialize, Default)]
struct User {
    #[serde(default, deserialize_with = "lenient")]
    username: String,
    #[serde(default, deserialize_with = "lenient")]
    uid: String,
    #[serde(default)]
    groups: Option<Vec<String>>,
    #[serde(default)]
    extra: Option<BTreeMap<String, Vec<String>>>,
}

impl From<Kind> for GroupVersionKind {
    fn from(kind: Kind) -> Self {
        Self {
            group: kind.group,
            version: kind.version,
            kind: kind.kind,
        }
    }
}

impl From<Resource> for GroupVersionResource {
    fn from(resource: Resource) -> Self {
        Self {
            group: resource.group,
            version: resource.version,
            resource: resource.resource,
        }
    }
}

fn read(body: Bytes) -> Result<RequestData, InvalidReview> {
    let text = std::str::from_utf8(&body)
        .map_err(|error| InvalidReview::new(format!("the body is not UTF-8: {error}")))?;
    let (version, wire_request) = match parse_request(text) {
        Some(read) => read,
        None => parse_request_stepwise(text)?,
    };
    let place = |raw: Option<&RawValue>| raw.map(|raw| range_in(text, raw.get()));
    Ok(RequestData {
        version,
        uid: wire_request.uid,
        kind: wire_request.kind.into(),
        resource: wire_request.resource.into(),
        sub_resource: wire_request.sub_resource,
        request_kind: wire_request.request_kind.map(Into::into),
        request_resource: wire_request.request_resource.map(Into::into),
        request_sub_resource: wire_request.request_sub_resource,
        name: wire_request.name,
        namespace: wire_request.namespace,
        operation: Operation::from_wire(&wire_request.operation),
        user: UserInfo {
            username: wire_request.user_info.username,
            uid: wire_request.user_info.uid,
            groups: wire_request.user_info.groups,
            extra: wire_request.user_info.extra,
        },
        dry_run: wire_request.dry_run,
        object: place(wire_request.object),
        old_object: place(wire_request.old_object),
        options: place(wire_request.options),
        body: body.clone(),
    })
}

/// Decodes the version and the request of a review in one pass; `None` on any error.
fn parse_request(text: &str) -> Option<(ReviewVersion, WireRequest<'_>)> {
    let envelope: Envelope<'_, WireRequest<'_>> = serde_json::from_str(text).ok()?;
    Some((envelope.version()?, envelope.request?))
}

/// Decodes in steps, to determine the error.
fn parse_request_stepwise(text: &str) -> Result<(ReviewVersion, WireRequest<'_>), InvalidReview> {
    let envelope: Envelope<'_, &RawValue> = serde_json::from_str(text).map_err(|error| {
        InvalidReview::new(format!("the body is not an AdmissionReview: {error}"))
    })?;
    let Some(version) = envelope.version() else {
        let Envelope {
            api_version, kind, ..
        } = envelope;
        return Err(InvalidReview::new(format!(
            "want an AdmissionReview of admission.k8s.io/v1 or v1beta1, got kind `{kind}` of `{api_version}`"
        )));
    };
    let Some(request) = envelope.request.map(RawValue::get) else {
        return Err(InvalidReview::new("the AdmissionReview has no request"));
    };
    let known = || {
        let uid = serde_json::from_str::<Uid<'_>>(request).ok()?.uid;
        Some((version, uid.into_owned()))
    };
    let wire_request = serde_json::from_str(request).map_err(|error| InvalidReview {
        message: format!("cannot decode the request of the AdmissionReview: {error}"),
        known: known(),
    })?;
    Ok((version, wire_request))
}

/// The range of a borrowed part within its text.
fn range_in(text: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    start..start + part.len()
}
