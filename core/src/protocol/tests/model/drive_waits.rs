//! Blocked threads: they hold things that only they can finish, and go on, in both.

use std::collections::BTreeSet;

use crate::protocol::deadlock::threads::Held;
use crate::protocol::deadlock::threads::Holdings;
use crate::protocol::state::effects::{Completed, Effects};
use crate::{DeadlockStep, LookupError};

use super::blocking::Blocking;
use super::driver::{Harness, Integers, number_in, pick};
use super::operation::QUEUES;
use super::waits::{Node, Wait};
use super::world::{Phase, Query, Standing, Step, Walk, Wrong};

/// A thing that a blocked thread may lose.
#[derive(Clone, Copy)]
enum Loss {
    Duty(usize),
    Request(usize),
    Strand(usize),
}

impl Harness {
    /// A thread that holds something blocks in a lookup.
    pub(super) fn block(&mut self, blocking: &Blocking) {
        let wait = self.holdings(blocking);
        if wait.holds() == 0 && wait.below.is_none() {
            // No wait can lead to it, and the session does not know of it.
            return;
        }
        let made_for = wait.requests.first().copied().filter(|_| blocking.for_its_request);
        let query = self.blocked_lookup(blocking, made_for);
        let mut effects = Effects::default();
        let (number, id) = self.lodge(query, None, blocking.by_task, &mut effects);
        // It may have its answer already.
        self.world.ripen();
        let begun = id.and_then(|id| self.state.begin_wait(id, self.told(&wait), &mut effects));
        assert_eq!(begun.is_some(), self.world.queries.contains_key(&number), "whether a thread waits");
        if let Some(id) = begun {
            let began = self.world.number();
            self.world.begin_wait(began, Wait { query: number, ..wait });
            self.ids.waits.insert(began, id);
            self.expect_of_look(began);
        }
        self.follow(effects);
    }

    /// A blocked thread looks for a cycle.
    pub(super) fn look(&mut self, choice: usize) {
        let waits: Vec<_> = self.world.waits.keys().copied().collect();
        pick(&waits, choice).into_iter().for_each(|wait| self.look_at(wait));
    }

    fn look_at(&mut self, wait: usize) {
        let mut effects = Effects::default();
        self.state.look(self.ids.waits[&wait], &mut effects);
        self.expect_of_look(wait);
        self.follow(effects);
    }

    fn expect_of_look(&mut self, wait: usize) {
        self.must_be_told = self.world.must_be_told(wait).then(|| self.world.waits[&wait].query);
    }

    /// A thread goes on whose lookup has ended, or that gives it up.
    pub(super) fn go_on(&mut self, choice: usize, gives_up: bool) {
        let may_go =
            |&wait: &usize| gives_up || !self.world.queries.contains_key(&self.world.waits[&wait].query);
        let waits: Vec<_> = self.innermost().into_iter().filter(may_go).collect();
        if let Some(wait) = pick(&waits, choice) {
            self.end_wait(wait);
        }
    }

    /// A thread's thing is passed on beneath the lookup in which it is blocked. Another may have it from now on.
    pub(super) fn lose(&mut self, choice: usize, what: usize, queue: usize) {
        let waits: Vec<_> = self.world.waits.keys().copied().collect();
        let Some(number) = pick(&waits, choice) else { return };
        let wait = self.world.waits.get_mut(&number).expect("just seen");
        let (duties, requests) = (wait.duties.iter().copied(), wait.requests.iter().copied());
        // The turn may not be its own: lookups above the one that told of it are asked as well.
        let losses = duties.map(Loss::Duty).chain(requests.map(Loss::Request)).chain([Loss::Strand(queue)]);
        let losses: Vec<_> = losses.collect();
        let held = match losses[what % losses.len()] {
            Loss::Duty(duty) => {
                wait.duties.remove(&duty);
                Held::Claim(self.responsibilities[&duty].claim)
            }
            Loss::Request(query) => {
                wait.requests.remove(&query);
                let request = self.requests.iter().find(|request| request.query == query);
                Held::Request(request.expect("it is held").query_id)
            }
            Loss::Strand(queue) => {
                wait.turns.remove(&queue);
                Held::Strand(self.queues[queue].id())
            }
        };
        self.state.lose(self.ids.waits[&number], held);
        self.follow(Effects::default());
    }

