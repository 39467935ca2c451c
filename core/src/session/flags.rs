//! Lookups of flags: what symbols are, along a search order and with its generators, without materializing them.

use crate::ids::QueryId;
use crate::protocol::state::Found;
use crate::{
    ExecutionSession, LookupError, LookupKind, LookupRequest, LookupSet, RequiredState, SearchOrder,
    SymbolFlagsMap,
};

use super::lodge::Purpose;
use super::query::Completion;

impl ExecutionSession {
    /// The flags of each of `symbols`, found along `order` as by a lookup. Nothing is claimed or materialized;
    /// generators are asked for missing symbols. Blocks until they have answered.
    ///
    /// Weakly referenced symbols that are absent are left out. Symbols that exist for their side effects only, and
    /// those that have failed, are listed like all others.
    ///
    /// # Concurrency
    /// Blocks as [`ExecutionSession::lookup`] does, for generators alone.
    ///
    /// # Errors
    /// [`LookupError::NotFound`] names the required symbols that are missing; [`LookupError::Generator`] what a
    /// generator said.
    ///
    /// ORC: `ExecutionSession::lookupFlags`.
    #[doc(alias = "lookupFlags")]
    pub fn lookup_flags(
        &self,
        kind: LookupKind,
        order: &SearchOrder,
        symbols: LookupSet,
    ) -> Result<SymbolFlagsMap, LookupError> {
        let mut search = self.search(kind, order, symbols, RequiredState::Resolved)?;
        search.flags_only = true;
        let flags = |found: Found| (found.name, found.definition.flags);
        Ok(self.wait_for_answer(order, search, None)?.into_found().map(flags).collect())
    }

    /// The same without blocking: `handler` is called once, with the answer. The request's required state is of no
    /// importance.
    ///
    /// # Concurrency
    /// As [`ExecutionSession::lookup_async`].
    pub fn lookup_flags_async(
        &self,
        request: LookupRequest,
        handler: impl FnOnce(Result<SymbolFlagsMap, LookupError>) + Send + 'static,
    ) {
        self.start_flags(request, None, handler);
    }

    /// The same for a generator that needs the answer to let `on_behalf_of` go on.
    pub(crate) fn start_flags(
        &self,
        request: LookupRequest,
        on_behalf_of: Option<QueryId>,
        handler: impl FnOnce(Result<SymbolFlagsMap, LookupError>) + Send + 'static,
    ) {
        let completion = Completion::Handler(Box::new(move |found| {
            handler(found.map(|found| {
                found.iter().map(|(name, definition)| (name.clone(), definition.flags)).collect()
            }));
        }));
        self.start(request, Purpose::Flags { on_behalf_of }, completion, &mut None);
    }
}
