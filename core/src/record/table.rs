//! The table of names with one definition: open addressing over slots, one writer, readers without locks.
//!
//! ```text
//!   newest   [slot][slot][    ][slot][    ][slot]...     insertions go here
//!   older    [slot][    ][slot]..                        while it moves, some slots with each insertion and removal
//! ```
//!
//! An array is filled to three quarters; then a larger one takes its place. Nothing moves at once: readers look into
//! the newest array and then into the older one, until everything of that is in the newest as well. A table that is
//! mostly empty moves into a smaller array in the same way. Whoever reads keeps both arrays from being freed.
//!
//! **Invariants.** A definition that is in the older array behind the place up to which it has moved is not in the newest. A
//! definition may be read at a wrong slot, or overlooked, only while the gate is closed.
//!
//! Models have a slot for each name, which never moves.

#[cfg(any(uruk_loom, uruk_shuttle))]
pub(super) use model::{Discarded, Table, Writer};
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
pub(super) use real::{Discarded, Table, Writer};

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
mod real {
    use std::fmt;

    use crate::SymbolName;
    use crate::record::definitions::RecordedDefinition;
    use crate::record::map::Map;
    use crate::record::slot::{self, GRAVE, Slot, VACANT};
    use crate::sync::Arc;
    use crate::sync::atomic::AtomicU64;

    /// What readers see.
    #[derive(Debug)]
    pub(in crate::record) struct Table {
        /// One entry: a pointer that is replaced while others follow it, and what it led to freed when nobody does.
        arrays: Map<(), Arrays>,
    }

    /// Where definitions are at the moment.
    #[derive(Clone, Debug)]
    pub(in crate::record) struct Arrays {
        newest: Arc<Array>,
        older: Option<Arc<Array>>,
    }

    impl Table {
        pub(in crate::record) fn new() -> Self {
            Self { arrays: Map::with_batch(1) }
        }

        /// Lets `look` look at the definitions.
        #[inline]
        pub(in crate::record) fn read<R>(&self, look: impl FnOnce(&Arrays) -> R) -> Option<R> {
            let guard = self.arrays.guard();
            self.arrays.get(&(), &guard).map(look)
        }
    }

    impl Arrays {
        #[inline]
        pub(in crate::record) fn get(&self, name: &SymbolName) -> Option<RecordedDefinition> {
            let identity = name.identity() as u64;
            let slot = self.newest.find(identity);
            slot.or_else(|| self.older.as_ref()?.find(identity)).map(slot::definition_in)
        }
    }

    /// What only the writer knows.
    #[derive(Debug, Default)]
    pub(in crate::record) struct Writer {
        newest: Arc<Array>,
        older: Option<Arc<Array>>,
        /// How many slots of the older array have moved.
        moved: usize,
        len: usize,
        /// Arrays to be freed where nobody waits for it.
        discarded: Vec<Arc<Array>>,
    }

    /// Memory that is no longer used.
    #[derive(Debug)]
    pub(in crate::record) struct Discarded(
        #[expect(dead_code, reason = "held to be dropped outside the lock")] Vec<Arc<Array>>,
    );

    /// So many slots move with each insertion and each removal: an array has moved long before the next one is full, or
    /// as good as empty.
    const MOVED_AT_ONCE: usize = 16;

    /// Room of the smallest array.
    const SLOTS_MIN: usize = 16;

    /// Tables of fewer names grow in longer steps: room costs them less than moving.
    const SMALL: usize = 4096;

    /// A smaller array is freed in less time than it takes to hand it on.
    const DISCARDED_MIN: usize = 2048;

    impl Writer {
        pub(in crate::record) fn len(&self) -> usize {
            self.len
        }

        pub(in crate::record) fn get(&self, name: &SymbolName) -> Option<RecordedDefinition> {
            let identity = name.identity() as u64;
            let slot = self.newest.find(identity);
            slot.or_else(|| self.older.as_ref()?.find(identity)).map(slot::definition_in)
        }

        /// Reads something of the slot where a name belongs.
        pub(in crate::record) fn look_at(&self, name: &SymbolName) -> usize {
            let slot = self.newest.slots().get(self.newest.home(name.identity() as u64));
            slot.map_or(0, |slot| slot::name_of(slot) as usize)
        }

