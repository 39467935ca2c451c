//! Places: a hash table of row indices that reads no row to grow.
//!
//! ```text
//!            home of 17         home of 52, 53, 55
//!               v                  v
//!  hashes  - - 17 19 - - - - - - - 52 53 53 55 - - ...    - is vacant
//! ```
//!
//! Linear probing over pairs of a hash and an index, so that a probe costs one cache miss, and a table of a million rows is what makes
//! definitions and lookups miss. Within a run hashes ascend, and so they do in the whole table, because an entry's home is its hash scaled
//! to the number of homes. Hence a probe ends at the first larger hash, one for what is not there as soon as any; and hashes that are close
//! by purpose (`names.rs`) may lie in one line of the cache, which makes runs longer. Growing is one pass in order over both tables, of
//! which the old one is freed outside of the lock. Entries that follow one that is removed move up; there are no tombstones.
//!
//! **Invariant:** hashes ascend, and between the home of an entry and its slot no slot is vacant.

use crate::protocol::storage::memory::Takes;
use crate::protocol::storage::slab::NONE;

/// Row indices by hash.
#[derive(Debug, Default)]
pub(crate) struct PlaceTable {
    places: Vec<TablePlace>,
    /// How many slots are homes. Beyond them lies the overflow of the last run.
    homes: usize,
    len: usize,
}

/// A row and its hash, or a vacant slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TablePlace {
    hash: u32,
    /// `NONE` where the slot is vacant.
    row: u32,
}

/// The largest hash: a probe ends here without a look at the row.
const VACANT: TablePlace = TablePlace { hash: u32::MAX, row: NONE };

/// A table of more slots than this is freed outside of the lock when another takes its place (`memory.rs`).
const LARGE: usize = 512;

/// The fewest homes.
const HOMES_MIN: usize = 8;

/// So many slots at most are added at a time for the overflow of the last run.
const OVERFLOW: usize = 32;

