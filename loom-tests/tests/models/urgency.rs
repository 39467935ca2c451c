//! Urgency: a unit becomes more urgent while its ticket is on its way to a worker.
//!
//! ```text
//!  asker                                   worker
//!  lookup: the claim is raised             takes a ticket of the old priority
//!  looks at the unit's tickets ─ none        the unit is there ─ start it
//!  is as urgent: dispatches another          it is not there ─ nothing
//! ```
//!
//! The unit, and which tickets are under way, change together under one lock; the priority before that, under the session's.
//!
//! Proven, in every order with at most three preemptions: a unit that is raised is started by a worker that takes nothing
//! but demanded tasks, also if it is raised before its first ticket exists, and also through an emission; it is started
//! once, whichever ticket comes first; it fails with its last ticket alone.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `urgency::raises_without_a_ticket`: a raised unit stays in the queue it is in | `core/src/task/ticket.rs` | `a_raised_unit_is_started_by_who_takes_demanded_tasks_alone` |
//! | `urgency::stops_at_what_is_emitted`: an emitted symbol does not pass its priority on | `core/src/protocol/urgency/rise.rs` | `what_an_emission_comes_to_depend_on_is_raised` |
//! | `urgency::looks_before_it_is_queued`: the first ticket has the priority of a moment before the unit can be found | `core/src/task/ticket.rs` | `a_raised_unit_is_started_by_who_takes_demanded_tasks_alone` |
//! | `urgency::any_ticket_takes_the_work_along`: a ticket that is dropped takes the unit with it | `core/src/task/ticket.rs` | `a_ticket_that_is_dropped_is_one_of_two` |
//!
//! In no row: `whichever_ticket_comes_first_starts_the_unit`. A ticket takes the unit out of where it lies, in one hold of a lock; no
//! step that could be left out would let two take it.
#![cfg(uruk_loom)]

use std::collections::VecDeque;

use loom_tests::stage::{Stage, definition, model_within, resolve, resolve_and_emit, unit};
use uruk_core::sync::atomic::Ordering;
use uruk_core::sync::{Arc, Condvar, Mutex, thread};
use uruk_core::{DependenceGroup, SymbolName, Task, TaskDispatcher, TaskPriority};

/// More add nothing but time.
const PREEMPTIONS_MAX: usize = 3;

/// Tasks, demanded and others, for whichever thread of the model takes them.
#[derive(Debug, Default)]
struct Levels {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    demanded: VecDeque<Task>,
    others: VecDeque<Task>,
    closed: bool,
}

impl Levels {
    /// The next demanded task; waits for one, and gives none once the queue is closed.
    fn next_demanded(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.demanded.pop_front() {
                return Some(task);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state);
        }
    }

    /// Runs demanded tasks until the queue is closed.
    fn run_demanded(&self) {
        while let Some(task) = self.next_demanded() {
            task.run();
        }
    }

    /// The next of the other tasks, if there is one.
    fn next_other(&self) -> Option<Task> {
        self.state.lock().others.pop_front()
    }

    /// The next task, demanded ones first.
    fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
        state.demanded.pop_front().or_else(|| state.others.pop_front())
    }

    fn run_all(&self) {
        while let Some(task) = self.next() {
            task.run();
        }
    }
}

