//! The part of a responsibility that may change threads: what it covers, and that it is not over yet.
//!
//! **Architecture Invariant:** a duty that is dropped before it is settled fails its symbols.

use std::fmt;

use crate::error::{MissingSymbols, cut_short};
use crate::ids::ClaimId;
use crate::protocol::state::definitions::spare::Spare;
use crate::protocol::state::failures::Broken;
use crate::session::holding::{Held, Hold};
use crate::sync::weakened;
use crate::{
    DelegateError, ExecutionSession, FailureCause, JitDylib, MaterializationResponsibility,
    MaterializationUnit, SymbolFlagsMap, SymbolName,
};

/// The part of a responsibility that may change threads.
#[doc(hidden)]
pub struct Duty {
    dylib: JitDylib,
    pub(crate) claim: ClaimId,
    pub(crate) unit_name: SymbolName,
    pub(crate) symbols: SymbolFlagsMap,
    pub(crate) initializer: Option<SymbolName>,
    /// The duty is done, has failed, or has moved on: dropping this value does nothing.
    pub(crate) settled: bool,
    /// While it is attached: its place in the list of what its thread alone can finish.
    pub(crate) hold: Option<Hold>,
}

impl Duty {
    /// The duty for the rows that carry `claim`, on no thread yet.
    #[inline]
    pub(crate) fn new(
        dylib: JitDylib,
        claim: ClaimId,
        unit_name: SymbolName,
        symbols: SymbolFlagsMap,
        initializer: Option<SymbolName>,
    ) -> Self {
        Self { dylib, claim, unit_name, symbols, initializer, settled: false, hold: None }
    }

    /// Notes that this thread alone can finish it.
    pub(super) fn hold(&mut self) {
        if self.hold.is_none() {
            self.hold = Hold::take(self.session(), Held::Claim(self.claim));
        }
    }

    /// Notes that others may, or that nothing is left to finish.
    pub(super) fn give_back(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.give_back();
        }
    }

    /// Notes that any thread may finish it.
    pub(super) fn leave_thread(&mut self) {
        match weakened("deadlock::detach_keeps_the_hold") {
            // The thread's list names it still, and no code can give that back.
            true => self.hold = None,
            false => self.hold.take().into_iter().for_each(Hold::pass_on),
        }
    }

    #[inline]
    pub(crate) fn dylib(&self) -> &JitDylib {
        &self.dylib
    }

    pub(crate) fn session(&self) -> &ExecutionSession {
        self.dylib().session()
    }

    pub(crate) fn settle(&mut self) {
        self.give_back();
        self.settled = true;
    }

    /// The duty itself, leaving a settled husk behind.
    pub(crate) fn move_out(&mut self) -> Self {
        self.settled = true;
        Self {
            dylib: self.dylib.clone(),
            claim: self.claim,
            unit_name: self.unit_name.clone(),
            symbols: std::mem::take(&mut self.symbols),
            initializer: self.initializer.take(),
            settled: false,
            hold: self.hold.take(),
        }
    }

    pub(crate) fn fail(&mut self, cause: FailureCause) {
        if !self.settled {
            // Runs code of the embedder: should that panic, the duty is not settled yet.
            let broken = match cause {
                FailureCause::Unit(error) => {
                    let error = cut_short(error);
                    let missing = MissingSymbols::among_causes(&error);
                    Broken { cause: FailureCause::Unit(error), missing }
                }
                cause => cause.into(),
            };
            self.settled = true;
            self.give_back();
            let claim = self.claim;
            self.session().transact(|state, effects| state.fail(claim, broken, effects));
        }
    }

    pub(super) fn split(&mut self, names: Vec<SymbolName>) -> Result<Self, DelegateError> {
        let uncovered: Vec<_> =
            names.iter().filter(|name| !self.symbols.contains_key(name)).cloned().collect();
        if !uncovered.is_empty() {
            return Err(DelegateError::NotCovered { unit: self.unit_name.clone(), symbols: uncovered });
        }
        let claim = self
            .session()
            .transact(|state, _| state.definitions.delegate(self.claim, &names))
            .ok_or_else(|| DelegateError::TrackerDefunct { unit: self.unit_name.clone() })?;
        let symbols: SymbolFlagsMap =
            names.into_iter().filter_map(|name| self.symbols.remove_entry(&name)).collect();
        let initializer = self.initializer.take_if(|name| symbols.contains_key(name));
        let (dylib, unit_name) = (self.dylib().clone(), self.unit_name.clone());
        Ok(Self::new(dylib, claim, unit_name, symbols, initializer))
    }
}

impl MaterializationResponsibility {
    /// Keeps what makes the symbols once more.
    pub(crate) fn keep_spare(&self, unit: Box<dyn MaterializationUnit>) {
        let (definition, unit) = self.session().describe(unit);
        let spare = Box::new(Spare { definition, unit });
        self.session().transact(|state, effects| state.keep_spare(self.duty.claim, spare, effects));
    }
}

impl fmt::Debug for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Duty")
            .field("dylib", &self.dylib().name())
            .field("unit", &self.unit_name)
            .field("symbols", &self.symbols)
            .finish_non_exhaustive()
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        // From here on it is finished by a frame, or right now.
        self.give_back();
        if std::thread::panicking() && crate::session::frame::defer_to_unwinding_frame(self) {
            return;
        }
        self.fail(FailureCause::Abandoned);
    }
}
