//! PriorityClasses.

use crate::at::At;
use crate::cells::{Common, Row, cell, read};
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
        match old {
            None => priority_class(errors, new),
            Some(old) => priority_class_update(errors, new.object(), old.object()),
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

fn priority_class(errors: &mut FieldErrors, new: &Written<'_>) {
    /// Higher priorities are reserved for the system.
    const HIGHEST: i64 = 1_000_000_000;
    const SYSTEM: [(&str, i64); 2] = [
        ("system-node-critical", 2_000_001_000),
        ("system-cluster-critical", 2_000_000_000),
    ];
    let name = &new.metadata.name;
    let value = At::root(new.object(), "value");
    if name.starts_with("system-") {
        let reason = match SYSTEM.iter().find(|(known, _)| known == name) {
            Some((_, wanted)) if *wanted != value.int() => {
                format!("value of {name} PriorityClass must be {wanted}")
            }
            Some(_) if At::root(new.object(), "globalDefault").flag() => {
                format!("globalDefault of {name} PriorityClass must be false")
            }
            Some(_) => String::new(),
            None => format!("{name} is not a known system priority class"),
        };
        if !reason.is_empty() {
            let metadata = Path::root("metadata");
            errors.push(FieldError::forbidden(
                &metadata.child("name"),
                format!(
                    "priority class names with 'system-' prefix are reserved for system use only. \
                     error: {reason}"
                ),
            ));
        }
    } else if value.int() > HIGHEST {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        value.forbidden(errors, detail);
    }
    let policy = At::root(new.object(), "preemptionPolicy");
    if policy.is_set() {
        policy.one_of(errors, &["PreemptLowerPriority", "Never"]);
    }
}