    /// Each thread looks that is not busy above its lookup. None is left in a cycle then.
    pub(super) fn all_look(&mut self) {
        let waits = self.innermost();
        waits.iter().for_each(|&wait| self.look_at(wait));
        let left = waits.into_iter().find(|&wait| self.world.must_be_told(wait));
        assert!(left.is_none(), "{left:?} waits for itself, among {:?}", self.world.waits);
    }

    pub(super) fn all_go_on(&mut self) {
        while let Some(&wait) = self.innermost().first() {
            // It may have had another above it until now.
            self.look_at(wait);
            self.end_wait(wait);
        }
    }

    fn end_wait(&mut self, number: usize) {
        let mut effects = Effects::default();
        self.state.end_wait(self.ids.waits[&number], &mut effects);
        let Wait { query, ends_by_itself, .. } = self.world.waits.remove(&number).expect("it is blocked");
        self.follow(effects);
        if !self.world.queries.contains_key(&query) {
            return;
        }
        let mut effects = Effects::default();
        if ends_by_itself {
            self.state.expire(self.ids.queries[&query], &mut effects);
            self.world.fail_query(query, Wrong::Late);
            self.follow(effects);
        } else {
            self.withdraw_one(query);
        }
    }

    /// Waits with no other above them on the same stack.
    fn innermost(&self) -> Vec<usize> {
        let lies_beneath = |wait: &usize| self.world.waits.values().any(|above| above.below == Some(*wait));
        self.world.waits.keys().copied().filter(|wait| !lies_beneath(wait)).collect()
    }

    /// The things in a thread's hands that no other blocked thread has.
    fn holdings(&self, blocking: &Blocking) -> Wait {
        let waits = || self.world.waits.values();
        let is_free = |query: &usize| !waits().any(|wait| wait.requests.contains(query));
        let requests: Vec<_> = self.requests.iter().map(|request| request.query).filter(is_free).collect();
        let steps = [Step::Begun, Step::Resolved];
        let has_turn = |queue: &usize| {
            blocking.turns >> queue & 1 == 1 && !waits().any(|wait| wait.turns.contains(queue))
        };
        Wait {
            query: 0,
            below: blocking.above.and_then(|choice| pick(&self.innermost(), choice)),
            duties: blocking.duties.iter().filter_map(|&choice| self.pick(choice, &steps)).collect(),
            requests: blocking.requests.iter().filter_map(|&choice| pick(&requests, choice)).collect(),
            turns: (0..QUEUES).filter(has_turn).collect(),
            ends_by_itself: blocking.deadline,
        }
    }

    /// The same by the state's ids.
    fn told(&self, wait: &Wait) -> Holdings {
        let requests = self.requests.iter().filter(|request| wait.requests.contains(&request.query));
        let claims = wait.duties.iter().map(|duty| Held::Claim(self.responsibilities[duty].claim));
        let requests = requests.map(|request| Held::Request(request.query_id));
        let turns = wait.turns.iter().map(|&queue| Held::Strand(self.queues[queue].id()));
        Holdings {
            below: wait.below.map(|below| self.ids.waits[&below]),
            held: claims.chain(requests).chain(turns).collect(),
            ends_by_itself: wait.ends_by_itself,
        }
    }

