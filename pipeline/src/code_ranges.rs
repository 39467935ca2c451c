//! [`CodeRanges`]: which piece of linked code is at an address.
//!
//! Code comes and goes more often than its place is asked for. So it is noted in a hash table, once for all of its ranges, and sorted by
//! address when the next question comes.

use std::collections::{BTreeMap, btree_map};
use std::hash::Hash;
use std::ops::Range;

use rustc_hash::{FxBuildHasher, FxHashMap};
use uruk_core::sync::Arc;

/// Values by the addresses of their code. Ranges of two pieces of code do not overlap.
pub(crate) struct CodeRanges<T> {
    /// By the first address of each range: the address behind its last, and the value.
    sorted: BTreeMap<u64, (u64, T)>,
    /// By the first address of a piece's first range.
    unsorted: FxHashMap<u64, Unsorted<T>>,
}

type Unsorted<T> = (Arc<[Range<u64>]>, T);

impl<T: Clone> CodeRanges<T> {
    pub(crate) const fn new() -> Self {
        Self { sorted: BTreeMap::new(), unsorted: FxHashMap::with_hasher(FxBuildHasher) }
    }

    /// Adds code. Code without bytes is at no address.
    pub(crate) fn add(&mut self, ranges: &Arc<[Range<u64>]>, value: T) {
        if let Some(first) = filled(ranges).next() {
            self.unsorted.insert(first.start, (ranges.clone(), value));
        }
    }

    /// Removes the code at these ranges if `is_it`. Says whether it was there.
    pub(crate) fn remove(&mut self, ranges: &[Range<u64>], is_it: impl Fn(&T) -> bool) -> bool {
        let Some(first) = filled(ranges).next() else { return false };
        if self.unsorted.get(&first.start).is_some_and(|(_, value)| is_it(value)) {
            self.unsorted.remove(&first.start);
            give_back(&mut self.unsorted);
            return true;
        }
        let mut was_there = false;
        for range in filled(ranges) {
            if let btree_map::Entry::Occupied(entry) = self.sorted.entry(range.start)
                && is_it(&entry.get().1)
            {
                entry.remove();
                was_there = true;
            }
        }
        was_there
    }

    /// The code at an address.
    pub(crate) fn at(&mut self, address: u64) -> Option<&T> {
        if !self.unsorted.is_empty() {
            self.sort();
        }
        self.sorted_at(address)
    }

    /// The same without allocating, and linear in the code that came since the last question.
    pub(crate) fn look_at(&self, address: u64) -> Option<&T> {
        self.sorted_at(address).or_else(|| {
            let mut unsorted = self.unsorted.values();
            let found = unsorted.find(|(ranges, _)| ranges.iter().any(|range| range.contains(&address)));
            found.map(|(_, value)| value)
        })
    }

    /// All code, by the first address of each of its ranges.
    pub(crate) fn iter(&mut self) -> impl Iterator<Item = (u64, &T)> {
        self.sort();
        self.sorted.iter().map(|(&start, (_, value))| (start, value))
    }

    fn sorted_at(&self, address: u64) -> Option<&T> {
        let (_, (end, value)) = self.sorted.range(..=address).next_back()?;
        (address < *end).then_some(value)
    }

    #[cold]
    fn sort(&mut self) {
        for (_, (ranges, value)) in self.unsorted.drain() {
            for range in filled(&ranges) {
                self.sorted.insert(range.start, (range.end, value.clone()));
            }
        }
        give_back(&mut self.unsorted);
    }
}

/// Gives back the room of many entries that have gone.
pub(crate) fn give_back<K: Hash + Eq, V>(map: &mut FxHashMap<K, V>) {
    if map.capacity() > 4 * map.len() + 64 {
        map.shrink_to_fit();
    }
}

fn filled(ranges: &[Range<u64>]) -> impl Iterator<Item = &Range<u64>> {
    ranges.iter().filter(|range| !range.is_empty())
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_at_each_of_its_addresses_until_it_is_removed() {
        let mut known = CodeRanges::new();
        let first: Arc<[_]> = [0x1000..0x1000, 0x1000..0x1010, 0x9000..0x9010].into();
        let second: Arc<[_]> = std::iter::once(0x1010..0x1020).collect();
        known.add(&first, 1);
        let look = |known: &CodeRanges<i32>, address| known.look_at(address).copied();
        assert_eq!(
            [0xfff, 0x1000, 0x1010, 0x9008].map(|address| look(&known, address)),
            [None, Some(1), None, Some(1)]
        );
        assert!(known.at(0x8000).is_none()); // Sorted from here on.
        known.add(&second, 2);
        assert_eq!([0x1000, 0x1010].map(|address| look(&known, address)), [Some(1), Some(2)]);
        assert_eq!([0x900f, 0x101f].map(|address| known.at(address).copied()), [Some(1), Some(2)]);

        assert!(!known.remove(&first, |value| *value == 2), "it is another's place by now");
        assert!(known.remove(&first, |value| *value == 1));
        known.add(&first, 3);
        assert!(known.remove(&first, |value| *value == 3), "though it was not sorted");
        assert_eq!([0x1000, 0x9000].map(|address| known.at(address).copied()), [None, None]);
        assert_eq!(known.iter().collect::<Vec<_>>(), [(0x1010, &2)]);
    }
}
