//! Close against everything: the session ends while lookups, definitions, tasks and parked responsibilities do not know it.
//!
//! ```text
//!  closing thread                          others
//!  closing: refuse what comes from outside lookup, define: admitted before, or refused
//!  wait until no task moves           ◀──  a task ends, or waits in a lookup: the last one opens the latch
//!  tasks wait in lookups? end all     ──▶  they go on
//!  queries, wait again
//!  closed: queries end, rows, units
//!  and resources leave
//!  remove the resources                    a parked responsibility: refused
//!  tell the other calls of close      ──▶  close, a second time: returns
//! ```
//!
//! Proven, in every order with at most two preemptions (one where a task has its answer and comes back; `make soak` looks at
//! two there as well): `close` returns; every lookup returns, with an answer or with the closing; a definition is refused, or
//! its unit is let go; the removals of the closing see the effects of ended tasks; when any call of `close` has returned, all
//! of it is over.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `close::forgets_the_queries`: rows go before their lookups are told of the closing | `core/src/session/close.rs` | `a_lookup_of_what_is_parked_ends_with_the_session` |
//! | `close::admits_definitions`: a closed session takes definitions | `core/src/protocol/symbols/define.rs` | `a_definition_is_refused_or_let_go` |
//! | `close::last_task_tells_nobody`: the last task ends without a look at the thread that waits for that | `core/src/session/drain.rs` | `closing_waits_for_tasks_and_sees_what_they_did` |
//! | `close::waits_without_looking`: the closing thread waits without a look at the remaining tasks | `core/src/session/drain.rs` | `closing_waits_for_tasks_and_sees_what_they_did` |
//! | `close::counts_without_acquire`: `session-drained` is Relaxed at its reading end | `core/src/session/drain.rs` | `closing_waits_for_tasks_and_sees_what_they_did` |
//! | `close::task_that_waits_tells_nobody`: a task that comes to wait in a lookup is not looked at | `core/src/session/drain.rs` | `a_task_that_waits_for_what_is_parked_goes_on` |
//! | `close::round_ends_no_queries`: tasks that wait in lookups are left there | `core/src/session/close.rs` | `a_task_that_waits_for_what_is_parked_goes_on` |
//! | `close::takes_what_was_idle_for_idle`: a close goes on when all tasks were excused a moment ago, and one has moved on since | `core/src/session/drain.rs` | `a_task_that_has_its_answer_is_waited_for` |
//! | `close::excuses_who_has_its_answer`: a task that has its answer is excused until it wakes | `core/src/session/drain.rs` | `a_task_that_is_about_to_wake_is_waited_for` |
//! | `close::excuses_who_was_answered_before`: a task is excused though its answer came before it sleeps | `core/src/session/drain.rs` | `a_task_that_is_about_to_wake_is_waited_for` |
//! | `close::overtakes_what_is_handed_on`: what a thread has claimed is counted when it is enqueued | `core/src/session/drain.rs` | `what_another_thread_hands_on_is_waited_for` |
//! | `close::overtakes_removals`: a close ends without a look at threads that remove resources | `core/src/session/close.rs` | `a_close_waits_for_who_removes_resources` |
//! | `close::second_call_does_not_wait`: a call that finds the session closing returns at once | `core/src/session/close.rs` | `whoever_has_closed_finds_it_closed` |
//! | `close::leaves_the_rest_to_nobody`: a close whose time is over leaves the rest to itself | `core/src/session/close.rs` | `a_close_whose_time_is_over_ends_behind_its_caller` |
//! | `close::last_task_tells_nobody`: the same, where the task is the unit of a lookup that is served | `core/src/session/drain.rs` | `a_lookup_beside_a_closing_is_answered_or_refused` |
//! | `close::last_task_tells_nobody`: the same, where it answers a lookup of a parked symbol | `core/src/session/drain.rs` | `a_parked_responsibility_is_finished_or_refused` |
//! | `close::last_task_tells_nobody`: the same, where a unit starts, or does not, and the close cancels | `core/src/session/drain.rs` | `a_lookup_beside_a_cancelling_close_is_answered_or_refused` |
//! | `close::keeps_its_generators`: a session that is closed keeps its generators | `core/src/protocol/removal/close.rs` | `a_lookup_suspended_at_a_generator_is_told_and_the_generator_goes` |
//!
//! `a_task_that_runs_what_it_waits_for_is_waited_for` is in no row. Two steps keep such a task from being excused when it has its answer, and
//! each suffices: it is excused when it sleeps at the earliest, and until its answer is given at the latest.
#![cfg(uruk_loom)]

