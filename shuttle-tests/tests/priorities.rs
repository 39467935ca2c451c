//! Priorities: units in random graphs, asked for at every priority, by lookups some of which are given up again.
//!
//! ```text
//!   every worker runs a task that waits for the start
//!
//!   askers: lookups at random priorities, or saying none            main: replaces a unit that has begun, emits what depends on
//!           kept, given up at once, or given up after the start           it, and asks for that alone
//!   ─── start: the workers are free ───
//!   unit i:   needs some of s(i+1) .. s(n); blocks in a lookup of them, or links against them, maybe in a serial queue
//!   others:   blocking lookups, lookups that are given up, the removal of a tracker
//! ```
//!
//! On the work-stealing pool, and on a board of which each worker takes the most urgent task; from one worker up.
//!
//! Held in every schedule tried: all of it ends, and each unit starts once at most; an answer has the addresses that a plain
//! sum over the graph gives, and only the removal causes errors (I2). A unit that no lookup needs any more does not start. The
//! lookups before the start decide the order: a unit that nothing else has come to need never starts while a more urgent one is
//! queued, except one that another worker has just taken. (No thread sees a batch on its way between two deques of the pool for
//! a moment. So on the pool the order is checked for a single worker alone.)
//!
//! Schedules switch at each step at random, or at a few random places. `URUK_SHUTTLE_SEED` sets their seed, which a failure prints.
#![cfg(uruk_shuttle)]

mod asked;
mod board;
mod common;
mod weakenings;

use std::hash::{BuildHasher, RandomState};

