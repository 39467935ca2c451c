//! The in-place dispatcher, and sessions on plain threads.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

use protocol_tests::*;
use uruk_core::sync::Latch;
use uruk_core::{
    AliasTarget, Deadline, DependenceGroup, Dependency, Detached, ExecutionSession, JitDylib, LookupError,
    LookupRequest, LookupResult, LookupSet, MaterializationResponsibility, ResolvedResponsibility,
    SymbolName, Task, TaskDispatcher, TaskPriority, shared_error, symbol_aliases,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

#[test]
fn handlers_run_after_the_unit_and_not_inside_it() {
    let (session, main) = session();
    let (send, log) = mpsc::channel();
    let unit_log = send.clone();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        finish(responsibility);
        unit_log.send("unit is over").unwrap();
    });
    main.define(unit.boxed()).unwrap();
    session.lookup_async(request(&main, &["a"]), move |_| send.send("handler").unwrap());
    assert_eq!(log.iter().collect::<Vec<_>>(), ["unit is over", "handler"]);
}

#[test]
fn a_lookup_started_in_a_handler_is_served() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a", "b"]);
    define_simple(&main, "other", &["c"]);
    let (inner, dylib) = (session.clone(), main.clone());
    let (send, answers) = mpsc::channel();
    session.lookup_async(request(&main, &["a"]), move |_| {
        send.send(inner.lookup_symbol(&order(&dylib), &inner.intern("c"))).unwrap();
    });
    assert!(answers.try_recv().unwrap().is_ok());
}

/// Defines a thousand units, each of which waits for the next by means of `wait`, and looks the first up on a thread with room for
/// the levels that are allowed.
fn nest_too_deep(
    wait: impl Fn(&ExecutionSession, &JitDylib, &SymbolName) -> Result<(), LookupError> + Copy + Send + 'static,
) {
    let run = move || {
        let (session, main) = session();
        for index in 0..1000 {
            let symbols = exported(&session, &[&format!("s{index}")]);
            let unit = TestUnit::new("unit", symbols, move |responsibility| {
                let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
                match wait(&session, &main, &session.intern(&format!("s{}", index + 1))) {
                    Ok(()) => finish(responsibility),
                    Err(error) => responsibility.fail(Arc::new(error)),
                }
            });
            main.define(unit.boxed()).unwrap();
        }
        define_simple(&main, "last", &["s1000"]);
        let error = session.lookup_symbol(&order(&main), &session.intern("s0")).unwrap_err();
        assert!(matches!(error, LookupError::Failed(_)));
        assert!(error.in_full().contains("nested 256 deep"), "{error}");
        // The stack is free again.
        session.lookup_symbol(&order(&main), &session.intern("s1000")).unwrap();
        session.close().unwrap();
    };
    std::thread::Builder::new().stack_size(16 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn a_deep_chain_of_blocking_lookups_is_an_error_and_not_an_overflow() {
    nest_too_deep(|session, main, next| session.lookup_symbol(&order(main), next).map(drop));
}

#[test]
fn a_deep_chain_of_lookups_with_deadlines_is_an_error_and_not_an_overflow() {
    nest_too_deep(|session, main, next| {
        let in_an_hour = Deadline::after(Duration::from_secs(3600));
        session
            .lookup(LookupRequest::new(order(main), LookupSet::required([next.clone()])).until(in_an_hour))
            .map(drop)
    });
}

/// A declared wait runs the queue as well, in which the next unit is.
#[test]
fn a_deep_chain_of_declared_waits_is_an_error_and_not_an_overflow() {
    nest_too_deep(|session, main, next| {
        let answer = look_up_later(session, request(main, &[next.as_str()]));
        session.blocking(|| answer.recv().unwrap())??;
        Ok(())
    });
}

/// As long as a chain of units can be: none of it may lie on the stack.
const CHAIN: usize = if cfg!(debug_assertions) { 5_000 } else { 1_000_000 };

/// Runs `chain` on a thread whose stack holds no chain: fifty bytes a unit would overflow it.
fn on_a_small_stack(chain: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(256 << 10).spawn(chain).unwrap().join().unwrap();
}

/// Defines `s0` to `s<CHAIN - 1>`, each with a unit that `materialize` gets with the next symbol, and the last symbol.
fn define_chain(
    main: &JitDylib,
    materialize: impl Fn(MaterializationResponsibility, SymbolName) + Clone + Send + 'static,
) {
    let session = main.session();
    for index in 0..CHAIN {
        let (next, materialize) = (session.intern(&format!("s{}", index + 1)), materialize.clone());
        let symbols = exported(session, &[&format!("s{index}")]);
        let unit = TestUnit::new("link", symbols, move |responsibility| materialize(responsibility, next));
        main.define(unit.boxed()).unwrap();
    }
    define_simple(main, "last", &[&format!("s{CHAIN}")]);
}

/// Each unit emits in the handler of its lookup of the next one, so a million lookups are open at once.
#[test]
fn a_long_chain_of_asynchronous_lookups_needs_no_stack() {
    on_a_small_stack(|| {
        let (session, main) = session();
        define_chain(&main, |responsibility, next| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let request = request(&main, &[next.as_str()]);
            let parked = responsibility.detach();
            session.lookup_async(request, move |answer| {
                answer.unwrap();
                finish(parked.attach());
            });
        });
        session.lookup_symbol(&order(&main), &session.intern("s0")).unwrap();
    });
}

/// As linkers do: addresses first, then a dependence on the symbols found.
#[test]
fn a_long_chain_of_lookups_until_resolved_needs_no_stack() {
    on_a_small_stack(|| {
        let (session, main) = session();
        define_chain(&main, |responsibility, next| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let definitions = addresses(responsibility.symbols());
            let resolved = responsibility.notify_resolved(&definitions).unwrap().detach();
            let request = request(&main, &[next.as_str()]).until_resolved();
            session.lookup_async(request, move |answer| {
                let resolved = resolved.attach();
                let symbols = resolved.symbols().keys().cloned().collect();
                let dependencies = answer.unwrap().dependencies();
                resolved.notify_emitted(vec![DependenceGroup { symbols, dependencies }]).unwrap();
            });
        });
        session.lookup_symbol(&order(&main), &session.intern("s0")).unwrap();
    });
}

