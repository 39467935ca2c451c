//! Remove: rows disappear, by name or with their tracker.
//!
//! Whoever waits on a removed row fails, and so does everything emitted that depends on it and is not
//! Ready yet. What is Ready already stays: callers of removed code are the embedder's affair.

use crate::sync::{Arc, weakened};
use crate::{FailureCause, LookupError, RemoveError, SymbolName};

use super::define::Tell;
use super::effects::Effects;
use super::ids::{DylibId, RowId, TrackerId};
use super::row::{RowState, Waiting};
use super::{Payload, SessionState};

impl<P: Payload> SessionState<P> {
    /// See [`crate::JitDylib::remove`].
    pub(crate) fn remove_names(
        &mut self,
        dylib: DylibId,
        names: &[SymbolName],
        dylib_name: impl FnOnce() -> Arc<str>,
        effects: &mut Effects<P>,
    ) -> Result<(), RemoveError> {
        if !self.dylibs.contains(dylib) {
            return Err(RemoveError::DylibRemoved { dylib: dylib_name() });
        }
        self.settle_all(effects);
        let mut rows = Vec::with_capacity(names.len());
        let (mut missing, mut in_use) = (Vec::new(), Vec::new());
        for name in names {
            match self.find(dylib, name) {
                None => missing.push(name.clone()),
                Some(row)
                    if self.rows[row].claim().is_some() && !weakened("remove::takes_what_is_at_work") =>
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
            if self.rows.contains(row) {
                self.remove_row(row, Tell::Discarded, effects);
            }
        }
        self.settle(effects);
        Ok(())
    }

    /// See [`crate::ResourceTracker::remove`]. The resources are the caller's to remove, newest last.
    pub(crate) fn remove_tracker(
        &mut self,
        tracker: TrackerId,
        effects: &mut Effects<P>,
    ) -> Vec<P::Resource> {
        self.settle_all(effects);
        let Some(row) = self.trackers.get(tracker) else { return Vec::new() };
        let is_default = self.dylibs[row.dylib].default_tracker == tracker;
        let resources = self.empty_tracker(tracker, effects);
        if !is_default && !weakened("remove::tracker_lives_on") {
            self.delete_tracker(tracker);
        }
        self.settle(effects);
        resources
    }

    /// See [`crate::JitDylib::clear`]. The resources are the caller's to remove, newest last.
    pub(crate) fn clear(&mut self, dylib: DylibId, effects: &mut Effects<P>) -> Vec<P::Resource> {
        self.settle_all(effects);
        let mut newest_first: Vec<Vec<P::Resource>> = Vec::new();
        for (is_default, tracker) in self.trackers_of(dylib) {
            newest_first.push(self.empty_tracker(tracker, effects));
            if !is_default {
                self.delete_tracker(tracker);
            }
        }
        self.settle(effects);
        newest_first.into_iter().rev().flatten().collect()
    }

    fn empty_tracker(&mut self, tracker: TrackerId, effects: &mut Effects<P>) -> Vec<P::Resource> {
        while let Some(row) = self.rows.id_at(self.trackers[tracker].first_row) {
            self.remove_row(row, Tell::Nothing, effects);
        }
        std::mem::take(&mut self.trackers[tracker].resources)
    }

    /// Removes one row in whatever state it is.
    fn remove_row(&mut self, row: RowId, tell: Tell, effects: &mut Effects<P>) {
        match self.rows[row].state {
            RowState::NeverSearched { .. } | RowState::Returned { .. } => {
                self.take_from_unit(row, tell, effects)
            }
            RowState::Materializing { .. } | RowState::Resolved { .. } => {
                self.fail_waiting(row, effects);
                self.leave_claim(row);
            }
            RowState::Emitted { .. } => self.fail_waiting(row, effects),
            RowState::Failed { failure, .. } => self.release_failure(failure, effects),
            RowState::Ready { .. } => {}
        }
        self.delete_row(row, effects);
    }

    /// Fails whoever waits on a row that is about to be removed.
    fn fail_waiting(&mut self, id: RowId, effects: &mut Effects<P>) {
        let Some(waiting) = self.rows[id].waiting().copied() else { return };
        let tell = !weakened("remove::tells_no_dependants");
        let spreads = waiting.node.is_some_and(|node| tell && self.forest.fail(node));
        if !spreads && waiting.queries.is_none() {
            return;
        }
        let failure = self.record_failure(id, FailureCause::Removed);
        if let Some(waiting) = self.rows[id].waiting_mut() {
            *waiting = Waiting::NOBODY;
        }
        if !waiting.queries.is_none() && !weakened("remove::tells_no_queries") {
            let error = LookupError::Failed(self.failure_at(failure));
            self.fail_lodged(waiting.queries, &error, effects);
        }
        if spreads {
            // The row will be gone when the forest reports those it fells: they find the record here.
            self.removed_roots.insert(id, failure);
        } else {
            self.release_failure(failure, effects);
        }
    }
}
