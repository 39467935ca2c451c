//! Initialising dylibs: who runs what has been linked and not been run, and who waits for it.
//!
//! ```text
//!   initialize ─▶ another thread is at it? ──yes──▶ wait until it is done ─┐
//!                      │ no  ◀──────────────────────────────────────────────┘
//!                      ▼
//!                 take what is Ready ──nothing──▶ done
//!                      │ ▲
//!                      ▼ │
//!                  run it, without the lock
//! ```
//!
//! A thread that is inside of an initialiser does not wait for itself, nor for a thread that waits for it: it finds what those run as
//! it is, as code does that calls back into a static initialiser.

use std::thread::ThreadId;

use rustc_hash::FxHashMap;
use uruk_core::sync::{Arc, Latch, thread};
use uruk_core::{JitDylib, SymbolName, WaitError};

use super::{DefinitionWatch, Platform, State, UnitFunctions, ready};
use crate::runtime::endings::{self, Home, WeakHome};
use crate::runtime::startup;

/// The dylibs that are being initialised.
#[derive(Debug, Default)]
pub(super) struct Starts {
    running: Vec<Start>,
    /// For whom each thread waits.
    waiting: FxHashMap<ThreadId, ThreadId>,
}

/// A thread that initialises a dylib.
#[derive(Debug)]
struct Start {
    home: Home,
    thread: ThreadId,
    is_over: Arc<Latch>,
}

impl Starts {
    /// Finds what `thread` has to wait for before it initialises `home`, and notes that it does.
    fn wait_for(&mut self, home: &Home, thread: ThreadId) -> Option<Arc<Latch>> {
        let mut others = self.running.iter().filter(|start| start.home == *home && start.thread != thread);
        let other = others.find(|start| !self.leads_to(start.thread, thread))?;
        let (whom, is_over) = (other.thread, other.is_over.clone());
        self.waiting.insert(thread, whom);
        Some(is_over)
    }

    /// Whether `from` waits for `thread`, itself or by others.
    fn leads_to(&self, from: ThreadId, thread: ThreadId) -> bool {
        std::iter::successors(Some(from), |at| self.waiting.get(at).copied()).any(|at| at == thread)
    }

    fn begin(&mut self, home: Home, thread: ThreadId) -> Arc<Latch> {
        let is_over = Arc::new(Latch::new());
        self.running.push(Start { home, thread, is_over: is_over.clone() });
        is_over
    }

    fn end(&mut self, is_over: &Arc<Latch>) {
        self.running.retain(|start| !Arc::ptr_eq(&start.is_over, is_over));
    }
}

impl Platform {
    /// Whether there may be something to initialise. `false` says that all is run of what was linked before the call.
    ///
    /// # Cost
    /// Two loads and a comparison under an uncontended lock.
    pub fn has_uninitialized(&self) -> bool {
        let state = self.state.lock();
        !state.unasked.is_empty() || !state.unstarted.is_empty() || !state.starts.running.is_empty()
    }

    /// The initializer symbols of the units of `dylib` that have initializers and have not been [asked for](Platform::note_asked).
    /// Looking them up links their units.
    pub fn unasked(&self, dylib: &JitDylib) -> Vec<SymbolName> {
        let state = self.state.lock();
        let Some(home) = state.known_home(dylib) else { return Vec::new() };
        let of_home = state.unasked.values().filter(|(of, _)| *of == home);
        of_home.map(|(_, symbol)| symbol.clone()).collect()
    }