        /// Adds a definition of a name that has none.
        pub(in crate::record) fn insert(
            &mut self,
            table: &Table,
            name: &SymbolName,
            definition: &RecordedDefinition,
        ) {
            self.move_some(table);
            if 4 * (self.len + 1) > 3 * self.newest.len() {
                let growth = if self.len < SMALL { 4 } else { 2 };
                self.resize(table, growth * (self.len + 1));
            }
            self.newest.insert(name.identity() as u64, definition);
            self.len += 1;
        }

        /// Takes the definition of a name out, if it has one. Within a closed gate.
        pub(in crate::record) fn remove(&mut self, table: &Table, name: &SymbolName) {
            let identity = name.identity() as u64;
            let in_older = self.older.as_ref().is_some_and(|older| older.bury(identity));
            if !self.newest.remove(identity) && !in_older {
                return;
            }
            self.len -= 1;
            self.move_some(table);
            if self.len == 0 {
                self.moved = usize::MAX;
                self.resize(table, 0);
            } else if 8 * self.len < self.newest.len()
                && self.newest.len() > SLOTS_MIN
                && self.older.is_none()
            {
                self.resize(table, 2 * self.len);
            }
        }

        /// Makes room for as many more at once.
        pub(in crate::record) fn reserve(&mut self, table: &Table, further: usize) {
            let slots = (self.len + further).div_ceil(3) * 4;
            if slots > self.newest.len() {
                self.resize(table, slots);
            }
        }

        pub(in crate::record) fn take_discarded(&mut self) -> Option<Discarded> {
            (!self.discarded.is_empty()).then(|| Discarded(std::mem::take(&mut self.discarded)))
        }

        /// Goes on in an array of so many slots.
        #[cold]
        fn resize(&mut self, table: &Table, slots: usize) {
            self.move_slots(table, usize::MAX);
            let slots = if slots == 0 { 0 } else { slots.max(SLOTS_MIN) };
            let older = std::mem::replace(&mut self.newest, Arc::new(Array::new(slots)));
            if self.len > 0 {
                self.older = Some(older);
                self.moved = 0;
            } else {
                self.discard(older);
            }
            self.publish(table);
        }

        fn move_some(&mut self, table: &Table) {
            if self.older.is_some() {
                self.move_slots(table, MOVED_AT_ONCE);
            }
        }

        #[inline(never)]
        fn move_slots(&mut self, table: &Table, count: usize) {
            let Some(older) = &self.older else { return };
            let slots = older.slots();
            let end = slots.len().min(self.moved.saturating_add(count));
            for slot in slots.get(self.moved..end).unwrap_or_default() {
                let identity = slot::name_of(slot);
                if identity > GRAVE {
                    self.newest.insert(identity, &slot::definition_in(slot));
                }
            }
            self.moved = end;
            if end == slots.len()
                && let Some(older) = self.older.take()
            {
                self.publish(table);
                self.discard(older);
            }
        }

        /// How many slots there are, for tests.
        #[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
        pub(in crate::record) fn room(&self) -> usize {
            self.newest.len() + self.older.as_ref().map_or(0, |older| older.len())
        }

        fn publish(&self, table: &Table) {
            let (newest, older) = (self.newest.clone(), self.older.clone());
            table.arrays.insert((), Arrays { newest, older });
        }

        fn discard(&mut self, array: Arc<Array>) {
            if array.len() >= DISCARDED_MIN {
                self.discarded.push(array);
            }
        }
    }

    /// Slots, found by the identity of a name.
    #[derive(Default)]
    pub(in crate::record) struct Array {
        words: Box<[AtomicU64]>,
        /// The first word of the first slot: no slot shall lie in two cache lines.
        first: usize,
        len: usize,
    }

    const SLOT_WORDS: usize = 4;

