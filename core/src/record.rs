//! The ready path: lookups of Ready symbols without the session lock.
//!
//! A name that is Ready in some dylib has one immutable *record* of all its definitions in every dylib.
//! Records are replaced inside transactions, never after them, so that no removal is overtaken. A
//! reader takes the first definition its search order may see and answers only if that one is Ready and
//! nothing could come before it; in every other case it gives up, and the caller takes the lock.
//!
//! # The gate
//!
//! One word says whether the structure (which definitions exist, generators, dylibs, the session itself)
//! is changing. A reader reads it before and after the records; if it moved, the reader gives up.
//!
//! ```text
//!   writer, under the session lock            reader, without it
//!   gate |= CHANGING                          before = gate; CHANGING? give up
//!   fence(Release)                            read records
//!   replace records, set flags                fence(Acquire)
//!   gate = gate + VERSION, not CHANGING       gate == before? answer : give up
//! ```
//!
//! | bit | meaning | moved by |
//! |---|---|---|
//! | `CHANGING` | a transaction removes, redefines or hides something | first such change of a transaction, and its end |
//! | `CLOSED` | the session refuses lookups | close |
//! | `GENERATES` | some dylib has a generator | generators added and removed |
//! | `DYLIB_REMOVED` | a search order may name a dylib that is gone | removal of a dylib |
//! | `REMOVING` | records tell of rows that are gone for everybody | removal of a tracker with many rows, and its end |
//! | the rest | version | the end of each transaction that was `CHANGING` |
//!
//! A definition that becomes Ready does not move the version: it contradicts no answer.
//!
//! **Architecture Invariant:** what a reader answers is what the locked path would have answered at some
//! moment between the reader's two looks at the gate.

use crate::protocol::ids::DylibId;
use crate::sync::atomic::{AtomicUsize, Ordering, fence};
use crate::{ExecutionSession, ExecutorSymbolDef, JitDylibLookupFlags, SearchOrder, SymbolFlags, SymbolName};

/// The records of a session and the gate before them.
#[derive(Debug)]
pub(crate) struct Records {
    gate: AtomicUsize,
    map: map::Map,
}

/// All definitions of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The usual case, without a second allocation.
    One(RecordedDefinition),
    Several(Box<[RecordedDefinition]>),
}

/// One definition of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordedDefinition {
    pub(crate) dylib: DylibId,
    pub(crate) flags: SymbolFlags,
    /// None unless it is Ready.
    pub(crate) ready: Option<ExecutorSymbolDef>,
}

const CHANGING: usize = 1;
pub(crate) const CLOSED: usize = 1 << 1;
pub(crate) const GENERATES: usize = 1 << 2;
pub(crate) const DYLIB_REMOVED: usize = 1 << 3;
pub(crate) const REMOVING: usize = 1 << 4;
const VERSION: usize = 1 << 5;

/// A name defined in more dylibs than this has no record: each of its changes would rewrite all of it.
pub(crate) const DEFINITIONS_MAX: usize = 64;

impl Records {
    pub(crate) fn new() -> Self {
        Self { gate: AtomicUsize::new(0), map: map::Map::default() }
    }

    /// The definitions of `names` along `order`, if every one of them is Ready and certain.
    ///
    /// Each found definition goes to `found`; after giving up, what went there is void.
    ///
    /// # Cost
    /// One probe a name and one look at each dylib of the order. Takes no lock, allocates nothing, touches
    /// no reference count.
    pub(crate) fn read<'a>(
        &self,
        session: &ExecutionSession,
        order: &SearchOrder,
        names: impl Iterator<Item = &'a SymbolName>,
        mut found: impl FnMut(&'a SymbolName, ExecutorSymbolDef),
    ) -> bool {
        // ordering[record-gate]: Acquire. Pairs with the Release in `end_change`; records replaced before the
        // gate was opened are seen.
        let before = self.gate.load(Ordering::Acquire);
        if before & (CHANGING | CLOSED | REMOVING) != 0 || (before & DYLIB_REMOVED != 0 && order.len() > 1) {
            return false;
        }
        let guard = self.map.guard();
        for name in names {
            let record = self.map.get(name, &guard);
            let definition =
                record.and_then(|record| record.visible(session, order, before & GENERATES != 0));
            let Some(definition) = definition else { return false };
            found(name, definition);
        }
        // ordering[record-change]: Acquire fence. Pairs with the Release fence in `start_change`; a reader that saw a
        // record of a change sees here that the gate has moved.
        fence(Ordering::Acquire);
        // Relaxed: the fence above orders it behind the reads of the records.
        self.gate.load(Ordering::Relaxed) == before
    }

    /// Closes the gate until [`Records::end_change`]. Called under the session lock.
    pub(crate) fn start_change(&self) {
        // Relaxed: only the holder of the session lock writes the gate.
        let gate = self.gate.load(Ordering::Relaxed);
        self.gate.store(gate | CHANGING, Ordering::Relaxed);
        // ordering[record-change]: Release fence. Pairs with the Acquire fence in `read`.
        fence(Ordering::Release);
    }

