//! Lodging: the one way to ask, for threads, handlers and futures.
//!
//! A [`Question`] goes under the lock here, with its [`Completion`]: a thread that waits, a handler or a future. The protocol matches its
//! names and claims units of symbols that were not searched before. A question that is refused is lodged too, and ends at once with its
//! error. So an answer has one way back.
//!
//! **Architecture Invariant:** a lookup on behalf of a claimed unit is never refused for want of room. That would fail symbols, and
//! work in flight would wait for room that it has to make itself.

use crate::ids::{QueryId, RowId};
use crate::protocol::lookups::lookup_one::Sought;
use crate::protocol::state::SessionState;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::{Order, Search};
use crate::sync::Arc;
use crate::{
    Deadline, LookupError, LookupKind, LookupRequest, LookupSet, RequiredState, SearchOrder, SymbolName,
    TaskPriority, WaitError,
};

use super::query::Completion;
use super::{ExecutionSession, Live, frame, holding};

/// A lookup's question, ready to be lodged.
pub(crate) struct Question<'a> {
    /// The order of `what`, for its names.
    order: &'a SearchOrder,
    what: What,
    /// It comes too late: it asks for nothing that is not there.
    is_late: bool,
    /// Why its thread may not wait for what is not there.
    refusal: Option<WaitError>,
}

enum What {
    /// One symbol that shall be Ready.
    One(Sought),
    Any(Search),
}

/// The purpose of a lookup, if it is not for definitions alone.
pub(crate) enum Purpose {
    Definitions,
    /// To give this alias the address of its source.
    Alias(RowId),
    /// To know what symbols are; for a generator, perhaps, which lets this query go on then.
    Flags {
        on_behalf_of: Option<QueryId>,
    },
}

impl<'a> Question<'a> {
    pub(super) fn new(order: &'a SearchOrder, search: Search, is_late: bool) -> Self {
        Self { order, what: What::Any(search), is_late, refusal: None }
    }

    /// The same from a thread that may not wait, if so.
    pub(super) fn refused(mut self, refusal: Option<WaitError>) -> Self {
        self.refusal = refusal;
        self
    }

    pub(super) fn symbols(&self) -> usize {
        match &self.what {
            What::One(_) => 1,
            What::Any(search) => search.symbols.len(),
        }
    }

    /// Asks the protocol; gives the query, unless it has ended already.
    #[inline]
    fn ask(
        order: &SearchOrder,
        what: What,
        is_late: bool,
        completion: Completion,
        state: &mut SessionState<Live>,
        effects: &mut Effects<Live>,
    ) -> Option<QueryId> {
        let name = |position: usize| order.as_slice()[position].0.shared_name();
        match what {
            What::One(sought) => {
                let dylibs = || order.iter().map(|(dylib, flags)| (dylib.id(), *flags));
                match state.lookup_one(sought, dylibs(), completion, effects) {
                    Ok(query) => Some(query),
                    Err((sought, completion)) => {
                        state.lookup(sought.into_search(dylibs().collect()), completion, name, effects)
                    }
                }
            }
            What::Any(search) if is_late => state.lookup_too_late(search, completion, name, effects),
            What::Any(search) => state.lookup(search, completion, name, effects),
        }
    }
}

impl ExecutionSession {
    /// Lodges a question. `lodged` hears of its query, unless that has ended already, before the lock is free: what has to be known
    /// before its answer can come is noted there.
    #[inline]
    pub(super) fn lodge(
        &self,
        question: Question<'_>,
        completion: Completion,
        lodged: impl FnOnce(Option<QueryId>, &mut SessionState<Live>, &mut Effects<Live>),
    ) {
        let span = tracing::debug_span!("lookup.lodge", symbols = question.symbols());
        let Question { order, what, is_late, refusal } = question;
        // A refused question is dropped without the lock.
        let mut what = Some(what);
        let inside = crate::inside(span);
        self.transact(|state, effects| {
            let refused = match &mut what {
                Some(What::Any(search)) => refusal.filter(|_| !state.ends_at_once(search)),
                _ => None,
            };
            let query = match refused {
                Some(refusal) => {
                    effects.complete(completion, Err(LookupError::Wait(refusal)));
                    None
                }
                None => what
                    .take()
                    .and_then(|what| Question::ask(order, what, is_late, completion, state, effects)),
            };
            lodged(query, state, effects);
        });
        drop(inside);
    }

