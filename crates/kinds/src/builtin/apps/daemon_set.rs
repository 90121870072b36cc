//! DaemonSets.

use crate::builtin::core::pod::{template, template_defaults};
use crate::builtin::template::{
    NO_MATCH, TEMPLATE, always_restarts, containers, rolling_update, selects_everything,
};
use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::{
    immutable_selector, invalid_json, invalid_selector, non_negative, selector, template_labels,
};
use crate::equality::semantically_equal;
use crate::kind::{CHANGE, Context, Kind, Resource, SPEC, Written, namespaced, sub};
use crate::object::{Object, fill, get, get_mut, has, open, text, with};
use crate::typed::type_of;
use lockgate_api::field::{FieldErrors, Path};
use serde_json::{Value, json};

pub(super) const DAEMON_SETS: Resource = namespaced(
    "apps",
    "v1",
    "daemonsets",
    "daemonset",
    "DaemonSet",
    "DaemonSetList",
    &DaemonSet,
)
.short(&["ds"])
.categories(&["all"])
.subresources(&[sub("status", "apps", "v1", "DaemonSet", CHANGE)])
.generation(SPEC);

/// The kind `DaemonSet`.
#[derive(Debug)]
pub(super) struct DaemonSet;

impl Kind for DaemonSet {
    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        with(value, |object| {
            let generation = template_generation(object).max(1);
            set_template_generation(object, generation);
        });
    }

    fn prepare_update(
        &self,
        subresource: &str,
        value: &mut Value,
        old: &Value,
        _context: &Context<'_>,
    ) {
        if let (true, Some(old)) = (subresource.is_empty(), old.as_object()) {
            with(value, |object| raise_template_generation(object, old));
        }
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        if let Some(old) = old {
            immutable_selector(errors, new.object(), old.object());
        }
        daemon_set(errors, new.object());
    }

    fn columns(&self) -> &'static str {
        "Name|Desired:integer|Current:integer|Ready:integer|Up-to-date:integer|Available:integer|Node Selector|Age|+Containers|+Images|+Selector"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        daemon_set_row(object, common)
    }
}

fn defaults(object: &mut Object) {
    if let Some(spec) = get_mut(object, "spec") {
        rolling_update(spec, "updateStrategy", json!(1), json!(0));
        fill(spec, "revisionHistoryLimit", 10);
        template_defaults(spec, "template");
    }
    // A field of former versions that lives on in an annotation.
    let name = "deprecated.daemonset.template.generation";
    if let Some(metadata) = open(object, "metadata")
        && let Some(annotations) = open(metadata, "annotations")
    {
        let generation = text(annotations, name).parse::<i64>().unwrap_or_default();
        annotations.insert(name.to_owned(), Value::String(generation.to_string()));
    }
}

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(object: &Object) -> i64 {
    get(object, "metadata")
        .and_then(|metadata| get(metadata, "annotations"))
        .and_then(|annotations| text(annotations, TEMPLATE_GENERATION).parse().ok())
        .unwrap_or_default()
}

fn set_template_generation(object: &mut Object, generation: i64) {
    if let Some(metadata) = open(object, "metadata")
        && let Some(annotations) = open(metadata, "annotations")
    {
        annotations.insert(
            TEMPLATE_GENERATION.to_owned(),
            Value::from(generation.to_string()),
        );
    }
}

fn raise_template_generation(object: &mut Object, old: &Object) {
    let member = |object: &Object, key: &str| {
        get(object, "spec")
            .and_then(|spec| spec.get(key))
            .cloned()
            .unwrap_or_default()
    };
    let changed = type_of("apps", "v1", "DaemonSet")
        .and_then(|ty| ty.field("spec")?.ty().field("template"))
        .is_some_and(|field| {
            let (new, old) = (member(object, "template"), member(old, "template"));
            !semantically_equal(field.ty(), &new, &old)
        });
    set_template_generation(object, template_generation(old) + i64::from(changed));
}

fn daemon_set(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    let compiled = selector(errors, spec, &path);
    let template_path = path.child("template");
    let (shown, labels) = template_labels(spec);
    // No selector at all selects nothing; a broken one has been told of.
    let selects = match compiled {
        Some(selector) => selector.matches(&labels),
        None => has(spec, "selector"),
    };
    if !selects {
        let metadata = template_path.child("metadata");
        invalid_json(errors, &metadata.child("labels"), shown, NO_MATCH);
    }
    if selects_everything(spec) {
        let detail = "empty selector is invalid for daemonset";
        invalid_selector(
            errors,
            &path.child("selector"),
            spec.get("selector"),
            detail,
        );
    }
    template(errors, spec, &template_path);
    always_restarts(errors, spec, &template_path, "DaemonSet");
    non_negative(errors, spec, "minReadySeconds", &path);
    non_negative(errors, spec, "revisionHistoryLimit", &path);
}

fn daemon_set_row(object: &Value, common: &Common<'_>) -> Row {
    let [names, images] = containers(object, TEMPLATE);
    Row::of(vec![
        cell(common.name),
        cell(read::integer(object, "/status/desiredNumberScheduled")),
        cell(read::integer(object, "/status/currentNumberScheduled")),
        cell(read::integer(object, "/status/numberReady")),
        cell(read::integer(object, "/status/updatedNumberScheduled")),
        cell(read::integer(object, "/status/numberAvailable")),
        cell(read::labels(object, "/spec/template/spec/nodeSelector")),
        cell(common.age.as_str()),
        names,
        images,
        cell(read::shown_selector(object, "/spec/selector")),
    ])
}
