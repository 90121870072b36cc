//! Patches an object: JSON patch, merge patch, strategic merge patch.
//!
//! UPSTREAM: apiserver pkg/endpoints/handlers/patch.go

use lockgate_api::field::{FieldError, Path, Shown};
use lockgate_go::json;
use lockgate_kinds::strategic_merge::{self, PatchError, PatchErrorClass};
use serde_json::{Map, Value};

use crate::decode::body::{Expected, PatchedType};
use crate::decode::options::FieldValidation;
use crate::decode::patch::Patch;
use crate::decode::write::PatchBody;
use crate::error::{Failure, Outcome, bad_request, internal, invalid, unprocessable};
use crate::metadata;
use crate::registry::Shape;
use crate::request::Request;
use crate::respond::Reply;
use crate::write::Writer;
use crate::write::update::{Change, New, check_name};

/// Patches the requested object.
pub(crate) async fn patch(writer: &Writer, request: &Request, body: PatchBody) -> Outcome<Reply> {
    let PatchBody {
        patch,
        findings: of_text,
        options,
    } = body;
    let (resource, name) = (&request.resource, request.name());
    let namespace = if resource.is_namespace() {
        ""
    } else {
        request.namespace()
    };
    let validation = options.field_validation();
    // UPSTREAM: apiserver pkg/endpoints/handlers/patch.go: the patch is validated first, so its warnings come first.
    let warn = |findings: &[String]| {
        if validation == FieldValidation::Warn {
            for finding in findings {
                request.notes.warn(finding);
            }
        }
    };
    let make = |old: Option<&Value>| {
        if let Patch::Apply(configuration) = &patch {
            if validation == FieldValidation::Strict && !of_text.is_empty() {
                return Err(bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal \
                     errors:\n  {}",
                    of_text.join("\n  ")
                )));
            }
            warn(&of_text);
            return Ok(New::Configuration(configuration.clone()));
        }
        let old = old.ok_or_else(|| internal("no object to patch"))?;
        let (mut object, found) =
            patch.apply_strictly(old, Expected::of(resource), &of_text, validation)?;
        warn(&found);
        let empties = resource.shape.complete_decoded(&mut object);
        request.notes.sent_with(empties);
        metadata::match_namespace(&mut object, namespace)?;
        check_name(&object, name)?;
        Ok(New::Object(object))
    };
    let change = Change {
        // UPSTREAM: pkg/registry/*/storage (StatusREST.Update): a subresource never creates its object.
        create_when_missing: matches!(patch, Patch::Apply(_)) && request.subresource().is_empty(),
        ..Change::new(writer, request, &options)
    };
    let changed = change.apply(make).await;
    Ok(changed?.into_reply())
}

impl Patch {
    /// The patched object, not yet decoded.
    fn patched(&self, old: &Value, shape: &Shape) -> Outcome<Value> {
        Ok(match self {
            Self::Json(patch) => patch.apply(old).map_err(|_| unprocessable())?,
            Self::Merge(patch) => {
                let mut object = old.clone();
                merge(&mut object, patch);
                object
            }
            Self::Apply(_) => return Err(internal("a configuration is applied, not patched")),
            Self::Strategic(patch) => {
                let ty = shape
                    .merge_type()
                    .ok_or_else(|| internal("the type of the object is unknown"))?;
                strategic_merge::patch(old, patch, ty).map_err(strategic_failed)?
            }
        })
    }

    /// The patched object, and its unknown or duplicate fields.
    fn apply(&self, old: &Value, expected: Expected<'_>) -> Outcome<(Value, Vec<String>)> {
        let shape = expected.shape;
        let patched = self.patched(old, shape)?;
        let decoded = match self {
            // UPSTREAM: apiserver pkg/endpoints/handlers/patch.go (applyPatchToObject) ignores the type that is left.
            Self::Strategic(_) => shape.decode_merged(patched),
            _ => {
                let patched_type = PatchedType::of(&patched, expected)
                    .map_err(|why| self.no_object(old, shape, &why))?;
                match patched_type {
                    PatchedType::Expected => shape.decode_patched(patched),
                    PatchedType::Internal { findings } => shape
                        .decode_patched(Value::Object(Map::new()))
                        .map(|(object, _)| (object, findings)),
                }
            }
        };
        decoded.map_err(|error| self.no_object(old, shape, &error.to_string()))
    }

    /// The patched object, with the findings in it and in the patch, which strict field validation rejects.
    pub(super) fn apply_strictly(
        &self,
        old: &Value,
        expected: Expected<'_>,
        of_text: &[String],
        validation: FieldValidation,
    ) -> Outcome<(Value, Vec<String>)> {
        let (object, unknown) = self.apply(old, expected)?;
        let found: Vec<String> = of_text.iter().cloned().chain(unknown).collect();
        if validation == FieldValidation::Strict && !found.is_empty() {
            let why = format!("strict decoding error: {}", found.join(", "));
            return Err(self.no_object(old, expected.shape, &why));
        }
        Ok((object, found))
    }