    /// Starts a lookup that blocks no thread. Writes its query to `query`, unless it has ended already, before anything can panic: so it
    /// can be withdrawn.
    pub(crate) fn start(
        &self,
        request: LookupRequest,
        purpose: Purpose,
        completion: Completion,
        query: &mut Option<QueryId>,
    ) {
        let LookupRequest { kind, order, symbols, required_state, deadline, priority } = request;
        let is_late = self.is_over(deadline);
        let completion = self.judged(completion, deadline);
        let search = self.search(kind, &order, symbols, required_state).and_then(|mut search| {
            match purpose {
                Purpose::Definitions => search.priority = priority,
                Purpose::Alias(alias) => (search.alias, search.priority) = (Some(alias), priority),
                Purpose::Flags { on_behalf_of } => {
                    (search.flags_only, search.on_behalf_of) = (true, on_behalf_of);
                }
            }
            // One that comes too late asks for nothing.
            let overloaded = if is_late { None } else { self.overloaded_by(&mut search) };
            overloaded.map_or(Ok(search), Err)
        });
        match search {
            Ok(search) => {
                self.lodge(Question::new(&order, search, is_late), completion, |lodged, _, _| {
                    *query = lodged
                });
            }
            Err(error) => self.transact(|_, effects| effects.complete(completion, Err(error))),
        }
    }

    /// A question about one symbol that shall become Ready, from a thread that blocks for it.
    #[inline]
    pub(super) fn question_of_one<'a>(&self, order: &'a SearchOrder, name: &SymbolName) -> Question<'a> {
        let sought = Sought {
            name: name.clone(),
            by_task: self.in_task(),
            asked_by: frame::asks(self.tag()),
            priority: Some(TaskPriority::Demanded),
        };
        Question { order, what: What::One(sought), is_late: false, refusal: None }
    }

    pub(crate) fn search(
        &self,
        kind: LookupKind,
        order: &SearchOrder,
        symbols: LookupSet,
        required_state: RequiredState,
    ) -> Result<Search, LookupError> {
        let order = self.own_order(order).map_err(|dylib| LookupError::ForeignDylib { dylib })?;
        Ok(Search {
            kind,
            order,
            symbols,
            required_state,
            by_task: self.in_task(),
            asked_by: frame::asks(self.tag()),
            ..Search::default()
        })
    }

    /// The order as ids, or the name of a dylib that belongs to another session.
    pub(crate) fn own_order(&self, order: &SearchOrder) -> Result<Order, Arc<str>> {
        order
            .iter()
            .map(|(dylib, flags)| match dylib.session() == self {
                true => Ok((dylib.id(), *flags)),
                false => Err(dylib.shared_name()),
            })
            .collect()
    }

    /// Whether that moment has passed.
    pub(super) fn is_over(&self, deadline: Option<Deadline>) -> bool {
        deadline.is_some_and(|deadline| self.left_until(deadline).is_zero())
    }

    /// Why a lookup may not start now, if so: it asks for speculative or idle work alone, and the dispatcher admits no more of that.
    ///
    /// Three lookups are let through:
    ///
    /// - one on behalf of a unit, and one for flags, which claims nothing;
    /// - one that would wait for nothing;
    /// - one from a thread that would not be kept waiting for room ([`Self::wait_for_room`]): it would ask in vain.
    pub(super) fn overloaded_by(&self, search: &mut Search) -> Option<LookupError> {
        if search.asked_by.is_some() || search.alias.is_some() || search.flags_only {
            return None;
        }
        let symbols = search.symbols.len();
        let admits = |priority| self.0.dispatcher.admits(priority, symbols);
        let said = search.priority;
        let priority = match said {
            Some(priority) => priority,
            // It is as urgent as the units it finds. While there is room for any priority, no search for them is needed.
            None if BACKGROUND.into_iter().all(|priority| admits(priority).is_ok()) => return None,
            None => self.transact(|state, _| state.priority_of_what_it_claims(search))?,
        };
        let reached = BACKGROUND.contains(&priority).then(|| admits(priority).err()).flatten()?;
        let is_let_through = holding::is_waited_for(self.tag())
            || said.is_some() && self.transact(|state, _| state.ends_at_once(search));
        (!is_let_through).then_some(LookupError::Overloaded { priority, reached })
    }
}

/// The priorities whose lookups may be refused.
const BACKGROUND: [TaskPriority; 2] = [TaskPriority::Idle, TaskPriority::Speculative];
