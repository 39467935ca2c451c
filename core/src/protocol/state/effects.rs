//! Effects: all that must happen once the lock is gone.
//!
//! **Architecture Invariant:** values of the embedder leave the state through here and are neither called
//! nor dropped under the lock.

use smallvec::SmallVec;

use crate::sync::Arc;
use crate::task::ticket::Ticketed;
use crate::{
    Failure, FailureCause, JitDylibLookupFlags, LookupError, LookupKind, LookupSet, SessionEvent, SymbolName,
    Task,
};

use crate::protocol::state::{
    lookups::end::Answer, lookups::query::Asker, payload::Payload, pending::ClaimedUnit,
};
use crate::protocol::storage::{DylibId, GeneratorId, Memory, QueryId, Takes};

/// The work that a transaction leaves to do. Small, for it is moved out from under the lock.
#[must_use = "effects that are not delivered leave queries waiting for ever"]
pub(crate) struct Effects<P: Payload> {
    /// Units to materialize, each as a task.
    pub(crate) claimed: SmallVec<[ClaimedUnit<P::Unit>; 1]>,
    /// Queries that ended.
    pub(crate) completed: SmallVec<[Completed<P::Handler>; 1]>,
    /// How many names only the pool seems to hold any more, for its own housekeeping.
    pub(crate) names_released: usize,
    /// None while there is nothing of it.
    more: Option<Box<MoreEffects<P>>>,
}

/// The work that transactions leave only now and then.
pub(crate) struct MoreEffects<P: Payload> {
    /// Units that have become more urgent, and may need a ticket of their new priority.
    pub(crate) raised: Vec<Arc<Ticketed>>,
    /// Tasks of the embedder.
    pub(crate) tasks: Vec<Task>,
    /// Generators to ask.
    pub(crate) generations: Vec<Generation<P::Generator>>,
    /// Values of the embedder that are no longer needed.
    pub(crate) leftovers: Vec<Leftover<P>>,
    /// The events for observers.
    pub(crate) events: Vec<SessionEvent>,
    /// Units whose initializers are no longer defined, by number.
    pub(crate) initializers_gone: Vec<u64>,
    /// Memory to give back, which may take long.
    pub(crate) memory: Vec<Memory>,
}

impl<P: Payload> Default for MoreEffects<P> {
    fn default() -> Self {
        Self {
            raised: Vec::new(),
            tasks: Vec::new(),
            generations: Vec::new(),
            leftovers: Vec::new(),
            events: Vec::new(),
            initializers_gone: Vec::new(),
            memory: Vec::new(),
        }
    }
}

impl<P: Payload> Default for Effects<P> {
    fn default() -> Self {
        Self { claimed: SmallVec::new(), completed: SmallVec::new(), names_released: 0, more: None }
    }
}

impl<P: Payload> Effects<P> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.claimed.is_empty()
            && self.completed.is_empty()
            && self.more.is_none()
            && self.names_released == 0
    }

    /// The rarer effects, to add to.
    pub(crate) fn more(&mut self) -> &mut MoreEffects<P> {
        self.more.get_or_insert_default()
    }

    pub(crate) fn look_at_more(&self) -> Option<&MoreEffects<P>> {
        self.more.as_deref()
    }

    pub(crate) fn take_more(&mut self) -> Option<Box<MoreEffects<P>>> {
        self.more.take()
    }

    pub(crate) fn leave(&mut self, leftover: Leftover<P>) {
        self.more().leftovers.push(leftover);
    }

    /// Lets a cause go; only the embedder's own errors are code of the embedder when they are dropped.
    pub(crate) fn let_go(&mut self, cause: FailureCause) {
        if matches!(cause, FailureCause::Unit(_)) {
            self.leave(Leftover::Cause(cause));
        }
    }

    /// Answers a lookup that was made on no unit's behalf.
    pub(crate) fn complete(&mut self, handler: P::Handler, outcome: Result<Answer, LookupError>) {
        self.complete_for(None, handler, outcome);
    }

    pub(crate) fn complete_for(
        &mut self,
        asker: Option<Asker>,
        handler: P::Handler,
        outcome: Result<Answer, LookupError>,
    ) {
        self.completed.push(Completed { handler, outcome, asker });
    }
}

impl<P: Payload> Takes for Effects<P> {
    #[cold]
    fn take_memory(&mut self, memory: Memory) {
        self.more().memory.push(memory);
    }
}

/// A query that ended.
#[derive(Debug)]
pub(crate) struct Completed<H> {
    pub(crate) handler: H,
    pub(crate) outcome: Result<Answer, LookupError>,
    /// On whose behalf it was made.
    pub(crate) asker: Option<Asker>,
}

/// A generator to ask on behalf of a suspended lookup.
#[derive(Debug)]
pub(crate) struct Generation<G> {
    pub(crate) generator: G,
    pub(crate) id: GeneratorId,
    pub(crate) query: QueryId,
    pub(crate) dylib: DylibId,
    pub(crate) dylib_name: Arc<str>,
    pub(crate) kind: LookupKind,
    pub(crate) lookup_flags: JitDylibLookupFlags,
    pub(crate) symbols: LookupSet,
    /// None yet.
    pub(crate) ruled_out: super::RuledOut,
}

/// A value of the embedder that is no longer needed.
pub(crate) enum Leftover<P: Payload> {
    /// A unit none of whose symbols is left, and the symbols to `discard` before it is dropped.
    Unit { unit: P::Unit, dylib: DylibId, dylib_name: Arc<str>, discarded: Vec<SymbolName> },
    /// A unit whose definition was refused.
    RefusedUnit(P::Unit),
    /// A handler whose query was withdrawn.
    Handler(P::Handler),
    /// A generator that was removed.
    Generator(P::Generator),
    /// A resource that came too late.
    Resource(P::Resource),
    /// An error whose query has ended already.
    Error(#[expect(dead_code, reason = "held to be dropped outside the lock")] LookupError),
    /// A failure that was never reported while a lookup could ask.
    Unheard(Arc<Failure>),
    /// The cause of a failure that nothing refers to any more.
    Cause(#[expect(dead_code, reason = "held to be dropped outside the lock")] FailureCause),
}
