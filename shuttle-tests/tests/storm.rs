//! Storm: what is too large for loom, all at once, beside lookups of every face.
//!
//! ```text
//!   unit top:    t0, t1   needs m0 and m1          (program)
//!   unit middle: m0, m1   needs b0, and t0         (program: a cycle with top)
//!   unit bottom: b0, b1   needs g                  (program)
//!   generator of library  defines g when asked, on a thread of its own, or fails
//!
//!   askers: blocking lookups, handlers, futures that are awaited or dropped
//!   breakers: by name, by tracker, by generator, by clearing, by redefining; units that fail or are dropped half done
//! ```
//!
//! Held in every schedule tried: a lookup ends exactly once, or is withdrawn by the drop of its future (I2); the symbols in its
//! answer were emitted, and so were all their dependences (I4); an error has its cause in an event (a unit that failed, a
//! removal); no thread waits for ever (I12: shuttle reports a deadlock); `check.rs` holds after each transaction.
#![cfg(uruk_shuttle)]

mod common;
mod scripted;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

use common::explore;
use scripted::{Scripted, all_at};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;
use uruk_core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Condvar, Mutex, thread};
use uruk_core::{
    DefinitionGenerator, DependenceGroup, ExecutionSession, FailureCause, GenerateRequest, GeneratorId,
    JitDylib, JitDylibLookupFlags, LookupError, LookupRequest, LookupResult, LookupSet,
    MaterializationResponsibility, ResourceTracker, SearchOrder, SymbolFlags, SymbolName,
};

const NAMES: [&str; 7] = ["t0", "t1", "m0", "m1", "b0", "b1", "g"];

#[test]
fn every_lookup_ends_once_with_nothing_that_was_never_emitted() {
    explore(RandomScheduler::new, 4000, || {
        let stage = Arc::new(Stage::new());
        let spawn = |run: fn(&Arc<Stage>)| {
            let stage = stage.clone();
            thread::spawn(move || run(&stage))
        };
        let threads = [spawn(ask), spawn(ask), spawn(break_things), spawn(break_things)];
        for thread in threads {
            thread.join().expect("no panic");
        }
        // Threads of units may still run; closing waits for the tasks that the session has counted, and ends the rest.
        stage.session.close().expect("nothing of this scenario refuses to go");
        let (asked, told) = (stage.asked.load(Ordering::Relaxed), stage.told.load(Ordering::Relaxed));
        assert_eq!(asked, told, "each lookup that was not withdrawn has ended, and once");
    });
}

struct Stage {
    session: ExecutionSession,
    program: JitDylib,
    library: JitDylib,
    names: BTreeMap<&'static str, SymbolName>,
    generator: Mutex<Option<GeneratorId>>,
    trackers: Mutex<Vec<ResourceTracker>>,
    facts: Arc<Facts>,
    asked: AtomicUsize,
    told: Arc<AtomicUsize>,
}

/// The events, noted before the session learns of them.
#[derive(Default)]
struct Facts {
    /// For each address ever emitted, the addresses it depends on.
    emitted: Mutex<BTreeMap<u64, Vec<u64>>>,
    next_address: AtomicU64,
    failures: AtomicUsize,
    removals: AtomicUsize,
}

impl Stage {
    fn new() -> Self {
        let session = ExecutionSession::new();
        let dylib = |name: &str| session.create_jit_dylib(name).expect("it is new");
        let (program, library) = (dylib("program"), dylib("library"));
        let stage = Self {
            names: NAMES.into_iter().map(|name| (name, session.intern(name))).collect(),
            generator: Mutex::new(None),
            trackers: Mutex::default(),
            facts: Arc::default(),
            asked: AtomicUsize::new(0),
            told: Arc::default(),
            session,
            program,
            library,
        };
        stage.add_generator();
        stage.define_top();
        stage.define_middle();
        stage.define_bottom();
        stage
    }

    fn order(&self) -> SearchOrder {
        let all = JitDylibLookupFlags::MatchAllSymbols;
        [(self.program.clone(), all), (self.library.clone(), all)].into()
    }

    fn add_generator(&self) {
        let generator = Arc::new(Generates { facts: self.facts.clone(), name: self.names["g"].clone() });
        *self.generator.lock() = self.library.add_generator(generator);
    }

