//! The dispatcher of `examples/tokio_host`: a reactor of one thread awaits lookups and is never blocked.

use std::sync::{Arc, mpsc};

use protocol_tests::*;
use tokio::runtime::{Builder, Runtime};
use uruk_core::sync::{Latch, Mutex};
use uruk_core::{ExecutionSession, FailureCause, JitDylib, LookupError, Task, TaskDispatcher, TaskPriority};

#[path = "../../../examples/tokio_host/dispatcher.rs"]
mod dispatcher;
use dispatcher::TokioTaskDispatcher;

fn runtime(blocking_threads: usize) -> Runtime {
    Builder::new_current_thread().max_blocking_threads(blocking_threads).build().unwrap()
}

fn session_in(runtime: &Runtime) -> (ExecutionSession, JitDylib) {
    let dispatcher = TokioTaskDispatcher::new(runtime.handle().clone());
    let (session, main) = session_on(Arc::new(dispatcher));
    (session, main)
}

/// Each unit ends when another task of the reactor says so, which comes after all lookups have been polled: were one
/// of them to block the reactor, nothing would end.
#[test]
fn awaited_lookups_complete_although_units_take_long() {
    within_reason(|| {
        let runtime = runtime(4);
        let (session, main) = session_in(&runtime);
        let go_on = Arc::new(Latch::new());
        for index in 0..20 {
            let go_on = go_on.clone();
            let symbols = exported(&session, &[&format!("s{index}")]);
            let unit = TestUnit::new("slow", symbols, move |responsibility| {
                go_on.wait();
                finish(responsibility);
            });
            main.define(unit.boxed()).unwrap();
        }
        runtime.block_on(async {
            let look_up =
                |index| tokio::spawn(session.lookup_future(request(&main, &[&format!("s{index}")])));
            let lookups: Vec<_> = (0..20).map(look_up).collect();
            let reactor = tokio::spawn(async move {
                // Behind every lookup, each of which is polled before this goes on.
                tokio::task::yield_now().await;
                go_on.open();
            });
            for lookup in lookups {
                assert_eq!(lookup.await.unwrap().unwrap().len(), 1);
            }
            reactor.await.unwrap();
        });
        session.close().unwrap();
    });
}

/// Lookups in units block threads of the runtime that are there for it.
#[test]
fn units_that_block_leave_the_reactor_alone() {
    within_reason(|| {
        let runtime = runtime(64);
        let (session, main) = session_in(&runtime);
        for index in 0..50 {
            let symbols = exported(&session, &[&format!("s{index}")]);
            let unit = TestUnit::new("unit", symbols, move |responsibility| {
                let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
                session.lookup_symbol(&order(&main), &session.intern(&format!("s{}", index + 1))).unwrap();
                finish(responsibility);
            });
            main.define(unit.boxed()).unwrap();
        }
        let parked = define_parked(&main, "last", &["s50"]);
        runtime.block_on(async {
            let lookup = tokio::spawn(session.lookup_future(request(&main, &["s0"])));
            // All fifty wait for a symbol that the reactor itself finishes.
            let responsibility = tokio::task::spawn_blocking(move || parked.recv().unwrap()).await.unwrap();
            finish(responsibility.attach());
            lookup.await.unwrap().unwrap();
        });
        session.close().unwrap();
    });
}

#[test]
fn a_dropped_lookup_is_withdrawn_and_a_panic_is_told() {
    within_reason(|| {
        let runtime = runtime(1);
        let (session, main) = session_in(&runtime);
        let unit = TestUnit::new("bad", exported(&session, &["bad"]), |_| panic!("said the unit"));
        main.define(unit.boxed()).unwrap();
        let parked = define_parked(&main, "parked", &["a"]);
        runtime.block_on(async {
            let lookup = tokio::spawn(session.lookup_future(request(&main, &["a"])));
            tokio::task::yield_now().await;
            lookup.abort();
            assert!(lookup.await.unwrap_err().is_cancelled());
            let error = session.lookup_future(request(&main, &["bad"])).await.unwrap_err();
            assert!(error.in_full().contains("said the unit"), "{error}");
        });
        drop(parked);
        session.close().unwrap();
    });
}

