//! What holds between rows, the forest and the failures.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::protocol::dependences::NodeState;
use crate::protocol::state::{Payload, RowState, SessionState};
use crate::protocol::storage::FailureId;

impl<P: Payload> SessionState<P> {
    /// I4: a row and the forest agree on how far the row is.
    pub(super) fn check_waiting(&self) {
        let (mut nodes, mut waits) = (0, false);
        for (id, row) in self.definitions.rows() {
            waits |= matches!(row.state, RowState::Emitted { .. });
            let node = row.waiting().and_then(|waiting| waiting.node);
            nodes += usize::from(node.is_some());
            match (&row.state, node) {
                (RowState::Emitted { .. }, Some(node)) => {
                    assert_eq!(self.forest.state(node), NodeState::Waiters, "{id:?} is emitted")
                }
                (RowState::Emitted { .. }, None) => panic!("{id:?} is emitted and waits for nothing"),
                (_, Some(node)) => {
                    assert_eq!(self.forest.state(node), NodeState::Unemitted, "{id:?} is not emitted");
                }
                (_, None) => {}
            }
        }
        // A node that fell stays while others of its component stand.
        assert!(nodes <= self.forest.len(), "each row has a node of its own");
        assert!(waits || nodes == self.forest.len(), "the forest holds the nodes of rows only");
    }

    /// I15: the record of a failure is there as long as rows tell of it.
    pub(super) fn check_failures(&self) {
        let mut referred: FxHashMap<FailureId, usize> = FxHashMap::default();
        for (_, row) in self.definitions.rows() {
            if let RowState::Failed { fallen, .. } = row.state {
                *referred.entry(fallen.failure).or_default() += 1;
            }
        }
        self.failures.check(&referred);
    }

    /// I4: what an emitted row waits for may still become Ready, and some of it is not.
    pub(super) fn check_dependencies(&self) {
        let mut components = FxHashSet::default();
        for (id, row) in self.definitions.rows() {
            if !matches!(row.state, RowState::Emitted { .. }) {
                continue;
            }
            let component = self.component_of(id).expect("an emitted row has a component");
            if !components.insert(component) {
                continue;
            }
            let mut outside = 0;
            for needed in self.forest.dependencies_of_component(component) {
                let needed_row = self
                    .definitions
                    .row(needed)
                    .unwrap_or_else(|| panic!("{id:?} needs {needed:?}, which is gone"));
                assert!(
                    needed_row.waiting().is_some(),
                    "{id:?} needs {needed:?}, which is {:?}",
                    needed_row.state.standing()
                );
                outside += usize::from(self.component_of(needed) != Some(component));
            }
            assert!(outside > 0, "{id:?} needs nothing but itself and is not Ready");
        }
    }
}
