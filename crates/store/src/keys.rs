//! The keys of one revision with their entries, and the number of entries per prefix.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use equivalent::{Comparable, Equivalent};
use imbl::{OrdMap, OrdSet};

use crate::template::{Compressed, Templates};
use crate::{Bloom, Entry, MemoryOptions, Revision};

/// The entries, ordered by key. Every write copies tree nodes, so entries are small.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    entries: OrdSet<Stored>,
    /// The number of entries under each prefix with a trailing slash, which the tree cannot count.
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
        self.entries.get(key.as_bytes())
    }

    /// Inserts an entry, and returns the replaced one with the same key.
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
        let removed = self.entries.remove(key.as_bytes())?;
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
        // Both ends are searched once, instead of comparing every key.
        let end = prefix_end(prefix.as_bytes());
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after.as_bytes()),
            _ => Bound::Included(prefix.as_bytes()),
        };
        self.entries.range::<_, [u8]>((start, end))
    }
}

impl IntoIterator for Keys {
    type Item = Stored;
    type IntoIter = imbl::ordset::ConsumingIter<Stored, imbl::shared_ptr::DefaultSharedPtr>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

/// The end of the key range of a prefix; `None` if unbounded.
pub(crate) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

/// The prefixes of a key with a trailing slash, except the first byte.
fn prefixes(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = key.iter().enumerate().skip(1);
    ends.filter(|(_, byte)| **byte == b'/')
        .filter_map(|(end, _)| key.get(..=end))
}

/// How entries are stored in memory.
#[derive(Debug)]
pub(crate) struct EntryEncoding {
    templates: Templates,
    bloom: fn(&[u8]) -> Bloom,
}

impl EntryEncoding {
    pub(crate) fn new(options: &MemoryOptions) -> Arc<Self> {
        Arc::new(Self {
            templates: Templates::new(options.compressed_prefixes),
            bloom: options.bloom,
        })
    }

    pub(crate) fn entry(&self, entry: Entry) -> Stored {
        let bloom = (self.bloom)(&entry.value);
        match self.templates.compress(&entry) {
            Some(compressed) => Stored::Compressed(bloom, compressed),
            None => Stored::Whole(bloom, Arc::new(entry)),
        }
    }
}

/// A stored entry: its key, its value and their revisions, shared by clones, and the Bloom filter of its
/// value.
#[derive(Debug, Clone)]
pub(crate) enum Stored {
    Whole(Bloom, Arc<Entry>),
    Compressed(Bloom, Compressed),
}

impl Stored {
    pub(crate) fn bloom(&self) -> Bloom {
        match self {
            Self::Whole(bloom, _) | Self::Compressed(bloom, _) => *bloom,
        }
    }

    pub(crate) fn entry(&self) -> Entry {
        match self {
            Self::Whole(_, entry) => Entry::clone(entry),
            Self::Compressed(_, compressed) => compressed.entry(),
        }
    }

    pub(crate) fn shared(&self) -> Arc<Entry> {
        match self {
            Self::Whole(_, entry) => Arc::clone(entry),
            Self::Compressed(_, compressed) => Arc::new(compressed.entry()),
        }
    }

    pub(crate) fn created(&self) -> Revision {
        match self {
            Self::Whole(_, entry) => entry.created,
            Self::Compressed(_, compressed) => compressed.created(),
        }
    }

    /// The revision of the last change.
    pub(crate) fn revision(&self) -> Revision {
        match self {
            Self::Whole(_, entry) => entry.revision,
            Self::Compressed(_, compressed) => compressed.revision(),
        }
    }

    /// The key in two parts, the second of which may be empty.
    fn key(&self) -> (&[u8], &[u8]) {
        match self {
            Self::Whole(_, entry) => (entry.key.as_bytes(), &[]),
            Self::Compressed(_, compressed) => compressed.key(),
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

    /// The memory size of its value in bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Whole(_, entry) => entry.value.len(),
            Self::Compressed(_, compressed) => compressed.size(),
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

/// Ordered by key.
impl Ord for Stored {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self.key(), other.key())
    }
}

impl Equivalent<Stored> for [u8] {
    fn equivalent(&self, stored: &Stored) -> bool {
        self.compare(stored).is_eq()
    }
}

impl Comparable<Stored> for [u8] {
    fn compare(&self, stored: &Stored) -> Ordering {
        compare((self, &[]), stored.key())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored(key: &str) -> Stored {
        Stored::Whole(
            Bloom::FULL,
            Arc::new(Entry {
                key: key.into(),
                value: bytes::Bytes::new(),
                created: Revision::START,
                revision: Revision::START,
            }),
        )
    }

    proptest! {
        #[test]
        fn a_range_has_what_is_under_its_prefix(
            names in prop::collection::btree_set("[a-c/é]{0,4}", 0..80),
            prefix in "[a-c/é]{0,2}",
            after in prop::option::of("[a-d/é]{0,4}"),
        ) {
            let mut keys = Keys::new();
            for name in &names {
                keys.insert(stored(name));
            }
            let found: Vec<_> = keys.range(&prefix, after.as_deref()).collect();
            let found: Vec<_> = found.iter().map(|stored| stored.entry().key).collect();
            let wanted = |name: &&String| {
                name.starts_with(&prefix) && after.as_ref().is_none_or(|after| *name > after)
            };
            let wanted: Vec<_> = names.iter().filter(wanted).map(|name| name.as_str().into()).collect();
            prop_assert_eq!(found, wanted as Vec<Arc<str>>);
        }
    }

    #[test]
    fn the_end_of_a_prefix_is_after_all_that_have_it() {
        for (prefix, end) in [
            (&b"/a/"[..], &b"/a0"[..]),
            (b"a\xff\xff", b"b"),
            (b"\xff", b""),
            (b"", b""),
        ] {
            assert_eq!(prefix_end(prefix).unwrap_or_default(), end);
        }
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
