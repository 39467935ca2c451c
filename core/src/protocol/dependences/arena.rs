//! Where nodes and edges live, and the lists they are threaded in.
//!
//! Nodes and edges sit in two pools (`pool.rs`): no allocation per node or edge, no pointers. Generations lie apart from
//! the nodes (`pool.rs`).
//!
//! | list | form | entered at |
//! |---|---|---|
//! | children of a component, the worklist, and what is being freed | ring through `previous`, `next` | its first sibling |
//! | nodes of a component | ring through `component` | any node |
//! | nodes of a group | ring through `group` | any node |
//! | unexplored and internal edges | ring through `next` | its **last** edge, so that both ends are at hand |
//! | dependants of a node | list through `previous_dependant`, `next_dependant` | its first edge |
//!
//! Rings are spliced, whole, in O(1).

use std::num::NonZeroU32;

use super::{NodeId, pool::Ages, pool::Pool};
use crate::protocol::storage::{Memory, RowId};

/// No node, no edge.
pub(super) const NONE: u32 = u32::MAX;

/// In the place of an edge: it is in no list of dependants, because its target has failed and told its source.
pub(super) const TOLD: u32 = u32::MAX - 1;

/// How far a component is. Kept at its representative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeStanding {
    Free,
    Unemitted,
    Waiters,
    Ready,
}

/// A node of the session's fills one line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Node<P> {
    pub(super) standing: NodeStanding,
    /// This symbol fell. Its component may go on without it.
    pub(super) failed: bool,
    /// At the first node of a group, the source of its edges: all of the group fell.
    pub(super) group_failed: bool,
    /// Another node represents the component.
    pub(super) absorbed: bool,
    /// At a representative: the component waits for what its first unexplored edge leads to. Was that Ready in the
    /// meantime, or is it gone, then the component is on the worklist.
    pub(super) hangs: bool,
    /// At an absorbed node: the next one on the way to the representative (union-find). A freed node here means that
    /// the component is Ready. At a representative: some ancestor, for short cuts; itself without one.
    pub(super) up: NodeId,
    /// At a representative: how many nodes of the component have not failed.
    pub(super) standing_nodes: u32,
    /// At a representative: the components that wait for this one.
    pub(super) children: u32,
    pub(super) previous: u32,
    pub(super) next: u32,
    /// At a representative: edges still to explore.
    pub(super) unexplored: u32,
    /// At a representative: edges whose two ends have become one component.
    pub(super) internal: u32,
    pub(super) component: u32,
    pub(super) group: u32,
    /// Edges that lead to this very node.
    pub(super) dependants: u32,
    pub(super) payload: P,
}

const _: () = assert!(size_of::<Node<RowId>>() == 64 && size_of::<Edge>() == 24, "see Node");

#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    /// The first node of the group that depends.
    pub(super) source: u32,
    pub(super) target: NodeId,
    pub(super) next: u32,
    /// [`TOLD`] once a failure has come along the edge, which has then left the target's list.
    pub(super) previous_dependant: u32,
    pub(super) next_dependant: u32,
}

#[derive(Debug)]
pub(super) struct Arena<P> {
    pub(super) nodes: Pool<Node<P>>,
    pub(super) edges: Pool<Edge>,
    ages: Ages,
    /// Memory that is no longer needed, to be dropped where no thread waits for it.
    pub(super) discarded: Vec<Memory>,
}

