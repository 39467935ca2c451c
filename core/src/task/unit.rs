//! The task of a claimed unit. It has no box of its own: the unit lies in one from its definition on.
//!
//! An allocation for each such task would be 4 % of the instructions of a unit that does nothing in place, and 7 % on a pool.

use std::any::Any;

use crate::ids::{ClaimId, SessionTag};
use crate::sync::Arc;
use crate::{TaskDispatcher, TaskLabel};

use super::Work;
use super::ticket::Ticketed;

/// Names a claimed unit: its session, and the claim there.
pub(crate) type ClaimOfSession = (SessionTag, ClaimId);

/// The name of a unit's task where its unit is not named: see [`Task::keep_label`](super::Task::keep_label).
pub(crate) const A_UNIT: &str = "unit.materialize";

/// A claimed unit in its box. It knows its session, and how that runs it.
pub(crate) trait UnitInBox: Send {
    fn label(&self) -> &str;
    /// Runs the unit.
    fn run(self: Box<Self>, claim: UnitClaim);
    /// Its task goes before it has run.
    fn drop_unrun(self: Box<Self>, claim: UnitClaim);
}

/// The session of a unit, as far as its task asks.
pub(crate) trait UnitSession: Any + Send + Sync {
    fn tag(&self) -> SessionTag;
    fn dispatcher(&self) -> &Arc<dyn TaskDispatcher>;
    /// A task of it begins to wait for its turn in a serial queue, or does so no more.
    fn waits_for_turn(&self, waits: bool);
}

/// The facts about a unit since it was claimed. They lie beside the unit's box: many units are boxed and never claimed.
pub(crate) struct UnitClaim {
    pub(crate) claim: ClaimId,
    pub(crate) losses: u64,
    pub(crate) ticketed: Option<Arc<Ticketed>>,
    /// It has counted the task, which [`UnitInBox::run`] and [`UnitInBox::drop_unrun`] count out.
    pub(crate) session: Arc<dyn UnitSession>,
}

/// A claimed unit on its way to run.
pub(crate) struct UnitTask {
    /// Taken when it runs.
    unit: Option<(Box<dyn UnitInBox>, UnitClaim)>,
}

impl UnitTask {
    #[inline]
    pub(crate) fn new(unit: Box<dyn UnitInBox>, claim: UnitClaim) -> Self {
        Self { unit: Some((unit, claim)) }
    }
}

impl Work for UnitTask {
    fn label(&self) -> &str {
        self.unit.as_ref().map_or("", |(unit, _)| unit.label())
    }

    fn keep_label(&self) -> TaskLabel {
        A_UNIT.into()
    }

    fn marks_leaf(&self) -> bool {
        true
    }

    fn claim(&self) -> Option<ClaimOfSession> {
        self.unit.as_ref().map(|(_, claim)| (claim.session.tag(), claim.claim))
    }

    fn dispatcher(&self) -> Option<Arc<dyn TaskDispatcher>> {
        self.unit.as_ref().map(|(_, claim)| claim.session.dispatcher().clone())
    }

    fn waits_for_turn(&self, waits: bool) {
        self.unit.iter().for_each(|(_, claim)| claim.session.waits_for_turn(waits));
    }

    fn run(&mut self) {
        if let Some((unit, claim)) = self.unit.take() {
            unit.run(claim);
        }
    }
}

impl Drop for UnitTask {
    fn drop(&mut self) {
        if let Some((unit, claim)) = self.unit.take() {
            unit.drop_unrun(claim);
        }
    }
}
