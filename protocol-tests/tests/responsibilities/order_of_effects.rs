//! In which order the consequences of one event leave a session: units, threads that wait, then code of the embedder.

use std::collections::VecDeque;
use std::sync::{Arc, mpsc};

use protocol_tests::on::failure_of;
use protocol_tests::*;
use uruk_core::sync::{Latch, Mutex};
use uruk_core::{
    AddedUnit, DependenceGroup, ExecutionSession, FailureCause, JitDylib, Platform, SharedError, Task,
    TaskDispatcher, UnitNumber, WaitError,
};

/// Writes down what it is given, in that order; keeps it until the test runs it.
#[derive(Debug, Default)]
struct Clerk {
    log: Mutex<Vec<String>>,
    tasks: Mutex<VecDeque<Task>>,
    /// Where a thread that is about to wait says so.
    waits: Mutex<Option<mpsc::Sender<()>>>,
    /// Where a thread that waited says that it has its answer: heard before the first handler is taken.
    answered: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Clerk {
    fn run_all(&self) {
        while let Some(task) = { self.tasks.lock().pop_front() } {
            task.run();
        }
    }

    fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock())
    }
}

impl TaskDispatcher for Clerk {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        if task.label() == "query.complete"
            && let Some(answered) = { self.answered.lock().take() }
        {
            answered.recv().unwrap();
            self.log.lock().push("a thread goes on".to_owned());
        }
        self.log.lock().push(task.label().to_owned());
        self.tasks.lock().push_back(task);
        Ok(())
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        let waits = self.waits.lock().take();
        match waits {
            Some(waits) => waits.send(()).unwrap(),
            // A close.
            None => self.run_all(),
        }
        latch.wait();
        Ok(())
    }

    fn shutdown(&self) {
        self.run_all();
    }
}

struct Listens;

impl Platform for Listens {
    fn unit_adding(&self, _: &AddedUnit<'_>) -> Result<(), SharedError> {
        Ok(())
    }

    fn unit_removed(&self, _: UnitNumber) {}
}

fn session_of(clerk: &Arc<Clerk>) -> (ExecutionSession, JitDylib) {
    let session = ExecutionSession::builder()
        .dispatcher(clerk.clone())
        .observer(Arc::new(|_| {}))
        .platform(Arc::new(Listens))
        .build();
    let main = session.create_jit_dylib("main").unwrap();
    (session, main)
}

/// Has a thread block in a lookup of `name`, whose end it tells to the clerk, who hears it before the next handler. Gives what it
/// is told.
fn blocks(clerk: &Arc<Clerk>, main: &JitDylib, name: &str) -> std::thread::JoinHandle<bool> {
    let ((waits, begun), (done, answered)) = (mpsc::channel(), mpsc::channel());
    *clerk.waits.lock() = Some(waits);
    *clerk.answered.lock() = Some(answered);
    let (main, name) = (main.clone(), main.session().intern(name));
    let thread = std::thread::spawn(move || {
        let found = main.session().lookup_symbol(&order(&main), &name).is_ok();
        done.send(()).unwrap();
        found
    });
    begun.recv().unwrap();
    thread
}

/// One emission claims a unit that was given back, answers a thread and a handler, and is seen.
#[test]
fn an_emission_enqueues_units_then_wakes_threads_then_runs_code() {
    within_reason(|| {
        let clerk = Arc::new(Clerk::default());
        let (session, main) = session_of(&clerk);
        // Searched and given back: its token is known, and no lookup wants it.
        let parked = define_parked(&main, "unit of b", &["b", "other"]);
        let _other = look_up_later(&session, request(&main, &["other"]));
        clerk.run_all();
        let mut responsibility = parked.recv().unwrap().attach();
        let b = session.intern("b");
        let token = responsibility.dependency(&b).unwrap();
        let rest = responsibility.delegate([b]).unwrap();
        rest.replace(TestUnit::new("claimed anew", exported(&session, &["b"]), finish).boxed()).unwrap();
        finish(responsibility);
        let parked = define_parked(&main, "unit", &["a", "c"]);
        let answer = look_up_later(&session, request(&main, &["c"]));
        let thread = blocks(&clerk, &main, "c");
        clerk.run_all();
        let resolved = resolve(parked.recv().unwrap().attach());
        clerk.take_log();
        let group = DependenceGroup { symbols: vec![session.intern("a")], dependencies: vec![token] };
        resolved.notify_emitted(vec![group]).unwrap();
        let expected = ["claimed anew", "a thread goes on", "query.complete", "session.observe"];
        assert_eq!(clerk.take_log(), expected);
        clerk.run_all();
        assert!(answer.recv().unwrap().is_ok() && thread.join().unwrap());
        session.close().unwrap();
    });
}

/// One removal fails the lookups of a thread and of a handler, drops a unit that never began, and takes its initializer.
#[test]
fn a_removal_wakes_threads_then_tells_handlers_then_lets_go() {
    within_reason(|| {
        let clerk = Arc::new(Clerk::default());
        let (session, main) = session_of(&clerk);
        let tracker = main.create_tracker();
        let unit = TestUnit::new("never begins", exported(&session, &["never"]), finish);
        let unit = unit.with_initializer(session.intern("init")).boxed();
        main.define_with_tracker(unit, &tracker).unwrap();
        let (send, parked) = mpsc::channel();
        let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
            send.send(responsibility.detach()).unwrap();
        });
        main.define_with_tracker(unit.boxed(), &tracker).unwrap();
        let answer = look_up_later(&session, request(&main, &["a"]));
        let thread = blocks(&clerk, &main, "a");
        clerk.run_all();
        let parked = parked.recv().unwrap();
        clerk.take_log();
        tracker.remove().unwrap();
        let expected = [
            "a thread goes on",
            "query.complete",
            "session.observe",
            "session.release",
            "platform.unit_removed",
        ];
        assert_eq!(clerk.take_log(), expected);
        clerk.run_all();
        assert!(answer.recv().unwrap().is_err() && !thread.join().unwrap());
        drop(parked);
        session.close().unwrap();
    });
}

/// Runs a task where it should only take it.
#[derive(Debug)]
struct Hasty;

impl TaskDispatcher for Hasty {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        task.run();
        Ok(())
    }

    fn shutdown(&self) {}
}

/// Its session has not handed on all that it has to when the unit waits, and might never do so.
#[test]
#[cfg_attr(
    not(debug_assertions),
    ignore = "only debug assertions see it; the thread waits for ever otherwise"
)]
fn a_thread_that_still_holds_effects_does_not_wait() {
    within_reason(|| {
        let session =
            ExecutionSession::builder().dispatcher(Arc::new(Hasty)).observer(Arc::new(|_| {})).build();
        let main = session.create_jit_dylib("main").unwrap();
        let _parked = define_parked(&main, "unit of b", &["b"]);
        let unit = TestUnit::new("unit of a", exported(&session, &["a"]), |responsibility| {
            let session = responsibility.session();
            drop(session.lookup_symbol(&order(responsibility.dylib()), &session.intern("b")));
        });
        main.define(unit.boxed()).unwrap();
        let answer = look_up_later(&session, request(&main, &["a"])).recv().unwrap();
        let FailureCause::Panicked(message) = failure_of(answer) else { panic!("another cause") };
        assert!(message.starts_with("a thread waits that holds effects"), "{message}");
    });
}
