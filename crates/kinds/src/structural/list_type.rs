//! Lists of type `set` and `map` have unique elements.
//!
//! UPSTREAM: apiextensions-apiserver pkg/apiserver/schema/listtype/validation.go

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use lockgate_api::field::FieldErrors;

use super::error::{self, MAX_ERRORS};
use super::json::{Go, compact, copy, shown};
use super::path::Path;
use super::schema::{ListType, Node};

/// Validates all lists of an object.
pub(crate) fn validate(schema: &Node, value: &Json, path: &Path<'_>, errors: &mut FieldErrors) {
    if errors.len() >= MAX_ERRORS {
        return;
    }
    match value {
        Json::Object(entries) => {
            if let Some(entry) = schema.entries() {
                for (name, value) in entries {
                    validate(entry, value, &path.key(name), errors);
                }
            }
            for (name, value) in entries {
                if let Some(property) = schema.properties.get(name.as_str()) {
                    validate(property, value, &path.child(name), errors);
                }
            }
        }
        Json::Array(elements) => {
            match schema.list_type {
                Some(ListType::Set) => {
                    let room = MAX_ERRORS - errors.len();
                    let repeated = repeated(elements.iter().map(Item::Value));
                    for at in repeated.into_iter().take(room) {
                        let value = elements.get(at).map(shown).unwrap_or_default();
                        errors.push(error::duplicate(&path.index(at), &value));
                    }
                }
                Some(ListType::Map) => validate_map(schema, elements, path, errors),
                _ => {}
            }
            if let Some(items) = &schema.items {
                for (at, element) in elements.iter().enumerate() {
                    validate(items, element, &path.index(at), errors);
                }
            }
        }
        _ => {}
    }
}

fn validate_map(schema: &Node, elements: &[Json], path: &Path<'_>, errors: &mut FieldErrors) {
    let is_element = |element: &Json| element.is_object() || element.is_null();
    if let Some(at) = elements.iter().position(|element| !is_element(element)) {
        let value = elements.get(at).map(shown).unwrap_or_default();
        let detail = "must be an object for an array of list-type map";
        errors.push(error::invalid(&path.index(at), &value, detail));
        return;
    }
    let keys = &*schema.list_map_keys;
    let key_of = |element: &Json| -> Json {
        let entries = element.as_object();
        let known = |key: &String| Some((key.clone(), copy(entries?.get(key)?)));
        keys.iter().filter_map(known).collect::<Map<_, _>>().into()
    };
    let repeated = match keys {
        [key] => repeated(elements.iter().map(|element| {
            // An absent key differs from a null one.
            element.get(key).map_or(Item::Absent, Item::Value)
        })),
        _ => repeated(elements.iter().map(|element| Item::Keys(key_of(element)))),
    };
    let room = MAX_ERRORS.saturating_sub(errors.len());
    for at in repeated.into_iter().take(room) {
        let key = elements.get(at).map(key_of).unwrap_or_default();
        errors.push(error::duplicate(&path.index(at), &compact(&key)));
    }
}

enum Item<'j> {
    Absent,
    Value(&'j Json),
    Keys(Json),
}

/// The identity of an item: scalars by type and value, others by their JSON.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'j> {
    Absent,
    Nil,
    Bool(bool),
    Int(i64),
    Float(u64),
    Text(&'j str),
    Compound(String),
}

impl<'j> From<Item<'j>> for Identity<'j> {
    fn from(item: Item<'j>) -> Self {
        let value = match item {
            Item::Absent => return Self::Absent,
            Item::Keys(keys) => return Self::Compound(compact(&keys)),
            Item::Value(value) => value,
        };
        match Go::from(value) {
            Go::Nil => Self::Nil,
            Go::Bool(flag) => Self::Bool(flag),
            Go::Int(number) => Self::Int(number),
            // Positive and negative zero are equal.
            Go::Float(number) => Self::Float((number + 0.0).to_bits()),
            Go::Text(text) => Self::Text(text),
            Go::List(_) | Go::Map(_) => Self::Compound(compact(value)),
        }
    }
}

/// The index of the second occurrence of each duplicated item.
fn repeated<'j>(items: impl ExactSizeIterator<Item = Item<'j>>) -> Vec<usize> {
    let mut times: HashMap<Identity<'j>, usize> = HashMap::with_capacity(items.len());
    let mut repeated = Vec::new();
    for (at, item) in items.enumerate() {
        let times = times.entry(item.into()).or_insert(0);
        *times += 1;
        if *times == 2 {
            repeated.push(at);
        }
    }
    repeated
}
