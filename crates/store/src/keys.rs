//! The keys of one revision with their entries, and how many there are under a prefix.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use equivalent::{Comparable, Equivalent};
use imbl::{OrdMap, OrdSet};

use crate::form::{Alike, Forms};
use crate::{Entry, Revision};

/// The entries in the order of their keys. Nodes of the trees are copied by every write, so they hold little.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    entries: OrdSet<Stored>,
    /// The number of entries under each prefix that ends with a slash, which the tree cannot count.
    counts: OrdMap<Arc<[u8]>, usize>,
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[cfg(all(test, feature = "etcd"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stored> {
        self.entries.iter()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Stored> {
        self.entries.get(key)
    }

    /// Puts an entry in place of the one that has its key, and gives that one.
    pub(crate) fn insert(&mut self, stored: Stored) -> Option<Stored> {
        let replaced = self.entries.insert(stored.clone());
        if replaced.is_none() {
            for prefix in prefixes(&stored.whole_key()) {
                match self.counts.get_mut(prefix) {
                    Some(count) => *count += 1,
                    None => {
                        self.counts.insert(prefix.into(), 1);
                    }
                }
            }
        }
        replaced
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Stored> {
        let removed = self.entries.remove(key)?;
        for prefix in prefixes(key.as_bytes()) {
            match self.counts.get_mut(prefix) {
                Some(count) if *count > 1 => *count -= 1,
                _ => {
                    self.counts.remove(prefix);
                }
            }
        }
        Some(removed)
    }

    /// The number of entries under a prefix, if tracked.
    pub(crate) fn count(&self, prefix: &str) -> Option<usize> {
        let is_kept = prefix.len() > 1 && prefix.ends_with('/');
        is_kept.then(|| self.counts.get(prefix.as_bytes()).copied().unwrap_or(0))
    }

    /// The entries under a prefix and after a key, in order.
    pub(crate) fn range<'k>(
        &'k self,
        prefix: &'k str,
        after: Option<&'k str>,
    ) -> impl Iterator<Item = &'k Stored> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.entries
            .range::<_, str>((start, Bound::Unbounded))
            .take_while(move |stored| stored.is_under(prefix))
    }
}

impl IntoIterator for Keys {
    type Item = Stored;
    type IntoIter = imbl::ordset::ConsumingIter<Stored, imbl::shared_ptr::DefaultSharedPtr>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

/// The prefixes of a key that end with a slash, but for its first byte.
fn prefixes(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = key.iter().enumerate().skip(1);
    ends.filter(|(_, byte)| **byte == b'/')
        .filter_map(|(end, _)| key.get(..=end))
}

/// An entry: its key, its value and their revisions. Clones share them.
#[derive(Debug, Clone)]
pub(crate) enum Stored {
    Whole(Arc<Entry>),
    Alike(Alike),
}

impl Stored {
    pub(crate) fn new(entry: Entry, forms: &Forms) -> Self {
        match forms.keep(&entry) {
            Some(alike) => Self::Alike(alike),
            None => Self::Whole(Arc::new(entry)),
        }
    }

    pub(crate) fn entry(&self) -> Entry {
        match self {
            Self::Whole(entry) => Entry::clone(entry),
            Self::Alike(alike) => alike.entry(),
        }
    }

    pub(crate) fn shared(&self) -> Arc<Entry> {
        match self {
            Self::Whole(entry) => Arc::clone(entry),
            Self::Alike(alike) => Arc::new(alike.entry()),
        }
    }

    pub(crate) fn created(&self) -> Revision {
        match self {
            Self::Whole(entry) => entry.created,
            Self::Alike(alike) => alike.created(),
        }
    }

    /// The revision the value was last changed at.
    pub(crate) fn revision(&self) -> Revision {
        match self {
            Self::Whole(entry) => entry.revision,
            Self::Alike(alike) => alike.revision(),
        }
    }

    /// The key in two parts, of which the second may be empty.
    fn key(&self) -> (&[u8], &[u8]) {
        match self {
            Self::Whole(entry) => (entry.key.as_bytes(), &[]),
            Self::Alike(alike) => alike.key(),
        }
    }

    fn whole_key(&self) -> Cow<'_, [u8]> {
        match self.key() {
            (key, []) => Cow::Borrowed(key),
            (head, tail) => Cow::Owned([head, tail].concat()),
        }
    }

    pub(crate) fn is_under(&self, prefix: &str) -> bool {
        let (head, tail) = self.key();
        match prefix.as_bytes().split_at_checked(head.len()) {
            None => head.starts_with(prefix.as_bytes()),
            Some((start, rest)) => head == start && tail.starts_with(rest),
        }
    }

    /// The bytes that its value keeps in memory.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Whole(entry) => entry.value.len(),
            Self::Alike(alike) => alike.size(),
        }
    }
}

/// Compares two keys, each in two parts.
fn compare(left: (&[u8], &[u8]), right: (&[u8], &[u8])) -> Ordering {
    if left.0.len() == right.0.len() {
        return left.0.cmp(right.0).then_with(|| left.1.cmp(right.1));
    }
    if left.1.is_empty() && right.1.is_empty() {
        return left.0.cmp(right.0);
    }
    let left = left.0.iter().chain(left.1);
    left.cmp(right.0.iter().chain(right.1))
}

impl PartialEq for Stored {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Stored {}

impl PartialOrd for Stored {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By key.
impl Ord for Stored {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.key(), other.key())
    }
}

impl Equivalent<Stored> for str {
    fn equivalent(&self, stored: &Stored) -> bool {
        self.compare(stored).is_eq()
    }
}

impl Comparable<Stored> for str {
    fn compare(&self, stored: &Stored) -> Ordering {
        compare((self.as_bytes(), &[]), stored.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(key: &str) -> Stored {
        Stored::Whole(Arc::new(Entry {
            key: key.into(),
            value: bytes::Bytes::new(),
            created: Revision::START,
            revision: Revision::START,
        }))
    }

    #[test]
    fn counts_what_is_under_a_prefix() {
        let mut keys = Keys::new();
        for key in ["/g/a/x/1", "/g/a/x/2", "/g/a/y/1", "/g/ab/1", "/g/a/x/2"] {
            keys.insert(stored(key));
        }
        let counts = |keys: &Keys| {
            ["/g/", "/g/a/", "/g/a/x/", "/g/a/y/", "/g/ab/", "/h/"].map(|prefix| {
                let counted = keys.range(prefix, None).count();
                assert_eq!(keys.count(prefix), Some(counted), "{prefix}");
                counted
            })
        };
        assert_eq!(counts(&keys), [4, 3, 2, 1, 1, 0]);
        let earlier = keys.clone();
        assert!(keys.remove("/g/a/x/3").is_none());
        assert!(keys.remove("/g/a/x/1").is_some());
        assert!(keys.remove("/g/a/y/1").is_some());
        assert_eq!(counts(&keys), [2, 1, 1, 0, 1, 0]);
        assert_eq!(counts(&earlier), [4, 3, 2, 1, 1, 0]);
        assert_eq!(keys.counts.len(), 4, "nothing is kept of what is gone");
        for unknown in ["", "/", "/g/a"] {
            assert_eq!(keys.count(unknown), None);
        }
    }
}
