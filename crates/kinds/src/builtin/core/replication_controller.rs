//! ReplicationControllers.

use super::pod::{labels_default, template, template_defaults};
use crate::builtin::template::{NO_MATCH, always_restarts, replicas_row};
use crate::cells::{Common, Row};
use crate::checks::{invalid_json, non_negative, required, template_labels};
use crate::kind::{
    CHANGE, Context, Deletion, FieldSelector, Kind, NAME, NAMESPACE, Resource, SCALE, SPEC,
    Written, namespaced, number_selector, sub,
};
use crate::object::{Object, at_mut, fill, get, get_mut, has, is_empty, with};
use lockgate_api::field::{FieldErrors, Path};
use serde_json::Value;

pub(super) const REPLICATION_CONTROLLERS: Resource = namespaced(
    "",
    "v1",
    "replicationcontrollers",
    "replicationcontroller",
    "ReplicationController",
    "ReplicationControllerList",
    &ReplicationController,
)
.short(&["rc"])
.categories(&["all"])
.subresources(&[
    SCALE,
    sub("status", "", "v1", "ReplicationController", CHANGE),
])
.generation(SPEC);

const SELECTABLE: &[FieldSelector] = &[
    NAME,
    NAMESPACE,
    number_selector("status.replicas", &["status", "replicas"]),
];

/// The kind `ReplicationController`.
#[derive(Debug)]
pub(super) struct ReplicationController;

impl Kind for ReplicationController {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        replication_controller(errors, new.object());
    }

    fn columns(&self) -> &'static str {
        "Name|Desired:integer|Current:integer|Ready:integer|Age|+Containers|+Images|+Selector"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        replicas_row(object, common)
    }

    fn field_selectors(&self) -> Option<&'static [FieldSelector]> {
        Some(SELECTABLE)
    }

    fn deletion(&self) -> Deletion {
        Deletion::default().orphaning()
    }
}

/// A replication controller: its selector and labels default to those of its template.
fn defaults(object: &mut Object) {
    let labels = at_mut(object, &["spec", "template", "metadata", "labels"]).cloned();
    if let Some(labels) = labels {
        if let Some(spec) = get_mut(object, "spec")
            && is_empty(spec, "selector")
        {
            spec.insert("selector".to_owned(), Value::Object(labels.clone()));
        }
        labels_default(object, labels);
    }
    if let Some(spec) = get_mut(object, "spec") {
        fill(spec, "replicas", 1);
        template_defaults(spec, "template");
    }
}

fn replication_controller(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    non_negative(errors, spec, "minReadySeconds", &path);
    if is_empty(spec, "selector") {
        required(errors, &path.child("selector"));
    }
    non_negative(errors, spec, "replicas", &path);
    let template_path = path.child("template");
    if !has(spec, "template") {
        return required(errors, &template_path);
    }
    let (shown, labels) = template_labels(spec);
    let selects = get(spec, "selector").is_none_or(|selector| {
        selector
            .iter()
            .all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str())
    });
    if !selects {
        let metadata = template_path.child("metadata");
        invalid_json(errors, &metadata.child("labels"), shown, NO_MATCH);
    }
    template(errors, spec, &template_path);
    always_restarts(errors, spec, &template_path, "ReplicationController");
}
