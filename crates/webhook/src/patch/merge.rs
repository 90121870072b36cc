//! Merges a change of the typed object into the original object.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::align::{align, common_key};
use super::diff::diff;
use super::{Change, Pointer};
use crate::denial::Refusal;
use crate::object::decode;

/// Merges the change of a typed view from `before` to `after` into `sent`.
///
/// Fields outside the view are kept. All three are nested at most [`MAX_DEPTH`](crate::MAX_DEPTH) levels.
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
            // A view has the same number of elements as the original list, otherwise it is not a view.
            if sent.len() == before.len() =>
        {
            merge_lists(sent, before, after).into()
        }
        _ => after.clone(),
    }
}

/// The fields of an object, each as JSON text.
type Members<'t> = BTreeMap<Cow<'t, str>, &'t RawValue>;

/// The three texts of a value: the original, and its typed view before and after the change.
#[derive(Clone, Copy)]
pub(super) struct Texts<'t> {
    pub(super) sent: &'t str,
    pub(super) before: &'t str,
    pub(super) after: &'t str,
}

impl<'t> Texts<'t> {
    /// The fields of each. `None` if one of them is not an object.
    fn members(self) -> Option<[Members<'t>; 3]> {
        let read = |text| serde_json::from_str(text).ok();
        Some([read(self.sent)?, read(self.before)?, read(self.after)?])
    }

    /// The changes from the original to the result of [`merge`]. Most of an object is unchanged: only differing texts
    /// are parsed.
    pub(super) fn changes(
        self,
        path: &Pointer,
        changes_so_far: &mut Vec<Change>,
    ) -> Result<(), Refusal> {
        if self.before == self.after {
            return Ok(());
        }
        let Some([sent, before, after]) = self.members() else {
            let sent = decode(self.sent, "object")?;
            let (before, after) = (
                decode(self.before, "object")?,
                decode(self.after, "object")?,
            );
            diff(&sent, &merge(&sent, &before, &after), path, changes_so_far);
            return Ok(());
        };
        let is_gone = |name: &&Cow<'_, str>| sent.contains_key(*name) && !after.contains_key(*name);
        for name in before.keys().filter(is_gone) {
            let path = path.child(name);
            changes_so_far.push(Change::Remove { path });
        }
        for (name, after) in after {
            let before = before.get(&name).map(|before| before.get());
            match sent.get(&name) {
                _ if before == Some(after.get()) => {}
                Some(sent) => {
                    let member = Texts {
                        sent: sent.get(),
                        before: before.unwrap_or("{}"),
                        after: after.get(),
                    };
                    member.changes(&path.child(&name), changes_so_far)?;
                }
                None => {
                    let value: Value = decode(after.get(), "object")?;
                    let before: Option<Value> =
                        before.map(|it| decode(it, "object")).transpose()?;
                    // Texts of equal values may differ: hash maps have no fixed order.
                    if before.as_ref() != Some(&value) {
                        let path = path.child(&name);
                        changes_so_far.push(Change::Add { path, value });
                    }
                }
            }
        }
        Ok(())
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
            // Removed by the change.
            (Some(_), None) => {}
            (Some(before), Some(after)) => {
                merged.insert(name.clone(), merge(value, before, after));
            }
            (None, None) => {
                merged.insert(name.clone(), value.clone());
            }
            // Present, but not in the view: most likely empty.
            (None, Some(after)) => {
                let nothing = Value::Object(Map::new());
                merged.insert(name.clone(), merge(value, &nothing, after));
            }
        }
    }
    for (name, after) in after {
        // A view may contain defaults that were not sent; they are omitted unless they changed.
        if !sent.contains_key(name) && before.get(name) != Some(after) {
            merged.insert(name.clone(), after.clone());
        }
    }
    merged
}

fn merge_lists(sent: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let mut origin: Vec<Option<usize>> = vec![None; after.len()];
    if let Some(key) = common_key(before, after) {
        // Elements with an identifying field are found at any position.
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
            // In a gap, elements were changed in place, pairwise.
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
