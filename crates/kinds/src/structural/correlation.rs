//! Correlation of values with those of the old object.
//!
//! UPSTREAM: apiserver pkg/cel/common/equality.go, maplist.go

use std::cell::OnceCell;
use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use lockgate_go::quote::quote;

use super::json::{Go, equal};
use super::schema::{ListType, Node, Type};

/// A value and the corresponding old value.
#[derive(Debug)]
pub(crate) struct Correlation<'a> {
    schema: &'a Node,
    pub(crate) new: &'a Json,
    old: &'a Json,
    old_by_key: OnceCell<MapList<'a>>,
}

impl<'a> Correlation<'a> {
    pub(crate) fn new(schema: &'a Node, new: &'a Json, old: &'a Json) -> Self {
        Self {
            schema,
            new,
            old,
            old_by_key: OnceCell::new(),
        }
    }

    /// A declared field or map entry that both values have.
    pub(crate) fn key(&self, name: &str) -> Option<Self> {
        let new = self.new.as_object()?.get(name)?;
        let old = self.old.as_object()?.get(name)?;
        Some(Self::new(self.schema.member(name)?, new, old))
    }

    /// An element of a list of type `map`, if the old list has an element with the same keys.
    pub(crate) fn index(&self, index: usize) -> Option<Self> {
        let new = self.new.as_array()?.get(index)?;
        let old = self.old.as_array()?;
        if self.schema.list_type != Some(ListType::Map) {
            return None;
        }
        let by_key = self
            .old_by_key
            .get_or_init(|| MapList::new(self.schema, old));
        let old = by_key.get(new)?;
        Some(Self::new(self.schema.items.as_deref()?, new, old))
    }

    /// Returns true if the value is unchanged.
    pub(crate) fn is_unchanged(&self) -> bool {
        match (self.new, self.old) {
            (Json::Array(new), Json::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                if self.schema.list_type != Some(ListType::Map) {
                    return new.iter().zip(old).all(|(new, old)| equal(new, old));
                }
                // The order of a list of type `map` is irrelevant.
                (0..new.len()).all(|at| self.index(at).is_some_and(|child| child.is_unchanged()))
            }
            (Json::Object(new), Json::Object(old)) => {
                new.len() == old.len()
                    && new
                        .keys()
                        .all(|name| self.key(name).is_some_and(|child| child.is_unchanged()))
            }
            (Json::Array(_) | Json::Object(_), _) | (_, Json::Array(_) | Json::Object(_)) => false,
            (new, old) => equal(new, old),
        }
    }
}

/// The elements of a list by key; of elements with equal keys, the first one.
#[derive(Debug, Default)]
pub(crate) struct MapList<'a> {
    keys: &'a [String],
    elements: HashMap<Key<'a>, &'a Json>,
}

impl<'a> MapList<'a> {
    /// The elements of a list of type `map`; empty for other lists.
    pub(crate) fn new(schema: &'a Node, elements: &'a [Json]) -> Self {
        let is_map_list = schema.kind == Type::Array && schema.list_type == Some(ListType::Map);
        if !is_map_list || schema.list_map_keys.is_empty() {
            return Self::default();
        }
        let keys = &*schema.list_map_keys;
        let mut by_key = HashMap::with_capacity(elements.len());
        for element in elements {
            if let Some(key) = key_of(element, keys) {
                by_key.entry(key).or_insert(element);
            }
        }
        Self {
            keys,
            elements: by_key,
        }
    }

    /// The element with the same keys as another one.
    pub(crate) fn get(&self, element: &Json) -> Option<&'a Json> {
        let key = key_of(element, self.keys)?;
        self.elements.get(&key).copied()
    }
}

/// The key that correlates an element with its old value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key<'a> {
    Bool(bool),
    Int(i64),
    Float(u64),
    Text(&'a str),
    Several(String),
}

fn key_of<'e>(element: &'e Json, keys: &[String]) -> Option<Key<'e>> {
    let entries = element.as_object()?;
    match keys {
        [key] => scalar_key(entries.get(key)?),
        keys => composite_key(entries, keys).map(Key::Several),
    }
}

fn scalar_key(value: &Json) -> Option<Key<'_>> {
    match Go::from(value) {
        Go::Bool(flag) => Some(Key::Bool(flag)),
        Go::Int(number) => Some(Key::Int(number)),
        // Positive and negative zero are equal.
        Go::Float(number) => Some(Key::Float((number + 0.0).to_bits())),
        Go::Text(text) => Some(Key::Text(text)),
        Go::Nil | Go::List(_) | Go::Map(_) => None,
    }
}

fn composite_key(entries: &Map<String, Json>, keys: &[String]) -> Option<String> {
    let mut text = String::new();
    for key in keys {
        text.push('\0');
        text.push_str(&match Go::from(entries.get(key)?) {
            Go::Bool(flag) => flag.to_string(),
            Go::Int(number) => number.to_string(),
            // Floats are formatted with six decimals, so close values have equal keys.
            Go::Float(number) => format!("{number:.6}"),
            Go::Text(text) => quote(text),
            Go::Nil | Go::List(_) | Go::Map(_) => return None,
        });
    }
    Some(text)
}
