//! The subresource `scale` of custom resources, as `autoscaling/v1` `Scale`.
//!
//! UPSTREAM: apiextensions-apiserver pkg/registry/customresource/etcd.go, apimachinery
//! pkg/apis/meta/v1/unstructured/helpers.go

use std::fmt;

use serde_json::{Map, Value as Json, json};

use lockgate_api::field::FieldErrors;

use crate::structural::error;
use crate::structural::json::verbose;
use crate::structural::props::Props;

/// The field paths of the scale subresource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// The path of the desired replicas, such as `.spec.replicas`.
    pub spec_replicas: String,
    /// The path of the current replicas.
    pub status_replicas: String,
    /// The path of the label selector as a string, if any.
    pub label_selector: Option<String>,
}

/// An error about the value at a path, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NestedError(String);

impl fmt::Display for NestedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NestedError {}

/// The segments of a path, without the leading dot.
fn split(path: &str) -> impl Iterator<Item = &str> + Clone {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

fn printed<'p>(names: impl Iterator<Item = &'p str>) -> String {
    names.map(|name| format!(".{name}")).collect()
}

fn go_type(value: &Json) -> &'static str {
    match value {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_i64() => "int64",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}

fn mismatch(place: &str, value: &Json, expected: &str) -> NestedError {
    NestedError(format!(
        "{place} accessor error: {} is of the type {}, expected {expected}",
        verbose(value),
        go_type(value)
    ))
}

/// The value at a path; `None` if it is absent.
fn nested<'j>(object: &'j Json, path: &str) -> Result<Option<&'j Json>, NestedError> {
    let mut value = object;
    for (at, name) in split(path).enumerate() {
        match value {
            Json::Null => return Ok(None),
            Json::Object(entries) => match entries.get(name) {
                Some(found) => value = found,
                None => return Ok(None),
            },
            other => {
                let place = printed(split(path).take(at + 1));
                return Err(mismatch(&place, other, "map[string]interface{}"));
            }
        }
    }
    Ok(Some(value))
}

fn nested_integer(object: &Json, path: &str) -> Result<Option<i64>, NestedError> {
    let found = nested(object, path)?;
    let read = |value: &Json| {
        let place = || printed(split(path));
        value
            .as_i64()
            .ok_or_else(|| mismatch(&place(), value, "int64"))
    };
    found.map(read).transpose()
}

fn nested_text<'j>(object: &'j Json, path: &str) -> Result<Option<&'j str>, NestedError> {
    let found = nested(object, path)?;
    let read = |value: &'j Json| {
        let place = || printed(split(path));
        value
            .as_str()
            .ok_or_else(|| mismatch(&place(), value, "string"))
    };
    found.map(read).transpose()
}

impl ScalePaths {
    pub(super) fn read(scale: Props<'_>) -> Self {
        Self {
            spec_replicas: scale.text("specReplicasPath").to_owned(),
            status_replicas: scale.text("statusReplicasPath").to_owned(),
            label_selector: scale.opt_text("labelSelectorPath").map(str::to_owned),
        }
    }

    /// The desired number of replicas of an object, if set.
    ///
    /// # Errors
    ///
    /// The path contains a value of another type.
    pub fn spec_replicas(&self, object: &Json) -> Result<Option<i64>, NestedError> {
        nested_integer(object, &self.spec_replicas)
    }

    /// The path of the desired replicas.
    #[must_use]
    pub fn spec_replicas_path(&self) -> &str {
        &self.spec_replicas
    }

    /// The `Scale` of an object. Unset replicas are zero.
    ///
    /// # Errors
    ///
    /// A path contains a value of another type.
    pub fn to_scale(&self, object: &Json) -> Result<Json, NestedError> {
        let spec = nested_integer(object, &self.spec_replicas)?.unwrap_or(0);
        let status = nested_integer(object, &self.status_replicas)?.unwrap_or(0);
        let selector = match self.label_selector.as_deref() {
            None | Some("") => "",
            Some(path) => nested_text(object, path)?.unwrap_or_default(),
        };
        let mut metadata = Map::new();
        for name in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
        ] {
            let value = object.get("metadata").and_then(|meta| meta.get(name));
            if let Some(value) = value.filter(|value| !value.is_null()) {
                metadata.insert(name.to_owned(), value.clone());
            }
        }
        // Zeros of the spec are omitted on the wire, those of the status are not. Numbers are truncated to 32 bits,
        // as upstream does.
        let (spec, status) = (spec as i32, status as i32);
        let mut scale = json!({
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": metadata,
            "spec": {},
            "status": { "replicas": status },
        });
        if spec != 0 {
            scale["spec"]["replicas"] = spec.into();
        }
        if !selector.is_empty() {
            scale["status"]["selector"] = selector.into();
        }
        Ok(scale)
    }

    /// Applies an updated `Scale` to an object: the replicas, and the resourceVersion if set.
    ///
    /// # Errors
    ///
    /// The path contains a value that is not a map, or the `Scale` has no integer replicas.
    pub fn from_scale(&self, object: &mut Json, scale: &Json) -> Result<(), NestedError> {
        let replicas = nested_integer(scale, ".spec.replicas")?.unwrap_or(0);
        set_nested(object, &self.spec_replicas, replicas.into())?;
        let version = scale.pointer("/metadata/resourceVersion");
        if let Some(version) = version.filter(|version| version.as_str() != Some("")) {
            set_nested(object, ".metadata.resourceVersion", version.clone())?;
        }
        Ok(())
    }

    /// UPSTREAM: apiextensions-apiserver pkg/registry/customresource/validator.go
    pub(super) fn validate_spec(&self, object: &Json, errors: &mut FieldErrors) {
        validate_replicas(object, &self.spec_replicas, errors);
    }

    /// Like [`Self::validate_spec`], for the status.
    pub(super) fn validate_status(&self, object: &Json, errors: &mut FieldErrors) {
        validate_replicas(object, &self.status_replicas, errors);
        if let Some(path) = &self.label_selector
            && let Err(reason) = nested_text(object, path)
        {
            errors.push(error::invalid_text(path, "", reason.to_string()));
        }
    }
}

