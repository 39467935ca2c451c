//! Dispatchers that take no tasks, or take them and let them go: everybody who asked is told all the same.

use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};

use protocol_tests::*;
use uruk_core::sync::Mutex;
use uruk_core::{ExecutionSession, FailureCause, JitDylib, LookupError, Task, TaskDispatcher};
use uruk_dispatch::WorkStealingTaskDispatcher;

/// A session whose pool takes no tasks any more, with a dylib `main`.
fn session_without_threads() -> (ExecutionSession, JitDylib) {
    let pool = Arc::new(WorkStealingTaskDispatcher::builder().workers(1).build().unwrap());
    pool.shutdown();
    let session = ExecutionSession::builder().dispatcher(pool).build();
    let main = session.create_jit_dylib("main").unwrap();
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
    let session = ExecutionSession::builder().dispatcher(forgets.clone()).build();
    let main = session.create_jit_dylib("main").unwrap();
    let answer = look_up_later(&session, request(&main, &["missing"]));
    assert_eq!(answer.try_recv().unwrap_err(), mpsc::TryRecvError::Empty);
    forgets.forget();
    assert!(matches!(answer.try_recv(), Ok(Err(LookupError::NotFound { .. }))));
}

#[test]
fn a_future_is_woken_even_if_its_task_is_dropped() {
    let forgets = Arc::new(Forgets::default());
    let session = ExecutionSession::builder().dispatcher(forgets.clone()).build();
    let main = session.create_jit_dylib("main").unwrap();
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