/// A million units in progress, none of which looks anything up, and each depends on the next; gives the tokens' owners
/// in order, with everybody resolved.
fn resolved_chain() -> (ExecutionSession, Vec<Detached<ResolvedResponsibility>>, Answer) {
    let (session, main) = session();
    let (send, parked) = mpsc::channel();
    let names: Vec<_> = (0..CHAIN).map(|index| session.intern(&format!("s{index}"))).collect();
    for name in &names {
        let send = send.clone();
        let symbols = [(name.clone(), EXPORTED)].into_iter().collect();
        let unit = TestUnit::new("link", symbols, move |responsibility| {
            let definitions = addresses(responsibility.symbols());
            send.send(responsibility.notify_resolved(&definitions).unwrap().detach()).unwrap();
        });
        main.define(unit.boxed()).unwrap();
    }
    let request = LookupRequest::new(order(&main), LookupSet::required(names));
    let answer = look_up_later(&session, request);
    (session, parked.try_iter().collect(), answer)
}

type Answer = mpsc::Receiver<Result<LookupResult, LookupError>>;

/// The one symbol of a unit, and the token for it.
fn token(resolved: &ResolvedResponsibility) -> (SymbolName, Dependency) {
    let name = resolved.symbols().keys().next().unwrap().clone();
    let token = resolved.dependency(&name).unwrap();
    (name, token)
}

/// Emits all but the last, each with a dependence on the one before it in `chain`, nearest to the end last; gives the last.
fn emit_chain(mut chain: Vec<Detached<ResolvedResponsibility>>) -> ResolvedResponsibility {
    let mut chain: Vec<_> = chain.drain(..).map(Detached::attach).collect();
    let tokens: Vec<_> = chain.iter().map(token).collect();
    let last = chain.pop().unwrap();
    for ((resolved, (name, _)), (_, next)) in chain.into_iter().zip(&tokens).zip(&tokens[1..]) {
        let group = DependenceGroup { symbols: vec![name.clone()], dependencies: vec![*next] };
        resolved.notify_emitted(vec![group]).unwrap();
    }
    last
}

/// All steps happen in one: the last emission makes everything Ready.
#[test]
fn a_long_chain_of_dependences_needs_no_stack() {
    on_a_small_stack(|| {
        let (_session, chain, answer) = resolved_chain();
        let last = emit_chain(chain);
        assert!(answer.try_recv().is_err(), "the last symbol is not emitted");
        last.notify_emitted(Vec::new()).unwrap();
        assert_eq!(answer.try_recv().unwrap().unwrap().len(), CHAIN);
    });
}

#[test]
fn a_failure_at_the_end_of_a_long_chain_of_dependences_needs_no_stack() {
    on_a_small_stack(|| {
        let (session, chain, answer) = resolved_chain();
        emit_chain(chain).fail(shared_error("the last link"));
        let error = answer.try_recv().unwrap().unwrap_err();
        assert!(error.in_full().contains("the last link"), "{error}");
        session.close().unwrap();
    });
}

/// The unit of an alias looks its source up.
#[test]
fn a_long_chain_of_aliases_needs_no_stack() {
    on_a_small_stack(|| {
        let (session, main) = session();
        for index in 0..CHAIN {
            let target = AliasTarget { source: session.intern(&format!("s{}", index + 1)), flags: EXPORTED };
            let alias = session.intern(&format!("s{index}"));
            main.define(symbol_aliases([(alias, target)].into_iter().collect())).unwrap();
        }
        define_simple(&main, "last", &[&format!("s{CHAIN}")]);
        session.lookup_symbol(&order(&main), &session.intern("s0")).unwrap();
    });
}

