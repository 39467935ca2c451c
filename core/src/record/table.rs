//! The table of names with one definition: open addressing over slots, one writer, readers without locks.
//!
//! ```text
//!   newest   [slot][slot][    ][slot][    ][slot]...     insertions go here
//!   older    [slot][    ][slot]..                        while it moves, some slots with each insertion and removal
//! ```
//!
//! An array is filled to three quarters; then a larger one takes its place. Nothing moves at once: readers look into the
//! newest array and then into the older one, until everything of that is in the newest as well. A table that is mostly
//! empty moves into a smaller array in the same way. A reader keeps both arrays from being freed (`shared.rs`).
//!
//! **Invariants.** A definition that is in the older array behind the place up to which it has moved is not in the newest. A
//! definition may be read at a wrong slot, or overlooked, only while the gate is closed.
//!
//! Models run all of this, with small arrays: loom-tests/tests/models/table.rs.

use crate::SymbolName;
use crate::sync::{Counted, weakened};

use super::array::Array;
use super::definitions::RecordedDefinition;
use super::shared::Shared;
use super::slot::{self, GRAVE};

/// The readers' view.
#[derive(Debug)]
pub(super) struct Table {
    arrays: Shared<Arrays>,
}

/// Where definitions are at the moment.
#[derive(Debug)]
pub(super) struct Arrays {
    newest: Counted<Array>,
    older: Option<Counted<Array>>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { arrays: Shared::new() }
    }

    /// Lets `look` look at the definitions.
    #[inline]
    pub(super) fn read<R>(&self, look: impl FnOnce(&Arrays) -> R) -> Option<R> {
        self.arrays.read(look)
    }
}

impl Arrays {
    #[inline]
    pub(super) fn get(&self, name: &SymbolName) -> Option<RecordedDefinition> {
        let identity = slot::identity_of(name);
        let slot = self.newest.find(identity);
        slot.or_else(|| self.older.as_ref()?.find(identity)).map(slot::definition_in)
    }
}

/// The writer's own data.
#[derive(Debug, Default)]
pub(super) struct Writer {
    newest: Counted<Array>,
    older: Option<Counted<Array>>,
    /// How many slots of the older array have moved.
    moved: usize,
    len: usize,
    /// Arrays to be freed where no thread waits for it.
    discarded: Vec<Counted<Array>>,
}

/// Memory that is no longer used.
#[derive(Debug)]
pub(super) struct DiscardedTable(
    #[expect(dead_code, reason = "held to be dropped outside the lock")] Vec<Counted<Array>>,
);

/// Models go through everything with a handful of names.
const IS_MODEL: bool = cfg!(any(uruk_loom, uruk_shuttle));

/// So many slots move with each insertion and each removal: an array has moved long before the next one is full, or
/// as good as empty.
const MOVED_AT_ONCE: usize = if IS_MODEL { 2 } else { 16 };

/// Room of the smallest array.
const SLOTS_MIN: usize = if IS_MODEL { 4 } else { 16 };

/// Tables of fewer names grow in longer steps: room costs them less than moving.
const SMALL: usize = if IS_MODEL { 1 } else { 4096 };

/// An array of which only one slot in so many is taken is too large.
const SPARSE: usize = if IS_MODEL { 4 } else { 8 };

/// A smaller array is freed in less time than it takes to hand it on.
const DISCARDED_MIN: usize = if IS_MODEL { 8 } else { 2048 };

impl Writer {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, name: &SymbolName) -> Option<RecordedDefinition> {
        let identity = slot::identity_of(name);
        let slot = self.newest.find_written(identity);
        slot.or_else(|| self.older.as_ref()?.find_written(identity)).map(slot::written_definition_in)
    }

    /// Reads something of the slot where a name belongs.
    pub(super) fn look_at(&self, name: &SymbolName) -> usize {
        self.newest.look_at(slot::identity_of(name))
    }

    /// Adds a definition of a name that has none.
    pub(super) fn insert(&mut self, table: &Table, name: &SymbolName, definition: &RecordedDefinition) {
        self.move_some(table);
        if 4 * (self.len + 1) > 3 * self.newest.len() {
            let growth = if self.len < SMALL { 4 } else { 2 };
            self.resize(table, growth * (self.len + 1));
        }
        self.newest.insert(slot::identity_of(name), definition);
        self.len += 1;
    }

    /// Takes the definition of a name out, if it has one. Within a closed gate.
    pub(super) fn remove(&mut self, table: &Table, name: &SymbolName) {
        let identity = slot::identity_of(name);
        let in_older = self.older.as_ref().is_some_and(|older| older.bury(identity));
        if !self.newest.remove(identity) && !in_older {
            return;
        }
        self.len -= 1;
        self.move_some(table);
        if self.len == 0 {
            self.moved = usize::MAX;
            self.resize(table, 0);
        } else if SPARSE * self.len < self.newest.len()
            && self.newest.len() > SLOTS_MIN
            && self.older.is_none()
        {
            self.resize(table, 2 * self.len);
        }
    }

    /// Makes room for as many more at once.
    pub(super) fn reserve(&mut self, table: &Table, further: usize) {
        let slots = (self.len + further).div_ceil(3) * 4;
        if slots > self.newest.len() {
            self.resize(table, slots);
        }
    }

    pub(super) fn take_discarded(&mut self) -> Option<DiscardedTable> {
        (!self.discarded.is_empty()).then(|| DiscardedTable(std::mem::take(&mut self.discarded)))
    }

    /// Goes on in an array of so many slots.
    #[cold]
    fn resize(&mut self, table: &Table, slots: usize) {
        self.move_slots(table, usize::MAX);
        let slots = if slots == 0 { 0 } else { slots.max(SLOTS_MIN) };
        let older = std::mem::replace(&mut self.newest, Counted::new(Array::new(slots)));
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
            let identity = slot::written_name_of(slot);
            if identity > GRAVE {
                self.newest.insert(identity, &slot::written_definition_in(slot));
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

    fn publish(&self, table: &Table) {
        let older = self.older.clone().filter(|_| !weakened("table::forgets_the_older"));
        table.arrays.replace(Arrays { newest: self.newest.clone(), older });
    }

    fn discard(&mut self, array: Counted<Array>) {
        if array.len() >= DISCARDED_MIN {
            self.discarded.push(array);
        }
    }

    /// How many slots there are, for tests.
    #[cfg(any(uruk_loom, all(test, not(uruk_shuttle))))]
    pub(super) fn room(&self) -> usize {
        self.newest.len() + self.older.as_ref().map_or(0, |older| older.len())
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::ids::{DylibId, Id, RowId};
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

    /// After each step the room is in proportion to what is there, and every few steps all names are looked up.
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
            // An array that is as good as empty may still be moving into a smaller one.
            let room_max = (SPARSE + 4) * model.len() + 2 * SLOTS_MIN;
            assert!(writer.room() <= room_max, "{} slots for {} names", writer.room(), model.len());
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