    /// Of definitions that are on their way, mostly, wherever they are; past a generator, if it shall.
    fn blocked_lookup(&self, blocking: &Blocking, made_for: Option<usize>) -> Query {
        let is_over = |standing| matches!(standing, Standing::Ready | Standing::Failed);
        let on_their_way = self.world.numbers(|definition| !is_over(definition.standing));
        let aim = |&(choice, any): &(usize, bool)| match any {
            true => self.aim(choice),
            false => pick(&on_their_way, choice).or_else(|| self.aim(choice)),
        };
        let aims: Vec<_> = blocking.wanted.iter().filter_map(aim).collect();
        let aims = || aims.iter().map(|aim| &self.world.definitions[aim]);
        let generates: Vec<_> = self.world.generators.values().map(|generator| generator.dylib).collect();
        let first = blocking.past.and_then(|choice| pick(&generates, choice));
        Query {
            symbols: aims().map(|aim| (aim.name, false)).collect(),
            order: first.into_iter().chain(aims().map(|aim| aim.dylib)).map(|dylib| (dylib, true)).collect(),
            ready: blocking.ready,
            flags_only: blocking.flags_only || made_for.is_some(),
            alias: None,
            made_for,
            phase: Phase::Walking(Walk::default()),
        }
    }

    /// The threads that must be told of a cycle are told, and no others.
    pub(super) fn agree_on_deadlocks(&mut self, effects: &Effects<Integers>) {
        let mut must_be_told = self.must_be_told.take();
        for Completed { handler, outcome, .. } in &effects.completed {
            if let Err(LookupError::WouldDeadlock { path }) = outcome {
                let expected = must_be_told.take_if(|query| query == handler);
                assert!(expected.is_some(), "{handler} was told of {path:?}, among {:?}", self.world.waits);
                self.agree_on_cycle(*handler, path);
                self.world.fail_query(*handler, Wrong::Deadlock);
            }
        }
        assert!(must_be_told.is_none(), "{must_be_told:?} was not told, among {:?}", self.world.waits);
    }

    /// Each step of a cycle leads to the next, as what it is told to be.
    fn agree_on_cycle(&self, query: usize, path: &[DeadlockStep]) {
        assert!(!path.is_empty(), "a cycle leads past something");
        let told = self.world.wait_in(query).expect("a thread is blocked in it");
        let nodes: Vec<_> = path.iter().map(|step| self.nodes_of(step)).collect();
        for (index, (step, from)) in path.iter().zip(&nodes).enumerate() {
            let to = &nodes[(index + 1) % nodes.len()];
            assert!(self.world.leads(from, to, told), "{step:?} leads not to what follows, in {path:?}");
        }
    }

    fn nodes_of(&self, step: &DeadlockStep) -> Vec<Node> {
        let is_named = |dylib: &str, number: usize| dylib == &*self.dylib_name(number);
        let (symbol, dylib, standing) = match step {
            DeadlockStep::Generator { dylib, generator } => {
                let asks = |query: &Query| match &query.phase {
                    Phase::Walking(Walk { at: Some(at), .. }) => match self.world.generators.get(at) {
                        Some(asked) => **generator == format!("g{at}") && is_named(dylib, asked.dylib),
                        None => &**generator == "(removed)",
                    },
                    _ => false,
                };
                let asking = self.world.queries.iter().filter(|(_, query)| asks(query));
                return asking
                    .flat_map(|(number, _)| self.world.served_for(*number))
                    .map(Node::Request)
                    .collect();
            }
            DeadlockStep::DependsOn { symbol, dylib, .. } => (symbol, dylib, Some(Standing::Emitted)),
            DeadlockStep::Queued { symbol, dylib, .. } => (symbol, dylib, Some(Standing::Materializing)),
            DeadlockStep::LooksUp { symbol, dylib, .. }
            | DeadlockStep::Beneath { symbol, dylib, .. }
            | DeadlockStep::AliasOf { symbol, dylib, .. } => (symbol, dylib, None),
        };
        let is_meant = |number: &usize| {
            let definition = &self.world.definitions[number];
            (number_in(symbol.as_str()), true) == (definition.name, is_named(dylib, definition.dylib))
                && standing.is_none_or(|standing| standing == definition.standing)
        };
        let meant: BTreeSet<_> = self.world.definitions.keys().copied().filter(is_meant).collect();
        meant
            .into_iter()
            .flat_map(|number| [true, false].map(|ready| Node::Definition(number, ready)))
            .collect()
    }
}