    /// A hash of a name's address. Names lie at equal distances often enough, which one multiplication leaves in few clusters.
    #[inline]
    fn scattered(identity: u64) -> u64 {
        let folded = identity ^ (identity >> 32) ^ (identity >> 17);
        let product = u128::from(folded) * 0x9E37_79B9_7F4A_7C15;
        let mixed = (product >> 64) as u64 ^ product as u64;
        mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    impl Array {
        /// The system gives zeroed memory page by page as it is touched, so even a large array is there at once.
        fn new(len: usize) -> Self {
            if len == 0 {
                return Self::default();
            }
            let words = bytemuck::zeroed_slice_box::<AtomicU64>((len + 1) * SLOT_WORDS);
            let behind_a_boundary = words.as_ptr().addr() / size_of::<u64>() % SLOT_WORDS;
            Self { words, first: (SLOT_WORDS - behind_a_boundary) % SLOT_WORDS, len }
        }

        fn len(&self) -> usize {
            self.len
        }

        #[inline]
        fn slots(&self) -> &[Slot] {
            &self.words[self.first..].as_chunks().0[..self.len]
        }

        /// Where a name belongs: its hash, scaled to the room.
        #[inline]
        fn home(&self, identity: u64) -> usize {
            ((u128::from(scattered(identity) >> 32) * self.len as u128) >> 32) as usize
        }

        #[inline]
        fn find(&self, identity: u64) -> Option<&Slot> {
            let slots = self.slots();
            let (before, from_home) = slots.split_at_checked(self.home(identity))?;
            // Once around at most: there may be a change under way that nobody waits for.
            for slot in from_home.iter().chain(before) {
                match slot::name_of(slot) {
                    VACANT => return None,
                    name if name == identity => return Some(slot),
                    _ => {}
                }
            }
            None
        }

        /// Fills the first vacant slot from a name's home on; there is one.
        fn insert(&self, identity: u64, definition: &RecordedDefinition) {
            let (before, from_home) = self.slots().split_at(self.home(identity));
            let vacant = from_home.iter().chain(before).find(|slot| slot::name_of(slot) == VACANT);
            slot::fill(vacant.expect("an array is full to three quarters at most"), identity, definition);
        }

        /// Leaves a grave instead of a name's definition. Says whether there was one.
        fn bury(&self, identity: u64) -> bool {
            self.find(identity).map(|slot| slot::clear(slot, GRAVE)).is_some()
        }

        /// Removes a name's definition; those that follow and are not at home move up. Says whether there was one.
        fn remove(&self, identity: u64) -> bool {
            let (slots, home) = (self.slots(), self.home(identity));
            let mut hole = home;
            loop {
                match slots.get(hole).map_or(VACANT, slot::name_of) {
                    VACANT => return false,
                    name if name == identity => break,
                    _ => hole = self.after(hole),
                }
            }
            let mut place = hole;
            loop {
                place = self.after(place);
                let name = slot::name_of(&slots[place]);
                if name == VACANT {
                    break;
                }
                // One whose home lies behind the hole would be lost in front of it.
                if self.distance(self.home(name), place) >= self.distance(hole, place) {
                    slot::fill(&slots[hole], name, &slot::definition_in(&slots[place]));
                    hole = place;
                }
            }
            slot::clear(&slots[hole], VACANT);
            true
        }

        fn after(&self, place: usize) -> usize {
            if place + 1 == self.len { 0 } else { place + 1 }
        }

        fn distance(&self, from: usize, to: usize) -> usize {
            if to >= from { to - from } else { to + self.len - from }
        }
    }

    impl fmt::Debug for Array {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Array").field("slots", &self.len).finish_non_exhaustive()
        }
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::protocol::ids::{DylibId, Id, RowId};
    use crate::record::definitions::RecordedDefinition;
    use crate::{ExecutorAddr, SymbolFlags, SymbolName, SymbolStringPool};

    fn definition(number: u32) -> RecordedDefinition {
        RecordedDefinition {
            dylib: DylibId::new(number % (1 << 24), number),
            row: RowId::new(number, !number),
            address: ExecutorAddr::new(u64::from(number) << 20),
            flags: SymbolFlags::from_bits_retain(number as u8),
            is_ready: true,
        }
    }

    fn names(count: usize) -> Vec<SymbolName> {
        let pool = SymbolStringPool::new();
        (0..count).map(|index| pool.intern(&format!("n{index}"))).collect()
    }

    #[test]
    fn a_table_agrees_with_a_map_while_it_grows_and_shrinks() {
        let names = names(20_000);
        let (table, mut writer, mut model) = (Table::new(), Writer::default(), HashMap::new());
        let mut random = 7u64;
        for step in 0..200_000u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let name = &names[(random >> 33) as usize % names.len()];
            // Ebb and flow, through several arrays.
            let grows = (random >> 20) % 100 < if step / 50_000 % 2 == 0 { 90 } else { 10 };
            match grows {
                true if !model.contains_key(name) => {
                    writer.insert(&table, name, &definition(step));
                    model.insert(name.clone(), definition(step));
                }
                true => {}
                false => {
                    writer.remove(&table, name);
                    model.remove(name);
                }
            }
            assert_eq!(writer.len(), model.len());
            assert_eq!(writer.get(name), model.get(name).copied());
            if step % 10_000 == 0 {
                table.read(|arrays| {
                    assert!(names.iter().all(|name| arrays.get(name) == model.get(name).copied()));
                });
            }
        }
    }

