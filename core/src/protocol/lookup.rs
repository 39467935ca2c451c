//! Lookup.
use crate::{JitDylibLookupFlags, LookupKind, LookupSet, RequiredState};

use super::alias::AliasEdge;
use super::ids::DylibId;

/// What a lookup searches, where.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub(crate) kind: LookupKind,
    pub(crate) order: Vec<(DylibId, JitDylibLookupFlags)>,
    pub(crate) symbols: LookupSet,
    pub(crate) required_state: RequiredState,
    /// For a lookup on behalf of aliases: which alias waits for which of the symbols.
    pub(crate) aliases: Vec<AliasEdge>,
}
