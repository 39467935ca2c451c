//! The rules of blocked threads: what keeps each of them for certain, and whether one is told when it looks.
//!
//! | what is needed | cannot come before |
//! |---|---|
//! | a definition | the blocked thread goes on that is responsible for it, or that has the turn its unit waits for |
//! | a definition that is emitted | all it depends on |
//! | a definition that is an alias | its source, or the generator that is asked for it |
//! | a lookup | every definition it waits for; or what a generator does at the moment |
//! | what a generator does for a lookup | the blocked thread goes on that does it |
//! | a blocked thread | its lookup, if that has no deadline; the lookup above it on its stack |
//!
//! Nothing is kept between two questions: each walk goes as far as there is a way.

use std::collections::BTreeSet;

use super::world::*;

/// A lookup in which a thread is blocked. One that began later has a higher number.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) query: usize,
    /// The lookup in which the thread was blocked before, beneath this one on its stack.
    pub(super) below: Option<usize>,
    pub(super) duties: BTreeSet<usize>,
    /// Lookups about which the thread was asked as a generator.
    pub(super) requests: BTreeSet<usize>,
    /// Serial queues whose turn it has.
    pub(super) turns: BTreeSet<usize>,
    pub(super) ends_by_itself: bool,
}

/// A thing that a wait may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    /// A definition, Ready or only with its address.
    Definition(usize, bool),
    /// The end of a lookup.
    Lookup(usize),
    /// A generator's request for a lookup.
    Request(usize),
    /// The place of the task that runs in a strand.
    Strand(usize),
    /// That a thread goes on.
    Wait(usize),
}

impl Wait {
    /// How many things the thread has in its hands.
    pub(super) fn holds(&self) -> usize {
        self.duties.len() + self.requests.len() + self.turns.len()
    }
}

impl World {
    /// A thread blocks.
    pub(super) fn begin_wait(&mut self, number: usize, wait: Wait) {
        self.waits.insert(number, wait);
    }

    /// Whether a blocked thread is responsible, and so no thread that could do anything.
    pub(super) fn is_held(&self, duty: usize) -> bool {
        self.waits.values().any(|wait| wait.duties.contains(&duty))
    }

    /// Whether the unit is in a serial queue of which a blocked thread has the turn.
    pub(super) fn waits_for_turn(&self, duty: usize) -> bool {
        let queue = self.duties[&duty].queue;
        queue.is_some_and(|queue| self.waits.values().any(|wait| wait.turns.contains(&queue)))
    }

    /// The wait in this lookup.
    pub(super) fn wait_in(&self, query: usize) -> Option<usize> {
        self.waits.iter().find(|(_, wait)| wait.query == query).map(|(number, _)| *number)
    }

    /// Whether this thread is told when it looks that its lookup would never end. One with another lookup above it does not look.
    pub(super) fn must_be_told(&self, wait: usize) -> bool {
        let lies_beneath = self.waits.values().any(|above| above.below == Some(wait));
        !lies_beneath && self.keeps_itself(wait, &|other| other == wait || self.stays(other))
    }

    /// Whether from one of the nodes `from` a way leads to one of `to`, past nothing that has a step of its own in what is told
    /// of a cycle through `told`; past other emitted definitions only if the first is one.
    pub(super) fn leads(&self, from: &[Node], to: &[Node], told: usize) -> bool {
        let counts = |wait: usize| wait == told || self.stays(wait);
        let is_emitted = |node: &Node| match node {
            // A definition that was Ready may be gone.
            Node::Definition(number, _) => self
                .definitions
                .get(number)
                .is_some_and(|definition| definition.standing == Standing::Emitted),
            _ => false,
        };
        let depends = from.iter().any(is_emitted);
        let goes_on = |node: &Node| match node {
            Node::Definition(..) => depends && is_emitted(node),
            Node::Request(_) => false,
            _ => true,
        };
        self.reached(from, &counts, &goes_on).iter().any(|node| to.contains(node))
    }

