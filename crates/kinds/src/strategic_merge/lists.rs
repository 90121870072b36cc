//! Merging lists, by key or by value, and sorting the result.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::typed::Type;

use super::format::go_verb_v;
use super::scalar::{Key, key, same_type};
use super::{DELETE, DIRECTIVE, MERGE, PatchError, REPLACE, SET_ELEMENT_ORDER, go_kind, merge_map};

/// The merge rules of a list.
pub(super) struct Rules {
    pub(super) element: Type,
    /// The merge key; empty for lists of scalars.
    pub(super) merge_key: &'static str,
    /// True for a `$deleteFromPrimitiveList` directive.
    pub(super) is_delete_list: bool,
}

/// Merges two lists.
pub(super) fn merge(
    original: Vec<Value>,
    patch: Vec<Value>,
    rules: &Rules,
    depth: usize,
) -> Result<Vec<Value>, PatchError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if !holds_maps(&original, &patch)? {
        if rules.is_delete_list {
            let gone: BTreeSet<Key> = patch.iter().filter_map(key).collect();
            let stays = |value: &Value| key(value).is_none_or(|key| !gone.contains(&key));
            return Ok(original.into_iter().filter(stays).collect());
        }
        let mut both = original.clone();
        both.extend(patch.iter().cloned());
        let merged = deduplicate(both);
        return in_order(merged, &patch, &original, rules.merge_key, false);
    }
    if rules.merge_key.is_empty() {
        let kind = match rules.element.form() {
            form if rules.element == rules.element.target() => go_kind(form),
            _ => "ptr",
        };
        return Err(PatchError::other(format!(
            "cannot merge lists without merge key for {kind}"
        )));
    }
    let (original, patch) = special_elements(original, patch, rules.merge_key)?;
    let merged = merge_by_key(original.clone(), patch.clone(), rules, depth)?;
    in_order(merged, &patch, &original, rules.merge_key, true)
}

/// Returns true for a list of objects, or an error if the types of elements differ.
fn holds_maps(original: &[Value], patch: &[Value]) -> Result<bool, PatchError> {
    let mut elements = original.iter().chain(patch);
    let Some(first) = elements.next() else {
        return Err(PatchError::other("no elements in any of the given slices"));
    };
    if first.is_array() {
        return Err(PatchError::list_of_lists());
    }
    // Upstream fails on a leading null.
    if first.is_null() || !elements.all(|element| same_type(first, element)) {
        let lists = [original, patch].map(|list| Value::Array(list.to_vec()));
        return Err(PatchError::other(format!(
            "list element types are not identical: {}",
            go_verb_v(&Value::Array(lists.to_vec()))
        )));
    }
    Ok(first.is_object())
}

/// Executes the directives in elements, and removes these from the patch.
fn special_elements(
    original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let mut plain = Vec::new();
    let mut gone = BTreeSet::new();
    let mut replace = false;
    for element in patch {
        match element.get(DIRECTIVE) {
            None => plain.push(element),
            Some(directive) => match directive.as_str() {
                Some(DELETE) => match element.get(merge_key) {
                    Some(value) => gone.extend(key(value)),
                    None => return Err(PatchError::no_merge_key(&element, merge_key)),
                },
                Some(REPLACE) => replace = true,
                Some(MERGE) => {
                    return Err(PatchError::other(
                        "merging lists cannot yet be specified in the patch",
                    ));
                }
                _ => {
                    let (kind, map) = (super::format::go_verb_s(directive), go_verb_v(&element));
                    return Err(PatchError::other(format!(
                        "unknown patch type: {kind} in map: {map}"
                    )));
                }
            },
        }
    }
    if replace {
        return Ok((plain, Vec::new()));
    }
    let stays = |element: &Value| {
        let own = element.get(merge_key).and_then(key);
        own.is_none_or(|own| !gone.contains(&own))
    };
    Ok((original.into_iter().filter(stays).collect(), plain))
}

fn merge_by_key(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    rules: &Rules,
    depth: usize,
) -> Result<Vec<Value>, PatchError> {
    // The first element with a key counts.
    let mut places = BTreeMap::new();
    for (at, element) in original.iter().enumerate() {
        if let Some(key) = element.get(rules.merge_key).and_then(key) {
            places.entry(key).or_insert(at);
        }
    }
    for element in patch {
        let Some(own) = element.get(rules.merge_key) else {
            return Err(PatchError::no_merge_key(&element, rules.merge_key));
        };
        let own = key(own);
        let place = own.as_ref().and_then(|own| places.get(own)).copied();
        match place.and_then(|place| original.get_mut(place)) {
            Some(slot) => {
                let (Value::Object(current), Value::Object(element)) = (slot.take(), element)
                else {
                    continue;
                };
                *slot = Value::Object(merge_map(current, element, rules.element, depth + 1)?);
            }
            None => {
                if let Some(own) = own {
                    places.entry(own).or_insert(original.len());
                }
                original.push(element);
            }
        }
    }
    Ok(original)
}

/// Rejects a patch whose elements are missing in `$setElementOrder`, or in another order.
pub(super) fn check_order(
    patch: &[Value],
    order: &[Value],
    merge_key: &str,
) -> Result<(), PatchError> {
    if order.is_empty() || patch.is_empty() {
        return Ok(());
    }
    let mut named = order.iter();
    for element in patch {
        if !merge_key.is_empty() {
            if !element.is_object() {
                return Err(PatchError::bad_type("map[string]interface {}", element));
            }
            if element.get(DIRECTIVE).is_some() {
                continue;
            }
        }
        let mut matches = false;
        for candidate in named.by_ref() {
            if same_identity(element, candidate, merge_key)? {
                matches = true;
                break;
            }
        }
        if !matches {
            return Err(PatchError::other(format!(
                "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
                go_verb_v(&Value::Array(patch.to_vec())),
                go_verb_v(&Value::Array(order.to_vec())),
            )));
        }
    }
    Ok(())
}

