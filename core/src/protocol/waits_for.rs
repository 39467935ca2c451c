//! Waits-for: which blocked threads wait for which others, and which of them do so for ever.
//!
//! A thread is here while it is blocked in a lookup and holds something that only it can finish: responsibilities
//! it has attached, requests of generators it has not detached. Threads that hold nothing can be in no cycle.
//!
//! | edge | certain because |
//! |---|---|
//! | blocked lookup → the rows it is lodged on | it needs all of them |
//! | row → its claim → the blocked thread that holds its responsibility | a responsibility cannot leave its thread |
//! | blocked lookup → the lookup above it on the same thread's stack | a frame goes on when what it called returns |
//! | emitted row → all its unexplored edges in the forest | Ready means that all of them are |
//! | alias → its source | the alias takes its address from it, and depends on it |
//! | alias → the generator that is asked for its source | its unit goes on when the lookup of the source ends |
//! | row → its unit, queued → the blocked thread whose task runs in that serial queue | tasks of a queue run one after another |
//! | lookup at a generator → the blocked thread that holds the generator's request | a generator serves one lookup at a time; what it serves apart is in the hands of its own request |
//! | lookup that is served apart → the lookup that is made so that it can go on | its request is finished with the answer |
//!
//! Every edge is necessary for its origin, so a cycle through at least one blocked lookup never ends, whatever others
//! do. A detached responsibility, a unit in a dispatcher's queue, a serial queue whose task has left it, a lookup that is
//! answered by handler or future and a lookup with a deadline have no edge: somebody may still finish them. (A lookup with a
//! deadline that would close a cycle itself is told at once: nothing but its own end can break the cycle.)
//!
//! Nor has a row that is being removed, whose end ends what waits for it. `look.rs` says when cycles are looked for, `knots.rs` how.
//!
//! # Cost
//!
//! Nothing while no thread is blocked with something in its hands. Let a *walk* be one step for each symbol and edge that
//! leads from a node, as far as what is *barren*: known to lead to no blocked thread. A wait that begins walks three times:
//! what it needs is *watched*, and looked through without and with the stacks of threads. An emission with all its groups, or
//! the lookup of an alias, walks twice, but only if a blocked thread needs its symbols: what they need is
//! watched, and looked through for any cycle at once. Each deadlock that is found has all of it walked a few times more.
//!
//! What is barren is forgotten when a wait begins, and when a walk meets a blocked thread, which looks again then: emissions
//! that all lie between blocked threads walk as often as they come, each as far as the graph goes. A walk is one hold of the
//! lock, counted like slices are (`steps_max`), but not cut into them.

mod lost;
mod needs;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::RequiredState;
use crate::serial_queue::SerialQueueId;
use crate::sync::weakened;

use super::claim::Claim;
use super::effects::Effects;
use super::ids::{ClaimId, GeneratorId, QueryId, RowId, WaitId};
use super::look::Look;
use super::query::{Phase, Query};
use super::row::RowState;
use super::slab::Slab;
use super::{Payload, SessionState};

/// The blocked threads and what is known of the rows they need.
#[derive(Debug)]
pub(crate) struct WaitsFor {
    pub(super) waits: Slab<WaitId, Blocked>,
    pub(super) of_query: FxHashMap<QueryId, WaitId>,
    /// Which blocked lookup keeps a responsibility from going on.
    claims: FxHashMap<ClaimId, WaitId>,
    /// The same for the generators' requests on behalf of lookups.
    requests: FxHashMap<QueryId, WaitId>,
    /// The same for the serial queues whose running task has not left them.
    pub(super) sections: FxHashMap<SerialQueueId, WaitId>,
    /// All rows that blocked lookups need, directly or not, and how far; some that they needed.
    pub(super) watched: FxHashMap<RowId, RequiredState>,
    /// Watched rows that are known not to need anything that a blocked thread holds.
    pub(super) barren: FxHashSet<RowId>,
    /// How many waits have begun.
    begun: u64,
    /// What appeared while it was not known who falls.
    pub(super) postponed: Vec<Look>,
}

