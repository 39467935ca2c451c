//! Why a symbol is not Ready, asked at any moment.

use crate::protocol::state::Begun;
use crate::sync::thread;
use crate::{JitDylib, JitDylibLookupFlags, SearchOrder, SessionError, SymbolName, Why};

use super::ExecutionSession;

impl ExecutionSession {
    /// Says where the definition of `symbol` in `dylib` stands, and what it waits for. Materializes nothing.
    ///
    /// # Concurrency
    /// Callable from any thread at any moment; the answer was true at one moment between call and return.
    ///
    /// # Cost
    /// For people: one transaction that may walk over all lookups and symbols of the session.
    pub fn why(&self, dylib: &JitDylib, symbol: &SymbolName) -> Why {
        self.why_along(&[(dylib.clone(), JitDylibLookupFlags::MatchAllSymbols)].into_iter().collect(), symbol)
    }

    /// The same for the definition that a lookup along `order` would find. Dylibs of other sessions are passed over.
    ///
    /// # Concurrency
    /// As [`ExecutionSession::why`].
    pub fn why_along(&self, order: &SearchOrder, symbol: &SymbolName) -> Why {
        let own = order.iter().filter(|(dylib, _)| dylib.session() == self);
        let own: Vec<_> = own.map(|(dylib, flags)| (dylib.id(), *flags)).collect();
        let first =
            order.as_slice().first().map_or_else(|| "(none)".into(), |(dylib, _)| dylib.shared_name());
        let now = self.0.epoch.map(|epoch| (self.0.clock)().saturating_duration_since(epoch));
        self.transact(|state, _| state.why(&own, symbol, first, now))
    }

    /// The note on a unit that begins on this thread. None if the clock panics: the unit has nothing to do with that.
    pub(super) fn begun_here(&self) -> Option<Box<Begun>> {
        let epoch = self.0.epoch?;
        let thread = thread::current();
        let thread = thread.name().map_or_else(|| format!("{:?}", thread.id()).into(), Into::into);
        match crate::panics::guard(|| (self.0.clock)()) {
            Ok(now) => Some(Box::new(Begun { thread, at: now.saturating_duration_since(epoch) })),
            Err(message) => {
                self.report_later(SessionError::Panicked { place: "the session's clock", message });
                None
            }
        }
    }
}
