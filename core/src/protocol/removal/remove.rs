//! Remove: rows disappear, by name or with their tracker.
//!
//! Whoever waits on a removed row fails, and so does everything emitted that depends on it and is not
//! Ready yet. What is Ready already stays: callers of removed code are the embedder's affair.

use crate::sync::{Arc, weakened};
use crate::{EventKind, FailureCause, LookupError, RemoveError, RequiredState, SessionEvent, SymbolName};

use crate::protocol::dependences::NodeState;
use crate::protocol::state::SessionState;
use crate::protocol::state::definitions::condemned::Clearing;
use crate::protocol::state::definitions::product::{Remnant, Resources};
use crate::protocol::state::definitions::row::{RowState, Waiting};
use crate::protocol::state::definitions::{RemovedRow, Tell};
use crate::protocol::state::effects::Effects;
use crate::protocol::state::payload::Payload;
use crate::protocol::storage::ids::{DylibId, RowId, TrackerId};
use crate::protocol::symbols::fail::Fallen;

/// So many rows are removed at once. A tracker of one function, or of what a prompt has defined, has no more.
const SMALL_MAX: usize = 16;

impl<P: Payload> SessionState<P> {
    /// See [`crate::JitDylib::remove`]. The resources that serve nobody any more are the caller's to remove, newest last.
    pub(crate) fn remove_names(
        &mut self,
        dylib: DylibId,
        names: &[SymbolName],
        dylib_name: impl FnOnce() -> Arc<str>,
        effects: &mut Effects<P>,
    ) -> Result<Vec<P::Resource>, RemoveError> {
        let mut remnants = Vec::new();
        self.remove_rows_named(dylib, names, dylib_name, &mut remnants, effects)?;
        // What falls with the names says that they were removed, and not the initializer symbol that is swept behind them.
        self.settle(effects);
        let orphans = self.sweep(remnants, effects);
        self.settle(effects);
        Ok(orphans.into_iter().map(|(_, resource)| resource).collect())
    }

    /// The same as a step of an operation that ends with [`Self::sweep`].
    pub(in crate::protocol) fn remove_rows_named(
        &mut self,
        dylib: DylibId,
        names: &[SymbolName],
        dylib_name: impl FnOnce() -> Arc<str>,
        remnants: &mut Vec<Remnant>,
        effects: &mut Effects<P>,
    ) -> Result<(), RemoveError> {
        if !self.definitions.has_dylib(dylib) {
            return Err(RemoveError::DylibRemoved { dylib: dylib_name() });
        }
        let mut rows = Vec::with_capacity(names.len());
        let (mut missing, mut in_use) = (Vec::new(), Vec::new());
        for name in names {
            match self.definitions.find(dylib, name) {
                None => missing.push(name.clone()),
                Some(row)
                    if self.definitions[row].claim().is_some()
                        && !weakened("remove::takes_what_is_at_work") =>
                {
                    in_use.push(name.clone())
                }
                Some(row) => rows.push(row),
            }
        }
        if !missing.is_empty() {
            return Err(RemoveError::NotFound { dylib: dylib_name(), symbols: missing });
        }
        if !in_use.is_empty() {
            return Err(RemoveError::InUse { dylib: dylib_name(), symbols: in_use });
        }
        for row in rows {
            // A name given twice is gone the second time.
            if self.definitions.row(row).is_some() {
                self.definitions.note_remnants(row, remnants);
                self.remove_row(row, Tell::Discarded, effects);
            }
        }
        Ok(())
    }

    /// See [`crate::ResourceTracker::remove`]. The resources are the caller's to remove, newest last, once its rows are
    /// gone.
    pub(crate) fn remove_tracker(
        &mut self,
        tracker: TrackerId,
        effects: &mut Effects<P>,
    ) -> Resources<P::Resource> {
        if !self.definitions.tracker_lives(tracker) {
            return Resources::default();
        }
        let rows = self.definitions[tracker].rows;
        // One transaction removes a few rows, and the tracker with them.
        if rows > SMALL_MAX.min(self.agenda.slice_steps.saturating_sub(1)) as u64 {
            let resources = self.condemn(tracker);
            self.settle_removals(effects);
            return resources;
        }
        let resources = self.definitions.take_from_dylib(tracker);
        while let Some(row) = self.definitions.first_row_of(tracker) {
            self.count_steps(1);
            self.remove_row(row, Tell::Nothing, effects);
        }
        self.definitions.discard_tracker(tracker, effects);
        self.settle_removals(effects);
        resources
    }

    /// See [`crate::JitDylib::clear`]. The resources are the caller's to remove, newest last, once the rows are gone. Nothing if
    /// the dylib was removed.
    pub(crate) fn clear(&mut self, dylib: DylibId, effects: &mut Effects<P>) -> Option<Clearing> {
        let clearing = self.condemn_all(dylib)?;
        self.settle_removals(effects);
        Some(clearing)
    }

