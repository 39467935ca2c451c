//! Why a symbol is not Ready, asked at any moment.

use crate::{JitDylib, JitDylibLookupFlags, SearchOrder, SymbolName, WaitingLookup, Why};

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
        let own: Vec<_> = own.map(|(dylib, flags)| (dylib, (dylib.id(), *flags))).collect();
        let ids: Vec<_> = own.iter().map(|(_, id)| *id).collect();
        let first =
            order.as_slice().first().map_or_else(|| "(none)".into(), |(dylib, _)| dylib.shared_name());
        let (mut why, dylib, (generators, unit)) = self.transact(|state, _| {
            let why = state.why(&ids, symbol, first);
            let dylib = own.iter().find(|(dylib, _)| *dylib.name() == *why.dylib);
            let witnesses = dylib.map(|(dylib, _)| state.witnesses(dylib.id(), symbol)).unwrap_or_default();
            (why, dylib.map(|(dylib, _)| *dylib), witnesses)
        });
        // They run without the lock, and are dropped without it.
        let about = generators.iter().filter_map(|generator| generator.about(dylib?, symbol, unit.as_ref()));
        why.about = about.collect();
        why
    }

    /// The lookups that wait at this moment, up to 32 of them, in no order: those that no unit has made. A lookup that is seen twice, some
    /// time apart, has waited so long.
    ///
    /// # Concurrency
    /// As [`ExecutionSession::why`].
    ///
    /// # Cost
    /// One transaction that walks over all lookups of the session.
    pub fn waiting_lookups(&self) -> Vec<WaitingLookup> {
        self.transact(|state, _| state.waiting_lookups())
    }
}
