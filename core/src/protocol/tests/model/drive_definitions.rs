//! Definitions and lookups: what an embedder asks of a session, in both.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::QueryId;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::lookups::query::Search;
use crate::protocol::symbols::absolute::Addresses;
use crate::protocol::symbols::define::Definition;
use crate::{
    DefineError, ExecutorAddr, ExecutorSymbolDef, LookupKind, LookupSet, RequiredState, SymbolFlags,
    SymbolLookupFlags, SymbolName, TaskPriority, shared_error,
};

use super::define::{Arrival, address_of};
use super::drive_aliases::AliasUnit;
use super::drive_removal::lookup_flags;
use super::driver::{Harness, Integers, Request, number_in, pick};
use super::operation::{Along, DYLIBS, Manner, NAMES, Source, Symbol};
use super::world::{Phase, Query, Refusal, Searched, Walk};

impl Harness {
    pub(super) fn define(
        &mut self,
        slot: usize,
        tracker: Option<usize>,
        symbols: &[Symbol],
        source: &Source,
        queue: Option<usize>,
        [initializer, by_task]: [bool; 2],
    ) {
        let dylib = self.slots[slot];
        let tracker = tracker.and_then(|choice| self.tracker_of(dylib, choice));
        let mut symbols = Self::interface(symbols);
        let unit = self.world.number();
        if let Some((of, from)) = self.sources(source) {
            let effects_only = SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY;
            symbols.values_mut().for_each(|flags| flags.remove(effects_only));
            let sources = symbols.keys().copied().zip(of.into_iter().cycle()).collect();
            self.aliases.insert(unit, AliasUnit { sources, from });
        }
        let known = matches!(source, Source::Known);
        let initializer = symbols.keys().next().copied().filter(|_| initializer && !known);
        let arrival = Arrival { unit, symbols, known, initializer, queue };
        self.define_unit(dylib, tracker, &arrival, by_task);
    }

    /// The names that aliases stand for, and the dylib, if not their own, with whether hidden symbols will do.
    fn sources(&self, source: &Source) -> Option<(Vec<usize>, Option<Searched>)> {
        match source {
            Source::Unit | Source::Known => None,
            // Two of the choices are the unit's own dylib.
            Source::Aliases { of, from, all } => {
                Some((of.clone(), (*from < DYLIBS).then(|| (self.slots[*from], *all))))
            }
            Source::AliasesOf { definitions, all } => {
                let aims = definitions.iter().filter_map(|&choice| self.aim(choice));
                let aims: Vec<_> = aims.map(|number| &self.world.definitions[&number]).collect();
                let from = aims.first()?.dylib;
                let names = aims.iter().filter(|aim| aim.dylib == from).map(|aim| aim.name);
                Some((names.collect(), Some((from, *all))))
            }
        }
    }

    pub(super) fn define_unit(
        &mut self,
        dylib: usize,
        tracker: Option<usize>,
        arrival: &Arrival,
        by_task: bool,
    ) {
        let mut effects = Effects::default();
        let id = self.ids.dylibs[&dylib];
        let tracker_id = tracker.map(|tracker| self.ids.trackers[&tracker]);
        let outcome = if arrival.known {
            let at = |(&name, &flags): (&usize, &SymbolFlags)| {
                let address = ExecutorAddr::new(address_of(arrival.unit, name));
                (self.name(name), ExecutorSymbolDef::new(address, flags))
            };
            let symbols = arrival.symbols.iter().map(at).collect();
            let addresses = Addresses { unit_name: self.unit_name(arrival.unit), symbols, by_task };
            self.state.define_addresses(id, tracker_id, addresses, &mut effects)
        } else {
            let definition = self.definition(arrival, by_task);
            self.state.define(id, tracker_id, definition, arrival.unit, &mut effects)
        };
        let expected = self.world.define(dylib, tracker, arrival, by_task);
        agree_on_definition(&outcome, &expected.map(drop));
        self.follow(effects);
    }

    pub(super) fn definition(&self, arrival: &Arrival, by_task: bool) -> Definition {
        Definition {
            unit_name: self.unit_name(arrival.unit),
            symbols: self.flags_map(&arrival.symbols),
            initializer: arrival.initializer.map(|name| self.name(name)),
            serial_queue: arrival.queue.map(|queue| self.queues[queue].clone()),
            hints: Default::default(),
            priority: TaskPriority::Demanded,
            number: arrival.initializer.map(|_| arrival.unit as u64),
            by_task,
        }
    }

