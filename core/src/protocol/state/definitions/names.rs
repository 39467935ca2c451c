//! Names: which rows bear a name.
//!
//! ```text
//!  first    name ─▶ row ⇄ row ⇄ row        one row of each name stands in the table,
//!  others   (name, dylib) ──▲─────▲        the rest in this one as well
//! ```
//!
//! Nearly every name is defined in one dylib, and then one probe finds it or says that no dylib has it. A name that
//! many dylibs define costs a second probe a dylib, however many they are.
//!
//! The first table is cut into shards, each of which moves by itself when it grows. They fill evenly: of a million names all move within
//! a few thousand definitions, so a transaction of one pays for a shard at most, and one of that many for the whole table.

use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use crate::SymbolName;

use crate::protocol::storage::{DylibId, Id, NONE, PlaceTable, RowId, Takes};

use super::row::{Links, Row, RowSlab};

/// The rows of each name.
#[derive(Debug)]
pub(crate) struct NameIndex {
    /// The first row of the list of each name.
    first: Box<[PlaceTable]>,
    /// The other rows of these lists.
    others: PlaceTable,
    /// How many rows have come and gone.
    changes: u64,
}

const SHARD_BITS: u32 = 6;
const SHARDS: usize = 1 << SHARD_BITS;

impl NameIndex {
    pub(crate) fn new() -> Self {
        let first = (0..SHARDS).map(|_| PlaceTable::default()).collect();
        Self { first, others: PlaceTable::default(), changes: 0 }
    }

    /// How many rows have come and gone.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The first row of the list of `name`.
    pub(crate) fn first(&self, name: &SymbolName, rows: &RowSlab) -> Option<FirstNamed> {
        let Home { shard, hash } = home(name);
        self.first[shard].find(hash, |row| rows.at(row).name == *name).map(FirstNamed)
    }

    /// The row of `name` in `dylib` that `lives`: beside it there may be some that are being removed.
    pub(crate) fn find(
        &self,
        dylib: DylibId,
        name: &SymbolName,
        rows: &RowSlab,
        lives: impl Fn(&Row) -> bool,
    ) -> Option<u32> {
        let first = self.first(name, rows)?;
        self.find_among(first, dylib, name, rows, lives)
    }

    /// The row of `name` in `dylib`, given the first row of its list.
    pub(crate) fn find_among(
        &self,
        FirstNamed(first): FirstNamed,
        dylib: DylibId,
        name: &SymbolName,
        rows: &RowSlab,
        lives: impl Fn(&Row) -> bool,
    ) -> Option<u32> {
        let row = rows.at(first);
        if row.dylib == dylib && lives(row) {
            return Some(first);
        }
        if row.namesakes.next == NONE {
            return None;
        }
        let is_it = |row: u32| {
            let row = rows.at(row);
            row.dylib == dylib && row.name == *name && lives(row)
        };
        self.others.find(hash_in(dylib, name), is_it)
    }

    /// Adds a row that is in no list yet, behind the first one of its name.
    pub(crate) fn insert(&mut self, row: RowId, rows: &mut RowSlab, memory: &mut impl Takes) {
        self.changes += 1;
        let (name, dylib, index) = (&rows[row].name, rows[row].dylib, row.index());
        let Home { shard, hash } = home(name);
        let first = self.first[shard].find_or_insert(hash, index, |row| rows.at(row).name == *name, memory);
        let Some(first) = first else { return };
        self.others.insert(hash_in(dylib, name), index, memory);
        let next = std::mem::replace(&mut rows.at_mut(first).namesakes.next, index);
        rows[row].namesakes = Links { previous: first, next };
        if next != NONE {
            rows.at_mut(next).namesakes.previous = index;
        }
    }