use std::error::Error;
use std::time::Duration;

use loom_tests::queue::Queue;
use loom_tests::stage::{
    Stage, addresses, definition, found_or_closed, model_within, resolve_and_emit, unit,
};
use loom_tests::witness::Witness;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};
use uruk_core::{
    CloseError, Deadline, DefineError, DefinitionGenerator, DetachedRequest, GenerateRequest, LookupError,
    MaterializationResponsibility, Resource, Shutdown, Task, TaskPriority,
};

/// A closing is many transactions, in models one for each step: three preemptions take minutes.
const PREEMPTIONS_MAX: usize = 2;

/// ```text
///  main: close              another: lookup ─ materialize ─ emit
/// ```
#[test]
fn a_lookup_beside_a_closing_is_answered_or_refused() {
    model_within(PREEMPTIONS_MAX, || {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        stage.define(&[&name], finish_if_allowed);
        let asker = stage.lookup_beside(&name);
        stage.session.close().expect("there is no resource");
        found_or_closed(asker.join().expect("no panic"));
        assert!(matches!(stage.lookup(&name), Err(LookupError::Closed)));
    });
}

/// ```text
///  main: lookup, close      another: lookup, which has claimed the unit or has not
/// ```
#[test]
fn what_another_thread_hands_on_is_waited_for() {
    model_within(PREEMPTIONS_MAX, || {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        stage.define(&[&name], finish_if_allowed);
        let asker = stage.lookup_beside(&name);
        let answer = Arc::new(Mutex::new(None));
        let told = answer.clone();
        stage.session.lookup_async(stage.request(&name), move |found| *told.lock() = Some(found));
        stage.session.close().expect("there is no resource");
        assert!(matches!(*answer.lock(), Some(Ok(_))), "accepted, and not done");
        assert!(matches!(asker.join().expect("no panic"), Ok(_) | Err(LookupError::Closed)));
    });
}

/// ```text
///  main: close              another: lookup of what is parked              emitter: resolve ─ emit
/// ```
#[test]
fn a_lookup_of_what_is_parked_ends_with_the_session() {
    model_within(PREEMPTIONS_MAX, || {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        let parked = stage.parked(&[&name]);
        let asker = stage.lookup_beside(&name);
        stage.session.close().expect("there is no resource");
        match asker.join().expect("no panic") {
            Err(LookupError::Closed) => {}
            other => panic!("not closed: {other:?}"),
        }
        assert!(parked.attach().notify_resolved(&Default::default()).is_err());
    });
}

/// ```text
///  main: close              emitter: resolve ─ emit what was parked
/// ```
#[test]
fn a_parked_responsibility_is_finished_or_refused() {
    model_within(PREEMPTIONS_MAX, || {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        let parked = stage.parked(&[&name]);
        let emitter = thread::spawn(move || finish_if_allowed(parked.attach()));
        let future = stage.session.lookup_future(stage.request(&name));
        stage.session.close().expect("there is no resource");
        drop(future);
        emitter.join().expect("no panic");
        assert!(matches!(stage.lookup(&name), Err(LookupError::Closed)));
    });
}

/// ```text
///  main: close              another: define
/// ```
#[test]
fn a_definition_is_refused_or_let_go() {
    model_within(PREEMPTIONS_MAX, || {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        let witness = Arc::new(Witness::default());
        let definer = thread::spawn({
            let (stage, resource) = (stage.clone(), witness.resource());
            move || {
                let holds = unit(&[&name], move |responsibility| {
                    drop(resource);
                    resolve_and_emit(responsibility);
                });
                stage.dylib.define(holds)
            }
        });
        stage.session.close().expect("there is no resource");
        match definer.join().expect("no panic") {
            Ok(()) | Err(DefineError::Closed { .. }) => {}
            Err(error) => panic!("neither defined nor closed: {error}"),
        }
        assert_eq!(witness.dropped(), 1);
    });
}

