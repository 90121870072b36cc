//! PriorityClasses.

use crate::cells::read;
use crate::cells::{Common, Row, cell};
use crate::checks::immutable;
use crate::kind::{Context, Generation, Kind, Resource, Written, cluster};
use crate::object::{Object, fill, with};
use lockgate_api::field::{FieldError, FieldErrors, Path};
use serde_json::Value;

pub(super) const PRIORITY_CLASSES: Resource = cluster(
    "scheduling.k8s.io",
    "v1",
    "priorityclasses",
    "priorityclass",
    "PriorityClass",
    "PriorityClassList",
    &PriorityClass,
)
.short(&["pc"])
.generation(Generation::CreateOnly);

/// The kind `PriorityClass`.
#[derive(Debug)]
pub(super) struct PriorityClass;

impl Kind for PriorityClass {
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
        if let Some(old) = old {
            priority_class_update(errors, new.object(), old.object());
        }
    }

    fn columns(&self) -> &'static str {
        "Name|Value:integer|Global-Default:boolean|Age|PreemptionPolicy"
    }

    fn row(&self, object: &Value, common: &Common<'_>) -> Row {
        Row::of(vec![
            cell(common.name),
            cell(read::integer(object, "/value")),
            cell(read::is_true(object, "/globalDefault")),
            cell(common.age.as_str()),
            cell(read::text(object, "/preemptionPolicy")),
        ])
    }
}

fn defaults(object: &mut Object) {
    fill(object, "preemptionPolicy", "PreemptLowerPriority");
}

fn priority_class_update(errors: &mut FieldErrors, object: &Object, old: &Object) {
    if object.get("value") != old.get("value") {
        let detail = "may not be changed in an update.";
        errors.push(FieldError::forbidden(&Path::root("value"), detail));
    }
    let key = "preemptionPolicy";
    immutable(errors, (object.get(key), old.get(key)), &Path::root(key));
}