impl PlaceTable {
    /// A row with this hash that `is_it`.
    #[inline]
    pub(crate) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        Some(self.places[self.slot_of(hash, is_it).ok()?].row)
    }

    /// A row with this hash that `is_it`; if there is none, `row` is added.
    pub(crate) fn find_or_insert(
        &mut self,
        hash: u32,
        row: u32,
        is_it: impl Fn(u32) -> bool,
        memory: &mut impl Takes,
    ) -> Option<u32> {
        match self.slot_of(hash, is_it) {
            Ok(slot) => Some(self.places[slot].row),
            Err(slot) => {
                self.insert_at(slot, TablePlace { hash, row }, memory);
                None
            }
        }
    }

    /// Adds a row that is not there yet.
    pub(crate) fn insert(&mut self, hash: u32, row: u32, memory: &mut impl Takes) {
        self.find_or_insert(hash, row, |_| false, memory);
    }

    /// Replaces a row by another one with the same hash.
    pub(crate) fn replace(&mut self, hash: u32, row: u32, other: u32) {
        if let Ok(slot) = self.slot_of(hash, |candidate| candidate == row) {
            self.places[slot].row = other;
        }
    }

    /// Takes a row out. A table that is then mostly empty gives memory back.
    pub(crate) fn remove(&mut self, hash: u32, row: u32, memory: &mut impl Takes) {
        let Ok(hole) = self.slot_of(hash, |candidate| candidate == row) else { return };
        self.len -= 1;
        // Those that follow and are not at home move up.
        let mut end = hole + 1;
        while let Some(place) = self.places.get(end)
            && place.row != NONE
            && home(place.hash, self.homes) < end
        {
            self.places[end - 1] = *place;
            end += 1;
        }
        self.places[end - 1] = VACANT;
        if self.len < self.homes / 8 && self.homes > HOMES_MIN {
            self.rebuild(2 * self.len, memory);
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

    /// The slot of a row with this hash that `is_it`, or where one would be inserted.
    #[inline]
    fn slot_of(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Result<usize, usize> {
        let mut slot = home(hash, self.homes);
        while let Some(place) = self.places.get(slot) {
            if place.hash >= hash {
                if place.hash > hash || place.row == NONE {
                    break;
                }
                if is_it(place.row) {
                    return Ok(slot);
                }
            }
            slot += 1;
        }
        Err(slot)
    }

    /// Adds an entry at the slot where it belongs; what is there, up to the end of the run, moves down.
    fn insert_at(&mut self, mut slot: usize, place: TablePlace, memory: &mut impl Takes) {
        // From half full to three quarters: probes stay short.
        if 4 * (self.len + 1) > 3 * self.homes {
            self.rebuild(2 * (self.len + 1), memory);
            slot = self.slot_of(place.hash, |_| false).unwrap_or_else(|slot| slot);
        }
        self.len += 1;
        let mut moved = place;
        for slot in &mut self.places[slot..] {
            std::mem::swap(slot, &mut moved);
            if moved.row == NONE {
                return;
            }
        }
        push(&mut self.places, moved);
    }

    #[cold]
    #[inline(never)]
    fn rebuild(&mut self, homes: usize, memory: &mut impl Takes) {
        self.homes = homes.max(HOMES_MIN);
        let mut places = Vec::with_capacity(self.homes + (self.homes / 8).min(OVERFLOW));
        let entries = self.places.iter().filter(|place| place.row != NONE);
        for place in entries {
            let home = home(place.hash, self.homes);
            if places.len() < home {
                places.resize(home, VACANT);
            }
            push(&mut places, *place);
        }
        if places.len() < self.homes {
            places.resize(self.homes, VACANT);
        }
        let before = std::mem::replace(&mut self.places, places);
        if before.capacity() > LARGE {
            memory.take_memory(Box::new(before));
        }
    }
}

/// The slot where a probe begins: the hash scaled from 32 bits to the table.
#[inline]
fn home(hash: u32, homes: usize) -> usize {
    ((u64::from(hash) * homes as u64) >> 32) as usize
}

/// Adds a slot to the overflow. A table that has no room for it does not double for that.
fn push(places: &mut Vec<TablePlace>, place: TablePlace) {
    if places.len() == places.capacity() {
        places.reserve_exact((places.len() / 4).clamp(4, OVERFLOW));
    }
    places.push(place);
}

#[cfg(all(test, not(uruk_loom)))]
mod parts {
    //! For tests alone.
    use super::*;

    impl PlaceTable {
        /// How many slots there are, for tests.
        pub(crate) fn capacity(&self) -> usize {
            self.places.capacity()
        }

        /// How far each entry lies from its home, for tests.
        pub(crate) fn distances(&self) -> impl Iterator<Item = usize> {
            let entries = self.places.iter().enumerate().filter(|(_, place)| place.row != NONE);
            entries.map(|(slot, place)| slot - home(place.hash, self.homes))
        }
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn check(table: &PlaceTable) {
        for (slot, place) in table.places.iter().enumerate().filter(|(_, place)| place.row != NONE) {
            let home = home(place.hash, table.homes);
            assert!(home <= slot);
            assert!(
                table.places[home..slot].iter().all(|place| place.row != NONE),
                "a vacant slot between home and slot"
            );
        }
        assert!(table.places.iter().filter(|place| place.row != NONE).is_sorted_by_key(|place| place.hash));
        assert_eq!(table.iter().count(), table.len());
        assert!(table.len() < table.capacity() || table.len() == 0);
    }

    proptest! {
        #[test]
        fn a_table_agrees_with_a_map(
            operations in prop::collection::vec((any::<bool>(), prop_oneof![0..8u32, Just(u32::MAX), any::<u32>()]), 1..300),
        ) {
            let (mut table, mut memory) = (PlaceTable::default(), Vec::new());
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            for (row, (grows, hash)) in operations.into_iter().enumerate() {
                // Few distinct hashes and both ends: long runs, also beyond the end.
                let hash = if hash < 8 { hash * 0x2000_0000 + hash % 2 } else { hash };
                let row = row as u32;
                if grows {
                    table.insert(hash, row, &mut memory);
                    model.insert(row, hash);
                } else if let Some((&row, &hash)) = model.iter().nth(hash as usize % model.len().max(1)) {
                    prop_assert_eq!(table.find(hash, |candidate| candidate == row), Some(row));
                    table.remove(hash, row, &mut memory);
                    table.remove(hash, row, &mut memory);
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

    #[test]
    fn a_table_agrees_with_a_map_while_it_grows_and_shrinks() {
        let (mut table, mut memory) = (PlaceTable::default(), Vec::new());
        let mut model: BTreeMap<u32, u32> = BTreeMap::new();
        let mut random = 5u64;
        for step in 0..6000u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Regions of a few neighbours.
            let hash = (random >> 33) as u32 & !0xff | (random >> 20) as u32 & 0x7;
            let grows = (random >> 40) % 100 < if step / 1000 % 2 == 0 { 80 } else { 10 };
            let other = model
                .iter()
                .nth((random >> 30) as usize % model.len().max(1))
                .map(|(&row, &hash)| (row, hash));
            match (grows, other) {
                (true, _) | (_, None) => {
                    assert_eq!(table.find_or_insert(hash, step, |row| row == step, &mut memory), None);
                    model.insert(step, hash);
                }
                (false, Some((row, hash))) if step % 3 == 0 => {
                    table.replace(hash, row, step);
                    model.remove(&row);
                    model.insert(step, hash);
                }
                (false, Some((row, hash))) => {
                    table.remove(hash, row, &mut memory);
                    model.remove(&row);
                }
            }
            assert_eq!(table.len(), model.len());
            if step % 50 == 0 {
                check(&table);
                assert!(
                    table.capacity() <= 8 * model.len() + HOMES_MIN + OVERFLOW,
                    "{} for {}",
                    table.capacity(),
                    model.len()
                );
                for (&row, &hash) in &model {
                    assert_eq!(table.find(hash, |candidate| candidate == row), Some(row));
                }
            }
        }
    }

    #[test]
    fn what_a_large_table_was_is_left_to_somebody_to_free() {
        let (mut table, mut memory) = (PlaceTable::default(), Vec::new());
        let (mut before, mut moved) = (0, 0);
        let hash = |row: u32| row.wrapping_mul(0x9E37_79B1);
        for step in 0..2 * 10_000 {
            match step < 10_000 {
                true => table.insert(hash(step), step, &mut memory),
                false => table.remove(hash(step - 10_000), step - 10_000, &mut memory),
            }
            // More of the overflow is another matter.
            if table.capacity().abs_diff(before) > OVERFLOW {
                moved += usize::from(before > LARGE);
            }
            before = table.capacity();
        }
        assert!(moved > 6, "{moved} times");
        let left: Vec<_> =
            memory.iter().filter_map(|memory| memory.downcast_ref::<Vec<TablePlace>>()).collect();
        assert_eq!(left.len(), moved);
        assert!(left.iter().all(|places| places.capacity() > LARGE), "a small one is freed at once");
    }
}
