//! Definitions in protected groups of the Kubernetes community require an annotation with the URL of their approval.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apihelpers/helpers.go

use serde_json::Value as Json;

use lockgate_api::field::FieldError;
use lockgate_go::quote::quote;
use lockgate_go::url::Url;

use crate::structural::error;

const ANNOTATION: &str = "api-approved.kubernetes.io";

/// Returns true if a group is protected, such as `*.k8s.io`.
pub(in crate::crd) fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].into_iter().any(|domain| {
        let prefix = group.strip_suffix(domain);
        prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('.'))
    })
}

/// The value of the annotation `api-approved.kubernetes.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::crd) enum Approval {
    Invalid,
    Approved,
    Bypassed,
    Missing,
}

fn annotation(definition: &Json) -> &str {
    let annotations = definition.pointer("/metadata/annotations");
    let annotation = annotations.and_then(|annotations| annotations.get(ANNOTATION));
    annotation.and_then(Json::as_str).unwrap_or_default()
}

/// The approval of a definition, with a reason.
pub(in crate::crd) fn approval(definition: &Json) -> (Approval, String) {
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let text = annotation(definition);
    let is_url = || {
        Url::parse_request_uri(text)
            .is_ok_and(|url| !url.host().is_empty() && !url.scheme().is_empty())
    };
    if text.is_empty() {
        let name = quote(ANNOTATION);
        let reason = format!("protected groups must have approval annotation {name}, {SEE}");
        (Approval::Missing, reason)
    } else if text.starts_with("unapproved") {
        (Approval::Bypassed, format!("not approved: {}", quote(text)))
    } else if is_url() {
        (Approval::Approved, format!("approved in {text}"))
    } else {
        let name = quote(ANNOTATION);
        let reason = format!(
            "protected groups must have approval annotation {name} with either a URL or a reason \
             starting with \"unapproved\", {SEE}"
        );
        (Approval::Invalid, reason)
    }
}

/// Rejects a definition without approval, unless the old one had none.
pub(super) fn validate(definition: &Json, old: Option<&Json>) -> Option<FieldError> {
    let group = definition.pointer("/spec/group").and_then(Json::as_str);
    if !is_protected(group.unwrap_or_default()) {
        return None;
    }
    let (found, reason) = approval(definition);
    if old.is_some_and(|old| approval(old).0 == found) {
        return None;
    }
    let place = format!("metadata.annotations[{ANNOTATION}]");
    match found {
        Approval::Approved | Approval::Bypassed => None,
        Approval::Missing => Some(error::required(&place, reason)),
        Approval::Invalid => Some(error::invalid_text(&place, annotation(definition), reason)),
    }
}
