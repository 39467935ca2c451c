//! Values by integer ids, found without a lock.
//!
//! ```text
//!   id       generation │ number of the entry              in linked data
//!   state    generation │ holders: the owner, and readers  one word of the entry
//!
//!   insert ─▶ (g, 1) ─┬─ find ─▶ (g, 2) ─ drop ─▶ (g, 1)
//!                     └─ remove ─▶ (g+1, readers) ─ the last reader ─▶ (g+1, 0) ─ collect ─▶ the value is dropped, the entry is free
//! ```
//! A reader becomes a holder by one exchange of the state, which fails if the generation is not its id's. So an id finds its own value or
//! none, whether the value has been removed or the entry has another value by now. A value is freed when the entry has no holder.
//!
//! Entries stay where they are: the table grows by pieces, each twice as large as the one before.
//!
//! The model is `loom-tests/tests/id_table.rs`, which compiles this file.
//!
//! **Never:** a reader takes no lock, allocates nothing and frees nothing, so it may be the handler of a signal. It tries again only if
//! the state has changed meanwhile, which is progress of another thread.
//!
//! **In the child of a fork** readers of the parent's other threads remain counted. The values that these threads held at the fork are not
//! freed there.

use std::ops::Deref;
use std::ptr;

use uruk_core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use uruk_core::sync::{Followed, weakened};

/// Models have few of everything, so that the table grows after one entry.
const FIRST_ENTRIES: usize = if cfg!(uruk_loom) { 1 } else { 64 };
/// Together they have more entries than there are numbers.
const PIECES: usize = if cfg!(uruk_loom) { 3 } else { 27 };

/// The name of a value in an [`IdTable`]. Zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableId(u64);

impl TableId {
    /// The id that has been written as a number.
    pub(super) const fn of(number: u64) -> Self {
        Self(number)
    }

    /// The id as a number, for linked data.
    pub(super) const fn number(self) -> u64 {
        self.0
    }

    const fn entry(self) -> u32 {
        self.0 as u32
    }
}

/// The difference between two generations, in a state and in an id.
const GENERATION: u64 = 1 << 32;

/// The generation that a state or an id has.
const fn generation(word: u64) -> u64 {
    word / GENERATION
}

const fn holders(state: u64) -> u64 {
    state % GENERATION
}

/// The table. Changes need its [`TableChanges`], which stands behind a lock; [`find`](Self::find) needs nothing.
pub(super) struct IdTable<T> {
    /// Piece `n` has `FIRST_ENTRIES << n` entries.
    pieces: [AtomicPtr<TableEntry<T>>; PIECES],
}

struct TableEntry<T> {
    state: AtomicU64,
    /// Owned. Null without a value.
    value: AtomicPtr<TableValue<T>>,
}

/// A value, where readers find it.
pub(super) struct TableValue<T> {
    reads: Followed,
    value: T,
}

/// State of those who change a table.
pub(super) struct TableChanges {
    /// How many entries have been used.
    used: u32,
    free: Vec<u32>,
    /// Entries whose values have been removed, and may have readers.
    removed: Vec<u32>,
}

impl TableChanges {
    pub(super) const fn new() -> Self {
        Self { used: 0, free: Vec::new(), removed: Vec::new() }
    }
}

impl<T: Send + Sync> IdTable<T> {
    /// An empty table.
    #[cfg(not(uruk_loom))]
    pub(super) const fn new() -> Self {
        Self { pieces: [const { AtomicPtr::new(ptr::null_mut()) }; PIECES] }
    }

