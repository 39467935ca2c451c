//! Why: where a symbol stands and what it waits for, at this moment and in the embedder's words.
//!
//! Changes nothing. Shows certain waits (of blocked threads, emitted symbols, aliases) and uncertain ones: lookups
//! that a unit has made without waiting, responsibilities whose owner is unknown.

use rustc_hash::FxHashSet;

use crate::sync::Arc;
use crate::{
    Demand, JitDylibLookupFlags, LookupError, SymbolName, SymbolStage, WaitedFor, WaitedSymbol,
    WaitingLookup, Why, WhyGenerator, WhyState, Work,
};

use crate::why::SYMBOLS_MAX;

use crate::protocol::lookups::lookup::Visibility;
use crate::protocol::state::{
    Effects, Payload, Phase, Query, RisingPriority, Row, RowState, Search, SessionState,
};
use crate::protocol::storage::{ClaimId, DylibId, Id as _, QueryId, RowId};

/// Of how many symbols an error of a deadline tells.
const WHYS_MAX: usize = 8;

/// How many lookups are told of that wait.
const LOOKUPS_MAX: usize = 32;

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    Everything,
    /// Not what only a walk over the whole session finds: who demands a symbol, what its unit has asked for; and of what a
    /// symbol waits for no more than is listed.
    AtHand,
}

impl Detail {
    /// How many of the things that one waits for are looked at.
    fn looked_at_max(self) -> usize {
        match self {
            Self::Everything => usize::MAX,
            // One more than is listed says that there are more.
            Self::AtHand => SYMBOLS_MAX + 1,
        }
    }
}

impl<P: Payload> SessionState<P> {
    /// See [`crate::ExecutionSession::why_along`].
    pub(crate) fn why(
        &self,
        order: &[(DylibId, JitDylibLookupFlags)],
        symbol: &SymbolName,
        first: Arc<str>,
    ) -> Why {
        self.why_along(order, symbol, first, Detail::Everything)
    }

    /// The generators of a dylib, and the unit that provides `symbol` there.
    pub(crate) fn witnesses(
        &self,
        dylib: DylibId,
        symbol: &SymbolName,
    ) -> (Vec<P::Generator>, Option<SymbolName>) {
        let generators = self.definitions.dylib(dylib).into_iter().flat_map(|dylib| &dylib.generators);
        let generators = generators.map(|&id| self.lookups[id].value.clone()).collect();
        let is_there = self.definitions.has_dylib(dylib);
        let unit = is_there.then(|| self.definitions.unit_providing(dylib, symbol)).flatten();
        (generators, unit)
    }

    fn why_along(
        &self,
        order: &[(DylibId, JitDylibLookupFlags)],
        symbol: &SymbolName,
        first: Arc<str>,
        detail: Detail,
    ) -> Why {
        for &(dylib, flags) in order.iter().filter(|(dylib, _)| self.definitions.has_dylib(*dylib)) {
            if matches!(self.visibility(dylib, symbol, flags), Visibility::Visible)
                && let Some(row) = self.definitions.find(dylib, symbol)
            {
                return self.why_row(row, detail);
            }
        }
        let live = || order.iter().filter_map(|(dylib, _)| self.definitions.dylib(*dylib));
        let is_asked = live().any(|dylib| !dylib.generators.is_empty());
        let apart = match detail {
            Detail::Everything if is_asked => self.lookups.serving_apart(),
            _ => FxHashSet::default(),
        };
        let is_live = |query: QueryId| self.lookups.live(query).is_some();
        let generators = live().flat_map(|dylib| &dylib.generators).map(|&id| {
            let generator = &self.lookups[id];
            WhyGenerator {
                dylib: self.definitions[generator.dylib].name.clone(),
                name: generator.name.clone(),
                is_busy: generator.occupant().is_some_and(is_live) || apart.contains(&id),
                queued: generator.queue().filter(|&query| is_live(query)).count(),
            }
        });
        let state = match live().next() {
            Some(_) => WhyState::Undefined { generators: generators.collect() },
            None => WhyState::DylibRemoved,
        };
        Why { symbol: symbol.clone(), dylib: first, state, demand: Demand::default(), about: Vec::new() }
    }

