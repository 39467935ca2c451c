//! The unit of a body: a tree, until the function is called. And what units and session share.

use std::time::{Duration, Instant};

use uruk::core::sync::{Arc, Mutex};
use uruk::core::{
    ExecutorAddr, JitDylib, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    SymbolFlags, SymbolName, WithCauses,
};
use uruk::pipeline::ir::IrLayer as _;
use uruk::pipeline::ir::{IrCompileLayer, ThreadSafeModule};
use uruk::pipeline::lazy::LazyCallFailure;
use uruk_kaleidoscope::{Callee, Definition, Functions, lower};

use super::{OnLowered, SessionError};

/// State of a program that its units see, on any thread.
pub(super) struct Program {
    state: Mutex<State>,
    on_lowered: OnLowered,
}

#[derive(Default)]
struct State {
    /// The functions that can be called. A unit takes it as it is when its IR is made.
    functions: Arc<Functions>,
    work: Work,
    /// Calls that found no function, since the last look.
    failures: Vec<CallFailure>,
}

/// The compiled bodies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// How many bodies.
    pub(super) bodies: u64,
    /// How long they took.
    pub(super) time: Duration,
}

/// A call that found no function.
pub(super) struct CallFailure {
    /// The body that could not be made.
    pub(super) body: SymbolName,
    pub(super) error: SessionError,
}

impl Program {
    pub(super) fn new(on_lowered: OnLowered) -> Self {
        Self { state: Mutex::default(), on_lowered }
    }

    /// Notes what a name stands for; what it was before.
    pub(super) fn declare(&self, name: &str, callee: Callee) -> Option<Callee> {
        Arc::make_mut(&mut self.state.lock().functions).insert(name.to_owned(), callee)
    }

    /// The functions that can be called now.
    pub(super) fn functions(&self) -> Arc<Functions> {
        self.state.lock().functions.clone()
    }

    /// The bodies that were compiled so far.
    pub(super) fn work(&self) -> Work {
        self.state.lock().work
    }

    /// The calls that have failed since this was last asked.
    pub(super) fn take_failures(&self) -> Vec<CallFailure> {
        std::mem::take(&mut self.state.lock().failures)
    }

    /// Where a call goes on that finds no function: it answers no number, and the session tells why when the expression has run.
    pub(super) fn call_failed(&self, failure: &LazyCallFailure) -> ExecutorAddr {
        let mut state = self.state.lock();
        // In a loop the same call may fail a million times.
        if !state.failures.iter().any(|known| known.body == failure.function) {
            let error = wrong_in(&failure.error).unwrap_or_else(|| SessionError::Call(failure.to_string()));
            state.failures.push(CallFailure { body: failure.function.clone(), error });
        }
        ExecutorAddr::from_ptr(no_number as extern "C" fn() -> f64 as *const ())
    }
}

/// Stands in for a function that cannot be had, with however many arguments: in this calling convention they are the caller's.
extern "C" fn no_number() -> f64 {
    f64::NAN
}

/// The mistake in the program because of which something failed.
pub(super) fn wrong_in(error: &(dyn std::error::Error + 'static)) -> Option<SessionError> {
    let mut causes = WithCauses(error).chain().take(64).filter_map(|cause| cause.downcast_ref());
    causes.find_map(|error: &SessionError| match error {
        SessionError::Wrong(diagnostic) => Some(SessionError::Wrong(diagnostic.clone())),
        _ => None,
    })
}

/// A body of a function.
pub(super) struct Body {
    pub(super) symbol: SymbolName,
    pub(super) definition: Arc<Definition>,
    pub(super) program: Arc<Program>,
    pub(super) layer: Arc<IrCompileLayer>,
}

/// Makes the module of a body.
pub(super) fn module_of(
    definition: &Definition,
    symbol: &str,
    functions: &Functions,
) -> Result<ThreadSafeModule, SessionError> {
    ThreadSafeModule::build(symbol, |context| Ok(lower(context, definition, symbol, functions)?))
}

impl MaterializationUnit for Body {
    fn name(&self) -> &str {
        self.symbol.as_str()
    }

    fn interface(&self) -> MaterializationInterface {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        MaterializationInterface::new([(self.symbol.clone(), flags)].into_iter().collect())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let begun = Instant::now();
        (self.program.on_lowered)(self.symbol.as_str());
        match module_of(&self.definition, self.symbol.as_str(), &self.program.functions()) {
            Ok(module) => self.layer.emit(responsibility, module),
            Err(error) => responsibility.fail(Arc::new(error)),
        }
        let work = &mut self.program.state.lock().work;
        work.bodies += 1;
        work.time += begun.elapsed();
    }

    /// Its one symbol belongs to no other unit.
    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}
