//! Decodes and verifies webhook responses.
//!
//! There are three stages, each with its own errors: the HTTP status, the body as an object, and
//! the object as a response to *this* request. The first two fail the call; the last makes the
//! response invalid. Whether the failed request is allowed depends on the failure policy, which is
//! not applied here. A denial is not a failure but a response.
//!
//! UPSTREAM: k8s.io/client-go rest/request.go, k8s.io/apiserver
//! pkg/admission/plugin/webhook/request/admissionreview.go.

use std::collections::BTreeMap;

use lockgate_go::mime::parse_media_type;
use lockgate_go::quote::{push_lossy, quote, quote_bytes};

use super::{GROUP, ReviewVersion, v1, v1beta1};
use crate::decode::{DecodeError, WireStruct, decode_value};
use crate::document::{Document, SyntaxError, Value, json, yaml};
use crate::meta::status::Status;
use crate::meta::type_meta::TypeMeta;

/// Where upstream creates the scheme of responses; part of one error text.
const SCHEME: &str = "k8s.io/apiserver/pkg/util/webhook/client.go:71";

/// The maximum length of an error response's body in messages.
const MAX_SHOWN_BODY: usize = 2048;

/// A complete HTTP response.
#[derive(Debug, Clone, Copy)]
pub struct HttpResponse<'b> {
    /// The status code.
    pub code: u16,
    /// The `Content-Type`, if any.
    pub content_type: Option<&'b str>,
    /// The body.
    pub body: &'b [u8],
}

/// The attributes of the request that its response must match.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedResponse<'q> {
    /// The version of the AdmissionReview.
    pub version: ReviewVersion,
    /// The `uid` of the request.
    pub uid: &'q str,
    /// True for a mutating webhook.
    pub may_patch: bool,
}

/// A webhook's decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdmissionDecision {
    /// True if the request is allowed.
    pub allowed: bool,
    /// The reason of a denial.
    pub status: Option<Status>,
    /// The patch; may be empty.
    pub patch: Vec<u8>,
    /// The type of the patch; empty without a patch.
    pub patch_type: String,
    /// The audit annotations.
    pub audit_annotations: BTreeMap<String, String>,
    /// The warnings for the client.
    pub warnings: Vec<String>,
}

/// A failed call or an invalid response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// The response is not an AdmissionReview.
    #[error("{message}")]
    Call {
        /// The error message.
        message: String,
        /// The status code, if the webhook sent one.
        code: Option<i32>,
    },
    /// The AdmissionReview is not a valid response to the request.
    #[error("{0}")]
    Invalid(String),
}

/// Decodes and verifies a response.
///
/// # Errors
///
/// The response is not an AdmissionReview, or does not match `expected`.
pub fn read(
    http: &HttpResponse<'_>,
    expected: &ExpectedResponse<'_>,
) -> Result<AdmissionDecision, ResponseError> {
    let http = &HttpResponse {
        // These two have no body, even if bytes follow the headers.
        body: if matches!(http.code, 204 | 304) {
            b""
        } else {
            http.body
        },
        ..*http
    };
    check_http(http)?;
    match expected.version {
        ReviewVersion::V1 => {
            let review: v1::AdmissionReview = decode_review(http.body, expected.version)?;
            verify_v1(review, expected)
        }
        ReviewVersion::V1beta1 => {
            let review: v1beta1::AdmissionReview = decode_review(http.body, expected.version)?;
            verify_v1beta1(review, expected)
        }
    }
}

fn call_error<T>(problem: impl ToString) -> Result<T, ResponseError> {
    Err(ResponseError::Call {
        message: problem.to_string(),
        code: None,
    })
}

fn check_http(http: &HttpResponse<'_>) -> Result<(), ResponseError> {
    let content_type = http.content_type.map(|text| text.trim_matches([' ', '\t']));
    let content_type = content_type.filter(|text| !text.is_empty());
    let media_type = match content_type {
        None => None,
        Some(text) => match parse_media_type(text) {
            Ok(media_type) => Some(media_type),
            Err(problem) => return call_error(format!("Internal error occurred: {problem}")),
        },
    };
    if !(200..=206).contains(&http.code) {
        let is_text = media_type
            .as_deref()
            .is_none_or(|media| media.starts_with("text/"));
        return Err(http_error(http, is_text));
    }
    if http.body.is_empty() {
        return call_error(format!(
            "0-length response with status code: {} and content type: {}",
            http.code,
            content_type.unwrap_or("application/json")
        ));
    }
    Ok(())
}

