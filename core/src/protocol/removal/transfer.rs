//! Transfer: what a tracker has goes to another one.

use crate::protocol::state::{Defunct, Effects, Payload, SessionState};
use crate::protocol::storage::TrackerId;
use crate::sync::weakened;

impl<P: Payload> SessionState<P> {
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
}
