//! Lookup: names are matched along a search order, units claimed, the query lodged.
//!
//! Matching changes nothing, so a lookup that cannot succeed leaves everything as it was. A lookup that
//! misses symbols where generators could provide them is suspended first (`generate.rs`); in the end
//! everything is matched and lodged in one transaction.

use smallvec::SmallVec;

use crate::protocol::state::{
    Answer, Effects, Entries, Entry, Lodged, Lodging, Order, Payload, Phase, Progress, Query, RisingPriority,
    RowState, Search, SessionState, Source, Suspended,
};
use crate::protocol::storage::{ClaimId, DylibId, QueryId, RowId};
use crate::sync::weakened;
use crate::{
    ExecutorAddr, ExecutorSymbolDef, JitDylibLookupFlags, LookupError, RequiredState, SearchedDylib,
    SymbolFlags, SymbolLookupFlags, SymbolName, TaskPriority,
};

/// A dylib's definition of a name, as far as a lookup may see.
pub(crate) enum Visibility {
    Visible,
    /// Defined, but not for this lookup. Generators are not asked for it.
    Hidden,
    Undefined,
}

/// Where every symbol of a lookup was found.
#[derive(Default)]
pub(super) struct Matches {
    /// In the order of the lookup set; none where nothing was found.
    pub(super) rows: SmallVec<[Option<RowId>; 2]>,
    /// A generator might still provide something that would come before what was found.
    pub(super) may_generate: bool,
    /// Something is missing, has failed or has no address: what a lookup may have to be refused for.
    pub(super) is_doubtful: bool,
    /// How many are not Ready.
    unready: usize,
}

impl<P: Payload> SessionState<P> {
    /// See [`crate::ExecutionSession::lookup_async`]. Gives the query unless it has ended already.
    ///
    /// `dylib_name` names the dylib at a position of the order, should it be gone.
    pub(crate) fn lookup(
        &mut self,
        mut search: Search,
        handler: P::Handler,
        dylib_name: impl FnOnce(usize) -> crate::sync::Arc<str>,
        effects: &mut Effects<P>,
    ) -> Option<QueryId> {
        if let Some(error) = self.may_not_wait(&mut search) {
            effects.complete(handler, Err(error));
            return None;
        }
        if !self.admits(search.by_task) {
            effects.complete(handler, Err(LookupError::Closed));
            return None;
        }
        self.take_link_order(&mut search);
        if let Some(position) = search.order.iter().position(|(id, _)| !self.definitions.has_dylib(*id)) {
            effects.complete(handler, Err(LookupError::DylibRemoved { dylib: dylib_name(position) }));
            return None;
        }
        let matches = self.match_anew(&search, effects);
        let (priority, rises_with) = self.priority_to_ask_at(&search);
        let (asker, asked_by) = (search.asked_by, search.asked_by.map(|asker| asker.claim));
        self.noted.act_for(asked_by);
        if matches.may_generate {
            let first = uruk_recorder::is_on()
                .then(|| search.symbols.0.first().map(|(name, _)| name.clone()))
                .flatten();
            search.began_at = Some(self.changes());
            let phase = Phase::Suspended(Box::new(Suspended::new(search)));
            let query = self.lookups.begin(Query { handler: Some(handler), phase, asked_by, priority });
            self.noted.lodged(query, asked_by, first.as_ref());
            self.begins_to_need(query, rises_with);
            self.advance(query, effects);
            return Some(query);
        }
        if search.flags_only {
            let answer = self.answer_flags(&search, &matches.rows);
            effects.complete_for(asker, handler, answer);
            return None;
        }
        match self.accept(&mut search, &matches, priority, effects) {
            Ok(lodged) => {
                let query = self.lookups.begin(Query {
                    handler: Some(handler),
                    phase: Phase::Lodged(lodged),
                    asked_by,
                    priority,
                });
                self.wait_or_complete(query, rises_with, effects).then_some(query)
            }
            Err(error) => {
                let symbols = search.symbols.len();
                effects.complete_for(asker, handler, Err(error));
                self.observe(effects, || crate::EventKind::QueryFailed { symbols });
                None
            }
        }
    }