/// The error of an unsuccessful status code. A `Status` with `Failure` in the body is the error
/// itself.
fn http_error(http: &HttpResponse<'_>, is_text: bool) -> ResponseError {
    if let Some(status) = failure_status(http.body) {
        return ResponseError::Call {
            message: status.message,
            code: Some(status.code),
        };
    }
    let shown_bytes = if is_text {
        trim_space(&http.body[..http.body.len().min(MAX_SHOWN_BODY)])
    } else {
        b"unknown"
    };
    let mut shown = String::new();
    push_lossy(&mut shown, shown_bytes);
    let message = match http.code {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 415 => &shown,
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        406 if shown.is_empty() || shown == "unknown" => {
            "the server was unable to respond with a content type that the client supports"
        }
        406 => &shown,
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be \
             processing the request"
        }
        code => {
            let message = if code >= 500 {
                let shown = quote_bytes(shown_bytes);
                format!(
                    "an error on the server ({shown}) has prevented the request from succeeding"
                )
            } else {
                format!(
                    "the server responded with the status code {code} but did not return more \
                     information"
                )
            };
            return ResponseError::Call {
                message,
                code: Some(code.into()),
            };
        }
    };
    ResponseError::Call {
        message: message.to_owned(),
        code: Some(http.code.into()),
    }
}

/// Trims white space of a string that may be truncated within a character.
fn trim_space(text: &[u8]) -> &[u8] {
    let Some(first) = text.utf8_chunks().next() else {
        return text;
    };
    let text = &text[first.valid().len() - first.valid().trim_start().len()..];
    let end = match text.utf8_chunks().last() {
        Some(last) if last.invalid().is_empty() => {
            last.valid().len() - last.valid().trim_end().len()
        }
        _ => 0,
    };
    &text[..text.len() - end]
}

fn failure_status(body: &[u8]) -> Option<Status> {
    let document = parse(body).ok()?;
    let mut type_meta = TypeMeta::read(document.root()).ok()?;
    // The version is defaulted for old servers, the kind is not; the decoded Status is the same in
    // all versions.
    type_meta.complete("", "v1", "");
    if type_meta.kind != "Status" || type_meta.version.is_empty() {
        return None;
    }
    let status: Status = decode_value(document.root()).ok()?.value;
    (status.status == "Failure").then_some(status)
}

/// A body that is neither JSON nor YAML.
#[derive(Debug, thiserror::Error)]
enum BodyError {
    #[error("couldn't get version/kind; json parse error: {0}")]
    Json(SyntaxError),
    #[error("{0}")]
    Yaml(yaml::Problem),
}

/// Distinguishes JSON from YAML by the first character, as the API server does.
fn parse(body: &[u8]) -> Result<Document, BodyError> {
    let is_json = String::from_utf8_lossy(body).trim_start().starts_with('{');
    if is_json {
        return json::parse(body).map_err(BodyError::Json);
    }
    // YAML is converted to JSON through a map, which sorts keys and drops duplicates.
    let document = yaml::parse_like_kubernetes(body).map_err(BodyError::Yaml)?;
    Ok(document.sorted())
}

fn decode_review<T: WireStruct + Default>(
    body: &[u8],
    version: ReviewVersion,
) -> Result<T, ResponseError> {
    let document = parse(body).or_else(call_error)?;
    let mut type_meta = TypeMeta::read(document.root()).or_else(call_error)?;
    type_meta.complete(GROUP, version.name(), "AdmissionReview");
    if type_meta.version.is_empty() {
        let body = String::from_utf8_lossy(body);
        return call_error(format!("Object 'apiVersion' is missing in '{body}'"));
    }
    check_type(&type_meta, version, document.root()).or_else(call_error)?;
    let decoded = decode_value::<T>(document.root());
    Ok(decoded.or_else(|error| call_error(error.message))?.value)
}

/// A body with another kind than the AdmissionReview.
#[derive(Debug, thiserror::Error)]
enum WrongType {
    #[error("{0}")]
    Decode(DecodeError),
    #[error("no kind {} is registered for the internal version of group {} in scheme {}", quote(.kind), quote(.group), quote(SCHEME))]
    Internal { group: String, kind: String },
    #[error("no kind {} is registered for version {} in scheme {}", quote(.kind), quote(.api_version), quote(SCHEME))]
    Unknown { api_version: String, kind: String },
    #[error("converting ({found}) to ({}.AdmissionReview): unknown conversion", .version.name())]
    Conversion {
        found: String,
        version: ReviewVersion,
    },
}

