//! Resuming a component: exploring its edges until one must be waited for, or none is left.

use crate::sync::weakened;

use super::arena::{NONE, NodeStanding, TOLD};
use super::{NodeId, Settled, WaitingForest};

/// So many steps up are always taken, and leave hints behind for those who come after: with a hint at a time a long way would be
/// walked again from each node on it.
pub(crate) const STEPS_UP_MIN: usize = 16;

impl<P: Copy + Send + 'static> WaitingForest<P> {
    /// Explores the edges of a component that is in no ring. Afterwards it hangs somewhere, is Ready, or
    /// is back on the worklist because the budget is used up.
    pub(super) fn resume(&mut self, mut component: u32, budget: &mut usize) {
        // The component's own list is out of date meanwhile: no code looks at it while the component hangs nowhere.
        let mut last = self.arena.nodes[component].unexplored;
        while *budget > 0 {
            if last == NONE {
                self.arena.nodes[component].unexplored = NONE;
                self.make_ready(component);
                return;
            }
            *budget -= 1;
            self.counters.edge_visits += 1;
            let edge = self.arena.edges[last].next;
            let Some(target) = self.component_of_target(edge) else {
                (_, last) = self.arena.pop_edge(last);
                self.arena.free_edge(edge);
                continue;
            };
            let blind = weakened("emit::looks_for_no_root");
            let root = if target == component || blind { Some(target) } else { self.root(target, budget) };
            // The way is long: the rest of it another time.
            let Some(root) = root else { break };
            if root != component {
                // The edge stays, to be explored first when the component resumes.
                self.arena.nodes[component].unexplored = last;
                self.hang(component, target);
                return;
            }
            (_, last) = self.arena.pop_edge(last);
            let internal = self.arena.push_edge(self.arena.nodes[component].internal, edge);
            let node = &mut self.arena.nodes[component];
            (node.unexplored, node.internal) = (last, internal);
            if target != component {
                component = self.contract(component, target, budget);
                last = self.arena.nodes[component].unexplored;
            }
        }
        self.arena.nodes[component].unexplored = last;
        self.arena.link_first(&mut self.worklist, component);
    }

    /// Reports the nodes of a Ready component and frees them.
    pub(super) fn release(&mut self, component: u32, budget: &mut usize, settled: &mut Vec<Settled<P>>) {
        while *budget > 0 {
            *budget -= 1;
            if self.free_internal_edge(component) {
                continue;
            }
            // The representative goes last: it is how the ring is found again in the next slice.
            let node = self.arena.nodes[component].component;
            self.arena.nodes[component].component = self.arena.nodes[node].component;
            if !self.arena.nodes[node].failed {
                settled.push(Settled::Ready(self.arena.nodes[node].payload));
            }
            if node == component {
                self.arena.unlink_first(&mut self.releasing);
            }
            self.arena.free(node);
            if node == component {
                return;
            }
        }
    }

    /// Frees one of the internal edges of a component that is being freed; says whether it had any left.
    pub(super) fn free_internal_edge(&mut self, component: u32) -> bool {
        let (edge, rest) = self.arena.pop_edge(self.arena.nodes[component].internal);
        if edge != NONE {
            self.arena.nodes[component].internal = rest;
            self.arena.free_edge(edge);
        }
        edge != NONE
    }

    /// The components that waited for this one go to the worklist; its own nodes are to be reported.
    fn make_ready(&mut self, component: u32) {
        let node = &mut self.arena.nodes[component];
        node.standing = NodeStanding::Ready;
        let children = std::mem::replace(&mut node.children, NONE);
        self.arena.splice(&mut self.worklist, children);
        self.arena.link_last(&mut self.releasing, component);
    }

    /// The component an edge leads to; none if it is Ready.
    #[inline]
    pub(super) fn component_of_target(&mut self, edge: u32) -> Option<u32> {
        let edge = &self.arena.edges[edge];
        if edge.previous_dependant == TOLD { None } else { self.component_of(edge.target) }
    }

    fn hang(&mut self, component: u32, target: u32) {
        let target_id = self.arena.id(target);
        let node = &mut self.arena.nodes[component];
        (node.hangs, node.up) = (true, target_id);
        let mut children = self.arena.nodes[target].children;
        self.arena.link_last(&mut children, component);
        self.arena.nodes[target].children = children;
    }

    /// Takes a waiting component out of the ring it is in: its parent's children, or the worklist.
    pub(super) fn detach(&mut self, component: u32) {
        if let Some(parent) = self.parent(component) {
            let mut children = self.arena.nodes[parent].children;
            self.arena.unlink(&mut children, component);
            self.arena.nodes[parent].children = children;
        } else {
            self.arena.unlink(&mut self.worklist, component);
        }
        self.forget_parent(component);
    }

    /// Of a component that has been taken out of the ring it was in: it waits for nothing, and has no hint.
    pub(super) fn forget_parent(&mut self, component: u32) {
        let id = self.arena.id(component);
        let node = &mut self.arena.nodes[component];
        (node.hangs, node.up) = (false, id);
    }

    /// The component that this one waits for: by the edge it hangs on, which stays its first, told or not.
    pub(super) fn parent(&mut self, component: u32) -> Option<u32> {
        let node = &self.arena.nodes[component];
        if !node.hangs {
            return None;
        }
        let first = self.arena.edges[node.unexplored].next;
        self.component_of(self.arena.edges[first].target)
    }

    /// The component of a node; none if it is Ready or gone.
    #[inline]
    fn component_of(&mut self, node: NodeId) -> Option<u32> {
        if !self.arena.is_alive(node) {
            return None;
        }
        let component = self.arena.find(node.index)?;
        (self.arena.nodes[component].standing != NodeStanding::Ready).then_some(component)
    }

    /// An ancestor: by the hint if that still helps, else the parent.
    fn ancestor(&mut self, component: u32) -> Option<u32> {
        let hint = self.arena.nodes[component].up;
        if hint.index == component {
            return self.parent(component);
        }
        let hint = self.component_of(hint);
        debug_assert_ne!(hint, Some(component), "a component that absorbs its ancestor has no hint left");
        hint.or_else(|| self.parent(component))
    }

    /// The root above a component. Halves the path: every other component on it is given its ancestor's
    /// ancestor as its hint. (Pointing all of them at the root instead is quadratic where the bottom of a
    /// long trunk re-hangs again and again: 2,668 steps an edge at depth 16,000, where halving needs 2.5.)
    ///
    /// None if the budget is used up on the way. The hints remain: the next attempt comes as far in half the steps.
    pub(super) fn root(&mut self, mut component: u32, budget: &mut usize) -> Option<u32> {
        let mut left = (*budget).max(self.steps_up_min);
        let root = loop {
            self.counters.parent_steps += 1;
            let Some(one_up) = self.ancestor(component) else { break component };
            let Some(two_up) = self.ancestor(one_up) else { break one_up };
            self.arena.nodes[component].up = self.arena.id(two_up);
            component = two_up;
            left -= 1;
            if left == 0 {
                *budget = 0;
                return None;
            }
        };
        *budget = left.min(*budget);
        Some(root)
    }

    /// Makes the path from `start` up to `component`, its root, one component with it. If the budget runs
    /// out half way the rest of the path is still a path up to the result, which will find it again.
    fn contract(&mut self, mut component: u32, start: u32, budget: &mut usize) -> u32 {
        let mut step = start;
        loop {
            let above = self.parent(step);
            self.detach(step);
            component = self.arena.unite(component, step);
            self.counters.contraction_steps += 1;
            *budget = budget.saturating_sub(1);
            match above.and_then(|above| self.arena.find(above)) {
                Some(above) if above != component && *budget > 0 => step = above,
                _ => return component,
            }
        }
    }
}
