//! PodDisruptionBudgets.

use crate::at::At;
use crate::builtin::template::{at_most_all, int_or_percent};
use crate::cells::{Common, Row, cell, read};
use crate::checks::wire;
use crate::kind::{CHANGE, Context, Finalizers, Kind, Resource, SPEC, Written, namespaced, sub};
use crate::object::Object;
use lockgate_api::field::{FieldErrors, Shown};
use lockgate_api::meta::label_selector::{ExpressionValues, LabelSelector};
use lockgate_api::meta::validation::{NameRules, PATH_SEGMENT_NAMES};
use lockgate_go::json::to_string;
use serde_json::Value;

pub(super) const POD_DISRUPTION_BUDGETS: Resource = namespaced(
    "policy",
    "v1",
    "poddisruptionbudgets",
    "poddisruptionbudget",
    "PodDisruptionBudget",
    "PodDisruptionBudgetList",
    &PodDisruptionBudget,
)
.short(&["pdb"])
.subresources(&[sub("status", "policy", "v1", "PodDisruptionBudget", CHANGE)])
.conditional_update()
.generation(SPEC);

/// The kind `PodDisruptionBudget`.
#[derive(Debug)]
pub(super) struct PodDisruptionBudget;

impl Kind for PodDisruptionBudget {
    fn validate_create(&self, new: &Written<'_>, context: &Context<'_>) -> FieldErrors {
        // Only the generic metadata validation applies.
        let mut errors = FieldErrors::new();
        self.validate(&mut errors, new, None, context);
        errors
    }

    fn validate_update(
        &self,
        subresource: &str,
        new: &Written<'_>,
        old: &Written<'_>,
        context: &Context<'_>,
    ) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if subresource.is_empty() {
            self.validate(&mut errors, new, Some(old), context);
        } else {
            let status = At::root(new.object(), "status");
            status.at("conditions").conditions(&mut errors);
            for key in [
                "disruptionsAllowed",
                "currentHealthy",
                "desiredHealthy",
                "expectedPods",
            ] {
                status.at(key).non_negative(&mut errors);
            }
        }
        errors
    }

    fn name_rules(&self) -> NameRules {
        PATH_SEGMENT_NAMES
    }

    fn finalizers(&self) -> Finalizers {
        Finalizers::Any
    }

    fn validate(
        &self,
        errors: &mut FieldErrors,
        new: &Written<'_>,
        old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        disruption_budget(errors, new.object(), old.map(Written::object));
    }

    fn columns(&self) -> &'static str {
        "Name|Min Available|Max Unavailable|Allowed Disruptions:integer|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        budget_row(object, common)
    }
}

fn budget_row(object: &Value, common: &Common<'_>) -> Row {
    let amount = |pointer: &str| match object.pointer(pointer) {
        Some(Value::String(text)) => cell(text.as_str()),
        Some(Value::Number(number)) => cell(number.to_string()),
        _ => cell("N/A"),
    };
    Row::of(vec![
        cell(common.name),
        amount("/spec/minAvailable"),
        amount("/spec/maxUnavailable"),
        cell(read::integer(object, "/status/disruptionsAllowed")),
        cell(common.age.as_str()),
    ])
}

fn disruption_budget(errors: &mut FieldErrors, object: &Object, old: Option<&Object>) {
    let at = At::root(object, "spec");
    let (least, most) = (at.at("minAvailable"), at.at("maxUnavailable"));
    if least.is_set() && most.is_set() {
        // Upstream prints its internal type, whose fields have no JSON names.
        let selector = at.at("selector").value.map(wire::<LabelSelector>);
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\
             \"UnhealthyPodEvictionPolicy\":{}}}",
            least.value.map_or_else(String::new, to_string),
            selector.map_or_else(|| String::from("null"), |selector| to_string(&selector)),
            most.value.map_or_else(String::new, to_string),
            at.at("unhealthyPodEvictionPolicy")
                .value
                .map_or_else(|| String::from("null"), to_string),
        );
        let detail = "minAvailable and maxUnavailable cannot be both set";
        at.invalid_as(errors, Shown::Rendered(&shown), detail);
    }
    for bound in [&least, &most] {
        if bound.is_set() {
            int_or_percent(errors, bound);
            at_most_all(errors, bound);
        }
    }
    let was_invalid = old.is_some_and(|old| {
        let mut found = FieldErrors::new();
        let spec = At::root(old, "spec");
        spec.at("selector").label_selector(&mut found);
        !found.is_empty()
    });
    let values = if was_invalid {
        ExpressionValues::Unchecked
    } else {
        ExpressionValues::Checked
    };
    at.at("selector").label_selector_with(errors, values);
    at.at("unhealthyPodEvictionPolicy")
        .known_if_set(errors, &["AlwaysAllow", "IfHealthyBudget"]);
}
