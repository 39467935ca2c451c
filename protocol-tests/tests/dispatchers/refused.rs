//! Dispatchers that take no tasks, or take them and let them go: everybody who asked is told all the same.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};

use protocol_tests::*;
use uruk_core::sync::Mutex;
use uruk_core::{
    ExecutionSession, FailureCause, JitDylib, LookupError, Task, TaskDispatcher, absolute_symbols,
};

/// A session whose pool takes no tasks any more, with a dylib `main`.
fn session_without_threads() -> (ExecutionSession, JitDylib) {
    let pool = pool(1);
    pool.shutdown();
    let (session, main) = session_on(pool);
    (session, main)
}

/// Keeps tasks until it is told to forget them.
#[derive(Debug, Default)]
struct Forgets(Mutex<Vec<Task>>);

impl Forgets {
    fn forget(&self) {
        let forgotten = std::mem::take(&mut *self.0.lock());
        drop(forgotten);
    }
}

impl TaskDispatcher for Forgets {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        self.0.lock().push(task);
        Ok(())
    }

    fn shutdown(&self) {
        self.forget();
    }
}

/// The unit was refused and lay in this thread's own queue, while the thread waited on the pool for it.
#[test]
fn a_handler_that_nobody_dispatches_may_wait_for_a_lookup() {
    let error = within_reason(|| {
        let (session, main) = session_without_threads();
        define_simple(&main, "unit", &["a"]);
        let (told, tells) = mpsc::channel();
        let (inner, dylib) = (session.clone(), main.clone());
        session.lookup_async(request(&main, &["missing"]), move |answer| {
            assert!(matches!(answer, Err(LookupError::NotFound { .. })));
            told.send(inner.lookup_symbol(&order(&dylib), &inner.intern("a"))).unwrap();
        });
        tells.recv().unwrap().unwrap_err()
    });
    let LookupError::Failed(failure) = error else { panic!("{error}") };
    assert!(matches!(failure.cause, FailureCause::NotDispatched));
}

/// The close waited for a task that was queued behind it on its own thread.
#[test]
fn a_handler_that_nobody_dispatches_may_close_the_session() {
    within_reason(|| {
        let (session, main) = session_without_threads();
        let (told, tells) = mpsc::channel();
        let (inner, dylib) = (session.clone(), main.clone());
        session.lookup_async(request(&main, &["missing"]), move |_| {
            let second = told.clone();
            inner.lookup_async(request(&dylib, &["missing too"]), move |_| second.send("second").unwrap());
            inner.close().unwrap();
            told.send("first").unwrap();
        });
        assert_eq!(tells.recv(), Ok("second"));
        assert_eq!(tells.recv(), Ok("first"));
    });
}

#[test]
fn a_handler_is_called_even_if_its_task_is_dropped() {
    let forgets = Arc::new(Forgets::default());
    let (session, main) = session_on(forgets.clone());
    let answer = look_up_later(&session, request(&main, &["missing"]));
    assert_eq!(answer.try_recv().unwrap_err(), mpsc::TryRecvError::Empty);
    forgets.forget();
    assert!(matches!(answer.try_recv(), Ok(Err(LookupError::NotFound { .. }))));
}

#[test]
fn a_future_is_woken_even_if_its_task_is_dropped() {
    let forgets = Arc::new(Forgets::default());
    let (session, main) = session_on(forgets.clone());
    define_simple(&main, "unit", &["a"]);
    let mut future = pin!(session.lookup_future(request(&main, &["a"])));
    let waker = waker();
    let mut context = Context::from_waker(&waker);
    assert!(future.as_mut().poll(&mut context).is_pending());
    // First the unit goes, which fails its symbol, then what would have told the future.
    forgets.forget();
    forgets.forget();
    let Poll::Ready(answer) = future.as_mut().poll(&mut context) else { panic!("nobody told the future") };
    assert!(matches!(answer, Err(LookupError::Failed(_))));
}

/// Runs each task on a thread of its own, until it is told to keep them or to refuse them.
#[derive(Debug, Default)]
struct Threads {
    refuses: AtomicBool,
    keeps: AtomicBool,
    kept: Mutex<Vec<Task>>,
}

