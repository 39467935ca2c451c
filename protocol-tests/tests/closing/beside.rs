//! A close beside threads that are no tasks of the session: what they hold in their hands is finished first. And
//! dispatchers that drop tasks, or panic over them: what follows is handed on all the same.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::sync::{Latch, Mutex, thread};
use uruk_core::{
    DependenceGroup, DylibError, ExecutionSession, InPlaceTaskDispatcher, JitDylib, LookupRequest, LookupSet,
    RemoveError, Resource, ResourceTracker, Task, TaskDispatcher, WaitError,
};

/// More than a slice takes.
const SYMBOLS: usize = 3_000;

/// Holds the first thread that gives it a task with this label, once another has run the task. The thread goes on when a wait
/// or the shutdown comes.
struct Holds {
    inner: InPlaceTaskDispatcher,
    label: &'static str,
    held: Mutex<Option<Arc<Latch>>>,
    go_on: Latch,
}

impl std::fmt::Debug for Holds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holds").finish_non_exhaustive()
    }
}

impl Holds {
    fn at(label: &'static str) -> (Arc<Latch>, ExecutionSession, JitDylib) {
        let held = Arc::new(Latch::new());
        let (inner, holds) = (InPlaceTaskDispatcher::default(), Mutex::new(Some(held.clone())));
        let dispatcher = Arc::new(Self { inner, label, held: holds, go_on: Latch::new() });
        let (session, main) = session_on(dispatcher);
        (held, session, main)
    }
}

impl TaskDispatcher for Holds {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        let held = if task.label() == self.label { self.held.lock().take() } else { None };
        if let Some(held) = held {
            thread::spawn(move || task.run()).join().unwrap();
            held.open();
            self.go_on.wait();
            return Ok(());
        }
        self.inner.dispatch(task)
    }

    fn run_ready(&self) {
        self.inner.run_ready();
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        self.go_on.open();
        self.inner.wait(latch)
    }

    fn shutdown(&self) {
        self.go_on.open();
        self.inner.shutdown();
    }
}

/// The close found nothing that moved, and ended the lookup of an emitted symbol.
#[test]
fn a_close_waits_for_who_attends_to_slices() {
    within_reason(|| {
        let (held, session, main) = Holds::at("session.release");
        let tracker = main.create_tracker();
        for index in 0..SYMBOLS {
            let symbols = [(session.intern(&format!("symbol_{index}")), EXPORTED)].into_iter().collect();
            main.define_with_tracker(TestUnit::new("unit", symbols, finish).boxed(), &tracker).unwrap();
        }
        let parked = define_parked(&main, "root", &["root"]);
        let first = look_up_later(&session, request(&main, &["root"]));
        let root = parked.recv().unwrap().attach();
        let root = root.notify_resolved(&addresses(&exported(&session, &["root"]))).unwrap();
        let token = root.dependency(&session.intern("root")).unwrap();
        let symbols = exported(&session, &["waits"]);
        let group = DependenceGroup { symbols: vec![session.intern("waits")], dependencies: vec![token] };
        let unit = TestUnit::new("waits", symbols, move |responsibility| {
            finish_with(responsibility, vec![group]);
        });
        main.define(unit.boxed()).unwrap();
        let answer = look_up_later(&session, request(&main, &["waits"]));
        let attendant = thread::spawn(move || tracker.remove());
        held.wait();
        root.notify_emitted(Vec::new()).unwrap();
        session.close().unwrap();
        attendant.join().unwrap().unwrap();
        assert!(first.recv().unwrap().is_ok(), "it is emitted");
        assert!(answer.recv().unwrap().is_ok(), "all that it needs is emitted");
    });
}

/// The unit was claimed and in no queue, and never ran.
#[test]
fn a_close_waits_for_who_has_claimed_a_unit() {
    within_reason(|| {
        let (held, session, main) = Holds::at("unit");
        define_simple(&main, "unit", &["a"]);
        define_simple(&main, "later", &["b"]);
        let claims = thread::spawn({
            let (session, main) = (session.clone(), main.clone());
            move || session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b"])))
        });
        held.wait();
        let answer = look_up_later(&session, request(&main, &["b"]));
        session.close().unwrap();
        assert!(claims.join().unwrap().is_ok());
        assert!(answer.recv().unwrap().is_ok());
    });
}

