//! A hundred thousand units that need each other at random, some of which block, fail, panic or are removed, and eight clients
//! that ask for them in every way, on pools of any size and limits. Every lookup is answered once, none hangs, every address is
//! right.
//!
//! Long on purpose: `make stress`, or in one of its rounds, `cargo test --release -p protocol-tests --test stress --
//! --ignored`; under ThreadSanitizer `make stress-tsan`. `URUK_STRESS_SECONDS` says how long. A round that fails prints its
//! seed, and `URUK_STRESS_SEED` repeats its graph, its pool and its clients' steps, as far as the scheduler does.

use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;
use std::time::Duration;

use protocol_tests::hammer::{hammer, stress_length};
use protocol_tests::random::Random;
use protocol_tests::*;
use uruk_core::sync::{Latch, Mutex};
use uruk_core::{
    DependenceGroup, ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupError, LookupRequest,
    LookupResult, LookupSet, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    ResourceTracker, SymbolFlagsMap, SymbolMap, SymbolName, TaskDispatcher, TaskPriority, shared_error,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

/// Units that need only each other; each cluster has one tracker.
const CLUSTER: usize = 100;
const CLIENTS: usize = 8;

fn any_priority(random: &mut Random) -> TaskPriority {
    [TaskPriority::Idle, TaskPriority::Speculative, TaskPriority::Lazy, TaskPriority::Demanded]
        [random.below(4)]
}

/// The shared state of one round.
struct Round {
    seed: u64,
    units: usize,
    names: Vec<SymbolName>,
    session: ExecutionSession,
    pool: Arc<WorkStealingTaskDispatcher>,
    main: JitDylib,
    /// By cluster; a thread that removes or defines the cluster locks its tracker.
    trackers: Vec<Mutex<ResourceTracker>>,
    asked: AtomicUsize,
    told: AtomicUsize,
    right: AtomicUsize,
    /// The errors found; a panic in a unit or a handler would not be reported here.
    wrong: Mutex<Vec<String>>,
}

/// The symbol of one place in the graph.
struct Node {
    round: Arc<Round>,
    index: usize,
    random: Random,
}

fn address_of(index: usize) -> u64 {
    16 * (index as u64 + 1)
}

impl Node {
    fn new(round: &Arc<Round>, index: usize) -> Self {
        let random = Random(round.seed ^ (index as u64).wrapping_mul(0x2545_f491_4f6c_dd1d));
        Self { round: round.clone(), index, random }
    }

    /// Up to three later units of the cluster, so that no needs lead back.
    fn needs(&self) -> Vec<SymbolName> {
        let mut random = Random(self.random.0 ^ 1);
        let left = CLUSTER - 1 - self.index % CLUSTER;
        let count = random.below(4).min(left);
        (0..count).map(|_| self.round.names[self.index + 1 + random.below(left.min(20))].clone()).collect()
    }

    /// Emits with the dependences found, after a check of their addresses.
    fn emit(&self, responsibility: MaterializationResponsibility, found: &LookupResult) {
        self.round.check(found);
        let name = &self.round.names[self.index];
        let at = ExecutorSymbolDef::new(ExecutorAddr::new(address_of(self.index)), EXPORTED);
        let addresses: SymbolMap = [(name.clone(), at)].into_iter().collect();
        let resolved = match responsibility.notify_resolved(&addresses) {
            Ok(resolved) => resolved,
            // Removed meanwhile.
            Err(refused) => return drop(refused.fail()),
        };
        let group = DependenceGroup {
            symbols: std::iter::once(name.clone()).collect(),
            dependencies: found.dependencies(),
        };
        if let Err(refused) = resolved.notify_emitted(vec![group]) {
            refused.fail();
        }
    }

    fn answer(
        &self,
        responsibility: MaterializationResponsibility,
        answer: Result<LookupResult, LookupError>,
    ) {
        match answer {
            Ok(found) => self.emit(responsibility, &found),
            Err(error) => responsibility.fail(Arc::new(error)),
        }
    }
}

impl MaterializationUnit for Node {
    fn name(&self) -> &str {
        "node"
    }

    fn interface(&self) -> MaterializationInterface {
        let symbols: SymbolFlagsMap =
            std::iter::once((self.round.names[self.index].clone(), EXPORTED)).collect();
        MaterializationInterface::new(symbols)
    }

    fn priority(&self) -> TaskPriority {
        any_priority(&mut Random(self.random.0 ^ 2))
    }

    fn materialize(mut self: Box<Self>, responsibility: MaterializationResponsibility) {
        let (session, main) = (self.round.session.clone(), self.round.main.clone());
        let needs = LookupSet::required(self.needs());
        match self.random.below(4000) {
            0..=3 => resume_unwind(Box::new("on purpose")),
            4..=7 => responsibility.fail(shared_error("on purpose")),
            8 | 9 => drop(responsibility),
            10..=59 => self.answer(responsibility, session.lookup(LookupRequest::new(order(&main), needs))),
            60..=89 => {
                let (told, answer) = (Arc::new(Latch::new()), Arc::new(Mutex::new(None)));
                session.lookup_async(LookupRequest::new(order(&main), needs), {
                    let (told, answer) = (told.clone(), answer.clone());
                    move |found| {
                        *answer.lock() = Some(found);
                        told.open();
                    }
                });
                session.blocking(|| told.wait()).expect("a thread can be had");
                let answer = answer.lock().take().expect("it was told");
                self.answer(responsibility, answer);
            }
            _ => {
                let responsibility = responsibility.detach();
                let request = LookupRequest::new(order(&main), needs).until_resolved();
                session.lookup_async(request, move |answer| self.answer(responsibility.attach(), answer));
            }
        }
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

impl Round {
    /// Each symbol found is at its place; which one it is its name says.
    fn check(&self, found: &LookupResult) {
        for (name, definition) in found.iter() {
            let index: usize = name.as_str()[1..].parse().expect("a name of ours");
            if definition.address.value() != address_of(index) {
                self.wrong.lock().push(format!("{name} at {:?}", definition.address));
            }
            // Relaxed, here and below: compared after the close, which all that counts has ended before.
            self.right.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn hear(&self, answer: Result<LookupResult, LookupError>) {
        self.told.fetch_add(1, Ordering::Relaxed);
        match answer {
            Ok(found) => self.check(&found),
            // The graph has no cycle, and threads can be had.
            Err(error @ (LookupError::WouldDeadlock { .. } | LookupError::Wait(_))) => {
                self.wrong.lock().push(error.in_full());
            }
            Err(_) => {}
        }
    }

    fn define_cluster(self: &Arc<Self>, cluster: usize) {
        let tracker = self.trackers[cluster].lock();
        for index in cluster * CLUSTER..((cluster + 1) * CLUSTER).min(self.units) {
            // Refused if another thread has defined it meanwhile.
            drop(self.main.define_with_tracker(Box::new(Node::new(self, index)), &tracker));
        }
    }

    fn remove_cluster(&self, cluster: usize) {
        let removed = std::mem::replace(&mut *self.trackers[cluster].lock(), self.main.create_tracker());
        removed.remove().expect("nothing refuses to go");
    }

    fn act(self: &Arc<Self>, random: &mut Random) {
        let names: Vec<_> =
            (0..=random.below(8)).map(|_| self.names[random.below(self.units)].clone()).collect();
        let request = || LookupRequest::new(order(&self.main), LookupSet::required(names.clone()));
        let asked = || self.asked.fetch_add(1, Ordering::Relaxed);
        match random.below(64) {
            0 => {
                let cluster = random.below(self.trackers.len());
                self.remove_cluster(cluster);
                self.define_cluster(cluster);
            }
            1..=8 => {
                let mut future = Box::pin(self.session.lookup_future(request()));
                if random.below(2) == 0 {
                    drop(future.as_mut().poll(&mut Context::from_waker(&waker())));
                }
            }
            9..=12 => {
                self.pool.wait_for_room(any_priority(random), 1).expect("a client is no worker");
                asked();
                let round = self.clone();
                self.session.lookup_async(request(), move |answer| round.hear(answer));
            }
            13..=40 => {
                asked();
                let round = self.clone();
                self.session.lookup_async(request(), move |answer| round.hear(answer));
            }
            41 => drop(self.pool.metrics()),
            _ => {
                asked();
                self.hear(
                    self.session.lookup(LookupRequest::new(order(&self.main), LookupSet::required(names))),
                );
            }
        }
    }
}

/// Runs one round; says how many answers were right.
fn round(seed: u64, units: usize) -> usize {
    let mut random = Random(seed);
    let builder = WorkStealingTaskDispatcher::builder().workers(1 + random.below(4));
    let mut builder = builder.stack_size_bytes(512 << 10).background_workers_max(random.below(4));
    if random.below(2) == 0 {
        builder = builder.speculative_queue_max(random.below(64)).idle_queue_max(random.below(64));
    }
    let pool = Arc::new(builder.build().expect("a small pool"));
    let (session, main) = session_on(pool.clone());
    let round = Arc::new(Round {
        seed,
        units,
        names: (0..units).map(|index| session.intern(&format!("s{index}"))).collect(),
        trackers: (0..units.div_ceil(CLUSTER)).map(|_| Mutex::new(main.create_tracker())).collect(),
        session,
        pool,
        main,
        asked: AtomicUsize::new(0),
        told: AtomicUsize::new(0),
        right: AtomicUsize::new(0),
        wrong: Mutex::default(),
    });
    (0..round.trackers.len()).for_each(|cluster| round.define_cluster(cluster));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let (round, mut random) = (&round, random.split());
            scope.spawn(move || {
                for _ in 0..units / 32 {
                    round.act(&mut random);
                }
            });
        }
    });
    round.session.close().expect("nothing refuses to go");
    assert_eq!(*round.wrong.lock(), [""; 0]);
    let metrics = round.pool.metrics();
    let ended = (metrics.threads, metrics.blocked, metrics.surplus, metrics.panicked);
    assert_eq!((ended, metrics.queued.total(), metrics.running.total()), ((0, 0, 0, 0), 0, 0));
    assert_eq!(round.asked.load(Ordering::Relaxed), round.told.load(Ordering::Relaxed));
    round.right.load(Ordering::Relaxed)
}

/// Rounds until the time is over; one that hangs fails.
fn hammer_with(limit: Duration, units: usize) {
    let mut right = 0;
    hammer(limit, |seed| right += within("the round", Duration::from_secs(120), move || round(seed, units)));
    assert!(right > units / 10, "only {right} answers were right: nearly everything failed");
}

#[test]
fn a_few_units_under_stress() {
    hammer_with(Duration::from_secs(1), 2_000);
}

#[test]
#[ignore = "as long as URUK_STRESS_SECONDS says; run by `make stress`"]
fn stress_a_hundred_thousand_units() {
    hammer_with(stress_length(), 100_000);
}