#[test]
fn the_most_urgent_task_takes_the_next_thread() {
    within_reason(|| {
        let runtime = runtime(1);
        let dispatcher = TokioTaskDispatcher::new(runtime.handle().clone());
        let (begun, go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
        let (begins, waits) = (begun.clone(), go_on.clone());
        let occupies = Task::new("occupies", TaskPriority::Demanded, move || {
            begins.open();
            waits.wait();
        });
        dispatcher.dispatch(occupies).unwrap();
        begun.wait();
        let log = Arc::new(Mutex::new(Vec::new()));
        use TaskPriority::{Demanded, Idle, Lazy, Speculative};
        for priority in [Idle, Lazy, Demanded, Speculative, Demanded] {
            let log = log.clone();
            dispatcher.dispatch(Task::new("ordered", priority, move || log.lock().push(priority))).unwrap();
        }
        go_on.open();
        dispatcher.shutdown();
        assert_eq!(*log.lock(), [Demanded, Demanded, Lazy, Speculative, Idle]);
    });
}

/// Units that the runtime never runs fail, and every lookup is told.
#[test]
fn a_runtime_that_ends_first_fails_what_is_queued() {
    within_reason(|| {
        let runtime = runtime(1);
        let (session, main) = session_in(&runtime);
        let (begun, go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
        let (begins, waits) = (begun.clone(), go_on.clone());
        let unit = TestUnit::new("runs", exported(&session, &["runs"]), move |responsibility| {
            begins.open();
            waits.wait();
            finish(responsibility);
        });
        main.define(unit.boxed()).unwrap();
        define_simple(&main, "queued", &["queued"]);
        let runs = look_up_later(&session, request(&main, &["runs"]));
        begun.wait();
        let queued = look_up_later(&session, request(&main, &["queued"]));
        runtime.shutdown_background();
        go_on.open();
        assert!(runs.recv().unwrap().is_ok());
        match queued.recv().unwrap() {
            Err(LookupError::Failed(failure)) => {
                assert!(matches!(failure.cause, FailureCause::NotDispatched), "{failure}");
            }
            other => panic!("{other:?}"),
        }
        session.close().unwrap();
    });
}

/// The ticket of a task that the task dispatches is dropped on the dispatching thread.
#[test]
fn shutdown_from_a_task_that_dispatched_after_the_runtime_had_ended() {
    within_reason(|| {
        let runtime = runtime(1);
        let dispatcher = Arc::new(TokioTaskDispatcher::new(runtime.handle().clone()));
        let (inner, begun, ended) = (dispatcher.clone(), Arc::new(Latch::new()), Arc::new(Latch::new()));
        let (begins, waits) = (begun.clone(), ended.clone());
        let task = Task::new("closes", TaskPriority::Demanded, move || {
            begins.open();
            waits.wait();
            inner.dispatch(Task::new("dropped", TaskPriority::Demanded, || ())).unwrap();
            inner.shutdown();
        });
        dispatcher.dispatch(task).unwrap();
        begun.wait();
        runtime.shutdown_background();
        ended.open();
        dispatcher.shutdown();
    });
}

#[test]
fn shutdown_from_a_task_and_from_outside() {
    within_reason(|| {
        let runtime = runtime(2);
        let dispatcher = Arc::new(TokioTaskDispatcher::new(runtime.handle().clone()));
        let (send, ended) = mpsc::channel();
        for _ in 0..2 {
            let (inner, send) = (dispatcher.clone(), send.clone());
            // The first that runs closes it for the other.
            let closes = Task::new("closes", TaskPriority::Demanded, move || {
                inner.shutdown();
                inner.shutdown();
                send.send(()).unwrap();
            });
            drop(dispatcher.dispatch(closes));
        }
        drop(send);
        dispatcher.shutdown();
        assert!(ended.iter().count() >= 1);
        assert!(dispatcher.dispatch(Task::new("late", TaskPriority::Demanded, || ())).is_err());
    });
}
