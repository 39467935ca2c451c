//! The ready path: lookups of Ready symbols without the session lock.
//!
//! A name that is Ready in some dylib has one *entry* of all its definitions in every dylib. Entries change
//! inside transactions, never after them, so that no removal is overtaken. A reader takes the first definition
//! its search order may see and answers only if that one is Ready and nothing could come before it; in every
//! other case it gives up, and the caller takes the lock.
//!
//! # The gate
//!
//! One word says whether the structure (which definitions exist, generators, dylibs, the session itself)
//! is changing. A reader reads it before and after the entries; if it moved, the reader gives up.
//!
//! ```text
//!   writer, under the session lock            reader, without it
//!   gate |= CHANGING                          before = gate; CHANGING? give up
//!   fence(Release)                            read entries, dylibs and the count of their changes
//!   replace entries, dylibs, their count      fence(Acquire)
//!   gate = gate + VERSION, not CHANGING       gate == before? answer : give up
//! ```
//!
//! | bit | meaning | moved by |
//! |---|---|---|
//! | `CHANGING` | a transaction removes, redefines or hides something | first such change of a transaction, and its end |
//! | `CLOSED` | the session refuses lookups | close |
//! | `REMOVING` | entries tell of rows that are gone for everybody | removal of a tracker with many rows, and its end |
//! | the rest | version | the end of each transaction that was `CHANGING` |
//!
//! A definition that becomes Ready does not move the version: it contradicts no answer. Nor does a dylib that is
//! created: no order names it yet.
//!
//! # Dylibs of the order
//!
//! An answer takes for granted that no dylib of the order was removed and that none before the one that answers
//! generates. Both change rarely, and each change is counted, within a closed gate. So an order is walked over
//! once for each such count and remembers what was seen (`SearchOrder::remember`); with the same count it still
//! holds. In an order of one dylib nothing comes before, and a removed dylib has no definitions.
//!
//! # Memory
//!
//! An entry goes with its name's last Ready definition. Names with one definition, nearly all, have about 70 bytes each in the map. A
//! map that has few names left keeps up to 25 bytes for each that went, and shrinks as others come.
//!
//! **Architecture Invariant:** what a reader answers is what the locked path would have answered at some
//! moment between the reader's two looks at the gate.

mod definitions;
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
mod lone_guard;
mod many;
mod map;
mod names;
mod order;
mod word;

use std::ops::Deref;

use crate::SymbolName;
use crate::ids::DylibId;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::sync::{Arc, weakened};

use definitions::NameEntry;
use map::Map;
use names::Names;
use word::{Word, written};

pub(crate) use definitions::IndexedDefinition;
#[cfg(any(test, debug_assertions))]
pub(crate) use definitions::SEVERAL_AGAIN;
pub(crate) use order::DylibOrder;

/// The entries of a session and the gate before them.
#[derive(Debug)]
pub(crate) struct ReadyIndex {
    gate: Word,
    names: Names,
    /// The dylibs that are there, and whether each has a generator.
    dylibs: Map<DylibId, bool>,
    /// How often a dylib was removed, got its first generator or lost its last.
    dylib_changes: AtomicU64,
    /// How often a link order changed: for those who keep one (`ExecutionSession::link_order_changes`).
    link_order_changes: AtomicU64,
}

const CHANGING: u64 = 1;
const CLOSED: u64 = 1 << 1;
const REMOVING: u64 = 1 << 2;
const VERSION: u64 = 1 << 3;

impl ReadyIndex {
    pub(crate) fn new() -> Self {
        Self {
            gate: Word::default(),
            names: Names::new(),
            dylibs: Map::new(),
            dylib_changes: AtomicU64::new(0),
            link_order_changes: AtomicU64::new(0),
        }
    }

