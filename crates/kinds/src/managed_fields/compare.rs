//! The field set of an object, and the differences of two objects.
//!
//! Neither validates: objects have been [validated](super::validate) before.
//!
//! UPSTREAM: structured-merge-diff typed/{compare,tofieldset}.go

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::element::Element;
use super::field_set::{Entry, FieldSet, Part};
use super::shape::{Atom, List, MapOf, Ref};
use super::value::equal;

/// The differences of two objects. A field is in at most one of the sets.
#[derive(Debug, Clone, Default)]
pub(super) struct Comparison {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

/// Compares two objects.
pub(super) fn compare(ty: Ref<'_>, old: &Value, new: &Value) -> Comparison {
    let delta = differ(ty, Some(old), Some(new));
    Comparison {
        added: delta.added.children,
        modified: delta.modified.children,
        removed: delta.removed.children,
    }
}

/// The field set of an object.
pub(super) fn fields(ty: Ref<'_>, value: &Value) -> FieldSet {
    fields_of(ty, value).children
}

/// The differences at a path and below.
#[derive(Debug, Default)]
struct Delta {
    added: Part,
    modified: Part,
    removed: Part,
}

impl Delta {
    fn union(self, other: Self) -> Self {
        Self {
            added: self.added.union(other.added),
            modified: self.modified.union(other.modified),
            removed: self.removed.union(other.removed),
        }
    }

    /// Adds the differences of a child.
    fn take(&mut self, child: Self, step: impl FnOnce() -> Element) {
        let parts = [
            (&mut self.added, child.added),
            (&mut self.modified, child.modified),
            (&mut self.removed, child.removed),
        ];
        let mut parts = parts.into_iter().filter(|(_, child)| !child.is_empty());
        let Some((first, child)) = parts.next() else {
            return;
        };
        let step = step();
        for (part, child) in parts {
            part.children.add(step.clone(), child);
        }
        first.children.add(step, child);
    }
}

type Side<'v> = Option<&'v Value>;

fn differ(ty: Ref<'_>, old: Side<'_>, new: Side<'_>) -> Delta {
    let mut delta = Delta::default();
    match (old, new) {
        (None, Some(value)) => delta.added = whole(ty, value),
        (Some(value), None) => delta.removed = whole(ty, value),
        (Some(old), Some(new)) => return both(ty, old, new),
        (None, None) => {}
    }
    delta
}

/// A value that exists on one side only, with all nested fields.
fn whole(ty: Ref<'_>, value: &Value) -> Part {
    let entries = match value {
        Value::Object(members) if !members.is_empty() => match ty.resolve().deduce(Some(value)) {
            Atom { map: Some(map), .. } if !map.is_atomic => {
                let entry = |(name, value): (&String, &Value)| {
                    let ty = map.member(name);
                    Entry {
                        element: ty.step(name),
                        part: whole(ty, value),
                    }
                };
                members.iter().map(entry).collect()
            }
            _ => Vec::new(),
        },
        Value::Array(items) if !items.is_empty() => match ty.resolve().deduce(Some(value)) {
            Atom {
                map: None,
                scalar: None,
                list: Some(list),
            } if !list.is_atomic() => {
                let named = with_path_elements(&list, Some(value));
                let groups = named.chunk_by(|left, right| left.0 == right.0);
                let entries = groups.filter_map(|group| {
                    let (element, value) = group.first()?;
                    let part = match group {
                        [_] => whole(list.element, value),
                        // Duplicate list elements are one field.
                        _ => Part {
                            member: true,
                            children: FieldSet::default(),
                        },
                    };
                    let element = element.clone();
                    Some(Entry { element, part })
                });
                entries.collect()
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    Part {
        member: true,
        children: FieldSet { entries },
    }
}

fn both(ty: Ref<'_>, old: &Value, new: &Value) -> Delta {
    let atom = ty.resolve();
    let (old_atom, new_atom) = (atom.deduce(Some(old)), atom.deduce(Some(new)));
    if old_atom.is_same_kind(&new_atom) {
        return by_atom(new_atom, old, new);
    }
    by_atom(old_atom, old, new).union(by_atom(new_atom, old, new))
}

/// The differences of two values by their type.
fn by_atom(atom: Atom<'_>, old: &Value, new: &Value) -> Delta {
    let has_items = |value: &Value| match value {
        Value::Array(items) if atom.map.is_none() => !items.is_empty(),
        Value::Object(entries) if atom.map.is_some() => !entries.is_empty(),
        _ => false,
    };
    match atom {
        Atom { map: Some(map), .. } if !map.is_atomic && (has_items(old) || has_items(new)) => {
            members(&map, old, new)
        }
        Atom {
            map: None,
            scalar: None,
            list: Some(list),
        } if !list.is_atomic() && (has_items(old) || has_items(new)) => elements(&list, old, new),
        _ => {
            let mut delta = Delta::default();
            delta.modified.member = !equal(old, new);
            delta
        }
    }
}

fn members(map: &MapOf<'_>, old: &Value, new: &Value) -> Delta {
    let mut old = old.as_object().into_iter().flatten().peekable();
    let mut new = new.as_object().into_iter().flatten().peekable();
    let mut delta = Delta::default();
    // Both are sorted by name.
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return delta,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((left, _)), Some((right, _))) => left.cmp(right),
        };
        let old = old.next_if(|_| order.is_le());
        let new = new.next_if(|_| order.is_ge());
        let Some((name, _)) = old.or(new) else {
            return delta;
        };
        let (old, new) = (old.map(|entry| entry.1), new.map(|entry| entry.1));
        let ty = map.member(name);
        let child = differ(ty, old, new);
        delta.take(child, || ty.step(name));
    }
}

/// The elements of a list with their path elements, sorted by path element. Duplicates are adjacent, in list order.
pub(super) fn with_path_elements<'v>(list: &List<'_>, side: Side<'v>) -> Vec<PathElement<'v>> {
    let mut found: Vec<_> = side
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|value| Some((list.step(value).ok()?, value)))
        .collect();
    found.sort_by(|left, right| left.0.cmp(&right.0));
    found
}