    /// 422: the patched object is invalid. The message contains it before decoding, with unknown fields, for which it
    /// is patched once more: few patches fail.
    fn no_object(&self, old: &Value, shape: &Shape, why: &str) -> Failure {
        let shown = match self {
            Self::Strategic(patch) => go_value(patch),
            _ => match self.patched(old, shape) {
                Ok(patched) => json::to_string(&patched),
                Err(failure) => return failure,
            },
        };
        let error = FieldError::invalid(&Path::root("patch"), Shown::Text(&shown), why);
        invalid("", "", "", &[error])
    }
}

/// Formats a value as Go does, without recursion: `map[data:map[a:5] list:[1 2]]`.
fn go_value(value: &Value) -> String {
    enum Part<'v> {
        Value(&'v Value),
        Text(&'v str),
    }
    let mut out = String::new();
    let mut open = vec![Part::Value(value)];
    while let Some(part) = open.pop() {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Value(Value::Null) => out.push_str("<nil>"),
            Part::Value(Value::String(text)) => out.push_str(text),
            Part::Value(scalar @ (Value::Bool(_) | Value::Number(_))) => {
                out.push_str(&json::to_string(scalar));
            }
            Part::Value(Value::Array(items)) => {
                out.push('[');
                open.push(Part::Text("]"));
                for (index, item) in items.iter().enumerate().rev() {
                    open.push(Part::Value(item));
                    open.push(Part::Text(if index == 0 { "" } else { " " }));
                }
            }
            Part::Value(Value::Object(members)) => {
                out.push_str("map[");
                open.push(Part::Text("]"));
                for (index, (key, member)) in members.iter().enumerate().rev() {
                    open.push(Part::Value(member));
                    open.push(Part::Text(":"));
                    open.push(Part::Text(key));
                    open.push(Part::Text(if index == 0 { "" } else { " " }));
                }
            }
        }
    }
    out
}

fn strategic_failed(error: PatchError) -> Failure {
    match error.class {
        PatchErrorClass::BadRequest => bad_request(error.message),
        PatchErrorClass::Unprocessable => unprocessable(),
        PatchErrorClass::Other => crate::error::plain(error.message),
    }
}

/// RFC 7386, without recursion: a patch may be nested as deeply as a body. List items lose their null fields as well,
/// unless the list replaces an object.
///
/// UPSTREAM: gopkg.in/evanphx/json-patch.v4 merge.go
fn merge(target: &mut Value, patch: &Value) {
    let mut open = vec![(target, patch)];
    while let Some((target, patch)) = open.pop() {
        let was_object = target.is_object();
        let changes = patch.as_object().filter(|_| was_object);
        let Some(changes) = changes else {
            target.clone_from(patch);
            if !was_object {
                prune(target);
            }
            continue;
        };
        let Some(members) = target.as_object_mut() else {
            continue;
        };
        for (key, change) in changes {
            if change.is_null() {
                members.remove(key);
            } else {
                members.entry(key).or_insert(Value::Null);
            }
        }
        let inner = members.iter_mut().filter_map(|(key, value)| {
            let change = changes.get(key).filter(|change| !change.is_null())?;
            Some((value, change))
        });
        open.extend(inner);
    }
}

/// Removes the null fields of a value, recursively; null items of lists are kept.
fn prune(value: &mut Value) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                members.retain(|_, member| !member.is_null());
                open.extend(members.values_mut());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use lockgate_kinds::tree;
    use serde_json::json;

    use super::*;

    #[test]
    fn shows_values_as_go_prints_them() {
        let value = json!({"b": [1, "x y", null, {"z": true}], "a": {}, "c": 0.5});
        assert_eq!(
            go_value(&value),
            "map[a:map[] b:[1 x y <nil> map[z:true]] c:0.5]"
        );
        let mut deep = json!(1);
        for _ in 0..10_000 {
            deep = Value::Array(vec![deep]);
        }
        assert_eq!(go_value(&deep).len(), 20_001);
        tree::dismantle(deep);
    }

    #[test]
    fn merges_as_the_standard_says() {
        for (target, patch, want) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b", "b": "c"}),
                json!({"a": null}),
                json!({"b": "c"}),
            ),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [1]}),
                json!({"a": {"b": {"c": null}}}),
                json!({"a": {"b": {}}}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
            (
                json!({"a": [1]}),
                json!({"a": [null, {"b": null, "c": [null]}], "d": [{"e": null}]}),
                json!({"a": [null, {"c": [null]}], "d": [{}]}),
            ),
            (
                json!({"a": {"b": 1}}),
                json!({"a": [null]}),
                json!({"a": [null]}),
            ),
        ] {
            let mut merged = target;
            merge(&mut merged, &patch);
            assert_eq!(merged, want, "{patch}");
        }
    }
}
