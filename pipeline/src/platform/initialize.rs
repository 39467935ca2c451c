//! Initialising dylibs: one thread runs the initializers of linked units, others wait for it.
//!
//! `starts.rs` has the order of threads.

use uruk_core::{JitDylib, SymbolName, WaitError};

use super::starts::start_all;
use super::{DefinitionWatch, Platform, PlatformState, UnitFunctions, ready};
use crate::executor::{Home, WeakHome};
use crate::runtime::endings;
use crate::runtime::startup;

impl Platform {
    /// Whether there may be something to initialise. `false` says that all initializers of code that was linked before the call have run.
    ///
    /// # Concurrency
    /// Code is noted before it is Ready: a thread that has found a symbol and sees `false` sees its objects constructed.
    ///
    /// # Cost
    /// One load.
    pub fn has_uninitialized(&self) -> bool {
        self.uninitialized.may_be_there()
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
    /// The code was made by a compiler that puts functions there which can be called so. The functions do not remove its tracker.
    pub unsafe fn initialize(&self, dylib: &JitDylib) -> Result<(), WaitError> {
        start_all(
            &self.state,
            &self.uninitialized,
            || self.unstarted(dylib).map(|(home, watched)| (home, ready(watched))),
            |state, ready| ready.into_iter().filter_map(|number| state.start(number)).collect(),
            |is_over| dylib.session().blocking(|| is_over.wait()),
            // SAFETY: the functions were found in the arrays that the compiler made for this purpose. Everything they depend on is
            // Ready, and the units keep their code.
            |units| unsafe { run(&units) },
        )
    }

    /// The records of a dylib whose initializers were not taken yet.
    fn unstarted(&self, dylib: &JitDylib) -> Option<(Home, Vec<(u64, DefinitionWatch)>)> {
        let state = self.state.lock();
        let home = state.known_home(dylib)?;
        let functions =
            state.unstarted.iter().filter_map(|number| Some((*number, state.recorded.get(number)?)));
        let of_home = functions.filter(|(_, functions)| functions.home == home);
        let watched = of_home.map(|(number, functions)| (number, functions.watch.clone())).collect();
        Some((home, watched))
    }

    /// Runs the functions that the code of `dylib` has registered for its end: handlers, newest first, then the finalizers of initialised
    /// units, last to first. Functions that ran do not run again; nor do the initializers.
    ///
    /// # Safety
    /// No thread uses the dylib's objects with destructors from now on.
    pub unsafe fn deinitialize(&self, dylib: &JitDylib) {
        let home = self.state.lock().known_home(dylib);
        endings::run_of_homes(home.into_iter().collect());
    }

    /// Runs the functions that the code of all dylibs has registered for its end, as [`Platform::deinitialize`] does for one.
    ///
    /// # Safety
    /// No thread uses objects with destructors of any dylib from now on.
    pub unsafe fn deinitialize_all(&self) {
        let homes = self.state.lock().homes.values().filter_map(WeakHome::upgrade).collect();
        endings::run_of_homes(homes);
    }
}

/// A unit whose initializers run.
struct Unit {
    functions: UnitFunctions,
    _kept: Option<endings::KeptCode>,
}

impl PlatformState {
    /// Takes the functions of a unit that is to be initialised, and keeps its code. `None` if it is gone.
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
