//! Presence: whether a definition that was found Ready is still there, with all that it is an alias of.

use crate::SymbolName;
use crate::ids::RowId;
use crate::protocol::dependences::NodeState;
use crate::protocol::state::{Payload, RowState, SessionState};
use crate::sync::weakened;

/// Where a definition stands that was found Ready at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It is there, and so is all that it stands for.
    Present,
    /// It was removed.
    Removed,
    /// It is there, and it, or an alias that it stands for, is an alias of something that was removed: this is that alias.
    AliasOfRemoved(SymbolName),
}

impl Presence {
    /// The alias whose source is gone.
    pub(crate) fn source_is_gone(self) -> Option<SymbolName> {
        match self {
            Self::AliasOfRemoved(alias) => Some(alias),
            Self::Present | Self::Removed => None,
        }
    }
}

impl<P: Payload> SessionState<P> {
    /// See [`crate::DefinitionWatch::is_ready`].
    pub(crate) fn is_ready(&self, id: RowId) -> bool {
        let Some(row) = self.definitions.row(id).filter(|row| !self.definitions.row_is_removing(row)) else {
            return false;
        };
        match row.state {
            RowState::Ready { .. } => true,
            RowState::Emitted { .. } => self.is_ready_unknowingly(id),
            _ => false,
        }
    }

    /// Whether the forest has found an emitted row Ready, and a slice that is still to come would tell it.
    pub(crate) fn is_ready_unknowingly(&self, row: RowId) -> bool {
        let node = self.definitions[row].waiting().and_then(|waiting| waiting.node);
        node.is_some_and(|node| self.forest.state(node) == NodeState::Gone)
    }

    /// Notes what an alias stands for, before it has its address. Nothing is noted if the alias is gone.
    pub(crate) fn note_alias(&mut self, alias: RowId, source: RowId) {
        if self.definitions.row(alias).is_some() {
            self.aliased.note(alias, source);
        }
    }

    /// Whether a definition is Ready and not removed, and all that it is an alias of.
    ///
    /// # Cost
    /// A step for each alias up to what is none.
    pub(crate) fn presence(&self, definition: RowId) -> Presence {
        let mut alias = None;
        let mut row = definition;
        loop {
            if !self.is_ready(row) {
                return alias.map_or(Presence::Removed, Presence::AliasOfRemoved);
            }
            // A source has its address before its alias has one, so that no cycle is among these.
            let Some(source) = self.aliased.source_of(row).filter(|_| !weakened("hold::trusts_aliases"))
            else {
                return Presence::Present;
            };
            alias = self.definitions.row(row).map(|row| row.name.clone());
            row = source;
        }
    }
}
