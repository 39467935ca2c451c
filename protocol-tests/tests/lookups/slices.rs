//! Long consequences come in slices: no hold of the lock is as long as they are, and others go on between two of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::sync::{Latch, Mutex, thread};
use uruk_core::{
    DependenceGroup, Detached, ExecutionSession, InPlaceTaskDispatcher, JitDylib, LookupError, LookupRequest,
    LookupSet, MaterializationResponsibility, ResolvedResponsibility, Resource, SymbolMap, SymbolName, Task,
    TaskDispatcher, WaitError, WhyState, absolute_symbols, shared_error,
};

const SYMBOLS: usize = 8_000;
/// The most steps of a long consequence in one hold of the lock.
const STEPS_MAX: usize = 3_000;

fn names(session: &ExecutionSession, count: usize) -> Vec<SymbolName> {
    (0..count).map(|index| session.intern(&format!("symbol_{index}"))).collect()
}

fn resolve(responsibility: Detached<MaterializationResponsibility>) -> ResolvedResponsibility {
    let responsibility = responsibility.attach();
    let addresses = addresses(responsibility.symbols());
    responsibility.notify_resolved(&addresses).unwrap()
}

/// Many emitted units of one symbol each, all of which depend on `root`; and the responsibility of `root`, not emitted yet.
fn fan_of_waiting_units(
    session: &ExecutionSession,
    main: &JitDylib,
) -> (Vec<SymbolName>, ResolvedResponsibility) {
    let names = names(session, SYMBOLS);
    let parked = define_parked(main, "root", &["root"]);
    let _root = look_up_later(session, request(main, &["root"]));
    let root = resolve(parked.recv().unwrap());
    let token = root.dependency(&session.intern("root")).unwrap();
    for name in &names {
        let symbols = vec![name.clone()];
        let group = DependenceGroup { symbols, dependencies: vec![token] };
        let flags = [(name.clone(), EXPORTED)].into_iter().collect();
        let unit =
            TestUnit::new("unit", flags, move |responsibility| finish_with(responsibility, vec![group]));
        main.define(unit.boxed()).unwrap();
    }
    (names, root)
}

fn look_all_up(
    session: &ExecutionSession,
    main: &JitDylib,
    names: &[SymbolName],
) -> mpsc::Receiver<Result<uruk_core::LookupResult, LookupError>> {
    let set = LookupSet::required(names.iter().cloned());
    look_up_later(session, LookupRequest::new(order(main), set))
}

#[test]
fn an_emission_that_makes_many_symbols_ready() {
    let (session, main) = session();
    let (names, root) = fan_of_waiting_units(&session, &main);
    let answer = look_all_up(&session, &main, &names);
    root.notify_emitted(Vec::new()).unwrap();
    assert_eq!(answer.try_recv().unwrap().unwrap().len(), SYMBOLS);
    let metrics = session.metrics();
    assert!(metrics.hold_steps_max <= STEPS_MAX, "{metrics:?}");
    assert!(metrics.edge_visits <= 2 * metrics.edges, "{metrics:?}");
    assert_eq!(metrics.edges, SYMBOLS as u64);
}

#[test]
fn a_failure_that_fells_many_symbols() {
    let (session, main) = session();
    let (names, root) = fan_of_waiting_units(&session, &main);
    let answer = look_all_up(&session, &main, &names);
    let each: Vec<_> =
        names.iter().map(|name| look_all_up(&session, &main, std::slice::from_ref(name))).collect();
    root.fail(shared_error("broken"));
    assert!(answer.try_recv().unwrap().is_err());
    for (name, answer) in names.iter().zip(each) {
        let error = answer.try_recv().unwrap().unwrap_err().in_full();
        assert!(error.starts_with(&format!("`{name}` waits on `root` (")), "{error}");
    }
    let metrics = session.metrics();
    assert!(metrics.hold_steps_max <= STEPS_MAX, "{metrics:?}");
}

#[test]
fn a_withdrawn_lookup_of_many_symbols() {
    let (session, main) = session();
    let (names, root) = fan_of_waiting_units(&session, &main);
    let set = LookupSet::required(names.iter().cloned());
    drop(session.lookup_future(LookupRequest::new(order(&main), set)));
    let one = look_all_up(&session, &main, &names[..1]);
    root.notify_emitted(Vec::new()).unwrap();
    assert!(one.try_recv().unwrap().is_ok());
    let metrics = session.metrics();
    assert!(metrics.hold_steps_max <= STEPS_MAX, "{metrics:?}");
}

