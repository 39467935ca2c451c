//! Where nodes and edges live, and the lists they are threaded in.
//!
//! Nodes and edges sit in two vectors with free lists: no allocation per node or edge, no pointers.
//!
//! | list | form | entered at |
//! |---|---|---|
//! | children of a component, and the worklist | ring through `previous`, `next` | its first sibling |
//! | nodes of a component | ring through `component` | any node |
//! | nodes of a group | ring through `group` | any node |
//! | unexplored and internal edges | ring through `next` | its **last** edge, so that both ends are at hand |
//! | dependants of a node | list through `previous_dependant`, `next_dependant` | its first edge |
//!
//! Rings are spliced, whole, in O(1).

use std::num::NonZeroU32;

use super::NodeId;

/// No node, no edge.
pub(super) const NONE: u32 = u32::MAX;

/// How far a component is. Kept at its representative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Free,
    Unemitted,
    Waiting,
    Ready,
}

#[derive(Debug)]
pub(super) struct Node<P> {
    pub(super) generation: NonZeroU32,
    pub(super) standing: Standing,
    /// This symbol fell. Its component may go on without it.
    pub(super) failed: bool,
    /// At the first node of a group, the source of its edges: all of the group fell.
    pub(super) group_failed: bool,
    /// Union-find: itself at a representative. A freed node here means that the component is Ready.
    pub(super) up: NodeId,
    /// What the component waits for. A Ready or freed node here means: nothing, it is on the worklist.
    pub(super) parent: Option<NodeId>,
    /// Some ancestor, for short cuts. At a failed node: the dependency it failed through.
    pub(super) hint: Option<NodeId>,
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

#[derive(Debug)]
pub(super) struct Edge {
    /// The first node of the group that depends.
    pub(super) source: u32,
    /// None once a failure has come along the edge, which has then left the target's list.
    pub(super) target: Option<NodeId>,
    pub(super) next: u32,
    pub(super) previous_dependant: u32,
    pub(super) next_dependant: u32,
}

#[derive(Debug)]
pub(super) struct Arena<P> {
    pub(super) nodes: Vec<Node<P>>,
    pub(super) edges: Vec<Edge>,
    /// Free nodes, linked through `next`.
    free_nodes: u32,
    /// Free edges: a ring like the others.
    pub(super) free_edges: u32,
    pub(super) live_nodes: usize,
    /// The generation of slots that are new: above all that ever were, when slots were given back.
    first_generation: NonZeroU32,
    last_generation: NonZeroU32,
}

/// Vectors up to this length are kept when the forest falls empty.
const KEEP_NODES: usize = 1024;

impl<P: Copy> Arena<P> {
    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            edges: Vec::new(),
            free_nodes: NONE,
            free_edges: NONE,
            live_nodes: 0,
            first_generation: NonZeroU32::MIN,
            last_generation: NonZeroU32::MIN,
        }
    }

    /// A node alone in its component and its group.
    pub(super) fn allocate(&mut self, payload: P, standing: Standing) -> u32 {
        let reuse = self.free_nodes;
        let index = if reuse == NONE { self.nodes.len() as u32 } else { reuse };
        assert!(index != NONE, "the forest holds at most 2^32 - 1 nodes");
        let generation =
            if reuse == NONE { self.first_generation } else { self.nodes[index as usize].generation };
        let node = Node {
            generation,
            standing,
            failed: false,
            group_failed: false,
            up: NodeId { index, generation },
            parent: None,
            hint: None,
            standing_nodes: 1,
            children: NONE,
            previous: NONE,
            next: NONE,
            unexplored: NONE,
            internal: NONE,
            component: index,
            group: index,
            dependants: NONE,
            payload,
        };
        if reuse == NONE {
            self.nodes.push(node);
        } else {
            self.free_nodes = self.nodes[index as usize].next;
            self.nodes[index as usize] = node;
        }
        self.live_nodes += 1;
        index
    }

    /// Frees a node. Its lists must be empty or nobody's any more.
    pub(super) fn free(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        debug_assert!(node.standing != Standing::Free, "a node is freed once");
        node.standing = Standing::Free;
        self.live_nodes -= 1;
        let Some(generation) = node.generation.checked_add(1) else {
            // A slot whose generations are used up stays out of use, and so its vector stays.
            self.last_generation = NonZeroU32::MAX;
            return;
        };
        node.generation = generation;
        node.next = self.free_nodes;
        self.free_nodes = index;
        self.last_generation = self.last_generation.max(generation);
    }

    /// Gives the memory back once nothing is left of a large forest. Old ids stay dead: whatever slots
    /// come next begin above every generation so far.
    pub(super) fn shrink_if_empty(&mut self) {
        if self.live_nodes == 0 && self.nodes.len() > KEEP_NODES && self.last_generation < NonZeroU32::MAX {
            let last_generation = self.last_generation;
            *self = Self { first_generation: last_generation, last_generation, ..Self::new() };
        }
    }

    pub(super) fn id(&self, index: u32) -> NodeId {
        NodeId { index, generation: self.nodes[index as usize].generation }
    }

    pub(super) fn is_alive(&self, id: NodeId) -> bool {
        self.nodes
            .get(id.index as usize)
            .is_some_and(|node| node.generation == id.generation && node.standing != Standing::Free)
    }

    /// The representative of a live node's component; none when the component is Ready and partly freed.
    pub(super) fn find(&mut self, mut index: u32) -> Option<u32> {
        loop {
            let up = self.nodes[index as usize].up;
            if up.index == index {
                return Some(index);
            }
            if !self.is_alive(up) {
                return None;
            }
            let above = self.nodes[up.index as usize].up;
            self.nodes[index as usize].up = above;
            if !self.is_alive(above) {
                return None;
            }
            index = above.index;
        }
    }

    /// [`Arena::find`] without shortening the path.
    pub(super) fn find_unchanged(&self, mut index: u32) -> Option<u32> {
        loop {
            let up = self.nodes[index as usize].up;
            if up.index == index {
                return Some(index);
            }
            if !self.is_alive(up) {
                return None;
            }
            index = up.index;
        }
    }

    /// How far the component of a live node is.
    pub(super) fn standing(&self, id: NodeId) -> Standing {
        self.find_unchanged(id.index)
            .map_or(Standing::Ready, |component| self.nodes[component as usize].standing)
    }

    /// Makes two components one; gives its representative. Neither may hang or be linked among siblings.
    pub(super) fn unite(&mut self, one: u32, other: u32) -> u32 {
        let larger_first =
            self.nodes[one as usize].standing_nodes >= self.nodes[other as usize].standing_nodes;
        let (large, small) = if larger_first { (one, other) } else { (other, one) };
        let id = self.id(large);
        let absorbed = &mut self.nodes[small as usize];
        absorbed.up = id;
        let (children, unexplored, internal) = (absorbed.children, absorbed.unexplored, absorbed.internal);
        let (ring, standing_nodes) = (absorbed.component, absorbed.standing_nodes);
        (absorbed.children, absorbed.unexplored, absorbed.internal) = (NONE, NONE, NONE);
        let mut all_children = self.nodes[large as usize].children;
        self.splice(&mut all_children, children);
        let unexplored = self.splice_edges(self.nodes[large as usize].unexplored, unexplored);
        let internal = self.splice_edges(self.nodes[large as usize].internal, internal);
        let node = &mut self.nodes[large as usize];
        node.standing_nodes += standing_nodes;
        (node.children, node.unexplored, node.internal) = (all_children, unexplored, internal);
        let rest = std::mem::replace(&mut node.component, ring);
        self.nodes[small as usize].component = rest;
        large
    }

    /// Puts `node`, alone so far and without lists, into the component of the representative `component`,
    /// which stays where it hangs.
    pub(super) fn join_component(&mut self, component: u32, node: u32) {
        self.nodes[node as usize].up = self.id(component);
        let representative = &mut self.nodes[component as usize];
        representative.standing_nodes += 1;
        let rest = std::mem::replace(&mut representative.component, node);
        self.nodes[node as usize].component = rest;
    }

    /// Puts `node`, alone so far, into the group of `member`.
    pub(super) fn join_group(&mut self, member: u32, node: u32) {
        let rest = std::mem::replace(&mut self.nodes[member as usize].group, node);
        self.nodes[node as usize].group = rest;
    }

    // --- rings of siblings -------------------------------------------------------------------------

    /// Adds a component at the end of the ring that begins at `first`.
    pub(super) fn link_last(&mut self, first: &mut u32, node: u32) {
        (self.nodes[node as usize].previous, self.nodes[node as usize].next) = (node, node);
        self.splice(first, node);
    }

    /// Adds a component at the start of the ring that begins at `first`.
    pub(super) fn link_first(&mut self, first: &mut u32, node: u32) {
        self.link_last(first, node);
        *first = node;
    }

    /// Takes the component `node` out of the ring that begins at `first`.
    pub(super) fn unlink(&mut self, first: &mut u32, node: u32) {
        let (previous, next) = (self.nodes[node as usize].previous, self.nodes[node as usize].next);
        if next == node {
            *first = NONE;
        } else {
            self.nodes[previous as usize].next = next;
            self.nodes[next as usize].previous = previous;
            if *first == node {
                *first = next;
            }
        }
        (self.nodes[node as usize].previous, self.nodes[node as usize].next) = (NONE, NONE);
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
            let (last, other_last) =
                (self.nodes[*first as usize].previous, self.nodes[other as usize].previous);
            self.nodes[last as usize].next = other;
            self.nodes[other as usize].previous = last;
            self.nodes[other_last as usize].next = *first;
            self.nodes[*first as usize].previous = other_last;
        }
    }

    // --- edges -------------------------------------------------------------------------------------

    /// An edge in the list of the target's dependants, and in no other yet.
    pub(super) fn allocate_edge(&mut self, source: u32, target: NodeId) -> u32 {
        let next_dependant = self.nodes[target.index as usize].dependants;
        let edge =
            Edge { source, target: Some(target), next: NONE, previous_dependant: NONE, next_dependant };
        let (reuse, rest) = self.pop_edge(self.free_edges);
        let index = if reuse == NONE {
            self.edges.push(edge);
            self.edges.len() as u32 - 1
        } else {
            self.free_edges = rest;
            self.edges[reuse as usize] = edge;
            reuse
        };
        assert!(index != NONE, "the forest holds at most 2^32 - 1 edges");
        if next_dependant != NONE {
            self.edges[next_dependant as usize].previous_dependant = index;
        }
        self.nodes[target.index as usize].dependants = index;
        index
    }

    /// Frees an edge that is in no list.
    pub(super) fn free_edge(&mut self, edge: u32) {
        self.free_edges = self.push_edge(self.free_edges, edge);
    }

    /// Takes an edge out of the list of its target's dependants. The target must not be Ready: the lists
    /// of Ready nodes are nobody's any more and may not be touched.
    pub(super) fn unlink_dependant(&mut self, edge: u32) {
        let Edge { target, previous_dependant, next_dependant, .. } = self.edges[edge as usize];
        let Some(target) = target else { return };
        if next_dependant != NONE {
            self.edges[next_dependant as usize].previous_dependant = previous_dependant;
        }
        if previous_dependant != NONE {
            self.edges[previous_dependant as usize].next_dependant = next_dependant;
        } else {
            self.nodes[target.index as usize].dependants = next_dependant;
        }
    }

    /// Appends an edge to the ring that ends at `last`; gives the new last edge.
    #[must_use]
    pub(super) fn push_edge(&mut self, last: u32, edge: u32) -> u32 {
        self.edges[edge as usize].next = edge;
        self.splice_edges(last, edge)
    }

    /// Takes the first edge off the ring that ends at `last`; gives it and the new last edge.
    #[must_use]
    pub(super) fn pop_edge(&mut self, last: u32) -> (u32, u32) {
        if last == NONE {
            return (NONE, NONE);
        }
        let first = self.edges[last as usize].next;
        if first == last {
            return (first, NONE);
        }
        self.edges[last as usize].next = self.edges[first as usize].next;
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
        let first = self.edges[last as usize].next;
        self.edges[last as usize].next = self.edges[other_last as usize].next;
        self.edges[other_last as usize].next = first;
        other_last
    }
}
