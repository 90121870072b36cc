//! Deployments and ReplicaSets.

use crate::builtin::core::pod::template_defaults;
use crate::builtin::template::{
    TEMPLATE, containers, controller_template, ready, replicas_row, rolling_update,
};
use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::{immutable_selector, non_negative, take_over};
use crate::kind::{
    CHANGE, Context, Generation, Kind, Resource, SCALE, SPEC, Written, namespaced, sub,
};
use crate::object::{Object, fill, get, get_mut, has, number, open, text, with};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
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
        // Labels belong to whoever writes the object as a whole.
        if let ("status", Some(old)) = (subresource, old.get("metadata").and_then(Value::as_object))
        {
            with(value, |object| {
                if let Some(metadata) = open(object, "metadata") {
                    take_over(metadata, old, "labels");
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
        replicas_of_template(errors, new.object(), true);
        if let Some(old) = old {
            immutable_selector(errors, new.object(), old.object());
        }
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
        replicas_of_template(errors, new.object(), false);
        if let Some(old) = old {
            immutable_selector(errors, new.object(), old.object());
        }
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

/// Whom to roll back to, a field of former versions, lives on in an annotation; an empty one goes.
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

/// Deployments and replica sets.
fn replicas_of_template(errors: &mut FieldErrors, object: &Object, is_deployment: bool) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    non_negative(errors, spec, "replicas", &path);
    if !is_deployment {
        non_negative(errors, spec, "minReadySeconds", &path);
    }
    controller_template(errors, spec, "ReplicaSet", true, &path);
    if !is_deployment {
        return;
    }
    if let Some(strategy) = get(spec, "strategy") {
        let path = path.child("strategy");
        let kind = text(strategy, "type");
        if !matches!(kind, "Recreate" | "RollingUpdate") {
            // Upstream prints its internal form, whose members have no JSON names.
            let rolling = to_string(strategy.get("rollingUpdate").unwrap_or(&Value::Null));
            let shown = format!(
                "{{\"Type\":{},\"RollingUpdate\":{rolling}}}",
                to_string(kind)
            );
            let set = &["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported(
                &path,
                Shown::Rendered(&shown),
                set,
            ));
        }
        if kind == "Recreate" && has(strategy, "rollingUpdate") {
            errors.push(FieldError::forbidden(
                &path.child("rollingUpdate"),
                "may not be specified when strategy `type` is 'Recreate'",
            ));
        }
    }
    non_negative(errors, spec, "minReadySeconds", &path);
    non_negative(errors, spec, "revisionHistoryLimit", &path);
    non_negative(errors, spec, "progressDeadlineSeconds", &path);
    let deadline = number(spec, "progressDeadlineSeconds");
    if has(spec, "progressDeadlineSeconds") && deadline <= number(spec, "minReadySeconds") {
        errors.push(FieldError::invalid(
            &path.child("progressDeadlineSeconds"),
            Shown::Integer(deadline),
            "must be greater than minReadySeconds",
        ));
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
