//! Captures: files of requests with their results, one JSON object per line, which can be replayed.
//!
//! ```text
//!   {"format":"lockgate-capture","version":1,"source":"serve"}
//!   {"time":"…","request":{…},"decision":{"allowed":false,…},"calls":[{"webhook":…,"response":{…}}]}
//! ```
//!
//! `request` is the `request` of an AdmissionReview, with the requested resource. Secret data and tokens are never
//! written to a file.

mod redact;

use std::collections::HashMap;

use lockgate_admission::plugin::Admission;
use lockgate_admission::request::{Operation, Request};
use lockgate_admission::trace::{CallOutcome, Step};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use redact::{REDACTED, redact};

use crate::hooks::Responder;

/// The format name in the first line of a capture.
pub const FORMAT: &str = "lockgate-capture";
/// The version of the format.
pub const VERSION: u32 = 1;
/// The maximum number of requests in a file.
const MAX_RECORDS: usize = 1_000_000;

/// The first line of a capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Always [`FORMAT`].
    pub format: String,
    /// The version of the format.
    pub version: u32,
    /// The source of the requests: `serve`, `audit` or `webhook`.
    pub source: String,
}

/// A request and its result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The time of its arrival, in RFC 3339.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub time: String,
    /// The `request` of an AdmissionReview.
    pub request: Value,
    /// The decision of admission, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<RecordedDecision>,
    /// The webhooks that were called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<RecordedCall>,
    /// The object after mutating admission, if changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutated: Option<Value>,
}

/// The decision about a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedDecision {
    /// True if it was allowed.
    pub allowed: bool,
    /// The status code of a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The message of a denial.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Warnings for the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A webhook call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedCall {
    /// The configuration of the webhook, if known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub configuration: String,
    /// The webhook.
    pub webhook: String,
    /// The round, from 1.
    #[serde(default)]
    pub round: u8,
    /// The `response` of the review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
    /// The error, if there was no response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A file of captured requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Capture {
    /// The first line.
    pub header: Header,
    /// The requests, in order.
    pub records: Vec<Record>,
}

/// An invalid capture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The first line is not a capture header.
    #[error("{0}: not a capture: the first line is not a `{FORMAT}` header")]
    NoHeader(String),
    /// The format is newer than this program.
    #[error("{file}: unsupported capture format version {version}, expected {VERSION}")]
    Version {
        /// The file.
        file: String,
        /// Its version.
        version: u32,
    },
    /// A line is not a valid record.
    #[error("{file}:{line}: {message}")]
    Line {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The error.
        message: String,
    },
    /// There are too many records.
    #[error("{0}: more than {MAX_RECORDS} requests; split the file")]
    TooMany(String),
}

/// Parses a capture. A file with one AdmissionReview per line is accepted as well.
///
/// # Errors
///
/// Fails if the text is not a capture, or a line is invalid.
pub fn read(file: &str, text: &str) -> Result<Capture, CaptureError> {
    let mut lines = (1..)
        .zip(text.lines())
        .filter(|(_, line)| !line.trim().is_empty())
        .peekable();
    let Some(&(_, first)) = lines.peek() else {
        return Err(CaptureError::NoHeader(file.to_owned()));
    };
    let first: Value = serde_json::from_str(first).unwrap_or_default();
    let header = if first["kind"] == "AdmissionReview" {
        header("review")
    } else {
        lines.next();
        let header: Header =
            serde_json::from_value(first).map_err(|_| CaptureError::NoHeader(file.to_owned()))?;
        if header.format != FORMAT {
            return Err(CaptureError::NoHeader(file.to_owned()));
        }
        if header.version > VERSION {
            let version = header.version;
            let file = file.to_owned();
            return Err(CaptureError::Version { file, version });
        }
        header
    };
    let mut records = Vec::new();
    for (line, text) in lines {
        if records.len() >= MAX_RECORDS {
            return Err(CaptureError::TooMany(file.to_owned()));
        }
        let wrong = |message: String| CaptureError::Line {
            file: file.to_owned(),
            line,
            message,
        };
        let mut value: Value =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if value["kind"] == "AdmissionReview" {
            encode_patch(&mut value["response"]);
            let answer = value.get("response").filter(|answer| answer.is_object());
            let call = answer.cloned().map(|response| RecordedCall {
                response: Some(response),
                ..RecordedCall::default()
            });
            records.push(Record {
                request: value["request"].take(),
                calls: call.into_iter().collect(),
                ..Record::default()
            });
            continue;
        }
        let mut record: Record =
            serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
        for call in &mut record.calls {
            call.response.iter_mut().for_each(encode_patch);
        }
        if !record.request.is_object() {
            return Err(wrong(String::from("`request` is not an object")));
        }
        records.push(record);
    }
    Ok(Capture { header, records })
}

