//! Deployments and ReplicaSets.

use crate::at::At;
use crate::builtin::core::pod::disabled::drop_from_template;
use crate::builtin::core::pod::warnings::of_template;
use crate::builtin::core::pod::{template, template_defaults};
use crate::builtin::template::{
    TEMPLATE, at_most_all, collisions, containers, controller_template, int_or_percent,
    int_or_percent_value, name_warning, ready, replica_counts, replicas_row, rolling_update,
};
use crate::cells::{Common, Row, cell, read};
use crate::checks::copy_field;
use crate::kind::{
    CHANGE, Context, Generation, Kind, Resource, SCALE, SPEC, Written, namespaced, sub,
};
use crate::object::{Object, fill, get, get_mut, open, text, with};
use lockgate_api::field::{FieldError, FieldErrors, Shown};
use lockgate_go::json::to_string;
use serde_json::{Value, json};

pub(super) const DEPLOYMENTS: Resource = namespaced(
    "apps",
    "v1",
    "deployments",
    "deployment",
    "Deployment",
    "DeploymentList",
    &Deployment,
)
.short(&["deploy"])
.categories(&["all"])
.subresources(&[SCALE, sub("status", "apps", "v1", "Deployment", CHANGE)])
.generation(Generation::Members(&["spec", "metadata.annotations"]));

pub(super) const REPLICA_SETS: Resource = namespaced(
    "apps",
    "v1",
    "replicasets",
    "replicaset",
    "ReplicaSet",
    "ReplicaSetList",
    &ReplicaSet,
)
.short(&["rs"])
.categories(&["all"])
.subresources(&[SCALE, sub("status", "apps", "v1", "ReplicaSet", CHANGE)])
.generation(SPEC);

/// The kind `Deployment`.
#[derive(Debug)]
pub(super) struct Deployment;

impl Kind for Deployment {
    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        match subresource {
            "" => &[&["status"]],
            "status" => &[&["metadata", "labels"], &["spec"]],
            _ => &[],
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
        of_template(&At::root(new.object(), "spec").at("template"))
    }

    fn validate_status(&self, errors: &mut FieldErrors, new: &Written<'_>, old: &Written<'_>) {
        let at = At::root(new.object(), "status");
        replica_counts(
            errors,
            &at,
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ],
            &["updatedReplicas", "readyReplicas", "availableReplicas"],
            "readyReplicas",
        );
        collisions(errors, &at, &At::root(old.object(), "status"));
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, deployment_defaults);
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
        // A status update does not change labels.
        if let ("status", Some(old)) = (subresource, old.get("metadata").and_then(Value::as_object))
        {
            with(value, |object| {
                if let Some(metadata) = open(object, "metadata") {
                    copy_field(metadata, old, "labels");
                }
            });
        }
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        deployment(errors, new.object(), old.map(Written::object));
    }

    fn columns(&self) -> &'static str {
        "Name|Ready|Up-to-date|Available|Age|+Containers|+Images|+Selector"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        deployment_row(object, common)
    }
}

/// The kind `ReplicaSet`.
#[derive(Debug)]
pub(super) struct ReplicaSet;

impl Kind for ReplicaSet {
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
        of_template(&At::root(new.object(), "spec").at("template"))
    }

    fn validate_status(&self, errors: &mut FieldErrors, new: &Written<'_>, _old: &Written<'_>) {
        let at = At::root(new.object(), "status");
        replica_counts(
            errors,
            &at,
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "terminatingReplicas",
                "observedGeneration",
            ],
            &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
            "readyReplicas",
        );
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, replica_set_defaults);
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        replica_set(errors, new.object(), old.map(Written::object));
    }

    fn columns(&self) -> &'static str {
        "Name|Desired:integer|Current:integer|Ready:integer|Age|+Containers|+Images|+Selector"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        replicas_row(object, common)
    }
}

fn deployment_defaults(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        fill(spec, "replicas", 1);
        rolling_update(spec, "strategy", json!("25%"), json!("25%"));
        fill(spec, "revisionHistoryLimit", 10);
        fill(spec, "progressDeadlineSeconds", 600);
        template_defaults(spec, "template");
    }
    roll_back_annotation(object);
}

