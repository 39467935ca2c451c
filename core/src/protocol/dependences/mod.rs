//! The waiting forest: which emitted symbols wait for which others, and who is Ready.
//!
//! A symbol is Ready once it and everything it transitively depends on is emitted. This module answers
//! that, for groups of symbols emitted together, in nearly linear time for any order of emission, and
//! says which nodes fall when one of them fails. It knows nodes, edges and a payload `P` that stands for
//! a row of the session. It knows no sessions, takes no locks, makes no calls outside and does not
//! recurse.
//!
//! # Partitions
//!
//! A node exists only while another can wait for it or it waits itself; Ready and failed nodes are
//! freed, and an id of a freed node never comes back to life (generations).
//!
//! | node | made by | waits for | holds |
//! |---|---|---|---|
//! | `Unemitted` | [`WaitingForest::add`]: a symbol that has dependants and is not emitted | its own emission | its dependants |
//! | `Waiters` | [`WaitingForest::emit`]: the symbols of one group, or several groups that form cycles | **one** other node, its parent | the edges it has not explored yet |
//!
//! ```text
//!        u                 u is Unemitted: a root
//!      / | \
//!     a  b  c              a, b and c are emitted and each waits for u
//!     |     |
//!     d     {e f}          e and f depend on each other: one component
//! ```
//!
//! - **Edges** run from a *group* to one node. Each is in two lists: its group's component has it as
//!   *unexplored* (or *internal*, when source and target have become one component), and its target has it
//!   among its dependants.
//! - **Components** are nodes that can only become Ready together: the symbols of a group, and the groups
//!   of a cycle. They are kept by union-find; the representative owns the lists, which are spliced in
//!   O(1). A node keeps its own list of dependants, so a failure still travels along real edges only.
//! - **The forest**: a `Waiters` component is the child of the one component it waits for, or it is on
//!   the worklist. Roots are therefore `Unemitted`, or about to move.
//!
//! # Operations
//!
//! - *Emit* makes a group's nodes one `Waiters` component, stores those of its edges whose targets are not
//!   Ready, and puts it on the worklist. A group that waits for nothing and has no waiters needs no nodes.
//! - *Resume* (from the worklist) explores edges until one has to be waited for. Target Ready: the edge
//!   goes. Target in the component itself: the edge becomes internal. Otherwise look for the root above the
//!   target: is it the component itself, then the path up to it is a cycle and is contracted; if not,
//!   hang the component under the target and stop. No edges left: Ready, and its children resume.
//! - *Fail* walks breadth-first over the lists of dependants, explored or not, internal or not.
//!
//! Each edge is visited at most twice before its group is Ready: once to hang on it, once to let it go; and once more for each
//! slice that ends on the way up from it to a root, which is as long as the hints are few.
//! Root finding halves paths on *hints*, ancestors further up kept beside the exact parents. A hint
//! stays true while its node lives: a node leaves its parent only when that parent became Ready, which
//! it did after everything above it.
//!
//! # Slices
//!
//! One emission can make a million symbols Ready. [`WaitingForest::advance`] therefore works to a budget and
//! keeps the rest on its queues, between which anything else may happen. Failures go first: while one is
//! spreading nothing resumes, so nothing that is about to fail is found Ready.
//!
//! **Architecture Invariant:** the state between two calls satisfies `check.rs`.

mod arena;
#[cfg(all(test, not(uruk_loom)))]
mod check;
mod fail;
mod pool;
mod resume;

use std::num::NonZeroU32;

use crate::protocol::storage::{Memory, Pieces};

#[cfg(all(test, not(uruk_loom)))]
pub(crate) use {pool::CHUNK, resume::STEPS_UP_MIN};

use arena::{Arena, NONE, Node, NodeStanding, TOLD};

/// A node of the forest. Ids of freed nodes are never given out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId {
    index: u32,
    generation: NonZeroU32,
}

/// Where a node is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeState {
    /// Not emitted yet.
    Unemitted,
    /// Emitted; something it depends on is not.
    Waiters,
    /// It fell and has not been reported yet, or others of its component still stand.
    Failed,
    /// Ready, or freed: the node's owner knows which from what was reported to it.
    Gone,
}