/// The fate of tasks with some label; all others run in place.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Dropped,
    Panics,
}

#[derive(Debug)]
struct Careless {
    inner: InPlaceTaskDispatcher,
    label: &'static str,
    fate: Fate,
}

impl TaskDispatcher for Careless {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        if task.label() != self.label {
            return self.inner.dispatch(task);
        }
        match self.fate {
            Fate::Dropped => drop(task),
            Fate::Panics => std::panic::resume_unwind(Box::new("on purpose")),
        }
        Ok(())
    }

    fn run_ready(&self) {
        self.inner.run_ready();
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        self.inner.wait(latch)
    }

    fn shutdown(&self) {
        self.inner.shutdown();
    }
}

fn careless(label: &'static str, fate: Fate) -> (ExecutionSession, JitDylib, mpsc::Receiver<String>) {
    let dispatcher = Arc::new(Careless { inner: InPlaceTaskDispatcher::default(), label, fate });
    reporting_session_on(dispatcher)
}

/// The dropped handler ran above the thread that attended to the slices, and waited for one.
#[test]
fn a_dropped_handler_may_wait_for_what_its_thread_still_has_to_do() {
    for fate in [Fate::Dropped, Fate::Panics] {
        within_reason(move || {
            let (session, main, reports) = careless("query.complete", fate);
            let parked = define_parked(&main, "root", &["root"]);
            let _root = look_up_later(&session, request(&main, &["root"]));
            let root = parked.recv().unwrap().attach();
            let root = root.notify_resolved(&addresses(&exported(&session, &["root"]))).unwrap();
            let token = root.dependency(&session.intern("root")).unwrap();
            let names: Vec<_> =
                (0..SYMBOLS).map(|index| session.intern(&format!("symbol_{index}"))).collect();
            for name in &names {
                let group = DependenceGroup { symbols: vec![name.clone()], dependencies: vec![token] };
                let symbols = [(name.clone(), EXPORTED)].into_iter().collect();
                let unit = TestUnit::new("unit", symbols, |responsibility| {
                    finish_with(responsibility, vec![group]);
                });
                main.define(unit.boxed()).unwrap();
            }
            let all = look_up_later(&session, request_of(&main, &names));
            let (told, answers) = mpsc::channel();
            for name in &names {
                let (looks, dylib, others, told) = (
                    session.clone(),
                    main.clone(),
                    [names[0].clone(), names[SYMBOLS - 1].clone()],
                    told.clone(),
                );
                session.lookup_async(request_of(&main, std::slice::from_ref(name)), move |answer| {
                    let found = others.iter().all(|name| looks.lookup_symbol(&order(&dylib), name).is_ok());
                    told.send(answer.is_ok() && found).unwrap();
                });
            }
            root.notify_emitted(Vec::new()).unwrap();
            assert_eq!(answers.try_iter().filter(|found| *found).count(), SYMBOLS);
            assert!(all.try_recv().unwrap().is_ok());
            let panics =
                reports.try_iter().filter(|report| report.contains("the dispatcher panicked")).count();
            assert_eq!(panics > 0, matches!(fate, Fate::Panics));
        });
    }
}

fn request_of(main: &JitDylib, names: &[uruk_core::SymbolName]) -> uruk_core::LookupRequest {
    uruk_core::LookupRequest::new(order(main), LookupSet::required(names.iter().cloned()))
}

/// A resource that takes its time.
struct Slow {
    begun: Arc<Latch>,
    goes_on: Arc<Latch>,
    closes: Option<ExecutionSession>,
}

impl Resource for Slow {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.begun.open();
        if let Some(session) = &self.closes {
            session.close()?;
        }
        self.goes_on.wait();
        Ok(())
    }
}