    /// The definitions of `names` along `order`, if every one of them is Ready and certain.
    ///
    /// Each found definition goes to `found`, in the order of the names; after giving up, what went there is void.
    ///
    /// # Cost
    /// One probe for each name and one for each of its definitions. Takes no lock, allocates nothing, touches no
    /// reference count.
    pub(crate) fn read<'a>(
        &self,
        order: &impl DylibOrder,
        names: impl Iterator<Item = &'a SymbolName>,
        mut found: impl FnMut(&IndexedDefinition),
    ) -> bool {
        let Some(before) = self.version() else { return false };
        // Relaxed: moved within a closed gate only, like the entries.
        let changes = self.dylib_changes.load(Ordering::Relaxed);
        let known = if order.is_single() { Some(0) } else { order.certain_until(changes) };
        let Some(certain_until) = known.or_else(|| self.survey(order)) else { return false };
        let answered = self.names.answer_all(names, |entry| entry.answer(order, certain_until, &mut found));
        if !self.is_at(before) && !weakened("publish::looks_once") {
            return false;
        }
        if known.is_none() {
            order.remember(changes, certain_until);
        }
        answered
    }

    /// The gate, if readers are let in.
    #[inline]
    pub(crate) fn version(&self) -> Option<u64> {
        // ordering[ready-gate]: Acquire. Pairs with the Release in `end_change`; entries replaced before the
        // gate was opened are seen.
        let gate = self.gate.load(Ordering::Acquire);
        (gate & (CHANGING | CLOSED | REMOVING) == 0).then_some(gate)
    }

    /// Whether the gate has not moved since it was `before`: what was read in between holds together.
    #[inline]
    pub(crate) fn is_at(&self, before: u64) -> bool {
        // ordering[ready-change]: Acquire fence. Pairs with the Release fence in `start_change`; a reader that saw
        // anything of a change sees here that the gate has moved.
        // ordering[ready-publish]: Acquire fence. Pairs with the Release fence in `precede_publication`; a reader that
        // is told an address sees what was done to make it Ready.
        if !weakened("publish::reads_without_fence") {
            fence(Ordering::Acquire);
        }
        // Relaxed: the fence above orders it behind the reads of the entries.
        self.gate.load(Ordering::Relaxed) == before
    }

    /// The first position of `order` that generates, or a larger one if none does: no answer is certain further on.
    /// None if one of its dylibs was removed. To be confirmed by the gate.
    #[cold]
    fn survey(&self, order: &impl DylibOrder) -> Option<usize> {
        let guard = self.dylibs.guard();
        let mut first_generating = None;
        for (position, (dylib, _)) in order.dylibs().enumerate() {
            if *self.dylibs.get(&dylib, &guard)? {
                first_generating.get_or_insert(position);
            }
        }
        Some(first_generating.unwrap_or(usize::MAX))
    }

    /// Closes the gate until [`ReadyIndex::end_change`]. Called under the session lock.
    pub(crate) fn start_change(&self) {
        let gate = written(&self.gate);
        if !weakened("publish::gate_stays_open") {
            // Relaxed: the fence below orders it ahead of the changes.
            self.gate.store(gate | CHANGING, Ordering::Relaxed);
        }
        // ordering[ready-change]: Release fence. Pairs with the Acquire fence in `read`.
        if !weakened("publish::closes_without_fence") {
            fence(Ordering::Release);
        }
    }

    /// Refuses readers from now on. Called under the session lock.
    pub(crate) fn close(&self) {
        self.start_change();
        // Relaxed: the end of the change makes it seen.
        self.gate.store(written(&self.gate) | CLOSED, Ordering::Relaxed);
    }

    /// Refuses readers while entries tell of definitions that are gone. Called under the session lock.
    pub(crate) fn set_removing(&self, removing: bool) {
        let gate = written(&self.gate);
        if (gate & REMOVING != 0) != removing {
            self.start_change();
            // Relaxed: the end of the change makes it seen.
            self.gate.store((gate | CHANGING) ^ REMOVING, Ordering::Relaxed);
        }
    }

    /// Opens the gate if it was closed. Called under the session lock, at the end of each transaction.
    pub(crate) fn end_change(&self) {
        let gate = written(&self.gate);
        if gate & CHANGING != 0 {
            let version = if weakened("publish::version_stays") { 0 } else { VERSION };
            // ordering[ready-gate]: Release. Pairs with the Acquire in `read`.
            let order =
                if weakened("publish::opens_unordered") { Ordering::Relaxed } else { Ordering::Release };
            self.gate.store((gate & !CHANGING).wrapping_add(version), order);
        }
    }

    /// A dylib was created. Called under the session lock, like all that follow.
    pub(crate) fn add_dylib(&self, dylib: DylibId) {
        self.dylibs.insert(dylib, false);
    }

    /// A dylib was removed, its definitions before it.
    pub(crate) fn remove_dylib(&self, dylib: DylibId) {
        self.count_dylib_change();
        self.dylibs.remove(&dylib);
    }

    /// A dylib has generators from now on, or has none.
    pub(crate) fn set_generates(&self, dylib: DylibId, generates: bool) {
        let known = self.dylibs.current(&dylib, &self.dylibs.guard()).copied();
        if known.is_some_and(|known| known != generates) && !weakened("shadow::tells_nobody_of_generators") {
            self.count_dylib_change();
            self.dylibs.insert(dylib, generates);
        }
    }

    /// See [`crate::ExecutionSession::link_order_changes`].
    #[inline]
    pub(crate) fn link_order_changes(&self) -> u64 {
        // Relaxed: a link order is read under the session's lock. A thread that knows of a change sees this count of it, or a
        // later one.
        self.link_order_changes.load(Ordering::Relaxed)
    }

    /// The link order of some dylib changes.
    pub(crate) fn count_link_order_change(&self) {
        // Relaxed: only the holder of the session lock writes it; see `link_order_changes`.
        let changes = self.link_order_changes.load(Ordering::Relaxed);
        self.link_order_changes.store(changes + 1, Ordering::Relaxed);
    }

    fn count_dylib_change(&self) {
        self.start_change();
        // Relaxed: only the holder of the session lock writes it, and readers look at the gate behind it.
        let changes = self.dylib_changes.load(Ordering::Relaxed);
        if !weakened("shadow::counts_no_change") {
            self.dylib_changes.store(changes + 1, Ordering::Relaxed);
        }
    }
}