    /// Notes that the units of these initializer symbols are linked, or cannot be.
    pub fn note_asked<'a>(&self, symbols: impl IntoIterator<Item = &'a SymbolName>) {
        let mut state = self.state.lock();
        let mut asked = Vec::new();
        for symbol in symbols {
            let order = state.declared.get(symbol).copied();
            asked.extend(order.and_then(|order| state.unasked.remove(&order)));
        }
        drop(state);
        drop(asked);
    }

    /// Runs, on this thread, the initializers of `dylib` that belong to units which are Ready and were neither run nor handed out:
    /// by priority, unit and place. Their finalizers are to run at the end ([`Platform::deinitialize`]).
    ///
    /// # Concurrency
    /// Each runs once. If another thread initialises the dylib, this one waits for it, unless that one waits for this one.
    ///
    /// # Errors
    /// If the thread may not wait, as [`blocking`](uruk_core::ExecutionSession::blocking) says.
    ///
    /// # Safety
    /// The code was made by a compiler that puts functions there which can be called so. Its tracker is not removed by what they do.
    pub unsafe fn initialize(&self, dylib: &JitDylib) -> Result<(), WaitError> {
        let thread = thread::current().id();
        loop {
            let Some((home, watched)) = self.unstarted(dylib) else { return Ok(()) };
            let ready = ready(watched);
            let mut state = self.state.lock();
            if let Some(is_over) = state.starts.wait_for(&home, thread) {
                drop(state);
                let waited = dylib.session().blocking(|| is_over.wait());
                self.state.lock().starts.waiting.remove(&thread);
                waited?;
                continue;
            }
            let units: Vec<_> = ready.into_iter().filter_map(|number| state.start(number)).collect();
            if units.is_empty() {
                return Ok(());
            }
            let is_over = state.starts.begin(home, thread);
            drop(state);
            // SAFETY: the functions were found in the arrays that the compiler made for this purpose. Everything they depend on is
            // Ready, and `units` keeps their code.
            unsafe { run(&units) };
            self.state.lock().starts.end(&is_over);
            is_over.open();
        }
    }

    /// The records of a dylib whose initializers nobody has taken.
    fn unstarted(&self, dylib: &JitDylib) -> Option<(Home, Vec<(u64, DefinitionWatch)>)> {
        let state = self.state.lock();
        let home = state.known_home(dylib)?;
        let functions =
            state.unstarted.iter().filter_map(|number| Some((*number, state.recorded.get(number)?)));
        let of_home = functions.filter(|(_, functions)| functions.home == home);
        let watched = of_home.map(|(number, functions)| (number, functions.watch.clone())).collect();
        Some((home, watched))
    }

    /// Runs what the code of `dylib` has registered for its end: handlers, newest first, then the finalizers of what was initialised,
    /// last to first. What ran once does not run again; nor do the initializers.
    ///
    /// # Safety
    /// Nobody uses the dylib's objects with destructors from now on.
    pub unsafe fn deinitialize(&self, dylib: &JitDylib) {
        let home = self.state.lock().known_home(dylib);
        endings::run_of_homes(home.into_iter().collect());
    }

    /// Runs what the code of all dylibs has registered for its end, as [`Platform::deinitialize`] does for one.
    ///
    /// # Safety
    /// Nobody uses objects with destructors of any of it from now on.
    pub unsafe fn deinitialize_all(&self) {
        let homes = self.state.lock().homes.values().filter_map(WeakHome::upgrade).collect();
        endings::run_of_homes(homes);
    }
}

/// A unit whose initializers run.
struct Unit {
    functions: UnitFunctions,
    _kept: Option<endings::Kept>,
}

impl State {
    /// Takes the functions of a unit that is to be initialised, with what keeps its code. `None` if it is gone.
    fn start(&mut self, number: u64) -> Option<Unit> {
        if !self.unstarted.remove(&number) {
            return None;
        }
        let recorded = self.recorded.get_mut(&number)?;
        // The record goes before the code does, so that the code is there.
        let kept = recorded.code.map(endings::hold);
        let functions = recorded.take_for_start();
        Some(Unit { functions, _kept: kept.flatten() })
    }
}

/// # Safety
/// All functions can be called as elements of such arrays.
unsafe fn run(units: &[Unit]) {
    let finalizers = units.iter().flat_map(|Unit { functions, .. }| {
        functions.finalizers.iter().map(|function| (functions.code, *function))
    });
    // SAFETY: the caller's obligation. They are known before the first initializer runs, which may call `exit`.
    unsafe { endings::add_finalizers(finalizers) };
    let initializers = units
        .iter()
        .flat_map(|unit| unit.functions.preinitializers.iter().chain(&unit.functions.initializers));
    // SAFETY: the caller's obligation.
    unsafe { startup::run_initializers(initializers.copied()) };
}
