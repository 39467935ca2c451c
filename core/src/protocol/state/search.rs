//! Search: what a lookup looks for, where, and on whose behalf.

use smallvec::SmallVec;

use crate::protocol::state::lookups::query::Asker;
use crate::protocol::storage::{DylibId, QueryId, RowId};
use crate::{JitDylibLookupFlags, LookupKind, LookupSet, RequiredState, TaskPriority};

/// What a lookup searches, where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    pub(crate) kind: LookupKind,
    pub(crate) order: Order,
    pub(crate) symbols: LookupSet,
    pub(crate) required_state: RequiredState,
    /// For the lookup of an alias's source, which is all that it asks for: the alias.
    pub(crate) alias: Option<RowId>,
    /// Search the link order of this dylib, as it is when the lookup begins, instead of `order`.
    pub(crate) along: Option<DylibId>,
    /// What symbols are will do: nothing is claimed.
    pub(crate) flags_only: bool,
    /// The query whose generator makes this lookup, which that generator must not keep waiting. It asks for flags only.
    pub(crate) on_behalf_of: Option<QueryId>,
    /// The work in progress of a closing session may still look up.
    pub(crate) by_task: bool,
    /// The unit that asks.
    pub(crate) asked_by: Option<Asker>,
    /// How urgent the lookup says it is.
    pub(crate) priority: Option<TaskPriority>,
}

/// Dylibs to search, mostly one or two.
pub(crate) type Order = SmallVec<[(DylibId, JitDylibLookupFlags); 2]>;
