//! CertificateSigningRequests.

use crate::at::At;
use crate::builtin::certificates::{pkcs10, signer_name};
use crate::cells::{Common, Row, cell, human_duration, read};
use crate::checks::{copy_field, pem_types};
use crate::kind::{
    CHANGE, Context, FieldSelector, Kind, NAME, Resource, Written, cluster, select, sub,
};
use crate::object::{Object, at_mut, each, get, get_mut, list, open, text, with};
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
        // All names are valid.
        let any = NameRules {
            name: |_| Vec::new(),
            prefix: |_| Vec::new(),
        };
        let mut errors = validate_metadata(&new.metadata, any, &Path::root("metadata"));
        self.validate_finalizers(&mut errors, new);
        errors
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        match subresource {
            "" => &[&["spec"], &["status"]],
            "status" => &[&["spec"], &["status", "conditions"]],
            _ => &[&["spec"], &["status", "certificate"]],
        }
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = self.validate_metadata(new);
        self.validate(&mut errors, new, Some(old), context);
        decisions(&mut errors, new.object(), old.object(), subresource);
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
            "" => copy_field(object, old, "spec"),
            "status" => {
                for kind in ["Approved", "Denied"] {
                    keep_conditions(object, old, kind);
                }
                condition_times(object, old, context);
            }
            "approval" => {
                let conditions =
                    at_mut(object, &["status"]).and_then(|status| status.remove("conditions"));
                copy_field(object, old, "spec");
                copy_field(object, old, "status");
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

/// Sets the requester to the authenticated user.
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

/// Keeps the conditions of a type, unless one was added or removed.
fn keep_conditions(object: &mut Object, old: &Object, kind: &str) {
    let former: Vec<Value> = of_type(old, kind).into_iter().cloned().collect();
    if of_type(object, kind).len() != former.len() {
        return;
    }
    let mut former = former.into_iter();
    let conditions =
        get_mut(object, "status").and_then(|status| status.get_mut("conditions")?.as_array_mut());
    for condition in conditions.into_iter().flatten() {
        if condition["type"] == kind
            && let Some(old) = former.next()
        {
            *condition = old;
        }
    }
}

/// The conditions of a type.
fn of_type<'o>(object: &'o Object, kind: &str) -> Vec<&'o Value> {
    let status = get(object, "status");
    let conditions = status.map_or(&[][..], |status| list(status, "conditions"));
    let is_of_type = |condition: &&Value| condition["type"] == kind;
    conditions.iter().filter(is_of_type).collect()
}

/// Approval and certificate change through their subresources only.
fn decisions(errors: &mut FieldErrors, new: &Object, old: &Object, subresource: &str) {
    let status = At::root(new, "status");
    let conditions = status.at("conditions");
    for kind in ["Approved", "Denied", "Failed"] {
        if of_type(new, kind).len() < of_type(old, kind).len() {
            let quoted = lockgate_go::quote::quote(kind);
            let detail = format!("updates may not remove a condition of type {quoted}");
            conditions.forbidden(errors, detail);
        }
    }
    if subresource != "approval" {
        for kind in ["Approved", "Denied"] {
            let (now, before) = (of_type(new, kind), of_type(old, kind));
            let quoted = lockgate_go::quote::quote(kind);
            if now.len() > before.len() {
                let detail = format!("updates may not add a condition of type {quoted}");
                conditions.forbidden(errors, detail);
            } else if now.len() == before.len() && now != before {
                let detail = format!("updates may not modify a condition of type {quoted}\n");
                conditions.forbidden(errors, detail);
            }
        }
    }
    let certificate = status.at("certificate");
    let former = get(old, "status").map_or("", |status| text(status, "certificate"));
    if certificate.text() != former {
        if subresource != "status" {
            certificate.forbidden(errors, "updates may not set certificate content");
        } else if !former.is_empty() {
            let detail = "updates may not modify existing certificate content";
            certificate.forbidden(errors, detail);
        }
    }
}