fn validate_replicas(object: &Json, path: &String, errors: &mut FieldErrors) {
    let (shown, detail) = match nested_integer(object, path) {
        Err(reason) => (0, reason.to_string()),
        Ok(Some(replicas)) if replicas < 0 => {
            (replicas, "should be a non-negative integer".to_owned())
        }
        Ok(Some(replicas)) if replicas > i64::from(i32::MAX) => {
            let detail = format!("should be less than or equal to {}", i32::MAX);
            (replicas, detail)
        }
        Ok(_) => return,
    };
    errors.push(error::invalid(path, &shown.to_string(), detail));
}

fn set_nested(object: &mut Json, path: &str, value: Json) -> Result<(), NestedError> {
    let mut place = object;
    for (at, name) in split(path).enumerate() {
        let Some(entries) = place.as_object_mut() else {
            let place = printed(split(path).take(at));
            return Err(NestedError(format!(
                "value cannot be set because {place} is not a map[string]interface{{}}"
            )));
        };
        let is_last = at + 1 == split(path).count();
        let fresh = if is_last {
            Json::Null
        } else {
            Json::Object(Map::new())
        };
        place = entries.entry(name).or_insert(fresh);
    }
    *place = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> ScalePaths {
        ScalePaths {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: Some(".status.selector".to_owned()),
        }
    }

    #[test]
    fn shows_an_object_as_scale() {
        let object = json!({
            "metadata": { "name": "a", "namespace": "b", "uid": "u", "resourceVersion": "5",
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": { "x": "y" } },
            "spec": { "replicas": 3 },
            "status": { "replicas": 2, "selector": "a=b" },
        });
        assert_eq!(
            paths().to_scale(&object),
            Ok(json!({
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": { "name": "a", "namespace": "b", "uid": "u", "resourceVersion": "5",
                    "creationTimestamp": "2026-01-01T00:00:00Z" },
                "spec": { "replicas": 3 },
                "status": { "replicas": 2, "selector": "a=b" },
            }))
        );
        let bare = paths().to_scale(&json!({})).unwrap();
        assert_eq!(bare["spec"], json!({}));
        assert_eq!(bare["status"], json!({ "replicas": 0 }));
        assert_eq!(paths().spec_replicas(&json!({ "spec": {} })), Ok(None));
    }

    #[test]
    fn says_where_a_path_goes_wrong() {
        for (object, want) in [
            (
                json!({ "spec": [1] }),
                ".spec.replicas accessor error: [1] is of the type []interface {}, expected \
                 map[string]interface{}",
            ),
            (
                json!({ "spec": { "replicas": "x" } }),
                ".spec.replicas accessor error: x is of the type string, expected int64",
            ),
            (
                json!({ "status": { "selector": 1 } }),
                ".status.selector accessor error: 1 is of the type int64, expected string",
            ),
        ] {
            assert_eq!(paths().to_scale(&object).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn takes_over_what_a_scale_asks_for() {
        let mut object = json!({ "metadata": { "resourceVersion": "5" } });
        let scale = json!({ "spec": { "replicas": 4 }, "metadata": { "resourceVersion": "6" } });
        paths().from_scale(&mut object, &scale).unwrap();
        let want = json!({ "metadata": { "resourceVersion": "6" }, "spec": { "replicas": 4 } });
        assert_eq!(object, want);
        paths()
            .from_scale(&mut object, &json!({ "spec": {} }))
            .unwrap();
        assert_eq!(object["spec"]["replicas"], 0);
        let mut broken = json!({ "spec": "x" });
        let error = paths().from_scale(&mut broken, &scale).unwrap_err();
        let want = "value cannot be set because .spec is not a map[string]interface{}";
        assert_eq!(error.to_string(), want);
    }

    #[test]
    fn refuses_replicas_out_of_range() {
        let mut errors = FieldErrors::new();
        paths().validate_spec(&json!({ "spec": { "replicas": -1 } }), &mut errors);
        let big = json!({ "status": { "replicas": 2_147_483_648_i64, "selector": {} } });
        paths().validate_status(&big, &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                ".spec.replicas: Invalid value: -1: should be a non-negative integer",
                ".status.replicas: Invalid value: 2147483648: should be less than or equal to \
                 2147483647",
                ".status.selector: Invalid value: \"\": .status.selector accessor error: map[] is \
                 of the type map[string]interface {}, expected string",
            ]
        );
    }
}
