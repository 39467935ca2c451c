//! What goes wrong, on every dispatcher: the same faults in place, on work-stealing pools and inside rayon's.
//!
//! Stacks of 256 KiB: whatever nests by the ten thousand overflows them.

use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Latch, Mutex};
use uruk_core::{
    ExecutionSession, FailureCause, JitDylib, LookupError, SessionError, Task, TaskPriority, WaitError,
};
use uruk_dispatch::{RayonTaskDispatcher, WorkStealingTaskDispatcher};

mod on;
use on::{On, STACK_SIZE_BYTES, on_every_dispatcher};

impl On {
    /// A session on it, with a dylib `main`.
    fn session(self) -> (ExecutionSession, JitDylib) {
        let session = ExecutionSession::builder().dispatcher(self.dispatcher()).build();
        let main = session.create_jit_dylib("main").expect("the first dylib has a name of its own");
        (session, main)
    }

    /// The same, and what it reports.
    fn reporting_session(self) -> (ExecutionSession, JitDylib, mpsc::Receiver<String>) {
        let (send, reports) = mpsc::channel();
        let session = ExecutionSession::builder()
            .dispatcher(self.dispatcher())
            // The test may have ended.
            .error_reporter(Arc::new(move |error: &SessionError| drop(send.send(error.to_string()))))
            .build();
        let main = session.create_jit_dylib("main").expect("the first dylib has a name of its own");
        (session, main, reports)
    }
}

on_every_dispatcher! {
    a_unit_that_panics_fails_its_symbols_with_its_message,
    a_unit_that_panics_over_and_over_costs_no_thread,
    a_payload_that_panics_when_it_is_dropped_does_no_harm,
    a_leaf_that_would_block_is_refused,
    handlers_that_panic_are_reported_and_the_rest_are_told,
    a_handler_that_looks_up_defines_and_removes,
    handlers_that_look_up_again_ten_thousand_deep,
    handlers_that_look_up_what_is_ready_ten_thousand_deep,
    wakers_that_poll_ten_thousand_deep,
    values_whose_drops_look_up_ten_thousand_deep,
    handlers_that_block_in_lookups,
    handlers_that_block_declared,
    shutdown_during_work,
    shutdown_from_a_unit_twice,
    shutdown_from_a_handler_twice,
    shutdown_from_many_threads_at_once,
    a_dispatcher_shut_down_beneath_its_session,
    a_dispatcher_dropped_with_tasks_queued,
    a_session_dropped_with_lookups_open,
}

/// Runs `code` on a thread with a small stack, on which tasks in place lie.
fn on_a_small_stack(code: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(STACK_SIZE_BYTES).spawn(code).unwrap().join().unwrap();
}

fn define_panicking(main: &JitDylib, name: &str, message: &'static str) {
    let symbols = exported(main.session(), &[name]);
    let unit = TestUnit::new(name, symbols, move |_responsibility| panic!("{message}"));
    main.define(unit.boxed()).unwrap();
}

fn failure_of<T: Debug>(answer: Result<T, LookupError>) -> FailureCause {
    match answer.expect_err("a symbol failed") {
        LookupError::Failed(failure) => failure.cause.clone(),
        error => panic!("{error}"),
    }
}

fn a_unit_that_panics_fails_its_symbols_with_its_message(on: On) {
    let (session, main) = on.session();
    let symbols = exported(&session, &["a", "b"]);
    let unit = TestUnit::new("unit", symbols, |_responsibility| panic!("what the unit said"));
    main.define(unit.boxed()).unwrap();
    for name in ["a", "b"] {
        let cause = failure_of(session.lookup_symbol(&order(&main), &session.intern(name)));
        assert!(matches!(&cause, FailureCause::Panicked(said) if &**said == "what the unit said"), "{cause}");
    }
    session.close().unwrap();
}

fn a_unit_that_panics_over_and_over_costs_no_thread(on: On) {
    let (session, main) = on.session();
    for round in 0..200 {
        let name = format!("bad{round}");
        define_panicking(&main, &name, "again");
        failure_of(session.lookup_symbol(&order(&main), &session.intern(&name)));
    }
    define_simple(&main, "good", &["good"]);
    session.lookup_symbol(&order(&main), &session.intern("good")).unwrap();
    session.close().unwrap();
}

