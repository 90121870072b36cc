//! ReplicationControllers.

use crate::at::At;
use crate::builtin::core::pod::disabled::drop_from_template;
use crate::builtin::core::pod::warnings::of_template;
use crate::builtin::core::pod::{labels_default, template, template_defaults};
use crate::builtin::template::{
    always_restarts, labels_do_not_match, labels_of, name_warning, replica_counts, replicas_row,
};
use crate::cells::{Common, Row};
use crate::checks::LONG_NAMES;
use crate::kind::{
    CHANGE, Context, Deletion, FieldSelector, Kind, NAME, NAMESPACE, Resource, SCALE, SPEC,
    Written, namespaced, number_selector, sub,
};
use crate::object::{Object, at_mut, fill, get, get_mut, is_empty, with};
use lockgate_api::field::FieldErrors;
use lockgate_api::meta::validation::NameRules;
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
.in_etcd_as("controllers")
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
    fn name_rules(&self) -> NameRules {
        LONG_NAMES
    }

    fn validate_status(&self, errors: &mut FieldErrors, new: &Written<'_>, _old: &Written<'_>) {
        replica_counts(
            errors,
            &At::root(new.object(), "status"),
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
            ],
            &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
            "readyReplicas",
        );
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        if subresource.is_empty() {
            with(value, |object| {
                drop_from_template(object, old.as_object(), &["spec", "template"])
            });
        }
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        with(value, |object| {
            drop_from_template(object, None, &["spec", "template"])
        });
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        let spec = At::root(new.object(), "spec");
        let mut warnings = name_warning(&new.metadata.name);
        warnings.extend(of_template(&spec.at("template")));
        warnings
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        old: &Written<'_>,
        _context: &Context<'_>,
    ) -> Vec<String> {
        if new.metadata.generation == old.metadata.generation {
            return Vec::new();
        }
        // UPSTREAM: pkg/registry/core/replicationcontroller/strategy.go swaps the old and the new template.
        of_template(&At::root(old.object(), "spec").at("template"))
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        replication_controller(errors, new.object(), old.map(Written::object));
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

/// Defaults selector and labels to the labels of the template.
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

fn replication_controller(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let at = At::root(object, "spec");
    at.at("minReadySeconds").non_negative(errors);
    let selector = at.at("selector");
    selector.must_be_set(errors);
    if at.at("replicas").is_set() {
        at.at("replicas").non_negative(errors);
    } else {
        at.at("replicas").required(errors);
    }
    let template_at = at.at("template");
    if !template_at.is_set() {
        return template_at.required(errors);
    }
    let labels = labels_of(&template_at);
    let mut pairs = selector.object().into_iter().flatten();
    if !pairs.all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str()) {
        labels_do_not_match(errors, &template_at);
    }
    let old_template = old
        .and_then(|old| get(old, "spec"))
        .and_then(|spec| get(spec, "template"));
    template(errors, &template_at, old_template);
    always_restarts(errors, &template_at, "ReplicationController");
}
