//! The common part of tests of certain deadlocks: units that block and report errors, and the one cycle that a lookup was told
//! of.

use std::sync::{Arc, mpsc};

use uruk_core::{
    DeadlockStep, DefinitionGenerator, ExecutionSession, GenerateRequest, JitDylib, LookupError,
    LookupRequest, MaterializationResponsibility, SymbolName, Task, TaskPriority, WhyState,
};

use crate::{TestUnit, exported, finish, order, set};

/// The reported errors, each with the name of its lookup.
pub type Told = mpsc::Receiver<(String, LookupError)>;

/// The sender of such reports.
pub type Teller = mpsc::Sender<(String, LookupError)>;

/// Looks symbols of `main` up, blocking.
pub fn look_up(main: &JitDylib, names: &[&str]) -> Result<(), LookupError> {
    main.session().lookup(LookupRequest::new(order(main), set(main.session(), names))).map(drop)
}

/// The same as `who`, who tells of an error.
pub fn look_up_as(who: &str, main: &JitDylib, names: &[&str], told: &Teller) -> Result<(), LookupError> {
    let outcome = look_up(main, names);
    if let Err(error) = &outcome {
        told.send((who.to_owned(), error.clone())).expect("the test listens");
    }
    outcome
}

/// A unit of `symbol`, of the same name in capitals, which blocks in a lookup of `needs`.
pub fn blocking_unit(session: &ExecutionSession, symbol: &str, needs: &[&str], told: &Teller) -> TestUnit {
    let (told, name) = (told.clone(), symbol.to_uppercase());
    let needs: Vec<String> = needs.iter().map(|&name| name.to_owned()).collect();
    TestUnit::new(&name.clone(), exported(session, &[symbol]), move |responsibility| {
        let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
        let outcome = look_up_as(&name, responsibility.dylib(), &needs, &told);
        finish_or_fail(responsibility, outcome);
    })
}

/// Defines a [`blocking_unit`].
pub fn define_blocking(main: &JitDylib, symbol: &str, needs: &[&str], told: &Teller) {
    let unit = blocking_unit(main.session(), symbol, needs, told);
    main.define(unit.boxed()).expect("nothing of the name is defined");
}

/// Finishes, or fails with the error of the needed lookup.
pub fn finish_or_fail(responsibility: MaterializationResponsibility, outcome: Result<(), LookupError>) {
    match outcome {
        Ok(()) => finish(responsibility),
        Err(error) => responsibility.fail(Arc::new(error)),
    }
}

/// Whether the thread that has the responsibility of `symbol` is blocked in a lookup of `needs`.
pub fn is_blocked_for(main: &JitDylib, symbol: &SymbolName, needs: &SymbolName) -> bool {
    let why = main.session().why(main, symbol);
    let (WhyState::Materializing(work) | WhyState::Resolved { work, .. }) = why.state else { return false };
    work.blocked_in.is_some_and(|waits| waits.symbols.iter().any(|waited| waited.symbol == *needs))
}

/// Waits until that is so.
pub fn until_blocked_for(main: &JitDylib, symbol: &str, needs: &str) {
    let [symbol, needs] = [symbol, needs].map(|name| main.session().intern(name));
    while !is_blocked_for(main, &symbol, &needs) {
        std::thread::yield_now();
    }
}

/// Leaves `run` as a task for the next lookup that blocks on this thread.
pub fn while_blocked(session: &ExecutionSession, run: impl FnOnce() + Send + 'static) {
    session.dispatch(Task::new("late", TaskPriority::Demanded, run));
}

/// The name of the one lookup that was told of a cycle, and the cycle's symbols from the least on.
pub fn the_cycle(told: &Told) -> (String, Vec<String>) {
    let name = |step: &DeadlockStep| step.symbol().map_or("(generator)".to_owned(), SymbolName::to_string);
    the_cycle_as(told, name)
}

/// The same with the text of each step from `text`.
pub fn the_cycle_as(told: &Told, text: impl Fn(&DeadlockStep) -> String) -> (String, Vec<String>) {
    let errors: Vec<_> = told.try_iter().collect();
    let mut cycles = errors.iter().filter_map(|(who, error)| match error {
        LookupError::WouldDeadlock { path } => Some((who.clone(), path)),
        _ => None,
    });
    let (who, path) = cycles.next().unwrap_or_else(|| panic!("no deadlock among {errors:?}"));
    assert!(cycles.next().is_none(), "more than one was told: {errors:?}");
    let mut cycle: Vec<String> = path.iter().map(text).collect();
    let least = cycle.iter().enumerate().min_by_key(|(_, step)| *step).map_or(0, |(index, _)| index);
    cycle.rotate_left(least);
    (who, cycle)
}

/// A generator that looks `needs` up, blocking, before it finishes any request; reports an error.
#[derive(Debug)]
pub struct LooksUp {
    /// The symbol.
    pub needs: &'static str,
    /// Whom it tells.
    pub told: Teller,
}

impl DefinitionGenerator for LooksUp {
    fn name(&self) -> &str {
        "looks up"
    }

    fn generate(&self, request: GenerateRequest) {
        let outcome = look_up_as(self.name(), request.dylib(), &[self.needs], &self.told);
        request.finish(outcome.map_err(|error| Arc::new(error) as _));
    }
}