    /// The same in a model, where nothing can be made before that runs.
    #[cfg(uruk_loom)]
    pub(super) fn new() -> Self {
        Self { pieces: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())) }
    }

    /// Adds a value, which is found from now on.
    pub(super) fn insert(&self, changes: &mut TableChanges, value: T) -> TableId {
        let number = changes.free.pop().unwrap_or_else(|| {
            changes.used = changes.used.checked_add(1).expect("memory ends before the numbers do");
            changes.used - 1
        });
        let entry = self.entry(number).unwrap_or_else(|| self.grow(number));
        let value = Box::into_raw(Box::new(TableValue { reads: Followed::new(), value }));
        entry.value.store(value, Ordering::Relaxed); // published by the state
        // Relaxed: the state of an entry without holders changes under the lock alone.
        let generation = generation(entry.state.load(Ordering::Relaxed)).max(1);
        // ordering[id-value]: Release. Pairs with the Acquire in `find`; the value is complete.
        let order =
            if weakened("id_table::publishes_unordered") { Ordering::Relaxed } else { Ordering::Release };
        entry.state.store(generation * GENERATION + 1, order);
        TableId(generation * GENERATION + u64::from(number))
    }

    /// Finds the value of `id`, unless it has been removed. The value stays for as long as the result does.
    pub(super) fn find(&self, id: TableId) -> Option<FoundValue<'_, T>> {
        let entry = self.entry(id.entry())?;
        let mut state = entry.state.load(Ordering::Relaxed); // the exchange looks again
        loop {
            if generation(state) != generation(id.0) || holders(state) == 0 {
                return None;
            }
            if weakened("id_table::counts_without_a_look") {
                entry.state.fetch_add(1, Ordering::Acquire);
                break;
            }
            // ordering[id-value]: Acquire. Pairs with the Release in `insert`.
            match entry.state.compare_exchange(state, state + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        // Relaxed: the value does not change while the entry has a holder.
        Some(FoundValue { entry, value: entry.value.load(Ordering::Relaxed) })
    }

    /// Has `id`, which is of a value in the table, find nothing from now on. A later [`collect`](Self::collect) gives the value back.
    pub(super) fn remove(&self, changes: &mut TableChanges, id: TableId) {
        let entry = self.entry(id.entry()).expect("an id names an entry");
        let before = entry.state.fetch_add(GENERATION - 1, Ordering::Relaxed); // `collect` looks at the holders
        assert_eq!(generation(before), generation(id.0), "a value is removed once");
        changes.removed.push(id.entry());
    }

    /// Takes the removed values that have no reader any more. The caller drops them without the lock.
    #[must_use]
    pub(super) fn collect(&self, changes: &mut TableChanges) -> Vec<Box<TableValue<T>>> {
        let TableChanges { free, removed, .. } = changes;
        let mut values = Vec::new();
        removed.retain(|&number| {
            let Some(entry) = self.entry(number) else { return true };
            // ordering[id-left]: Acquire. Pairs with the Release when a reader leaves; its reads are over.
            let state = entry.state.load(Ordering::Acquire);
            if holders(state) != 0 && !weakened("id_table::frees_beneath_a_reader") {
                return true;
            }
            let value = entry.value.swap(ptr::null_mut(), Ordering::Relaxed); // no other thread looks at it
            // SAFETY: it came out of `Box::into_raw` in `insert`, and is taken once. The generation has changed, so no reader comes to it
            // any more, and those that had it have left.
            values.push(unsafe { Box::from_raw(value) });
            // An entry whose generations are used up stays empty.
            if generation(state) != 0 {
                free.push(number);
            }
            false
        });
        values
    }

    fn entry(&self, number: u32) -> Option<&TableEntry<T>> {
        let (piece, at) = place(number);
        // ordering[id-piece]: Acquire. Pairs with the Release in `grow`; the entries are complete.
        let entries = self.pieces.get(piece)?.load(Ordering::Acquire);
        // SAFETY: a piece has that many entries, and stays as long as the table.
        (!entries.is_null()).then(|| unsafe { &*entries.add(at) })
    }

    /// Adds the piece of an entry.
    fn grow(&self, number: u32) -> &TableEntry<T> {
        let (piece, at) = place(number);
        let entry = || TableEntry::<T> { state: AtomicU64::new(0), value: AtomicPtr::new(ptr::null_mut()) };
        let entries: Box<[_]> = (0..FIRST_ENTRIES << piece).map(|_| entry()).collect();
        let entries = Box::into_raw(entries).cast::<TableEntry<T>>();
        // ordering[id-piece]: Release. Pairs with the Acquire in `entry`.
        let order = if weakened("id_table::grows_unordered") { Ordering::Relaxed } else { Ordering::Release };
        self.pieces[piece].store(entries, order);
        // SAFETY: as in `entry`.
        unsafe { &*entries.add(at) }
    }
}

/// The piece of an entry, and its place there.
const fn place(number: u32) -> (usize, usize) {
    let shifted = number as usize + FIRST_ENTRIES;
    let piece = (shifted.ilog2() - FIRST_ENTRIES.ilog2()) as usize;
    (piece, shifted - (FIRST_ENTRIES << piece))
}

