//! Random histories, lived through by two states at once: one looks single symbols up at sight (`lookup_one.rs`), where it may, and the
//! other never does. Both look the same from outside after each step.
//!
//! Definitions are weak, strong, hidden, at known addresses and for side effects only; dylibs generate, and are removed; units begin, or
//! not, fail, delegate, and wait for each other and in serial queues; lookups are on a unit's behalf or on none's, and block with things
//! held, or not; priorities are followed, and long consequences are cut into slices.

mod claims;
mod step;

use std::fmt::Write as _;

use proptest::prelude::*;

use super::model::seeds::try_histories;
use super::numbers::{Numbers, definition};
use crate::ids::{DylibId, GeneratorId, QueryId, TrackerId, WaitId};
use crate::protocol::deadlock::threads::Held;
use crate::protocol::deadlock::threads::Holdings;
use crate::protocol::lookups::lookup_one::Sought;
use crate::protocol::slices::agenda::SLICE_STEPS;
use crate::protocol::state::SessionState;
use crate::protocol::state::effects::{Effects, Leftover};
use crate::protocol::state::lookups::query::Asker;
use crate::protocol::state::lookups::query::{Order, Search};
use crate::protocol::state::pending::ClaimedUnit;
use crate::protocol::state::stage::Shutdown;
use crate::protocol::symbols::absolute::Addresses;
use crate::protocol::symbols::define::Definition;
use crate::{
    ExecutorAddr, ExecutorSymbolDef, JitDylibLookupFlags, LookupSet, RequiredState, SerialQueue, SymbolName,
    SymbolStringPool, TaskPriority, shared_error,
};

use step::{Asking, DYLIBS, NAMES, QUEUES, Step, step};

const PRIORITIES: [TaskPriority; 4] =
    [TaskPriority::Idle, TaskPriority::Speculative, TaskPriority::Lazy, TaskPriority::Demanded];

/// How far the one who has a claim has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Queued,
    Begun,
    Resolved,
}

/// A blocked thread.
#[derive(Debug)]
struct Blocked {
    query: QueryId,
    wait: WaitId,
    holdings: Holdings,
}

/// A state, and what its embedder has in his hands.
struct Twin {
    state: SessionState<Numbers>,
    /// It looks single symbols up at sight.
    is_quick: bool,
    /// How often that was so.
    quick: usize,
    shared: Shared,
    dylibs: [DylibId; DYLIBS],
    trackers: Vec<TrackerId>,
    generators: Vec<(DylibId, GeneratorId)>,
    requests: Vec<(GeneratorId, QueryId)>,
    claims: Vec<(ClaimedUnit<u32>, Stage)>,
    queries: Vec<QueryId>,
    blocked: Vec<Blocked>,
    made: u32,
    /// The visible results of the present step.
    seen: String,
}

/// The parts that both share.
#[derive(Clone)]
struct Shared {
    names: Vec<SymbolName>,
    unit_name: SymbolName,
    queues: [SerialQueue; QUEUES],
}

fn pick(count: usize, choice: usize) -> Option<usize> {
    choice.checked_rem(count)
}

impl Twin {
    fn new(is_quick: bool, slice_steps: usize, shared: Shared) -> Self {
        let mut state = SessionState::new(true);
        state.agenda.set_slice_steps(slice_steps);
        let dylibs = std::array::from_fn(|slot| state.create_dylib(name_of(slot)).expect("it is new"));
        Self {
            state,
            is_quick,
            quick: 0,
            shared,
            dylibs,
            trackers: Vec::new(),
            generators: Vec::new(),
            requests: Vec::new(),
            claims: Vec::new(),
            queries: Vec::new(),
            blocked: Vec::new(),
            made: 0,
            seen: String::new(),
        }
    }

    /// Says what can be seen of the step and after it.
    fn run(&mut self, step: &Step) -> String {
        let mut effects = Effects::default();
        self.apply(step, &mut effects);
        let attends = self.state.finish_transaction(&mut effects).is_some();
        self.see(&attends);
        if matches!(step, Step::Drain) {
            self.state.settle_all(&mut effects);
            self.state.check();
        }
        self.take(effects);
        self.see_all();
        std::mem::take(&mut self.seen)
    }

    fn see(&mut self, what: &impl std::fmt::Debug) {
        writeln!(self.seen, "{what:?}").expect("a String takes everything");
    }

    /// Notes the state of all rows.
    fn see_all(&mut self) {
        let state = &self.state;
        let rows: Vec<_> = state.definitions.rows().collect();
        let parts = (
            (
                rows,
                state.definitions.claims().collect::<Vec<_>>(),
                state.lookups.queries().collect::<Vec<_>>(),
            ),
            (&state.waits, &state.urgency, state.losses.count(), &state.events, state.returned),
            (
                state.definitions.removals_begun(),
                state.definitions.is_removing(),
                state.agenda.ended(),
                state.definitions.counts().units,
                state.failures.len(),
            ),
        );
        let seen = format!("{parts:#?}");
        self.seen.push_str(&seen);
    }

