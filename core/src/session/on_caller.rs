//! Lookups that say how urgent they are and block all the same; and those that run on their caller what they claim.
//!
//! ```text
//!  transact: match ─ claim ─ keep what was claimed    the claimed units are this thread's
//!  queue them on this thread                          (`task/in_place.rs`)
//!  wait: run the queue ─ sleep until others are done  as in place
//! ```
//!
//! From the queue on everything is as in place: a unit that blocks in a lookup runs what is queued behind it, and the queue is apart for
//! a lookup that lies above other code. So two units of one lookup may need each other's addresses.

use crate::protocol::state::Effects;
use crate::sync::weakened;
use crate::{LookupError, LookupRequest, LookupResult, TaskPriority};

use super::queued_unit::QueuedUnits;
use super::{ExecutionSession, Live};

/// Where the units that a lookup claims run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claims {
    ForTheDispatcher,
    /// The thread that looks up, before it sleeps.
    ForThisThread,
}

impl ExecutionSession {
    /// Looks up what `request` asks for and blocks until it is there. It is as urgent as the request says, and
    /// [`Demanded`](TaskPriority::Demanded) without that: a thread of the background that waits for its own work lets others go first.
    ///
    /// # Concurrency
    /// As [`lookup`](Self::lookup).
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup) and [`lookup_until`](Self::lookup_until). [`LookupError::Overloaded`] as for every lookup that asks for
    /// speculative or idle work alone.
    pub fn lookup_blocking(&self, request: LookupRequest) -> Result<LookupResult, LookupError> {
        self.lookup_request(request, Claims::ForTheDispatcher)
    }

    /// The same; the units that this lookup claims run on this thread, one after another, before it sleeps. No worker has to be
    /// woken for them.
    ///
    /// Units that these look up in turn go to the dispatcher as ever: several threads may work on them. If the dispatcher refuses
    /// them, because it is shut down, they run on this thread too. Units of a [serial queue](crate::SerialQueue) go to the dispatcher,
    /// and so do those that only a generator provides.
    ///
    /// # Concurrency
    /// Callable from any thread, inside a unit too. Of several threads that look the same symbol up one runs its unit, and the others
    /// wait. Units run on the stack of the caller, and may nest as deep as in place.
    ///
    /// # Errors
    /// As [`lookup_blocking`](Self::lookup_blocking), but never [`LookupError::Overloaded`]: nothing is queued anywhere else.
    ///
    /// # Cost
    /// Symbols that are all Ready: as [`lookup`](Self::lookup). Otherwise one transaction, the work, and no thread that wakes.
    ///
    /// # Examples
    /// ```
    /// # use uruk_core::{ExecutionSession, ExecutorAddr, FnUnit, LookupRequest, LookupSet};
    /// # let session = ExecutionSession::new();
    /// # let main = session.create_jit_dylib("main")?;
    /// let caller = std::thread::current().id();
    /// let next = session.intern("next");
    /// main.define(Box::new(FnUnit::new([next.clone()], move |request| {
    ///     assert_eq!(std::thread::current().id(), caller);
    ///     request.addresses([("next", ExecutorAddr::new(0x1000))])
    /// })))?;
    /// session.lookup_here(LookupRequest::new(main.link_order(), LookupSet::one(next)))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lookup_here(&self, request: LookupRequest) -> Result<LookupResult, LookupError> {
        self.lookup_request(request, Claims::ForThisThread)
    }

    fn lookup_request(&self, request: LookupRequest, claims: Claims) -> Result<LookupResult, LookupError> {
        let LookupRequest { kind, order, symbols, required_state, deadline, priority } =
            match self.ready_request(request) {
                Ok(ready) => return Ok(ready),
                Err(request) => request,
            };
        let mut search = self.search(kind, &order, symbols, required_state)?;
        search.priority = Some(priority.unwrap_or(TaskPriority::Demanded));
        // One that comes too late asks for nothing.
        if claims == Claims::ForTheDispatcher
            && !self.is_over(deadline)
            && let Some(overloaded) = self.overloaded_by(&mut search)
        {
            return Err(overloaded);
        }
        let found = self.wait_for_answer_at(&order, search, deadline, claims)?;
        Ok(LookupResult::new(found, self.tag()))
    }

    /// Takes the units that a lookup has just claimed for this thread, but for those that wait in serial queues for their turns. To be
    /// called under the lock.
    pub(super) fn keep_for_this_thread(&self, effects: &mut Effects<Live>) -> Option<QueuedUnits> {
        let (waits, kept): (Vec<_>, Vec<_>) =
            effects.claimed.drain(..).partition(|unit| unit.pending.serial_queue().is_some());
        effects.claimed.extend(waits);
        if kept.is_empty() {
            return None;
        }
        // Counted under the lock, or a close that begins now does not wait for them.
        let count = if weakened("on_caller::counts_when_it_queues") { 0 } else { kept.len() };
        Some(QueuedUnits::new(kept, self.coming(count).later(count)))
    }
}