    fn define_top(&self) {
        self.define(&["t0", "t1"], &["m0", "m1"]);
    }

    fn define_middle(&self) {
        self.define(&["m0", "m1"], &["b0", "t0"]);
    }

    fn define_bottom(&self) {
        self.define(&["b0", "b1"], &["g"]);
    }

    /// Refused if a name is defined already.
    fn define(&self, symbols: &[&str], needs: &[&str]) {
        let flags = SymbolFlags::EXPORTED;
        let needs = LookupSet::required(needs.iter().map(|name| self.names[name].clone()));
        let request = LookupRequest::new(self.order(), needs).until_resolved();
        let facts = self.facts.clone();
        let symbols = symbols.iter().map(|name| (self.names[name].clone(), flags));
        let unit = Scripted::new(symbols, move |responsibility| {
            facts.materialize(responsibility, Some(request));
        });
        let tracker = self.program.create_tracker();
        if self.program.define_with_tracker(unit, &tracker).is_ok() {
            self.trackers.lock().push(tracker);
        }
    }
}

impl Facts {
    fn address(&self) -> u64 {
        // Relaxed: shuttle's atomics are sequentially consistent.
        self.next_address.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn note_failure(&self) {
        // Relaxed: as above.
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Resolves, asks for the unit's needs as a linker does, emits; or fails somewhere on the way. Here, or on another thread.
    fn materialize(
        self: &Arc<Self>,
        responsibility: MaterializationResponsibility,
        needs: Option<LookupRequest>,
    ) {
        let facts = self.clone();
        if thread_rng().gen_bool(0.5) {
            return facts.make(responsibility, needs);
        }
        let parked = responsibility.detach();
        thread::spawn(move || facts.make(parked.attach(), needs));
    }

    fn make(self: Arc<Self>, responsibility: MaterializationResponsibility, needs: Option<LookupRequest>) {
        let fails = |probability| {
            let fails = thread_rng().gen_bool(probability);
            if fails {
                self.note_failure();
            }
            fails
        };
        if fails(0.05) {
            return;
        }
        let (address, session) = (self.address(), responsibility.session().clone());
        let addresses = all_at(&responsibility, address);
        // Refused if a removal was faster.
        let Ok(resolved) = responsibility.notify_resolved(&addresses) else { return };
        if fails(0.05) {
            return;
        }
        let Some(needs) = needs else {
            self.emitted.lock().insert(address, Vec::new());
            return drop(resolved.notify_emitted(Vec::new()));
        };
        let symbols: Vec<_> = resolved.symbols().keys().cloned().collect();
        let (parked, facts) = (resolved.detach(), self.clone());
        session.lookup_async(needs, move |found| {
            // Without an answer the responsibility is dropped, which fails the symbols for a reason known already.
            let Ok(found) = found else { return };
            let on = found.iter().map(|(_, definition)| definition.address.value()).collect();
            facts.emitted.lock().insert(address, on);
            let group = DependenceGroup { symbols, dependencies: found.dependencies() };
            drop(parked.attach().notify_emitted(vec![group]));
        });
    }

    /// I4: an answer was emitted with all that it depends on. A failure has happened if it is told of.
    fn check(&self, answer: &Result<LookupResult, LookupError>) {
        match answer {
            Ok(found) => {
                let emitted = self.emitted.lock();
                let mut reached = BTreeSet::new();
                let mut work: Vec<u64> =
                    found.iter().map(|(_, definition)| definition.address.value()).collect();
                while let Some(address) = work.pop() {
                    let on = emitted.get(&address);
                    let on = on.unwrap_or_else(|| panic!("{address} was told of and never emitted"));
                    if reached.insert(address) {
                        work.extend(on);
                    }
                }
            }
            Err(error) => {
                // Relaxed: shuttle's atomics are sequentially consistent.
                let (failures, removals) =
                    (self.failures.load(Ordering::Relaxed), self.removals.load(Ordering::Relaxed));
                let explained = match error {
                    LookupError::Failed(failure) => match failure.cause {
                        FailureCause::Abandoned => failures + removals > 0,
                        FailureCause::Removed => removals > 0,
                        _ => false,
                    },
                    LookupError::NotFound { .. } => removals > 0,
                    LookupError::Generator { .. } => failures + removals > 0,
                    LookupError::Closed => true,
                    _ => false,
                };
                assert!(explained, "after {failures} failures and {removals} removals: {error}");
            }
        }
    }
}

/// Looks a few names up, with each of the faces.
fn ask(stage: &Arc<Stage>) {
    for _ in 0..2 {
        let wanted: Vec<_> = NAMES.into_iter().filter(|_| thread_rng().gen_bool(0.4)).collect();
        let set = LookupSet::required(wanted.iter().map(|name| stage.names[name].clone()));
        let request = LookupRequest::new(stage.order(), set.clone());
        // Relaxed: shuttle's atomics are sequentially consistent.
        stage.asked.fetch_add(1, Ordering::Relaxed);
        let (facts, told) = (stage.facts.clone(), stage.told.clone());
        match thread_rng().gen_range(0..4) {
            0 => {
                facts.check(&stage.session.lookup(LookupRequest::new(stage.order(), set)));
                told.fetch_add(1, Ordering::Relaxed);
            }
            1 => stage.session.lookup_async(request, move |answer| {
                facts.check(&answer);
                told.fetch_add(1, Ordering::Relaxed);
            }),
            2 => {
                let answer = block_on(stage.session.lookup_future(request));
                facts.check(&answer);
                told.fetch_add(1, Ordering::Relaxed);
            }
            _ => {
                drop(stage.session.lookup_future(request));
                // Withdrawn, or ended with no receiver.
                told.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Removes and redefines.
fn break_things(stage: &Arc<Stage>) {
    for _ in 0..2 {
        // Relaxed: shuttle's atomics are sequentially consistent.
        stage.facts.removals.fetch_add(1, Ordering::Relaxed);
        match thread_rng().gen_range(0..6) {
            0 => {
                let name = stage.names[NAMES[thread_rng().gen_range(0..6)]].clone();
                // Refused while the symbol is materializing.
                let _ = stage.program.remove(&[name]);
            }
            1 => {
                let tracker = stage.trackers.lock().pop();
                if let Some(tracker) = tracker {
                    tracker.remove().expect("it has no resources that refuse to go");
                }
            }
            2 => {
                let generator = stage.generator.lock().take();
                if let Some(generator) = generator {
                    stage.library.remove_generator(generator);
                    stage.add_generator();
                }
            }
            3 => stage.library.clear().expect("it has no resources that refuse to go"),
            4 => {
                let tracker = stage.trackers.lock().pop();
                if let Some(tracker) = tracker {
                    // Defunct if a removal was faster.
                    let _ = tracker.transfer_to(&stage.program.default_tracker());
                }
            }
            _ => stage.program.clear().expect("it has no resources that refuse to go"),
        }
        stage.define_top();
        stage.define_middle();
        stage.define_bottom();
    }
}

/// Defines one name, in the call or on a thread of its own, or drops the request, which fails it.
struct Generates {
    facts: Arc<Facts>,
    name: SymbolName,
}

impl DefinitionGenerator for Generates {
    fn name(&self) -> &str {
        "generates"
    }

    fn generate(&self, request: GenerateRequest) {
        let (facts, name) = (self.facts.clone(), self.name.clone());
        let answer = move |request: GenerateRequest| {
            if thread_rng().gen_bool(0.1) {
                facts.note_failure();
                return;
            }
            if request.symbols().iter().any(|(asked, _)| *asked == name) {
                let unit = Scripted::new([(name, SymbolFlags::EXPORTED)], move |responsibility| {
                    facts.materialize(responsibility, None);
                });
                // Refused if it is there already.
                let _ = request.dylib().define(unit);
            }
            request.finish(Ok(()));
        };
        match thread_rng().gen_bool(0.5) {
            true => answer(request),
            false => {
                let parked = request.detach();
                drop(thread::spawn(move || answer(parked.attach())));
            }
        }
    }
}

/// Polls a future on this thread until it is done.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    #[derive(Default)]
    struct Woken {
        woken: Mutex<bool>,
        changed: Condvar,
    }
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            *self.woken.lock() = true;
            self.changed.notify_one();
        }
    }
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    loop {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut is_woken = woken.woken.lock();
        while !*is_woken {
            is_woken = woken.changed.wait(is_woken);
        }
        *is_woken = false;
    }
}
