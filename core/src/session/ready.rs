//! Lookups as clients make them: answered by the ready index if everything is Ready, lodged under the session lock
//! otherwise.

use crate::lookup_result::ReadyDefinitions;
use crate::ready_index::IndexedDefinition;
use crate::sync::Arc;
use crate::{
    ExecutorSymbolDef, LookupError, LookupRequest, LookupResult, LookupSet, SearchOrder, SymbolFuture,
    SymbolName, TaskPriority,
};

use super::ExecutionSession;
use super::lodge::Purpose;
use super::query::{Completion, FutureSlot};

impl ExecutionSession {
    /// Looks up the request's symbols, materializing what is not ready; blocks until all have the required state. It is as urgent as the
    /// request says, and [`Demanded`](TaskPriority::Demanded) without that.
    ///
    /// At the request's deadline the lookup is withdrawn, and work for it alone that has not begun is put back. Ready symbols are found
    /// however late it is.
    ///
    /// # Concurrency
    /// Callable from any thread. A pool worker that waits here is replaced. On the in-place dispatcher the
    /// units run on this thread, and a deadline is looked at between them: a unit that has begun is not interrupted.
    ///
    /// # Errors
    /// [`LookupError::NotFound`] names every missing symbol and the dylibs searched;
    /// [`LookupError::Failed`] carries the chain from the symbol to what broke.
    /// [`LookupError::Wait`] says why this thread may not wait; [`LookupError::Closed`], [`LookupError::DylibRemoved`] and
    /// [`LookupError::ForeignDylib`] speak of what is searched, [`LookupError::Generator`] and [`LookupError::AliasCycle`] of what was
    /// found there. [`LookupError::AliasOfRemoved`] names an alias whose source is gone.
    /// [`LookupError::WouldDeadlock`] names a cycle of blocked lookups that this one is part of. A cycle that leads through
    /// two sessions is not seen, and hangs: no session knows what another waits for.
    /// [`LookupError::DeadlineExceeded`] says of each symbol that was not ready in which state it was and why.
    /// [`LookupError::Overloaded`] refuses a lookup that asks for speculative or idle work alone.
    ///
    /// # Cost
    /// Symbols that are all Ready: no lock, one probe each, and one allocation for the answer. Otherwise one
    /// transaction plus the work.
    ///
    /// ORC: `ExecutionSession::lookup`.
    pub fn lookup(&self, request: LookupRequest) -> Result<LookupResult, LookupError> {
        let request = match self.ready_request(request) {
            Ok(ready) => return Ok(ready),
            Err(request) => request,
        };
        let (deadline, here) = (request.deadline, request.here);
        let (order, mut search) = self.search(request)?;
        // On any thread: a thread that blocks needs the answer to go on.
        search.priority.get_or_insert(TaskPriority::Demanded);
        search.is_late = self.is_over(deadline);
        // A lookup that comes too late asks for nothing.
        if !here
            && !search.is_late
            && let Some(overloaded) = self.overloaded_by(&mut search)
        {
            return Err(overloaded);
        }
        Ok(LookupResult::new(self.wait_for_answer(&order, search, deadline, here)?, self.tag()))
    }

    /// Looks up one required symbol and blocks until it is Ready.
    ///
    /// # Cost
    /// For a symbol that is Ready: no lock, no allocation, and two probes for an order of any length. The first
    /// lookup along an order after a dylib was removed, or a first generator came or a last one went, walks over
    /// the order once.
    ///
    /// # Errors
    /// As [`ExecutionSession::lookup`].
    pub fn lookup_symbol(
        &self,
        order: &SearchOrder,
        name: &SymbolName,
    ) -> Result<ExecutorSymbolDef, LookupError> {
        if let Some(ready) = self.ready_symbol(order, name) {
            return Ok(ready);
        }
        let mut search = self.search_along(order, LookupSet::one(name.clone()))?;
        search.priority = Some(TaskPriority::Demanded);
        let found = self.wait_for_answer(order, search, None, false)?;
        found.into_one().map(|found| found.definition).ok_or(LookupError::Closed)
    }

    /// The definition of one symbol if it is Ready, and if the session's lock is not needed to know that. `None` means "unknown":
    /// the symbol may be missing, pending or, while others change the session, even Ready.
    ///
    /// # Concurrency
    /// Never waits, starts nothing, and runs no code of the embedder.
    ///
    /// # Cost
    /// As [`lookup_symbol`](Self::lookup_symbol) for a symbol that is Ready.
    #[inline]
    pub fn ready_symbol(&self, order: &SearchOrder, name: &SymbolName) -> Option<ExecutorSymbolDef> {
        let mut ready = None;
        let found = |definition: &IndexedDefinition| ready = Some(definition.symbol());
        let answered = self.read_ready_index(order, std::iter::once(name), found);
        ready.filter(|_| answered)
    }

