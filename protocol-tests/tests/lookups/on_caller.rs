//! Lookups whose units run on the thread that asks, and lookups that block without being demanded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, ThreadId};

use protocol_tests::*;
use uruk_core::sync::{Latch, Mutex};
use uruk_core::{
    Deadline, ExecutionSession, InPlaceTaskDispatcher, JitDylib, LookupError, LookupRequest, Shutdown, Task,
    TaskDispatcher, TaskPriority, WaitError, Why, WhyState,
};

/// Defines a unit that says on which thread it ran.
fn define_telling_thread(dylib: &JitDylib, name: &str, symbols: &[&str]) -> mpsc::Receiver<ThreadId> {
    let (tell, told) = mpsc::channel();
    let unit = TestUnit::new(name, exported(dylib.session(), symbols), move |responsibility| {
        tell.send(thread::current().id()).unwrap();
        finish(responsibility);
    });
    dylib.define(unit.boxed()).unwrap();
    told
}

/// Defines a unit that blocks in a lookup of `needs` before it finishes, and says on which thread it ran.
fn define_needing(
    dylib: &JitDylib,
    symbol: &str,
    needs: impl Fn(&ExecutionSession, &JitDylib) -> Result<(), LookupError> + Send + 'static,
) -> mpsc::Receiver<ThreadId> {
    let (tell, told) = mpsc::channel();
    let unit = TestUnit::new(symbol, exported(dylib.session(), &[symbol]), move |responsibility| {
        tell.send(thread::current().id()).unwrap();
        needs(responsibility.session(), responsibility.dylib()).unwrap();
        finish(responsibility);
    });
    dylib.define(unit.boxed()).unwrap();
    told
}

fn here() -> ThreadId {
    thread::current().id()
}

/// A session on a pool that has retired.
fn retired() -> (ExecutionSession, JitDylib) {
    let pool = pool(1);
    let (session, main) = session_on(pool.clone());
    pool.shutdown();
    (session, main)
}

#[test]
fn what_a_lookup_claims_runs_on_its_thread() {
    for (session, main) in [session(), session_of(1), session_of(2), retired()] {
        let one = define_telling_thread(&main, "one", &["a"]);
        let another = define_telling_thread(&main, "another", &["b", "c"]);
        let found = session.lookup(request(&main, &["a", "b"]).here()).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((one.try_recv(), another.try_recv()), (Ok(here()), Ok(here())));
        session.lookup(request(&main, &["c"]).here()).unwrap();
        session.close().unwrap();
    }
}

#[test]
fn units_of_one_lookup_may_wait_for_each_other() {
    // In both orders: a queue holds the second one when the first one blocks.
    for (first, second) in [("a", "b"), ("b", "a")] {
        for (session, main) in [session(), session_of(1), retired()] {
            let a = define_needing(&main, "a", |session, main| {
                session.lookup_symbol(&order(main), &session.intern("b")).map(drop)
            });
            let b = define_telling_thread(&main, "b", &["b"]);
            session.lookup(request(&main, &[first, second]).here()).unwrap();
            assert_eq!((a.try_recv(), b.try_recv()), (Ok(here()), Ok(here())));
            session.close().unwrap();
        }
    }
}

#[test]
fn a_unit_on_its_caller_may_look_up_in_the_same_way() {
    for (session, main) in [session(), session_of(1), retired()] {
        let outer = define_needing(&main, "outer", |session, main| {
            session.lookup(request(main, &["inner"]).here()).map(drop)
        });
        let inner = define_telling_thread(&main, "inner", &["inner"]);
        session.lookup(request(&main, &["outer"]).here()).unwrap();
        assert_eq!((outer.try_recv(), inner.try_recv()), (Ok(here()), Ok(here())));
        session.close().unwrap();
    }
}

#[test]
fn a_worker_runs_what_it_looks_up_itself() {
    let (session, main) = session_of(1);
    let outer = define_needing(&main, "outer", |session, main| {
        session.lookup(request(main, &["inner"]).here()).map(drop)
    });
    let inner = define_telling_thread(&main, "inner", &["inner"]);
    session.lookup_symbol(&order(&main), &session.intern("outer")).unwrap();
    let worker = outer.try_recv().unwrap();
    assert_ne!(worker, here());
    assert_eq!(inner.try_recv(), Ok(worker));
}

