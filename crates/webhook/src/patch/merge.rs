//! Carrying a change of the typed object over to the object that was sent.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::align::{align, common_key};
use super::diff::diff;
use super::{Change, Pointer};

/// Merges the change of a typed view from `before` to `after` into `sent`.
///
/// Whatever the view does not show stays. All three nest at most [`MAX_DEPTH`](crate::MAX_DEPTH)
/// levels.
#[must_use]
pub fn merge(sent: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return sent.clone();
    }
    match (sent, before, after) {
        (Value::Object(sent), Value::Object(before), Value::Object(after)) => {
            merge_objects(sent, before, after).into()
        }
        (Value::Array(sent), Value::Array(before), Value::Array(after))
            // The view shows one element for each that was sent, or it is no view.
            if sent.len() == before.len() =>
        {
            merge_lists(sent, before, after).into()
        }
        _ => after.clone(),
    }
}

/// The changes from `sent` to what [`merge`] makes of it, without making it: most of an object stays as
/// it is, and what stays is neither copied nor compared with itself.
pub(super) fn changes(
    sent: &Value,
    before: &Value,
    after: &Value,
    path: &Pointer,
    changes_so_far: &mut Vec<Change>,
) {
    if before == after {
        return;
    }
    let (Value::Object(sent_members), Value::Object(before), Value::Object(after)) =
        (sent, before, after)
    else {
        let wanted = merge(sent, before, after);
        return diff(sent, &wanted, path, changes_so_far);
    };
    let is_gone = |name: &&String| sent_members.contains_key(*name) && !after.contains_key(*name);
    for name in before.keys().filter(is_gone) {
        let path = path.child(name);
        changes_so_far.push(Change::Remove { path });
    }
    for (name, after) in after {
        match (sent_members.get(name), before.get(name)) {
            (_, Some(before)) if before == after => {}
            (Some(sent), Some(before)) => {
                changes(sent, before, after, &path.child(name), changes_so_far);
            }
            (Some(sent), None) => {
                let nothing = Value::Object(Map::new());
                changes(sent, &nothing, after, &path.child(name), changes_so_far);
            }
            (None, _) => changes_so_far.push(Change::Add {
                path: path.child(name),
                value: after.clone(),
            }),
        }
    }
}

fn merge_objects(
    sent: &Map<String, Value>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Map<String, Value> {
    let mut merged = Map::new();
    for (name, value) in sent {
        match (before.get(name), after.get(name)) {
            // Taken away by the change.
            (Some(_), None) => {}
            (Some(before), Some(after)) => {
                merged.insert(name.clone(), merge(value, before, after));
            }
            (None, None) => {
                merged.insert(name.clone(), value.clone());
            }
            // Was there, but not shown: empty, most likely.
            (None, Some(after)) => {
                let nothing = Value::Object(Map::new());
                merged.insert(name.clone(), merge(value, &nothing, after));
            }
        }
    }
    for (name, after) in after {
        // A view may show defaults that were never sent; they stay unsent unless they changed.
        if !sent.contains_key(name) && before.get(name) != Some(after) {
            merged.insert(name.clone(), after.clone());
        }
    }
    merged
}

fn merge_lists(sent: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let mut origin: Vec<Option<usize>> = vec![None; after.len()];
    if let Some(key) = common_key(before, after) {
        // Elements that name themselves are found wherever they went.
        let named = before.iter().enumerate();
        let named: HashMap<_, _> = named.map(|(place, old)| (old.get(key), place)).collect();
        for (origin, element) in origin.iter_mut().zip(after) {
            *origin = named.get(&element.get(key)).copied();
        }
    } else {
        let mut pairs = align(before, after);
        pairs.push((before.len(), after.len()));
        let (mut next_before, mut next_after) = (0, 0);
        for (at_before, at_after) in pairs {
            // In a gap, elements were changed in place as far as both sides go.
            for (old, new) in (next_before..at_before).zip(next_after..at_after) {
                origin[new] = Some(old);
            }
            if let Some(place) = origin.get_mut(at_after) {
                *place = Some(at_before);
            }
            (next_before, next_after) = (at_before + 1, at_after + 1);
        }
    }
    let merged = after.iter().zip(origin).map(|(element, origin)| {
        match origin.and_then(|place| Some((sent.get(place)?, before.get(place)?))) {
            Some((sent, before)) => merge(sent, before, element),
            None => element.clone(),
        }
    });
    merged.collect()
}