    /// Takes the effects that leave the state.
    fn take(&mut self, mut effects: Effects<Numbers>) {
        self.see(&(&effects.claimed, &effects.completed, effects.names_released));
        let more = *effects.take_more().unwrap_or_default();
        self.see(&(&more.generations, &more.events, &more.initializers_gone, more.raised.len()));
        for leftover in &more.leftovers {
            match leftover {
                Leftover::Unit { unit, discarded, .. } => self.see(&(unit, discarded)),
                Leftover::RefusedUnit(number) | Leftover::Handler(number) => self.see(number),
                Leftover::Generator(number) | Leftover::Resource(number) => self.see(number),
                Leftover::Unheard(failure) => self.see(failure),
                Leftover::Error(_) | Leftover::Cause(_) => self.see(&"an error"),
            }
        }
        self.requests.extend(more.generations.iter().map(|asked| (asked.id, asked.query)));
        self.claims.extend(effects.claimed.into_iter().map(|claimed| (claimed, Stage::Queued)));
    }

    fn apply(&mut self, step: &Step, effects: &mut Effects<Numbers>) {
        match step {
            Step::Define { .. } => self.define(step, effects),
            Step::LookUpOne(name, asking) => self.look_up_one(*name, asking, effects),
            Step::LookUp { names, ready, asking } => {
                let symbols = LookupSet::required(names.iter().map(|&name| self.shared.names[name].clone()));
                let search = self.search(symbols, *ready, asking);
                let query = self.look_up(search, effects);
                self.asked(query, asking, effects);
            }
            &Step::Withdraw(choice) => {
                if let Some(choice) = pick(self.queries.len(), choice) {
                    let withdrawn = self.state.withdraw(self.queries.remove(choice), effects);
                    self.see(&withdrawn);
                }
            }
            &Step::GoOn(choice) => {
                if let Some(choice) = pick(self.blocked.len(), choice) {
                    let Blocked { query, wait, .. } = self.blocked.remove(choice);
                    self.state.end_wait(wait, effects);
                    self.state.withdraw(query, effects);
                }
            }
            &Step::RemoveName { dylib, name } => {
                let names = [self.shared.names[name].clone()];
                let removed = self.state.remove_names(self.dylibs[dylib], &names, || name_of(dylib), effects);
                self.see(&removed);
            }
            &Step::RemoveTracker(choice) => {
                if let Some(choice) = pick(self.trackers.len(), choice) {
                    drop(self.state.remove_tracker(self.trackers.swap_remove(choice), effects));
                }
            }
            &Step::Clear(dylib) if self.state.definitions.has_dylib(self.dylibs[dylib]) => {
                self.state.clear(self.dylibs[dylib], effects);
            }
            &Step::ReplaceDylib { dylib, anew } => {
                if self.state.definitions.has_dylib(self.dylibs[dylib]) {
                    self.state.remove_dylib(self.dylibs[dylib], effects);
                }
                if anew && let Ok(id) = self.state.create_dylib(name_of(dylib)) {
                    self.dylibs[dylib] = id;
                }
            }
            &Step::AddGenerator(dylib) => {
                self.made += 1;
                let dylib = self.dylibs[dylib];
                let added = self.state.add_generator(dylib, "generator".into(), self.made, effects);
                self.generators.extend(added.map(|added| (dylib, added)));
            }
            &Step::RemoveGenerator(choice) => {
                if let Some(choice) = pick(self.generators.len(), choice) {
                    let (dylib, generator) = self.generators.swap_remove(choice);
                    self.state.remove_generator(dylib, generator, effects);
                }
            }
            &Step::Generated { request, succeeds } => {
                if let Some(choice) = pick(self.requests.len(), request) {
                    let (generator, query) = self.requests.swap_remove(choice);
                    let outcome = if succeeds { Ok(()) } else { Err(shared_error("it has none")) };
                    self.state.generated(generator, query, outcome, effects);
                }
            }
            Step::Slice => self.state.help(effects),
            &Step::Close(cancels) => {
                let shutdown = if cancels { Shutdown::Cancel } else { Shutdown::Drain };
                self.state.start_closing(shutdown);
            }
            Step::Clear(_) | Step::Drain => {}
            of_a_claim => self.work(of_a_claim, effects),
        }
    }

    fn define(&mut self, step: &Step, effects: &mut Effects<Numbers>) {
        let Step::Define { dylib, symbols, own, queue, known, tracked } = step else { return };
        let dylib = self.dylibs[*dylib];
        if !self.state.definitions.has_dylib(dylib) {
            return;
        }
        self.made += 1;
        let symbols = symbols.iter().map(|(name, flags)| (self.shared.names[*name].clone(), *flags));
        let tracker = tracked.then(|| self.state.definitions.create_tracker(dylib));
        self.trackers.extend(tracker);
        let unit_name = self.shared.unit_name.clone();
        let defined = if *known {
            let at = |(name, flags)| (name, ExecutorSymbolDef::new(ExecutorAddr::new(0x2000), flags));
            let addresses = Addresses { unit_name, symbols: symbols.map(at).collect(), by_task: true };
            self.state.define_addresses(dylib, tracker, addresses, effects)
        } else {
            let definition = Definition {
                priority: PRIORITIES[*own],
                serial_queue: queue.map(|queue| self.shared.queues[queue].clone()),
                by_task: true,
                ..definition(&unit_name, symbols.collect())
            };
            self.state.define(dylib, tracker, definition, self.made, effects)
        };
        self.see(&defined);
    }

