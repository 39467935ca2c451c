//! An array of slots, found by the identity of a name: open addressing, one slot after the other from a name's home on.
//!
//! | who | does | while |
//! |---|---|---|
//! | reader | `find` | anything |
//! | writer | `insert` fills a vacant slot | anything |
//! | writer | `bury` leaves a grave, which nothing fills | the gate is closed |
//! | writer | `remove` leaves a vacant slot, into which others move up and which anything fills later | the gate is closed |
//!
//! An array with graves takes no insertions any more, so the graves need no care.

use std::fmt;

use crate::sync::weakened;

use super::definitions::RecordedDefinition;
use super::room::Room;
use super::slot::{self, GRAVE, Slot, VACANT};

/// Slots, some of them filled: three quarters at most.
#[derive(Default)]
pub(super) struct Array(Room);

/// A hash of a name's address. Names lie at equal distances often enough, which one multiplication leaves in few clusters.
#[inline]
fn scattered(identity: u64) -> u64 {
    let folded = identity ^ (identity >> 32) ^ (identity >> 17);
    let product = u128::from(folded) * 0x9E37_79B9_7F4A_7C15;
    let mixed = (product >> 64) as u64 ^ product as u64;
    mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Where a name belongs among so many slots: its hash, scaled to the room.
#[inline]
pub(super) fn home(identity: u64, slots: usize) -> usize {
    ((u128::from(scattered(identity) >> 32) * slots as u128) >> 32) as usize
}

impl Array {
    pub(super) fn new(len: usize) -> Self {
        Self(Room::new(len))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(super) fn slots(&self) -> &[Slot] {
        self.0.slots()
    }

    #[inline]
    fn home(&self, identity: u64) -> usize {
        home(identity, self.len())
    }

    /// For the writer: looks at the slot where a name belongs, which is near from then on.
    pub(super) fn look_at(&self, identity: u64) -> usize {
        self.slots().get(self.home(identity)).map_or(0, |slot| slot::written_name_of(slot) as usize)
    }

    /// For readers.
    #[inline]
    pub(super) fn find(&self, identity: u64) -> Option<&Slot> {
        self.find_by(identity, slot::name_of)
    }

    /// For the writer.
    #[inline]
    pub(super) fn find_written(&self, identity: u64) -> Option<&Slot> {
        self.find_by(identity, slot::written_name_of)
    }

    #[inline]
    fn find_by(&self, identity: u64, name_of: impl Fn(&Slot) -> u64) -> Option<&Slot> {
        let slots = self.slots();
        let (before, from_home) = slots.split_at_checked(self.home(identity))?;
        // Once around at most: there may be a change under way, and a reader does not wait for it.
        for slot in from_home.iter().chain(before) {
            match name_of(slot) {
                VACANT => return None,
                name if name == identity => return Some(slot),
                _ => {}
            }
        }
        None
    }

    /// Fills the first vacant slot from a name's home on; there is one.
    pub(super) fn insert(&self, identity: u64, definition: &RecordedDefinition) {
        let (before, from_home) = self.slots().split_at(self.home(identity));
        let vacant = from_home.iter().chain(before).find(|slot| slot::written_name_of(slot) == VACANT);
        slot::fill(vacant.expect("an array is full to three quarters at most"), identity, definition);
    }

    /// Leaves a grave instead of a name's definition. Says whether there was one.
    pub(super) fn bury(&self, identity: u64) -> bool {
        let Some(slot) = self.find_written(identity) else { return false };
        if !weakened("table::leaves_it_in_the_older") {
            slot::clear(slot, GRAVE);
        }
        true
    }

    /// Removes a name's definition; those that follow and are not at home move up. Says whether there was one.
    pub(super) fn remove(&self, identity: u64) -> bool {
        let (slots, home) = (self.slots(), self.home(identity));
        let mut hole = home;
        loop {
            match slots.get(hole).map_or(VACANT, slot::written_name_of) {
                VACANT => return false,
                name if name == identity => break,
                _ => hole = self.after(hole),
            }
        }
        let mut place = hole;
        loop {
            place = self.after(place);
            let name = slot::written_name_of(&slots[place]);
            if name == VACANT {
                break;
            }
            // One whose home lies behind the hole would be lost in front of it.
            if self.distance(self.home(name), place) >= self.distance(hole, place) {
                slot::fill(&slots[hole], name, &slot::written_definition_in(&slots[place]));
                hole = place;
            }
        }
        slot::clear(&slots[hole], VACANT);
        true
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 == self.len() { 0 } else { place + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.len() - from }
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Array").field("slots", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;
    use crate::ids::{DylibId, Id, RowId};
    use crate::{ExecutorAddr, SymbolFlags};

    fn definition(address: u64) -> RecordedDefinition {
        RecordedDefinition {
            dylib: DylibId::new(1, 2),
            row: RowId::new(3, 4),
            address: ExecutorAddr::new(address),
            flags: SymbolFlags::EXPORTED,
            is_ready: true,
        }
    }

    /// How many slots a search for each of the names looks at.
    fn probes(array: &Array, names: impl Iterator<Item = u64>) -> Vec<usize> {
        let slot_size = size_of::<Slot>();
        let place =
            |slot: &Slot| (std::ptr::from_ref(slot).addr() - array.slots().as_ptr().addr()) / slot_size;
        let probes = |name| {
            let slot = array.find(name).expect("it was inserted");
            array.distance(array.home(name), place(slot)) + 1
        };
        names.map(probes).collect()
    }

    /// Names lie as an allocator puts them: at equal distances, which are sizes of blocks or pages. With homes at random, a search
    /// in an array that is full to three quarters looks at two and a half slots on the average.
    #[test]
    fn names_at_equal_distances_do_not_cluster() {
        const LENS: [usize; 4] = [1 << 10, 6_000, 1 << 15, 98_765];
        const STRIDES: [u64; 14] =
            [2, 16, 24, 32, 48, 64, 80, 96, 128, 144, 4096, 4096 + 64, 1 << 16, 1 << 20];
        const BASES: [u64; 3] = [0x1000, 0x5555_5555_a2c0, 0x7fff_f000_0010];
        for len in LENS {
            for (stride, base) in STRIDES.into_iter().flat_map(|stride| BASES.map(|base| (stride, base))) {
                let array = Array::new(len);
                let names = (0..len as u64 * 3 / 4).map(|index| base + index * stride);
                names.clone().for_each(|name| array.insert(name, &definition(name)));
                let probes = probes(&array, names);
                let (sum, longest) = (probes.iter().sum::<usize>(), probes.iter().max());
                let average = sum as f64 / probes.len() as f64;
                let told =
                    format!("{len} slots, names {stride} apart from {base:#x}: {average}, {longest:?}");
                assert!(average < 3.0 && longest < Some(&400), "{told}");
            }
        }
    }

    /// As the same with other bits: pools of several allocators, each of which counts up.
    #[test]
    fn names_in_many_regions_do_not_cluster() {
        const LEN: usize = 1 << 14;
        for (regions, stride) in [(2, 64), (64, 64), (64, 32), (256, 4096), (4096, 64), (4096, 32)] {
            let array = Array::new(LEN);
            let name =
                |index: u64| 0x7f00_0000_0000 + index % regions * (64 << 20) + index / regions * stride;
            let names = (0..LEN as u64 * 3 / 4).map(name);
            names.clone().for_each(|name| array.insert(name, &definition(name)));
            let probes = probes(&array, names);
            let (sum, longest) = (probes.iter().sum::<usize>(), probes.iter().max());
            let average = sum as f64 / probes.len() as f64;
            let told = format!("{regions} regions, {stride} apart: {average}, {longest:?}");
            assert!(average < 3.0 && longest < Some(&400), "{told}");
        }
    }

    #[test]
    fn what_is_removed_is_not_missed_by_what_follows_it() {
        const LEN: usize = 64;
        let array = Array::new(LEN);
        let mut random = 11u64;
        let mut there: Vec<u64> = Vec::new();
        for step in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let name = 2 + (random >> 40);
            if there.len() < LEN * 3 / 4 && (random >> 33).is_multiple_of(2) {
                array.insert(name, &definition(name));
                there.push(name);
            } else if !there.is_empty() {
                let gone = there.swap_remove((random >> 20) as usize % there.len());
                assert!(array.remove(gone) && !array.remove(gone));
            }
            if step % 16 == 0 {
                let found = |name: &u64| array.find(*name).map(slot::definition_in);
                assert!(there.iter().all(|name| found(name) == Some(definition(*name))));
                let taken = array.slots().iter().filter(|slot| slot::name_of(slot) != VACANT);
                assert_eq!(taken.count(), there.len());
            }
        }
    }
}
