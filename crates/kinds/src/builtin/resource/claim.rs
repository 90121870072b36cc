//! ResourceClaims and ResourceClaimTemplates.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::kind::{CHANGE, Deletion, Kind, Resource, namespaced, sub};
use crate::object::{Object, at_mut, each, fill_number, fill_text, get_mut, text, with};
use serde_json::Value;

pub(super) const RESOURCE_CLAIMS: Resource = namespaced(
    "resource.k8s.io",
    "v1",
    "resourceclaims",
    "resourceclaim",
    "ResourceClaim",
    "ResourceClaimList",
    &ResourceClaim,
)
.subresources(&[sub(
    "status",
    "resource.k8s.io",
    "v1",
    "ResourceClaim",
    CHANGE,
)]);

pub(super) const RESOURCE_CLAIM_TEMPLATES: Resource = namespaced(
    "resource.k8s.io",
    "v1",
    "resourceclaimtemplates",
    "resourceclaimtemplate",
    "ResourceClaimTemplate",
    "ResourceClaimTemplateList",
    &ResourceClaimTemplate,
);

/// The kind `ResourceClaim`.
#[derive(Debug)]
pub(super) struct ResourceClaim;

impl Kind for ResourceClaim {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, claim_defaults);
    }

    fn resets_metadata_on_status_update(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static str {
        "Name|State|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        claim_row(object, common)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

/// The kind `ResourceClaimTemplate`.
#[derive(Debug)]
pub(super) struct ResourceClaimTemplate;

impl Kind for ResourceClaimTemplate {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, template_defaults);
    }

    fn columns(&self) -> &'static str {
        "Name|Age"
    }

    fn row(&self, _object: &Value, common: &Common<'_>) -> Row {
        Row::plain(common, [])
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().returning_object()
    }
}

fn claim_defaults(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        claim_spec(spec);
    }
    if let Some(devices) = at_mut(object, &["status", "allocation", "devices"]) {
        each(devices, "results", tolerations);
    }
}

fn template_defaults(object: &mut Object) {
    if let Some(spec) = at_mut(object, &["spec", "spec"]) {
        claim_spec(spec);
    }
}

fn claim_spec(spec: &mut Object) {
    let Some(devices) = get_mut(spec, "devices") else {
        return;
    };
    each(devices, "requests", |request| {
        if let Some(exactly) = get_mut(request, "exactly") {
            device_request(exactly);
        }
        each(request, "firstAvailable", device_request);
    });
}

fn device_request(request: &mut Object) {
    const EXACT: &str = "ExactCount";
    fill_text(request, "allocationMode", EXACT);
    if text(request, "allocationMode") == EXACT {
        fill_number(request, "count", 1);
    }
    tolerations(request);
}

fn tolerations(holder: &mut Object) {
    each(holder, "tolerations", |toleration| {
        fill_text(toleration, "operator", "Equal");
    });
}

fn claim_row(object: &Value, common: &Common<'_>) -> Row {
    let is_allocated = object
        .pointer("/status/allocation")
        .is_some_and(Value::is_object);
    let mut states = Vec::new();
    if read::is_deleted(object) {
        states.push("deleted");
    } else if !is_allocated {
        states.push("pending");
    }
    if is_allocated {
        states.push("allocated");
        if !read::items(object, "/status/reservedFor").is_empty() {
            states.push("reserved");
        }
    }
    Row::of(vec![
        cell(common.name),
        cell(states.join(",")),
        cell(common.age.as_str()),
    ])
}