#[test]
fn on_a_retired_pool_everything_that_is_needed_runs_on_the_caller() {
    let (session, main) = retired();
    // Needed without a wait, by an emission that depends on it, as a linker does.
    let unit = TestUnit::new("linked", exported(&session, &["linked"]), |responsibility| {
        let needs = request(responsibility.dylib(), &["callee"]);
        emit_depending_on(resolve(responsibility), needs);
    });
    main.define(unit.boxed()).unwrap();
    let callee = define_needing(&main, "callee", |session, main| {
        session.lookup_symbol(&order(main), &session.intern("leaf")).map(drop)
    });
    let leaf = define_telling_thread(&main, "leaf", &["leaf"]);
    session.lookup(request(&main, &["linked"]).here()).unwrap();
    assert_eq!((callee.try_recv(), leaf.try_recv()), (Ok(here()), Ok(here())));
    // An ordinary lookup has no thread that runs its units, as ever.
    define_simple(&main, "other", &["other"]);
    let refused = session.lookup_symbol(&order(&main), &session.intern("other")).unwrap_err();
    assert!(matches!(refused, LookupError::Failed(_)), "{refused}");
}

#[test]
fn of_many_threads_that_ask_one_runs_the_unit() {
    const THREADS: usize = 16;
    let (session, main) = session_of(2);
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        counted.fetch_add(1, Ordering::SeqCst);
        finish(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    let start = Latch::new();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                session.lookup(request(&main, &["a"]).here()).unwrap();
            });
        }
        start.open();
    });
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn a_unit_that_waits_for_its_own_symbol_on_its_caller_is_a_deadlock() {
    for (session, main) in [session(), session_of(1), retired()] {
        let (tell, told) = mpsc::channel();
        let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
            let session = responsibility.session().clone();
            let error = session.lookup(request(responsibility.dylib(), &["a"]).here()).unwrap_err();
            tell.send(matches!(error, LookupError::WouldDeadlock { .. })).unwrap();
            finish(responsibility);
        });
        main.define(unit.boxed()).unwrap();
        session.lookup(request(&main, &["a"]).here()).unwrap();
        assert_eq!(told.try_recv(), Ok(true));
    }
}

#[test]
fn a_panic_on_the_caller_fails_the_symbols_and_the_caller_goes_on() {
    for (session, main) in [session(), session_of(1), retired()] {
        let unit = TestUnit::new("unit", exported(&session, &["a"]), |_responsibility| panic!("on purpose"));
        main.define(unit.boxed()).unwrap();
        define_simple(&main, "beside", &["b"]);
        let error = session.lookup(request(&main, &["a", "b"]).here()).unwrap_err();
        assert!(error.in_full().contains("on purpose"), "{error}");
        // The unit claimed beside it is neither lost nor left on this thread.
        session.lookup(request(&main, &["b"]).here()).unwrap();
        session.close().unwrap();
    }
}

#[test]
fn a_tracker_that_is_removed_meanwhile_ends_the_lookup() {
    let (session, main) = session_of(1);
    let tracker = main.create_tracker();
    let removed = tracker.clone();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        removed.remove().unwrap();
        drop(responsibility);
    });
    main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    session.lookup(request(&main, &["a"]).here()).unwrap_err();
    define_simple(&main, "again", &["a"]);
    session.lookup(request(&main, &["a"]).here()).unwrap();
}

#[test]
fn what_another_has_claimed_is_waited_for() {
    let (session, main) = session_of(1);
    let parked = define_parked(&main, "parked", &["a"]);
    session.lookup_async(request(&main, &["a"]), |_| {});
    let responsibility = parked.recv().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| session.lookup(request(&main, &["a"]).here()).map(drop));
        finish(responsibility.attach());
        waits.join().unwrap().unwrap();
    });
}

/// Runs tasks in place and notes how urgent they were.
#[derive(Debug, Default)]
struct Noting {
    place: InPlaceTaskDispatcher,
    seen: Mutex<Vec<TaskPriority>>,
}

impl TaskDispatcher for Noting {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        self.seen.lock().push(task.priority());
        self.place.dispatch(task)
    }

    fn run_ready(&self) {
        self.place.run_ready();
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        self.place.wait(latch)
    }

    fn shutdown(&self) {
        self.place.shutdown();
    }
}

#[test]
fn a_lookup_that_blocks_is_as_urgent_as_it_says() {
    let noting = Arc::new(Noting::default());
    let (session, main) = session_on(noting.clone());
    for (name, said, is) in [
        ("idle", Some(TaskPriority::Idle), TaskPriority::Idle),
        ("speculative", Some(TaskPriority::Speculative), TaskPriority::Speculative),
        ("lazy", Some(TaskPriority::Lazy), TaskPriority::Lazy),
        ("nothing", None, TaskPriority::Demanded),
    ] {
        define_simple(&main, name, &[name]);
        let asked = LookupRequest { priority: said, ..request(&main, &[name]) };
        session.lookup(asked).unwrap();
        assert_eq!(*std::mem::take(&mut *noting.seen.lock()), [is], "{name}");
    }
}