/// The end of a node, reported once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled<P> {
    /// Everything it depends on is emitted.
    Ready(P),
    /// It failed.
    Failed {
        /// Whose node it was.
        payload: P,
        /// The dependency through which the failure came; none where it began.
        via: Option<P>,
    },
}

/// How much work the forest has done. Benches print it and tests bound it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Edges stored by emissions.
    pub(crate) edges: u64,
    /// Edges looked at while resuming.
    pub(crate) edge_visits: u64,
    /// Steps up the forest while looking for roots.
    pub(crate) parent_steps: u64,
    /// Steps along paths that were contracted.
    pub(crate) contraction_steps: u64,
    /// Edges walked backwards, or freed, by failures, and nodes of the groups that they came to.
    pub(crate) failure_steps: u64,
}

/// See the module's head.
///
/// `P` is a small key of the session's: handed in with a node, handed out when it settles.
#[derive(Debug)]
pub(crate) struct WaitingForest<P> {
    arena: Arena<P>,
    /// Waiting components that have something to do: a ring of siblings, entered at its head.
    worklist: u32,
    /// Components that are Ready and whose nodes are not all reported yet: a ring as well.
    releasing: u32,
    /// Failed nodes whose dependants have not been told, each with the dependency it failed through.
    failing: Pieces<(u32, Option<P>)>,
    /// Components without a standing node, to be freed once no failure is spreading: a ring as well.
    dead: u32,
    /// How many steps up to a root are taken at least (`resume.rs`).
    steps_up_min: usize,
    counters: Counters,
}