type PathElement<'v> = (Element, &'v Value);

fn name<'g>(group: &'g [PathElement<'_>]) -> Option<&'g Element> {
    group.first().map(|item| &item.0)
}

fn first<'v>(group: &[PathElement<'v>]) -> Option<&'v Value> {
    group.first().map(|item| item.1)
}

fn elements(list: &List<'_>, old: &Value, new: &Value) -> Delta {
    let old = with_path_elements(list, Some(old));
    let new = with_path_elements(list, Some(new));
    let mut old = old.chunk_by(|left, right| left.0 == right.0).peekable();
    let mut new = new.chunk_by(|left, right| left.0 == right.0).peekable();
    let mut delta = Delta::default();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return delta,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(left), Some(right)) => name(left).cmp(&name(right)),
        };
        let old = old.next_if(|_| order.is_le()).unwrap_or_default();
        let new = new.next_if(|_| order.is_ge()).unwrap_or_default();
        let Some(element) = name(old).or_else(|| name(new)) else {
            return delta;
        };
        let child = match (old.len(), new.len()) {
            (0 | 1, 0 | 1) => differ(list.element, first(old), first(new)),
            // Duplicate elements are compared together.
            (2.., 2..) => {
                let mut child = Delta::default();
                child.modified.member = old.len() != new.len()
                    || old.iter().zip(new).any(|(old, new)| !equal(old.1, new.1));
                child
            }
            (2.., _) => {
                let mut child = match first(new) {
                    Some(new) => differ(list.element, None, Some(new)),
                    None => Delta::default(),
                };
                child.removed.member = true;
                child
            }
            (_, _) => {
                let mut child = match first(old) {
                    Some(old) => differ(list.element, Some(old), None),
                    None => Delta::default(),
                };
                child.added.member = true;
                child
            }
        };
        delta.take(child, || element.clone());
    }
}

fn fields_of(ty: Ref<'_>, value: &Value) -> Part {
    let mut part = Part::default();
    match ty.resolve().deduce(Some(value)) {
        Atom { map: Some(map), .. } if map.is_atomic => part.member = true,
        Atom { map: Some(map), .. } => {
            for (name, value) in value.as_object().into_iter().flatten() {
                let field = map.field(name);
                let ty = field.unwrap_or(map.element);
                let mut child = fields_of(ty, value);
                child.member |= field.is_none()
                    || value.is_null()
                    || value.as_object().is_some_and(Map::is_empty);
                part.children.add(ty.step(name), child);
            }
        }
        Atom {
            scalar: Some(_), ..
        } => part.member = true,
        Atom {
            list: Some(list), ..
        } if list.is_atomic() => part.member = true,
        Atom {
            list: Some(list), ..
        } => {
            for group in
                with_path_elements(&list, Some(value)).chunk_by(|left, right| left.0 == right.0)
            {
                let Some((element, value)) = group.first() else {
                    continue;
                };
                // Duplicate elements are owned together.
                let mut child = if group.len() == 1 {
                    fields_of(list.element, value)
                } else {
                    Part::default()
                };
                child.member = true;
                part.children.add(element.clone(), child);
            }
        }
        Atom { .. } => {}
    }
    part
}