#[test]
fn what_runs_on_its_caller_is_not_dispatched() {
    let noting = Arc::new(Noting::default());
    let (session, main) = session_on(noting.clone());
    define_simple(&main, "demanded", &["a"]);
    define_simple(&main, "speculative", &["b"]);
    session.lookup(request(&main, &["a"]).here()).unwrap();
    session.lookup(request(&main, &["b"]).at(TaskPriority::Speculative).here()).unwrap();
    assert_eq!(*noting.seen.lock(), []);
}

fn why(main: &JitDylib, name: &str) -> Why {
    main.session().why(main, &main.session().intern(name))
}

#[test]
fn why_says_what_a_unit_on_its_caller_is_blocked_in() {
    let session = ExecutionSession::builder().dispatcher(pool(1)).build();
    let main = session.create_jit_dylib("main").unwrap();
    let x = define_parked(&main, "X", &["x"]);
    let a = define_needing(&main, "a", |session, main| {
        session.lookup_symbol(&order(main), &session.intern("x")).map(drop)
    });
    // The dispatcher runs X, for a unit's own lookups do not run on its caller. So the unit is about to wait when X runs.
    let (tell, told) = mpsc::channel();
    let looks_on = thread::spawn({
        let main = main.clone();
        move || {
            let parked = x.recv().unwrap();
            tell.send((why(&main, "a"), why(&main, "x"))).unwrap();
            finish(parked.attach());
        }
    });
    session.lookup(request(&main, &["a"]).here()).unwrap();
    looks_on.join().unwrap();
    assert_eq!(a.try_recv(), Ok(here()));
    let (a, x) = told.recv().unwrap();
    let WhyState::Materializing(work) = &a.state else { panic!("{a}") };
    let blocked_in = work.blocked_in.as_ref().expect("it asked before X ran");
    assert_eq!(blocked_in.symbols[0].symbol.as_str(), "x");
    assert_eq!(x.demand.symbols.symbols[0].symbol.as_str(), "a", "{x}");
}

/// Both units are queued on the caller. The one that begins closes the session, which lets the other go on the same stack.
#[test]
fn a_close_that_cancels_ends_the_lookup_and_what_has_not_begun() {
    for (session, main) in [session(), session_of(1), retired()] {
        let (tell, told) = mpsc::channel();
        for name in ["a", "b"] {
            let tell = tell.clone();
            let unit = TestUnit::new(name, exported(&session, &[name]), move |responsibility| {
                tell.send(thread::current().id()).unwrap();
                responsibility.session().close_with(Shutdown::Cancel).unwrap();
                responsibility.notify_resolved(&Default::default()).unwrap_err();
            });
            main.define(unit.boxed()).unwrap();
        }
        drop(tell);
        let error = session.lookup(request(&main, &["a", "b"]).here()).unwrap_err();
        assert!(matches!(error, LookupError::Closed), "{error}");
        assert_eq!(told.iter().collect::<Vec<_>>(), [here()]);
    }
}

/// The first unit turns the clock on.
#[test]
fn a_deadline_ends_the_lookup_and_gives_back_what_has_not_begun() {
    let hour = std::time::Duration::from_secs(3600);
    for dispatcher in [None, Some(pool(1))] {
        let hand = Arc::new(Mutex::new(std::time::Instant::now()));
        let deadline = Deadline::at(*hand.lock() + hour);
        let clock = hand.clone();
        let builder = ExecutionSession::builder().clock(Arc::new(move || *clock.lock()));
        let session = match dispatcher {
            Some(pool) => builder.dispatcher(pool).build(),
            None => builder.build(),
        };
        let main = session.create_jit_dylib("main").unwrap();
        let (tell, told) = mpsc::channel();
        for name in ["a", "b"] {
            let (tell, hand) = (tell.clone(), hand.clone());
            let unit = TestUnit::new(name, exported(&session, &[name]), move |responsibility| {
                tell.send((name, thread::current().id())).unwrap();
                *hand.lock() += hour;
                finish(responsibility);
            });
            main.define(unit.boxed()).unwrap();
        }
        let error = session.lookup(request(&main, &["a", "b"]).until(deadline).here()).unwrap_err();
        assert!(matches!(error, LookupError::DeadlineExceeded { .. }), "{error}");
        let (begun, thread) = told.try_recv().unwrap();
        assert_eq!((thread, told.try_recv().is_err()), (here(), true));
        let other = if begun == "a" { "b" } else { "a" };
        assert!(matches!(why(&main, begun).state, WhyState::Ready { .. }));
        assert!(matches!(why(&main, other).state, WhyState::Returned { .. }), "{}", why(&main, other));
        session.lookup(request(&main, &[other]).here()).unwrap();
        assert_eq!(told.try_recv(), Ok((other, here())));
    }
}
