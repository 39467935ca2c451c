//! Knots: what needs itself, among all that some nodes of the wait-for graph need.
//!
//! Where an edge appears that is no blocked lookup's own, any cycle that it closes lies beyond it. Many such edges may appear at once: the
//! groups of an emission. One walk beyond all of them finds whether there is a cycle, by its strongly connected
//! components (Tarjan, *Depth-first search and linear graph algorithms*, 1972; without recursion); the cycle itself is another.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::RequiredState;

use super::ids::{RowId, WaitId};
use super::waits_for::Node;
use super::{Payload, SessionState};

/// What a walk has come to, each with the earliest that it leads back to, as far as is known, until its component is complete.
#[derive(Default)]
struct Walk {
    places: FxHashMap<Node, usize>,
    visits: Vec<Visit>,
    /// Visits whose component is not complete.
    open: Vec<usize>,
    /// The way to where the walk is.
    way: Vec<Leg>,
    /// What comes next for each of the way, the last first.
    ahead: Vec<Node>,
    met: Met,
}

/// What a walk has met.
#[derive(Clone, Copy, Default)]
struct Met {
    /// A blocked lookup.
    blocked: bool,
    /// Rows beyond which it did not look, as they were barren.
    barren: bool,
}

struct Visit {
    node: Node,
    earliest: usize,
    open: bool,
}

struct Leg {
    visit: usize,
    /// Where its part of `ahead` begins.
    ahead: usize,
}

impl<P: Payload> SessionState<P> {
    /// A blocked lookup that needs itself, among all that `starts` need. Cycles without one keep no thread, and are passed over.
    ///
    /// # Cost
    /// One step for each symbol and edge beyond `starts`, however many these are, as far as what is barren; twice if that is not so any
    /// more.
    pub(super) fn knot_beyond(&mut self, starts: &[Node]) -> Option<WaitId> {
        loop {
            let mut walk = Walk::default();
            if let Some(wait) = self.walk_beyond(starts, &mut walk) {
                // What led to where the walk began was barren until now.
                self.waits_for.barren.clear();
                return Some(wait);
            }
            let Walk { visits, met, .. } = walk;
            if !self.led_nowhere(visits.iter().map(|visit| visit.node), met) {
                return None;
            }
        }
    }

    fn walk_beyond(&mut self, starts: &[Node], walk: &mut Walk) -> Option<WaitId> {
        for &start in starts {
            if !walk.places.contains_key(&start) {
                self.visit(start, walk);
            }
            while let Some(&Leg { visit, ahead }) = walk.way.last() {
                if walk.ahead.len() == ahead {
                    if let Some(wait) = self.go_back(walk) {
                        return Some(wait);
                    }
                    continue;
                }
                let Some(next) = walk.ahead.pop() else { continue };
                match walk.places.get(&next) {
                    Some(&before) if walk.visits[before].open => walk.leads_back(visit, before),
                    Some(_) => {}
                    None if self.waits_for.is_barren(next) => walk.met.barren = true,
                    None => self.visit(next, walk),
                }
            }
        }
        None
    }

    fn visit(&mut self, node: Node, walk: &mut Walk) {
        let (visit, ahead) = (walk.visits.len(), walk.ahead.len());
        walk.met.blocked |= matches!(node, Node::Wait(_));
        walk.places.insert(node, visit);
        walk.visits.push(Visit { node, earliest: visit, open: true });
        walk.open.push(visit);
        walk.way.push(Leg { visit, ahead });
        self.successors(node, false, true, &mut walk.ahead);
        self.count_steps(1 + walk.ahead.len() - ahead);
    }

    /// Goes back from the end of the way, beyond which all has been seen. A blocked lookup that is in a cycle with it, if there is one.
    fn go_back(&self, walk: &mut Walk) -> Option<WaitId> {
        let last = walk.way.pop()?.visit;
        let earliest = walk.visits[last].earliest;
        if let Some(before) = walk.way.last() {
            walk.leads_back(before.visit, earliest);
        }
        if earliest < last {
            return None;
        }
        let begins = walk.open.iter().rposition(|&visit| visit == last)?;
        let component: SmallVec<[usize; 8]> = walk.open.drain(begins..).collect();
        component.iter().for_each(|&visit| walk.visits[visit].open = false);
        let stays = |&visit: &usize| match walk.visits[visit].node {
            Node::Wait(wait) => Some(wait).filter(|&wait| self.waits_for.stays(wait)),
            _ => None,
        };
        // One alone leads nowhere back.
        component.iter().skip(usize::from(component.len() == 1)).find_map(stays)
    }

    /// A cycle through the blocked lookup, from that on. From symbol to symbol if there is such a way, which says more than one that leads
    /// along the stack of a thread.
    pub(super) fn cycle_of(&mut self, wait: WaitId) -> Option<Vec<Node>> {
        self.way_back(wait, false).or_else(|| self.way_back(wait, true))
    }

    fn way_back(&mut self, wait: WaitId, stacked: bool) -> Option<Vec<Node>> {
        let start = Node::Wait(wait);
        loop {
            // Where the walk came from, for each that it has come to.
            let mut before: FxHashMap<Node, Node> = FxHashMap::default();
            let (mut stack, mut next) = (vec![start], Vec::new());
            let mut met = Met::default();
            while let Some(node) = stack.pop() {
                self.successors(node, node == start, stacked, &mut next);
                self.count_steps(1 + next.len());
                for needed in next.drain(..) {
                    if needed == start {
                        return Some(path_to(node, &before));
                    }
                    met.blocked |= matches!(needed, Node::Wait(_));
                    if before.contains_key(&needed) {
                        continue;
                    }
                    if self.waits_for.is_barren(needed) {
                        met.barren = true;
                        continue;
                    }
                    before.insert(needed, node);
                    stack.push(needed);
                }
            }
            if !self.led_nowhere(before.into_keys(), met) {
                return None;
            }
        }
    }

    /// Notes that a walk has found no cycle: what it has seen is barren if it met no blocked thread. Says whether it must look again.
    fn led_nowhere(&mut self, seen: impl Iterator<Item = Node>, met: Met) -> bool {
        let ready = |node| match node {
            Node::Row(row, RequiredState::Ready) => Some(row),
            _ => None,
        };
        let known: &mut FxHashSet<RowId> = &mut self.waits_for.barren;
        match met.blocked {
            false => known.extend(seen.filter_map(ready)),
            // What led to where the walk began may have been barren until now.
            true => known.clear(),
        }
        met.blocked && met.barren
    }
}

/// The nodes from where a walk began to `last`.
fn path_to(last: Node, before: &FxHashMap<Node, Node>) -> Vec<Node> {
    let mut path: Vec<_> = std::iter::successors(Some(last), |node| before.get(node).copied()).collect();
    path.reverse();
    path
}

impl Walk {
    fn leads_back(&mut self, visit: usize, earlier: usize) {
        let earliest = &mut self.visits[visit].earliest;
        *earliest = earlier.min(*earliest);
    }
}