use asked::{Facts, Progress, Unit, Way};
use board::BoardTaskDispatcher;
use common::explore;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use uruk_core::sync::{Arc, Latch, Mutex, thread};
use uruk_core::{
    ExecutionSession, JitDylib, LookupRequest, ResourceTracker, SearchOrder, SerialQueue, SymbolFuture, Task,
    TaskDispatcher, TaskPriority,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

const PRIORITIES: [TaskPriority; 4] =
    [TaskPriority::Idle, TaskPriority::Speculative, TaskPriority::Lazy, TaskPriority::Demanded];
/// At so many places a schedule of the second kind leaves a thread that could go on.
const SWITCHES: usize = 5;

#[test]
fn the_most_urgent_starts_first_and_all_of_it_ends() {
    let random = |seed| move |iterations| RandomScheduler::new_from_seed(seed, iterations);
    explore_with_seed(random, 2_000);
}

#[test]
fn the_most_urgent_starts_first_where_threads_are_seldom_switched() {
    let pct = |seed| move |iterations| PctScheduler::new_from_seed(seed, SWITCHES, iterations);
    explore_with_seed(pct, 2_000);
}

fn explore_with_seed<S: Scheduler + 'static, M: FnOnce(usize) -> S>(
    scheduler: impl FnOnce(u64) -> M + std::panic::UnwindSafe,
    iterations: usize,
) {
    let seed = std::env::var("URUK_SHUTTLE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(iterations));
    let explored = std::panic::catch_unwind(|| explore(scheduler(seed), iterations, scenario));
    assert!(
        explored.is_ok(),
        "a schedule failed, see above; URUK_SHUTTLE_SEED={seed} runs the same ones again"
    );
}

#[test]
fn it_notices_priorities_that_do_not_follow_demand() {
    let steps = [
        "pool::sleeps_without_a_second_look",
        "pool::vacates_without_a_look",
        "urgency::raises_without_a_ticket",
        "urgency::stops_at_what_is_emitted",
        "withdraw::counts_no_losses",
    ];
    weakenings::demand_noticed("the_most_urgent_starts_first_and_all_of_it_ends", &steps);
}

fn scenario() {
    let workers = thread_rng().gen_range(1..=3);
    let (dispatcher, ahead_max) = dispatcher(workers);
    let session = ExecutionSession::builder().dispatcher(dispatcher).build();
    let stage = Arc::new(Stage::new(session, ahead_max));
    // These two are asked for first, and idle: everything is followed from here on.
    let early = [stage.ask_for_pair(stage.emitted()), stage.ask_for_pair(stage.hung())];
    let start = stage.occupy(workers);
    let asks: Vec<_> =
        (0..thread_rng().gen_range(1..=2)).map(|_| stage.spawn(Stage::ask_at_random)).collect();
    stage.emit_what_hangs();
    let mut asks: Vec<_> = asks.into_iter().flat_map(|asks| asks.join().expect("no panic")).collect();
    asks.push(stage.ask(vec![stage.emitted()], Some(PRIORITIES[thread_rng().gen_range(0..4)]), true));
    asks.extend(early);
    stage.note_order(&asks);
    start.open();
    let (kept, given_up): (Vec<_>, Vec<_>) = asks.into_iter().partition(|ask| ask.is_kept);
    let mut threads = vec![stage.spawn(move |_| drop(given_up))];
    threads.extend((0..thread_rng().gen_range(0..=2)).map(|_| stage.spawn(Stage::disturb)));
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    for ask in kept {
        ask.told.wait();
    }
    stage.facts.progress.lock().is_closing = true;
    stage.session.close().expect("nothing refuses to go");
}

/// A dispatcher, and how many more urgent units may be in the hands of its other workers when one starts.
fn dispatcher(workers: usize) -> (Arc<dyn TaskDispatcher>, Option<usize>) {
    if thread_rng().gen_bool(0.3) {
        return (Arc::new(BoardTaskDispatcher::new(workers)), Some(workers - 1));
    }
    let builder = WorkStealingTaskDispatcher::builder().workers(workers);
    let builder = builder.background_workers_max(thread_rng().gen_range(1..=workers));
    (Arc::new(builder.build().expect("so few workers")), (workers == 1).then_some(0))
}

struct Stage {
    session: ExecutionSession,
    dylib: JitDylib,
    /// The tracker of some units.
    tracker: ResourceTracker,
    facts: Arc<Facts>,
}

/// A lookup that was made before the start.
struct Ask {
    wanted: Vec<usize>,
    priority: Option<TaskPriority>,
    is_kept: bool,
    /// If it is kept.
    told: Arc<Latch>,
    /// If it is not.
    future: Option<SymbolFuture>,
}

impl Stage {
    fn new(session: ExecutionSession, ahead_max: Option<usize>) -> Self {
        let dylib = session.create_jit_dylib("main").expect("it is new");
        let mut random = thread_rng();
        let units = random.gen_range(3..=6);
        let some = |from: usize| (from..units).filter(|_| thread_rng().gen_bool(0.4)).collect::<Vec<_>>();
        let mut needs: Vec<_> = (0..units).map(|index| some(index + 1)).collect();
        let mut addresses = vec![0; units];
        for index in (0..units).rev() {
            addresses[index] = 1 + needs[index].iter().map(|&need| addresses[need]).sum::<u64>();
        }
        needs.extend([Vec::new(), Vec::new()]);
        addresses.extend([1001, 1000]);
        let own: Vec<_> = (0..units).map(|_| PRIORITIES[random.gen_range(0..4)]).collect();
        let all = units + 2;
        let progress = Progress {
            started: vec![false; all],
            is_needed: vec![false; all],
            is_noted: false,
            at_least: vec![None; all],
            at_most: vec![None; all],
            is_removed: false,
            is_closing: false,
        };
        let facts = Facts {
            names: (0..all).map(|index| session.intern(&format!("s{index}"))).collect(),
            needs,
            own: own.into_iter().chain([TaskPriority::Idle; 2]).collect(),
            doomed: (0..units).filter(|_| random.gen_bool(0.15)).collect(),
            in_queue: (0..units).filter(|_| random.gen_bool(0.2)).collect(),
            addresses,
            ahead_max,
            progress: Mutex::new(progress),
            parked: Default::default(),
        };
        let stage = Self { tracker: dylib.create_tracker(), facts: Arc::new(facts), dylib, session };
        stage.define_units(units);
        stage
    }

    fn define_units(&self, units: usize) {
        let queue = SerialQueue::new();
        for index in 0..units {
            let queue = self.facts.in_queue.contains(&index).then(|| queue.clone());
            // A task that blocks keeps its queue busy, for others that it may need.
            let way = if queue.is_none() && thread_rng().gen_bool(0.5) { Way::Blocks } else { Way::Links };
            let unit = Box::new(Unit { facts: self.facts.clone(), index, way, queue });
            match self.facts.doomed.contains(&index) {
                true => self.dylib.define_with_tracker(unit, &self.tracker).expect("it is new"),
                false => self.dylib.define(unit).expect("it is new"),
            }
        }
        for index in [self.emitted(), self.hung()] {
            let unit = Unit { facts: self.facts.clone(), index, way: Way::Parks, queue: None };
            self.dylib.define(Box::new(unit)).expect("it is new");
        }
    }

    /// The unit that is emitted before the start, and depends on the last.
    fn emitted(&self) -> usize {
        self.facts.names.len() - 2
    }

    /// The unit that it depends on.
    fn hung(&self) -> usize {
        self.facts.names.len() - 1
    }

    fn spawn<R: Send + 'static>(
        self: &Arc<Self>,
        run: impl FnOnce(&Self) -> R + Send + 'static,
    ) -> thread::JoinHandle<R> {
        let stage = self.clone();
        thread::spawn(move || run(&stage))
    }

    /// Keeps every worker busy until the latch is opened.
    fn occupy(&self, workers: usize) -> Arc<Latch> {
        let start = Arc::new(Latch::new());
        for _ in 0..workers {
            let (arrived, start) = (Arc::new(Latch::new()), start.clone());
            let arrives = arrived.clone();
            self.session.dispatch(Task::new("occupied", TaskPriority::Demanded, move || {
                arrives.open();
                start.wait();
            }));
            arrived.wait();
        }
        start
    }

    /// Asks for one of the pair, whose responsibility is parked.
    fn ask_for_pair(&self, index: usize) -> Ask {
        let ask = self.ask(vec![index], Some(TaskPriority::Idle), true);
        self.facts.parked_of(index).1.wait();
        ask
    }

    /// One of the pair is queued anew, the other emitted as depending on it.
    fn emit_what_hangs(&self) {
        let take = |index| self.facts.parked_of(index).0.lock().take().expect("it is parked").attach();
        let hung = take(self.hung());
        let token = hung.dependency(&self.facts.names[self.hung()]).expect("it is there");
        let index = self.hung();
        let again = Unit { facts: self.facts.clone(), index, way: Way::Links, queue: None };
        if hung.replace(Box::new(again)).is_err() {
            panic!("nothing is removed");
        }
        self.facts.emit(self.emitted(), take(self.emitted()), vec![token]);
    }

    fn ask_at_random(&self) -> Vec<Ask> {
        let mut asks = Vec::new();
        for _ in 0..thread_rng().gen_range(1..=3) {
            let wanted: Vec<_> = (0..self.emitted()).filter(|_| thread_rng().gen_bool(0.4)).collect();
            let priority = thread_rng().gen_bool(0.8).then(|| PRIORITIES[thread_rng().gen_range(0..4)]);
            let mut ask = self.ask(wanted, priority, thread_rng().gen_bool(0.6));
            // Given up at once: what it has raised stays as urgent if others need it.
            ask.future.take_if(|_| thread_rng().gen_bool(0.6));
            asks.push(ask);
        }
        asks
    }

    fn ask(&self, wanted: Vec<usize>, priority: Option<TaskPriority>, is_kept: bool) -> Ask {
        let told = Arc::new(Latch::new());
        let mut request = LookupRequest::new(SearchOrder::of(&self.dylib), self.facts.symbols(&wanted));
        request.priority = priority;
        let future = match is_kept {
            false => Some(self.session.lookup_future(request)),
            true => {
                let (facts, told, wanted) = (self.facts.clone(), told.clone(), wanted.clone());
                self.session.lookup_async(request, move |found| {
                    facts.check(&wanted, &found);
                    told.open();
                });
                None
            }
        };
        Ask { wanted, priority, is_kept, told, future }
    }

    /// Notes how urgent everything is, after the last lookup and before the first start.
    fn note_order(&self, asks: &[Ask]) {
        let facts = &self.facts;
        let mut progress = facts.progress.lock();
        let progress = &mut *progress;
        progress.is_noted = true;
        // A lookup that was given up has raised units that others still need. A unit that none needs goes back.
        let (given_up, asking): (Vec<_>, Vec<_>) =
            asks.iter().partition(|ask| !ask.is_kept && ask.future.is_none());
        for Ask { wanted, priority, is_kept, future, .. } in asking.into_iter().chain(given_up) {
            let asks = *is_kept || future.is_some();
            // One that fails needs nothing any more.
            let lasts = *is_kept && !facts.may_be_removed(wanted);
            // A lookup that needs the emitted unit needs its dependence too.
            let hung = wanted.contains(&self.emitted()).then(|| self.hung());
            for unit in wanted.iter().copied().chain(hung) {
                let urgency = Some(priority.unwrap_or(facts.own[unit]));
                if asks || progress.at_most[unit].is_some() {
                    progress.at_most[unit] = progress.at_most[unit].max(urgency);
                }
                // Some have started already, and some start when it is their turn.
                let is_free = unit != self.emitted() && !facts.in_queue.contains(&unit);
                if lasts && is_free {
                    progress.at_least[unit] = progress.at_least[unit].max(urgency);
                }
            }
        }
    }

    /// Something that happens while units run.
    fn disturb(&self) {
        let wanted: Vec<_> = (0..self.facts.names.len()).filter(|_| thread_rng().gen_bool(0.4)).collect();
        let order = SearchOrder::of(&self.dylib);
        match thread_rng().gen_range(0..4) {
            0 => {
                self.facts.progress.lock().is_removed = true;
                self.tracker.remove().expect("it has no resources that refuse to go");
            }
            1 => {
                let symbols = self.facts.needs_now(&wanted);
                let request = LookupRequest::new(order, symbols).at(PRIORITIES[thread_rng().gen_range(0..4)]);
                let given_up = self.session.lookup_future(request);
                thread::yield_now();
                drop(given_up);
            }
            _ => {
                let found = self.session.lookup(LookupRequest::new(&order, self.facts.needs_now(&wanted)));
                self.facts.check(&wanted, &found);
            }
        }
    }
}
