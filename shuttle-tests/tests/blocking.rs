//! Blocking: units that wait for each other in every way, with random priorities, on pools of any size and any limits.
//!
//! ```text
//!  unit i:    needs some of s(i+1) .. s(n); gets them by a lookup that blocks, by a declared wait for one that does not,
//!             or as a linker does; its address is one more than the sum of theirs
//!  outside:   threads ask for some of all, now and then after waiting for room in the background
//! ```
//!
//! Held in every schedule tried: every lookup is answered, with the addresses that a plain sum over the graph gives; each unit
//! is started once (I1); no limit holds back a task that a lookup waits for (I8); the pool shuts down with every thread joined.
//!
//! **Fails if** one of these steps is left out (`every_weakening_is_caught` leaves them out):
//!
//! | weakening | in |
//! |---|---|
//! | `pool::vacates_without_a_look`: a worker that blocks calls no thread for the queued tasks | `dispatch/src/sleep.rs` |
//! | `pool::sleeps_without_a_second_look`: a worker falls asleep over a task that has just come | `dispatch/src/sleep.rs` |
//! | `pool::lifts_without_a_look`: a thread that retires calls no other for the tasks that its task held back | `dispatch/src/sleep.rs` |
#![cfg(uruk_shuttle)]

mod common;

use std::process::Command;

