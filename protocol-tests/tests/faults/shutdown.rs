//! The end of sessions and dispatchers in the midst of work, on every dispatcher; and dispatchers without a thread.

use std::sync::{Arc, mpsc};

use protocol_tests::on::{On, failure_of};
use protocol_tests::*;
use uruk_core::{FailureCause, JitDylib, LookupError, Task, TaskPriority};
use uruk_dispatch::{RayonTaskDispatcher, WorkStealingTaskDispatcher};

on_every_dispatcher! {
    shutdown_during_work,
    shutdown_from_a_unit_twice,
    shutdown_from_a_handler_twice,
    shutdown_from_many_threads_at_once,
    a_dispatcher_shut_down_beneath_its_session,
    a_dispatcher_dropped_with_tasks_queued,
    a_session_dropped_with_lookups_open,
}

/// Defines units that look the next one up as linkers do, in a ring.
fn define_ring(main: &JitDylib, length: usize) {
    for index in 0..length {
        let symbols = exported(main.session(), &[&format!("s{index}")]);
        let unit = TestUnit::new("ring", symbols, move |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let definitions = addresses(responsibility.symbols());
            // A session that closes takes no more steps.
            let Ok(resolved) = responsibility.notify_resolved(&definitions) else { return };
            let resolved = resolved.detach();
            let next = format!("s{}", (index + 1) % length);
            session.lookup_async(request(&main, &[&next]).until_resolved(), move |answer| {
                if answer.is_ok() {
                    drop(resolved.attach().notify_emitted(Vec::new()));
                }
            });
        });
        main.define(unit.boxed()).unwrap();
    }
}

fn shutdown_during_work(on: On) {
    for _ in 0..20 {
        let (session, main) = on.session();
        define_ring(&main, 100);
        let answers: Vec<_> = std::thread::scope(|scope| {
            let ask = |index: usize| {
                let (session, main) = (&session, &main);
                scope.spawn(move || look_up_later(session, request(main, &[&format!("s{index}")])))
            };
            let asking: Vec<_> = (0..4).map(|index| ask(index * 25)).collect();
            session.close().unwrap();
            session.close().unwrap();
            asking.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        // Ready or closed, but told.
        answers.iter().for_each(|answer| drop(answer.recv().unwrap()));
        assert!(matches!(
            session.lookup_symbol(&order(&main), &session.intern("s0")),
            Err(LookupError::Closed)
        ));
    }
}

fn shutdown_from_a_unit_twice(on: On) {
    let (session, main) = on.session();
    let (send, told) = mpsc::channel();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        let session = responsibility.session().clone();
        send.send((session.close().is_ok(), session.close().is_ok())).unwrap();
    });
    main.define(unit.boxed()).unwrap();
    let answer = look_up_later(&session, request(&main, &["a"]));
    assert_eq!(told.recv().unwrap(), (true, true));
    assert!(answer.recv().unwrap().is_err());
    session.close().unwrap();
}

fn shutdown_from_a_handler_twice(on: On) {
    let (session, main) = on.session();
    define_ring(&main, 50);
    let (send, told) = mpsc::channel();
    let inner = session.clone();
    session.lookup_async(request(&main, &["s0"]), move |_| {
        send.send((inner.close().is_ok(), inner.close().is_ok())).unwrap();
    });
    assert_eq!(told.recv().unwrap(), (true, true));
    session.close().unwrap();
}

fn shutdown_from_many_threads_at_once(on: On) {
    let (session, main) = on.session();
    define_ring(&main, 50);
    let answer = look_up_later(&session, request(&main, &["s0"]));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| session.close().unwrap());
        }
    });
    drop(answer.recv().unwrap());
}

/// As a host does that ends its pool first.
fn a_dispatcher_shut_down_beneath_its_session(on: On) {
    let dispatcher = on.dispatcher();
    let (session, main) = session_on(dispatcher.clone());
    define_simple(&main, "early", &["early"]);
    define_simple(&main, "late", &["late"]);
    session.lookup_symbol(&order(&main), &session.intern("early")).unwrap();
    dispatcher.shutdown();
    let cause = failure_of(session.lookup_symbol(&order(&main), &session.intern("late")));
    assert!(matches!(cause, FailureCause::NotDispatched), "{cause}");
    // Lookups of Ready symbols are still answered, by handlers too.
    session.lookup_symbol(&order(&main), &session.intern("early")).unwrap();
    assert!(look_up_later(&session, request(&main, &["early"])).recv().unwrap().is_ok());
    assert!(look_up_later(&session, request(&main, &["late"])).recv().unwrap().is_err());
    session.close().unwrap();
}

/// Each task is run or dropped.
fn a_dispatcher_dropped_with_tasks_queued(on: On) {
    struct Owned(mpsc::Sender<()>);
    impl Drop for Owned {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    let (send, ends) = mpsc::channel();
    // In place they stay with the thread, and go with it.
    let thread = std::thread::spawn(move || {
        let dispatcher = on.dispatcher();
        for priority in [TaskPriority::Idle, TaskPriority::Demanded].into_iter().cycle().take(100) {
            let owned = Owned(send.clone());
            dispatcher.dispatch(Task::new("queued", priority, move || drop(owned))).unwrap();
        }
        drop(dispatcher);
    });
    thread.join().unwrap();
    assert_eq!(ends.iter().count(), 100);
}

fn a_session_dropped_with_lookups_open(on: On) {
    let (session, main) = on.session();
    define_ring(&main, 50);
    let parked = define_parked(&main, "parked", &["parked"]);
    let answers: Vec<_> =
        (0..50).map(|index| look_up_later(&session, request(&main, &[&format!("s{index}")]))).collect();
    let waits = look_up_later(&session, request(&main, &["parked"]));
    drop((session, main));
    answers.iter().for_each(|answer| assert!(answer.recv().unwrap().is_ok()));
    finish(parked.recv().unwrap().attach());
    assert!(waits.recv().unwrap().is_ok());
}

/// More address space than there is.
const NO_STACK: usize = 1 << 50;

#[test]
fn a_lookup_on_a_pool_without_threads_is_an_error() {
    within_reason(|| {
        let pool =
            WorkStealingTaskDispatcher::builder().workers(2).stack_size_bytes(NO_STACK).build().unwrap();
        let (session, main) = session_on(Arc::new(pool));
        define_simple(&main, "unit", &["a"]);
        let cause = failure_of(session.lookup_symbol(&order(&main), &session.intern("a")));
        assert!(matches!(cause, FailureCause::NotDispatched), "{cause}");
        assert!(look_up_later(&session, request(&main, &["a"])).recv().unwrap().is_err());
        session.close().unwrap();
    });
}

#[test]
fn a_lookup_on_the_only_thread_of_a_host_without_spares_is_an_error() {
    within_reason(|| {
        let host = Arc::new(rayon_core::ThreadPoolBuilder::new().num_threads(1).build().unwrap());
        let dispatcher =
            RayonTaskDispatcher::in_pool(host.clone()).stack_size_bytes(NO_STACK).build().unwrap();
        let (session, main) = session_on(Arc::new(dispatcher));
        define_simple(&main, "unit", &["a"]);
        define_simple(&main, "other", &["b"]);
        let error = host.install(|| session.lookup_symbol(&order(&main), &session.intern("a"))).unwrap_err();
        assert!(matches!(error, LookupError::Wait(_)), "{error}");
        assert!(error.in_full().contains("refused a thread"), "{error}");
        // From elsewhere it is served by the host's thread.
        session.lookup_symbol(&order(&main), &session.intern("b")).unwrap();
        session.close().unwrap();
    });
}
