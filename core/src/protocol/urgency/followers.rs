//! Followers of a claim, which rise with it; and rises that are still to come.

use crate::protocol::state::rising::RisingPriority;
use crate::protocol::storage::{ClaimId, Pieces, QueryId, RowId};
use crate::sync::Arc;
use crate::task::ticket::Ticketed;

/// The queries and claims that rise with a claim.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    /// Where its unit lies while it is queued, if that may be in several queues.
    pub(super) ticketed: Option<Arc<Ticketed>>,
    /// Queries on its behalf. Some may have ended.
    pub(super) asked: Vec<QueryId>,
    /// The claim it was delegated from: what that has asked for, it may have asked for on behalf of this one.
    pub(super) origin: Option<ClaimId>,
}

impl Followers {
    pub(crate) fn of_delegate(origin: ClaimId) -> Self {
        Self { origin: Some(origin), ..Self::default() }
    }
}

/// Rises that are still to come.
#[derive(Debug, Default)]
pub(crate) struct Urgency {
    /// A unit was claimed below the highest priority.
    pub(super) is_followed: bool,
    pub(super) rises: Pieces<(PrioritySource, RisingPriority)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum PrioritySource {
    Row(RowId),
    Claim(ClaimId),
    Query(QueryId),
}