fn a_payload_that_panics_when_it_is_dropped_does_no_harm(on: On) {
    struct Nasty;
    impl Drop for Nasty {
        fn drop(&mut self) {
            std::panic::panic_any(Nasty);
        }
    }
    let (session, main) = on.session();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), |_| std::panic::panic_any(Nasty));
    main.define(unit.boxed()).unwrap();
    failure_of(session.lookup_symbol(&order(&main), &session.intern("a")));
    session.lookup_async(request(&main, &["a"]), |_| std::panic::panic_any(Nasty));
    session.dispatch(Task::new("nasty", TaskPriority::Demanded, || std::panic::panic_any(Nasty)));
    define_simple(&main, "good", &["good"]);
    session.lookup_symbol(&order(&main), &session.intern("good")).unwrap();
    session.close().unwrap();
}

/// It has declared never to block, so whoever runs it need not be replaced.
fn a_leaf_that_would_block_is_refused(on: On) {
    let (session, main) = on.session();
    define_simple(&main, "other", &["other"]);
    let (send, told) = mpsc::channel();
    let unit = TestUnit::new("leaf", exported(&session, &["leaf"]), move |responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        let looked_up = session.lookup_symbol(&order(&main), &session.intern("other")).map(drop);
        let declared = session.blocking(|| ());
        send.send((looked_up, declared)).unwrap();
        finish(responsibility);
    });
    main.define(unit.leaf().boxed()).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("leaf")).unwrap();
    let (looked_up, declared) = told.recv().unwrap();
    assert!(matches!(looked_up, Err(LookupError::Wait(WaitError::Leaf { .. }))), "{looked_up:?}");
    assert!(matches!(declared, Err(WaitError::Leaf { .. })), "{declared:?}");
    session.lookup_symbol(&order(&main), &session.intern("other")).unwrap();
    session.close().unwrap();
}

fn handlers_that_panic_are_reported_and_the_rest_are_told(on: On) {
    const HANDLERS: usize = 100;
    let (session, main, reports) = on.reporting_session();
    let parked = define_parked(&main, "parked", &["a"]);
    let (send, told) = mpsc::channel();
    for index in 0..HANDLERS {
        let send = send.clone();
        session.lookup_async(request(&main, &["a"]), move |answer| {
            send.send(answer.is_ok()).unwrap();
            assert!(index % 2 == 0, "handler {index} has had enough");
        });
    }
    drop(send);
    finish(parked.recv().unwrap().attach());
    assert_eq!(told.iter().filter(|answered| *answered).count(), HANDLERS);
    session.close().unwrap();
    drop((session, main));
    let panics: Vec<_> = reports.try_iter().filter(|report| report.contains("has had enough")).collect();
    assert_eq!(panics.len(), HANDLERS / 2);
}

fn a_handler_that_looks_up_defines_and_removes(on: On) {
    let (session, main) = on.session();
    define_simple(&main, "first", &["first"]);
    define_simple(&main, "second", &["second"]);
    let tracker = main.create_tracker();
    let unit = TestUnit::new("removed", exported(&session, &["removed"]), finish);
    main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("removed")).unwrap();
    let (send, told) = mpsc::channel();
    let (inner, dylib) = (session.clone(), main.clone());
    session.lookup_async(request(&main, &["first"]), move |answer| {
        answer.unwrap();
        let look_up = |name| inner.lookup_symbol(&order(&dylib), &inner.intern(name));
        look_up("second").unwrap();
        define_simple(&dylib, "third", &["third"]);
        look_up("third").unwrap();
        tracker.remove().unwrap();
        assert!(matches!(look_up("removed"), Err(LookupError::NotFound { .. })));
        let other = inner.create_jit_dylib("other").unwrap();
        define_simple(&other, "fourth", &["fourth"]);
        inner.remove_jit_dylib(&other).unwrap();
        // All of it has happened, so that nothing of it has panicked.
        send.send(()).unwrap();
    });
    told.recv().unwrap();
    session.close().unwrap();
}