    /// Whether a lookup would have its answer or its error at once. Changes nothing of the state.
    pub(crate) fn ends_at_once(&self, search: &mut Search) -> bool {
        let Some(Matches { rows, may_generate, .. }) = self.foresee(search) else { return true };
        let required_state = search.required_state;
        let is_there = |row: &RowId| {
            let state = &self.definitions[*row].state;
            let is_address = matches!(state, RowState::NeverSearched { source: Source::Address(_) });
            is_address || state.reached(required_state).is_some()
        };
        !may_generate && (search.flags_only || rows.iter().flatten().all(is_there))
    }

    /// The most urgent, by what they say of themselves, among the units that a lookup would claim; none if it would claim
    /// none, or asks generators first. Changes nothing of the state.
    pub(crate) fn priority_of_what_it_claims(&self, search: &mut Search) -> Option<TaskPriority> {
        let Matches { rows, may_generate: false, .. } = self.foresee(search)? else { return None };
        let units =
            rows.iter().flatten().filter_map(|&row| self.definitions.unit(self.definitions[row].unit()?));
        units.map(|unit| unit.own_priority).max()
    }

    /// The finds of a lookup that is not lodged yet, unless it would be refused at once.
    fn foresee(&self, search: &mut Search) -> Option<Matches> {
        self.take_link_order(search);
        let is_gone = |(id, _): &(DylibId, JitDylibLookupFlags)| !self.definitions.has_dylib(*id);
        if !self.admits(search.by_task) || search.order.iter().any(is_gone) {
            return None;
        }
        let matches = self.match_all(search);
        let is_refused = !matches.may_generate
            && self.refuse(search, &matches.rows).is_some()
            && self.to_retry(search, &matches).is_empty();
        (!is_refused).then_some(matches)
    }

    /// Fills in what is to be searched, if that is some dylib's link order as it is now.
    fn take_link_order(&self, search: &mut Search) {
        let Some(dylib) = search.along.take() else { return };
        match self.definitions.dylib(dylib) {
            Some(dylib) => search.order = Order::from_slice(&dylib.link_order),
            // A link order names no removed dylib: only this one can be gone.
            None => search.order = Order::from_slice(&[(dylib, JitDylibLookupFlags::MatchAllSymbols)]),
        }
    }

    /// Ends the generating part of a lookup: what is there now is all there will be. The query keeps its id, by which
    /// it can be withdrawn.
    pub(crate) fn conclude(
        &mut self,
        query: QueryId,
        mut suspended: Box<Suspended>,
        effects: &mut Effects<P>,
    ) {
        self.lookups.seek_no_more(suspended.search.alias);
        let matches = self.match_anew(&suspended.search, effects);
        if suspended.search.flags_only {
            let answer = self.answer_flags(&suspended.search, &matches.rows);
            self.lookups.set_phase(query, Phase::Suspended(suspended));
            let asker = self.lookups.query(query).and_then(Query::asker);
            if let Some((handler, _)) = self.take_out(query, effects) {
                effects.complete_for(asker, handler, answer);
            }
            return;
        }
        self.noted.act_for(self.lookups.query(query).and_then(|query| query.asked_by));
        // It may have become more urgent on its way.
        let priority = self.lookups.query(query).and_then(|query| query.priority);
        match self.accept(&mut suspended.search, &matches, priority, effects) {
            Ok(lodged) => {
                self.lookups.set_phase(query, Phase::Lodged(lodged));
                self.wait_or_complete(query, None, effects);
            }
            Err(error) => {
                self.lookups.set_phase(query, Phase::Suspended(suspended));
                self.fail_query(query, error, effects);
            }
        }
    }

    /// The definition of `name` in `dylib`.
    pub(crate) fn visibility(
        &self,
        dylib: DylibId,
        name: &SymbolName,
        flags: JitDylibLookupFlags,
    ) -> Visibility {
        match self.definitions.find(dylib, name) {
            None => Visibility::Undefined,
            Some(row) if self.definitions[row].is_seen_with(flags) => Visibility::Visible,
            Some(_) => Visibility::Hidden,
        }
    }

