//! The executable specification: what holds between any two calls.

use super::arena::{NONE, NodeStanding};
use super::*;

impl<P: Copy + std::fmt::Debug + Send + 'static> WaitingForest<P> {
    /// Panics where the forest is not what the module's head says.
    pub(crate) fn check(&self) {
        let nodes: Vec<u32> = self.arena.nodes.indices().collect();
        assert_eq!(nodes.len(), self.arena.nodes.len());
        nodes.iter().for_each(|&index| self.check_node(index));
        self.check_siblings(self.worklist, None);
        let mut edges = Vec::new();
        for node in nodes.iter().map(|&index| &self.arena.nodes[index]).filter(|node| !node.absorbed) {
            edges.extend(self.edges_of(node.unexplored));
            edges.extend(self.edges_of(node.internal));
        }
        edges.sort_unstable();
        assert!(edges.into_iter().eq(self.arena.edges.indices()), "every edge is in one list");
    }

    fn check_node(&self, index: u32) {
        let node = &self.arena.nodes[index];
        assert_ne!(node.standing, NodeStanding::Free);
        let Some(component) = self.arena.find_unchanged(index) else { return };
        let representative = &self.arena.nodes[component];
        if representative.standing == NodeStanding::Ready {
            return;
        }
        self.check_dependants(index);
        if component != index {
            assert_eq!(
                [node.children, node.unexplored, node.internal],
                [NONE; 3],
                "lists are the representative's"
            );
            return;
        }
        let nodes = self.ring(index, |node| node.component);
        let standing = nodes.iter().filter(|&&node| !self.arena.nodes[node].failed).count();
        if !self.siblings(self.dead).contains(&component) {
            assert_eq!(standing, node.standing_nodes as usize);
            assert!(standing > 0, "a component without a standing node is dead");
            assert!(nodes.iter().all(|&node| self.arena.find_unchanged(node) == Some(component)));
        }
        self.check_siblings(node.children, Some(component));
        match node.standing {
            NodeStanding::Unemitted => {
                assert_eq!((nodes.len(), node.unexplored, node.internal), (1, NONE, NONE));
                assert!(!node.hangs && node.up.index == index);
            }
            NodeStanding::Waiters if standing > 0 => self.check_waiting(component),
            _ => {}
        }
    }

    /// A waiting component is on the worklist, or hangs where its first unexplored edge leads.
    fn check_waiting(&self, component: u32) {
        let node = &self.arena.nodes[component];
        assert_ne!(node.next, NONE, "a waiting component is among siblings");
        if let Some(parent) = self.parent_unchanged(component) {
            assert!(self.siblings(self.arena.nodes[parent].children).contains(&component));
        } else {
            assert!(
                self.siblings(self.worklist).contains(&component),
                "a root that is emitted is on the worklist"
            );
        }
        let (mut up, mut steps) = (component, 0);
        while let Some(parent) = self.parent_unchanged(up) {
            up = parent;
            steps += 1;
            assert!(steps <= self.arena.nodes.len(), "the forest has no cycle");
        }
    }

    fn check_siblings(&self, first: u32, parent: Option<u32>) {
        for child in self.siblings(first) {
            assert!(!self.arena.nodes[child].absorbed, "children are representatives");
            assert_eq!(self.parent_unchanged(child), parent);
        }
    }

    fn check_dependants(&self, index: u32) {
        let (mut edge, mut previous) = (self.arena.nodes[index].dependants, NONE);
        while edge != NONE {
            let link = &self.arena.edges[edge];
            assert_eq!((link.target, link.previous_dependant), (self.arena.id(index), previous));
            assert_ne!(self.arena.nodes[link.source].standing, NodeStanding::Free);
            (previous, edge) = (edge, link.next_dependant);
        }
    }

    fn parent_unchanged(&self, component: u32) -> Option<u32> {
        let node = &self.arena.nodes[component];
        let first = node.hangs.then(|| self.edges_of(node.unexplored)[0])?;
        let target = Some(self.arena.edges[first].target).filter(|&target| self.arena.is_alive(target))?;
        let parent = self.arena.find_unchanged(target.index)?;
        (self.arena.nodes[parent].standing != NodeStanding::Ready).then_some(parent)
    }

    fn siblings(&self, first: u32) -> Vec<u32> {
        if first == NONE {
            return Vec::new();
        }
        let ring = self.ring(first, |node| node.next);
        for (&one, &two) in ring.iter().zip(ring.iter().cycle().skip(1)) {
            assert_eq!(self.arena.nodes[two].previous, one);
        }
        ring
    }

    fn ring(&self, first: u32, next: impl Fn(&arena::Node<P>) -> u32) -> Vec<u32> {
        let mut ring = vec![first];
        loop {
            let node = next(&self.arena.nodes[*ring.last().unwrap()]);
            if node == first {
                return ring;
            }
            ring.push(node);
            assert!(ring.len() <= self.arena.nodes.len(), "a ring closes");
        }
    }

    fn edges_of(&self, last: u32) -> Vec<u32> {
        let mut edges = Vec::new();
        let mut edge = last;
        while edge != NONE {
            edge = self.arena.edges[edge].next;
            edges.push(edge);
            assert!(edges.len() <= self.arena.edges.len(), "a ring of edges closes");
            if edge == last {
                break;
            }
        }
        edges
    }
}
