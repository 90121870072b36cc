//! The `Scale` of an object: the replicas it asks for and has.

use lockgate_api::field::{FieldError, Path, Shown};
use lockgate_kinds::strategy::{apply_scale, scale_of};
use serde_json::Value;

use super::{Resource, Shape};
use crate::error::{Failure, Outcome, internal, invalid, no_such_resource};

/// The scale of an object.
pub(crate) fn of(resource: &Resource, object: &Value) -> Outcome<Value> {
    match &resource.shape {
        Shape::Custom(custom) => match custom.scale_paths() {
            Some(paths) => paths
                .to_scale(object)
                .map_err(|error| internal(&error.to_string())),
            None => Err(no_such_resource()),
        },
        shape => shape
            .row()
            .and_then(|row| scale_of(row, object))
            .ok_or_else(no_such_resource),
    }
}

/// Sets the replicas of an object to those its scale asks for.
pub(crate) fn apply(resource: &Resource, object: &mut Value, scale: &Value) -> Outcome<()> {
    let mut scale = scale.clone();
    // The resourceVersion was checked already.
    if let Some(metadata) = scale.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    if let Shape::Custom(custom) = &resource.shape {
        let paths = custom.scale_paths().ok_or_else(no_such_resource)?;
        return paths
            .from_scale(object, &scale)
            .map_err(|error| internal(&error.to_string()));
    }
    apply_scale(object, &scale);
    Ok(())
}

/// 422: the replicas are negative.
pub(crate) fn negative(name: &str, replicas: i64) -> Failure {
    let spec = Path::root("spec");
    let path = spec.child("replicas");
    let error = FieldError::invalid(
        &path,
        Shown::Integer(replicas),
        "must be greater than or equal to 0",
    );
    invalid("Scale", "autoscaling", name, &[error])
}

#[cfg(test)]
mod tests {
    use lockgate_kinds::resource::find;
    use serde_json::json;

    use super::*;

    #[test]
    fn shows_a_deployment_as_a_scale() {
        let object = json!({
            "metadata": {"name": "d", "namespace": "n", "labels": {"x": "y"}},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["y", "x"]}]}},
            "status": {"replicas": 2},
        });
        assert_eq!(
            scale_of(find("apps", "v1", "deployments").unwrap(), &object).unwrap(),
            json!({
                "kind": "Scale", "apiVersion": "autoscaling/v1",
                "metadata": {"name": "d", "namespace": "n"},
                "spec": {"replicas": 3},
                "status": {"replicas": 2, "selector": "a=1,b=2,c in (x,y)"},
            })
        );
    }
}
