//! Failing: breadth-first over the dependants, then freeing what fell.
//!
//! Two phases, each in slices. While the first runs every failed node stays where it is, so that nothing
//! can mistake it for a Ready one. When it is over, all dependants of a failed node have failed
//! themselves, and the components without a standing node are freed.

use crate::sync::weakened;

use super::arena::{NONE, NodeStanding, TOLD};
use super::{Settled, WaitingForest};

impl<P: Copy + Send + 'static> WaitingForest<P> {
    /// Marks one standing node and queues it, so that its dependants are told. A component whose last
    /// node falls stops waiting.
    pub(super) fn mark_failed(&mut self, node: u32, via: Option<P>) {
        self.arena.nodes[node].failed = true;
        self.failing.push_back((node, via));
        let component = self.arena.find(node).expect("a standing node's component is not Ready");
        let representative = &mut self.arena.nodes[component];
        representative.standing_nodes -= 1;
        if representative.standing_nodes == 0 {
            if representative.standing == NodeStanding::Waiters {
                self.detach(component);
            }
            let mut dead = self.dead;
            self.arena.link_last(&mut dead, component);
            self.dead = dead;
        }
    }

    /// Tells the dependants of the node at the head of the queue, then reports it.
    pub(super) fn spread_failure(
        &mut self,
        (node, via): (u32, Option<P>),
        budget: &mut usize,
        settled: &mut Vec<Settled<P>>,
    ) {
        let payload = self.arena.nodes[node].payload;
        while *budget > 0 {
            *budget -= 1;
            let edge = self.arena.nodes[node].dependants;
            if edge == NONE || weakened("emit::failure_tells_no_dependants") {
                self.failing.pop_front(&mut self.arena.discarded);
                settled.push(Settled::Failed { payload, via });
                return;
            }
            self.counters.failure_steps += 1;
            self.arena.unlink_dependant(edge);
            self.arena.edges[edge].previous_dependant = TOLD;
            self.fail_group(self.arena.edges[edge].source, payload);
        }
    }

    /// Fails all symbols of the group whose edges start at `leader`.
    pub(super) fn fail_group(&mut self, leader: u32, via: P) {
        if std::mem::replace(&mut self.arena.nodes[leader].group_failed, true) {
            return;
        }
        let mut node = leader;
        loop {
            self.counters.failure_steps += 1;
            if !self.arena.nodes[node].failed {
                self.mark_failed(node, Some(via));
            }
            node = self.arena.nodes[node].group;
            if node == leader {
                return;
            }
        }
    }

    /// Frees a component all of whose nodes failed, with the edges it had left.
    pub(super) fn bury(&mut self, component: u32, budget: &mut usize) {
        while *budget > 0 {
            *budget -= 1;
            let (edge, rest) = self.arena.pop_edge(self.arena.nodes[component].unexplored);
            if edge != NONE {
                self.arena.nodes[component].unexplored = rest;
                self.counters.failure_steps += 1;
                if self.component_of_target(edge).is_some() {
                    self.arena.unlink_dependant(edge);
                }
                self.arena.free_edge(edge);
                continue;
            }
            if self.free_internal_edge(component) {
                continue;
            }
            // The representative goes last: it is how the ring is found again in the next slice.
            let node = self.arena.nodes[component].component;
            self.arena.nodes[component].component = self.arena.nodes[node].component;
            if node == component {
                self.arena.unlink_first(&mut self.dead);
            }
            self.arena.free(node);
            if node == component {
                return;
            }
        }
    }
}
