//! Field sets, as trees.
//!
//! Upstream has separate lists of members and children; here, an entry represents both. An entry that is not a member
//! has children that are, so an empty set has no entries.
//!
//! UPSTREAM: structured-merge-diff fieldpath/{set,serialize}.go

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::element::{Element, ElementError};
use super::{MAX_DEPTH, SLACK};

/// A set of fields of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    pub(super) entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) element: Element,
    pub(super) part: Part,
}

/// An entry of a field set: its own membership, and nested fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) member: bool,
    pub(super) children: FieldSet,
}

impl Part {
    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self {
            member: self.member || other.member,
            children: self.children.union(other.children),
        }
    }
}

/// Entries that are searched in ascending order.
struct Ascending<'s> {
    rest: &'s [Entry],
    /// The searched set is much larger: one set of changes is compared with up to thousands of managers.
    is_sparse: bool,
}

impl<'s> Ascending<'s> {
    fn new(set: &'s FieldSet, wanted: &FieldSet) -> Self {
        Self {
            rest: &set.entries,
            is_sparse: set.entries.len() / 16 > wanted.entries.len(),
        }
    }

    fn find(&mut self, element: &Element) -> Option<&'s Entry> {
        let is_before = |entry: &Entry| entry.element < *element;
        let skipped = if self.is_sparse {
            self.rest.partition_point(is_before)
        } else {
            let mut entries = self.rest.iter();
            entries
                .position(|entry| !is_before(entry))
                .unwrap_or(self.rest.len())
        };
        self.rest = self.rest.get(skipped..).unwrap_or_default();
        self.rest.first().filter(|entry| entry.element == *element)
    }
}

