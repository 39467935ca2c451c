//! With which unit a task begins.

use crate::protocol::storage::ids::ClaimId;
use crate::session::SessionTag;

use super::Task;

/// Names a claimed unit: its session, and the claim there.
pub(crate) type ClaimOfSession = (SessionTag, ClaimId);

impl Task {
    /// The claim of the unit that it is to begin with, if it is the task of one.
    pub(crate) fn claim(&self) -> Option<ClaimOfSession> {
        self.work.claim()
    }
}
