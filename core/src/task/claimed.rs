//! Which unit a task begins with.

use crate::protocol::storage::ids::ClaimId;
use crate::session::SessionTag;

use super::Task;

/// A claimed unit: its session, and the claim there.
pub(crate) type ClaimedUnit = (SessionTag, ClaimId);

impl Task {
    /// The unit that it is to begin with, if it is the task of one.
    pub(crate) fn unit(&self) -> Option<ClaimedUnit> {
        self.work.unit()
    }
}
