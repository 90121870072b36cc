//! The `Scale` of an object: its desired and current replicas.

use lockgate_go::quote::quote;
use lockgate_kinds::strategy::{apply_scale, scale_of, validate_scale};
use serde_json::Value;

use super::{Resource, Shape};
use crate::error::{Outcome, bad_request, internal, invalid, no_such_resource};

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

/// Sets the desired replicas of an object from its scale.
pub(crate) fn apply(resource: &Resource, object: &mut Value, scale: &Value) -> Outcome<()> {
    let mut scale = scale.clone();
    // The resourceVersion has been checked already.
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

/// Checks that an object specifies its replicas, when its scale is read.
///
/// UPSTREAM: apiextensions-apiserver pkg/registry/customresource/etcd.go (ScaleREST.Get)
pub(crate) fn check_replicas(resource: &Resource, object: &Value) -> Outcome<()> {
    let Shape::Custom(custom) = &resource.shape else {
        return Ok(());
    };
    match custom.scale_paths() {
        Some(paths) if matches!(paths.spec_replicas(object), Ok(None)) => Err(internal(&format!(
            "the spec replicas field {} does not exist",
            quote(paths.spec_replicas_path())
        ))),
        _ => Ok(()),
    }
}

/// The placeholder for absent replicas of a custom resource while its scale is patched.
pub(crate) const UNKNOWN: i64 = i32::MIN as i64;

/// The scale that a patch is applied to, in which absent replicas differ from zero.
///
/// UPSTREAM: apiextensions-apiserver pkg/registry/customresource/etcd.go (scaleUpdatedObjectInfo)
pub(crate) fn to_patch(resource: &Resource, object: &Value, mut scale: Value) -> Value {
    if let Shape::Custom(custom) = &resource.shape
        && let Some(paths) = custom.scale_paths()
        && matches!(paths.spec_replicas(object), Ok(None))
    {
        scale["spec"]["replicas"] = UNKNOWN.into();
    }
    scale
}

/// Validates an admitted scale. The scale of a custom resource is validated with its object.
pub(crate) fn check(resource: &Resource, name: &str, scale: &Value) -> Outcome<()> {
    if let Shape::Custom(custom) = &resource.shape {
        let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64);
        return match custom.scale_paths() {
            Some(paths) if replicas == Some(UNKNOWN) => Err(bad_request(format!(
                "the spec replicas field {} cannot be empty",
                quote(&paths.spec_replicas)
            ))),
            _ => Ok(()),
        };
    }
    match validate_scale(scale).as_slice() {
        [] => Ok(()),
        errors => Err(invalid("Scale", "autoscaling", name, errors)),
    }
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
