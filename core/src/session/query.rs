//! Queries as clients see them: what is asked, what is answered, and the three ways to be told.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::ids::QueryId;
use crate::protocol::state::Answer;
use crate::sync::{Arc, Mutex, weakened};
use crate::{
    Deadline, ExecutionSession, JitDylib, LookupError, LookupKind, LookupResult, LookupSet, RequiredState,
    SearchOrder, TaskPriority,
};

use super::answers::WaiterId;
use super::deadline::too_late;

/// A lookup's question: symbols, order, state, deadline and priority.
///
/// # Examples
/// ```
/// use uruk_core::{ExecutionSession, ExecutorAddr, FnUnit, LookupRequest, LookupSet, TaskPriority};
///
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// let next = session.intern("next");
/// let unit = FnUnit::new([next.clone()], |request| request.addresses([("next", ExecutorAddr::new(0x1000))]));
/// main.define(Box::new(unit))?;
/// // Compiled ahead of time, when there is nothing better to do.
/// let request = LookupRequest::new(main.link_order(), LookupSet::one(next)).at(TaskPriority::Speculative);
/// session.lookup_async(request, |answer| assert!(answer.is_ok()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LookupRequest {
    /// On whose behalf.
    pub kind: LookupKind,
    /// Where to search, first match wins.
    pub order: SearchOrder,
    /// The symbols to look up.
    pub symbols: LookupSet,
    /// How far the symbols must have come.
    pub required_state: RequiredState,
    /// Until when. No timer watches it: a handler is told of a late answer when it comes, a future looks at the clock
    /// when it is polled, and a lookup that begins too late asks for nothing. Ready symbols are found at any time.
    pub deadline: Option<Deadline>,
    /// How urgent it is. Without one it is as urgent as the unit on whose behalf this thread asks: the one whose
    /// `materialize` it runs, or one of whose lookups it is answering; and it rises with that unit's priority. A lookup on
    /// no unit's behalf leaves each unit it needs at [its own priority](crate::MaterializationUnit::priority). A thread
    /// that blocks in a lookup demands, unless it says otherwise here.
    ///
    /// Speculative and idle lookups on no unit's behalf, and those that say nothing of it and would start only such units, are refused with
    /// [`LookupError::Overloaded`] while the dispatcher has as much of such work as it may;
    /// [`ExecutionSession::wait_for_room`] waits until it has less.
    pub priority: Option<TaskPriority>,
    /// Whether the units that the lookup claims run on the thread that blocks in it: see [`here`](Self::here).
    pub here: bool,
    /// Whether to search the link order of the order's first dylib, as it is when the lookup begins, instead of the order: see [`along`](Self::along).
    pub along: bool,
}

impl LookupRequest {
    /// A static lookup of `symbols` along `order`, until they are Ready.
    pub fn new(order: impl Into<SearchOrder>, symbols: LookupSet) -> Self {
        Self {
            kind: LookupKind::Static,
            order: order.into(),
            symbols,
            required_state: RequiredState::Ready,
            deadline: None,
            priority: None,
            here: false,
            along: false,
        }
    }

    /// A static lookup of `symbols` along the link order of `dylib`, as it is when the lookup begins, until they are Ready.
    ///
    /// A link order that was read before may have changed since. This one is read in the same moment in which the symbols are found, so a
    /// transaction that changes both is seen whole.
    ///
    /// # Cost
    /// Takes the session's lock, unlike a lookup along an order that is known already.
    pub fn along(dylib: &JitDylib, symbols: LookupSet) -> Self {
        Self { along: true, ..Self::new(SearchOrder::of(dylib), symbols) }
    }

    /// The same lookup, as urgent as `priority` and no more, on any thread.
    ///
    /// A unit is as urgent as the most urgent lookup that has needed it since it was claimed, even if that lookup was withdrawn.
    #[must_use]
    pub fn at(mut self, priority: TaskPriority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// The same lookup, wanted until `deadline`.
    #[must_use]
    pub fn until(mut self, deadline: Deadline) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The same lookup, answered as soon as addresses are known: what linkers ask for.
    ///
    /// The code at these addresses may not run before the symbols are Ready: the caller emits code of its own that
    /// [depends](LookupResult::dependencies) on them. Functions that call each other use this, each after it has
    /// [resolved](crate::MaterializationResponsibility::notify_resolved) its own address. Units that block until the others are Ready wait
    /// for each other.
    #[must_use]
    pub fn until_resolved(mut self) -> Self {
        self.required_state = RequiredState::Resolved;
        self
    }

    /// The same lookup; the units that it claims run on the thread that blocks in it, one after another, before the thread sleeps. No worker
    /// has to wake for them. A lookup that does not block pays no heed to it.
    ///
    /// Units that these look up in turn go to the dispatcher as ever: several threads may work on them. If the dispatcher refuses
    /// them, because it is shut down, they run on this thread too. Units of a [serial queue](crate::SerialQueue) go to the dispatcher,
    /// and so do those that only a generator provides.
    ///
    /// Of several threads that look the same symbol up one runs its unit, and the others wait. Units run on the stack of the caller, and
    /// may nest as deep as in place. Such a lookup is never [`Overloaded`](LookupError::Overloaded): nothing is queued anywhere else.
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
    /// session.lookup(LookupRequest::new(main.link_order(), LookupSet::one(next)).here())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn here(mut self) -> Self {
        self.here = true;
        self
    }
}