/// What a thread that is about to block holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings {
    /// The lookup in which the thread is blocked already, beneath this one on its stack.
    pub(crate) below: Option<WaitId>,
    pub(crate) claims: Vec<ClaimId>,
    pub(crate) requests: Vec<QueryId>,
    /// The serial queues in whose turn it runs.
    pub(crate) sections: Vec<SerialQueueId>,
    /// The lookup has a deadline.
    pub(crate) ends_by_itself: bool,
}

/// A lookup in which a thread is blocked.
#[derive(Debug)]
pub(super) struct Blocked {
    pub(super) query: QueryId,
    holdings: Holdings,
    /// The lookup in which the same thread is blocked above this one, on the stack of the same loop.
    above: Option<WaitId>,
    /// Its place in the order of all that began.
    pub(super) began: u64,
}

/// What the graph is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// A row that is needed so far.
    Row(RowId, RequiredState),
    /// The emitted rows that can only become Ready together, by the forest's component.
    Together(u32),
    /// The lookup at a generator that an alias waits for, or a generator so that another one can go on.
    Sought(QueryId),
    /// A lookup suspended at a generator that serves this one.
    Served(GeneratorId, QueryId),
    /// The turn of a serial queue.
    Turn(SerialQueueId),
    /// A blocked lookup.
    Wait(WaitId),
}

impl Holdings {
    /// Whether nobody can wait for it.
    pub(crate) fn is_empty(&self) -> bool {
        self.below.is_none() && self.claims.is_empty() && self.requests.is_empty() && self.sections.is_empty()
    }
}

impl WaitsFor {
    pub(crate) fn new() -> Self {
        Self {
            waits: Slab::new(),
            of_query: FxHashMap::default(),
            claims: FxHashMap::default(),
            requests: FxHashMap::default(),
            sections: FxHashMap::default(),
            watched: FxHashMap::default(),
            barren: FxHashSet::default(),
            begun: 0,
            postponed: Vec::new(),
        }
    }

    /// Says whether the row was not watched yet, or not as far: what is needed of it may lead further then.
    fn watch(&mut self, row: RowId, required: RequiredState) -> bool {
        let before = self.watched.get(&row).copied();
        let further = before.is_none_or(|watched| watched < required);
        if further {
            self.watched.insert(row, required);
        }
        further
    }

    /// The lookup in which the holder of the claim is blocked.
    pub(super) fn blocked_with(&self, claim: ClaimId) -> Option<QueryId> {
        self.waits.get(*self.claims.get(&claim)?).map(|wait| wait.query)
    }

    /// A unit is about to wait for its turn in `queue`. What leads to it may lead to a blocked thread from now on.
    pub(super) fn joins(&mut self, queue: Option<SerialQueueId>) {
        if queue.is_some_and(|queue| self.sections.contains_key(&queue)) {
            self.barren.clear();
        }
    }

    /// Whether the queue's turn is that of a blocked thread.
    pub(super) fn is_blocked_in_turn(&self, queue: SerialQueueId) -> bool {
        self.sections.contains_key(&queue)
    }