#[test]
fn a_close_waits_for_who_removes_resources() {
    within_reason(|| {
        let (session, main) = session();
        let [begun, goes_on] = [(); 2].map(|()| Arc::new(Latch::new()));
        let tracker = main.create_tracker();
        let slow = Slow { begun: begun.clone(), goes_on: goes_on.clone(), closes: None };
        tracker.add_resource(Box::new(slow)).unwrap();
        let remover = std::thread::spawn(move || tracker.remove());
        begun.wait();
        let (told, tells) = mpsc::channel();
        let closer = std::thread::spawn({
            let session = session.clone();
            move || {
                session.close().unwrap();
                told.send(()).unwrap();
            }
        });
        while !matches!(session.create_jit_dylib("late"), Err(DylibError::Closed)) {
            std::thread::yield_now();
        }
        assert!(tells.try_recv().is_err(), "the session is closed, and a resource of it is not removed");
        goes_on.open();
        tells.recv().unwrap();
        remover.join().unwrap().unwrap();
        closer.join().unwrap();
    });
}

#[test]
fn a_resource_that_closes_the_session_is_not_waited_for_by_that_close() {
    within_reason(|| {
        for removal in [
            (|main, _| main.clear()) as fn(&JitDylib, ResourceTracker) -> Result<(), RemoveError>,
            |_, tracker| tracker.remove(),
            |main, _| main.session().remove_jit_dylib(main),
            |main, tracker| {
                main.session().transaction().remove_tracker(&tracker).commit().unwrap();
                Ok(())
            },
        ] {
            let (session, main) = session();
            let goes_on = Arc::new(Latch::new());
            goes_on.open();
            let slow = Slow { begun: Arc::new(Latch::new()), goes_on, closes: Some(session.clone()) };
            let tracker = main.create_tracker();
            tracker.add_resource(Box::new(slow)).unwrap();
            removal(&main, tracker).unwrap();
            assert!(session.create_jit_dylib("late").is_err());
        }
    });
}

thread_local! {
    static OWN: RefCell<VecDeque<Task>> = RefCell::default();
    static RUNS: Cell<bool> = const { Cell::new(false) };
}

/// Has no threads, and runs a thread's tasks when it is told to.
#[derive(Debug)]
struct WhenTold;

impl WhenTold {
    fn run_while(&self, goes_on: impl Fn() -> bool) {
        while goes_on()
            && let Some(task) = OWN.with_borrow_mut(VecDeque::pop_front)
        {
            task.run();
        }
    }
}

impl TaskDispatcher for WhenTold {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        OWN.with_borrow_mut(|own| own.push_back(task));
        Ok(())
    }

    fn run_ready(&self) {
        if !RUNS.replace(true) {
            self.run_while(|| true);
            RUNS.set(false);
        }
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        self.run_while(|| !latch.is_open());
        latch.wait();
        Ok(())
    }

    fn shutdown(&self) {
        self.run_while(|| true);
    }
}

/// The handler ran between the count of the removal and its frame, and waited for it.
#[test]
fn a_handler_of_what_a_removal_fails_may_close_the_session() {
    within_reason(|| {
        for dispatcher in
            [Arc::new(WhenTold) as Arc<dyn TaskDispatcher>, Arc::<InPlaceTaskDispatcher>::default()]
        {
            let (session, main) = session_on(dispatcher);
            let tracker = main.create_tracker();
            let goes_on = Arc::new(Latch::new());
            goes_on.open();
            let quick = Slow { begun: Arc::new(Latch::new()), goes_on, closes: None };
            tracker.add_resource(Box::new(quick)).unwrap();
            let (parks, parked) = mpsc::channel();
            let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
                parks.send(responsibility.detach()).unwrap();
            });
            main.define_with_tracker(unit.boxed(), &tracker).unwrap();
            let (told, tells) = mpsc::channel();
            let inner = session.clone();
            session.lookup_async(request(&main, &["a"]), move |answer| {
                assert!(answer.is_err());
                inner.close().unwrap();
                told.send(()).unwrap();
            });
            let _parked = parked.recv().unwrap();
            tracker.remove().unwrap();
            tells.try_recv().expect("the handler has run, and the close has returned");
        }
    });
}