    /// See [`crate::ExecutionSession::remove_jit_dylib`]. Nothing if it was removed before.
    pub(crate) fn remove_dylib(&mut self, dylib: DylibId, effects: &mut Effects<P>) -> Option<Clearing> {
        if !self.definitions.has_dylib(dylib) {
            return None;
        }
        self.fail_suspended_in(dylib, effects);
        let clearing = self.clear(dylib, effects);
        for generator in self.definitions.take_generators(dylib) {
            self.drop_generator(generator, effects);
        }
        self.definitions.delete_dylib(dylib, effects);
        clearing
    }

    /// Works off what was just condemned, or at least hides it from lookups without the lock.
    fn settle_removals(&mut self, effects: &mut Effects<P>) {
        self.settle_any(effects);
        self.definitions.hide_condemned();
    }

    /// Removes one row in whatever state it is.
    pub(in crate::protocol) fn remove_row(&mut self, row: RowId, tell: Tell, effects: &mut Effects<P>) {
        match self.definitions[row].state {
            RowState::Emitted { .. } if self.is_ready_unknowingly(row) => self.leave_ready(row, effects),
            RowState::Materializing { .. } | RowState::Resolved { .. } | RowState::Emitted { .. } => {
                self.fail_waiting(row, effects)
            }
            RowState::Failed { failure, root, depth, .. } => {
                self.leave_fallen(row, Fallen { failure, root, depth }, effects)
            }
            RowState::NeverSearched { .. } | RowState::Returned { .. } | RowState::Ready { .. } => {}
        }
        self.delete_row(row, tell, effects);
    }

    /// Removes a row on which nobody waits.
    pub(in crate::protocol) fn delete_row(&mut self, row: RowId, tell: Tell, effects: &mut Effects<P>) {
        if let Some(RemovedRow { dylib, symbol, place }) = self.definitions.delete_row(row, tell, effects) {
            let kind = EventKind::Removed { dylib, symbol };
            match place {
                Some(sequence) => effects.more().events.push(SessionEvent { sequence, kind }),
                None => self.observe(effects, || kind),
            }
        }
        self.losses.note();
    }

    /// Whether the forest has found an emitted row Ready, and a slice that is still to come would tell it.
    pub(in crate::protocol) fn is_ready_unknowingly(&self, row: RowId) -> bool {
        let node = self.definitions[row].waiting().and_then(|waiting| waiting.node);
        node.is_some_and(|node| self.forest.state(node) == NodeState::Gone)
    }

    /// Tells whoever waits on a row that is about to be removed that it has become Ready: who depends on it becomes so too.
    fn leave_ready(&mut self, id: RowId, effects: &mut Effects<P>) {
        if let Some(waiting) = self.definitions.waiting_mut(id) {
            let queries = std::mem::replace(waiting, Waiting::NOBODY).queries;
            self.satisfy(id, queries, RequiredState::Ready, effects);
        }
        // Seen from outside, a condemned row went before.
        if !self.definitions.is_condemned(&self.definitions[id]) {
            self.observe_ready(id, effects);
        }
    }

    /// Fails whoever waits on a row that is about to be removed.
    fn fail_waiting(&mut self, id: RowId, effects: &mut Effects<P>) {
        let Some(waiting) = self.definitions[id].waiting().copied() else { return };
        // A failure may be on its way to the row: whoever depends on it hears of the removal instead.
        let fails = |node| self.forest.fail(node) || self.forest.state(node) == NodeState::Failed;
        let spreads = waiting.node.filter(|_| !weakened("remove::tells_no_dependants")).is_some_and(fails);
        self.agenda.added |= spreads;
        if !spreads && waiting.queries.is_none() {
            return;
        }
        let failure = self.record_failure(id, FailureCause::Removed);
        if let Some(waiting) = self.definitions.waiting_mut(id) {
            *waiting = Waiting::NOBODY;
        }
        if !waiting.queries.is_none() && !weakened("remove::tells_no_queries") {
            let error = LookupError::Failed(self.failure_at(failure));
            self.fail_lodged(waiting.queries, &error, effects);
        }
        self.leave_fallen(id, Fallen { failure, root: id, depth: 0 }, effects);
    }

    /// Keeps what a row that is about to go knows of a failure as long as one spreads: the forest may name the row to those
    /// that fall through it. The row's reference to the record is kept, or let go.
    fn leave_fallen(&mut self, row: RowId, fallen: Fallen, effects: &mut Effects<P>) {
        if !self.forest.is_failing() {
            self.release_failure(fallen.failure, effects);
        } else if let Some(before) = self.fallen.insert(row, fallen) {
            self.release_failure(before.failure, effects);
        }
    }
}
