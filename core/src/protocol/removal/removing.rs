//! Removing: trackers go at one moment for everybody, and their rows in slices (`definitions/removing.rs`).

use crate::protocol::state::{Clearing, Payload, Resources, SessionState};
use crate::protocol::storage::{DylibId, TrackerId};

impl<P: Payload> SessionState<P> {
    /// Removes the tracker for everybody. Gives its resources.
    pub(super) fn begin_removing(&mut self, tracker: TrackerId) -> Resources<P::Resource> {
        let next_removed = self.reserve_events(self.definitions[tracker].rows);
        self.agenda.add();
        self.losses.note();
        self.definitions.begin_removing(tracker, next_removed)
    }

    /// Removes all trackers of the dylib for everybody, if it is there.
    pub(super) fn begin_removing_all(&mut self, dylib: DylibId) -> Option<Clearing> {
        let next_removed = self.reserve_events(self.definitions.dylib(dylib)?.rows);
        self.agenda.add();
        self.losses.note();
        Some(self.definitions.begin_removing_all(dylib, next_removed))
    }
}