    /// How many definitions have come and gone in all dylibs, and how many removals have begun. It never falls, and while it stays the same, so do
    /// answers about which unit provides a symbol.
    ///
    /// # Cost
    /// A transaction of two reads.
    pub fn definition_changes(&self) -> u64 {
        self.transact(|state, _| state.definitions.definition_changes())
    }

    /// How often link orders of this session have changed. Read it before a
    /// [`link_order`](crate::JitDylib::link_order): while the number is unchanged, so is that order.
    ///
    /// # Concurrency
    /// Takes no lock. A change that happened before the call, on this thread or known to it, is counted.
    ///
    /// # Examples
    /// ```
    /// # use uruk_core::{ExecutionSession, JitDylibLookupFlags};
    /// # let session = ExecutionSession::new();
    /// # let (main, library) = (session.create_jit_dylib("main")?, session.create_jit_dylib("library")?);
    /// let known = (session.link_order_changes(), main.link_order());
    /// assert_eq!(known.0, session.link_order_changes());
    /// main.add_to_link_order(&library, JitDylibLookupFlags::MatchExportedSymbolsOnly)?;
    /// assert_ne!(known.0, session.link_order_changes());
    /// # Ok::<(), uruk_core::DylibError>(())
    /// ```
    #[inline]
    pub fn link_order_changes(&self) -> u64 {
        self.0.ready_index.link_order_changes()
    }

    /// Starts a lookup and calls `handler` once, with the answer.
    ///
    /// # Concurrency
    /// Never blocks; takes no lock if everything is Ready. The handler runs as a task of the dispatcher, not under
    /// any lock nor inside this call, except in place when no task of this thread is running.
    pub fn lookup_async(
        &self,
        request: LookupRequest,
        handler: impl FnOnce(Result<LookupResult, LookupError>) + Send + 'static,
    ) {
        let handler = Completion::Handler(Box::new(handler));
        match self.ready_request(request) {
            Ok(ready) => self.answer(handler, ready),
            Err(request) => {
                self.start(request, Purpose::Definitions, handler, &mut None);
            }
        }
    }

    /// Starts a lookup as a future, which withdraws it when dropped.
    ///
    /// # Concurrency
    /// Takes no lock if everything is Ready; the future is then ready when it is first polled.
    pub fn lookup_future(&self, request: LookupRequest) -> SymbolFuture {
        let (slot, deadline) = (Arc::new(FutureSlot::default()), request.deadline);
        // Before the lookup begins: from then on the future withdraws a lodged query, also in a panic.
        let mut future = SymbolFuture::new(self.clone(), slot.clone(), deadline);
        match self.ready_request(request) {
            // The future was not polled yet: there is no waker to run.
            Ok(ready) => slot.finish(Ok(ready)),
            Err(request) => {
                self.start(request, Purpose::Definitions, Completion::Future(slot), &mut future.query);
            }
        }
        future
    }

    /// The answer of a request whose symbols are all Ready, or the request.
    pub(super) fn ready_request(&self, mut request: LookupRequest) -> Result<LookupResult, LookupRequest> {
        // Which order it is, only the locked path knows.
        if request.along {
            return Err(request);
        }
        // A symbol that is Ready is Resolved too, and no generator is asked for it: state and kind do not matter.
        self.ready(&request.order, std::mem::take(&mut request.symbols)).map_err(|symbols| {
            request.symbols = symbols;
            request
        })
    }

    /// The definitions of `symbols`, if all of them are Ready and certain, or the symbols.
    pub(super) fn ready(&self, order: &SearchOrder, symbols: LookupSet) -> Result<LookupResult, LookupSet> {
        // No symbols ask about the order alone, which only the locked path answers.
        if symbols.is_empty() {
            return Err(symbols);
        }
        let mut ready = ReadyDefinitions::with_room(symbols.len());
        let names = symbols.0.iter().map(|(name, _)| name);
        match self.read_ready_index(order, names, |definition| ready.push(definition)) {
            true => Ok(LookupResult::of_ready(symbols, ready, self.tag())),
            false => Err(symbols),
        }
    }

    /// Asks the index, see [`ReadyIndex::read`](crate::ready_index::ReadyIndex::read). An order of other sessions' dylibs is none of theirs.
    #[inline]
    fn read_ready_index<'a>(
        &self,
        order: &SearchOrder,
        names: impl Iterator<Item = &'a SymbolName>,
        found: impl FnMut(&IndexedDefinition),
    ) -> bool {
        order.is_of(self) && self.0.ready_index.read(order, names, found)
    }
}
