//! A priority that rises, what rises with a claim, and what is about to rise.

use crate::TaskPriority;
use crate::protocol::storage::{ClaimId, Pieces, QueryId, RowId};
use crate::sync::Arc;
use crate::task::ticket::Ticketed;

/// What rises with a claim.
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

/// What is about to rise.
#[derive(Debug, Default)]
pub(crate) struct Urgency {
    /// A unit was claimed below the highest priority.
    pub(super) is_followed: bool,
    pub(super) rises: Pieces<(Riser, RisingPriority)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Riser {
    Row(RowId),
    Claim(ClaimId),
    Query(QueryId),
}

/// A priority that rises and never sinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RisingPriority(TaskPriority);

impl RisingPriority {
    /// Where it begins.
    pub(crate) const fn at(priority: TaskPriority) -> Self {
        Self(priority)
    }

    pub(crate) const fn get(self) -> TaskPriority {
        self.0
    }

    /// Says whether it was lower.
    pub(crate) fn rise(&mut self, to: Self) -> bool {
        let rises = *self < to;
        *self = to.max(*self);
        rises
    }
}
