//! Failures: what broke, and what each row that fell says of it.
//!
//! One record stands for all rows that one event fells. Each of these refers to it, and the record goes with the last. A row that is
//! removed while a failure spreads leaves behind what it would say: the forest may name it to those that fall through it. There may be
//! a million such rows. When no failure spreads any more they let go, one a step.

use std::cell::Cell;

use rustc_hash::FxHashMap;

use crate::error::MissingSymbols;
use crate::protocol::state::effects::{Effects, Leftover};
use crate::protocol::state::payload::Payload;
use crate::protocol::storage::{FailureId, Id, RowId, Slab, Takes};
use crate::sync::Arc;
use crate::{Failure, FailureCause, Remedy, SharedError, SymbolName};

/// Where a row stands in a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FailedRow {
    pub(crate) failure: FailureId,
    /// Where it began.
    pub(crate) root: RowId,
    /// How many steps away.
    pub(crate) depth: u32,
}

/// A cause of a failure, and the symbols for the want of which it is one.
pub(crate) struct Broken {
    pub(crate) cause: FailureCause,
    pub(crate) missing: Option<Box<MissingSymbols>>,
}

impl From<FailureCause> for Broken {
    fn from(cause: FailureCause) -> Self {
        Self { cause, missing: None }
    }
}

/// All failures that may still be reported.
#[derive(Debug)]
pub(crate) struct Failures {
    records: Slab<FailureId, FailureRecord>,
    /// The notes left by removed rows, in groups of neighbouring places: adding or dropping one moves no others.
    left: Vec<FxHashMap<RowId, FailedRow>>,
    /// Whether a failure of a unit goes to the reporter at once, and not only if no lookup was told of it.
    pub(in crate::protocol) are_all_reported: bool,
}

/// What broke.
#[derive(Debug)]
struct FailureRecord {
    /// A symbol of the unit that failed, for paths whose end was removed since.
    symbol: SymbolName,
    unit: SymbolName,
    dylib: Arc<str>,
    cause: FailureCause,
    missing: Option<Box<MissingSymbols>>,
    /// How many rows refer to it.
    rows: usize,
    /// It has been reported.
    told: Cell<bool>,
}

/// How many places are neighbours.
const PLACES: u32 = 512;

impl Failures {
    pub(super) fn new() -> Self {
        Self { records: Slab::new(), left: Vec::new(), are_all_reported: false }
    }

    /// Makes the record of a failure. The caller holds one reference to it, until [`Self::release`].
    pub(crate) fn begin(
        &mut self,
        symbol: SymbolName,
        unit: SymbolName,
        dylib: Arc<str>,
        broken: Broken,
    ) -> FailureId {
        let Broken { cause, missing } = broken;
        let told = Cell::new(false);
        self.records.insert(FailureRecord { symbol, unit, dylib, cause, missing, rows: 1, told })
    }

    /// The symbols for the want of which something failed, and the dylib whose link order was searched for them.
    pub(crate) fn missing(&self, failure: FailureId) -> Option<(&MissingSymbols, &str)> {
        let record = &self.records[failure];
        let missing = record.missing.as_deref()?;
        Some((missing, missing.dylib.as_ref().unwrap_or(&record.dylib)))
    }

    /// The error behind a failure, if a unit has failed with one.
    pub(crate) fn error(&self, failure: FailureId) -> Option<&SharedError> {
        match &self.records[failure].cause {
            FailureCause::Unit(error) => Some(error),
            _ => None,
        }
    }

    /// One more row refers to the record.
    pub(crate) fn refer(&mut self, failure: FailureId) {
        self.records[failure].rows += 1;
    }

    /// Lets go of one reference. The last one sends the cause, a value of the embedder, out; a failure that was never reported goes
    /// to the reporter.
    pub(crate) fn release<P: Payload>(&mut self, failure: FailureId, effects: &mut Effects<P>) {
        let record = &mut self.records[failure];
        record.rows -= 1;
        if record.rows == 0
            && let Some(record) = self.records.remove(failure, effects)
        {
            if record.is_news() && !record.told.get() {
                record.report(effects);
            }
            effects.let_go(record.cause);
        }
    }

    /// A failure has begun: it goes to the reporter, if all do.
    pub(crate) fn begun<P: Payload>(&self, failure: FailureId, effects: &mut Effects<P>) {
        let record = &self.records[failure];
        if self.are_all_reported && record.is_news() {
            record.told.set(true);
            record.report(effects);
        }
    }