    /// Finds every symbol of the search, without changing anything.
    pub(super) fn match_all(&self, search: &Search) -> Matches {
        let generates =
            |(dylib, _): &(DylibId, JitDylibLookupFlags)| !self.definitions[*dylib].generators.is_empty();
        let first_generating = search.order.iter().position(generates).unwrap_or(usize::MAX);
        let rows = SmallVec::with_capacity(search.symbols.len());
        let sources_go = self.sources_go();
        let mut matches = Matches { rows, ..Matches::default() };
        for (name, _) in &search.symbols.0 {
            let Some((position, row)) = self.first_visible(name, &search.order) else {
                // Nothing comes after the end of the order.
                matches.may_generate |=
                    first_generating < usize::MAX && self.may_generate(name, &search.order);
                matches.is_doubtful = true;
                matches.rows.push(None);
                continue;
            };
            matches.may_generate |= first_generating < position
                && self.may_generate(name, &search.order[..position])
                && !weakened("generate::overlooks_what_comes_before");
            let found = &self.definitions[row];
            matches.is_doubtful |=
                found.is_for_side_effects_only() || matches!(found.state, RowState::Failed { .. });
            matches.is_doubtful |= found.is_stranded() || sources_go;
            matches.unready += usize::from(!matches!(found.state, RowState::Ready { .. }));
            matches.rows.push(Some(row));
        }
        matches
    }

    /// The first definition of `name` that a search along `order` may see, and the place of its dylib in the order.
    pub(super) fn first_visible(
        &self,
        name: &SymbolName,
        order: &[(DylibId, JitDylibLookupFlags)],
    ) -> Option<(usize, RowId)> {
        let first = self.definitions.first_named(name)?;
        order.iter().enumerate().find_map(|(position, &(dylib, flags))| {
            let (id, row) = self.definitions.named_in(first, dylib, name)?;
            row.is_seen_with(flags).then_some((position, id))
        })
    }

    /// Claims the rows that were never searched, and gives the parts of the query to be lodged. An error leaves
    /// everything as it was, the search too.
    fn accept(
        &mut self,
        search: &mut Search,
        matches: &Matches,
        priority: Option<RisingPriority>,
        effects: &mut Effects<P>,
    ) -> Result<Lodged, LookupError> {
        let rows = &matches.rows;
        let refused = if matches.is_doubtful { self.refuse(search, rows) } else { None };
        let alias = match refused {
            None => self.lookups.add_alias(search, rows, &self.definitions)?,
            Some(error) => return Err(self.advised(error, &search.order)),
        };
        self.definitions.expect_ready(matches.unready);
        self.claimed.reserve(&mut effects.claimed, matches.unready);
        let required_state = search.required_state;
        let symbols = std::mem::take(&mut search.symbols.0);
        let (mut entries, mut outstanding) = (Entries::with_capacity(rows.len()), 0);
        for ((name, _), &row) in symbols.into_iter().zip(rows) {
            let Some(row) = row else { continue };
            self.claim(row, priority, effects);
            let entry = Entry { name, row, progress: self.progress_of(row, required_state) };
            outstanding += usize::from(entry.waits());
            entries.push(entry);
        }
        Ok(Lodged { required_state, outstanding, entries, alias, ended: false })
    }

    /// Puts the query into the lists of the rows it waits for, or ends it with the answer if that is there already.
    /// Says whether it waits.
    fn wait_or_complete(
        &mut self,
        query: QueryId,
        rises_with: Option<ClaimId>,
        effects: &mut Effects<P>,
    ) -> bool {
        let Some(Query { phase: Phase::Lodged(lodged), .. }) = self.lookups.query(query) else {
            return false;
        };
        if lodged.outstanding == 0 {
            self.complete(query, effects);
            return false;
        }
        if uruk_recorder::is_on() {
            let asked_by = self.lookups.query(query).and_then(|query| query.asked_by);
            self.noted.lodged(query, asked_by, lodged.entries.first().map(|entry| &entry.name));
        }
        self.lookups.lodge(query, &mut self.definitions);
        self.begins_to_need(query, rises_with);
        true
    }

