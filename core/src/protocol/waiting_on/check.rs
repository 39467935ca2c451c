//! The executable specification: what holds between any two calls.

use super::arena::{NONE, Standing};
use super::*;

impl<P: Copy + std::fmt::Debug> WaitingForest<P> {
    /// Panics where the forest is not what the module's head says.
    pub(super) fn check(&self) {
        let alive = self.arena.nodes.iter().filter(|node| node.standing != Standing::Free).count();
        assert_eq!(alive, self.arena.live_nodes);
        for index in 0..self.arena.nodes.len() as u32 {
            if self.arena.nodes[index as usize].standing != Standing::Free {
                self.check_node(index);
            }
        }
        self.check_siblings(self.worklist, None);
        let mut edges = self.edges_of(self.arena.free_edges).len();
        for index in 0..self.arena.nodes.len() as u32 {
            let node = &self.arena.nodes[index as usize];
            if node.standing != Standing::Free && node.up.index == index {
                edges += self.edges_of(node.unexplored).len() + self.edges_of(node.internal).len();
            }
        }
        assert_eq!(edges, self.arena.edges.len(), "every edge is in one list");
    }

    fn check_node(&self, index: u32) {
        let node = &self.arena.nodes[index as usize];
        let Some(component) = self.arena.find_unchanged(index) else { return };
        let representative = &self.arena.nodes[component as usize];
        if representative.standing == Standing::Ready {
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
        let standing = nodes.iter().filter(|&&node| !self.arena.nodes[node as usize].failed).count();
        if !self.dead.contains(&component) {
            assert_eq!(standing, node.standing_nodes as usize);
            assert!(standing > 0, "a component without a standing node is dead");
            assert!(nodes.iter().all(|&node| self.arena.find_unchanged(node) == Some(component)));
        }
        self.check_siblings(node.children, Some(component));
        match node.standing {
            Standing::Unemitted => {
                assert_eq!((nodes.len(), node.unexplored, node.internal), (1, NONE, NONE));
                assert_eq!(node.parent, None);
            }
            Standing::Waiting if standing > 0 => self.check_waiting(component),
            _ => {}
        }
    }

    /// A waiting component is on the worklist, or hangs where its first unexplored edge leads.
    fn check_waiting(&self, component: u32) {
        let node = &self.arena.nodes[component as usize];
        assert_ne!(node.next, NONE, "a waiting component is among siblings");
        if let Some(parent) = self.parent_unchanged(component) {
            assert!(self.siblings(self.arena.nodes[parent as usize].children).contains(&component));
            let first = self.edges_of(node.unexplored)[0];
            if let Some(target) = self.arena.edges[first as usize].target {
                assert_eq!(
                    self.arena.find_unchanged(target.index),
                    Some(parent),
                    "the first edge leads to the parent"
                );
            }
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
            assert_eq!(self.arena.nodes[child as usize].up.index, child, "children are representatives");
            assert_eq!(self.parent_unchanged(child), parent);
        }
    }

    fn check_dependants(&self, index: u32) {
        let (mut edge, mut previous) = (self.arena.nodes[index as usize].dependants, NONE);
        while edge != NONE {
            let link = &self.arena.edges[edge as usize];
            assert_eq!((link.target, link.previous_dependant), (Some(self.arena.id(index)), previous));
            assert_ne!(self.arena.nodes[link.source as usize].standing, Standing::Free);
            (previous, edge) = (edge, link.next_dependant);
        }
    }

    fn parent_unchanged(&self, component: u32) -> Option<u32> {
        let parent =
            self.arena.nodes[component as usize].parent.filter(|&parent| self.arena.is_alive(parent))?;
        let parent = self.arena.find_unchanged(parent.index)?;
        (self.arena.nodes[parent as usize].standing != Standing::Ready).then_some(parent)
    }

    fn siblings(&self, first: u32) -> Vec<u32> {
        if first == NONE {
            return Vec::new();
        }
        let ring = self.ring(first, |node| node.next);
        for (&one, &two) in ring.iter().zip(ring.iter().cycle().skip(1)) {
            assert_eq!(self.arena.nodes[two as usize].previous, one);
        }
        ring
    }

    fn ring(&self, first: u32, next: impl Fn(&arena::Node<P>) -> u32) -> Vec<u32> {
        let mut ring = vec![first];
        loop {
            let node = next(&self.arena.nodes[*ring.last().unwrap() as usize]);
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
            edge = self.arena.edges[edge as usize].next;
            edges.push(edge);
            assert!(edges.len() <= self.arena.edges.len(), "a ring of edges closes");
            if edge == last {
                break;
            }
        }
        edges
    }
}
