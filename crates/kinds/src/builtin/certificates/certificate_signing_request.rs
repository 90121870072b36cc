//! CertificateSigningRequests.

use crate::cells::read;
use crate::cells::{Common, Row, cell, human_duration};
use crate::checks::take_over;
use crate::kind::{CHANGE, Context, FieldSelector, Kind, NAME, Resource, cluster, select, sub};
use crate::object::{Object, at_mut, each, get, get_mut, list, open, with};
use serde_json::{Value, json};

pub(super) const CERTIFICATE_SIGNING_REQUESTS: Resource = cluster(
    "certificates.k8s.io",
    "v1",
    "certificatesigningrequests",
    "certificatesigningrequest",
    "CertificateSigningRequest",
    "CertificateSigningRequestList",
    &CertificateSigningRequest,
)
.short(&["csr"])
.subresources(&[
    sub(
        "approval",
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        CHANGE,
    ),
    sub(
        "status",
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        CHANGE,
    ),
]);

const SELECTABLE: &[FieldSelector] = &[NAME, select("spec.signerName", &["spec", "signerName"])];

/// The kind `CertificateSigningRequest`.
#[derive(Debug)]
pub(super) struct CertificateSigningRequest;

impl Kind for CertificateSigningRequest {
    fn prepare_create(&self, value: &mut Value, context: &Context<'_>) {
        with(value, |object| requester(object, context));
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        context: &Context<'_>,
    ) {
        let Some(old) = old.as_object() else {
            return;
        };
        with(value, |object| match subresource {
            "" => take_over(object, old, "spec"),
            "status" => condition_times(object, old, context),
            "approval" => {
                let conditions =
                    at_mut(object, &["status"]).and_then(|status| status.remove("conditions"));
                take_over(object, old, "spec");
                take_over(object, old, "status");
                if let (Some(conditions), Some(status)) = (conditions, open(object, "status")) {
                    status.insert("conditions".to_owned(), conditions);
                }
                condition_times(object, old, context);
            }
            _ => {}
        });
    }

    fn columns(&self) -> &'static str {
        "Name|Age|SignerName|Requestor|RequestedDuration|Condition"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        request_row(object, common)
    }

    fn field_selectors(&self) -> Option<&'static [FieldSelector]> {
        Some(SELECTABLE)
    }
}

/// Who asks for a certificate is not for the client to say.
fn requester(object: &mut Object, context: &Context<'_>) {
    let Some(spec) = open(object, "spec") else {
        return;
    };
    for key in ["username", "uid", "groups", "extra"] {
        spec.remove(key);
    }
    let who = context.requester;
    for (key, value) in [("username", who.name), ("uid", who.uid)] {
        if !value.is_empty() {
            spec.insert(key.to_owned(), Value::from(value));
        }
    }
    if !who.groups.is_empty() {
        spec.insert("groups".to_owned(), Value::from(who.groups));
    }
    if !who.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(who.extra));
    }
}

/// Conditions of a signing request say when they were updated and when they changed.
fn condition_times(object: &mut Object, old: &Object, context: &Context<'_>) {
    let known: Vec<(Value, Value)> = get(old, "status")
        .map_or(&[][..], |status| list(status, "conditions"))
        .iter()
        .map(|condition| (condition["type"].clone(), condition["status"].clone()))
        .collect();
    let now = Value::from(context.now.to_string());
    let is_unset = |condition: &Object, key: &str| condition.get(key).is_none_or(Value::is_null);
    if let Some(status) = get_mut(object, "status") {
        each(status, "conditions", |condition| {
            if is_unset(condition, "lastUpdateTime") {
                condition.insert("lastUpdateTime".to_owned(), now.clone());
            }
            let own = (condition.get("type"), condition.get("status"));
            let is_same = known
                .iter()
                .any(|(kind, status)| own == (Some(kind), Some(status)));
            if is_unset(condition, "lastTransitionTime") && !is_same {
                condition.insert("lastTransitionTime".to_owned(), now.clone());
            }
        });
    }
}

fn request_row(object: &Value, common: &Common<'_>) -> Row {
    let mut status = if read::condition(object, "Denied").is_some() {
        String::from("Denied")
    } else if read::condition(object, "Approved").is_some() {
        String::from("Approved")
    } else {
        String::from("Pending")
    };
    if read::condition(object, "Failed").is_some() {
        status.push_str(",Failed");
    }
    if !read::text(object, "/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    let wanted = object
        .pointer("/spec/expirationSeconds")
        .and_then(Value::as_i64);
    Row::of(vec![
        cell(common.name),
        cell(common.age.as_str()),
        cell(read::text_or(object, "/spec/signerName", "<none>")),
        cell(read::text(object, "/spec/username")),
        cell(wanted.map_or_else(|| String::from("<none>"), human_duration)),
        cell(status),
    ])
}