/// The ready index as its only writer sees it: part of the state, so behind the session lock.
#[derive(Debug)]
pub(crate) struct ReadyIndexWriter {
    index: Arc<ReadyIndex>,
    len: usize,
}

impl Deref for ReadyIndexWriter {
    type Target = Arc<ReadyIndex>;

    fn deref(&self) -> &Arc<ReadyIndex> {
        &self.index
    }
}

impl ReadyIndexWriter {
    pub(crate) fn new() -> Self {
        Self { index: Arc::new(ReadyIndex::new()), len: 0 }
    }

    /// About so many names will be Ready soon: makes room for them at once, if they are more than there are now.
    ///
    /// Where few come to many, what is there moves bit by bit as they come: room for all would be a pause. So would be room
    /// for more than can come soon, which might not come at all.
    pub(crate) fn expect(&mut self, names: usize) {
        const MANY: usize = 1024;
        const AT_ONCE_MAX: usize = 1 << 20;
        if names >= MANY && names >= self.len {
            self.index.names.reserve(names.min(AT_ONCE_MAX));
        }
    }

    /// The only definition of its name became Ready.
    pub(crate) fn publish_alone(&mut self, name: &SymbolName, definition: IndexedDefinition) {
        precede_publication();
        self.put(name, NameEntry::One(definition));
    }

    /// One of several definitions of a name became Ready. Says whether the name had an entry.
    pub(crate) fn publish(&mut self, name: &SymbolName, definition: IndexedDefinition) -> bool {
        precede_publication();
        self.edit(name, false, |entry| entry.with(definition))
    }

    /// The first of several definitions of a name became Ready; these are all of them.
    pub(crate) fn publish_first(&mut self, name: &SymbolName, all: Vec<IndexedDefinition>) {
        precede_publication();
        if let Some(entry) = NameEntry::of(all) {
            self.put(name, entry);
        }
    }

    /// A name got a further definition, which is not Ready; or one that was Ready gives no answers any more.
    pub(crate) fn appear(&mut self, name: &SymbolName, definition: IndexedDefinition) {
        if weakened("shadow::keeps_the_record") {
            return;
        }
        self.edit(name, true, |entry| entry.with(definition));
    }

    /// The only definition of a name goes, which is Ready.
    pub(crate) fn disappear_alone(&mut self, name: &SymbolName) {
        self.index.start_change();
        if !weakened("publish::removal_keeps_the_record") {
            self.remove(name);
        }
    }

    /// The definition of a name in `dylib` goes, others stay.
    pub(crate) fn disappear(&mut self, name: &SymbolName, dylib: DylibId) {
        self.edit(name, true, |entry| entry.without(dylib));
    }

    /// Changes the entry of a name. Says whether it has one.
    fn edit(
        &mut self,
        name: &SymbolName,
        closes: bool,
        change: impl FnOnce(&NameEntry) -> Option<NameEntry>,
    ) -> bool {
        let Some(successor) = self.index.names.look(name, change) else { return false };
        if closes || successor.is_none() {
            self.index.start_change();
        }
        match successor {
            Some(successor) => self.put(name, successor),
            None => self.remove(name),
        }
        true
    }

    fn put(&mut self, name: &SymbolName, entry: NameEntry) {
        self.len += usize::from(self.index.names.put(name, entry));
    }

    /// Within a closed gate.
    fn remove(&mut self, name: &SymbolName) {
        self.len -= usize::from(self.index.names.remove(name));
    }

    /// The entry of a name, for checks.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn indexed(&self, name: &SymbolName) -> Option<Vec<IndexedDefinition>> {
        self.index.names.look(name, NameEntry::definitions)
    }

    /// Whether a dylib generates, if readers know of it, for checks.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn generates(&self, dylib: DylibId) -> Option<bool> {
        self.dylibs.current(&dylib, &self.dylibs.guard()).copied()
    }

    /// Whether readers are refused because the session is closed, and because rows are being removed, for checks.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn refuses(&self) -> (bool, bool) {
        let gate = written(&self.gate);
        (gate & CLOSED != 0, gate & REMOVING != 0)
    }

    /// How many entries there are, for checks.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// Orders the writes that made a symbol Ready before its entry: the code at its address, above all. The map orders as much as this needs;
/// it does not say so.
fn precede_publication() {
    // ordering[ready-publish]: Release fence. Pairs with the Acquire fence in `read`.
    // ordering[ready-change]: Release fence. Pairs with the same; a reader that sees the new entry sees each earlier closing of the gate.
    if !weakened("ready::publishes_unordered") {
        fence(Ordering::Release);
    }
}