    /// Takes a row out of the list of its name; gives a neighbour, if it had one.
    pub(crate) fn remove(&mut self, row: RowId, rows: &mut RowSlab, memory: &mut impl Takes) -> Option<u32> {
        self.changes += 1;
        let Row { namesakes: Links { previous, next }, ref name, dylib, .. } = rows[row];
        match (previous, next) {
            (NONE, NONE) => {
                let Home { shard, hash } = home(name);
                self.first[shard].remove(hash, row.index(), memory);
            }
            (NONE, next) => {
                // The next one stands for the name from now on.
                self.others.remove(hash_in(rows.at(next).dylib, name), next, memory);
                let Home { shard, hash } = home(name);
                self.first[shard].replace(hash, row.index(), next);
            }
            _ => self.others.remove(hash_in(dylib, name), row.index(), memory),
        }
        if next != NONE {
            rows.at_mut(next).namesakes.previous = previous;
        }
        if previous != NONE {
            rows.at_mut(previous).namesakes.next = next;
        }
        [next, previous].into_iter().find(|&neighbour| neighbour != NONE)
    }

    /// The first row of each list.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.first.iter().flat_map(PlaceTable::iter)
    }

    /// How many rows are in the lists.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn len(&self) -> usize {
        self.others.len() + self.first.iter().map(PlaceTable::len).sum::<usize>()
    }
}

/// The first row of the list of a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstNamed(u32);

/// Where a name belongs in the first table.
struct Home {
    shard: usize,
    /// Tables go by its highest bits.
    hash: u32,
}

/// Names that were made one after another mostly lie side by side in memory, and are defined, looked up and removed one
/// after another. Those of one region, mostly four, follow each other in the table: the first of them that is looked for
/// has the places of the others come near. Of a million names that saves three of four cache misses, an eighth of the time
/// of a definition and a lookup; runs in the table are longer for it.
const REGION_BITS: u32 = 8;

/// Names lie so far apart at least.
const NAME_BITS: u32 = 4;

#[inline]
fn home(name: &SymbolName) -> Home {
    // A model replays its orders, in which addresses must have no part.
    if cfg!(any(uruk_loom, uruk_shuttle)) {
        let hash = FxBuildHasher.hash_one(name);
        return Home { shard: hash as usize % SHARDS, hash: spread(hash) };
    }
    home_of(name.identity() as u64)
}

#[inline]
fn home_of(identity: u64) -> Home {
    let region = identity >> REGION_BITS;
    const WITHIN: u64 = (1 << (REGION_BITS - NAME_BITS)) - 1;
    // Regions lie at equal distances, which one multiplication by the golden ratio spreads evenly, over the shards and within each
    // of them: so all shards grow at about the same time, and what they leave lies side by side too, and is of use for what is
    // larger. With shards chosen at random a million definitions take 5 MB more.
    let mixed = (region ^ region >> 20).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let shard = mixed >> (u64::BITS - SHARD_BITS);
    let hash = (mixed >> (u32::BITS - SHARD_BITS)) & !WITHIN | identity >> NAME_BITS & WITHIN;
    Home { shard: shard as usize, hash: hash as u32 }
}

/// The part of a hash that tables use. The bits that Fx mixes best are its lowest ones, and the shard has taken some.
fn spread(hash: u64) -> u32 {
    ((hash >> 6) as u32).wrapping_mul(0x9E37_79B1)
}

fn hash_in(dylib: DylibId, name: &SymbolName) -> u32 {
    spread(FxBuildHasher.hash_one((name, dylib)))
}

#[cfg(all(test, not(uruk_loom)))]
mod parts {
    //! For tests alone.
    use super::*;

    impl NameIndex {
        /// How many rows there is room for, for tests.
        pub(crate) fn capacity(&self) -> usize {
            self.others.capacity() + self.first.iter().map(PlaceTable::capacity).sum::<usize>()
        }
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use crate::ids::DylibId;
    use crate::protocol::state::SessionState;
    use crate::protocol::state::effects::Effects;
    use crate::protocol::storage::places::PlaceTable;
    use crate::protocol::tests::numbers::{Numbers, definition, exported, with_main};
    use crate::{SymbolName, SymbolStringPool};