    #[test]
    fn what_is_removed_gives_its_room_back() {
        let names = names(50_000);
        let (table, mut writer) = (Table::new(), Writer::default());
        writer.reserve(&table, 40_000);
        for (name, number) in names.iter().zip(0..) {
            writer.insert(&table, name, &definition(number));
        }
        assert!(writer.room() < 4 * names.len());
        for (index, name) in names.iter().enumerate() {
            writer.remove(&table, name);
            let left = names.len() - index - 1;
            assert!(left > 10_000 || writer.room() < 200_000, "{} slots for {left} names", writer.room());
        }
        assert_eq!(writer.room(), 0);
        assert!(names.iter().all(|name| writer.get(name).is_none()));
    }
}

#[cfg(any(uruk_loom, uruk_shuttle))]
mod model {
    use std::collections::HashMap;

    use rustc_hash::FxBuildHasher;

    use crate::SymbolName;
    use crate::record::definitions::RecordedDefinition;
    use crate::record::slot::{self, Slot, VACANT};
    use crate::sync::Hidden;
    use crate::sync::atomic::AtomicU64;

    /// So many names a model may have.
    const SLOTS: usize = if cfg!(uruk_loom) { 6 } else { 64 };

    #[derive(Debug)]
    pub(in crate::record) struct Table(Arrays);

    #[derive(Debug)]
    pub(in crate::record) struct Arrays {
        /// All are there from the beginning: whatever made one later would have to be ordered before its first reader.
        slots: Vec<Slot>,
        /// Which of them a name has.
        places: Hidden<HashMap<SymbolName, usize, FxBuildHasher>>,
    }

    impl Table {
        pub(in crate::record) fn new() -> Self {
            let slot = |_| std::array::from_fn(|_| AtomicU64::new(VACANT));
            Self(Arrays { slots: (0..SLOTS).map(slot).collect(), places: Hidden::default() })
        }

        pub(in crate::record) fn read<R>(&self, look: impl FnOnce(&Arrays) -> R) -> Option<R> {
            Some(look(&self.0))
        }
    }

    impl Arrays {
        pub(in crate::record) fn get(&self, name: &SymbolName) -> Option<RecordedDefinition> {
            let slot = self.slot(name);
            (slot::name_of(slot) == name.identity() as u64).then(|| slot::definition_in(slot))
        }

        fn slot(&self, name: &SymbolName) -> &Slot {
            let place = self.places.with(|places| {
                let next = places.len();
                *places.entry(name.clone()).or_insert(next)
            });
            self.slots.get(place).expect("a model has few names")
        }
    }

    /// What the writer knows. Of all accesses before a store, loom tries orders with the last one alone, which shall be some
    /// reader's: the writer looks at no slot.
    #[derive(Debug, Default)]
    pub(in crate::record) struct Writer(HashMap<SymbolName, RecordedDefinition, FxBuildHasher>);

    /// Memory that is no longer used: none.
    #[derive(Debug)]
    pub(in crate::record) enum Discarded {}

    impl Writer {
        pub(in crate::record) fn look_at(&self, _: &SymbolName) -> usize {
            0
        }

        pub(in crate::record) fn len(&self) -> usize {
            self.0.len()
        }

        pub(in crate::record) fn get(&self, name: &SymbolName) -> Option<RecordedDefinition> {
            self.0.get(name).copied()
        }

        pub(in crate::record) fn insert(
            &mut self,
            table: &Table,
            name: &SymbolName,
            definition: &RecordedDefinition,
        ) {
            slot::fill(table.0.slot(name), name.identity() as u64, definition);
            self.0.insert(name.clone(), *definition);
        }

        pub(in crate::record) fn remove(&mut self, table: &Table, name: &SymbolName) {
            if self.0.remove(name).is_some() {
                slot::clear(table.0.slot(name), VACANT);
            }
        }

        pub(in crate::record) fn reserve(&mut self, _: &Table, _: usize) {}

        pub(in crate::record) fn take_discarded(&mut self) -> Option<Discarded> {
            None
        }
    }
}