    /// A lookup by the embedder. The last argument says whether symbols must be Ready, whether flags will do, and
    /// whether work in progress asks.
    pub(super) fn look_up(
        &mut self,
        wanted: &[(usize, bool)],
        along: &Along,
        made_for: Option<usize>,
        [ready, flags_only, by_task]: [bool; 3],
    ) {
        let queries: Vec<_> = self.requests.iter().map(|request| request.query).collect();
        let made_for = made_for.and_then(|choice| pick(&queries, choice));
        let flags_only = flags_only || made_for.is_some();
        let aims: Vec<_> = wanted
            .iter()
            .filter_map(|&(choice, optional)| Some((&self.world.definitions[&self.aim(choice)?], optional)))
            .collect();
        let mut symbols: Vec<_> =
            wanted.iter().map(|(choice, optional)| (choice % NAMES, *optional)).collect();
        let (order, dylib) = match along {
            Along::Towards(all, rest) => {
                symbols = aims.iter().map(|(aim, optional)| (aim.name, *optional)).collect();
                let first = aims.first().map(|(aim, _)| (aim.dylib, *all));
                (first.into_iter().chain(self.numbered(rest)).collect(), None)
            }
            Along::Past(choice, rest) => {
                let generates: Vec<_> =
                    self.world.generators.values().map(|generator| generator.dylib).collect();
                let first = pick(&generates, *choice).map(|dylib| (dylib, true));
                (first.into_iter().chain(self.numbered(rest)).collect(), None)
            }
            Along::These(order) => (self.numbered(order), None),
            Along::LinkOrder(slot) => {
                let dylib = self.slots[*slot];
                // A dylib that is gone has no order, and is told as what is gone.
                let of_dylib = self.world.dylibs.get(&dylib).map(|dylib| dylib.order.clone());
                (of_dylib.unwrap_or_else(|| vec![(dylib, true)]), Some(dylib))
            }
        };
        let phase = Phase::Walking(Walk::default());
        let query = Query { symbols, order, ready, flags_only, alias: None, made_for, phase };
        self.start_lookup(query, dylib, by_task);
    }

    pub(super) fn start_lookup(&mut self, query: Query, along: Option<usize>, by_task: bool) {
        let mut effects = Effects::default();
        self.lodge(query, along, by_task, &mut effects);
        self.follow(effects);
    }

    /// Begins a lookup. Gives its number, and its id unless it has ended already.
    pub(super) fn lodge(
        &mut self,
        query: Query,
        along: Option<usize>,
        by_task: bool,
        effects: &mut Effects<Integers>,
    ) -> (usize, Option<QueryId>) {
        let number = self.world.number();
        let mut symbols = LookupSet::new();
        for &(name, optional) in &query.symbols {
            let flags = match optional {
                true => SymbolLookupFlags::WeaklyReferencedSymbol,
                false => SymbolLookupFlags::RequiredSymbol,
            };
            symbols.add(self.name(name), flags);
        }
        let in_order = |&(dylib, all): &(usize, bool)| (self.ids.dylibs[&dylib], lookup_flags(all));
        let search = Search {
            kind: LookupKind::Static,
            order: query.order.iter().filter(|_| along.is_none()).map(in_order).collect(),
            symbols,
            required_state: if query.ready { RequiredState::Ready } else { RequiredState::Resolved },
            alias: query.alias.map(|alias| self.ids.definitions[&alias]),
            along: along.map(|dylib| self.ids.dylibs[&dylib]),
            flags_only: query.flags_only,
            on_behalf_of: query.made_for.map(|query| self.ids.queries[&query]),
            by_task,
            ..Search::default()
        };
        let searched: Vec<_> = query.order.iter().map(|(dylib, _)| self.dylib_name(*dylib)).collect();
        let id = self.state.lookup(search, number, |position| searched[position].clone(), effects);
        if let Some(id) = id {
            self.ids.queries.insert(number, id);
        }
        self.world.look_up(number, query, by_task);
        (number, id)
    }

    /// Of a lookup that lives, or has ended.
    pub(super) fn withdraw(&mut self, choice: usize) {
        let mut queries: Vec<_> = self.world.queries.keys().copied().collect();
        queries.extend(self.ids.queries.last_key_value().map(|(number, _)| *number));
        // A blocked thread does not give up; it goes on.
        queries
            .retain(|query| !self.alias_lookups.contains_key(query) && self.world.wait_in(*query).is_none());
        if let Some(query) = pick(&queries, choice) {
            self.withdraw_one(query);
        }
    }

    pub(super) fn withdraw_one(&mut self, query: usize) {
        let mut effects = Effects::default();
        self.state.withdraw(self.ids.queries[&query], &mut effects);
        self.world.withdraw(query);
        self.follow(effects);
    }

    pub(super) fn add_generator(&mut self, slot: usize, manner: &Manner) {
        let (dylib, number) = (self.slots[slot], self.world.number());
        let mut effects = Effects::default();
        let name = format!("g{number}").into();
        let id = self.state.add_generator(self.ids.dylibs[&dylib], name, number, &mut effects);
        let added = self.world.add_generator(number, dylib);
        assert_eq!(id.is_some(), added);
        if let Some(id) = id {
            self.ids.generators.insert(number, id);
            self.ids.generates.insert(number, dylib);
            self.manners.insert(number, manner.clone());
        }
        self.follow(effects);
    }