/// Where every transaction is checked, less will do: 130 bytes a level overflow the stack.
const DEEP: usize = if cfg!(debug_assertions) { 2_000 } else { 10_000 };

/// Looks up `s<index>` and in the handler the next, to the last.
fn look_up_deep(main: JitDylib, index: usize, done: mpsc::Sender<()>) {
    let session = main.session().clone();
    session.clone().lookup_async(request(&main, &[&format!("s{index}")]), move |answer| {
        answer.unwrap();
        match index + 1 {
            DEEP => done.send(()).unwrap(),
            next => look_up_deep(main, next, done),
        }
    });
}

fn define_deep(main: &JitDylib) {
    for index in 0..DEEP {
        let name = format!("s{index}");
        define_simple(main, &name, &[&name]);
    }
}

fn handlers_that_look_up_again_ten_thousand_deep(on: On) {
    on_a_small_stack(move || {
        let (session, main) = on.session();
        define_deep(&main);
        let (done, told) = mpsc::channel();
        look_up_deep(main, 0, done);
        told.recv().unwrap();
        session.close().unwrap();
    });
}

fn handlers_that_look_up_what_is_ready_ten_thousand_deep(on: On) {
    on_a_small_stack(move || {
        let (session, main) = on.session();
        define_deep(&main);
        let names: Vec<_> = (0..DEEP).map(|index| format!("s{index}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        look_up_later(&session, request(&main, &names)).recv().unwrap().unwrap();
        let (done, told) = mpsc::channel();
        look_up_deep(main, 0, done);
        told.recv().unwrap();
        session.close().unwrap();
    });
}

/// Each waker polls the next future for the first time, which may be answered at once.
fn wakers_that_poll_ten_thousand_deep(on: On) {
    struct Polls {
        main: JitDylib,
        next: usize,
        /// The futures that wait, which are withdrawn when they are dropped.
        futures: Arc<Mutex<Vec<uruk_core::SymbolFuture>>>,
        done: Mutex<Option<mpsc::Sender<()>>>,
    }
    impl std::task::Wake for Polls {
        fn wake(self: Arc<Self>) {
            let Some(done) = self.done.lock().take() else { return };
            if self.next == DEEP {
                return done.send(()).unwrap();
            }
            let main = &self.main;
            let mut future = main.session().lookup_future(request(main, &[&format!("s{}", self.next)]));
            let futures = self.futures.clone();
            let waker = Arc::new(Self {
                main: main.clone(),
                next: self.next + 1,
                futures: futures.clone(),
                done: Mutex::new(Some(done)),
            });
            let polled = std::pin::Pin::new(&mut future)
                .poll(&mut std::task::Context::from_waker(&waker.clone().into()));
            if polled.is_ready() {
                // Nobody wakes for an answer that was given; what an executor would do next.
                main.session().dispatch(Task::new("goes on", TaskPriority::Demanded, move || waker.wake()));
            }
            futures.lock().push(future);
        }
    }
    on_a_small_stack(move || {
        let (session, main) = on.session();
        define_deep(&main);
        let (done, told) = mpsc::channel();
        let futures = Arc::new(Mutex::new(Vec::new()));
        let first = Polls { main, next: 0, futures: futures.clone(), done: Mutex::new(Some(done)) };
        std::task::Wake::wake(Arc::new(first));
        told.recv().unwrap();
        session.close().unwrap();
        drop(std::mem::take(&mut *futures.lock()));
    });
}

/// A unit is dropped because it lost its last symbol; its drop removes the next.
fn values_whose_drops_look_up_ten_thousand_deep(on: On) {
    struct LooksUp(JitDylib, usize, mpsc::Sender<()>);
    impl Drop for LooksUp {
        fn drop(&mut self) {
            let (main, next) = (self.0.clone(), self.1 + 1);
            if next == DEEP {
                return self.2.send(()).unwrap();
            }
            let owned = LooksUp(main.clone(), next, self.2.clone());
            // Dropped uncalled or after its call: either is a drop of the embedder's value.
            main.session().clone().lookup_async(request(&main, &["ready"]), move |_answer| drop(owned));
        }
    }
    on_a_small_stack(move || {
        let (session, main) = on.session();
        define_simple(&main, "ready", &["ready"]);
        let (done, told) = mpsc::channel();
        drop(LooksUp(main, 0, done));
        told.recv().unwrap();
        session.close().unwrap();
    });
}

/// All of them block at once, in lookups of what somebody else emits when the last has begun.
fn handlers_that_block_in_lookups(on: On) {
    // In place they nest.
    let handlers = if on == On::Place { 20 } else { 300 };
    let (session, main) = on.session();
    let start = define_parked(&main, "start", &["start"]);
    let parked = define_parked(&main, "parked", &["parked"]);
    let begun = Arc::new((AtomicUsize::new(0), Latch::new()));
    let finisher = std::thread::spawn({
        let (session, main, begun) = (session.clone(), main.clone(), begun.clone());
        move || {
            let answer = look_up_later(&session, request(&main, &["parked"]));
            begun.1.wait();
            finish(parked.recv().unwrap().attach());
            answer.recv().unwrap().unwrap();
        }
    });
    let (send, told) = mpsc::channel();
    for _ in 0..handlers {
        let (inner, dylib, begun, send) = (session.clone(), main.clone(), begun.clone(), send.clone());
        session.lookup_async(request(&main, &["start"]), move |_| {
            // Relaxed: the latch orders what follows.
            if begun.0.fetch_add(1, Ordering::Relaxed) + 1 == handlers {
                begun.1.open();
            }
            send.send(inner.lookup_symbol(&order(&dylib), &inner.intern("parked")).map(drop)).unwrap();
        });
    }
    drop(send);
    finish(start.recv().unwrap().attach());
    told.iter().for_each(|answer| answer.unwrap());
    finisher.join().unwrap();
    session.close().unwrap();
}

/// Each waits for the last to begin, by means that the session cannot see, and says so.
fn handlers_that_block_declared(on: On) {
    let handlers = if on == On::Place { 20 } else { 300 };
    let (session, main) = on.session();
    let parked = define_parked(&main, "parked", &["a"]);
    let begun = Arc::new((AtomicUsize::new(0), Latch::new()));
    let (send, told) = mpsc::channel();
    for _ in 0..handlers {
        let (inner, begun, send) = (session.clone(), begun.clone(), send.clone());
        session.lookup_async(request(&main, &["a"]), move |_| {
            // Relaxed: the latch orders what follows.
            match begun.0.fetch_add(1, Ordering::Relaxed) + 1 {
                last if last == handlers => begun.1.open(),
                _ => inner.blocking(|| begun.1.wait()).unwrap(),
            }
            send.send(()).unwrap();
        });
    }
    drop(send);
    finish(parked.recv().unwrap().attach());
    assert_eq!(told.iter().count(), handlers);
    session.close().unwrap();
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
    let session = ExecutionSession::builder().dispatcher(dispatcher.clone()).build();
    let main = session.create_jit_dylib("main").unwrap();
    define_simple(&main, "early", &["early"]);
    define_simple(&main, "late", &["late"]);
    session.lookup_symbol(&order(&main), &session.intern("early")).unwrap();
    dispatcher.shutdown();
    let cause = failure_of(session.lookup_symbol(&order(&main), &session.intern("late")));
    assert!(matches!(cause, FailureCause::NotDispatched), "{cause}");
    // What is Ready is still answered, by handlers too.
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
        let session = ExecutionSession::builder().dispatcher(Arc::new(pool)).build();
        let main = session.create_jit_dylib("main").unwrap();
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
        let session = ExecutionSession::builder().dispatcher(Arc::new(dispatcher)).build();
        let main = session.create_jit_dylib("main").unwrap();
        define_simple(&main, "unit", &["a"]);
        define_simple(&main, "other", &["b"]);
        let error = host.install(|| session.lookup_symbol(&order(&main), &session.intern("a"))).unwrap_err();
        assert!(matches!(error, LookupError::Wait(_)), "{error}");
        assert!(error.to_string().contains("refused a thread"), "{error}");
        // From elsewhere it is served by the host's thread.
        session.lookup_symbol(&order(&main), &session.intern("b")).unwrap();
        session.close().unwrap();
    });
}