    /// Why a lookup may not begin to wait, if it would have to: its thread may not, or its time is over.
    pub(super) fn may_not_wait(&mut self, search: &mut Search) -> Option<LookupError> {
        if (search.refusal.is_none() && !search.is_late) || self.ends_at_once(search) {
            return None;
        }
        if let Some(refusal) = search.refusal.take() {
            return Some(LookupError::Wait(refusal));
        }
        let first = self.first_dylib_of(&search.order);
        let whys = search
            .symbols
            .iter()
            .map(|(name, _)| self.why_along(&search.order, name, first.clone(), Detail::AtHand));
        let waiting: Vec<Why> =
            whys.filter(|why| !matches!(why.state, WhyState::Ready { .. })).take(WHYS_MAX).collect();
        Some(LookupError::DeadlineExceeded { waiting: waiting.into() })
    }

    fn first_dylib_of(&self, order: &[(DylibId, JitDylibLookupFlags)]) -> Arc<str> {
        let first = order.first().and_then(|(dylib, _)| self.definitions.dylib(*dylib));
        first.map_or_else(|| "(removed)".into(), |dylib| dylib.name.clone())
    }

    /// Ends a query whose deadline has passed, with what it still waits for.
    pub(crate) fn expire(&mut self, query: QueryId, effects: &mut Effects<P>) {
        if let Some(waiting) = self.waiting_of(query) {
            self.fail_query(query, LookupError::DeadlineExceeded { waiting: waiting.into() }, effects);
        }
    }

    /// Withdraws a query whose deadline has passed, and gives what it still waited for. None if it has ended.
    pub(crate) fn withdraw_late(&mut self, query: QueryId, effects: &mut Effects<P>) -> Option<Vec<Why>> {
        let waiting = self.waiting_of(query)?;
        self.withdraw(query, effects);
        Some(waiting)
    }

    /// See [`crate::ExecutionSession::waiting_lookups`].
    pub(crate) fn waiting_lookups(&self) -> Vec<WaitingLookup> {
        let outside = self.lookups.queries().filter(|(_, query)| query.asked_by.is_none());
        let waiting = outside.filter(|(_, query)| match &query.phase {
            Phase::Lodged(lodged) => lodged.alias.is_none(),
            Phase::Suspended(suspended) => suspended.search.alias.is_none(),
        });
        let lookups = waiting.filter_map(|(query, _)| {
            let id = u64::from(query.generation()) << 32 | u64::from(query.index());
            Some(WaitingLookup { id, waiting: self.waiting_of(query)? })
        });
        lookups.take(LOOKUPS_MAX).collect()
    }

    /// Why each symbol of a query is not far enough; some of them where they are many. A deadline may pass at any time,
    /// and no thread shall be held up by it: only what is at hand.
    fn waiting_of(&self, query: QueryId) -> Option<Vec<Why>> {
        Some(match &self.lookups.live(query)?.phase {
            Phase::Lodged(lodged) => {
                let waits = lodged.entries.iter().filter(|entry| entry.waits());
                waits.take(WHYS_MAX).map(|entry| self.why_row(entry.row, Detail::AtHand)).collect()
            }
            Phase::Suspended(suspended) => {
                let order = &suspended.search.order;
                let first = self.first_dylib_of(order);
                let missing = suspended.missing().take(WHYS_MAX);
                missing.map(|name| self.why_along(order, name, first.clone(), Detail::AtHand)).collect()
            }
        })
    }

    fn why_row(&self, id: RowId, detail: Detail) -> Why {
        let row = &self.definitions[id];
        let unit = row.unit_name.clone();
        let state = match row.state {
            RowState::NeverSearched { .. } => WhyState::NeverSearched { unit },
            RowState::Returned { .. } => WhyState::Returned { unit },
            RowState::Materializing { claim, .. } => match self.is_queued(claim) {
                true => WhyState::Queued { unit },
                false => WhyState::Materializing(self.work_of(claim, unit, detail)),
            },
            RowState::Resolved { claim, address, .. } => {
                WhyState::Resolved { address, work: self.work_of(claim, unit, detail) }
            }
            RowState::Emitted { address, .. } => {
                WhyState::Emitted { address, unit, waits_for: self.dependencies_of(row, detail) }
            }
            RowState::Failed { .. } => WhyState::Failed(self.failure_of(id)),
            RowState::Ready { address } => WhyState::Ready { address },
        };
        let dylib = self.definitions.dylib_name_of(row);
        let demand = match detail {
            Detail::Everything => {
                Demand { priority: self.priority_of(id).map(RisingPriority::get), ..self.demand_for(row) }
            }
            Detail::AtHand => Demand::default(),
        };
        Why { symbol: row.name.clone(), dylib, state, demand, about: Vec::new() }
    }

