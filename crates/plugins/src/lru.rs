//! An LRU map.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// An LRU map with at most `limit` entries.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    limit: usize,
    /// The usage counter, which determines the eviction order.
    uses: u64,
    entries: HashMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
}

impl<K: Eq + Hash + Clone, V> Lru<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            uses: 0,
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    /// Returns an entry, and marks it as used.
    pub(crate) fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let (used, value) = self.entries.get_mut(key)?;
        let key = self.by_use.remove(used)?;
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, key);
        Some(value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.uses += 1;
        let before = self.entries.insert(key.clone(), (self.uses, value));
        if let Some((used, _)) = before {
            self.by_use.remove(&used);
        }
        self.by_use.insert(self.uses, key);
        while self.entries.len() > self.limit {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            self.entries.remove(&oldest);
        }
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if let Some((used, _)) = self.entries.remove(key) {
            self.by_use.remove(&used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_what_was_not_asked_for_the_longest() {
        let mut lru = Lru::new(2);
        lru.insert("a", 1);
        lru.insert("b", 2);
        assert_eq!(lru.get_mut("a"), Some(&mut 1));
        lru.insert("c", 3);
        assert_eq!(lru.get_mut("b"), None);
        lru.insert("a", 4);
        assert_eq!(lru.get_mut("c"), Some(&mut 3));
        assert_eq!(lru.get_mut("a"), Some(&mut 4));
        lru.remove("a");
        assert_eq!((lru.entries.len(), lru.by_use.len()), (1, 1));
    }
}
