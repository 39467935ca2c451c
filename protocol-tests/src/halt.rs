//! Places where code under test stops until the test lets it go on.

use std::sync::{Arc, mpsc};

use uruk_core::sync::Latch;
use uruk_core::{ExecutionSession, JitDylib, Task, TaskPriority};

/// Where something stops until the test lets it go on. Clones are the same place.
#[derive(Clone, Debug)]
pub struct Halt {
    reached: Arc<Latch>,
    open: Arc<Latch>,
}

impl Default for Halt {
    fn default() -> Self {
        Self { reached: Arc::new(Latch::new()), open: Arc::new(Latch::new()) }
    }
}

impl Halt {
    /// Stops here, without a word to session or dispatcher, until it may go on.
    pub fn stop(&self) {
        self.reached.open();
        self.open.wait();
    }

    /// Waits until a thread has come here.
    pub fn reached(&self) {
        self.reached.wait();
    }

    /// Lets all threads go on that are here, or come later.
    pub fn let_go(&self) {
        self.open.open();
    }
}

/// Has a task stop on a worker of the session's pool, and waits until it does.
pub fn occupy_a_worker(session: &ExecutionSession) -> Halt {
    let halt = Halt::default();
    let here = halt.clone();
    session.dispatch(Task::new("occupies a worker", TaskPriority::Demanded, move || here.stop()));
    halt.reached();
    halt
}

/// Runs `scenario` in a task that has the only thread there is: in place, or on a pool of one. Its tasks are queued until it
/// returns.
pub fn while_nothing_else_runs<T: Send + 'static>(
    session: &ExecutionSession,
    main: &JitDylib,
    scenario: impl FnOnce(&ExecutionSession, &JitDylib) -> T + Send + 'static,
) -> T {
    let (send, outcome) = mpsc::channel();
    let (inner, dylib) = (session.clone(), main.clone());
    session.dispatch(Task::new("scenario", TaskPriority::Demanded, move || {
        send.send(scenario(&inner, &dylib)).expect("the test waits for it");
    }));
    outcome.recv().expect("the scenario has not panicked")
}