/// Checks that the body is an AdmissionReview of the requested version. Other kinds in the webhook
/// client's scheme are decoded, and then rejected as a failed conversion; all others are unknown.
fn check_type(found: &TypeMeta, version: ReviewVersion, root: Value<'_>) -> Result<(), WrongType> {
    let kind = found.kind.as_str();
    let found_type = match (found.group.as_str(), found.version.as_str()) {
        (GROUP, name) if kind == "AdmissionReview" && name == version.name() => return Ok(()),
        (GROUP, "v1") if kind == "AdmissionReview" => {
            decode_other::<v1::AdmissionReview>(root)?;
            String::from("v1.AdmissionReview")
        }
        (GROUP, "v1beta1") if kind == "AdmissionReview" => {
            decode_other::<v1beta1::AdmissionReview>(root)?;
            String::from("v1beta1.AdmissionReview")
        }
        (GROUP, "v1" | "v1beta1") if GROUP_KINDS.contains(&kind) => format!("v1.{kind}"),
        (GROUP, INTERNAL) if kind == "WatchEvent" => String::from("v1.InternalEvent"),
        _ if kind == "Status" => {
            decode_other::<Status>(root)?;
            String::from("v1.Status")
        }
        _ if UNVERSIONED_KINDS.contains(&kind) => format!("v1.{kind}"),
        (group, INTERNAL) => {
            return Err(WrongType::Internal {
                group: group.to_owned(),
                kind: kind.to_owned(),
            });
        }
        _ => {
            return Err(WrongType::Unknown {
                api_version: found.api_version(),
                kind: kind.to_owned(),
            });
        }
    };
    Err(WrongType::Conversion {
        found: found_type,
        version,
    })
}

/// Decodes an object of another kind: its decode errors precede the kind's error.
fn decode_other<T: WireStruct + Default>(root: Value<'_>) -> Result<(), WrongType> {
    decode_value::<T>(root)
        .map(|_| ())
        .map_err(WrongType::Decode)
}

/// The internal version of types, which is never serialized.
const INTERNAL: &str = "__internal";

/// Kinds that are registered in every API group of a scheme.
pub const GROUP_KINDS: [&str; 7] = [
    "WatchEvent",
    "ListOptions",
    "GetOptions",
    "DeleteOptions",
    "CreateOptions",
    "UpdateOptions",
    "PatchOptions",
];

/// Kinds that are registered in any group and version.
const UNVERSIONED_KINDS: [&str; 4] = ["APIVersions", "APIGroup", "APIGroupList", "APIResourceList"];

fn invalid<T>(message: impl Into<String>) -> Result<T, ResponseError> {
    Err(ResponseError::Invalid(message.into()))
}

fn verify_v1(
    review: v1::AdmissionReview,
    expected: &ExpectedResponse<'_>,
) -> Result<AdmissionDecision, ResponseError> {
    let Some(response) = review.response else {
        return invalid("webhook response was absent");
    };
    if response.uid != expected.uid {
        let (want, got) = (quote(expected.uid), quote(&response.uid));
        return invalid(format!("expected response.uid={want}, got {got}"));
    }
    if (review.api_version.as_str(), review.kind.as_str())
        != ("admission.k8s.io/v1", "AdmissionReview")
    {
        let found = type_name(&review.api_version, &review.kind);
        return invalid(format!(
            "expected webhook response of {GROUP}/v1, Kind=AdmissionReview, got {found}"
        ));
    }
    let patch = response.patch.map(|bytes| bytes.0).unwrap_or_default();
    let patch_type = response.patch_type;
    if !expected.may_patch {
        if !patch.is_empty() {
            return invalid("validating webhook may not return response.patch");
        }
        if patch_type.is_some() {
            return invalid("validating webhook may not return response.patchType");
        }
    }
    match &patch_type {
        None if !patch.is_empty() => {
            return invalid("webhook returned response.patch but not response.patchType");
        }
        Some(_) if patch.is_empty() => {
            return invalid("webhook returned response.patchType but not response.patch");
        }
        Some(kind) if kind.is_empty() => {
            return invalid("webhook returned invalid response.patchType of \"\"");
        }
        _ => {}
    }
    Ok(AdmissionDecision {
        allowed: response.allowed,
        status: response.status,
        patch,
        patch_type: patch_type.unwrap_or_default(),
        audit_annotations: response.audit_annotations.unwrap_or_default(),
        warnings: response.warnings.unwrap_or_default(),
    })
}

/// The group, version and kind as Go prints them; separators of empty parts are kept.
fn type_name(api_version: &str, kind: &str) -> String {
    let (group, version) = match api_version.matches('/').count() {
        0 => ("", api_version),
        1 => api_version.split_once('/').unwrap_or_default(),
        _ => ("", ""),
    };
    format!("{group}/{version}, Kind={kind}")
}

/// Verifies a v1beta1 response: neither `uid` nor kind is checked, and any patch is a JSON Patch.
fn verify_v1beta1(
    review: v1beta1::AdmissionReview,
    expected: &ExpectedResponse<'_>,
) -> Result<AdmissionDecision, ResponseError> {
    let Some(response) = review.response else {
        return invalid("webhook response was absent");
    };
    let patch = response
        .patch
        .filter(|_| expected.may_patch)
        .map(|bytes| bytes.0)
        .unwrap_or_default();
    let patch_type = if patch.is_empty() {
        String::new()
    } else {
        String::from("JSONPatch")
    };
    Ok(AdmissionDecision {
        allowed: response.allowed,
        status: response.status,
        patch,
        patch_type,
        audit_annotations: response.audit_annotations.unwrap_or_default(),
        warnings: response.warnings.unwrap_or_default(),
    })
}