/// ```text
///  main: hands over a task ─ close ─ the resource reads the mark          worker: the task leaves a mark
/// ```
#[test]
fn closing_waits_for_tasks_and_sees_what_they_did() {
    model_within(PREEMPTIONS_MAX, || {
        let queue = Arc::new(Queue::default());
        let stage = Stage::on(queue.clone());
        let mark = Arc::new(AtomicUsize::new(0));
        let reads = Reads { mark: mark.clone() };
        stage.dylib.default_tracker().add_resource(Box::new(reads)).expect("the session is open");
        stage.session.dispatch(Task::new("marks", TaskPriority::Demanded, move || {
            // Relaxed, at both ends: the count of tasks orders them.
            mark.store(1, Ordering::Relaxed);
        }));
        let worker = thread::spawn(move || queue.work());
        stage.session.close().expect("the mark is there");
        worker.join().expect("no panic");
    });
}

/// ```text
///  main: hands over a task ─ close          worker: the task looks up what is parked, and waits
/// ```
#[test]
fn a_task_that_waits_for_what_is_parked_goes_on() {
    model_within(PREEMPTIONS_MAX, || {
        let queue = Arc::new(Queue::default());
        let stage = Stage::on(queue.clone());
        let name = stage.session.intern("name");
        let parked = Arc::new(Mutex::new(None));
        stage.define(&[&name], {
            let parked = parked.clone();
            move |responsibility| *parked.lock() = Some(responsibility.detach())
        });
        let future = stage.session.lookup_future(stage.request(&name));
        queue.next().expect("the unit is claimed").run();
        stage.session.dispatch(Task::new("waits", TaskPriority::Demanded, {
            let stage = stage.clone();
            move || assert!(matches!(stage.lookup(&name), Err(LookupError::Closed)))
        }));
        let worker = thread::spawn(move || queue.work());
        stage.session.close().expect("there is no resource");
        worker.join().expect("no panic");
        drop(future);
        let responsibility = parked.lock().take();
        drop(responsibility);
    });
}

/// ```text
///  main: lookup ─ outer unit: lookup ─ inner unit ─ goes on with the answer ─ emit          another: close
/// ```
///
/// The outer task runs the inner one itself: it moves all the time, so that the lookup that waits for it is answered.
#[test]
fn a_task_that_runs_what_it_waits_for_is_waited_for() {
    model_within(PREEMPTIONS_MAX, || {
        let stage = Stage::new();
        let [outer, inner] = ["outer", "inner"].map(|name| stage.session.intern(name));
        stage.define(&[&inner], resolve_and_emit);
        let closer = Arc::new(Mutex::new(None));
        stage.define(&[&outer], {
            let (stage, closer) = (stage.clone(), closer.clone());
            move |responsibility| {
                let session = stage.session.clone();
                // From here on the lookup of `outer` was accepted before the close.
                let close = move || session.close().expect("there is no resource");
                *closer.lock() = Some(thread::spawn(close));
                stage.lookup(&inner).expect("what a task asks for is served");
                resolve_and_emit(responsibility);
            }
        });
        stage.lookup(&outer).expect("it was accepted, and somebody works on it");
        let closer = closer.lock().take().expect("the outer unit has run");
        closer.join().expect("no panic");
    });
}

/// ```text
///  main: hands over a task ─ close          worker: the task looks up what is parked ─ goes on ─ looks up more       another: emits it
/// ```
///
/// The task sleeps, and is excused. With its answer it moves on, when the close may have seen that all are excused.
#[test]
fn a_task_that_has_its_answer_is_waited_for() {
    model_within(PREEMPTIONS_MAX - 1, || {
        let queue = Arc::new(Queue::default());
        let stage = Stage::on(queue.clone());
        let name = stage.session.intern("name");
        let parked = Arc::new(Mutex::new(None));
        stage.define(&[&name], {
            let parked = parked.clone();
            move |responsibility| *parked.lock() = Some(responsibility.detach())
        });
        let future = stage.session.lookup_future(stage.request(&name));
        queue.next().expect("the unit is claimed").run();
        drop(future);
        let parked = parked.lock().take().expect("the unit has run");
        stage.session.dispatch(Task::new("waits", TaskPriority::Demanded, {
            let stage = stage.clone();
            move || {
                if stage.lookup(&name).is_ok() {
                    stage.lookup(&name).expect("a task that goes on is served");
                }
            }
        }));
        let worker = thread::spawn(move || queue.work());
        let emitter = thread::spawn(move || finish_if_allowed(parked.attach()));
        stage.session.close().expect("there is no resource");
        worker.join().expect("no panic");
        emitter.join().expect("no panic");
    });
}