impl TaskDispatcher for Levels {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        let mut state = self.state.lock();
        match task.priority() {
            TaskPriority::Demanded => state.demanded.push_back(task),
            _ => state.others.push_back(task),
        }
        self.changed.notify_all();
        Ok(())
    }

    fn shutdown(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

/// ```text
///  asker: claims it as idle ─ dispatches its ticket      another: blocks in a lookup      worker: demanded tasks
/// ```
#[test]
fn a_raised_unit_is_started_by_who_takes_demanded_tasks_alone() {
    model_within(PREEMPTIONS_MAX, || {
        let (stage, queue, name, started) = Stage::queued::<Levels>();
        let worker = thread::spawn({
            let queue = queue.clone();
            move || queue.run_demanded()
        });
        let asker = thread::spawn({
            let (stage, name) = (stage.clone(), name.clone());
            move || stage.session.lookup_future(stage.request(&name).at(TaskPriority::Idle))
        });
        assert_eq!(stage.lookup(&name).expect("found"), definition());
        drop(asker.join().expect("no panic"));
        queue.shutdown();
        worker.join().expect("no panic");
        queue.run_all();
        assert_eq!(started.load(Ordering::Relaxed), 1);
    });
}

/// ```text
///  asker: raises it ─ dispatches a second ticket         worker: runs the first
/// ```
#[test]
fn whichever_ticket_comes_first_starts_the_unit() {
    model_within(PREEMPTIONS_MAX, || {
        let (stage, queue, name, started) = Stage::queued::<Levels>();
        let low = stage.session.lookup_future(stage.request(&name).at(TaskPriority::Idle));
        let worker = thread::spawn({
            let queue = queue.clone();
            move || queue.next_other().map_or((), Task::run)
        });
        let high = stage.session.lookup_future(stage.request(&name).at(TaskPriority::Demanded));
        queue.run_all();
        worker.join().expect("no panic");
        queue.run_all();
        assert_eq!(started.load(Ordering::Relaxed), 1);
        drop((low, high));
    });
}

/// ```text
///  one: drops the idle ticket unrun                      another: runs the demanded one
/// ```
#[test]
fn a_ticket_that_is_dropped_is_one_of_two() {
    model_within(PREEMPTIONS_MAX, || {
        let (stage, queue, name, started) = Stage::queued::<Levels>();
        let low = stage.session.lookup_future(stage.request(&name).at(TaskPriority::Idle));
        let high = stage.session.lookup_future(stage.request(&name).at(TaskPriority::Demanded));
        let idle = queue.next_other().expect("the first ticket");
        let dropper = thread::spawn(move || drop(idle));
        queue.run_all();
        dropper.join().expect("no panic");
        queue.run_all();
        assert_eq!(started.load(Ordering::Relaxed), 1);
        assert_eq!(stage.lookup(&name).expect("it did not fail"), definition());
        drop((low, high));
    });
}

/// ```text
///  one: emits what depends on an idle unit               another: blocks in a lookup of it      worker: demanded tasks
/// ```
#[test]
fn what_an_emission_comes_to_depend_on_is_raised() {
    model_within(2, || {
        let queue = Arc::new(Levels::default());
        let stage = Stage::on(queue.clone());
        let (needed, token) = (stage.session.intern("needed"), Arc::new(Mutex::new(None)));
        let (dependant, parked) = (stage.session.intern("dependant"), Arc::new(Mutex::new(None)));
        stage.define(&[&dependant], {
            let parked = parked.clone();
            move |responsibility| *parked.lock() = Some(responsibility.detach())
        });
        stage.define(&[&needed], {
            // Another unit takes over: so there is a token of a queued unit.
            let (token, again) = (token.clone(), needed.clone());
            move |responsibility| {
                *token.lock() = responsibility.dependency(&again);
                if let Err(refused) = responsibility.replace(unit(&[&again], resolve_and_emit)) {
                    refused.fail();
                }
            }
        });
        let idle =
            |name: &SymbolName| stage.session.lookup_future(stage.request(name).at(TaskPriority::Idle));
        let _wanted = (idle(&dependant), idle(&needed));
        queue.next_other().into_iter().for_each(Task::run);
        queue.next_other().into_iter().for_each(Task::run);
        let emitter = thread::spawn({
            let (parked, token) = (parked.lock().take(), token.lock().take());
            move || {
                let resolved = resolve(parked.expect("it has started").attach());
                let symbols = resolved.symbols().keys().cloned().collect();
                let group = DependenceGroup { symbols, dependencies: token.into_iter().collect() };
                resolved.notify_emitted(vec![group]).expect("nothing has failed");
            }
        });
        let worker = thread::spawn({
            let queue = queue.clone();
            move || queue.run_demanded()
        });
        assert_eq!(stage.lookup(&dependant).expect("found"), definition());
        emitter.join().expect("no panic");
        queue.shutdown();
        worker.join().expect("no panic");
    });
}

loom_tests::catches_its_weakenings!();
