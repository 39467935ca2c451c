//! Blocking lookups: without the session lock if everything is Ready, under it otherwise.

use rustc_hash::FxBuildHasher;

use crate::{ExecutorSymbolDef, LookupError, LookupSet, SearchOrder, SymbolMap, SymbolName};

use super::ExecutionSession;

impl ExecutionSession {
    /// Looks up `symbols` along `order`, materializing what is not ready; blocks until all are Ready.
    ///
    /// Weakly referenced symbols that are absent are left out of the map.
    ///
    /// # Concurrency
    /// Callable from any thread. A pool worker that waits here is replaced. On the in-place dispatcher the
    /// units run on this thread.
    ///
    /// # Errors
    /// [`LookupError::NotFound`] names every missing symbol and the dylibs searched;
    /// [`LookupError::Failed`] carries the chain from the symbol to what broke.
    ///
    /// # Cost
    /// Symbols that are all Ready: no lock, one probe each. Otherwise one transaction plus the work.
    ///
    /// Source: ORC `ExecutionSession::lookup`.
    pub fn lookup(&self, order: &SearchOrder, symbols: LookupSet) -> Result<SymbolMap, LookupError> {
        if let Some(ready) = self.lookup_ready(order, &symbols) {
            return Ok(ready);
        }
        self.lookup_locked(order, symbols)
    }

    /// Looks up one required symbol and blocks until it is Ready.
    ///
    /// # Cost
    /// For a symbol that is Ready: no lock, no allocation, one probe and a look at each dylib of the order.
    ///
    /// # Errors
    /// As [`ExecutionSession::lookup`].
    pub fn lookup_symbol(
        &self,
        order: &SearchOrder,
        name: &SymbolName,
    ) -> Result<ExecutorSymbolDef, LookupError> {
        let mut ready = None;
        if self.0.records.read(self, order, std::iter::once(name), |_, definition| ready = Some(definition))
            && let Some(definition) = ready
        {
            return Ok(definition);
        }
        let found = self.lookup_locked(order, LookupSet::one(name.clone()))?;
        found.get(name).copied().ok_or(LookupError::Closed)
    }

    /// Looks `symbols` up without the lock, if all of them are Ready and certain.
    fn lookup_ready(&self, order: &SearchOrder, symbols: &LookupSet) -> Option<SymbolMap> {
        // An empty set asks about the order alone, which the records know nothing of.
        if symbols.is_empty() {
            return None;
        }
        let mut ready = SymbolMap::with_capacity_and_hasher(symbols.len(), FxBuildHasher);
        let names = symbols.0.iter().map(|(name, _)| name);
        let found = |name: &SymbolName, definition| {
            ready.insert(name.clone(), definition);
        };
        self.0.records.read(self, order, names, found).then_some(ready)
    }
}