/// ```text
///  main: close          worker: outer unit: lookup ─ sleeps ─ emit          another worker: inner unit: emit
/// ```
///
/// The inner task ends when the outer one has its answer and does not know it yet.
#[test]
fn a_task_that_is_about_to_wake_is_waited_for() {
    model_within(PREEMPTIONS_MAX, || {
        let queue = Arc::new(Queue::default());
        let stage = Stage::on(queue.clone());
        let [outer, inner] = ["outer", "inner"].map(|name| stage.session.intern(name));
        stage.define(&[&inner], resolve_and_emit);
        stage.define(&[&outer], {
            let (stage, inner) = (stage.clone(), inner.clone());
            move |responsibility| {
                stage.lookup(&inner).expect("what a task asks for is served");
                resolve_and_emit(responsibility);
            }
        });
        let answer = Arc::new(Mutex::new(None));
        let told = answer.clone();
        stage.session.lookup_async(stage.request(&outer), move |found| *told.lock() = Some(found));
        let outer_task = queue.next().expect("the unit is claimed");
        let inner_worker = thread::spawn({
            let queue = queue.clone();
            move || queue.next().expect("the outer unit asks for it").run()
        });
        let outer_worker = thread::spawn(move || {
            outer_task.run();
            queue.work();
        });
        stage.session.close().expect("there is no resource");
        outer_worker.join().expect("no panic");
        inner_worker.join().expect("no panic");
        assert!(matches!(*answer.lock(), Some(Ok(_))), "it was accepted, and somebody works on it");
    });
}

/// ```text
///  main: close, cancelling          another: lookup          worker: the unit starts, or does not
/// ```
#[test]
fn a_lookup_beside_a_cancelling_close_is_answered_or_refused() {
    model_within(PREEMPTIONS_MAX, || {
        let queue = Arc::new(Queue::default());
        let stage = Stage::on(queue.clone());
        let name = stage.session.intern("name");
        stage.define(&[&name], finish_if_allowed);
        let asker = stage.lookup_beside(&name);
        let worker = thread::spawn(move || queue.work());
        stage.session.close_with(Shutdown::Cancel).expect("there is no resource");
        found_or_closed(asker.join().expect("no panic"));
        worker.join().expect("no panic");
    });
}

/// ```text
///  main: close              another: remove the tracker ─ remove its resources
/// ```
#[test]
fn a_close_waits_for_who_removes_resources() {
    model_within(PREEMPTIONS_MAX, || {
        let stage = Stage::new();
        let witness = Arc::new(Witness::default());
        let tracker = stage.dylib.create_tracker();
        tracker.add_resource(witness.resource()).expect("the session is open");
        let remover = thread::spawn(move || tracker.remove());
        stage.session.close().expect("the resource does not complain");
        assert_eq!((witness.removed(), witness.dropped()), (1, 1));
        remover.join().expect("no panic").expect("the resource does not complain");
    });
}

/// ```text
///  main: close              another: close
/// ```
#[test]
fn whoever_has_closed_finds_it_closed() {
    model_within(PREEMPTIONS_MAX, || {
        let stage = Stage::new();
        let witness = Arc::new(Witness::default());
        stage.dylib.default_tracker().add_resource(witness.resource()).expect("the session is open");
        let close = |stage: &Stage, witness: &Witness| {
            stage.session.close().expect("the resource does not complain");
            assert_eq!((witness.removed(), witness.dropped()), (1, 1));
        };
        let other = thread::spawn({
            let (stage, witness) = (stage.clone(), witness.clone());
            move || close(&stage, &witness)
        });
        close(&stage, &witness);
        other.join().expect("no panic");
    });
}