/// Sets the update and transition times of conditions.
fn condition_times(object: &mut Object, old: &Object, context: &Context<'_>) {
    let known = get(old, "status").map_or(&[][..], |status| list(status, "conditions"));
    let now = Value::from(context.now.to_string());
    let is_unset = |condition: &Object, key: &str| condition.get(key).is_none_or(Value::is_null);
    if let Some(status) = get_mut(object, "status") {
        each(status, "conditions", |condition| {
            if is_unset(condition, "lastUpdateTime") {
                condition.insert("lastUpdateTime".to_owned(), now.clone());
            }
            if is_unset(condition, "lastTransitionTime") {
                let former = known.iter().filter_map(Value::as_object).find(|former| {
                    let same = |key: &str| former.get(key) == condition.get(key);
                    same("type") && same("status") && !is_unset(former, "lastTransitionTime")
                });
                let changed = former.and_then(|former| former.get("lastTransitionTime"));
                let changed = changed.unwrap_or(&now).clone();
                condition.insert("lastTransitionTime".to_owned(), changed);
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

/// UPSTREAM: pkg/apis/certificates/validation/validation.go
fn signing_request(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let at = At::root(object, "spec");
    let request = at.at("request");
    let decoded = base64::decode(request.text()).unwrap_or_default();
    if let Err(message) = pkcs10::check(&decoded) {
        request.invalid_or_null(errors, message);
    }
    let usages = at.at("usages");
    usages.must_be_set(errors);
    let former = old.map(|old| At::root(old, "spec"));
    let of_old = former.as_ref().map(|old| old.at("usages"));
    let had_unknown = of_old
        .as_ref()
        .is_some_and(|old| old.texts().any(|usage| !USAGES.contains(&usage)));
    let had_twice = of_old.as_ref().is_some_and(|old| {
        let mut seen = BTreeSet::new();
        !old.texts().all(|usage| seen.insert(usage))
    });
    if !had_unknown {
        for usage in usages.items() {
            usage.known(errors, &USAGES);
        }
    }
    let mut seen = BTreeSet::new();
    for usage in usages.items() {
        if !seen.insert(usage.text()) && !had_twice {
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
    conditions(errors, object, old);
    certificate(errors, object, old);
}

/// Validates the certificate, a chain of PEM blocks; a stored invalid one is accepted.
fn certificate(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let problem = |object: &Object| {
        let status = At::root(object, "status");
        let decoded = base64::decode(status.at("certificate").text()).unwrap_or_default();
        if decoded.is_empty() {
            return None;
        }
        let types = pem_types(&decoded);
        match types.iter().find(|kind| *kind != "CERTIFICATE") {
            Some(kind) => {
                let quoted = lockgate_go::quote::quote(kind);
                Some(format!(
                    "only CERTIFICATE PEM blocks are allowed, found {quoted}"
                ))
            }
            None if types.is_empty() => Some(String::from(
                "must contain at least one CERTIFICATE PEM block",
            )),
            None => None,
        }
    };
    if old.is_some_and(|old| problem(old).is_some()) {
        return;
    }
    if let Some(problem) = problem(object) {
        let status = At::root(object, "status");
        let shown = Shown::Text("<certificate data>");
        status.at("certificate").invalid_as(errors, shown, problem);
    }
}

fn conditions(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let status = At::root(object, "status");
    let all = status.at("conditions");
    // A stored invalid value is accepted.
    let empty = Object::new();
    let former = old.unwrap_or(&empty);
    let had_empty = !of_type(former, "").is_empty();
    let had_both = !of_type(former, "Approved").is_empty() && !of_type(former, "Denied").is_empty();
    let former = At::root(former, "status");
    let former = former.at("conditions");
    let kinds: BTreeSet<&str> = former.items().map(|old| old.at("type").text()).collect();
    let had_duplicates = kinds.len() < former.len();
    let (mut seen, mut decided) = (BTreeSet::new(), "");
    for condition in all.items() {
        let kind = condition.at("type");
        if !had_empty {
            kind.must_be_set(errors);
        }
        let values: &[&str] = match kind.text() {
            "Approved" | "Denied" | "Failed" => &["True"],
            _ => &["False", "True", "Unknown"],
        };
        condition.at("status").one_of(errors, values);
        if let "Approved" | "Denied" = kind.text() {
            if !had_both && !decided.is_empty() && decided != kind.text() {
                all.invalid_as(
                    errors,
                    Shown::Named(kind.text()),
                    "Approved and Denied conditions are mutually exclusive",
                );
            }
            decided = kind.text();
        }
        if !seen.insert(kind.text()) && !had_duplicates {
            kind.duplicate(errors);
        }
    }
}
