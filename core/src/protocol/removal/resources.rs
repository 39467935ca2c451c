//! Resources: they are added to trackers, and go with them, or with the last symbol that they serve.

use crate::protocol::state::{Defunct, Effects, Leftover, Payload, Remnant, SessionState, Tell};
use crate::protocol::storage::{ClaimId, DylibId, TrackerId};

impl<P: Payload> SessionState<P> {
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

    /// The end of an operation that removes by name: initializer symbols go of which the rest is gone. Gives what serves nobody
    /// any more, by dylib, newest last.
    pub(crate) fn sweep(
        &mut self,
        remnants: Vec<Remnant>,
        effects: &mut Effects<P>,
    ) -> Vec<(DylibId, P::Resource)> {
        for remnant in remnants {
            if let Some(row) = self.definitions.is_all_that_is_left(remnant) {
                self.remove_row(row, Tell::Discarded, effects);
            }
        }
        self.definitions.take_orphans()
    }
}

fn refuse<P: Payload>(late: P::Resource, effects: &mut Effects<P>) -> Defunct {
    effects.leave(Leftover::Resource(late));
    Defunct
}
