//! ConversionReviews: either all objects of a review are converted, or none.

use std::borrow::Cow;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use futures_util::FutureExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Conversion;
use crate::review::{ReviewError, lenient, panic_text};

/// Yields to other reviews after this many objects.
const OBJECTS_PER_YIELD: usize = 16;

/// The response to one ConversionReview.
#[derive(Debug)]
pub struct Converted {
    /// The HTTP status code.
    pub code: u16,
    /// The body: a review, or an error message.
    pub body: Vec<u8>,
    /// The uid of the review, if it could be read.
    pub uid: Option<String>,
    /// The converted objects, or the error.
    pub outcome: Result<Vec<ConvertedObjects>, ReviewError>,
}

/// Objects of one review with the same kind and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertedObjects {
    /// Their kind.
    pub kind: &'static str,
    /// Their original version.
    pub from: &'static str,
    /// Their desired version.
    pub to: &'static str,
    /// The number of objects.
    pub count: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'b> {
    #[serde(default, borrow, deserialize_with = "lenient")]
    api_version: Cow<'b, str>,
    #[serde(default, borrow, deserialize_with = "lenient")]
    kind: Cow<'b, str>,
    #[serde(default, borrow)]
    request: Option<&'b RawValue>,
}

#[derive(Deserialize)]
struct Uid<'b> {
    #[serde(borrow)]
    uid: Cow<'b, str>,
}

#[derive(Deserialize)]
struct WireRequest<'b> {
    uid: String,
    #[serde(default, rename = "desiredAPIVersion", deserialize_with = "lenient")]
    desired_api_version: String,
    #[serde(default, borrow, deserialize_with = "lenient")]
    objects: Vec<&'b RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TypeMeta<'b> {
    #[serde(default, borrow, deserialize_with = "lenient")]
    api_version: Cow<'b, str>,
    #[serde(default, borrow, deserialize_with = "lenient")]
    kind: Cow<'b, str>,
}

/// Handles one review with the conversions at a path.
pub(crate) async fn answer(
    conversions: &[Arc<Conversion>],
    body: Bytes,
    deadline: Option<Instant>,
) -> Converted {
    let malformed = |message: String| Converted {
        code: 400,
        body: format!("{message}\n").into_bytes(),
        uid: None,
        outcome: Err(ReviewError::Malformed(message)),
    };
    let text = match std::str::from_utf8(&body) {
        Ok(text) => text,
        Err(error) => return malformed(format!("the body is not UTF-8: {error}")),
    };
    let envelope: Envelope<'_> = match serde_json::from_str(text) {
        Ok(envelope) => envelope,
        Err(error) => return malformed(format!("the body is not a ConversionReview: {error}")),
    };
    let api_version = match (&*envelope.api_version, &*envelope.kind) {
        ("apiextensions.k8s.io/v1", "ConversionReview") => "apiextensions.k8s.io/v1",
        ("apiextensions.k8s.io/v1beta1", "ConversionReview") => "apiextensions.k8s.io/v1beta1",
        (version, kind) => {
            return malformed(format!(
                "want a ConversionReview of apiextensions.k8s.io/v1 or v1beta1, got kind `{kind}` of `{version}`"
            ));
        }
    };
    let Some(request) = envelope.request.map(RawValue::get) else {
        return malformed(String::from("the ConversionReview has no request"));
    };
    let wire_request: WireRequest<'_> = match serde_json::from_str(request) {
        Ok(wire_request) => wire_request,
        Err(error) => {
            let message = format!("cannot decode the request of the ConversionReview: {error}");
            let Ok(known) = serde_json::from_str::<Uid<'_>>(request) else {
                return malformed(message);
            };
            return failed(
                api_version,
                known.uid.into_owned(),
                ReviewError::Malformed(message),
            );
        }
    };
    let converting = convert(conversions, &wire_request, deadline);
    let outcome = AssertUnwindSafe(converting).catch_unwind().await;
    let outcome = outcome
        .map_err(|panic| ReviewError::Panicked(panic_text(&*panic)))
        .flatten();
    match outcome {
        Err(error) => failed(api_version, wire_request.uid, error),
        Ok((objects, counts)) => {
            let response = json!({
                "uid": wire_request.uid,
                "convertedObjects": objects,
                "result": {"status": "Success"},
            });
            Converted {
                code: 200,
                body: written(api_version, &response),
                uid: Some(wire_request.uid),
                outcome: Ok(counts),
            }
        }
    }
}