impl Threads {
    fn session() -> (Arc<Self>, ExecutionSession, JitDylib) {
        let dispatcher = Arc::new(Self::default());
        let (session, main) = session_on(dispatcher.clone());
        main.define(absolute_symbols([(session.intern("there"), at(1))].into_iter().collect())).unwrap();
        (dispatcher, session, main)
    }
}

impl TaskDispatcher for Threads {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(task);
        }
        match self.keeps.load(Ordering::Relaxed) {
            true => self.kept.lock().push(task),
            false => drop(std::thread::spawn(move || task.run())),
        }
        Ok(())
    }

    fn shutdown(&self) {}
}

/// It ran on the unit's thread, inside the call that brought it about.
#[test]
fn a_handler_that_nobody_dispatches_runs_after_the_unit_and_not_inside_its_call() {
    let inside = within_reason(|| {
        let (dispatcher, session, main) = Threads::session();
        let (told, tells) = mpsc::channel();
        let inner = main.clone();
        let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
            dispatcher.refuses.store(true, Ordering::Relaxed);
            let inside = Arc::new(AtomicBool::new(true));
            let seen = inside.clone();
            inner.session().lookup_async(request(&inner, &["there"]), move |_| {
                told.send(seen.load(Ordering::Relaxed)).unwrap();
            });
            finish(responsibility);
            inside.store(false, Ordering::Relaxed);
        });
        main.define(unit.boxed()).unwrap();
        let _answer = look_up_later(&session, request(&main, &["a"]));
        tells.recv().unwrap()
    });
    assert!(!inside);
}

/// The task was counted, and no more in a frame, when what its panic had felled was told on its thread.
#[test]
fn a_handler_of_what_a_panic_felled_may_close_the_session() {
    within_reason(|| {
        let (dispatcher, session, main) = Threads::session();
        let unit = TestUnit::new("unit", exported(&session, &["a"]), move |_| {
            dispatcher.refuses.store(true, Ordering::Relaxed);
            panic!("on purpose");
        });
        main.define(unit.boxed()).unwrap();
        let (told, tells) = mpsc::channel();
        let inner = session.clone();
        session.lookup_async(request(&main, &["a"]), move |answer| {
            assert!(answer.is_err());
            inner.close().unwrap();
            told.send(()).unwrap();
        });
        tells.recv().unwrap();
    });
}

/// Its task was counted twice, once for the code and once for the drop.
#[test]
fn a_handler_whose_task_an_idle_thread_drops_may_close_the_session() {
    within_reason(|| {
        let (dispatcher, session, main) = Threads::session();
        dispatcher.keeps.store(true, Ordering::Relaxed);
        let inner = session.clone();
        session.lookup_async(request(&main, &["there"]), move |_| inner.close().unwrap());
        let kept = std::mem::take(&mut *dispatcher.kept.lock());
        assert_eq!(kept.len(), 1);
        drop(kept);
        assert!(session.create_jit_dylib("late").is_err());
    });
}

#[test]
fn a_handler_whose_task_an_idle_thread_drops_may_wait_while_the_session_closes() {
    within_reason(|| {
        let (dispatcher, session, main) = Threads::session();
        let parked = define_parked(&main, "parked", &["parked"]);
        let _answer = look_up_later(&session, request(&main, &["parked"]));
        let responsibility = parked.recv().unwrap();
        dispatcher.keeps.store(true, Ordering::Relaxed);
        let (told, tells) = mpsc::channel();
        let inner = main.clone();
        session.lookup_async(request(&main, &["there"]), move |_| {
            let session = inner.session();
            let _ = told.send(session.lookup_symbol(&order(&inner), &session.intern("parked")).map(drop));
        });
        let kept = std::mem::take(&mut *dispatcher.kept.lock());
        dispatcher.keeps.store(false, Ordering::Relaxed);
        let idle = std::thread::spawn(move || drop(kept));
        session.close().unwrap();
        idle.join().unwrap();
        assert!(matches!(tells.recv().unwrap(), Err(LookupError::Closed)));
        drop(responsibility);
    });
}