    /// Sets or clears a flag, as a change. Called under the session lock.
    pub(crate) fn set_flag(&self, flag: usize, on: bool) {
        // Relaxed: only the holder of the session lock writes the gate.
        let gate = self.gate.load(Ordering::Relaxed);
        if (gate & flag != 0) != on {
            self.start_change();
            self.gate.store((gate | CHANGING) ^ flag, Ordering::Relaxed);
        }
    }

    /// Opens the gate if it was closed. Called under the session lock, at the end of each transaction.
    pub(crate) fn end_change(&self) {
        // Relaxed: only the holder of the session lock writes the gate.
        let gate = self.gate.load(Ordering::Relaxed);
        if gate & CHANGING != 0 {
            // ordering[record-gate]: Release. Pairs with the Acquire in `read`.
            self.gate.store((gate & !CHANGING).wrapping_add(VERSION), Ordering::Release);
        }
    }

    /// Replaces the record of a name. Called under the session lock.
    pub(crate) fn replace(&self, name: &SymbolName, definitions: &[RecordedDefinition]) {
        let ready = |definition: &RecordedDefinition| definition.ready.is_some();
        match definitions {
            [one] if ready(one) => self.map.insert(name, Record::One(*one)),
            several if several.len() <= DEFINITIONS_MAX && several.iter().any(ready) => {
                self.map.insert(name, Record::Several(several.into()));
            }
            _ => self.map.remove(name),
        }
    }

    /// The record of a name, for checks.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn record(&self, name: &SymbolName) -> Option<Record> {
        let guard = self.map.guard();
        self.map.get(name, &guard).cloned()
    }

    /// How many records there are, for checks.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }
}

impl Record {
    pub(crate) fn definitions(&self) -> &[RecordedDefinition] {
        match self {
            Self::One(definition) => std::slice::from_ref(definition),
            Self::Several(definitions) => definitions,
        }
    }

    /// The first definition that a search along `order` may see, if it is Ready and certain.
    fn visible(
        &self,
        session: &ExecutionSession,
        order: &SearchOrder,
        generates: bool,
    ) -> Option<ExecutorSymbolDef> {
        let mut first = None;
        for (position, (dylib, flags)) in order.iter().enumerate() {
            // A dylib of another session is an error, wherever in the order it stands.
            if dylib.session() != session {
                return None;
            }
            if first.is_none() {
                let id = dylib.id();
                let here = self.definitions().iter().find(|definition| definition.dylib == id);
                first = here
                    .filter(|definition| definition.is_visible(*flags))
                    .map(|definition| (position, definition));
            }
        }
        let (position, definition) = first?;
        // A generator of an earlier dylib might provide something that comes before this one.
        let certain = position == 0 || !generates;
        let answers = certain && !definition.flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY);
        definition.ready.filter(|_| answers)
    }
}

impl RecordedDefinition {
    fn is_visible(&self, flags: JitDylibLookupFlags) -> bool {
        flags == JitDylibLookupFlags::MatchAllSymbols || self.flags.contains(SymbolFlags::EXPORTED)
    }
}

/// The map that programs run: read without locks, its values reclaimed when no reader can see them.
#[cfg(not(uruk_loom))]
mod map {
    use rustc_hash::FxBuildHasher;

    use super::Record;
    use crate::SymbolName;

    #[derive(Debug, Default)]
    pub(super) struct Map(papaya::HashMap<SymbolName, Record, FxBuildHasher>);

    impl Map {
        pub(super) fn guard(&self) -> impl papaya::Guard + '_ {
            self.0.guard()
        }

        pub(super) fn get<'g>(&self, name: &SymbolName, guard: &'g impl papaya::Guard) -> Option<&'g Record> {
            self.0.get(name, guard)
        }

        pub(super) fn insert(&self, name: &SymbolName, record: Record) {
            self.0.pin().insert(name.clone(), record);
        }

        pub(super) fn remove(&self, name: &SymbolName) {
            self.0.pin().remove(name);
        }

        #[cfg(any(test, debug_assertions))]
        pub(super) fn len(&self) -> usize {
            self.0.len()
        }
    }
}

/// The map that models run: locked, because they check the gate and not somebody else's map.
#[cfg(uruk_loom)]
mod map {
    use rustc_hash::FxHashMap;

    use super::Record;
    use crate::SymbolName;
    use crate::sync::{Mutex, MutexGuard};

    #[derive(Debug, Default)]
    pub(super) struct Map(Mutex<FxHashMap<SymbolName, Record>>);

    impl Map {
        pub(super) fn guard(&self) -> MutexGuard<'_, FxHashMap<SymbolName, Record>> {
            self.0.lock()
        }

        pub(super) fn get<'g>(
            &self,
            name: &SymbolName,
            guard: &'g MutexGuard<'_, FxHashMap<SymbolName, Record>>,
        ) -> Option<&'g Record> {
            guard.get(name)
        }

        pub(super) fn insert(&self, name: &SymbolName, record: Record) {
            self.0.lock().insert(name.clone(), record);
        }

        pub(super) fn remove(&self, name: &SymbolName) {
            self.0.lock().remove(name);
        }

        #[cfg(any(test, debug_assertions))]
        pub(super) fn len(&self) -> usize {
            self.0.lock().len()
        }
    }
}
