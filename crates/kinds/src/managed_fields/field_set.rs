//! Sets of fields, as trees.
//!
//! Upstream keeps members and the children below them in two lists; here one entry says both. An
//! entry that is no member has children that are, so an empty set has no entries.
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

/// One field in a set: its own membership, and the fields below it.
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

/// Entries that are looked for in ascending order.
struct Ascending<'s> {
    rest: &'s [Entry],
    /// Few are looked for among many: an object has one set of changes, and may have thousands of owners.
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
    /// A set of members of members: every path is a list of names.
    #[must_use]
    pub fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(path.iter().map(|name| Element::field(name)));
        }
        set
    }

    /// Returns true if there are no fields in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn find(&self, element: &Element) -> Result<usize, usize> {
        // Sets are mostly built and read in order.
        match self.entries.last().map(|last| last.element.cmp(element)) {
            None | Some(Ordering::Less) => Err(self.entries.len()),
            _ => self
                .entries
                .binary_search_by(|entry| entry.element.cmp(element)),
        }
    }

    /// The part of a child.
    pub(super) fn get(&self, element: &Element) -> Option<&Part> {
        let at = self.find(element).ok()?;
        self.entries.get(at).map(|entry| &entry.part)
    }

    /// Adds what is said of a child.
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

    /// Adds a field. Nobody owns the whole object, so an empty path adds nothing.
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

    /// The fields of either set.
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

    /// The fields of any of these sets. Halves are joined, so that many small sets cost no more than what is in them.
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

    /// The fields of both sets.
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

    /// The fields of this set that are neither in the other nor below one that is.
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

    /// The fields that paths lead to, and all below them. A step of `None` is any step.
    pub(super) fn only(self, paths: &[&[Option<Element>]]) -> Self {
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
                    children: entry.part.children.only(&below),
                },
            })
        });
        Self {
            entries: entries.filter(|entry| !entry.part.is_empty()).collect(),
        }
    }

    /// Calls `each` with every field, those nearer to the root first.
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

    /// The set as `FieldsV1`.
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

    /// Reads `FieldsV1`. Types of elements that are not known are left out.
    ///
    /// # Errors
    ///
    /// The set does not parse, or is deeper than any object that is tracked.
    pub fn from_value(value: &Value) -> Result<Self, FieldSetError> {
        Ok(read(value, 0)?.children)
    }
}

/// A value that is not a set of fields, in upstream's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldSetError {
    /// The set is deeper than any object that is tracked.
    #[error("ReadMapCB: exceeded max depth")]
    TooDeep,
    /// The value is not a map.
    #[error("ReadMapCB: expect {{ or n")]
    NotAMap,
    /// A key does not name an element.
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
