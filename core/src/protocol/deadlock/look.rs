//! Look: a blocked thread searches for a cycle through itself.

use std::collections::hash_map::Entry;
use std::iter;
use std::ops::ControlFlow;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::LookupError;
use crate::protocol::state::{Effects, Payload, SessionState};
use crate::protocol::storage::WaitId;
use crate::sync::weakened;

use super::needs::WaitNode;

/// How many steps the first look of a wait may take; each takes twice as many as the one before.
pub(crate) const FIRST_BUDGET: usize = 1_000;

/// How long a thread sleeps before its second look; each pause is twice as long as the one before.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(10);

const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How long a thread that has looked leaves the lock alone for each step it took and each thread that looks: about a hundred times as long
/// as a step lasts.
const PAUSE_OF_STEP: Duration = Duration::from_micros(10);

/// A search for a cycle.
struct CycleSearch {
    start: WaitId,
    /// Where it came from, for each node it has come to.
    before: FxHashMap<WaitNode, WaitNode>,
    /// Where it goes on.
    ahead: Vec<WaitNode>,
    /// Lookups on the stacks of threads, to go on with when nothing else is left: a cycle from symbol to symbol says more.
    above: Vec<(WaitNode, WaitNode)>,
    /// The last node of a cycle.
    found: Option<WaitNode>,
    /// How many steps it may take, and has taken.
    budget: usize,
    steps: usize,
}

impl<P: Payload> SessionState<P> {
    /// Looks for a cycle through the blocked thread, and ends its lookup with it. Gives the time to sleep until the next look.
    ///
    /// # Cost
    /// One step for each edge, and at most the budget of this look.
    pub(crate) fn look(&mut self, wait: WaitId, effects: &mut Effects<P>) -> Duration {
        let falling = self.is_falling() && !weakened("deadlock::looks_while_rows_fall");
        let Some(blocked) = self.waits.waits.get_mut(wait) else { return PAUSE_MAX };
        let (budget, pause) = (blocked.budget, blocked.pause);
        let again = budget > FIRST_BUDGET && weakened("deadlock::looks_only_once");
        if falling || blocked.above.is_some() || again {
            return pause;
        }
        blocked.budget = budget.saturating_mul(2);
        blocked.pause = PAUSE_MAX.min(pause * 2);
        let steps = self.look_within(wait, budget, effects).saturating_mul(self.waits.waits.len());
        pause.max(PAUSE_OF_STEP * u32::try_from(steps).unwrap_or(u32::MAX))
    }

    /// Every blocked thread looks, as long as it takes.
    pub(crate) fn look_at_all(&mut self, effects: &mut Effects<P>) {
        if self.is_falling() || weakened("deadlock::looks_only_once") {
            return;
        }
        let innermost =
            |(wait, blocked): (WaitId, &super::threads::Blocked)| blocked.above.is_none().then_some(wait);
        let waits: Vec<_> = self.waits.waits.iter().filter_map(innermost).collect();
        for wait in waits {
            self.look_within(wait, usize::MAX, effects);
        }
    }

    /// Says how many steps that took.
    fn look_within(&mut self, wait: WaitId, budget: usize, effects: &mut Effects<P>) -> usize {
        if weakened("deadlock::never_looks") {
            return 0;
        }
        let mut search = CycleSearch::from(wait, budget);
        let cycle = self.cycle(&mut search);
        self.agenda.count_steps(search.steps);
        if let Some(cycle) = cycle {
            let (path, query) = (self.describe_deadlock(&cycle), self.waits.waits[wait].query);
            self.fail_query(query, LookupError::WouldDeadlock { path }, effects);
        }
        search.steps
    }

    /// Whether some of what is needed is about to end, and it is not known what.
    pub(crate) fn is_falling(&self) -> bool {
        self.forest.is_failing() || self.definitions.is_removing()
    }

    /// The cycle, from the blocked thread on. None if there is none or the budget was too small.
    fn cycle(&self, search: &mut CycleSearch) -> Option<Vec<WaitNode>> {
        while let Some(node) = search.next() {
            let goes_on = self.needs(node, &mut |needed| {
                if search.steps == search.budget {
                    return ControlFlow::Break(());
                }
                search.steps += 1;
                match needed {
                    Some(needed) if self.counts(search.start, node, needed) => search.comes_to(node, needed),
                    _ => ControlFlow::Continue(()),
                }
            });
            if goes_on.is_break() {
                break;
            }
        }
        search.way_back()
    }

    /// Whether the edge counts for this thread: others need a lookup with a deadline only for as long as they like.
    fn counts(&self, looks: WaitId, node: WaitNode, needed: WaitNode) -> bool {
        match (node, needed) {
            (WaitNode::Wait(wait), WaitNode::Lookup(_)) => {
                wait == looks || !self.waits.waits[wait].holdings.ends_by_itself
            }
            _ => true,
        }
    }
}

impl CycleSearch {
    fn from(start: WaitId, budget: usize) -> Self {
        let (before, ahead) = (FxHashMap::default(), vec![WaitNode::Wait(start)]);
        Self { start, before, ahead, above: Vec::new(), found: None, budget, steps: 0 }
    }

    /// The next node to go on from, unless the way back is found.
    fn next(&mut self) -> Option<WaitNode> {
        loop {
            if self.found.is_some() {
                return None;
            }
            if let Some(node) = self.ahead.pop() {
                return Some(node);
            }
            let (node, above) = self.above.pop()?;
            let _found = self.enters(node, above);
        }
    }

    fn comes_to(&mut self, node: WaitNode, needed: WaitNode) -> ControlFlow<()> {
        if node.lies_beneath(needed) {
            self.above.push((node, needed));
            return ControlFlow::Continue(());
        }
        self.enters(node, needed)
    }

    fn enters(&mut self, node: WaitNode, needed: WaitNode) -> ControlFlow<()> {
        if needed == WaitNode::Wait(self.start) {
            self.found = Some(node);
            return ControlFlow::Break(());
        }
        if let Entry::Vacant(new) = self.before.entry(needed) {
            new.insert(node);
            self.ahead.push(needed);
        }
        ControlFlow::Continue(())
    }

    fn way_back(&self) -> Option<Vec<WaitNode>> {
        let mut path: Vec<_> =
            iter::successors(Some(self.found?), |node| self.before.get(node).copied()).collect();
        path.reverse();
        Some(path)
    }
}