impl<P: Copy + Send + 'static> WaitingForest<P> {
    /// Creates an empty forest.
    pub(crate) fn new() -> Self {
        Self {
            arena: Arena::new(),
            worklist: NONE,
            releasing: NONE,
            failing: Pieces::new(),
            dead: NONE,
            steps_up_min: resume::STEPS_UP_MIN,
            counters: Counters::default(),
        }
    }

    /// Makes a node for a symbol that is not emitted and that has a dependant.
    pub(crate) fn add(&mut self, payload: P) -> NodeId {
        let node = self.arena.allocate(payload, NodeStanding::Unemitted);
        self.arena.id(node)
    }

    /// Where the node is.
    pub(crate) fn state(&self, node: NodeId) -> NodeState {
        if !self.arena.is_alive(node) {
            return NodeState::Gone;
        }
        if self.arena.nodes[node.index].failed {
            return NodeState::Failed;
        }
        match self.arena.standing(node) {
            NodeStanding::Unemitted => NodeState::Unemitted,
            NodeStanding::Waiters => NodeState::Waiters,
            NodeStanding::Ready | NodeStanding::Free => NodeState::Gone,
        }
    }

    /// Emits one group of symbols that become Ready together.
    ///
    /// `members` are their nodes, all `Unemitted`, each given once. `dependencies` are nodes of any
    /// state, the group's own included; those that are gone count as Ready, and one that failed fails
    /// the group: refuse such an emission beforehand, by [`WaitingForest::state`].
    ///
    /// Emit all groups of one emission before the next [`WaitingForest::advance`].
    ///
    /// # Cost
    /// O(members + dependencies).
    pub(crate) fn emit(&mut self, members: &[NodeId], dependencies: &[NodeId]) {
        let Some(leader) = members.first().map(|member| member.index) else { return };
        let group = self.unite_group(leader, members);
        let (mut edges, mut failed) = (Edges { unexplored: NONE, internal: NONE }, None);
        for &dependency in dependencies {
            if self.store_edge(leader, group, dependency, &mut edges) {
                failed = failed.or(Some(dependency));
            }
        }
        let node = &mut self.arena.nodes[group];
        (node.unexplored, node.internal) = (edges.unexplored, edges.internal);
        self.arena.link_last(&mut self.worklist, group);
        // It should have been refused.
        if let Some(dependency) = failed {
            self.fail_group(leader, self.arena.nodes[dependency.index].payload);
        }
    }

    /// Fails a node: one that is not emitted, or an emitted symbol that is removed while it waits.
    ///
    /// The node and everything that transitively depends on it are reported by [`WaitingForest::advance`],
    /// nearest first. Other symbols of the node's own group fail only if the group depends on it. Says
    /// whether there was anything to fail; what is Ready, gone or failed is left alone.
    pub(crate) fn fail(&mut self, node: NodeId) -> bool {
        let stands = matches!(self.state(node), NodeState::Unemitted | NodeState::Waiters);
        if stands {
            self.mark_failed(node.index, None);
        }
        stands
    }

    /// Frees an `Unemitted` node without dependants, without a report; says whether it did.
    pub(crate) fn remove(&mut self, node: NodeId) -> bool {
        let removable = self.state(node) == NodeState::Unemitted && !self.has_dependants(node);
        if removable {
            self.arena.free(node.index);
        }
        removable
    }

    /// Works off what emissions and failures left to do, about `budget` steps of it, and appends what
    /// settled to `settled`: dependencies before their dependants. Says whether more is left.
    pub(crate) fn advance(&mut self, mut budget: usize, settled: &mut Vec<Settled<P>>) -> bool {
        while budget > 0 {
            if let Some(&node) = self.failing.front() {
                self.spread_failure(node, &mut budget, settled);
            } else if self.dead != NONE {
                self.bury(self.dead, &mut budget);
            } else if self.releasing != NONE {
                self.release(self.releasing, &mut budget, settled);
            } else if self.worklist != NONE {
                let component = self.arena.unlink_first(&mut self.worklist);
                self.forget_parent(component);
                self.resume(component, &mut budget);
            } else {
                return false;
            }
        }
        self.has_work()
    }

    /// Whether [`WaitingForest::advance`] has anything to do.
    pub(crate) fn has_work(&self) -> bool {
        self.worklist != NONE || self.releasing != NONE || self.dead != NONE || !self.failing.is_empty()
    }

    /// Whether a failure has dependants left to tell.
    pub(crate) fn is_failing(&self) -> bool {
        !self.failing.is_empty()
    }

    /// Whether any group that is not Ready depends on this very node.
    pub(crate) fn has_dependants(&self, node: NodeId) -> bool {
        self.first_dependant(node) != NONE
    }

    /// The groups that depend on this very node, each by the payload of its first node.
    pub(crate) fn dependants(&self, node: NodeId) -> impl Iterator<Item = P> {
        self.dependant_edges(node).map(|edge| self.arena.nodes[self.arena.edges[edge].source].payload)
    }

    fn dependant_edges(&self, node: NodeId) -> impl Iterator<Item = u32> {
        let first = self.first_dependant(node);
        std::iter::successors((first != NONE).then_some(first), |&edge| {
            let next = self.arena.edges[edge].next_dependant;
            (next != NONE).then_some(next)
        })
    }

    /// The nodes for which the node's component still waits, by payload: the targets that are not Ready
    /// of the edges it has not explored. A cycle has one answer for all its symbols. May repeat itself.
    pub(crate) fn dependencies(&self, node: NodeId) -> impl Iterator<Item = P> {
        self.component(node).into_iter().flat_map(|component| self.dependencies_of_component(component))
    }

    /// The component of a node, until the forest changes: nodes of one component wait for the same.
    pub(crate) fn component(&self, node: NodeId) -> Option<u32> {
        self.arena.is_alive(node).then(|| self.arena.find_unchanged(node.index)).flatten()
    }

    /// See [`WaitingForest::dependencies`].
    pub(crate) fn dependencies_of_component(&self, component: u32) -> impl Iterator<Item = P> {
        let last = self.arena.nodes[component].unexplored;
        let first = if last == NONE { NONE } else { self.arena.edges[last].next };
        let edges = std::iter::successors((first != NONE).then_some(first), move |&edge| {
            (edge != last).then(|| self.arena.edges[edge].next)
        });
        edges
            .map(|edge| &self.arena.edges[edge])
            .filter(|edge| edge.previous_dependant != TOLD)
            .map(|edge| edge.target)
            .filter(|&target| self.state(target) != NodeState::Gone)
            .map(|target| self.arena.nodes[target.index].payload)
    }

    /// The nodes of a component that exists, by payload; those that have failed too.
    pub(crate) fn members_of_component(&self, component: u32) -> impl Iterator<Item = P> {
        let members = std::iter::successors(Some(component), move |&node| {
            let next = self.arena.nodes[node].component;
            (next != component).then_some(next)
        });
        members.map(|node| self.arena.nodes[node].payload)
    }

    /// How many nodes exist.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn len(&self) -> usize {
        self.arena.nodes.len()
    }

    /// The work done so far.
    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// Memory that is no longer needed, to be dropped outside the lock.
    pub(crate) fn take_discarded(&mut self) -> Option<Vec<Memory>> {
        let discarded = &mut self.arena.discarded;
        (!discarded.is_empty()).then(|| std::mem::take(discarded))
    }

    /// The first edge in the list of a node's dependants. The list of a Ready node is no longer in use.
    fn first_dependant(&self, node: NodeId) -> u32 {
        if !self.arena.is_alive(node) || self.arena.standing(node) == NodeStanding::Ready {
            return NONE;
        }
        self.arena.nodes[node.index].dependants
    }

    /// Makes the members of a group, `leader` among them, one waiting component.
    fn unite_group(&mut self, leader: u32, members: &[NodeId]) -> u32 {
        let mut group = leader;
        self.arena.nodes[leader].standing = NodeStanding::Waiters;
        for &member in members {
            debug_assert!(
                member.index == leader || self.state(member) == NodeState::Unemitted,
                "a member of an emission is unemitted and given once",
            );
            if member.index != leader {
                self.arena.nodes[member.index].standing = NodeStanding::Waiters;
                self.arena.join_group(leader, member.index);
                group = self.arena.unite(group, member.index);
            }
        }
        group
    }

    /// Stores an edge of the group that `leader` stands for among its `edges`, unless it leads to what is Ready. Says
    /// whether it leads to what has failed.
    fn store_edge(&mut self, leader: u32, group: u32, dependency: NodeId, edges: &mut Edges) -> bool {
        if !self.arena.is_alive(dependency) {
            return false;
        }
        let Node { standing, failed, .. } = self.arena.nodes[dependency.index];
        let is_root = standing == NodeStanding::Unemitted;
        // An unemitted node is alone in its component.
        let component = if is_root { Some(dependency.index) } else { self.arena.find(dependency.index) };
        let is_ready =
            || component.is_none_or(|component| self.arena.nodes[component].standing == NodeStanding::Ready);
        if !failed && !is_root && is_ready() {
            return false;
        }
        self.counters.edges += 1;
        // An edge within the group has nothing to explore; a failure may still come along it.
        let is_internal = component == Some(group);
        let last = if is_internal { edges.internal } else { edges.unexplored };
        let edge = self.arena.append_edge(last, leader, dependency);
        if is_internal {
            edges.internal = edge;
        } else if !is_root || last == NONE {
            // An unemitted node is a root, under which the group can hang without a search: its edge comes first. In a
            // ring that is entered at its last edge an appended edge is the first, unless it becomes the last.
            edges.unexplored = edge;
        }
        failed
    }
}

/// The lists of a group's edges, each by its last one.
struct Edges {
    unexplored: u32,
    internal: u32,
}

impl<P: Copy + Send + 'static> Default for WaitingForest<P> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod parts {
    //! For tests alone.
    use super::*;

    impl<P: Copy + Send + 'static> WaitingForest<P> {
        /// An empty forest whose slices go up so many steps at least.
        pub(crate) fn going_up(steps_up_min: usize) -> Self {
            Self { steps_up_min, ..Self::new() }
        }

        /// How many edges there are.
        pub(crate) fn edges(&self) -> usize {
            self.arena.edges.len()
        }

        /// For how many nodes and edges there is memory.
        pub(crate) fn capacity(&self) -> (usize, usize) {
            (self.arena.nodes.capacity(), self.arena.edges.capacity())
        }

        /// Whether no node exists.
        pub(crate) fn is_empty(&self) -> bool {
            self.len() == 0
        }
    }
}
