//! Remove: rows disappear, by name, with their tracker or with their dylib, and resources with them, or go to another tracker.
//!
//! `symbols/remove.rs` has what happens to each row, `definitions/removing.rs` how trackers go at one moment and their rows in slices.

use crate::protocol::state::{
    Clearing, Defunct, Effects, Leftover, Payload, ResourceLeft, Resources, RowNotice, SessionState,
};
use crate::protocol::storage::{ClaimId, DylibId, TrackerId};
use crate::sync::{Arc, weakened};
use crate::{RemoveError, SymbolName};

/// So many rows are removed at once. A tracker of one function, or of what a prompt has defined, has no more.
const SMALL_MAX: usize = 16;

impl<P: Payload> SessionState<P> {
    /// See [`crate::JitDylib::remove`]. The caller removes the resources that serve no row any more, newest last.
    pub(crate) fn remove_names(
        &mut self,
        dylib: DylibId,
        names: &[SymbolName],
        dylib_name: impl FnOnce() -> Arc<str>,
        effects: &mut Effects<P>,
    ) -> Result<Vec<P::Resource>, RemoveError> {
        let mut resources_left = Vec::new();
        self.remove_rows_named(dylib, names, dylib_name, &mut resources_left, effects)?;
        // The error of rows that fall with the names gives their removal, and not that of the initializer symbol swept after
        // them.
        self.settle(effects);
        let orphans = self.sweep(resources_left, effects);
        self.settle(effects);
        Ok(orphans.into_iter().map(|(_, resource)| resource).collect())
    }

    /// The same as a step of an operation that ends with [`Self::sweep`].
    pub(crate) fn remove_rows_named(
        &mut self,
        dylib: DylibId,
        names: &[SymbolName],
        dylib_name: impl FnOnce() -> Arc<str>,
        resources_left: &mut Vec<ResourceLeft>,
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
                self.definitions.note_resources(row, resources_left);
                self.remove_row(row, RowNotice::Discarded, effects);
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
        if rows > SMALL_MAX.min(self.agenda.slice_steps().saturating_sub(1)) as u64 {
            let resources = self.begin_removing(tracker);
            self.settle_removals(effects);
            return resources;
        }
        let resources = self.definitions.take_from_dylib(tracker);
        while let Some(row) = self.definitions.first_row_of(tracker) {
            self.agenda.count_steps(1);
            self.remove_row(row, RowNotice::Nothing, effects);
        }
        self.definitions.discard_tracker(tracker, effects);
        self.settle_removals(effects);
        resources
    }

    /// See [`crate::JitDylib::clear`]. The resources are the caller's to remove, newest last, once the rows are gone. Nothing if
    /// the dylib was removed.
    pub(crate) fn clear(&mut self, dylib: DylibId, effects: &mut Effects<P>) -> Option<Clearing> {
        let clearing = self.begin_removing_all(dylib)?;
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
        self.dependants.keep_no_more(dylib);
        clearing
    }

    /// Works off what was just removed, or at least hides it from lookups without the lock.
    fn settle_removals(&mut self, effects: &mut Effects<P>) {
        self.settle_any(effects);
        self.definitions.hide_removing();
    }

    /// Removes the tracker for everybody. Gives its resources.
    fn begin_removing(&mut self, tracker: TrackerId) -> Resources<P::Resource> {
        let next_removed = self.events.reserve(self.definitions[tracker].rows);
        self.agenda.add();
        self.losses.note();
        self.definitions.begin_removing(tracker, next_removed)
    }

    /// Removes all trackers of the dylib for everybody, if it is there.
    fn begin_removing_all(&mut self, dylib: DylibId) -> Option<Clearing> {
        let next_removed = self.events.reserve(self.definitions.dylib(dylib)?.rows);
        self.agenda.add();
        self.losses.note();
        Some(self.definitions.begin_removing_all(dylib, next_removed))
    }

    /// See [`crate::ResourceTracker::transfer_to`]. The default tracker's rows move too, but it stays.
    pub(crate) fn transfer_tracker(
        &mut self,
        source: TrackerId,
        destination: TrackerId,
        effects: &mut Effects<P>,
    ) -> Result<(), Defunct> {
        if !self.definitions.tracker_lives(source) || !self.definitions.tracker_lives(destination) {
            return Err(Defunct);
        }
        if source != destination {
            self.definitions.transfer(source, destination, effects);
        }
        Ok(())
    }

    /// The last handle is gone: what the tracker still has belongs to the default tracker.
    pub(crate) fn release_tracker(&mut self, tracker: TrackerId, effects: &mut Effects<P>) {
        if !self.definitions.tracker_lives(tracker) {
            return;
        }
        let default = self.definitions.default_tracker(self.definitions[tracker].dylib);
        if tracker != default && !weakened("transfer::last_handle_gives_nothing") {
            self.definitions.transfer(tracker, default, effects);
        }
    }

    /// Adds a resource to the tracker; one that comes too late leaves through `effects`.
    pub(crate) fn add_resource(
        &mut self,
        tracker: TrackerId,
        resource: P::Resource,
        effects: &mut Effects<P>,
    ) -> Result<(), Defunct> {
        let added = match self.is_closed() {
            true => Err(resource),
            false => self.definitions.add_resource(tracker, resource),
        };
        added.map_err(|late| refuse(late, effects))
    }

    /// Adds a resource to the tracker of a claim, for the claim's rows.
    pub(crate) fn add_claim_resource(
        &mut self,
        claim: ClaimId,
        resource: P::Resource,
        effects: &mut Effects<P>,
    ) -> Result<(), Defunct> {
        let added = match self.is_closed() {
            true => Err(resource),
            false => self.definitions.add_claim_resource(claim, resource),
        };
        added.map_err(|late| refuse(late, effects))
    }

    /// The end of an operation that removes by name: initializer symbols go of units whose other symbols are gone. Gives the
    /// resources that serve no row any more, by dylib, newest last.
    pub(crate) fn sweep(
        &mut self,
        resources_left: Vec<ResourceLeft>,
        effects: &mut Effects<P>,
    ) -> Vec<(DylibId, P::Resource)> {
        for resource_left in resources_left {
            if let Some(row) = self.definitions.is_all_that_is_left(resource_left) {
                self.remove_row(row, RowNotice::Discarded, effects);
            }
        }
        self.definitions.take_orphans()
    }
}

fn refuse<P: Payload>(late: P::Resource, effects: &mut Effects<P>) -> Defunct {
    effects.leave(Leftover::Resource(late));
    Defunct
}