/// Encodes a patch given as a list of operations.
fn encode_patch(response: &mut Value) {
    if let Some(patch) = response.get_mut("patch").filter(|patch| patch.is_array()) {
        *patch = lockgate_go::base64::encode(patch.to_string().as_bytes()).into();
    }
}

/// The header of a capture from a source.
#[must_use]
pub fn header(source: &str) -> Header {
    Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        source: source.to_owned(),
    }
}

impl Record {
    /// Creates the record of an admitted or denied request, without Secret data. Requires a trace with objects; `None`
    /// without them.
    #[must_use]
    pub fn of(admission: &Admission, time: String) -> Option<Self> {
        let trace = admission.trace();
        let first = trace.steps.first()?;
        let mut before = admission.request().clone();
        before.object = match before.operation {
            Operation::Delete => None,
            _ => Some(first.object.clone().or(before.object)?),
        };
        let denied = trace.steps.iter().find(|step| step.denied.is_some());
        let status = denied.and_then(|step| step.status.as_deref());
        let calls = trace.calls().map(|(step, plugin, hook, call)| {
            let mut recorded = RecordedCall {
                configuration: hook.hook.configuration().to_owned(),
                webhook: hook.hook.name().to_owned(),
                round: plugin.round + 1,
                ..RecordedCall::default()
            };
            match &call.outcome {
                CallOutcome::Allowed | CallOutcome::Denied(_) => {
                    recorded.response = Some(response(step, call));
                }
                CallOutcome::Refused(status) => recorded.error = Some(status.message.clone()),
                CallOutcome::Failed { reason, .. } => recorded.error = Some(reason.clone()),
                _ => recorded.error = Some(String::from("the call was not completed")),
            }
            recorded
        });
        let changes = trace.plugins().filter(|(step, _)| *step == Step::Admit);
        let changes = changes.filter_map(|(_, plugin)| plugin.object.as_ref());
        let mut record = Self {
            time,
            request: review_request(&before),
            decision: Some(RecordedDecision {
                allowed: denied.is_none(),
                code: status.map(|status| status.code),
                message: status
                    .map(|status| status.message.clone())
                    .unwrap_or_default(),
                warnings: admission.warnings().texts().to_vec(),
            }),
            calls: calls.collect(),
            mutated: changes.last().map(|object| object.value().clone()),
        };
        redact(&mut record);
        Some(record)
    }

