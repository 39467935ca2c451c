//! Claim: a unit leaves its rows to be materialized, by one responsibility at a time.
//!
//! The unit itself travels in the effects of the transaction that claimed it. It may come back before it starts.

use uruk_recorder::Kind;

use crate::sync::weakened;
use crate::{EventKind, FailureCause, SerialQueue, SymbolName};

use crate::protocol::state::{
    Claimed, ClaimedUnit, DemandLost, Effects, Leftover, Payload, PendingUnit, RisingPriority, SessionState,
};
use crate::protocol::storage::{ClaimId, RowId};

impl<P: Payload> SessionState<P> {
    /// Sends the unit that waits in `row` on its way: all its rows are Materializing from now on.
    ///
    /// A row whose address is known is Ready instead. Does nothing if the row was claimed before. The claim is as urgent
    /// as `need`; without one the unit's own priority counts.
    pub(crate) fn claim(&mut self, row: RowId, need: Option<RisingPriority>, effects: &mut Effects<P>) {
        match self.definitions.claim(row, need, effects) {
            Claimed::Nothing => {}
            Claimed::Bound => self.observe_ready(row, effects),
            Claimed::Unit(claim, unit) => self.hand_over(claim, unit, effects),
        }
    }

    /// Sends a unit on its way to be materialized under `claim`.
    pub(crate) fn hand_over(
        &mut self,
        claim: ClaimId,
        pending: Box<PendingUnit<P::Unit>>,
        effects: &mut Effects<P>,
    ) {
        let queued_in = pending.serial_queue().map(SerialQueue::id);
        if let Some(claim) = self.definitions.claim_mut(claim) {
            claim.set_queue(queued_in);
        }
        let losses = if self.stage.is_cancelled() { DemandLost::ALWAYS_ASK } else { self.losses.count() };
        let ticketed = self.ticketed(claim, &pending);
        self.noted.act(Kind::Claimed, claim, Some(&pending.name));
        if self.events.is_observed() {
            let (dylib, unit) = (pending.dylib_name.clone(), pending.name.clone());
            self.observe(effects, || EventKind::Claimed { dylib, unit });
        }
        effects.claimed.push(ClaimedUnit { pending, claim, losses, ticketed });
    }

    /// Asked with a claimed unit that is about to start: gives it if it shall.
    ///
    /// A unit that is no longer wanted goes back to its rows. A unit whose rows were removed, or that a
    /// cancelled session does not let start, leaves through `effects`.
    pub(crate) fn begin(
        &mut self,
        unit: ClaimedUnit<P::Unit>,
        effects: &mut Effects<P>,
    ) -> Option<ClaimedUnit<P::Unit>> {
        let claim = unit.claim;
        if self.definitions.live_claim(claim).is_none() {
            effects.leave(Leftover::RefusedUnit(unit.pending.unit));
            return None;
        }
        if self.is_cancelled() {
            self.fail(claim, FailureCause::Closed, effects);
            effects.leave(Leftover::RefusedUnit(unit.pending.unit));
            return None;
        }
        if self.is_wanted(claim) || weakened("withdraw::starts_what_nobody_wants") {
            if let Some(claim) = self.definitions.claim_mut(claim) {
                claim.set_queue(None);
            }
            return Some(unit);
        }
        self.put_back(unit, effects);
        None
    }

    /// Whether anybody waits for, or depends on, what the claimed unit provides.
    pub(crate) fn is_wanted(&self, claim: ClaimId) -> bool {
        self.definitions.rows_of_claim(claim).iter().any(|&row| self.is_demanded(row))
    }

    /// Puts a claimed unit that has not started back into its rows, which must have no waiters.
    pub(crate) fn put_back(&mut self, unit: ClaimedUnit<P::Unit>, effects: &mut Effects<P>) {
        let ClaimedUnit { pending, claim, .. } = unit;
        let name = self.events.is_observed().then(|| pending.name.clone());
        self.returned += 1;
        self.noted.act(Kind::Returned, claim, Some(&pending.name));
        if let Some(unit) = name {
            self.observe(effects, || EventKind::Returned { unit });
        }
        self.give_back(claim, pending, effects);
    }

    /// Puts a unit into the rows of a claim, which have no waiters.
    pub(crate) fn give_back(
        &mut self,
        claim: ClaimId,
        unit: Box<PendingUnit<P::Unit>>,
        effects: &mut Effects<P>,
    ) {
        for node in self.definitions.give_back(claim, unit, effects) {
            self.forest.remove(node);
        }
    }

    /// See [`crate::MaterializationResponsibility::requested_symbols`].
    pub(crate) fn requested(&self, claim: ClaimId) -> Vec<SymbolName> {
        let mut rows = self.definitions.rows_of_claim(claim);
        rows.retain(|row| self.is_demanded(*row));
        rows.into_iter().map(|row| self.definitions[row].name.clone()).collect()
    }
}
