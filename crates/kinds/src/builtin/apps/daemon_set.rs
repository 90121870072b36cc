//! DaemonSets.

use crate::at::At;
use crate::builtin::apps::deployment::internal_rolling;
use crate::builtin::core::pod::disabled::drop_from_template;
use crate::builtin::core::pod::warnings::of_template;
use crate::builtin::core::pod::{template, template_defaults};
use crate::builtin::template::{
    TEMPLATE, always_restarts, at_most_all, collisions, compiled, containers, int_or_percent,
    int_or_percent_value, labels_do_not_match, labels_of, rolling_update, selects_everything,
};
use crate::cells::{Common, Row, cell, read};
use crate::checks::invalid_selector;
use crate::equality::semantically_equal;
use crate::kind::{CHANGE, Context, Kind, Resource, SPEC, Written, namespaced, sub};
use crate::object::{Object, fill, get, get_mut, open, text, with};
use crate::typed::type_of;
use lockgate_api::field::{FieldError, FieldErrors, Shown};
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
    fn validate_status(&self, errors: &mut FieldErrors, new: &Written<'_>, old: &Written<'_>) {
        let at = At::root(new.object(), "status");
        for key in [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ] {
            at.at(key).non_negative(errors);
        }
        collisions(errors, &at, &At::root(old.object(), "status"));
    }

    fn warnings_on_create(&self, new: &Written<'_>, _context: &Context<'_>) -> Vec<String> {
        let spec = At::root(new.object(), "spec");
        of_template(&spec.at("template"))
    }

    fn warnings_on_update(
        &self,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> Vec<String> {
        if new.metadata.generation == old.metadata.generation {
            return Vec::new();
        }
        self.warnings_on_create(new, context)
    }

    fn apply_defaults(&self, value: &mut Value) {
        with(value, defaults);
    }

    fn prepare_create(&self, value: &mut Value, _context: &Context<'_>) {
        with(value, |object| {
            drop_from_template(object, None, &["spec", "template"])
        });
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
        if subresource.is_empty() {
            with(value, |object| {
                drop_from_template(object, old.as_object(), &["spec", "template"])
            });
        }
        if let Some(old) = old.as_object() {
            with(value, |object| match subresource {
                "" => raise_template_generation(object, old),
                // It belongs to the spec, which a status update cannot change.
                "status" => set_template_generation(object, template_generation(old)),
                _ => {}
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
        if let Some(old) = old {
            let (at, former) = (
                At::root(new.object(), "spec"),
                At::root(old.object(), "spec"),
            );
            at.at("selector")
                .immutable_selector(errors, &former.at("selector"));
        }
        daemon_set(errors, new.object(), old.map(Written::object));
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
    // A field of earlier versions, stored in an annotation.
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

fn daemon_set(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let at = At::root(object, "spec");
    let selector = at.at("selector");
    selector.label_selector(errors);
    let template_at = at.at("template");
    // An absent selector selects nothing; an invalid one is already reported.
    let selects = match compiled(&at) {
        Some(matcher) => matcher.matches(&labels_of(&template_at)),
        None => selector.is_set(),
    };
    if !selects {
        labels_do_not_match(errors, &template_at);
    }
    if selects_everything(&at) {
        let detail = "empty selector is invalid for daemonset";
        invalid_selector(errors, &selector.path, selector.value, detail);
    }
    let old_template = old
        .and_then(|old| get(old, "spec"))
        .and_then(|spec| get(spec, "template"));
    template(errors, &template_at, old_template);
    always_restarts(errors, &template_at, "DaemonSet");
    at.at("minReadySeconds").non_negative(errors);
    update_strategy(errors, &at.at("updateStrategy"));
    at.at("revisionHistoryLimit").non_negative(errors);
}

fn update_strategy(errors: &mut FieldErrors, at: &At<'_, '_>) {
    let rolling = at.at("rollingUpdate");
    match at.at("type").text() {
        "OnDelete" => {}
        "RollingUpdate" if rolling.is_set() => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            int_or_percent(errors, &unavailable);
            int_or_percent(errors, &surge);
            at_most_all(errors, &unavailable);
            at_most_all(errors, &surge);
            match (
                int_or_percent_value(&unavailable) != 0,
                int_or_percent_value(&surge) != 0,
            ) {
                (true, true) => {
                    surge.invalid(errors, "may not be set when maxUnavailable is non-zero");
                }
                (false, false) => {
                    unavailable.required_because(errors, "cannot be 0 when maxSurge is 0");
                }
                _ => {}
            }
        }
        "RollingUpdate" => rolling.required(errors),
        kind => {
            let shown = format!(
                "{{\"Type\":{},\"RollingUpdate\":{}}}",
                Shown::Named(kind),
                internal_rolling(&rolling)
            );
            errors.push(FieldError::not_supported(
                &at.path,
                Shown::Rendered(&shown),
                &["RollingUpdate", "OnDelete"],
            ));
        }
    }
}