/// The API server returns the message of a failure to its client.
fn failed(api_version: &str, uid: String, error: ReviewError) -> Converted {
    let message = match &error {
        ReviewError::Malformed(message) | ReviewError::Fault(message) => message.clone(),
        // Internal errors are only logged.
        ReviewError::Panicked(_) | ReviewError::TooLate => {
            format!("the webhook could not convert; its log has the reason under uid {uid}")
        }
    };
    let response = json!({
        "uid": uid,
        "convertedObjects": [],
        "result": {"status": "Failure", "message": message},
    });
    Converted {
        code: 200,
        body: written(api_version, &response),
        uid: Some(uid),
        outcome: Err(error),
    }
}

fn written(api_version: &str, response: &Value) -> Vec<u8> {
    let review = json!({
        "apiVersion": api_version,
        "kind": "ConversionReview",
        "response": response,
    });
    review.to_string().into_bytes()
}

async fn convert(
    conversions: &[Arc<Conversion>],
    wire_request: &WireRequest<'_>,
    deadline: Option<Instant>,
) -> Result<(Vec<Value>, Vec<ConvertedObjects>), ReviewError> {
    let desired = wire_request.desired_api_version.as_str();
    let mut objects = Vec::with_capacity(wire_request.objects.len());
    let mut counts: Vec<ConvertedObjects> = Vec::new();
    for (index, object) in wire_request.objects.iter().enumerate() {
        if index % OBJECTS_PER_YIELD == OBJECTS_PER_YIELD - 1 {
            yield_to_tasks().await;
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(ReviewError::TooLate);
        }
        let at = |message: String| ReviewError::Fault(format!("objects[{index}]: {message}"));
        let meta: TypeMeta<'_> =
            serde_json::from_str(object.get()).map_err(|error| at(error.to_string()))?;
        let known = |conversion: &&Arc<Conversion>| {
            conversion.kind == meta.kind && conversion.api_versions().contains(&&*meta.api_version)
        };
        let conversion = conversions.iter().find(known).ok_or_else(|| {
            at(format!(
                "no conversion of kind `{}` in version `{}` is served here",
                meta.kind, meta.api_version
            ))
        })?;
        let converted = conversion.convert(object.get(), desired);
        objects.push(converted.map_err(|fault| at(format!("{fault:#}")))?);
        count(&mut counts, conversion, &meta.api_version, desired);
    }
    Ok((objects, counts))
}

fn count(counts: &mut Vec<ConvertedObjects>, conversion: &Conversion, from: &str, to: &str) {
    let known = conversion.api_versions();
    let find = |version: &str| known.iter().copied().find(|known| *known == version);
    // Both versions exist, since the conversion between them succeeded.
    let (Some(from), Some(to)) = (find(from), find(to)) else {
        return;
    };
    let kind = conversion.kind;
    let same = |one: &&mut ConvertedObjects| (one.kind, one.from, one.to) == (kind, from, to);
    match counts.iter_mut().find(same) {
        Some(found) => found.count += 1,
        None => counts.push(ConvertedObjects {
            kind,
            from,
            to,
            count: 1,
        }),
    }
}

/// Yields to other tasks.
async fn yield_to_tasks() {
    let mut gave = false;
    poll_fn(|context| {
        if gave {
            return Poll::Ready(());
        }
        gave = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
