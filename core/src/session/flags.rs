//! Lookups of flags: what symbols are, along a search order and with its generators, without materializing them.

use crate::ids::QueryId;
use crate::protocol::state::Found;
use crate::{ExecutionSession, LookupError, LookupRequest, RequiredState, SymbolFlagsMap};

use super::lodge::Purpose;
use super::query::Completion;

impl ExecutionSession {
    /// The flags of each of the request's symbols, found as by a lookup. Nothing is claimed or materialized;
    /// generators are asked for missing symbols. Blocks until they have answered. The request's required state and its priority are of no
    /// importance.
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
    pub fn lookup_flags(&self, request: LookupRequest) -> Result<SymbolFlagsMap, LookupError> {
        let deadline = request.deadline;
        let (order, mut search) = self.search(request)?;
        (search.required_state, search.flags_only) = (RequiredState::Resolved, true);
        search.is_late = self.is_over(deadline);
        let flags = |found: Found| (found.name, found.definition.flags);
        Ok(self.wait_for_answer(&order, search, deadline, false)?.into_found().map(flags).collect())
    }

    /// Starts a lookup of flags for a generator, which needs the answer to let `on_behalf_of` go on.
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
