//! Removing fields from an object.
//!
//! UPSTREAM: structured-merge-diff typed/remove.go, fieldpath/set.go (EnsureNamedFieldsAreMembers)

use serde_json::{Map, Value};

use super::element::Element;
use super::field_set::{Entry, FieldSet, Part};
use super::shape::{Atom, Ref};

/// The object without the fields of a set. A map or list that becomes empty is null.
pub(super) fn remove(ty: Ref<'_>, value: &Value, fields: &FieldSet) -> Value {
    match ty.resolve().deduce(Some(value)) {
        Atom { map: Some(map), .. } => match value {
            Value::Object(members) if !map.is_atomic => {
                let mut out = Map::new();
                for (name, value) in members {
                    let ty = map.member(name);
                    let part = fields.get(&ty.step(name));
                    if let Some(value) = rest(ty, value, part) {
                        out.insert(name.clone(), value);
                    }
                }
                if out.is_empty() {
                    Value::Null
                } else {
                    Value::Object(out)
                }
            }
            _ => Value::Null,
        },
        Atom {
            scalar: Some(_), ..
        } => value.clone(),
        Atom {
            list: Some(list), ..
        } => match value {
            Value::Array(elements) if !list.is_atomic() => {
                let mut out = Vec::with_capacity(elements.len());
                for value in elements {
                    let step = list.step(value).ok();
                    let part = step.and_then(|step| fields.get(&step));
                    out.extend(rest(list.element, value, part));
                }
                if out.is_empty() {
                    Value::Null
                } else {
                    Value::Array(out)
                }
            }
            _ => Value::Null,
        },
        Atom { .. } => Value::Null,
    }
}

fn rest(ty: Ref<'_>, value: &Value, part: Option<&Part>) -> Option<Value> {
    match part {
        Some(part) if part.member => None,
        Some(part) => Some(remove(ty, value, &part.children)),
        None => Some(value.clone()),
    }
}

/// The set with all declared fields that have nested members.
pub(super) fn with_named(ty: Ref<'_>, fields: FieldSet) -> FieldSet {
    let atom = ty.resolve();
    let entries = fields.entries.into_iter().map(|entry| {
        let Entry { element, part } = entry;
        let (is_declared, below) = match (&element, atom.map, atom.list) {
            (Element::Field(name), Some(map), _) => (map.field(name).is_some(), map.member(name)),
            (Element::Key(_), _, Some(list)) => (false, list.element),
            _ => (false, Ref::Undeclared),
        };
        Entry {
            element,
            part: Part {
                member: part.member || is_declared && !part.children.is_empty(),
                children: with_named(below, part.children),
            },
        }
    });
    FieldSet {
        entries: entries.collect(),
    }
}
