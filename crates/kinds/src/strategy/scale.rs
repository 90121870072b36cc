//! The subresource `scale` of built-in kinds.

use serde_json::{Value, json};

use lockgate_api::field::{FieldErrors, Path};
use lockgate_api::meta::label_selector::LabelSelector;
use lockgate_api::meta::object::ObjectMeta;
use lockgate_api::meta::validation::{SUBDOMAIN_NAMES, Scope, validate_scoped_metadata};

use crate::object::{Object, get, get_mut, number, text};
use crate::resource::Resource;

use crate::checks::{check_finalizer_name, non_negative, wire};

/// The scale of an object; `None` for resources without that subresource.
///
/// UPSTREAM: pkg/registry/apps/deployment/storage/storage.go (scaleFromDeployment) and its likes.
#[must_use]
pub fn scale_of(resource: &Resource, object: &Value) -> Option<Value> {
    resource.subresource("scale")?;
    let object = object.as_object()?;
    let empty = Object::new();
    let part = |key| get(object, key).unwrap_or(&empty);
    let (metadata, spec, status) = (part("metadata"), part("spec"), part("status"));
    let mut scale = json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {},
        "spec": {},
        "status": {"replicas": number(status, "replicas")},
    });
    for key in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = metadata.get(key) {
            scale["metadata"][key] = value.clone();
        }
    }
    if number(spec, "replicas") != 0 {
        scale["spec"]["replicas"] = Value::from(number(spec, "replicas"));
    }
    let selector = selector_text(resource, spec);
    if !selector.is_empty() {
        scale["status"]["selector"] = Value::from(selector);
    }
    Some(scale)
}

/// Applies the desired replicas and the resourceVersion of a scale to an object.
pub fn apply_scale(object: &mut Value, scale: &Value) {
    let Some(object) = object.as_object_mut() else {
        return;
    };
    let wanted = scale
        .pointer("/spec/replicas")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    if let Some(spec) = get_mut(object, "spec") {
        spec.insert("replicas".to_owned(), Value::from(wanted));
    }
    if let (Some(metadata), Some(version)) = (
        get_mut(object, "metadata"),
        scale
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str),
    ) && !version.is_empty()
    {
        metadata.insert("resourceVersion".to_owned(), Value::from(version));
    }
}

/// Validates a scale: its metadata, although it is not stored, and its replicas.
///
/// UPSTREAM: pkg/apis/autoscaling/validation/validation.go (ValidateScale)
#[must_use]
pub fn validate_scale(scale: &Value) -> FieldErrors {
    let metadata: ObjectMeta = scale.get("metadata").map(wire).unwrap_or_default();
    let path = Path::root("metadata");
    let scope = Scope::Namespaced(&metadata.namespace);
    let mut errors = validate_scoped_metadata(&metadata, scope, SUBDOMAIN_NAMES, &path);
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    for (index, name) in finalizers.iter().enumerate() {
        let list = path.child("finalizers");
        check_finalizer_name(&mut errors, name, &list.index(index));
    }
    if let Some(spec) = scale.get("spec").and_then(Value::as_object) {
        non_negative(&mut errors, spec, "replicas", &Path::root("spec"));
    }
    errors
}

/// The selector as a query string.
fn selector_text(resource: &Resource, spec: &Object) -> String {
    let Some(selector) = get(spec, "selector") else {
        return String::new();
    };
    if resource.plural == "replicationcontrollers" {
        let pairs: Vec<String> = selector
            .keys()
            .map(|key| format!("{key}={}", text(selector, key)))
            .collect();
        return pairs.join(",");
    }
    let selector: LabelSelector = wire(&Value::Object(selector.clone()));
    selector
        .compile()
        .map(|selector| selector.to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::find;
    use crate::typed::type_of;

    #[test]
    fn shows_and_sets_replicas() {
        let deployments = find("apps", "v1", "deployments").unwrap();
        let mut object = json!({
            "metadata": {"name": "d", "namespace": "n", "uid": "1", "resourceVersion": "5", "labels": {"x": "y"}},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"b": "c", "a": "b"}, "matchExpressions": [{"key": "z", "operator": "Exists"}]}},
            "status": {"replicas": 1},
        });
        let mut scale = scale_of(deployments, &object).unwrap();
        assert_eq!(
            scale["metadata"],
            json!({"name": "d", "namespace": "n", "uid": "1", "resourceVersion": "5"})
        );
        assert_eq!(scale["spec"], json!({"replicas": 2}));
        assert_eq!(
            scale["status"],
            json!({"replicas": 1, "selector": "a=b,b=c,z"})
        );
        // The result is in normal form.
        let ty = type_of("autoscaling", "v1", "Scale").unwrap();
        assert_eq!(ty.decode_value(&scale).unwrap().value, scale);
        scale["spec"]["replicas"] = json!(7);
        assert!(validate_scale(&scale).is_empty());
        apply_scale(&mut object, &scale);
        assert_eq!(object["spec"]["replicas"], 7);
        scale["spec"]["replicas"] = json!(-1);
        let errors = validate_scale(&scale);
        assert_eq!(
            errors[0].to_string(),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
        assert_eq!(scale_of(find("", "v1", "pods").unwrap(), &object), None);
    }

    #[test]
    fn judges_metadata_that_is_not_stored() {
        let told = |metadata: Value| {
            let mut scale = json!({"metadata": {"name": "d", "namespace": "n"}, "spec": {}});
            let members = metadata.as_object().unwrap().clone();
            scale["metadata"].as_object_mut().unwrap().extend(members);
            let errors = validate_scale(&scale);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            texts
        };
        assert!(told(json!({"labels": {"a": "b"}, "finalizers": ["orphan"]})).is_empty());
        for (metadata, want) in [
            (
                json!({"labels": {"a": "-"}}),
                "metadata.labels: Invalid value: \"-\": ",
            ),
            (
                json!({"annotations": {"a b": ""}}),
                "metadata.annotations: Invalid value: \"a b\": ",
            ),
            (
                json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": "1"}]}),
                "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
            ),
            (
                json!({"finalizers": ["mine"]}),
                "metadata.finalizers[0]: Invalid value: \"mine\": name is neither a standard finalizer name",
            ),
            (
                json!({"generation": -1}),
                "metadata.generation: Invalid value: -1: ",
            ),
        ] {
            let found = told(metadata);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(want), "{found:?}");
        }
    }

    #[test]
    fn controllers_of_the_core_group_select_by_pairs() {
        let controllers = find("", "v1", "replicationcontrollers").unwrap();
        let object = json!({"spec": {"selector": {"a": "b", "c": "d"}}});
        assert_eq!(
            scale_of(controllers, &object).unwrap()["status"]["selector"],
            "a=b,c=d"
        );
    }
}