    /// Why the lookup cannot succeed, if it cannot.
    fn refuse(&self, search: &Search, rows: &[Option<RowId>]) -> Option<LookupError> {
        let mut missing = Vec::new();
        for ((name, flags), row) in search.symbols.0.iter().zip(rows) {
            let required = *flags == SymbolLookupFlags::RequiredSymbol;
            match row.map(|row| &self.definitions[row]) {
                // A symbol for side effects only has no address to give.
                Some(row) if required && row.is_for_side_effects_only() => missing.push(name.clone()),
                None if required => missing.push(name.clone()),
                _ => {}
            }
        }
        if !missing.is_empty() {
            return Some(self.not_found(missing, search));
        }
        let failed = |row: &&RowId| {
            matches!(self.definitions[**row].state, RowState::Failed { .. })
                && !weakened("fail::lookups_overlook_it")
        };
        if let Some(failed) = rows.iter().flatten().find(failed) {
            return Some(LookupError::Failed(self.failure_of(*failed)));
        }
        let sources_go = self.sources_go();
        let leads_nowhere = |row: &RowId| match self.definitions[*row].is_stranded() || sources_go {
            true => self.presence(*row).source_is_gone(),
            false => None,
        };
        let alias = rows.iter().flatten().find_map(leads_nowhere)?;
        Some(LookupError::AliasOfRemoved { alias })
    }

    /// Whether there may be aliases whose source was removed, and only has to go yet.
    fn sources_go(&self) -> bool {
        self.definitions.is_removing() && !self.aliased.is_empty()
    }

    fn not_found(&self, symbols: Vec<SymbolName>, search: &Search) -> LookupError {
        let searched = search.order.iter().map(|(id, _)| {
            let dylib = &self.definitions[*id];
            let generators = dylib.generators.iter().map(|id| self.lookups[*id].name.clone()).collect();
            SearchedDylib { dylib: dylib.name.clone(), generators }
        });
        let began_at = search.began_at.filter(|_| !weakened("retry::counts_changes_when_the_search_ends"));
        let changes = began_at.unwrap_or_else(|| self.changes());
        LookupError::NotFound {
            symbols,
            searched: searched.collect(),
            near: Box::default(),
            named: false,
            changes,
        }
    }

    /// Whether a row is far enough for a query, before the query is lodged on it.
    fn progress_of(&self, row: RowId, required_state: RequiredState) -> Progress {
        match self.definitions[row].found(required_state) {
            Some(found) if !weakened("lodge::overlooks_what_is_ready") => Progress::Found(found),
            _ => Progress::Waiting { previous: Lodging::NONE, next: Lodging::NONE },
        }
    }

    /// The answer to a lookup of flags: every state of a definition will do, and symbols that exist for their side
    /// effects only are told as well.
    pub(crate) fn answer_flags(
        &self,
        search: &Search,
        rows: &[Option<RowId>],
    ) -> Result<Answer, LookupError> {
        let (mut found, mut missing) = (Entries::with_capacity(rows.len()), Vec::new());
        for ((name, lookup_flags), row) in search.symbols.0.iter().zip(rows) {
            match row {
                Some(row) => {
                    let (address, flags) =
                        (ExecutorAddr::NULL, self.definitions[*row].flags.difference(SymbolFlags::STRANDED));
                    let progress = Progress::Found(ExecutorSymbolDef::new(address, flags));
                    found.push(Entry { name: name.clone(), row: *row, progress });
                }
                None if *lookup_flags == SymbolLookupFlags::RequiredSymbol => missing.push(name.clone()),
                None => {}
            }
        }
        match missing.is_empty() {
            true => Ok(Answer::of_flags(found)),
            false => Err(self.not_found(missing, search)),
        }
    }
}
