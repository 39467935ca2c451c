//! Lodging: the one way to ask, for threads, handlers and futures.
//!
//! A [`Search`] goes under the lock here, with its [`Completion`]: a thread that waits, a handler or a future. The protocol matches its
//! names and claims units of symbols that were not searched before. A search that is refused is lodged too, and ends at once with its
//! error. So an answer has one way back.
//!
//! **Architecture Invariant:** a lookup on behalf of a claimed unit is never refused for want of room. That would fail symbols, and
//! work in flight would wait for room that it has to make itself.

use crate::ids::{Id, QueryId, RowId};
use crate::protocol::state::SessionState;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::{Order, Search};
use crate::sync::Arc;
use crate::{Deadline, LookupError, LookupRequest, LookupSet, SearchOrder, TaskPriority};

use super::query::Completion;
use super::{ExecutionSession, Live, frame, holding};

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

impl ExecutionSession {
    /// Lodges a search. `lodged` hears of its query, unless that has ended already, before the lock is free: what has to be known
    /// before its answer can come is noted there.
    #[inline]
    pub(super) fn lodge(
        &self,
        order: &SearchOrder,
        search: Search,
        completion: Completion,
        lodged: impl FnOnce(Option<QueryId>, &mut SessionState<Live>, &mut Effects<Live>),
    ) {
        let phase = crate::in_span::phase!(
            "lookup.lodge",
            session = self.0.tag.noted(),
            query = tracing::field::Empty,
            by_claim = search.asked_by.map(|asker| asker.claim.noted()),
            symbols = search.symbols.len(),
        );
        let inside = crate::inside(phase);
        let query = self.transact(|state, effects| {
            let name = |position: usize| order.as_slice()[position].0.shared_name();
            let query = state.lookup(search, completion, name, effects);
            lodged(query, state, effects);
            query
        });
        inside.record_id("query", query);
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
        let deadline = request.deadline;
        let completion = self.judged(completion, deadline);
        let search = self.search(request).and_then(|(order, mut search)| {
            match purpose {
                Purpose::Definitions => {}
                Purpose::Alias(alias) => search.alias = Some(alias),
                Purpose::Flags { on_behalf_of } => {
                    (search.flags_only, search.on_behalf_of, search.priority) = (true, on_behalf_of, None);
                }
            }
            search.is_late = self.is_over(deadline);
            // One that comes too late asks for nothing.
            let overloaded = if search.is_late { None } else { self.overloaded_by(&mut search) };
            overloaded.map_or(Ok((order, search)), Err)
        });
        match search {
            Ok((order, search)) => self.lodge(&order, search, completion, |lodged, _, _| *query = lodged),
            Err(error) => self.transact(|_, effects| effects.complete(completion, Err(error))),
        }
    }

    /// The search that a request asks for, and its order.
    pub(super) fn search(&self, request: LookupRequest) -> Result<(SearchOrder, Search), LookupError> {
        let LookupRequest { kind, order, symbols, required_state, priority, along, .. } = request;
        let search = self.search_along(&order, symbols)?;
        let along = order.iter().next().filter(|_| along).map(|(dylib, _)| dylib.id());
        Ok((order, Search { kind, required_state, priority, along, ..search }))
    }

    /// A search of this thread for symbols that shall become Ready.
    pub(super) fn search_along(
        &self,
        order: &SearchOrder,
        symbols: LookupSet,
    ) -> Result<Search, LookupError> {
        let order = self.own_order(order).map_err(|dylib| LookupError::ForeignDylib { dylib })?;
        let (by_task, asked_by) = (self.in_task(), frame::asks(self.tag()));
        Ok(Search { order, symbols, by_task, asked_by, ..Search::default() })
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
