//! Merging an applied configuration into an object.
//!
//! UPSTREAM: structured-merge-diff typed/merge.go

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::element::Element;
use super::shape::{Atom, List, MapOf, Ref};

/// The object with all fields of the configuration; other fields are unchanged. Both have been
/// [validated](super::validate), the configuration without duplicates.
pub(super) fn merge(ty: Ref<'_>, live: &Value, config: &Value) -> Value {
    both(ty, live, config).unwrap_or_default()
}

fn both(ty: Ref<'_>, live: &Value, config: &Value) -> Option<Value> {
    // The configuration determines the type of the value.
    match ty.resolve().deduce(Some(config)) {
        Atom { map: Some(map), .. } if !map.is_atomic => {
            let is_empty = |value: &Value| value.as_object().is_none_or(Map::is_empty);
            if is_empty(live) && is_empty(config) {
                return Some(config.clone());
            }
            members(&map, live, config)
        }
        Atom {
            map: None,
            scalar: None,
            list: Some(list),
        } if !list.is_atomic() => {
            let is_empty = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
            if is_empty(live) && is_empty(config) {
                return Some(config.clone());
            }
            elements(&list, live, config)
        }
        Atom { .. } => Some(config.clone()),
    }
}

/// Merges two values, or keeps the only one.
fn either(ty: Ref<'_>, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    match (live, config) {
        (Some(live), Some(config)) => both(ty, live, config),
        (Some(only), None) | (None, Some(only)) => Some(only.clone()),
        (None, None) => None,
    }
}

fn members(map: &MapOf<'_>, live: &Value, config: &Value) -> Option<Value> {
    let empty = Map::new();
    let live = live.as_object().unwrap_or(&empty);
    let config = config.as_object().unwrap_or(&empty);
    let mut out = Map::new();
    let added = config.keys().filter(|name| !live.contains_key(*name));
    for name in live.keys().chain(added) {
        let merged = either(map.member(name), live.get(name), config.get(name));
        if let Some(merged) = merged {
            out.insert(name.clone(), merged);
        }
    }
    (!out.is_empty()).then_some(Value::Object(out))
}

/// The elements of a list in order, with their path elements.
fn with_path_elements<'v>(list: &List<'_>, value: &'v Value) -> Vec<(Element, &'v Value)> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|value| Some((list.step(value).ok()?, value)))
        .collect()
}

/// Merges two lists: elements of both are in the order of the configuration, elements of the live list stay next to
/// their neighbours.
fn elements(list: &List<'_>, live: &Value, config: &Value) -> Option<Value> {
    static ABSENT: Value = Value::Null;
    let live = with_path_elements(list, live);
    let config = with_path_elements(list, config);
    let mut live_by_name: BTreeMap<&Element, &Value> = BTreeMap::new();
    for (name, value) in &live {
        live_by_name
            .entry(name)
            // Duplicate elements are replaced, not merged.
            .and_modify(|value| *value = &ABSENT)
            .or_insert(value);
    }
    let config_names: BTreeSet<&Element> = config.iter().map(|(name, _)| name).collect();
    let mut shared = config
        .iter()
        .map(|(name, _)| name)
        .filter(|name| live_by_name.contains_key(name));
    let mut next_shared = shared.next();
    let mut merged: BTreeSet<&Element> = BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let (mut at_live, mut at_config) = (0, 0);
    loop {
        let (left, right) = (live.get(at_live), config.get(at_config));
        if let Some((name, value)) = left {
            let is_shared = config_names.contains(name);
            match right {
                Some((wanted, value)) if name == wanted => {
                    merged.insert(wanted);
                    let live = live_by_name.get(name).copied();
                    out.extend(either(list.element, live, Some(value)));
                    at_live += 1;
                    at_config += 1;
                    next_shared = shared.next();
                    continue;
                }
                // The configuration contains it, but at a later position.
                Some(_) if is_shared && next_shared.is_some_and(|next| next != name) => {
                    at_live += 1;
                    continue;
                }
                _ => {}
            }
            if !is_shared {
                out.push(Value::clone(value));
                at_live += 1;
                continue;
            }
            if merged.contains(name) {
                at_live += 1;
            }
        }
        if let Some((name, value)) = right {
            merged.insert(name);
            let live = live_by_name.get(name).copied();
            out.extend(either(list.element, live, Some(value)));
            at_config += 1;
            if next_shared == Some(name) {
                next_shared = shared.next();
            }
        } else if left.is_none() {
            break;
        }
    }
    (!out.is_empty()).then_some(Value::Array(out))
}