fn same_identity(a: &Value, b: &Value, merge_key: &str) -> Result<bool, PatchError> {
    let identity = |value: &Value| {
        if merge_key.is_empty() {
            return Ok(key(value));
        }
        if !value.is_object() {
            return Err(PatchError::bad_type("map[string]interface {}", value));
        }
        match value.get(merge_key) {
            Some(own) => Ok(key(own)),
            None => Err(PatchError::no_merge_key(value, merge_key)),
        }
    };
    let (a, b) = (identity(a)?, identity(b)?);
    Ok(a.is_some() && a == b)
}

/// Sorts a merged list by `$setElementOrder`.
pub(super) fn put_in_order(
    merged: Vec<Value>,
    order: &[Value],
    original: &[Value],
    patch: &[Value],
    merge_key: &str,
) -> Result<Vec<Value>, PatchError> {
    if !merge_key.is_empty() {
        check_keys(&merged, merge_key)?;
        if let Some(at) = order.iter().position(|element| !element.is_object())
            && !merged.is_empty()
        {
            return Err(PatchError::other(format!(
                "value for key {at} is not a map"
            )));
        }
    }
    let maps = holds_maps(original, patch)?;
    in_order(merged, order, original, merge_key, maps)
}

/// Sorts the elements in the patch by the patch, the others by the live list, and merges the two lists.
fn in_order(
    merged: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    merge_key: &str,
    maps: bool,
) -> Result<Vec<Value>, PatchError> {
    if maps {
        check_keys(&merged, merge_key)?;
    }
    let identity = |value: &Value| {
        if maps {
            value.get(merge_key).and_then(key)
        } else {
            key(value)
        }
    };
    let places = |list: &[Value]| {
        let mut places = BTreeMap::new();
        for (at, value) in list.iter().enumerate() {
            if let Some(key) = identity(value) {
                places.entry(key).or_insert(at);
            }
        }
        places
    };
    let (by_patch, by_server) = (places(patch_order), places(server_order));
    let (named, rest): (Vec<Value>, Vec<Value>) = merged
        .into_iter()
        .partition(|value| identity(value).is_some_and(|key| by_patch.contains_key(&key)));
    if maps {
        check_keys(patch_order, merge_key)?;
        check_keys(server_order, merge_key)?;
    }
    let place = |places: &BTreeMap<Key, usize>, value: &Value| {
        identity(value).and_then(|key| places.get(&key).copied())
    };
    let named = sort(named, |value| place(&by_patch, value));
    let rest = sort(rest, |value| place(&by_server, value));
    Ok(weave(rest, named, |value| place(&by_server, value)))
}

/// Sorts by position. Upstream's comparison treats an element without position as smaller than its neighbour, which
/// affects short lists.
fn sort(list: Vec<Value>, place: impl Fn(&Value) -> Option<usize>) -> Vec<Value> {
    const INSERTION_SORT: usize = 20;
    let mut list: Vec<(Option<usize>, Value)> = list
        .into_iter()
        .map(|value| (place(&value), value))
        .collect();
    if list.len() > INSERTION_SORT {
        list.sort_by_key(|(place, _)| *place);
    } else {
        let less = |a: Option<usize>, b: Option<usize>| match (a, b) {
            (Some(a), Some(b)) => a < b,
            _ => true,
        };
        for end in 1..list.len() {
            let mut at = end;
            while at > 0 && less(list[at].0, list[at - 1].0) {
                list.swap(at, at - 1);
                at -= 1;
            }
        }
    }
    list.into_iter().map(|(_, value)| value).collect()
}

/// Merges two sorted lists: an element of `left` comes first if it does in the live list.
fn weave(
    left: Vec<Value>,
    right: Vec<Value>,
    place: impl Fn(&Value) -> Option<usize>,
) -> Vec<Value> {
    let mut out = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    loop {
        let take_left = match (left.peek(), right.peek()) {
            (None, None) => return out,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(a), Some(b)) => match (place(a), place(b)) {
                (Some(a), Some(b)) => a < b,
                _ => false,
            },
        };
        out.extend(if take_left { left.next() } else { right.next() });
    }
}

fn check_keys(list: &[Value], merge_key: &str) -> Result<(), PatchError> {
    for element in list {
        if !element.is_object() {
            return Err(PatchError::bad_type("map[string]interface {}", element));
        }
        if element.get(merge_key).is_none() {
            return Err(PatchError::no_merge_key(element, merge_key));
        }
    }
    Ok(())
}

/// Removes duplicate scalars. A duplicate is replaced by the last element, as upstream does, which changes the order.
fn deduplicate(mut list: Vec<Value>) -> Vec<Value> {
    let mut places: BTreeMap<Key, BTreeSet<usize>> = BTreeMap::new();
    for (at, value) in list.iter().enumerate() {
        if let Some(key) = key(value) {
            places.entry(key).or_default().insert(at);
        }
    }
    let mut at = 0;
    while at < list.len() {
        let Some(own) = list.get(at).and_then(key) else {
            at += 1;
            continue;
        };
        while let Some(next) = places
            .get(&own)
            .and_then(|set| set.range(at + 1..).next().copied())
        {
            let last = list.len() - 1;
            let moved = list.get(last).and_then(key);
            if let Some(set) = places.get_mut(&own) {
                set.remove(&next);
            }
            if let Some(set) = moved.as_ref().and_then(|moved| places.get_mut(moved)) {
                set.remove(&last);
                if next != last {
                    set.insert(next);
                }
            }
            list.swap_remove(next);
        }
        at += 1;
    }
    list
}
