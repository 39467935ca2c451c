//! Check: the invariants between any two transactions, as far as the state alone shows them.
//!
//! | invariant | checked by |
//! |---|---|
//! | I1: started at most once | `check_units`, `check_claims`: a unit waits in exactly its rows, or a claim holds them |
//! | I2: a query ends once | `check_queries`: one that is there waits for something and has not ended |
//! | I4: Ready after all it needs | `check_waiting`, `check_dependencies`: an emitted row waits in the forest for rows that may still become Ready, and for one outside its cycle |
//! | I8: certain cycles are errors | `BlockedThreads::check`: what blocked threads hold is known as theirs, so that their looks find all edges |
//! | I12: no wait is endless | `check_claims`, `check_suspended`, `check_generators`, `check_failures`: each awaited row has a claim, a generator at work, or a predecessor in a queue; no failed row is awaited |
//! | I13: the ready path agrees | `check_records`, `check_gate` |
//! | I15: memory | `check_tables`, `check_trackers`, `check_products`, `check_failures`, `check_initializers`, `Dependants::check`: each table holds what lives, once |
//!
//! Not here: I3 and I14 are of what has left the state (`session/`); I5 is of two states, one after the other (`row.rs`); I6,
//! I7 and I9 to I11 are of what this state does not know: pages, addresses, contexts, objects.
//!
//! Costs as much as the state is large, so it runs where debug assertions are on, and not after each transaction: after every one of
//! a state of at most 16 rows, queries and trackers, and after one in n of a state of 16 n. Checking stays within a constant
//! factor of the work then. While slices are left to do (`settle.rs`) it waits for the last, for in between less holds than is
//! checked here. Random histories that drive the state themselves run it after each operation, slices excepted.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::protocol::dependences::NodeState;
use crate::protocol::state::{Payload, RowState, SessionState};
use crate::protocol::storage::FailureId;

/// How many entities a state may hold for each transaction between two checks.
const ENTITIES_FOR_EACH_TRANSACTION: usize = 16;

impl<P: Payload> SessionState<P> {
    /// Runs [`Self::check`] if it is due. Nothing is left to settle.
    pub(crate) fn check_now_and_then(&mut self) {
        self.unchecked += 1;
        let entities = self.definitions.entities() + self.lookups.len();
        if self.unchecked * ENTITIES_FOR_EACH_TRANSACTION >= entities {
            self.unchecked = 0;
            self.check();
        }
    }

    /// Panics where the state is not what its parts promise. Nothing is left to settle.
    pub(crate) fn check(&self) {
        self.definitions.check(self.is_open());
        self.lookups.check(&self.definitions);
        self.check_waiting();
        self.check_dependencies();
        self.check_aliased();
        self.check_failures();
        self.dependants.check(|row| self.definitions.row(row).is_some());
        self.waits.check();
        self.check_priorities();
    }

    /// I4: a row and the forest agree on how far the row is.
    fn check_waiting(&self) {
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
    fn check_failures(&self) {
        let mut referred: FxHashMap<FailureId, usize> = FxHashMap::default();
        for (_, row) in self.definitions.rows() {
            if let RowState::Failed { failed_row, .. } = row.state {
                *referred.entry(failed_row.failure).or_default() += 1;
            }
        }
        self.failures.check(&referred);
    }

    /// I4: what an emitted row waits for may still become Ready, and some of it is not.
    fn check_dependencies(&self) {
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

    /// Only existing aliases have a source here.
    fn check_aliased(&self) {
        for (alias, source) in self.aliased.rows() {
            let row = self.definitions.row(alias);
            let row = row.unwrap_or_else(|| panic!("{alias:?} is gone, and its source is kept"));
            let is_stranded =
                self.definitions.row(source).is_none() && matches!(row.state, RowState::Ready { .. });
            assert!(
                row.is_stranded() || !is_stranded || self.definitions.row_is_removing(row),
                "lookups find {alias:?}, whose source is gone"
            );
        }
    }
}
