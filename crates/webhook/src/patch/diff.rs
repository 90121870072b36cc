//! The changes between two documents. Both are nested at most [`MAX_DEPTH`](crate::MAX_DEPTH) levels.

use serde_json::{Map, Value};

use super::align::align;
use super::{Change, Pointer};

/// A list with more changes is replaced as a whole: API servers limit a patch to 10,000 operations.
const MAX_CHANGES_OF_A_LIST: usize = 1_000;

pub(super) fn diff(from: &Value, to: &Value, path: &Pointer, changes: &mut Vec<Change>) {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => diff_objects(from, to, path, changes),
        (Value::Array(from_items), Value::Array(to_items)) => {
            let so_far = changes.len();
            diff_lists(from_items, to_items, path, changes);
            if changes.len() - so_far > MAX_CHANGES_OF_A_LIST {
                changes.truncate(so_far);
                replace(to, path, changes);
            }
        }
        _ if from == to => {}
        _ => replace(to, path, changes),
    }
}

fn replace(to: &Value, path: &Pointer, changes: &mut Vec<Change>) {
    changes.push(Change::Replace {
        path: path.clone(),
        value: to.clone(),
    });
}

fn diff_objects(
    from: &Map<String, Value>,
    to: &Map<String, Value>,
    path: &Pointer,
    changes: &mut Vec<Change>,
) {
    for name in from.keys().filter(|&name| !to.contains_key(name)) {
        let path = path.child(name);
        changes.push(Change::Remove { path });
    }
    for (name, value) in to {
        match from.get(name) {
            // Most of an object is unchanged; unchanged values need no path.
            Some(before) if before == value => {}
            Some(before) => diff(before, value, &path.child(name), changes),
            None => changes.push(Change::Add {
                path: path.child(name),
                value: value.clone(),
            }),
        }
    }
}

/// Between two kept elements, the others are replaced pairwise; the remaining ones are removed or added.
fn diff_lists(from: &[Value], to: &[Value], path: &Pointer, changes: &mut Vec<Change>) {
    // The position of the next element in the list after the changes so far.
    let mut place = 0;
    let mut length = from.len();
    let (mut next_from, mut next_to) = (0, 0);
    let mut pairs = align(from, to);
    pairs.push((from.len(), to.len()));
    for (at_from, at_to) in pairs {
        let (gone, new) = (&from[next_from..at_from], &to[next_to..at_to]);
        for (before, after) in gone.iter().zip(new) {
            let path = path.index(place);
            if before != after {
                let value = after.clone();
                changes.push(Change::Replace { path, value });
            }
            place += 1;
        }
        for _ in new.len()..gone.len() {
            let path = path.index(place);
            changes.push(Change::Remove { path });
            length -= 1;
        }
        for value in new.iter().skip(gone.len()) {
            let is_last = place == length;
            let path = if is_last {
                path.end()
            } else {
                path.index(place)
            };
            let value = value.clone();
            changes.push(Change::Add { path, value });
            (place, length) = (place + 1, length + 1);
        }
        if let (Some(before), Some(after)) = (from.get(at_from), to.get(at_to)) {
            if before != after {
                diff(before, after, &path.index(place), changes);
            }
            place += 1;
        }
        (next_from, next_to) = (at_from + 1, at_to + 1);
    }
}