    /// The failure as it is reported. The path leads to a row that fell `depth` steps away; its end is known if the row is there where
    /// the failure began.
    pub(crate) fn tell(
        &self,
        failure: FailureId,
        mut path: Vec<SymbolName>,
        end: Option<&SymbolName>,
        depth: u32,
        has_spare: bool,
    ) -> Arc<Failure> {
        let record = &self.records[failure];
        record.told.set(true);
        path.push(end.unwrap_or(&record.symbol).clone());
        let path_omitted = (depth as usize + 1).saturating_sub(path.len());
        let remedy = match record.missing {
            Some(_) => Remedy::LookUpAgain,
            None => Remedy::Retry,
        };
        record.told_along(path, path_omitted, Some(remedy).filter(|_| has_spare))
    }

    /// Whether nothing broke, and the session closes.
    pub(crate) fn is_closing(&self, failure: FailureId) -> bool {
        matches!(self.records[failure].cause, FailureCause::Closed)
    }

    /// A row that refers to a record is removed while a failure spreads.
    pub(crate) fn leave<P: Payload>(&mut self, row: RowId, failed_row: FailedRow, effects: &mut Effects<P>) {
        let piece = (row.index() / PLACES) as usize;
        if self.left.len() <= piece {
            self.left.resize_with(piece + 1, FxHashMap::default);
        }
        if let Some(before) = self.left[piece].insert(row, failed_row) {
            self.release(before.failure, effects);
        }
    }

    /// The note left by a removed row.
    pub(crate) fn left_by(&self, row: RowId) -> Option<FailedRow> {
        self.left.get((row.index() / PLACES) as usize)?.get(&row).copied()
    }

    /// Whether removed rows have left anything behind.
    pub(crate) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Lets go of what removed rows have left behind. No failure spreads any more.
    pub(crate) fn let_go<P: Payload>(&mut self, budget: &mut usize, effects: &mut Effects<P>) {
        while *budget > 0
            && let Some(piece) = self.left.last_mut()
        {
            *budget -= 1;
            if let Some(row) = piece.keys().next().copied() {
                let failed_row = piece.remove(&row);
                failed_row.into_iter().for_each(|failed_row| self.release(failed_row.failure, effects));
            } else {
                let empty = self.left.pop().filter(|piece| piece.capacity() > 0);
                empty.into_iter().for_each(|piece| effects.take_memory(Box::new(piece)));
            }
        }
        if self.left.is_empty() {
            effects.take_memory(Box::new(std::mem::take(&mut self.left)));
        }
    }

    /// I15: each record is there as long as rows `refer` to it, so many to each.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check(&self, referred: &FxHashMap<FailureId, usize>) {
        assert!(self.left.is_empty(), "all that waited on removed rows has failed");
        for (id, record) in self.records.iter() {
            assert_eq!(referred.get(&id), Some(&record.rows), "a failure counts the rows that tell of it");
        }
        assert_eq!(referred.len(), self.records.len(), "rows tell of failures that are there");
    }
}

impl FailureRecord {
    /// Whether a unit has failed, rather than the session ended.
    fn is_news(&self) -> bool {
        matches!(self.cause, FailureCause::Unit(_) | FailureCause::Panicked(_) | FailureCause::Abandoned)
    }

    fn report<P: Payload>(&self, effects: &mut Effects<P>) {
        effects.leave(Leftover::Unheard(self.told_along(vec![self.symbol.clone()], 0, None)));
    }

    fn told_along(&self, path: Vec<SymbolName>, path_omitted: usize, remedy: Option<Remedy>) -> Arc<Failure> {
        let (unit, dylib, cause) = (self.unit.clone(), self.dylib.clone(), self.cause.clone());
        Arc::new(Failure { path, path_omitted, unit, dylib, cause, remedy, names_remedy: false })
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod parts {
    use super::{Arc, FailureCause, FailureId, Failures, SymbolName};

    /// For tests alone.
    impl Failures {
        /// How many records there are, and how many notes of removed rows.
        pub(crate) fn len(&self) -> (usize, usize) {
            (self.records.len(), self.left.iter().map(|piece| piece.len()).sum())
        }

        /// How many records there is memory for.
        pub(crate) fn room(&self) -> usize {
            self.records.capacity()
        }

        /// How many removed rows the largest table has room for.
        pub(crate) fn largest_table(&self) -> usize {
            self.left.iter().map(|piece| piece.capacity()).fold(self.left.capacity(), usize::max)
        }

        pub(crate) fn is_of(
            &self,
            failure: FailureId,
        ) -> (&SymbolName, &SymbolName, &Arc<str>, &FailureCause) {
            let record = &self.records[failure];
            (&record.symbol, &record.unit, &record.dylib, &record.cause)
        }

        /// To break the count of some record.
        pub(crate) fn break_count(&mut self) {
            let (failure, _) = self.records.iter().next().expect("it is referred to");
            self.refer(failure);
        }
    }
}
