//! Check: no need is more urgent than what it leads to, once no rise is left to do.

use super::followers::Followers;
use crate::protocol::state::{Payload, Phase, RisingPriority, RowState, SessionState};
use crate::protocol::storage::RowId;

impl<P: Payload> SessionState<P> {
    /// See [`SessionState::check`].
    pub(crate) fn check_priorities(&self) {
        if !self.urgency.is_followed {
            return;
        }
        for (_, query) in self.lookups.queries().filter(|(_, query)| query.is_live()) {
            let Phase::Lodged(lodged) = &query.phase else { continue };
            for entry in lodged.entries.iter().filter(|entry| entry.waits()) {
                let Some(row) = self.definitions.row(entry.row) else { continue };
                self.check_priority(
                    entry.row,
                    query.priority.unwrap_or(RisingPriority::at(row.own_priority)),
                );
            }
        }
        for (id, row) in self.definitions.rows() {
            let RowState::Emitted { priority, .. } = row.state else { continue };
            let component = self.component_of(id).into_iter();
            component
                .flat_map(|component| self.forest.dependencies_of_component(component))
                .for_each(|dependency| self.check_priority(dependency, priority));
        }
        for (_, claim) in self.definitions.claims() {
            let Some(Followers { asked, origin, .. }) = claim.followers() else { continue };
            for query in asked.iter().filter_map(|&query| self.lookups.query(query)) {
                let follows = !query.is_live() || query.priority >= Some(claim.priority);
                assert!(follows, "what a unit asks for is as urgent as the unit");
            }
            if let Some(origin) = origin.and_then(|origin| self.definitions.get_claim(origin)) {
                assert!(origin.priority >= claim.priority, "a delegate raises what it came from");
            }
        }
    }

    fn check_priority(&self, row: RowId, needed: RisingPriority) {
        if let Some(priority) = self.priority_of(row) {
            let name = &self.definitions[row].name;
            assert!(needed <= priority, "`{name}` is {priority:?} and needed as {needed:?}");
        }
    }
}
