//! CertificateSigningRequests.

use crate::at::At;
use crate::builtin::certificates::signer_name;
use crate::cells::{Common, Row, cell, human_duration, read};
use crate::checks::take_over;
use crate::kind::{
    CHANGE, Context, FieldSelector, Kind, NAME, Resource, Written, cluster, select, sub,
};
use crate::object::{Object, at_mut, each, get, get_mut, list, open, with};
use lockgate_api::field::{FieldErrors, Path, Shown};
use lockgate_api::meta::validation::NameRules;
use lockgate_api::meta::validation::validate_metadata;
use lockgate_go::base64;
use serde_json::{Value, json};
use std::collections::BTreeSet;

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
    fn validate_metadata(&self, new: &Written<'_>) -> FieldErrors {
        // Any name will do.
        let any = NameRules {
            name: |_| Vec::new(),
            prefix: |_| Vec::new(),
        };
        let mut errors = validate_metadata(&new.metadata, any, &Path::root("metadata"));
        self.validate_finalizers(&mut errors, new);
        errors
    }

    fn validate_update(
        &self,
        _subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata(new);
        self.validate(&mut errors, new, Some(old), context);
        errors.extend(self.validate_metadata_update(new, old));
        errors
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        signing_request(errors, new.object(), old.map(Written::object));
    }

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

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// UPSTREAM: pkg/apis/certificates/validation/validation.go. The request itself is not parsed.
fn signing_request(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let at = At::root(object, "spec");
    let request = at.at("request");
    let decoded = base64::decode(request.text()).unwrap_or_default();
    let is_request =
        String::from_utf8_lossy(&decoded).contains("-----BEGIN CERTIFICATE REQUEST-----");
    if !is_request {
        request.invalid_or_null(errors, "PEM block type must be CERTIFICATE REQUEST");
    }
    let usages = at.at("usages");
    usages.must_be_set(errors);
    let former = old.map(|old| At::root(old, "spec"));
    let had_unknown = former.is_some_and(|old| {
        old.at("usages")
            .texts()
            .any(|usage| !USAGES.contains(&usage))
    });
    if !had_unknown {
        for usage in usages.items() {
            usage.known(errors, &USAGES);
        }
    }
    let mut seen = BTreeSet::new();
    for usage in usages.items() {
        if !seen.insert(usage.text()) {
            usage.duplicate(errors);
        }
    }
    let signer = at.at("signerName");
    if signer.text() == "kubernetes.io/legacy-unknown" {
        let detail = "the legacy signerName is not allowed via this API version";
        signer.invalid(errors, detail);
    } else {
        signer_name(errors, &signer);
    }
    let expiration = at.at("expirationSeconds");
    if expiration.is_set() && expiration.int() < 600 {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        expiration.invalid_int(errors, detail);
    }
    conditions(errors, object);
}

fn conditions(errors: &mut FieldErrors, object: &Object) {
    let status = At::root(object, "status");
    let all = status.at("conditions");
    let (mut seen, mut decided) = (BTreeSet::new(), "");
    for condition in all.items() {
        let kind = condition.at("type");
        kind.must_be_set(errors);
        let values: &[&str] = match kind.text() {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        condition.at("status").one_of(errors, values);
        if let "Approved" | "Denied" = kind.text() {
            if !decided.is_empty() && decided != kind.text() {
                all.invalid_as(
                    errors,
                    Shown::Named(kind.text()),
                    "Approved and Denied conditions are mutually exclusive",
                );
            }
            decided = kind.text();
        }
        if !seen.insert(kind.text()) {
            kind.duplicate(errors);
        }
    }
}
