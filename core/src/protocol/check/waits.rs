//! What holds of the wait-for graph between any two transactions.

use rustc_hash::FxHashSet;

use crate::RequiredState;
use crate::protocol::ids::{RowId, WaitId};
use crate::protocol::waits_for::Node;
use crate::protocol::{Payload, SessionState};

impl<P: Payload> SessionState<P> {
    /// I8: whatever a blocked lookup needs is watched; what is barren leads to no blocked thread; no lookup is left in a
    /// cycle. A turn is that of the blocked thread that has told of it.
    pub(super) fn check_waits(&self) {
        let waits: Vec<WaitId> = self.waits_for.waits().collect();
        let forgotten = self.waits_for.barren_rows().next().is_none();
        assert!(!waits.is_empty() || forgotten, "nobody is blocked, and rows are kept as barren");
        assert!(self.turns_agree(), "the turns of blocked threads are not those they have told of");
        for (row, required) in self.reached_from(waits.iter().map(|&wait| Node::Wait(wait)), Node::row) {
            assert!(
                self.waits_for.watches(row, required),
                "{row:?} is needed {required:?} by a blocked lookup"
            );
        }
        let barren = self.waits_for.barren_rows().map(|row| Node::Row(row, RequiredState::Ready));
        let touched = self.reached_from(barren, Node::wait);
        assert!(touched.is_empty(), "barren rows lead to {touched:?}");
        // Some of what is needed is about to end; the look comes after it.
        if self.is_falling() {
            return;
        }
        for wait in waits.into_iter().filter(|&wait| self.waits_for.stays(wait)) {
            let beyond = self.reached_from([Node::Wait(wait)], Node::wait);
            assert!(!beyond.contains(&wait), "{wait:?} waits for itself, and nobody has been told");
        }
    }

    /// What is picked among the nodes that are one step or more beyond `starts`.
    fn reached_from<R>(
        &self,
        starts: impl IntoIterator<Item = Node>,
        pick: impl Fn(&Node) -> Option<R>,
    ) -> Vec<R> {
        let (mut stack, mut next): (Vec<Node>, _) = (starts.into_iter().collect(), Vec::new());
        let mut seen = FxHashSet::default();
        while let Some(node) = stack.pop() {
            self.successors(node, false, true, &mut next);
            stack.extend(next.drain(..).filter(|&node| seen.insert(node)));
        }
        seen.iter().filter_map(pick).collect()
    }
}

impl Node {
    fn row(&self) -> Option<(RowId, RequiredState)> {
        match *self {
            Self::Row(row, required) => Some((row, required)),
            _ => None,
        }
    }

    fn wait(&self) -> Option<WaitId> {
        match *self {
            Self::Wait(wait) => Some(wait),
            _ => None,
        }
    }
}