/// Round-trips `rollbackTo`, a field of earlier versions, through an annotation; an empty one is removed.
fn roll_back_annotation(object: &mut Object) {
    let Some(metadata) = get_mut(object, "metadata") else {
        return;
    };
    let name = "deprecated.deployment.rollback.to";
    if let Some(annotations) = get_mut(metadata, "annotations") {
        match text(annotations, name) {
            "" => {
                annotations.remove(name);
            }
            revision => {
                if let Ok(revision) = revision.parse::<i64>() {
                    annotations.insert(name.to_owned(), Value::String(revision.to_string()));
                }
            }
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

fn replica_set_defaults(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        fill(spec, "replicas", 1);
        template_defaults(spec, "template");
    }
}

fn deployment_row(object: &Value, common: &Common<'_>) -> Row {
    let [names, images] = containers(object, TEMPLATE);
    let selector =
        read::selector(object, "/spec/selector").unwrap_or_else(|()| String::from("<invalid>"));
    Row::of(vec![
        cell(common.name),
        ready(object),
        cell(read::integer(object, "/status/updatedReplicas")),
        cell(read::integer(object, "/status/availableReplicas")),
        cell(common.age.as_str()),
        names,
        images,
        cell(selector),
    ])
}

fn deployment(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let at = At::root(object, "spec");
    at.at("replicas").non_negative(errors);
    let old_template = old
        .and_then(|old| get(old, "spec"))
        .and_then(|spec| get(spec, "template"));
    controller_template(
        errors,
        &at,
        &at.at("template"),
        "ReplicaSet",
        |errors, at| {
            template(errors, at, old_template);
        },
    );
    strategy(errors, &at.at("strategy"));
    for key in ["minReadySeconds", "revisionHistoryLimit"] {
        at.at(key).non_negative(errors);
    }
    let deadline = at.at("progressDeadlineSeconds");
    if deadline.is_set() {
        deadline.non_negative(errors);
        if deadline.int() <= at.at("minReadySeconds").int() {
            deadline.invalid_int(errors, "must be greater than minReadySeconds");
        }
    }
    if let Some(old) = old {
        At::root(object, "spec")
            .at("selector")
            .immutable_selector(errors, &At::root(old, "spec").at("selector"));
    }
}

fn strategy(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let rolling = at.at("rollingUpdate");
    match at.at("type").text() {
        "Recreate" => {
            if rolling.is_set() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                rolling.forbidden(errors, detail);
            }
        }
        "RollingUpdate" if rolling.is_set() => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            int_or_percent(errors, &unavailable);
            int_or_percent(errors, &surge);
            if int_or_percent_value(&unavailable) == 0 && int_or_percent_value(&surge) == 0 {
                unavailable.invalid(errors, "may not be 0 when `maxSurge` is 0");
            }
            at_most_all(errors, &unavailable);
        }
        "RollingUpdate" => {
            rolling.required_because(errors, "this should be defaulted and never be nil");
        }
        kind => {
            // Upstream prints its internal type, whose fields have no JSON names.
            let shown = format!(
                "{{\"Type\":{},\"RollingUpdate\":{}}}",
                Shown::Named(kind),
                internal_rolling(&rolling)
            );
            errors.push(FieldError::not_supported(
                &at.path,
                Shown::Rendered(&shown),
                &["Recreate", "RollingUpdate"],
            ));
        }
    }
}

/// A rolling update as upstream's internal type.
pub(super) fn internal_rolling(rolling: &At<'_, '_>) -> String {
    if !rolling.is_set() {
        return String::from("null");
    }
    let member = |key: &str| {
        rolling
            .at(key)
            .value
            .map_or_else(|| String::from("0"), to_string)
    };
    format!(
        "{{\"MaxUnavailable\":{},\"MaxSurge\":{}}}",
        member("maxUnavailable"),
        member("maxSurge")
    )
}

fn replica_set(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let at = At::root(object, "spec");
    at.at("replicas").non_negative(errors);
    at.at("minReadySeconds").non_negative(errors);
    let old_template = old
        .and_then(|old| get(old, "spec"))
        .and_then(|spec| get(spec, "template"));
    controller_template(
        errors,
        &at,
        &at.at("template"),
        "ReplicaSet",
        |errors, at| {
            template(errors, at, old_template);
        },
    );
    if let Some(old) = old {
        At::root(object, "spec")
            .at("selector")
            .immutable_selector(errors, &At::root(old, "spec").at("selector"));
    }
}