    use super::{Home, SHARDS, home_of};

    fn define(state: &mut SessionState<Numbers>, dylib: DylibId, name: &SymbolName, unit: u32) {
        let definition = definition(name, exported([name]));
        state.define(dylib, None, definition, unit, &mut Effects::default()).unwrap();
    }

    /// Names lie as an allocator puts them: at equal distances, which are sizes of blocks or pages, in one region of memory or
    /// several.
    #[test]
    fn names_at_equal_distances_lie_near_their_homes() {
        const NAMES: u64 = 20_000;
        for stride in [24, 32, 48, 64, 80, 96, 128, 144, 256, 1024, 4096, 4096 + 64, 1 << 16, 1 << 20] {
            for (base, regions) in [(0x5555_5555_a2c0, 1), (0x7fff_f000_0010, 1), (0x7f00_0000_0010, 64)] {
                let mut shards: Vec<_> = (0..SHARDS).map(|_| PlaceTable::default()).collect();
                for (name, row) in (0..NAMES).zip(0..) {
                    let identity = base + name % regions * (64 << 20) + name / regions * stride;
                    let Home { shard, hash } = home_of(identity);
                    shards[shard].insert(hash, row, &mut Vec::new());
                }
                let told = format!("names {stride} apart from {base:#x}, in {regions} regions");
                let fullest = shards.iter().map(PlaceTable::len).max();
                assert!(fullest < Some(2 * NAMES as usize / SHARDS), "{told}: {fullest:?} in one shard");
                let distances = || shards.iter().flat_map(PlaceTable::distances);
                let (sum, farthest) = (distances().sum::<usize>(), distances().max());
                let average = sum as f64 / NAMES as f64;
                assert!(average < 10.0 && farthest < Some(100), "{told}: {average}, {farthest:?}");
            }
        }
    }

    #[test]
    fn a_name_of_many_dylibs_is_found_whichever_of_them_lets_it_go() {
        for stride in [1, 7, 99] {
            let mut state: SessionState<Numbers> = SessionState::new(false);
            let name = SymbolStringPool::new().intern("main");
            let dylibs: Vec<_> =
                (0..100).map(|index| state.create_dylib(format!("d{index}").into()).unwrap()).collect();
            for (&dylib, unit) in dylibs.iter().zip(0..) {
                define(&mut state, dylib, &name, unit);
            }
            let mut left: Vec<_> = dylibs.clone();
            let mut next = 0;
            while !left.is_empty() {
                next = (next + stride) % left.len();
                let dylib = left.swap_remove(next);
                state
                    .remove_names(dylib, std::slice::from_ref(&name), || "d".into(), &mut Effects::default())
                    .unwrap();
                state.check();
                for dylib in &dylibs {
                    assert_eq!(state.definitions.find(*dylib, &name).is_some(), left.contains(dylib));
                }
            }
        }
    }

    #[test]
    fn rows_and_tables_take_what_is_live() {
        const MANY: u32 = 20_000;
        let (mut state, pool, dylib) = with_main(false);
        for round in 0..3 {
            let names: Vec<_> = (0..MANY).map(|index| pool.intern(&format!("{round}.{index}"))).collect();
            for (name, unit) in names.iter().zip(0..) {
                define(&mut state, dylib, name, unit);
            }
            assert!(state.definitions.rows.capacity() < 2 * MANY as usize);
            assert!(state.definitions.names.capacity() < 4 * MANY as usize);
            state.remove_names(dylib, &names, || "main".into(), &mut Effects::default()).unwrap();
            state.check();
            for capacity in [
                state.definitions.rows.capacity(),
                state.definitions.units.capacity(),
                state.definitions.names.capacity(),
            ] {
                assert!(capacity <= 64 * 64, "room for {capacity} of nothing");
            }
        }
    }
}
