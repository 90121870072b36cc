//! Apply configurations of mutating policies: merged like server-side apply, without managed fields, and without
//! atomic lists, maps or structs.
//!
//! UPSTREAM: apiserver pkg/admission/plugin/policy/mutating/patch/smd.go

use serde_json::Value;

use super::merge::merge;
use super::shape::{Ref, Shape};
use super::validate::{Duplicates, validate, validate_constructed};
use super::{Problem, shape::Atom};

/// An apply configuration that cannot be merged, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// The configuration or the object does not match the shape.
    #[error("{step}: {problem}")]
    Mismatch {
        /// The step that failed.
        step: &'static str,
        /// The reason.
        problem: String,
    },
    /// The configuration sets atomic values.
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}", .0.join(", "))]
    Atomic(Vec<String>),
}

/// Merges an apply configuration into an object.
///
/// # Errors
///
/// The configuration or the object does not match the shape.
pub fn merge_configuration(
    shape: Shape<'_>,
    live: &Value,
    configuration: &Value,
) -> Result<Value, ConfigurationError> {
    let ty = shape.root();
    let named = |step: &'static str| {
        move |problem: Problem| ConfigurationError::Mismatch {
            step,
            problem: problem.0,
        }
    };
    for object in [live, configuration] {
        Problem::if_too_deep(object).map_err(named("failed to merge patch"))?;
    }
    validate_constructed(ty, configuration)
        .map_err(named("failed to convert patch object to typed object"))?;
    let mut atomics = Vec::new();
    find_atomics(ty, configuration, String::new(), &mut atomics);
    if !atomics.is_empty() {
        return Err(ConfigurationError::Atomic(atomics));
    }
    validate(ty, live, Duplicates::Allowed)
        .map_err(named("failed to convert original object to typed object"))?;
    Ok(merge(ty, live, configuration))
}

/// Collects the paths of all atomic values.
fn find_atomics(ty: Ref<'_>, value: &Value, path: String, found: &mut Vec<String>) {
    let Atom { map, list, .. } = ty.resolve();
    match (value, map, list) {
        (Value::Object(members), Some(map), _) => {
            if map.is_atomic {
                found.push(path.clone());
            }
            for (name, member) in members {
                if let Some(ty) = map.field(name) {
                    find_atomics(ty, member, format!("{path}.{name}"), found);
                }
            }
        }
        (Value::Array(elements), _, Some(list)) => {
            if list.is_atomic() {
                found.push(path.clone());
            }
            for (at, element) in elements.iter().enumerate() {
                find_atomics(list.element, element, format!("{path}[{at}]"), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::typed;

    fn merged(kind: &str, live: Value, configuration: Value) -> Result<Value, String> {
        let shape = Shape::BuiltIn(typed::type_of("", "v1", kind).unwrap());
        merge_configuration(shape, &live, &configuration).map_err(|error| error.to_string())
    }

    #[test]
    fn merges_maps_and_lists_with_keys() {
        let live = json!({"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b"}]}});
        let configuration = json!({"spec": {
            "containers": [{"name": "b", "image": "j"}, {"name": "c"}],
            "hostNetwork": true,
        }});
        let want = json!({"spec": {
            "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}, {"name": "c"}],
            "hostNetwork": true,
        }});
        assert_eq!(merged("Pod", live, configuration), Ok(want));
        let live = json!({"metadata": {"labels": {"a": "1"}}});
        let configuration = json!({"metadata": {"labels": {"b": "2"}}});
        let want = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
        assert_eq!(merged("ConfigMap", live, configuration), Ok(want));
    }

    #[test]
    fn says_what_does_not_fit() {
        let typed = "failed to convert patch object to typed object: ";
        for (kind, configuration, want) in [
            (
                "ConfigMap",
                json!({"nope": {}}),
                format!("{typed}.nope: field not declared in schema"),
            ),
            (
                "ConfigMap",
                json!({"data": {"n": 1}}),
                format!("{typed}.data.n: expected string, got &value.valueUnstructured{{Value:1}}"),
            ),
            (
                "Pod",
                json!({"spec": {"priorityClassName": null}}),
                format!(
                    "{typed}.spec.priorityClassName: expected string, got \
                     &value.valueUnstructured{{Value:0}}"
                ),
            ),
            (
                "Pod",
                json!({"spec": {"nodeSelector": {"a": "b"}}}),
                String::from(
                    "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: \
                     .spec.nodeSelector",
                ),
            ),
            (
                "Pod",
                json!({"spec": {"containers": [{"name": "a", "command": ["x"]}]}}),
                String::from(
                    "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: \
                     .spec.containers[0].command",
                ),
            ),
        ] {
            assert_eq!(merged(kind, json!({}), configuration), Err(want));
        }
    }
}