impl<T> Drop for IdTable<T> {
    fn drop(&mut self) {
        for (piece, entries) in self.pieces.iter().enumerate() {
            let entries = entries.load(Ordering::Relaxed); // this is the only user
            if entries.is_null() {
                continue;
            }
            let entries = ptr::slice_from_raw_parts_mut(entries, FIRST_ENTRIES << piece);
            // SAFETY: made so in `grow`, and this is the only user.
            for entry in unsafe { Box::from_raw(entries) } {
                let value = entry.value.load(Ordering::Relaxed); // as above
                // SAFETY: as in `collect`.
                drop((!value.is_null()).then(|| unsafe { Box::from_raw(value) }));
            }
        }
    }
}

/// A value that was found, which stays while this is there.
pub(super) struct FoundValue<'t, T> {
    entry: &'t TableEntry<T>,
    value: *const TableValue<T>,
}

impl<T> Deref for FoundValue<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: not null, because the entry has had a holder without a pause since the value was put there. It is freed without holders
        // alone, and this is one.
        let value = unsafe { &*self.value };
        value.reads.note();
        &value.value
    }
}

impl<T> Drop for FoundValue<'_, T> {
    fn drop(&mut self) {
        // ordering[id-left]: Release. Pairs with the Acquire in `collect`.
        let order =
            if weakened("id_table::leaves_unordered") { Ordering::Relaxed } else { Ordering::Release };
        self.entry.state.fetch_sub(1, order);
    }
}

#[cfg(uruk_loom)]
impl<T> TableValue<T> {
    /// The value is freed now, as a model sees it.
    pub(super) fn end(&mut self) {
        self.reads.end();
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn an_id_of_a_removed_value_finds_nothing_though_its_entry_is_used_again() {
        let (table, mut changes) = (IdTable::new(), TableChanges::new());
        let first = table.insert(&mut changes, 1);
        assert_eq!(table.find(first).as_deref(), Some(&1));
        table.remove(&mut changes, first);
        assert!(table.find(first).is_none());
        assert_eq!(table.collect(&mut changes).len(), 1);
        let second = table.insert(&mut changes, 2);
        assert_eq!((second.entry(), changes.used), (first.entry(), 1), "the entry is used again");
        assert!(table.find(first).is_none());
        assert_eq!(table.find(second).as_deref(), Some(&2));
        assert!(table.find(TableId::of(0)).is_none());
    }

    #[test]
    fn a_value_that_is_removed_while_it_is_read_goes_later() {
        let (table, mut changes) = (IdTable::new(), TableChanges::new());
        let value = Arc::new(());
        let id = table.insert(&mut changes, value.clone());
        let found = table.find(id).expect("it is there");
        table.remove(&mut changes, id);
        assert_eq!(table.collect(&mut changes).len(), 0);
        let other = table.insert(&mut changes, Arc::new(()));
        assert_ne!(other.entry(), id.entry());
        assert_eq!(Arc::strong_count(&found), 2);
        drop(found);
        drop(table.collect(&mut changes));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn entries_stay_where_they_are_while_the_table_grows() {
        let (table, mut changes) = (IdTable::new(), TableChanges::new());
        let ids: Vec<_> = (0..1000).map(|number| table.insert(&mut changes, number)).collect();
        let found: Vec<_> = ids.iter().map(|&id| *table.find(id).expect("it is there")).collect();
        assert!(found.into_iter().eq(0..1000));
        assert_eq!([0, 63, 64, 191, 192, u32::MAX].map(|number| place(number).0), [0, 0, 1, 1, 2, 26]);
    }

    #[test]
    fn an_entry_whose_generations_are_used_up_stays_empty() {
        let (table, mut changes) = (IdTable::new(), TableChanges::new());
        let first = table.insert(&mut changes, ());
        table
            .entry(0)
            .expect("it is there")
            .state
            .store(u64::from(u32::MAX) * GENERATION + 1, Ordering::Relaxed);
        assert!(table.find(first).is_none());
        let last = TableId::of(u64::from(u32::MAX) * GENERATION);
        assert!(table.find(last).is_some());
        table.remove(&mut changes, last);
        assert_eq!(table.collect(&mut changes).len(), 1);
        assert_eq!(table.insert(&mut changes, ()).entry(), 1);
    }
}