    /// Encodes the record as a line, without the line break.
    #[must_use]
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The response of a call, as the webhook sent it.
fn response(step: Step, call: &lockgate_admission::trace::CallTrace) -> Value {
    let mut response = Map::new();
    let allowed = !matches!(call.outcome, CallOutcome::Denied(_));
    response.insert(String::from("allowed"), allowed.into());
    if let CallOutcome::Denied(status) = &call.outcome {
        // The server prefixes the message with the name of the webhook.
        let told = status.message.split_once(" denied the request: ");
        let message = told.map_or("", |(_, message)| message);
        let mut shown = json!({"code": status.code});
        if !message.is_empty() {
            shown["message"] = message.into();
        }
        if !status.reason.is_empty() {
            shown["reason"] = status.reason.clone().into();
        }
        response.insert(String::from("status"), shown);
    }
    if let (Step::Admit, Some(patch)) = (step, &call.patch) {
        let text = lockgate_go::base64::encode(patch.text.as_bytes());
        response.insert(String::from("patchType"), "JSONPatch".into());
        response.insert(String::from("patch"), text.into());
    }
    if !call.warnings.is_empty() {
        response.insert(String::from("warnings"), call.warnings.clone().into());
    }
    if !call.annotations.is_empty() {
        response.insert(String::from("auditAnnotations"), json!(call.annotations));
    }
    response.into()
}

/// The `request` of an AdmissionReview with the requested resource.
#[must_use]
pub fn review_request(request: &Request) -> Value {
    let kind = json!({"group": request.kind.group, "version": request.kind.version, "kind": request.kind.kind});
    let resource = json!({"group": request.resource.group, "version": request.resource.version,
        "resource": request.resource.resource});
    let object = |object: &Option<lockgate_admission::object::Object>| match object {
        Some(object) => object.value().clone(),
        None => Value::Null,
    };
    let mut user = json!({"username": request.user.username});
    if !request.user.uid.is_empty() {
        user["uid"] = request.user.uid.clone().into();
    }
    if let Some(groups) = &request.user.groups {
        user["groups"] = groups.clone().into();
    }
    if let Some(extra) = &request.user.extra {
        user["extra"] = json!(extra);
    }
    let mut told = json!({
        "operation": request.operation.name(), "kind": kind, "resource": resource,
        "name": request.name, "namespace": request.namespace, "userInfo": user,
        "object": object(&request.object), "oldObject": object(&request.old_object),
        "options": object(&request.options), "dryRun": request.dry_run,
    });
    if !request.subresource.is_empty() {
        told["subResource"] = request.subresource.clone().into();
    }
    told
}

/// The recorded responses of one webhook.
#[derive(Debug, Default)]
pub struct RecordedResponses {
    exact: HashMap<String, Value>,
    /// Keyed without the objects: other webhooks may have changed them.
    similar: HashMap<String, Value>,
}

impl Capture {
    /// The responses of a webhook, given by its name or by `configuration/webhook`.
    #[must_use]
    pub fn answers(&self, name: &str) -> RecordedResponses {
        let mut answers = RecordedResponses::default();
        for record in &self.records {
            for call in &record.calls {
                let qualified = format!("{}/{}", call.configuration, call.webhook);
                let is_it = call.webhook == name || qualified == name || call.webhook.is_empty();
                let Some(response) = call.response.as_ref().filter(|_| is_it) else {
                    continue;
                };
                let (exact, similar) = (exact(&record.request), similar(&record.request));
                answers
                    .exact
                    .entry(exact)
                    .or_insert_with(|| response.clone());
                answers
                    .similar
                    .entry(similar)
                    .or_insert_with(|| response.clone());
            }
        }
        answers
    }
}

impl Responder for RecordedResponses {
    fn answer(&self, request: &Value) -> Option<Value> {
        let found = self.exact.get(&exact(request));
        let found = found.or_else(|| self.similar.get(&similar(request)));
        found.cloned()
    }
}

fn similar(request: &Value) -> String {
    let of = |member: &str| &request[member];
    json!([
        of("operation"),
        of("resource"),
        request["subResource"].as_str().unwrap_or_default(),
        of("namespace"),
        of("name"),
        request["userInfo"]["username"],
    ])
    .to_string()
}

fn exact(request: &Value) -> String {
    let objects = [&request["object"], &request["oldObject"]];
    let objects = objects.map(Value::to_string);
    format!("{}{}{}", similar(request), objects[0], objects[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_refuses_what_it_does_not_know() {
        let header = serde_json::to_string(&header("serve")).unwrap();
        let record = Record {
            request: json!({"operation": "CREATE"}),
            ..Record::default()
        };
        let text = format!("{header}\n{}\n\n", record.to_line());
        assert_eq!(read("c", &text).unwrap().records, [record]);
        let newer = text.replace("\"version\":1", "\"version\":9");
        let error = read("c", &newer).unwrap_err().to_string();
        assert!(error.contains("version 9"), "{error}");
        assert!(matches!(read("c", ""), Err(CaptureError::NoHeader(_))));
        assert!(matches!(read("c", "{}"), Err(CaptureError::NoHeader(_))));
        let broken = format!("{header}\n{{\n");
        let error = read("c", &broken).unwrap_err().to_string();
        assert!(error.starts_with("c:2: "), "{error}");
        let empty = format!("{header}\n{{\"request\": 1}}\n");
        assert!(read("c", &empty).is_err());
    }

    #[test]
    fn gives_the_answer_to_the_same_request_before_one_to_a_similar() {
        let request =
            |data: &str| json!({"operation": "CREATE", "name": "a", "object": {"data": data}});
        let record = |data: &str, allowed: bool| Record {
            request: request(data),
            calls: vec![RecordedCall {
                webhook: String::from("w"),
                response: Some(json!({"allowed": allowed})),
                ..RecordedCall::default()
            }],
            ..Record::default()
        };
        let capture = Capture {
            header: header("serve"),
            records: vec![record("1", true), record("2", false)],
        };
        let answers = capture.answers("w");
        let answer = |data| {
            answers
                .answer(&request(data))
                .map(|it| it["allowed"] == true)
        };
        assert_eq!(answer("2"), Some(false));
        assert_eq!(answer("3"), Some(true));
        assert!(capture.answers("other").answer(&request("1")).is_none());
    }
}