#[test]
fn two_threads_materialize_each_unit_once() {
    for _ in 0..20 {
        let (session, main) = session();
        let runs = Arc::new(AtomicUsize::new(0));
        for index in 0..100 {
            let runs = runs.clone();
            let unit =
                TestUnit::new("unit", exported(&session, &[&format!("s{index}")]), move |responsibility| {
                    // Counted on two threads and read after both are joined.
                    runs.fetch_add(1, Ordering::Relaxed);
                    finish(responsibility);
                });
            main.define(unit.boxed()).unwrap();
        }
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for index in 0..100 {
                        session.lookup_symbol(&order(&main), &session.intern(&format!("s{index}"))).unwrap();
                    }
                });
            }
        });
        assert_eq!(runs.load(Ordering::Relaxed), 100);
    }
}

#[test]
fn a_lookup_waits_for_a_unit_that_runs_on_another_thread() {
    let (session, main) = session();
    let (started, go_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    let (start, wait) = (started.clone(), go_on.clone());
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        start.open();
        wait.wait();
        finish(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| session.lookup_symbol(&order(&main), &session.intern("a")).unwrap());
        started.wait();
        let later = look_up_later(&session, request(&main, &["a"]));
        assert!(later.try_recv().is_err());
        let second = scope.spawn(|| session.lookup_symbol(&order(&main), &session.intern("a")));
        go_on.open();
        second.join().unwrap().unwrap();
        assert!(later.recv().unwrap().is_ok());
    });
}

#[test]
fn a_responsibility_may_be_finished_on_another_thread() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let answer = look_up_later(&session, request(&main, &["a"]));
    std::thread::spawn(move || finish(parked.recv().unwrap().attach())).join().unwrap();
    assert!(answer.recv().unwrap().is_ok());
}

#[test]
fn tasks_of_the_embedder_run_on_the_sessions_dispatcher() {
    let (session, _main) = session();
    let (send, ran) = mpsc::channel();
    session.dispatch(Task::new("mine", TaskPriority::Idle, move || send.send(()).unwrap()));
    ran.try_recv().unwrap();
    session.dispatch(Task::new("panics", TaskPriority::Idle, || panic!("on purpose")));
}

/// Takes a number of tasks and then no more.
#[derive(Debug)]
struct Refuses {
    left: AtomicUsize,
    inner: uruk_core::InPlaceTaskDispatcher,
}

impl TaskDispatcher for Refuses {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        // Used from one thread at a time.
        match self.left.load(Ordering::Relaxed) {
            0 => Err(task),
            left => {
                self.left.store(left - 1, Ordering::Relaxed);
                self.inner.dispatch(task)
            }
        }
    }

    fn run_ready(&self) {
        self.inner.run_ready();
    }

    fn shutdown(&self) {
        self.inner.shutdown();
    }
}

#[test]
fn a_dispatcher_that_refuses_fails_the_symbols_and_every_handler_is_told() {
    for allowed in 0..4 {
        let dispatcher = Refuses { left: AtomicUsize::new(allowed), inner: Default::default() };
        let (session, main) = session_on(Arc::new(dispatcher));
        for name in ["a", "b", "c"] {
            define_simple(&main, name, &[name]);
        }
        let answer = look_up_later(&session, request(&main, &["a", "b", "c"]));
        assert_eq!(answer.try_recv().unwrap().is_ok(), allowed >= 3);
        let blocking = session.lookup_symbol(&order(&main), &session.intern("c"));
        assert_eq!(blocking.is_ok(), allowed >= 3);
    }
}

/// A session in place is used inside a task of another session: that one's tasks end later, this one's run at once.
#[test]
fn a_session_inside_a_task_of_another_answers_at_once() {
    within_reason(|| {
        let pool = WorkStealingTaskDispatcher::builder().workers(1).build().unwrap();
        let outer = ExecutionSession::builder().dispatcher(Arc::new(pool)).build();
        let (tells, told) = mpsc::channel();
        outer.dispatch(Task::new("outer", TaskPriority::Demanded, move || {
            let (inner, main) = session();
            define_simple(&main, "unit", &["a", "b"]);
            let (answers, answer) = mpsc::channel();
            inner.lookup_async(request(&main, &["a"]), move |found| answers.send(found.is_ok()).unwrap());
            let mut future = pin!(inner.lookup_future(request(&main, &["b"])));
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker()));
            tells.send((answer.try_recv(), matches!(polled, Poll::Ready(Ok(_))))).unwrap();
        }));
        assert_eq!(told.recv().unwrap(), (Ok(true), true));
    });
}