    /// The claims that the thread blocked in `query` holds.
    pub(super) fn held_in(&self, query: QueryId) -> impl Iterator<Item = ClaimId> {
        let wait = self.of_query.get(&query).and_then(|&wait| self.waits.get(wait));
        wait.into_iter().flat_map(|wait| wait.holdings.claims.iter().copied())
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn waits(&self) -> impl Iterator<Item = WaitId> {
        self.waits.iter().map(|(wait, _)| wait)
    }

    /// How much blocked threads hold.
    #[cfg(all(test, not(uruk_loom)))]
    pub(super) fn held(&self) -> usize {
        self.claims.len() + self.requests.len() + self.sections.len()
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn watches(&self, row: RowId, required: RequiredState) -> bool {
        self.watched.get(&row).is_some_and(|&watched| watched >= required)
    }

    #[cfg(any(test, debug_assertions))]
    pub(super) fn barren_rows(&self) -> impl Iterator<Item = RowId> {
        self.barren.iter().copied()
    }

    /// Whether the blocked lookup ends only when somebody ends it: it has no deadline.
    pub(super) fn stays(&self, wait: WaitId) -> bool {
        self.waits.get(wait).is_some_and(|wait| !wait.holdings.ends_by_itself)
    }

    /// Whether what is needed there is known to lead to no blocked thread.
    pub(super) fn is_barren(&self, node: Node) -> bool {
        matches!(node, Node::Row(row, _) if self.barren.contains(&row))
    }

    /// Whether no thread is blocked with something in its hands.
    pub(super) fn is_empty(&self) -> bool {
        self.waits.len() == 0
    }
}

impl<P: Payload> SessionState<P> {
    /// A thread that holds something is about to block in `query`. None if the query has ended already.
    ///
    /// If that can never end, the query is failed with the cycle.
    ///
    /// # Cost
    /// One step for each thing the thread holds, and one for each symbol and edge that the query needs.
    pub(crate) fn begin_wait(
        &mut self,
        query: QueryId,
        holdings: Holdings,
        effects: &mut Effects<P>,
    ) -> Option<WaitId> {
        if !self.queries.get(query).is_some_and(Query::is_live) {
            return None;
        }
        let graph = &mut self.waits_for;
        graph.begun += 1;
        // What leads to what this thread holds leads to a blocked thread from now on.
        graph.barren.clear();
        let began = graph.begun;
        let wait = graph.waits.insert(Blocked { query, holdings, above: None, began });
        let Blocked { ref holdings, .. } = graph.waits[wait];
        let below = holdings.below;
        graph.of_query.insert(query, wait);
        graph.claims.extend(holdings.claims.iter().map(|&claim| (claim, wait)));
        graph.requests.extend(holdings.requests.iter().map(|&request| (request, wait)));
        graph.sections.extend(holdings.sections.iter().map(|&queue| (queue, wait)));
        if let Some(below) = below.and_then(|below| graph.waits.get_mut(below)) {
            below.above = Some(wait);
        }
        if !weakened("deadlock::begins_without_a_look") {
            self.wait_moved(query, effects);
        }
        Some(wait)
    }

    /// The thread goes on. What another is blocked with by now stays with that.
    pub(crate) fn end_wait(&mut self, wait: WaitId, effects: &mut Effects<P>) {
        let graph = &mut self.waits_for;
        let Some(Blocked { query, holdings, .. }) = graph.waits.remove(wait, effects) else { return };
        graph.of_query.remove(&query);
        for claim in &holdings.claims {
            lost::forget(&mut graph.claims, claim, wait);
        }
        for request in &holdings.requests {
            lost::forget(&mut graph.requests, request, wait);
        }
        for queue in &holdings.sections {
            lost::forget(&mut graph.sections, queue, wait);
        }
        if let Some(below) = holdings.below.and_then(|below| graph.waits.get_mut(below)) {
            below.above = None;
        }
        if graph.is_empty() {
            graph.watched = FxHashMap::default();
            graph.barren = FxHashSet::default();
            graph.postponed = Vec::new();
        }
    }

    /// What `node` needs for certain. A lookup with a deadline needs its rows only for as long as it likes, unless it
    /// is the one in question.
    pub(super) fn successors(&self, node: Node, in_question: bool, stacked: bool, out: &mut Vec<Node>) {
        match node {
            Node::Row(row, required) => self.needed_by_row(row, required, out),
            Node::Together(component) => {
                out.extend(self.forest.dependencies_of_component(component).map(Node::ready));
            }
            Node::Sought(query) => self.needed_by_query(query, out),
            Node::Served(_, query) => {
                out.extend(self.waits_for.requests.get(&query).map(|&wait| Node::Wait(wait)))
            }
            Node::Turn(queue) => {
                out.extend(self.waits_for.sections.get(&queue).map(|&wait| Node::Wait(wait)));
            }
            Node::Wait(wait) => {
                let Some(wait) = self.waits_for.waits.get(wait) else { return };
                if stacked {
                    out.extend(wait.above.map(Node::Wait));
                }
                if in_question || !wait.holdings.ends_by_itself {
                    self.needed_by_query(wait.query, out);
                }
            }
        }
    }

    fn needed_by_row(&self, id: RowId, required: RequiredState, out: &mut Vec<Node>) {
        let Some(row) = self.rows.get(id) else { return };
        // A row that is being removed ends all that waits for it.
        if !row.is_behind(required) || self.is_condemned(row) {
            return;
        }
        if matches!(row.state, RowState::Emitted { .. }) {
            out.extend(self.component_of(id).map(Node::Together));
        }
        let Some(claim) = row.claim() else { return };
        out.extend(self.waits_for.claims.get(&claim).map(|&wait| Node::Wait(wait)));
        let queue = self.claims.get(claim).and_then(Claim::queued_in);
        let queue = queue.filter(|&queue| self.waits_for.is_blocked_in_turn(queue));
        out.extend(queue.map(Node::Turn));
        out.extend(self.aliases.source_of(id).map(|source| Node::Row(source, required)));
        out.extend(self.aliases.sought_by(id).map(Node::Sought));
    }

    pub(super) fn needed_by_query(&self, id: QueryId, out: &mut Vec<Node>) {
        match self.queries.get(id).filter(|query| query.is_live()).map(|query| &query.phase) {
            Some(Phase::Lodged(lodged)) if lodged.ended => {}
            Some(Phase::Lodged(lodged)) => {
                let waits = lodged.entries.iter().filter(|entry| entry.waits());
                out.extend(waits.map(|entry| Node::Row(entry.row, lodged.required_state)));
            }
            Some(Phase::Suspended(suspended)) => {
                let Some(generator) = suspended.waits_at else { return };
                // A generator that was removed is still busy with the lookup it serves, and with no other. What is served apart
                // waits for nobody who is served there meanwhile.
                let busy = self.generators.get(generator).filter(|_| suspended.apart.is_none());
                let served = busy.map_or(Some(id), |generator| generator.occupant);
                out.extend(served.map(|served| Node::Served(generator, served)));
                let question = suspended.apart.as_ref().and_then(|apart| apart.question);
                out.extend(question.map(Node::Sought));
            }
            None => {}
        }
    }

    /// Watches all rows that the nodes need, directly or not.
    pub(super) fn watch_beyond(&mut self, starts: impl IntoIterator<Item = Node>) {
        let (mut stack, mut next) = (Vec::from_iter(starts), Vec::new());
        // What is watched already may need more now. One of these stands between many rows.
        let mut between: FxHashSet<Node> = FxHashSet::default();
        while let Some(node) = stack.pop() {
            self.needed_rows(node, &mut next);
            self.count_steps(1 + next.len());
            stack.extend(next.drain(..).filter(|&node| match node {
                Node::Row(row, required) => self.waits_for.watch(row, required),
                node => between.insert(node),
            }));
        }
        self.forget_unwatched();
    }

    /// The same as [`Self::successors`] as far as the next blocked lookup, what that needs being watched already, and
    /// with what a lookup needs that has a deadline.
    fn needed_rows(&self, node: Node, out: &mut Vec<Node>) {
        self.successors(node, true, false, out);
        out.retain(|node| !matches!(node, Node::Wait(_) | Node::Served(..) | Node::Turn(_)));
    }

    /// Lets go of rows that are gone, once they are many.
    fn forget_unwatched(&mut self) {
        const FEW: usize = 1024;
        let (graph, rows) = (&mut self.waits_for, &self.rows);
        if graph.watched.len() > FEW + 2 * rows.len() {
            graph.watched.retain(|row, _| rows.contains(*row));
            graph.barren.retain(|row| rows.contains(*row));
        }
    }

    pub(super) fn component_of(&self, row: RowId) -> Option<u32> {
        self.forest.component(self.rows.get(row)?.waiting()?.node?)
    }
}

impl Node {
    pub(super) fn ready(row: RowId) -> Self {
        Self::Row(row, RequiredState::Ready)
    }
}
