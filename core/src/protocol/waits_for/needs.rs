//! What a blocked lookup needs, as far as is known: for a thread that has nobody but itself to run it.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::protocol::ids::{ClaimId, QueryId};
use crate::protocol::{Payload, SessionState};

use super::Node;

impl<P: Payload> SessionState<P> {
    /// The claims of all that the lookup needs, directly or not. What was asked for on behalf of a unit counts as needed by it: who
    /// has detached its responsibility mostly goes on with the answer.
    ///
    /// # Cost
    /// One step for each lookup of the session, and for each symbol and edge that is needed.
    pub(crate) fn claims_needed_by(&mut self, query: QueryId) -> FxHashSet<ClaimId> {
        let mut asked: FxHashMap<ClaimId, Vec<QueryId>> = FxHashMap::default();
        for (id, query) in self.queries.iter() {
            if let Some(claim) = query.asked_by {
                asked.entry(claim).or_default().push(id);
            }
        }
        let (mut claims, mut seen) = (FxHashSet::default(), FxHashSet::default());
        let mut ahead = vec![Node::Sought(query)];
        while let Some(node) = ahead.pop() {
            if !seen.insert(node) {
                continue;
            }
            self.successors(node, true, false, &mut ahead);
            let Node::Row(row, required) = node else { continue };
            let row = self.rows.get(row).filter(|row| row.is_behind(required));
            if let Some(claim) = row.and_then(|row| row.claim())
                && claims.insert(claim)
            {
                ahead.extend(asked.remove(&claim).into_iter().flatten().map(Node::Sought));
            }
        }
        self.count_steps(self.queries.len() + seen.len());
        claims
    }
}