impl<P: Copy + Send + 'static> Arena<P> {
    pub(super) const fn new() -> Self {
        Self { nodes: Pool::new(), edges: Pool::new(), ages: Ages::new(), discarded: Vec::new() }
    }

    /// A node alone in its component and its group.
    pub(super) fn allocate(&mut self, payload: P, standing: NodeStanding) -> u32 {
        let blank = Node {
            standing: NodeStanding::Free,
            failed: false,
            group_failed: false,
            absorbed: false,
            hangs: false,
            up: NodeId { index: NONE, generation: NonZeroU32::MIN },
            standing_nodes: 1,
            children: NONE,
            previous: NONE,
            next: NONE,
            unexplored: NONE,
            internal: NONE,
            component: NONE,
            group: NONE,
            dependants: NONE,
            payload,
        };
        let mut made = None;
        let index = self.nodes.take(|age| {
            made = Some(age);
            blank
        });
        if let Some(age) = made {
            self.ages.make(index, self.nodes.chunk_len(index), age);
        }
        let up = self.ages.id(index);
        self.nodes[index] = Node { standing, up, component: index, group: index, ..blank };
        index
    }

    /// Frees a node. Its lists must be empty or no longer in use.
    pub(super) fn free(&mut self, index: u32) {
        let node = &mut self.nodes[index];
        debug_assert!(node.standing != NodeStanding::Free, "a node is freed once");
        node.standing = NodeStanding::Free;
        // A place whose generations are used up stays out of use.
        let age = self.ages.end(index);
        self.nodes.give_back(index, age, &mut self.discarded);
        if self.nodes.chunk_len(index) == 0 {
            self.ages.forget(index, &mut self.discarded);
        }
    }

    pub(super) fn id(&self, index: u32) -> NodeId {
        self.ages.id(index)
    }

    pub(super) fn is_alive(&self, id: NodeId) -> bool {
        self.ages.is_alive(id)
    }

    /// The representative of a live node's component; none when the component is Ready and partly freed. Shortens the way there.
    pub(super) fn find(&mut self, mut index: u32) -> Option<u32> {
        loop {
            let Some(up) = self.one_up(index)? else { return Some(index) };
            let Some(above) = self.one_up(up)? else { return Some(up) };
            self.nodes[index].up = self.nodes[up].up;
            index = above;
        }
    }

    /// The same without shortening the way.
    pub(super) fn find_unchanged(&self, mut index: u32) -> Option<u32> {
        while let Some(up) = self.one_up(index)? {
            index = up;
        }
        Some(index)
    }

    /// The next node on the way to the representative, which has none. Nothing when the component is Ready and that node is freed.
    #[inline]
    fn one_up(&self, index: u32) -> Option<Option<u32>> {
        let Node { absorbed, up, .. } = self.nodes[index];
        match absorbed {
            true => self.is_alive(up).then_some(Some(up.index)),
            false => Some(None),
        }
    }

    /// How far the component of a live node is.
    pub(super) fn standing(&self, id: NodeId) -> NodeStanding {
        self.find_unchanged(id.index).map_or(NodeStanding::Ready, |component| self.nodes[component].standing)
    }

    /// Makes two components one; gives its representative. Neither may hang or be linked among siblings.
    pub(super) fn unite(&mut self, one: u32, other: u32) -> u32 {
        let larger_first = self.nodes[one].standing_nodes >= self.nodes[other].standing_nodes;
        let (large, small) = if larger_first { (one, other) } else { (other, one) };
        let id = self.id(large);
        let absorbed = &mut self.nodes[small];
        (absorbed.absorbed, absorbed.up) = (true, id);
        let (children, unexplored, internal) = (absorbed.children, absorbed.unexplored, absorbed.internal);
        let (ring, standing_nodes) = (absorbed.component, absorbed.standing_nodes);
        (absorbed.children, absorbed.unexplored, absorbed.internal) = (NONE, NONE, NONE);
        let mut all_children = self.nodes[large].children;
        self.splice(&mut all_children, children);
        let unexplored = self.splice_edges(self.nodes[large].unexplored, unexplored);
        let internal = self.splice_edges(self.nodes[large].internal, internal);
        let node = &mut self.nodes[large];
        node.standing_nodes += standing_nodes;
        (node.children, node.unexplored, node.internal) = (all_children, unexplored, internal);
        let rest = std::mem::replace(&mut node.component, ring);
        self.nodes[small].component = rest;
        large
    }

    /// Puts `node`, alone so far, into the group of `member`.
    pub(super) fn join_group(&mut self, member: u32, node: u32) {
        let rest = std::mem::replace(&mut self.nodes[member].group, node);
        self.nodes[node].group = rest;
    }

    // --- rings of siblings -------------------------------------------------------------------------

    /// Adds a component at the end of the ring that begins at `first`.
    pub(super) fn link_last(&mut self, first: &mut u32, node: u32) {
        (self.nodes[node].previous, self.nodes[node].next) = (node, node);
        self.splice(first, node);
    }

    /// Adds a component at the start of the ring that begins at `first`.
    pub(super) fn link_first(&mut self, first: &mut u32, node: u32) {
        self.link_last(first, node);
        *first = node;
    }

    /// Takes the component `node` out of the ring that begins at `first`.
    pub(super) fn unlink(&mut self, first: &mut u32, node: u32) {
        let (previous, next) = (self.nodes[node].previous, self.nodes[node].next);
        if next == node {
            *first = NONE;
        } else {
            self.nodes[previous].next = next;
            self.nodes[next].previous = previous;
            if *first == node {
                *first = next;
            }
        }
        (self.nodes[node].previous, self.nodes[node].next) = (NONE, NONE);
    }

    pub(super) fn unlink_first(&mut self, first: &mut u32) -> u32 {
        let node = *first;
        self.unlink(first, node);
        node
    }

    /// Appends the ring that begins at `other` to the one that begins at `first`.
    pub(super) fn splice(&mut self, first: &mut u32, other: u32) {
        if *first == NONE {
            *first = other;
        } else if other != NONE {
            let (last, other_last) = (self.nodes[*first].previous, self.nodes[other].previous);
            self.nodes[last].next = other;
            self.nodes[other].previous = last;
            self.nodes[other_last].next = *first;
            self.nodes[*first].previous = other_last;
        }
    }

    // --- edges -------------------------------------------------------------------------------------

    /// A new edge in the list of the target's dependants, and behind the last edge of the ring that ends at `last`.
    #[inline]
    pub(super) fn append_edge(&mut self, last: u32, source: u32, target: NodeId) -> u32 {
        let (previous_dependant, next_dependant) = (NONE, NONE);
        let index =
            self.edges.take(|_| Edge { source, target, next: NONE, previous_dependant, next_dependant });
        let next = if last == NONE { index } else { std::mem::replace(&mut self.edges[last].next, index) };
        let next_dependant = std::mem::replace(&mut self.nodes[target.index].dependants, index);
        self.edges[index] = Edge { source, target, next, previous_dependant, next_dependant };
        if next_dependant != NONE {
            self.edges[next_dependant].previous_dependant = index;
        }
        index
    }

    /// Frees an edge that is in no list.
    pub(super) fn free_edge(&mut self, edge: u32) {
        self.edges.give_back(edge, Some(0), &mut self.discarded);
    }

    /// Takes an edge out of the list of its target's dependants. The target must not be Ready: the lists
    /// of Ready nodes are no longer in use and may not be touched.
    pub(super) fn unlink_dependant(&mut self, edge: u32) {
        let Edge { target, previous_dependant, next_dependant, .. } = self.edges[edge];
        if previous_dependant == TOLD {
            return;
        }
        if next_dependant != NONE {
            self.edges[next_dependant].previous_dependant = previous_dependant;
        }
        if previous_dependant != NONE {
            self.edges[previous_dependant].next_dependant = next_dependant;
        } else {
            self.nodes[target.index].dependants = next_dependant;
        }
    }

    /// Appends an edge to the ring that ends at `last`; gives the new last edge.
    #[must_use]
    pub(super) fn push_edge(&mut self, last: u32, edge: u32) -> u32 {
        self.edges[edge].next = edge;
        self.splice_edges(last, edge)
    }

    /// Takes the first edge off the ring that ends at `last`; gives it and the new last edge.
    #[must_use]
    #[inline]
    pub(super) fn pop_edge(&mut self, last: u32) -> (u32, u32) {
        if last == NONE {
            return (NONE, NONE);
        }
        let first = self.edges[last].next;
        if first == last {
            return (first, NONE);
        }
        self.edges[last].next = self.edges[first].next;
        (first, last)
    }

    /// Appends the ring that ends at `other_last` to the one that ends at `last`; gives the new last edge.
    #[must_use]
    pub(super) fn splice_edges(&mut self, last: u32, other_last: u32) -> u32 {
        if last == NONE {
            return other_last;
        }
        if other_last == NONE {
            return last;
        }
        let first = self.edges[last].next;
        self.edges[last].next = self.edges[other_last].next;
        self.edges[other_last].next = first;
        other_last
    }
}