use common::explore;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, Mutex, thread};
use uruk_core::{
    DependenceGroup, ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupRequest,
    LookupResult, LookupSet, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    SearchOrder, SymbolFlags, SymbolMap, SymbolName, Task, TaskDispatcher, TaskPriority,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

const PRIORITIES: [TaskPriority; 4] =
    [TaskPriority::Idle, TaskPriority::Speculative, TaskPriority::Lazy, TaskPriority::Demanded];

/// How a unit gets what it needs.
#[derive(Clone, Copy, Debug)]
enum Way {
    Blocks,
    Declares,
    Links,
}

struct Unit {
    name: SymbolName,
    needs: Vec<SymbolName>,
    way: Way,
    priority: TaskPriority,
    started: Arc<AtomicUsize>,
}

impl MaterializationUnit for Unit {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new([(self.name.clone(), SymbolFlags::EXPORTED)].into_iter().collect())
    }

    fn priority(&self) -> TaskPriority {
        self.priority
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        // Relaxed: shuttle's atomics are sequentially consistent.
        self.started.fetch_add(1, Ordering::Relaxed);
        let (session, order) = (responsibility.session().clone(), SearchOrder::of(responsibility.dylib()));
        let needs = || LookupSet::required(self.needs.clone());
        match self.way {
            Way::Blocks => {
                let found =
                    session.lookup(LookupRequest::new(&order, needs())).expect("all of them are defined");
                finish(responsibility, &found);
            }
            Way::Declares => {
                let (told, answer) = (Arc::new(Latch::new()), Arc::new(Mutex::new(None)));
                session.lookup_async(LookupRequest::new(order, needs()), {
                    let (told, answer) = (told.clone(), answer.clone());
                    move |found| {
                        *answer.lock() = Some(found);
                        told.open();
                    }
                });
                session.blocking(|| told.wait()).expect("a thread can be had");
                let found = answer.lock().take().expect("it was told");
                finish(responsibility, &found.expect("all of them are defined"));
            }
            Way::Links => {
                let responsibility = responsibility.detach();
                let request = LookupRequest::new(order, needs()).until_resolved();
                session.lookup_async(request, move |found| {
                    finish(responsibility.attach(), &found.expect("all of them are defined"));
                });
            }
        }
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

/// Resolves a unit's symbol to an address that follows from its needs, and emits it as depending on them.
fn finish(responsibility: MaterializationResponsibility, found: &LookupResult) {
    let sum: u64 = found.iter().map(|(_, definition)| definition.address.value()).sum();
    let symbols: Vec<_> = responsibility.symbols().keys().cloned().collect();
    let at = ExecutorSymbolDef::new(ExecutorAddr::new(sum + 1), SymbolFlags::EXPORTED);
    let addresses: SymbolMap = symbols.iter().map(|name| (name.clone(), at)).collect();
    let resolved = responsibility.notify_resolved(&addresses).expect("nothing is removed");
    let group =
        DependenceGroup { symbols: symbols.into_iter().collect(), dependencies: found.dependencies() };
    resolved.notify_emitted(vec![group]).expect("nothing is removed");
}

#[test]
fn units_that_wait_in_every_way_all_end_with_the_same_answers() {
    explore(RandomScheduler::new, 300, || {
        let mut random = thread_rng();
        let units = random.gen_range(2..=6);
        let builder = WorkStealingTaskDispatcher::builder().workers(random.gen_range(1..=4));
        let builder = builder.background_workers_max(random.gen_range(1..=4));
        let builder = builder.speculative_queue_max(random.gen_range(1..=3)).idle_queue_max(1);
        let pool = Arc::new(builder.build().expect("so few workers"));
        let session = ExecutionSession::builder().dispatcher(pool.clone()).build();
        let dylib = session.create_jit_dylib("main").expect("it is new");
        let names: Vec<_> = (0..units).map(|index| session.intern(&format!("s{index}"))).collect();
        let needs: Vec<Vec<usize>> = (0..units).map(|index| some_of(index + 1..units)).collect();
        let mut addresses = vec![0; units];
        for index in (0..units).rev() {
            addresses[index] = 1 + needs[index].iter().map(|&need| addresses[need]).sum::<u64>();
        }
        let started = Arc::new(AtomicUsize::new(0));
        for index in 0..units {
            let unit = Unit {
                name: names[index].clone(),
                needs: needs[index].iter().map(|&need| names[need].clone()).collect(),
                way: [Way::Blocks, Way::Declares, Way::Links][random.gen_range(0..3)],
                priority: PRIORITIES[random.gen_range(0..4)],
                started: started.clone(),
            };
            dylib.define(Box::new(unit)).expect("it is new");
        }
        let ask = |wanted: Vec<usize>, room: Option<TaskPriority>| {
            let (session, pool, dylib) = (session.clone(), pool.clone(), dylib.clone());
            let wanted: Vec<_> =
                wanted.into_iter().map(|index| (names[index].clone(), addresses[index])).collect();
            move || {
                if let Some(priority) = room {
                    pool.wait_for_room(priority, 1).expect("no worker asks");
                }
                let symbols = LookupSet::required(wanted.iter().map(|(name, _)| name.clone()));
                let found = session
                    .lookup(LookupRequest::new(SearchOrder::of(&dylib), symbols))
                    .expect("all are defined");
                for (name, address) in wanted {
                    assert_eq!(found[&name].address.value(), address);
                }
            }
        };
        // A unit that a lookup blocks for is demanded: limits are about tasks like these.
        let chores: Vec<_> = (0..random.gen_range(0..=4))
            .map(|_| {
                let (asks, done) = (ask(some_of(0..units), None), Arc::new(Latch::new()));
                let opens = done.clone();
                let task = Task::new("chore", PRIORITIES[random.gen_range(0..2)], move || {
                    asks();
                    opens.open();
                });
                session.dispatch(task);
                done
            })
            .collect();
        let askers: Vec<_> = (0..random.gen_range(0..=2))
            .map(|_| {
                let room = random.gen_bool(0.5).then(|| PRIORITIES[random.gen_range(0..2)]);
                thread::spawn(ask(some_of(0..units), room))
            })
            .collect();
        ask((0..units).collect(), None)();
        askers.into_iter().for_each(|asker| asker.join().expect("no panic"));
        chores.iter().for_each(|done| done.wait());
        assert_eq!(started.load(Ordering::Relaxed), units, "each unit is started once");
        session.close().expect("nothing refuses to go");
    });
}

/// A random part of a range.
fn some_of(range: std::ops::Range<usize>) -> Vec<usize> {
    range.filter(|_| thread_rng().gen_bool(0.5)).collect()
}

#[test]
fn every_weakening_is_caught() {
    if std::env::var_os("URUK_WEAKEN").is_some() {
        // A developer runs the whole file to look at one weakening.
        return;
    }
    let head = include_str!("blocking.rs").lines().filter(|line| line.starts_with("//! | `pool::"));
    let steps: Vec<_> = head.filter_map(|line| line.split('`').nth(1)).collect();
    assert!(!steps.is_empty(), "no row of a table begins with a step");
    for step in steps {
        let run = Command::new(std::env::current_exe().expect("the running test"))
            .args(["--exact", "units_that_wait_in_every_way_all_end_with_the_same_answers", "--nocapture"])
            .env("URUK_WEAKEN", step)
            .env("URUK_SHUTTLE_ITERATIONS", "5000")
            .env_remove("URUK_SHUTTLE_SECONDS")
            .output()
            .expect("the running test can be run again");
        let told = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success(), "without {step} nothing is noticed");
        assert!(told.contains("deadlock"), "without {step} something else goes wrong:\n{told}");
    }
}