/// Counts what is defined when it is removed.
struct Counts(JitDylib, Vec<SymbolName>, mpsc::Sender<usize>);

impl Resource for Counts {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let Self(main, names, counted) = *self;
        Ok(counted.send(main.flags(names).len())?)
    }
}

#[test]
fn a_tracker_of_many_symbols_is_gone_before_its_resources() {
    let (session, main) = session();
    let names = names(&session, SYMBOLS);
    let tracker = main.create_tracker();
    for name in &names {
        let symbols: SymbolMap = [(name.clone(), at(1))].into_iter().collect();
        main.define_with_tracker(absolute_symbols(symbols), &tracker).unwrap();
    }
    session
        .lookup(LookupRequest::new(order(&main), LookupSet::required(names[..SYMBOLS / 2].iter().cloned())))
        .unwrap();
    let (counted, counts) = mpsc::channel();
    tracker.add_resource(Box::new(Counts(main.clone(), names.clone(), counted))).unwrap();
    tracker.remove().unwrap();
    assert_eq!(counts.try_recv(), Ok(0));
    assert!(tracker.is_defunct());
    assert!(session.lookup_symbol(&order(&main), &names[0]).is_err());
    let metrics = session.metrics();
    assert!(metrics.hold_steps_max <= STEPS_MAX, "{metrics:?}");
}

#[test]
fn a_dylib_of_many_symbols_is_removed_and_so_is_a_session() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    for dylib in [&main, &other] {
        let symbols: SymbolMap = names(&session, SYMBOLS).into_iter().map(|name| (name, at(1))).collect();
        dylib.define(absolute_symbols(symbols)).unwrap();
    }
    session.remove_jit_dylib(&other).unwrap();
    let again = session.create_jit_dylib("other").unwrap();
    assert_eq!(again.flags(names(&session, 1)), []);
    session.close().unwrap();
    assert_eq!(main.flags(names(&session, 1)), []);
    let metrics = session.metrics();
    assert!(metrics.hold_steps_max <= STEPS_MAX, "{metrics:?}");
}

#[test]
fn the_default_trackers_handle_survives_its_removal() {
    let (session, main) = session();
    let default = main.default_tracker();
    for round in 0..3 {
        let symbols: SymbolMap =
            names(&session, SYMBOLS / 2).into_iter().map(|name| (name, at(round))).collect();
        main.define_with_tracker(absolute_symbols(symbols), &default).unwrap();
        let name = session.intern("symbol_7");
        assert_eq!(session.lookup_symbol(&order(&main), &name).unwrap(), at(round));
        default.remove().unwrap();
        assert!(session.lookup_symbol(&order(&main), &name).is_err());
        assert!(!default.is_defunct());
        assert_eq!(default, main.default_tracker());
    }
}

/// Between two slices of a thread's work, when it gives the first task with this label to its dispatcher, another does
/// something of its own.
struct Interrupts {
    inner: InPlaceTaskDispatcher,
    label: &'static str,
    interruption: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Tasks with the label [`KEPT`], which only a test runs.
    kept: Arc<Mutex<Vec<Task>>>,
}

/// The name of units that begin when a test says so.
const KEPT: &str = "kept";

impl std::fmt::Debug for Interrupts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupts").finish_non_exhaustive()
    }
}

impl Interrupts {
    fn after(label: &'static str) -> (Arc<Self>, ExecutionSession, JitDylib) {
        let (inner, interruption, kept) = Default::default();
        let this = Arc::new(Self { inner, label, interruption, kept });
        let (session, main) = session_on(this.clone());
        (this, session, main)
    }

    fn arm(&self, interruption: impl FnOnce() + Send + 'static) {
        *self.interruption.lock() = Some(Box::new(interruption));
    }
}