    /// One that was added at some time.
    pub(super) fn remove_generator(&mut self, choice: usize) {
        let mut numbers: Vec<_> = self.world.generators.keys().copied().collect();
        numbers.extend(self.ids.generators.last_key_value().map(|(number, _)| *number));
        let Some(number) = pick(&numbers, choice) else { return };
        let mut effects = Effects::default();
        let (dylib, id) = (self.ids.dylibs[&self.ids.generates[&number]], self.ids.generators[&number]);
        let removed = self.state.remove_generator(dylib, id, &mut effects);
        assert_eq!(removed, self.world.generators.contains_key(&number));
        self.world.remove_generator(number);
        self.follow(effects);
    }

    /// A request that no blocked thread has in its hands.
    fn free_request(&self, choice: usize) -> Option<usize> {
        let is_held =
            |request: &Request| self.world.waits.values().any(|wait| wait.requests.contains(&request.query));
        let free: Vec<_> =
            (0..self.requests.len()).filter(|&index| !is_held(&self.requests[index])).collect();
        pick(&free, choice)
    }

    pub(super) fn serve_apart(&mut self, choice: usize, again_alone: bool) {
        let Some(index) = self.free_request(choice) else { return };
        let Request { generator, id, query, query_id, .. } = self.requests[index];
        let mut effects = Effects::default();
        if again_alone {
            self.state.serve_alone(id, query_id);
            self.world.serve_alone(generator, query);
        } else {
            self.state.serve_apart(id, query_id, &mut effects);
            self.world.serve_apart(generator, query);
        }
        self.follow(effects);
    }

    pub(super) fn finish_request(&mut self, choice: usize, defines: &[Symbol], succeeds: bool) {
        if let Some(index) = self.free_request(choice) {
            let request = self.requests.remove(index);
            self.generate(&request, defines, succeeds);
        }
    }

    /// A generator defines some of what it was asked for, and has done.
    pub(super) fn generate(&mut self, request: &Request, defines: &[Symbol], succeeds: bool) {
        let asked = |symbol: &Symbol| Symbol {
            name: request.names[symbol.name % request.names.len()],
            flags: symbol.flags,
        };
        let symbols = Self::interface(&defines.iter().map(asked).collect::<Vec<_>>());
        let unit = self.world.number();
        let arrival =
            Arrival { unit, symbols, known: unit.is_multiple_of(2), initializer: None, queue: None };
        self.define_unit(request.dylib, None, &arrival, true);
        let mut effects = Effects::default();
        let outcome = if succeeds { Ok(()) } else { Err(shared_error("it has none")) };
        self.state.generated(request.id, request.query_id, outcome, &mut effects);
        self.world.generated(request.generator, request.query, succeeds);
        self.follow(effects);
    }

    /// One of the dylib's trackers with a handle, defunct or not; none for the default one.
    pub(super) fn tracker_of(&self, dylib: usize, choice: usize) -> Option<usize> {
        let of_dylib: Vec<_> = self.ids.handles.iter().filter(|(_, of)| *of == dylib).collect();
        pick(&of_dylib, choice).map(|(tracker, _)| *tracker)
    }
}

/// Both accept, or both refuse for the same reason.
pub(super) fn agree_on_definition<T: std::fmt::Debug>(
    outcome: &Result<T, DefineError>,
    expected: &Result<(), Refusal>,
) {
    let agrees = match (outcome, expected) {
        (Ok(_), Ok(())) => true,
        (Err(DefineError::Closed { .. }), Err(Refusal::Closed)) => true,
        (Err(DefineError::DylibRemoved { .. }), Err(Refusal::DylibRemoved)) => true,
        (Err(DefineError::TrackerDefunct { .. }), Err(Refusal::TrackerDefunct)) => true,
        (Err(DefineError::Duplicate { symbol, .. }), Err(Refusal::Duplicate(names)))
        | (Err(DefineError::Flags { symbol, .. }), Err(Refusal::Flags(names))) => {
            names.contains(&number_in(symbol.as_str()))
        }
        (Err(DefineError::NotCovered { symbols, .. }), Err(Refusal::NotCovered(names))) => {
            numbers_in(symbols) == *names
        }
        _ => false,
    };
    assert!(agrees, "the state says {outcome:?}, the model {expected:?}");
}

/// The numbers in names, each of which is there once.
pub(super) fn numbers_in(names: &[SymbolName]) -> BTreeSet<usize> {
    let numbers: BTreeMap<_, _> = names.iter().map(|name| (number_in(name.as_str()), ())).collect();
    numbers.into_keys().collect()
}