/// ```text
///  main: close, time over   worker: unit           a thread of the close's own: drain ─ remove
///        close
/// ```
#[test]
fn a_close_whose_time_is_over_ends_behind_its_caller() {
    model_within(PREEMPTIONS_MAX, || {
        let queue = Arc::new(Queue::default());
        let stage = Stage::on(queue.clone());
        let witness = Arc::new(Witness::default());
        stage.dylib.default_tracker().add_resource(witness.resource()).expect("the session is open");
        stage.session.dispatch(Task::new("work", TaskPriority::Demanded, || ()));
        let worker = thread::spawn(move || queue.work());
        match stage.session.close_until(Shutdown::Drain, Deadline::after(Duration::ZERO)) {
            Ok(()) | Err(CloseError::TimedOut) => {}
            refused => panic!("{refused:?}"),
        }
        stage.session.close().expect("it is closed, or waits for that");
        assert_eq!((witness.removed(), witness.dropped()), (1, 1));
        worker.join().expect("no panic");
    });
}

/// ```text
///  main: close              finisher: define ─ finish the request of the lookup that is suspended
/// ```
#[test]
fn a_lookup_suspended_at_a_generator_is_told_and_the_generator_goes() {
    model_within(PREEMPTIONS_MAX, || {
        let stage = Stage::new();
        let name = stage.session.intern("name");
        let (kept, gone) = (Arc::new(Mutex::new(None)), Arc::new(AtomicUsize::new(0)));
        let keeps = Keeps { kept: kept.clone(), gone: gone.clone() };
        stage.dylib.add_generator(std::sync::Arc::new(keeps)).expect("the session is open");
        let (told, queued) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
        for answer in [&told, &queued] {
            let answer = answer.clone();
            let tell = move |found| assert!(answer.lock().replace(found).is_none(), "told once");
            stage.session.lookup_async(stage.request(&name), tell);
        }
        let request = kept.lock().take().expect("the generator was asked on this thread");
        let finisher = thread::spawn({
            let name = name.clone();
            move || {
                let request = request.attach();
                // Refused if the session is closed, and no lookup is left to be told of it.
                let _ = request.dylib().define(unit(&[&name], finish_if_allowed));
                request.finish(Ok(()));
            }
        });
        stage.session.close().expect("there is no resource");
        for answer in [told, queued] {
            match answer.lock().take().expect("told when the close returns") {
                Ok(found) => assert_eq!(found.get(&name), Some(definition())),
                // The closing refused the definition.
                Err(LookupError::Closed | LookupError::NotFound { .. }) => {}
                Err(error) => panic!("neither found, missing nor closed: {error}"),
            }
        }
        finisher.join().expect("no panic");
        // Relaxed: counted before the close has returned, or on the thread that was joined.
        assert_eq!(gone.load(Ordering::Relaxed), 1);
    });
}

/// Keeps its newest request for another thread, and says when it goes.
struct Keeps {
    kept: Arc<Mutex<Option<DetachedRequest>>>,
    gone: Arc<AtomicUsize>,
}

impl DefinitionGenerator for Keeps {
    fn name(&self) -> &str {
        "keeps"
    }

    fn generate(&self, request: GenerateRequest) {
        // It comes for the second lookup once the first has gone on without its symbol.
        *self.kept.lock() = Some(request.detach());
    }
}

impl Drop for Keeps {
    fn drop(&mut self) {
        self.gone.fetch_add(1, Ordering::Relaxed);
    }
}

/// Resolves and emits. A closed session refuses either, and dropping the refusal is all there is to do then.
fn finish_if_allowed(responsibility: MaterializationResponsibility) {
    let addresses = addresses(&responsibility);
    if let Ok(resolved) = responsibility.notify_resolved(&addresses) {
        let _ = resolved.notify_emitted(Vec::new());
    }
}

/// Complains unless the mark is there when it is removed.
struct Reads {
    mark: Arc<AtomicUsize>,
}

impl Resource for Reads {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        if self.mark.load(Ordering::Relaxed) == 1 { Ok(()) } else { Err("the mark is missing".into()) }
    }
}

loom_tests::catches_its_weakenings!();
