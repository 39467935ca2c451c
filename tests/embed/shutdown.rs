//! How an engine ends while it has work.
//!
//! A host that dropped its engine waited for a hundred modules that it had asked for ahead, 55 seconds long, although the drop's documentation said
//! that what is queued fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use uruk::Jit;
use uruk::core::sync::Latch;
use uruk::core::{
    CloseError, DylibError, ExecutionSession, LookupRequest, LookupSet, Shutdown, Task, TaskPriority,
};

use crate::function_unit::function_unit;
use crate::support::engine;

const FUNCTIONS: usize = 3;

/// An engine whose only worker is occupied, with functions that were asked for behind that.
struct Busy {
    jit: Jit,
    occupied: Arc<Latch>,
    /// How many of the units have started.
    started: Arc<AtomicUsize>,
}

impl Busy {
    fn new() -> Self {
        let jit = engine(1);
        let (reached, occupied) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
        let (here, goes_on) = (reached.clone(), occupied.clone());
        jit.session().dispatch(Task::new("occupies the worker", TaskPriority::Demanded, move || {
            here.open();
            goes_on.wait();
        }));
        reached.wait();
        let started = Arc::new(AtomicUsize::new(0));
        for number in 0..FUNCTIONS {
            let (name, started) = (jit.intern(&format!("f{number}")), started.clone());
            let unit = function_unit(name.clone(), move |responsibility| {
                started.fetch_add(1, Ordering::Relaxed);
                drop(responsibility);
            });
            jit.main_dylib().define(unit).expect("the name is new");
            let request = LookupRequest::new(jit.main_dylib().link_order(), LookupSet::required([name]));
            jit.session().lookup_async(request, drop);
        }
        Self { jit, occupied, started }
    }
}

fn until_closing(session: &ExecutionSession) {
    while !matches!(session.create_jit_dylib("late"), Err(DylibError::Closed)) {
        thread::yield_now();
    }
}

/// How many units start if the worker goes on when the engine is on its way to its end.
fn started_when(end: impl FnOnce(Jit) + Send + 'static) -> usize {
    let Busy { jit, occupied, started } = Busy::new();
    let session = jit.session().clone();
    let ends = thread::spawn(move || end(jit));
    until_closing(&session);
    occupied.open();
    ends.join().expect("no panic");
    started.load(Ordering::Relaxed)
}

#[test]
fn a_drop_starts_nothing_that_is_queued() {
    assert_eq!(started_when(drop), 0);
}

#[test]
fn a_shutdown_finishes_the_queue_or_gives_it_up() {
    let shutdown = |how| move |jit: Jit| jit.shutdown(how, None).expect("nothing goes wrong");
    assert_eq!(started_when(shutdown(Shutdown::Drain)), FUNCTIONS);
    assert_eq!(started_when(shutdown(Shutdown::Cancel)), 0);
}

#[test]
fn a_shutdown_whose_time_is_over_gives_up_the_queue_and_does_not_wait() {
    let Busy { jit, occupied, started } = Busy::new();
    let session = jit.session().clone();
    let ended = jit.shutdown(Shutdown::Drain, Some(Duration::ZERO));
    assert!(matches!(ended, Err(CloseError::TimedOut)), "{ended:?}");
    occupied.open();
    session.close().expect("what is left ends behind the caller");
    assert_eq!(started.load(Ordering::Relaxed), 0);
}
