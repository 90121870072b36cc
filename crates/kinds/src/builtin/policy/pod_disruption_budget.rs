//! PodDisruptionBudgets.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::wire;
use crate::kind::{CHANGE, Context, Finalizers, Kind, Resource, SPEC, Written, namespaced, sub};
use crate::object::{Object, get};
use lockgate_api::field::{FieldError, FieldErrors, Path, Shown};
use lockgate_api::meta::label_selector::{ExpressionValues, LabelSelector};
use lockgate_api::meta::validation::{NameRules, PATH_SEGMENT_NAMES};
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
        _old: Option<&Written<'_>>,
        _context: &Context<'_>,
    ) {
        disruption_budget(errors, new.object());
    }

    fn columns(&self) -> &'static str {
        "Name|Min Available|Max Unavailable|Allowed Disruptions:integer|Age"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        budget_row(object, common)
    }
}

fn disruption_budget(errors: &mut FieldErrors, object: &Object) {
    let empty = Object::new();
    let spec = get(object, "spec").unwrap_or(&empty);
    let path = Path::root("spec");
    for key in ["minAvailable", "maxUnavailable"] {
        let value = spec.get(key).and_then(Value::as_i64).unwrap_or_default();
        if value < 0 {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(
                &path.child(key),
                Shown::Integer(value),
                detail,
            ));
        }
    }
    let selector: LabelSelector = spec.get("selector").map(wire).unwrap_or_default();
    errors.extend(selector.validate(ExpressionValues::Checked, &path.child("selector")));
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
