//! Link orders as a graph: every dylib that a search may lead to, each once.

use rustc_hash::FxHashSet;

use crate::sync::Arc;

use crate::protocol::state::{Payload, SessionState};
use crate::protocol::storage::DylibId;

impl<P: Payload> SessionState<P> {
    /// See [`crate::ExecutionSession::dfs_link_order`]. An error is the position of a root that was removed.
    pub(crate) fn dfs_link_order(&self, roots: &[DylibId]) -> Result<Vec<(DylibId, Arc<str>)>, usize> {
        if let Some(position) = roots.iter().position(|&root| !self.definitions.has_dylib(root)) {
            return Err(position);
        }
        let (mut order, mut visited) = (Vec::new(), FxHashSet::default());
        // The next to be visited is the last; a dylib may stand in it several times.
        let mut ahead: Vec<_> = roots.iter().rev().copied().collect();
        while let Some(id) = ahead.pop() {
            if visited.insert(id) {
                let dylib = &self.definitions[id];
                order.push((id, dylib.name.clone()));
                let unseen = dylib.link_order.iter().rev().map(|(next, _)| *next);
                ahead.extend(unseen.filter(|next| !visited.contains(next)));
            }
        }
        Ok(order)
    }
}