    fn search(&self, symbols: LookupSet, ready: bool, asking: &Asking) -> Search {
        let flags = |all| match all {
            true => JitDylibLookupFlags::MatchAllSymbols,
            false => JitDylibLookupFlags::MatchExportedSymbolsOnly,
        };
        let order: Order =
            asking.along.iter().map(|&(dylib, all)| (self.dylibs[dylib], flags(all))).collect();
        let asker = asking.asker.and_then(|choice| pick(self.claims.len(), choice));
        let asker =
            asker.map(|asker| Asker { claim: self.claims[asker].0.claim, priority: TaskPriority::Lazy });
        Search {
            order,
            symbols,
            required_state: if ready { RequiredState::Ready } else { RequiredState::Resolved },
            by_task: asking.by_task,
            // A lookup without a priority inherits that of its unit, which a lookup at sight does not do: such lookups are not made.
            asked_by: asker.filter(|_| asking.priority.is_some()),
            priority: asking.priority.map(|priority| PRIORITIES[priority]),
            ..Search::default()
        }
    }

    fn look_up(&mut self, search: Search, effects: &mut Effects<Numbers>) -> Option<QueryId> {
        self.state.lookup(search, self.made, |_| "gone".into(), effects)
    }

    /// At sight, where that is possible and not this twin's business to avoid.
    fn look_up_one(&mut self, name: usize, asking: &Asking, effects: &mut Effects<Numbers>) {
        let name = self.shared.names[name].clone();
        let search = self.search(LookupSet::one(name.clone()), true, asking);
        let Search { by_task, asked_by, priority, .. } = search;
        let sought = Sought { name, by_task, asked_by, priority };
        let order = search.order;
        let sought = match self.is_quick {
            true => self.state.lookup_one(sought, order.iter().copied(), self.made, effects),
            false => Err((sought, self.made)),
        };
        self.quick += usize::from(sought.is_ok());
        let query = match sought {
            Ok(query) => Some(query),
            Err((sought, _)) => self.look_up(sought.into_search(order), effects),
        };
        self.asked(query, asking, effects);
    }

    /// A lookup has begun, in which a thread may block.
    fn asked(&mut self, query: Option<QueryId>, asking: &Asking, effects: &mut Effects<Numbers>) {
        self.made += 1;
        self.see(&query);
        let Some(query) = query else { return };
        let Some((claim, queue)) = asking.holding else { return self.queries.push(query) };
        let claim = pick(self.claims.len(), claim).map(|choice| Held::Claim(self.claims[choice].0.claim));
        let queue = queue.map(|queue| Held::Strand(self.shared.queues[queue].id()));
        let held = claim.into_iter().chain(queue).filter(|&held| !self.is_held(held)).collect();
        let holdings = Holdings { held, ..Holdings::default() };
        match self.state.begin_wait(query, holdings.clone(), effects) {
            Some(wait) => self.blocked.push(Blocked { query, wait, holdings }),
            None => self.queries.push(query),
        }
    }

    fn is_held(&self, what: Held) -> bool {
        self.blocked.iter().any(|blocked| blocked.holdings.held.contains(&what))
    }
}

fn name_of(slot: usize) -> crate::sync::Arc<str> {
    format!("d{slot}").into()
}

#[test]
fn a_lookup_at_sight_does_what_the_other_would_do() {
    let slices = prop_oneof![Just(1usize), Just(3), Just(SLICE_STEPS)];
    let histories = (slices, prop::collection::vec(step(), 1..70));
    let quick = std::cell::Cell::new(0);
    try_histories(400, &histories, |(slice_steps, steps)| {
        let pool = SymbolStringPool::new();
        let shared = Shared {
            names: (0..NAMES).map(|index| pool.intern(&format!("s{index}"))).collect(),
            unit_name: pool.intern("unit"),
            queues: std::array::from_fn(|_| SerialQueue::new()),
        };
        let mut twins = [true, false].map(|is_quick| Twin::new(is_quick, slice_steps, shared.clone()));
        for step in steps.iter().chain([&Step::Drain]) {
            let [quick, slow] = twins.each_mut().map(|twin| twin.run(step));
            assert!(
                quick == slow,
                "after {step:?} one that looks up at sight\n{}",
                difference(&quick, &slow)
            );
        }
        quick.set(quick.get() + twins[0].quick);
    });
    assert!(quick.get() > 0, "no lookup was made at sight");
}

/// The lines in which they differ.
fn difference(quick: &str, slow: &str) -> String {
    let lines = quick.lines().zip(slow.lines()).filter(|(quick, slow)| quick != slow);
    lines.take(8).map(|(quick, slow)| format!("  has {quick}\n  not {slow}\n")).collect()
}
