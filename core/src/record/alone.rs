//! The records without a session around them, for models of what is inside: only model builds have this.

use crate::ids::{DylibId, Id, RowId};
use crate::sync::Arc;
use crate::{ExecutorAddr, JitDylibLookupFlags, SymbolFlags, SymbolName, SymbolStringPool};

use super::definitions::RecordedDefinition;
use super::{Discarded, DylibOrder, Recorder, Records, array, slot};

/// Reads records as lookups do.
#[derive(Debug)]
pub struct RecordsReader {
    pool: SymbolStringPool,
    order: OneDylib,
    records: Arc<Records>,
}

/// Changes records, as a session does under its lock.
#[derive(Debug)]
pub struct RecordsWriter {
    recorder: Recorder,
    dylib: DylibId,
}

/// Memory that was in use before a change: dropped without the lock.
#[derive(Debug)]
pub struct RecordsDiscarded {
    _discarded: Option<Discarded>,
}

impl RecordsReader {
    /// Records of nothing.
    pub fn with_writer() -> (Self, RecordsWriter) {
        let (dylib, recorder) = (DylibId::new(0, 0), Recorder::new());
        let writer = RecordsWriter { dylib, recorder };
        let (pool, order) = (SymbolStringPool::new(), OneDylib(dylib));
        (Self { pool, order, records: writer.recorder.records.clone() }, writer)
    }

    /// A name to be used here.
    pub fn name(&self, text: &str) -> SymbolName {
        self.pool.intern(text)
    }

    /// The address of each name, if the ready path answers.
    ///
    /// # Panics
    /// If an answer is made of two definitions.
    pub fn read(&self, names: &[&SymbolName]) -> Option<Vec<u64>> {
        let mut found = Vec::new();
        let names = names.iter().copied();
        let tell = |definition: &RecordedDefinition| found.push(*definition);
        self.records.read(&self.order, names, tell).then(|| {
            let whole = |found: RecordedDefinition| {
                assert_eq!(found, definition(found.dylib, found.address.value()), "a mixture");
                found.address.value()
            };
            found.into_iter().map(whole).collect()
        })
    }
}

impl RecordsWriter {
    /// The only definition of a name becomes Ready.
    pub fn make_ready(&mut self, name: &SymbolName, address: u64) {
        self.recorder.publish_alone(name, definition(self.dylib, address));
    }

    /// The only definition of a name goes.
    pub fn remove(&mut self, name: &SymbolName) {
        self.recorder.disappear_alone(name);
    }

    /// Ends a transaction.
    pub fn end(&mut self) -> RecordsDiscarded {
        self.recorder.end_change();
        RecordsDiscarded { _discarded: self.recorder.take_discarded() }
    }

    /// How many slots there are.
    pub fn room(&self) -> usize {
        self.recorder.names.room()
    }
}

/// The order of one dylib.
#[derive(Debug)]
struct OneDylib(DylibId);

impl DylibOrder for OneDylib {
    fn dylibs(&self) -> impl Iterator<Item = (DylibId, JitDylibLookupFlags)> {
        std::iter::once((self.0, JitDylibLookupFlags::MatchAllSymbols))
    }

    fn is_single(&self) -> bool {
        true
    }

    fn position_of(&self, dylib: DylibId, _flags: SymbolFlags) -> Option<usize> {
        (dylib == self.0).then_some(0)
    }

    fn certain_until(&self, _changes: u64) -> Option<usize> {
        None
    }

    fn remember(&self, _changes: u64, _certain_until: usize) {}
}

/// In which of so many slots a name belongs.
pub fn slot_of(text: &str, slots: usize) -> usize {
    array::home(slot::identity_of_text(text), slots)
}

/// All words of it follow from one.
fn definition(dylib: DylibId, address: u64) -> RecordedDefinition {
    RecordedDefinition {
        dylib,
        row: RowId::new(address as u32, !address as u32),
        address: ExecutorAddr::new(address),
        flags: SymbolFlags::EXPORTED,
        is_ready: true,
    }
}
