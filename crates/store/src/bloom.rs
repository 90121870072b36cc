//! Bloom filters of values, stored with the entries: a list skips entries without reading them.

use std::hash::{BuildHasher as _, Hash};

use foldhash::fast::FixedState;

/// A Bloom filter of 56 bits: together with a tag and a pointer, it fits into two words.
///
/// The items are defined by the users of the store: those of a value by the opener
/// ([`MemoryOptions::bloom`](crate::MemoryOptions::bloom)), the required ones of a list by the caller
/// ([`List::bloom`](crate::List::bloom)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bloom([u8; 7]);

impl Bloom {
    /// The empty filter, which is contained in every filter.
    pub const EMPTY: Self = Self([0; 7]);
    /// The filter that contains every filter, for values with unknown items.
    pub const FULL: Self = Self([0xff; 7]);
    /// Enough bits that two items rarely collide, with a dozen items in a filter.
    const BITS: u64 = 56;

    /// Adds an item.
    pub fn insert(&mut self, item: &impl Hash) {
        // Filters are not persisted, so a fixed seed is sufficient. An attacker with colliding items only
        // makes lists read entries that they could skip.
        let hash = FixedState::default().hash_one(item);
        for half in [hash & u64::from(u32::MAX), hash >> 32] {
            let bit = (half * Self::BITS) >> 32;
            if let Some(byte) = self.0.get_mut((bit / 8) as usize) {
                *byte |= 1 << (bit % 8);
            }
        }
    }

    /// Returns false if an item of the other filter is definitely not in this one.
    #[must_use]
    pub fn may_contain(self, other: Self) -> bool {
        self.bits() & other.bits() == other.bits()
    }

    fn bits(self) -> u64 {
        let [a, b, c, d, e, f, g] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, 0])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(items: &[String]) -> Bloom {
        let mut filter = Bloom::EMPTY;
        for item in items {
            filter.insert(item);
        }
        filter
    }

    proptest! {
        #[test]
        fn contains_what_was_inserted(items in prop::collection::vec(".{0,8}", 0..20), some in any::<prop::sample::Index>()) {
            let whole = filter(&items);
            let part = some.index(items.len() + 1);
            prop_assert!(whole.may_contain(filter(&items[..part])));
            prop_assert!(whole.may_contain(Bloom::EMPTY));
            prop_assert!(Bloom::FULL.may_contain(whole));
        }
    }

    #[test]
    fn seldom_contains_what_was_not_inserted() {
        let items: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
        let filters: Vec<Bloom> = items.chunks(6).map(filter).collect();
        let mut mistaken = 0;
        for (number, item) in items.iter().enumerate() {
            let wanted = filter(std::slice::from_ref(item));
            let found = filters.iter().filter(|filter| filter.may_contain(wanted));
            let others = found.count() - 1;
            assert!(filters[number / 6].may_contain(wanted));
            mistaken += others;
        }
        let asked = items.len() * (filters.len() - 1);
        assert!(mistaken * 100 < asked * 6, "{mistaken} of {asked}");
    }

    #[test]
    fn an_entry_has_room_for_it() {
        assert_eq!(size_of::<crate::keys::Stored>(), 16);
    }
}