/// The answer of a lookup, as the protocol delivers it.
pub(crate) type Outcome = Result<Answer, LookupError>;

/// The receiver of a query's answer.
pub(crate) enum Completion {
    /// A thread of ours that waits (`session/answers.rs`). Told at once: no code of the embedder runs.
    Blocked(WaiterId),
    /// Code of the embedder.
    Handler(Box<dyn FnOnce(Result<LookupResult, LookupError>) + Send>),
    /// A future; its waker is code of the embedder.
    Future(Arc<FutureSlot>),
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Blocked(_) => "Blocked",
            Self::Handler(_) => "Handler",
            Self::Future(_) => "Future",
        })
    }
}

/// Where a future finds its answer.
#[derive(Debug, Default)]
pub(crate) struct FutureSlot {
    state: Mutex<FutureState>,
}

#[derive(Debug, Default)]
struct FutureState {
    outcome: Option<Result<LookupResult, LookupError>>,
    waker: Option<Waker>,
}

impl FutureSlot {
    /// Stores the answer and wakes the task. Runs code of the embedder.
    pub(crate) fn finish(&self, outcome: Result<LookupResult, LookupError>) {
        let early = weakened("future::takes_the_waker_before_it_answers");
        let early = early.then(|| self.state.lock().waker.take());
        let waker = {
            let mut state = self.state.lock();
            state.outcome = Some(outcome);
            early.unwrap_or_else(|| state.waker.take())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A lookup as a future. Needs no particular runtime.
///
/// Dropping it withdraws the query: work for it alone that has not started is put back.
///
/// # Concurrency
/// Polling does not block, and takes the session's lock only once the deadline has passed; dropping it before the answer takes the
/// lock for a moment. The waker is woken without any lock. No timer wakes it at the deadline: the caller polls then.
///
/// ORC: `lookup` with a `std::promise`, which cannot be withdrawn.
#[must_use = "the lookup is withdrawn when its future is dropped"]
pub struct SymbolFuture {
    session: ExecutionSession,
    slot: Arc<FutureSlot>,
    /// The query, until it is known to have ended.
    pub(crate) query: Option<QueryId>,
    deadline: Option<Deadline>,
}

impl SymbolFuture {
    pub(crate) fn new(session: ExecutionSession, slot: Arc<FutureSlot>, deadline: Option<Deadline>) -> Self {
        Self { session, slot, query: None, deadline }
    }

    /// Withdraws the query if its time is over.
    fn give_up(&mut self) -> Option<LookupError> {
        let (deadline, query) = (self.deadline?, self.query?);
        if !self.session.left_until(deadline).is_zero() {
            return None;
        }
        // A query that has ended has its answer on the way.
        let waiting = self.session.transact(|state, effects| state.withdraw_late(query, effects))?;
        self.query = None;
        Some(too_late(waiting))
    }
}

impl Future for SymbolFuture {
    type Output = Result<LookupResult, LookupError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Cloned before the lock and the old one dropped after it: both are code of the embedder.
        let fresh = context.waker().clone();
        let (outcome, _stale) = {
            let mut state = self.slot.state.lock();
            match state.outcome.take() {
                Some(outcome) => (Some(outcome), state.waker.take()),
                None => {
                    if weakened("future::looks_before_it_leaves_its_waker") {
                        drop(state);
                        state = self.slot.state.lock();
                    }
                    (None, state.waker.replace(fresh))
                }
            }
        };
        match outcome {
            Some(outcome) => {
                self.query = None;
                Poll::Ready(outcome)
            }
            None => self.give_up().map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
        }
    }
}

impl Drop for SymbolFuture {
    fn drop(&mut self) {
        if let Some(query) = self.query {
            self.session.transact(|state, effects| state.withdraw(query, effects));
        }
    }
}

impl fmt::Debug for SymbolFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SymbolFuture").field("query", &self.query).finish_non_exhaustive()
    }
}