    /// Whether the unit is known not to have begun.
    fn is_queued(&self, claim: ClaimId) -> bool {
        let claim = &self.definitions[claim];
        claim.queued_in().is_some()
    }

    fn work_of(&self, claim: ClaimId, unit: SymbolName, detail: Detail) -> Work {
        let blocked_in =
            self.waits.blocked_with(claim).map(|query| self.symbols_of(self.lookups.live(query), detail));
        let asked = |query: &&Query<P::Handler>| query.asked_by == Some(claim) && query.is_live();
        let asked_for = match detail {
            Detail::Everything => {
                self.symbols_of(self.lookups.queries().map(|(_, query)| query).filter(asked), detail)
            }
            Detail::AtHand => WaitedFor::default(),
        };
        Work { unit, blocked_in, asked_for }
    }

    fn symbols_of<'s>(
        &'s self,
        queries: impl IntoIterator<Item = &'s Query<P::Handler>>,
        detail: Detail,
    ) -> WaitedFor
    where
        P: 's,
    {
        let mut symbols = WaitedFor::default();
        for query in queries {
            match &query.phase {
                Phase::Lodged(lodged) => {
                    let waits = lodged.entries.iter().filter(|entry| entry.waits());
                    waits
                        .take(detail.looked_at_max())
                        .for_each(|entry| symbols.push(|| self.waited(entry.row)));
                }
                Phase::Suspended(suspended) => {
                    for name in suspended.missing().take(detail.looked_at_max()) {
                        let (symbol, stage) = (name.clone(), SymbolStage::Generating);
                        symbols.push(|| WaitedSymbol { symbol, dylib: None, stage });
                    }
                }
            }
        }
        symbols
    }

    fn dependencies_of(&self, row: &Row, detail: Detail) -> WaitedFor {
        let mut symbols = WaitedFor::default();
        let Some(node) = row.waiting().and_then(|waiting| waiting.node) else { return symbols };
        let mut seen = FxHashSet::default();
        let dependencies = self.forest.dependencies(node).take(detail.looked_at_max());
        for dependency in dependencies.filter(|&row| seen.insert(row)) {
            if self.definitions.row(dependency).is_some() {
                symbols.push(|| self.waited(dependency));
            }
        }
        symbols
    }

    fn demand_for(&self, row: &Row) -> Demand {
        let mut demand = Demand::default();
        let Some(waiting) = row.waiting() else { return demand };
        let mut claims = FxHashSet::default();
        let mut cursor = waiting.queries;
        while let Some((query, lodged)) = self.lookups.lodged_at(cursor) {
            if !query.is_live() {
                cursor = lodged.next_of(cursor);
                continue;
            }
            demand.lookups += 1;
            if let Some(id) = self.lookups.id_at(cursor.query) {
                claims.extend(self.waits.held_in(id));
            }
            claims.extend(query.asked_by);
            cursor = lodged.next_of(cursor);
        }
        if !claims.is_empty() {
            // Claims do not know their rows; the caller of an explanation waits for the walk.
            let asked = |row: &Row| {
                row.claim().is_some_and(|claim| claims.contains(&claim))
                    && !self.definitions.row_is_removing(row)
            };
            for (id, _) in self.definitions.rows().filter(|(_, row)| asked(row)) {
                demand.symbols.push(|| self.waited(id));
            }
        }
        for dependant in waiting.node.into_iter().flat_map(|node| self.forest.dependants(node)) {
            if self.definitions.row(dependant).is_some_and(|row| !self.definitions.row_is_removing(row)) {
                demand.symbols.push(|| self.waited(dependant));
            }
        }
        demand
    }

    fn waited(&self, id: RowId) -> WaitedSymbol {
        let row = &self.definitions[id];
        let stage = match row.state {
            RowState::NeverSearched { .. } => SymbolStage::NeverSearched,
            RowState::Returned { .. } => SymbolStage::Returned,
            RowState::Materializing { claim, .. } if self.is_queued(claim) => SymbolStage::Queued,
            RowState::Materializing { .. } => SymbolStage::Materializing,
            RowState::Resolved { .. } => SymbolStage::Resolved,
            RowState::Emitted { .. } => SymbolStage::Emitted,
            RowState::Failed { .. } => SymbolStage::Failed,
            RowState::Ready { .. } => SymbolStage::Ready,
        };
        let dylib = Some(self.definitions.dylib_name_of(row));
        WaitedSymbol { symbol: row.name.clone(), dylib, stage }
    }
}