    /// The lookup that the generator is busy with at which this one waits.
    pub(super) fn served_for(&self, query: usize) -> Option<usize> {
        let Phase::Walking(Walk { at: Some(at), apart, .. }) = &self.queries.get(&query)?.phase else {
            return None;
        };
        // One that was removed goes on with what it has begun, and each with what it serves apart.
        let busy = self.generators.get(at).filter(|_| !apart);
        busy.map_or(Some(query), |generator| generator.serves)
    }

    /// Whether it does not end by itself.
    fn stays(&self, wait: usize) -> bool {
        !self.waits[&wait].ends_by_itself
    }

    /// Whether the thread needs, by its lookup, that it goes on itself. Of other lookups `counts` says whether their needs count.
    fn keeps_itself(&self, wait: usize, counts: &dyn Fn(usize) -> bool) -> bool {
        let lookup = Node::Lookup(self.waits[&wait].query);
        counts(wait) && self.reached(&[lookup], counts, &|_| true).contains(&Node::Wait(wait))
    }

    /// The nodes one step or more beyond `starts`; only those that `goes_on` accepts lead further.
    fn reached(
        &self,
        starts: &[Node],
        counts: &dyn Fn(usize) -> bool,
        goes_on: &dyn Fn(&Node) -> bool,
    ) -> BTreeSet<Node> {
        let mut reached = BTreeSet::new();
        let mut ahead = starts.to_vec();
        while let Some(node) = ahead.pop() {
            for next in self.needed_by(node, counts) {
                if reached.insert(next) && goes_on(&next) {
                    ahead.push(next);
                }
            }
        }
        reached
    }

    fn needed_by(&self, node: Node, counts: &dyn Fn(usize) -> bool) -> Vec<Node> {
        match node {
            Node::Definition(number, ready) => self.needed_by_definition(number, ready),
            Node::Lookup(query) => self.needed_by_lookup(query),
            Node::Request(query) => self.blocked(|wait| wait.requests.contains(&query)),
            Node::Strand(queue) => self.blocked(|wait| wait.turns.contains(&queue)),
            Node::Wait(number) => {
                let lookup = Node::Lookup(self.waits[&number].query);
                let mut needed = self.blocked(|wait| wait.below == Some(number));
                needed.extend(Some(lookup).filter(|_| counts(number)));
                needed
            }
        }
    }

    fn needed_by_definition(&self, number: usize, ready: bool) -> Vec<Node> {
        let Some(definition) = self.definitions.get(&number) else { return Vec::new() };
        let is_on_its_way =
            matches!(definition.standing, Standing::Materializing | Standing::Resolved | Standing::Emitted);
        if !is_on_its_way || self.says(number, ready).is_some() {
            return Vec::new();
        }
        let mut needed: Vec<_> = definition.needs.iter().map(|&need| Node::Definition(need, true)).collect();
        if let Provider::Duty(number) = definition.provider {
            needed.extend(self.blocked(|wait| wait.duties.contains(&number)));
            let duty = &self.duties[&number];
            needed.extend(duty.queue.filter(|_| duty.step == Step::Queued).map(Node::Strand));
        }
        for (&lookup, query) in &self.queries {
            if query.alias == Some(number) {
                needed.push(Node::Lookup(lookup));
            }
            if let Phase::Lodged { edge: Some((alias, source)), .. } = query.phase
                && alias == number
            {
                needed.push(Node::Definition(source, ready));
            }
        }
        needed
    }

    fn needed_by_lookup(&self, number: usize) -> Vec<Node> {
        let Some(Query { phase, ready, .. }) = self.queries.get(&number) else { return Vec::new() };
        match phase {
            Phase::Lodged { waits, .. } => {
                waits.iter().map(|(_, definition)| Node::Definition(*definition, *ready)).collect()
            }
            Phase::Walking(walk) => {
                let question = walk.question.map(Node::Lookup);
                self.served_for(number).map(Node::Request).into_iter().chain(question).collect()
            }
        }
    }

    fn blocked(&self, holds: impl Fn(&Wait) -> bool) -> Vec<Node> {
        self.waits.iter().filter(|(_, wait)| holds(wait)).map(|(number, _)| Node::Wait(*number)).collect()
    }
}