impl TaskDispatcher for Interrupts {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        if task.label() == KEPT {
            self.kept.lock().push(task);
            return Ok(());
        }
        if task.label() == self.label {
            let interruption = self.interruption.lock().take();
            if let Some(interruption) = interruption {
                within_reason(interruption);
            }
        }
        self.inner.dispatch(task)
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

#[test]
fn others_go_on_between_the_slices_of_an_emission() {
    let (interrupts, session, main) = Interrupts::after("query.complete");
    let (names, root) = fan_of_waiting_units(&session, &main);
    let each: Vec<_> =
        names.iter().map(|name| look_all_up(&session, &main, std::slice::from_ref(name))).collect();
    let (other, dylib) = (session.clone(), main.clone());
    let last = names.last().unwrap().clone();
    let (told, still_waits) = mpsc::channel();
    interrupts.arm(move || {
        define_simple(&dylib, "meanwhile", &["meanwhile"]);
        other.lookup_symbol(&order(&dylib), &other.intern("meanwhile")).unwrap();
        let answer = look_all_up(&other, &dylib, &[last]);
        told.send(answer.try_recv().is_err()).unwrap();
    });
    root.notify_emitted(Vec::new()).unwrap();
    assert_eq!(still_waits.try_recv(), Ok(true), "most of it was still to come");
    for answer in each {
        assert!(answer.try_recv().unwrap().is_ok());
    }
}

/// A removal by tracker is one moment for everybody, though its rows go one after the other.
#[test]
fn nobody_sees_half_a_removal() {
    let (interrupts, session, main) = Interrupts::after("session.release");
    let names = names(&session, SYMBOLS);
    let tracker = main.create_tracker();
    for name in &names {
        let flags = [(name.clone(), EXPORTED)].into_iter().collect();
        main.define_with_tracker(TestUnit::new("unit", flags, finish).boxed(), &tracker).unwrap();
    }
    // Every other one is Ready, and found without the lock; the units of the rest are dropped slice by slice.
    session
        .lookup(LookupRequest::new(order(&main), LookupSet::required(names.iter().step_by(2).cloned())))
        .unwrap();
    let (other, dylib, removed, all) = (session.clone(), main.clone(), tracker.clone(), names.clone());
    let (told, looked) = mpsc::channel();
    interrupts.arm(move || {
        assert!(removed.is_defunct());
        assert_eq!(dylib.flags(all.clone()), []);
        for name in [&all[0], &all[1], &all[SYMBOLS / 2], &all[SYMBOLS - 1]] {
            let error = other.lookup_symbol(&order(&dylib), name).unwrap_err();
            assert!(matches!(error, LookupError::NotFound { .. }), "{error}");
            let symbols: SymbolMap = [(name.clone(), at(2))].into_iter().collect();
            dylib.define(absolute_symbols(symbols)).unwrap();
            assert_eq!(other.lookup_symbol(&order(&dylib), name).unwrap(), at(2));
        }
        told.send(()).unwrap();
    });
    tracker.remove().unwrap();
    looked.try_recv().expect("somebody looked between two slices");
    for index in [0, 1, SYMBOLS / 2, SYMBOLS - 1] {
        assert_eq!(session.lookup_symbol(&order(&main), &names[index]).unwrap(), at(2));
    }
    assert_eq!(main.flags(names).len(), 4);
}

/// Two threads remove a large tracker each; the resources of neither go before its symbols.
#[test]
fn a_removal_that_others_attend_to_ends_before_it_returns() {
    let (session, main) = session();
    let all = names(&session, SYMBOLS);
    thread::scope(|scope| {
        for half in all.chunks(SYMBOLS / 2) {
            let main = &main;
            let tracker = main.create_tracker();
            let symbols: SymbolMap = half.iter().map(|name| (name.clone(), at(1))).collect();
            main.define_with_tracker(absolute_symbols(symbols), &tracker).unwrap();
            let (counted, counts) = mpsc::channel();
            tracker.add_resource(Box::new(Counts(main.clone(), half.to_vec(), counted))).unwrap();
            scope.spawn(move || {
                tracker.remove().unwrap();
                assert_eq!(counts.try_recv(), Ok(0));
            });
        }
    });
}

/// Names of symbols whose units keep `alive` alive, in a tracker of their own.
fn define_many_that_keep(main: &JitDylib, prefix: &str, alive: &Arc<()>) -> uruk_core::ResourceTracker {
    let tracker = main.create_tracker();
    for index in 0..SYMBOLS {
        let flags = exported(main.session(), &[&format!("{prefix}_{index}")]);
        let kept = alive.clone();
        let unit = TestUnit::new("unit", flags, move |responsibility| {
            drop(kept);
            finish(responsibility);
        });
        main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    }
    tracker
}

/// ```text
///  one thread:   removes a tracker ─ slice │                              │ slices ...
///  another:                                │ removes a tracker ─ returns: │ all of it is gone
/// ```
#[test]
fn a_removal_does_not_leave_its_slices_to_another_thread() {
    let (interrupts, _session, main) = Interrupts::after("session.release");
    let (first, second) = (Arc::new(()), Arc::new(()));
    let attended = define_many_that_keep(&main, "first", &first);
    let other = define_many_that_keep(&main, "second", &second);
    let (told, left) = mpsc::channel();
    interrupts.arm(move || {
        other.remove().unwrap();
        told.send(Arc::strong_count(&second) - 1).unwrap();
    });
    attended.remove().unwrap();
    assert_eq!(left.try_recv(), Ok(0), "units of the tracker are there when its removal returns");
    assert_eq!(Arc::strong_count(&first), 1);
}

/// ```text
///  one thread:   removes a tracker ─ slice │                                        │ slices ...
///  another:                                │ begins with what was queued before: no │
/// ```
#[test]
fn what_is_removed_with_its_tracker_and_has_not_gone_yet_does_not_begin() {
    let (interrupts, session, main) = Interrupts::after("session.release");
    let tracker = main.create_tracker();
    let begun = Arc::new(AtomicUsize::new(0));
    let define_kept = |symbol: &str| {
        let begun = begun.clone();
        let unit = TestUnit::new(KEPT, exported(&session, &[symbol]), move |responsibility| {
            begun.fetch_add(1, Ordering::Relaxed);
            finish(responsibility);
        });
        main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    };
    // Whichever end goes first, there is one at the other.
    define_kept("at one end");
    for index in 0..SYMBOLS {
        let unit = TestUnit::new("unit", exported(&session, &[&format!("symbol_{index}")]), finish);
        main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    }
    define_kept("at the other");
    let answers = ["at one end", "at the other"].map(|name| look_up_later(&session, request(&main, &[name])));
    let kept = interrupts.kept.clone();
    assert_eq!(kept.lock().len(), 2, "both are queued");
    interrupts.arm(move || {
        let tasks = std::mem::take(&mut *kept.lock());
        tasks.into_iter().for_each(Task::run);
    });
    tracker.remove().unwrap();
    assert_eq!((begun.load(Ordering::Relaxed), interrupts.kept.lock().len()), (0, 0));
    assert!(answers.iter().all(|answer| answer.try_recv().unwrap().is_err()));
}

/// Takes no answers: it refuses one, drops the next, and so on. They are told by the thread that has them.
#[derive(Debug, Default)]
struct TakesNoAnswers(InPlaceTaskDispatcher, AtomicUsize);

impl TaskDispatcher for TakesNoAnswers {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        if task.label() != "query.complete" {
            return self.0.dispatch(task);
        }
        if self.1.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            return Err(task);
        }
        drop(task);
        Ok(())
    }

    fn run_ready(&self) {
        self.0.run_ready();
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        self.0.wait(latch)
    }

    fn shutdown(&self) {
        self.0.shutdown();
    }
}

/// A handler may wait for a result of the slices, and they would lie beneath it.
#[test]
fn what_a_thread_has_to_run_itself_waits_for_its_last_slice() {
    let (session, main) = session_on(Arc::new(TakesNoAnswers::default()));
    let (names, root) = fan_of_waiting_units(&session, &main);
    let all_of_them = look_all_up(&session, &main, &names);
    let (told, tells) = mpsc::channel();
    for name in names.iter().step_by(SYMBOLS / 8) {
        let (other, dylib, all, told) = (session.clone(), main.clone(), names.clone(), told.clone());
        let request = LookupRequest::new(order(&main), LookupSet::required([name.clone()]));
        session.lookup_async(request, move |_| {
            let is_ready = |name| matches!(other.why(&dylib, name).state, WhyState::Ready { .. });
            told.send(is_ready(&all[0]) && is_ready(&all[SYMBOLS - 1])).unwrap();
        });
    }
    root.notify_emitted(Vec::new()).unwrap();
    assert!(all_of_them.try_recv().unwrap().is_ok());
    assert_eq!(tells.try_iter().collect::<Vec<_>>(), [true; 8]);
}