impl FieldSet {
    /// A set of nested field names: every path is a list of names.
    #[must_use]
    pub fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(path.iter().map(|name| Element::field(name)));
        }
        set
    }

    /// Returns true if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn find(&self, element: &Element) -> Result<usize, usize> {
        // Sets are mostly built and read in ascending order.
        match self.entries.last().map(|last| last.element.cmp(element)) {
            None | Some(Ordering::Less) => Err(self.entries.len()),
            _ => self
                .entries
                .binary_search_by(|entry| entry.element.cmp(element)),
        }
    }

    /// The entry of a child.
    pub(super) fn get(&self, element: &Element) -> Option<&Part> {
        let at = self.find(element).ok()?;
        self.entries.get(at).map(|entry| &entry.part)
    }

    /// Adds the entry of a child.
    pub(super) fn add(&mut self, element: Element, part: Part) {
        if part.is_empty() {
            return;
        }
        match self.find(&element) {
            Ok(at) => {
                if let Some(entry) = self.entries.get_mut(at) {
                    entry.part = std::mem::take(&mut entry.part).union(part);
                }
            }
            Err(at) => self.entries.insert(at, Entry { element, part }),
        }
    }

    /// Adds a field. The whole object cannot be owned, so an empty path adds nothing.
    pub fn insert(
        &mut self,
        path: impl IntoIterator<Item = Element, IntoIter: DoubleEndedIterator>,
    ) {
        let mut part = Part {
            member: true,
            children: Self::default(),
        };
        let mut steps = path.into_iter();
        let Some(first) = steps.next() else {
            return;
        };
        while let Some(step) = steps.next_back() {
            let mut children = Self::default();
            children.add(step, part);
            part = Part {
                member: false,
                children,
            };
        }
        self.add(first, part);
    }

    /// Returns true if a field is in the set.
    #[must_use]
    pub fn contains(&self, path: &[Element]) -> bool {
        let Some((last, parents)) = path.split_last() else {
            return false;
        };
        let mut set = self;
        for step in parents {
            match set.get(step) {
                Some(part) => set = &part.children,
                None => return false,
            }
        }
        set.get(last).is_some_and(|part| part.member)
    }

    /// The union of two sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        if other.is_empty() {
            return self;
        }
        if self.is_empty() {
            return other;
        }
        let mut entries = Vec::with_capacity(self.entries.len().max(other.entries.len()));
        let mut right = other.entries.into_iter().peekable();
        for left in self.entries {
            while let Some(entry) = right.next_if(|entry| entry.element < left.element) {
                entries.push(entry);
            }
            let same = right.next_if(|entry| entry.element == left.element);
            entries.push(match same {
                Some(entry) => Entry {
                    element: left.element,
                    part: left.part.union(entry.part),
                },
                None => left,
            });
        }
        entries.extend(right);
        Self { entries }
    }

    /// The union of several sets. Halves are merged recursively, so that many small sets take time in proportion to
    /// their total size.
    pub(super) fn union_of(mut sets: Vec<Self>) -> Self {
        while sets.len() > 1 {
            let mut pairs = sets.into_iter();
            let mut joined = Vec::with_capacity(pairs.len().div_ceil(2));
            while let Some(left) = pairs.next() {
                joined.push(left.union(pairs.next().unwrap_or_default()));
            }
            sets = joined;
        }
        sets.pop().unwrap_or_default()
    }

    /// The intersection of two sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut entries = Vec::new();
        let mut right = Ascending::new(other, self);
        for left in &self.entries {
            let Some(entry) = right.find(&left.element) else {
                continue;
            };
            let part = Part {
                member: left.part.member && entry.part.member,
                children: left.part.children.intersection(&entry.part.children),
            };
            if !part.is_empty() {
                entries.push(Entry {
                    element: left.element.clone(),
                    part,
                });
            }
        }
        Self { entries }
    }

    /// The fields of this set that are not in the other.
    #[must_use]
    pub fn difference(self, other: &Self) -> Self {
        self.without(other, &|part, other| {
            Some(Part {
                member: part.member && !other.member,
                children: part.children.difference(&other.children),
            })
        })
    }

    /// The fields of this set that are neither in the other set nor below its members.
    #[must_use]
    pub fn recursive_difference(self, other: &Self) -> Self {
        self.without(other, &|part, other| {
            (!other.member).then(|| Part {
                member: part.member,
                children: part.children.recursive_difference(&other.children),
            })
        })
    }

    fn without(mut self, other: &Self, rest: &dyn Fn(Part, &Part) -> Option<Part>) -> Self {
        if other.is_empty() || self.is_empty() {
            return self;
        }
        let mut right = Ascending::new(other, &self);
        self.entries.retain_mut(|left| {
            let Some(entry) = right.find(&left.element) else {
                return true;
            };
            match rest(std::mem::take(&mut left.part), &entry.part) {
                Some(part) => {
                    left.part = part;
                    !left.part.is_empty()
                }
                None => false,
            }
        });
        self
    }

    /// The fields at these paths, including nested ones. `None` matches any path element.
    pub(super) fn restricted_to(self, paths: &[&[Option<Element>]]) -> Self {
        if paths.iter().any(|path| path.is_empty()) {
            return self;
        }
        let entries = self.entries.into_iter().filter_map(|entry| {
            let below: Vec<_> = paths
                .iter()
                .filter_map(|path| path.split_first())
                .filter(|(step, _)| step.as_ref().is_none_or(|step| *step == entry.element))
                .map(|(_, below)| below)
                .collect();
            (!below.is_empty()).then(|| Entry {
                element: entry.element,
                part: Part {
                    member: entry.part.member,
                    children: entry.part.children.restricted_to(&below),
                },
            })
        });
        Self {
            entries: entries.filter(|entry| !entry.part.is_empty()).collect(),
        }
    }

    /// Calls `each` for every field, parents first.
    pub(super) fn for_each(&self, each: &mut dyn FnMut(&[&Element])) {
        self.visit(&mut Vec::new(), each);
    }

    fn visit<'s>(&'s self, path: &mut Vec<&'s Element>, each: &mut dyn FnMut(&[&Element])) {
        for entry in self.entries.iter().filter(|entry| entry.part.member) {
            path.push(&entry.element);
            each(path);
            path.pop();
        }
        for entry in &self.entries {
            path.push(&entry.element);
            entry.part.children.visit(path, each);
            path.pop();
        }
    }

    /// The set in `FieldsV1` format.
    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::Object(self.to_map(false))
    }

    fn to_map(&self, is_member: bool) -> Map<String, Value> {
        let mut out = Map::new();
        // A member without children is an empty map.
        if is_member && !self.is_empty() {
            out.insert(String::from("."), Value::Object(Map::new()));
        }
        for Entry { element, part } in &self.entries {
            let below = part.children.to_map(part.member);
            out.insert(element.encode(), Value::Object(below));
        }
        out
    }

    /// Parses `FieldsV1`. Unknown types of path elements are skipped.
    ///
    /// # Errors
    ///
    /// The set is invalid, or deeper than any tracked object.
    pub fn from_value(value: &Value) -> Result<Self, FieldSetError> {
        Ok(read(value, 0)?.children)
    }
}

/// An invalid field set, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldSetError {
    /// The set is deeper than any tracked object.
    #[error("ReadMapCB: exceeded max depth")]
    TooDeep,
    /// The value is not a map.
    #[error("ReadMapCB: expect {{ or n")]
    NotAMap,
    /// A key is not a path element.
    #[error("parsing key as path element: {0}")]
    Element(Box<str>),
}

fn read(value: &Value, depth: usize) -> Result<Part, FieldSetError> {
    if depth > MAX_DEPTH + SLACK {
        return Err(FieldSetError::TooDeep);
    }
    let entries = match value {
        Value::Object(entries) => entries,
        Value::Null => {
            return Ok(Part {
                member: true,
                children: FieldSet::default(),
            });
        }
        _ => return Err(FieldSetError::NotAMap),
    };
    let mut part = Part::default();
    for (key, value) in entries {
        if key == "." {
            part.member = true;
            continue;
        }
        match Element::parse(key) {
            Ok(element) => part.children.add(element, read(value, depth + 1)?),
            Err(ElementError::Unknown) => {}
            Err(ElementError::Malformed(problem)) => {
                return Err(FieldSetError::Element(problem.into()));
            }
        }
    }
    part.member |= part.children.is_empty();
    Ok(part)
}
