//! Places: a hash table of row indices that reads no row to grow.
//!
//! Linear probing over pairs of a hash and an index, so that a probe costs one cache miss, and a table of a million
//! rows is what makes definitions and lookups miss. Growing is one pass in order over both tables: an entry's home is
//! its hash scaled to the table's length. Entries that follow one that is removed move up; there are no tombstones.
//!
//! **Invariant:** between the home of an entry and its slot no slot is vacant.

use super::slab::NONE;

/// Row indices by hash.
#[derive(Debug, Default)]
pub(crate) struct PlaceTable {
    places: Vec<Place>,
    len: usize,
}

/// A row and its hash, or a vacant slot.
#[derive(Clone, Copy, Debug)]
struct Place {
    hash: u32,
    /// `NONE` where the slot is vacant.
    row: u32,
}

const VACANT: Place = Place { hash: 0, row: NONE };

/// The smallest table.
const SLOTS_MIN: usize = 8;

impl PlaceTable {
    /// A row with this hash that `is_it`.
    pub(crate) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        Some(self.places[self.slot_of(hash, is_it)?].row)
    }

    /// Adds a row that is not there yet.
    pub(crate) fn insert(&mut self, hash: u32, row: u32) {
        // From half full to three quarters: probes stay short.
        if 4 * (self.len + 1) > 3 * self.places.len() {
            self.rebuild(2 * (self.len + 1));
        }
        self.put(Place { hash, row });
        self.len += 1;
    }

    /// Replaces a row by another one with the same hash.
    pub(crate) fn replace(&mut self, hash: u32, row: u32, other: u32) {
        if let Some(slot) = self.slot_of(hash, |candidate| candidate == row) {
            self.places[slot].row = other;
        }
    }

    /// Takes a row out. What it leaves mostly empty gives memory back.
    pub(crate) fn remove(&mut self, hash: u32, row: u32) {
        let Some(mut hole) = self.slot_of(hash, |candidate| candidate == row) else { return };
        self.len -= 1;
        let mut slot = hole;
        loop {
            slot = self.after(slot);
            let place = self.places[slot];
            if place.row == NONE {
                break;
            }
            // One whose home lies behind the hole would be lost in front of it.
            if self.distance(self.home(place.hash), slot) >= self.distance(hole, slot) {
                self.places[hole] = place;
                hole = slot;
            }
        }
        self.places[hole] = VACANT;
        if self.len < self.places.len() / 8 && self.places.len() > SLOTS_MIN {
            self.rebuild(2 * self.len);
        }
    }

    #[cfg(any(test, debug_assertions))]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[cfg(any(test, debug_assertions))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.places.iter().map(|place| place.row).filter(|&row| row != NONE)
    }

    /// How many slots there are, for tests.
    #[cfg(all(test, not(uruk_loom)))]
    pub(crate) fn capacity(&self) -> usize {
        self.places.len()
    }

    fn slot_of(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let mut slot = self.home(hash);
        loop {
            let place = self.places[slot];
            if place.row == NONE {
                return None;
            }
            if place.hash == hash && is_it(place.row) {
                return Some(slot);
            }
            slot = self.after(slot);
        }
    }

    fn put(&mut self, place: Place) {
        let mut slot = self.home(place.hash);
        while self.places[slot].row != NONE {
            slot = self.after(slot);
        }
        self.places[slot] = place;
    }

    fn rebuild(&mut self, slots: usize) {
        let places = std::mem::replace(&mut self.places, vec![VACANT; slots.max(SLOTS_MIN)]);
        for place in places.into_iter().filter(|place| place.row != NONE) {
            self.put(place);
        }
    }

    /// The slot where a probe begins: the hash scaled from 32 bits to the table.
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.places.len() as u64) >> 32) as usize
    }

    /// How many steps lead from one slot on to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.places.len() - from }
    }

    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.places.len() { 0 } else { slot + 1 }
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn check(table: &PlaceTable) {
        for (slot, place) in table.places.iter().enumerate().filter(|(_, place)| place.row != NONE) {
            let mut probe = table.home(place.hash);
            while probe != slot {
                assert_ne!(table.places[probe].row, NONE, "a vacant slot between home and slot");
                probe = table.after(probe);
            }
        }
        assert_eq!(table.iter().count(), table.len());
        assert!(table.len() < table.capacity() || table.len() == 0);
    }

    proptest! {
        #[test]
        fn a_table_agrees_with_a_map(
            operations in prop::collection::vec((any::<bool>(), prop_oneof![0..8u32, Just(u32::MAX), any::<u32>()]), 1..300),
        ) {
            let mut table = PlaceTable::default();
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            for (row, (grows, hash)) in operations.into_iter().enumerate() {
                // Few distinct hashes and both ends: long runs that go around the end.
                let hash = if hash < 8 { hash * 0x2000_0000 + hash % 2 } else { hash };
                let row = row as u32;
                if grows {
                    table.insert(hash, row);
                    model.insert(row, hash);
                } else if let Some((&row, &hash)) = model.iter().nth(hash as usize % model.len().max(1)) {
                    prop_assert_eq!(table.find(hash, |candidate| candidate == row), Some(row));
                    table.remove(hash, row);
                    table.remove(hash, row);
                    model.remove(&row);
                    prop_assert_eq!(table.find(hash, |candidate| candidate == row), None);
                }
                check(&table);
            }
            for (&row, &hash) in &model {
                prop_assert_eq!(table.find(hash, |candidate| candidate == row), Some(row));
            }
            prop_assert_eq!(table.len(), model.len());
        }
    }
}
