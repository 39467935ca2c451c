//! Advance: how far rows are. The table of all changes is in `row.rs`; what leaves or joins a unit or a claim is in `claim.rs`.

use crate::protocol::dependences::NodeId;
use crate::protocol::state::{
    failures::Fallen, lookups::query::Lodging, payload::Payload, rising::RisingPriority,
};
use crate::protocol::storage::RowId;
use crate::sync::weakened;
use crate::{ExecutorAddr, ExecutorSymbolDef, RequiredState, SymbolFlags};

use super::{
    Definitions,
    row::{RowState, Waiters},
};

impl<P: Payload> Definitions<P> {
    /// Who waits on a row, in the states in which anybody can.
    #[inline]
    pub(in crate::protocol) fn waiting_mut(&mut self, row: RowId) -> Option<&mut Waiters> {
        self.rows.get_mut(row)?.waiting_mut()
    }

    /// The same for a query that is about to be lodged on it.
    #[inline]
    pub(in crate::protocol) fn waiting_for(
        &mut self,
        row: RowId,
        required: RequiredState,
    ) -> Option<&mut Waiters> {
        let row = &mut self.rows[row];
        row.is_wanted_resolved |= required == RequiredState::Resolved;
        row.waiting_mut()
    }

    /// How urgent an emitted row is.
    pub(in crate::protocol) fn priority_mut(&mut self, row: RowId) -> Option<&mut RisingPriority> {
        match &mut self.rows.get_mut(row)?.state {
            RowState::Emitted { priority, .. } => Some(priority),
            _ => None,
        }
    }

    /// A materializing row has its address. Gives the queries on it, if one of them may want no more than that.
    #[inline]
    pub(in crate::protocol) fn resolve(
        &mut self,
        row: RowId,
        address: ExecutorAddr,
        flags: SymbolFlags,
    ) -> Option<Lodging> {
        let row = &mut self.rows[row];
        let RowState::Materializing { claim, waiting } = row.state else { return None };
        row.flags = flags;
        row.advance(RowState::Resolved { claim, address, waiting });
        // Mostly nobody does, and who waits for more need not be looked at.
        let is_wanted = row.is_wanted_resolved || weakened("lodge::addresses_answer_everybody");
        is_wanted.then_some(waiting.queries)
    }

    /// The code of a resolved row is in place, and something that it depends on is not.
    pub(in crate::protocol) fn emit(&mut self, row: RowId, node: Option<NodeId>, priority: RisingPriority) {
        let row = &mut self.rows[row];
        if let RowState::Resolved { address, waiting, .. } = row.state {
            row.advance(RowState::Emitted { address, priority, waiting: Waiters { node, ..waiting } });
        }
    }

    /// A resolved or emitted row, and everything that it needs, is in place: it is found without the lock from now on. Gives the queries on
    /// it, and what to tell them.
    #[inline]
    pub(in crate::protocol) fn make_ready(&mut self, id: RowId) -> Option<(Lodging, ExecutorSymbolDef)> {
        let row = self.rows.get_mut(id)?;
        let (RowState::Resolved { address, waiting, .. } | RowState::Emitted { address, waiting, .. }) =
            row.state
        else {
            return None;
        };
        row.advance(RowState::Ready { address });
        let found = ExecutorSymbolDef::new(address, row.flags);
        self.publish(id);
        Some((waiting.queries, found))
    }

    /// A row fails, if anybody could wait on it. Gives the queries on it.
    pub(in crate::protocol) fn fail(&mut self, row: RowId, fallen: Fallen, via: RowId) -> Option<Lodging> {
        let row = &mut self.rows[row];
        let queries = row.waiting()?.queries;
        row.advance(RowState::Failed { fallen, via });
        Some(queries)
    }

    /// A row whose address was known before is searched: it is Ready.
    pub(super) fn bind(&mut self, id: RowId, address: ExecutorAddr) {
        let row = &mut self.rows[id];
        row.flags = row.flags.without_weak_and_common();
        // What exists for its side effects only has no address, whatever the map says.
        let has_none = row.flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY);
        row.advance(RowState::Ready { address: if has_none { ExecutorAddr::NULL } else { address } });
        self.publish(id);
    }
}
