//! Random histories of operations on a state with integers for units and handlers, against a naive model.
//!
//! The model knows definitions, who depends on whom, and what each query asked for. After every operation
//! it computes from scratch what should be Ready and what should have failed, and compares every row and
//! every query. `check.rs` runs after each operation too.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::absolute::Addresses;
use super::define::Definition;
use super::effects::{ClaimedUnit, Effects};
use super::ids::{DylibId, QueryId, RowId, TrackerId};
use super::lookup::Search;
use super::row::RowState;
use super::{Payload, SessionState};
use crate::session::SessionTag;
use crate::{
    DependenceGroup, Dependency, ExecutorAddr, ExecutorSymbolDef, FailureCause, JitDylibLookupFlags,
    LookupKind, LookupSet, RequiredState, SymbolFlags, SymbolName, SymbolStringPool, TaskPriority,
};

/// Integers for everything.
enum Integers {}

impl Payload for Integers {
    type Unit = u32;
    type Handler = u32;
    type Generator = u32;
    type Resource = u32;
}

const NAMES: usize = 6;
const DYLIBS: usize = 2;

#[derive(Clone, Debug)]
enum Operation {
    /// In a dylib, with or without its own tracker, these names, the weak ones among them; by a unit or at known
    /// addresses.
    Define {
        known: bool,
        dylib: usize,
        tracked: bool,
        names: u8,
        weak: u8,
    },
    LookUp {
        first: usize,
        names: u8,
        ready: bool,
    },
    Withdraw {
        query: usize,
    },
    Begin {
        claim: usize,
    },
    Resolve {
        claim: usize,
    },
    /// Two groups, the second of these names, and none for every other symbol left over if `ungrouped`. Each depends on
    /// these names of each dylib.
    Emit {
        claim: usize,
        second: u8,
        ungrouped: u8,
        dependencies: [[u8; DYLIBS]; 2],
    },
    Fail {
        claim: usize,
    },
    RemoveName {
        dylib: usize,
        name: usize,
    },
    RemoveTracker {
        dylib: usize,
    },
    /// What has the dylib's tracker goes to its default one.
    Transfer {
        dylib: usize,
        by_release: bool,
    },
    Clear {
        dylib: usize,
    },
    /// Some of a claim's symbols become another's.
    Delegate {
        claim: usize,
        names: u8,
    },
    /// While its unit materializes, a claim gets these symbols as well, the weak ones among them.
    DefineMore {
        claim: usize,
        names: u8,
        weak: u8,
    },
    /// A claim's symbols go back to another unit.
    Replace {
        claim: usize,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    let (dylib, names) = (0..DYLIBS, 1u8..1 << NAMES);
    prop_oneof![
        4 => (dylib.clone(), any::<bool>(), names.clone(), any::<u8>(), prop::bool::weighted(0.25)).prop_map(
            |(dylib, tracked, names, weak, known)| Operation::Define { known, dylib, tracked, names, weak }
        ),
        6 => (dylib.clone(), names, any::<bool>())
            .prop_map(|(first, names, ready)| Operation::LookUp { first, names, ready }),
        1 => (0usize..8).prop_map(|query| Operation::Withdraw { query }),
        4 => (0usize..4).prop_map(|claim| Operation::Begin { claim }),
        4 => (0usize..4).prop_map(|claim| Operation::Resolve { claim }),
        6 => (0usize..4, any::<u8>(), any::<u8>(), any::<[[u8; DYLIBS]; 2]>()).prop_map(
            |(claim, second, ungrouped, dependencies)| Operation::Emit { claim, second, ungrouped, dependencies }
        ),
        1 => (0usize..4).prop_map(|claim| Operation::Fail { claim }),
        1 => (dylib.clone(), 0..NAMES).prop_map(|(dylib, name)| Operation::RemoveName { dylib, name }),
        1 => dylib.clone().prop_map(|dylib| Operation::RemoveTracker { dylib }),
        1 => prop_oneof![
            7 => (dylib.clone(), any::<bool>())
                .prop_map(|(dylib, by_release)| Operation::Transfer { dylib, by_release }),
            1 => dylib.prop_map(|dylib| Operation::Clear { dylib }),
        ],
        2 => (0usize..4, any::<u8>()).prop_map(|(claim, names)| Operation::Delegate { claim, names }),
        2 => (0usize..4, any::<u8>(), any::<u8>())
            .prop_map(|(claim, names, weak)| Operation::DefineMore { claim, names: names & names >> 2, weak }),
        1 => (0usize..4).prop_map(|claim| Operation::Replace { claim }),
    ]
}

/// How far the model thinks a definition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    NeverSearched,
    Returned,
    Materializing,
    Resolved,
    Emitted,
    Ready,
    Failed,
}

#[derive(Debug)]
struct ModelRow {
    dylib: usize,
    name: usize,
    weak: bool,
    tracked: bool,
    unit: u32,
    /// Defined at a known address.
    known: bool,
    standing: Standing,
    dependencies: BTreeSet<usize>,
}

#[derive(Debug)]
struct ModelQuery {
    rows: Vec<usize>,
    ready: bool,
}

/// Definitions by number; a definition that is gone has none.
#[derive(Debug, Default)]
struct Model {
    rows: BTreeMap<usize, ModelRow>,
    made: usize,
    /// Queries that have not ended, by handler.
    queries: BTreeMap<u32, ModelQuery>,
    /// Queries that should have ended since the last comparison, and whether well.
    ended: BTreeMap<u32, bool>,
}

impl Model {
    fn find(&self, dylib: usize, name: usize) -> Option<usize> {
        self.rows.iter().find(|(_, row)| (row.dylib, row.name) == (dylib, name)).map(|(id, _)| *id)
    }

    fn of_unit(&self, unit: u32) -> Vec<usize> {
        self.rows.iter().filter(|(_, row)| row.unit == unit).map(|(id, _)| *id).collect()
    }

    /// Claims the unit of a row nobody has searched; one whose address is known is Ready, and bound, by itself.
    fn search(&mut self, row: usize) {
        if let Some(row) = self.rows.get_mut(&row).filter(|row| row.known) {
            (row.standing, row.weak) = (Standing::Ready, false);
            return;
        }
        if matches!(self.rows[&row].standing, Standing::NeverSearched | Standing::Returned) {
            let unit = self.rows[&row].unit;
            for row in self.rows.values_mut().filter(|row| row.unit == unit) {
                row.standing = Standing::Materializing;
            }
        }
    }

    fn is_demanded(&self, row: usize) -> bool {
        let queried = self.queries.values().any(|query| query.rows.contains(&row));
        let depends =
            |other: &ModelRow| other.standing == Standing::Emitted && other.dependencies.contains(&row);
        queried || self.rows.values().any(depends)
    }

    /// Fails the definitions that satisfy nothing any more: everything emitted that leads to `roots`.
    fn fall(&mut self, roots: &BTreeSet<usize>) {
        let mut fallen = roots.clone();
        loop {
            let falls = |(id, row): (&usize, &ModelRow)| {
                let hit = row.standing == Standing::Emitted && !row.dependencies.is_disjoint(&fallen);
                (hit && !fallen.contains(id)).then_some(*id)
            };
            let more: Vec<_> = self.rows.iter().filter_map(falls).collect();
            if more.is_empty() {
                break;
            }
            fallen.extend(more);
        }
        for id in &fallen {
            if let Some(row) = self.rows.get_mut(id) {
                row.standing = Standing::Failed;
            }
        }
        let hit: Vec<_> = self
            .queries
            .iter()
            .filter(|(_, query)| {
                query.rows.iter().any(|row| fallen.contains(row) && !self.is_far_enough(*row, query.ready))
            })
            .map(|(handler, _)| *handler)
            .collect();
        for handler in hit {
            self.queries.remove(&handler);
            self.ended.insert(handler, false);
        }
    }

    fn is_far_enough(&self, row: usize, ready: bool) -> bool {
        // What a query was told stays told, whatever becomes of the row.
        match self.rows.get(&row).map(|row| row.standing) {
            Some(Standing::Ready) => true,
            Some(Standing::Resolved | Standing::Emitted) => !ready,
            _ => false,
        }
    }

    /// Everything that reaches no definition that is not emitted is Ready.
    fn ripen(&mut self) {
        let mut unripe: BTreeSet<usize> = self
            .rows
            .iter()
            .filter(|(_, row)| !matches!(row.standing, Standing::Emitted | Standing::Ready))
            .map(|(id, _)| *id)
            .collect();
        loop {
            let waits = |(id, row): (&usize, &ModelRow)| {
                let hit = row.standing == Standing::Emitted && !row.dependencies.is_disjoint(&unripe);
                (hit && !unripe.contains(id)).then_some(*id)
            };
            let more: Vec<_> = self.rows.iter().filter_map(waits).collect();
            if more.is_empty() {
                break;
            }
            unripe.extend(more);
        }
        for (id, row) in &mut self.rows {
            if row.standing == Standing::Emitted && !unripe.contains(id) {
                row.standing = Standing::Ready;
            }
        }
        self.answer();
    }

    /// Drops from each query what is far enough; a query left with nothing has ended well.
    fn answer(&mut self) {
        let handlers: Vec<_> = self.queries.keys().copied().collect();
        for handler in handlers {
            let ready = self.queries[&handler].ready;
            let rows: Vec<_> = self.queries[&handler]
                .rows
                .iter()
                .copied()
                .filter(|row| !self.is_far_enough(*row, ready))
                .collect();
            if rows.is_empty() {
                self.queries.remove(&handler);
                self.ended.insert(handler, true);
            } else if let Some(query) = self.queries.get_mut(&handler) {
                query.rows = rows;
            }
        }
    }
}

/// The state under test, the model, and what connects them.
struct Harness {
    state: SessionState<Integers>,
    names: Vec<SymbolName>,
    unit_name: SymbolName,
    dylibs: Vec<DylibId>,
    trackers: Vec<TrackerId>,
    model: Model,
    units: u32,
    handlers: u32,
    queries: Vec<(u32, QueryId)>,
    /// Units that were claimed: begun or not, resolved or not.
    claims: Vec<(ClaimedUnit<u32>, bool, bool)>,
}

impl Harness {
    fn new() -> Self {
        let pool = SymbolStringPool::new();
        let mut state = SessionState::new(true);
        let dylibs: Vec<_> =
            (0..DYLIBS).map(|index| state.create_dylib(format!("d{index}").into()).unwrap()).collect();
        let trackers = dylibs.iter().map(|dylib| state.create_tracker(*dylib)).collect();
        Self {
            state,
            names: (0..NAMES).map(|index| pool.intern(&format!("s{index}"))).collect(),
            unit_name: pool.intern("unit"),
            dylibs,
            trackers,
            model: Model::default(),
            units: 0,
            handlers: 0,
            queries: Vec::new(),
            claims: Vec::new(),
        }
    }

    fn run(&mut self, operation: &Operation) {
        let mut effects = Effects::default();
        match *operation {
            Operation::Define { known, dylib, tracked, names, weak } => {
                self.define(known, dylib, tracked, names, weak, &mut effects)
            }
            Operation::LookUp { first, names, ready } => self.look_up(first, names, ready, &mut effects),
            Operation::Withdraw { query } => self.withdraw(query, &mut effects),
            Operation::Begin { claim } => self.begin(claim, &mut effects),
            Operation::Resolve { claim } => self.resolve(claim, &mut effects),
            Operation::Emit { claim, second, ungrouped, dependencies } => {
                self.emit(claim, second, ungrouped, dependencies, &mut effects)
            }
            Operation::Fail { claim } => self.fail(claim, &mut effects),
            Operation::RemoveName { dylib, name } => self.remove_name(dylib, name, &mut effects),
            Operation::RemoveTracker { dylib } => self.remove_tracker(dylib, &mut effects),
            Operation::Transfer { dylib, by_release } => self.transfer(dylib, by_release),
            Operation::Clear { dylib } => self.clear(dylib, &mut effects),
            Operation::Delegate { claim, names } => self.delegate(claim, names),
            Operation::DefineMore { claim, names, weak } => {
                self.define_more(claim, names, weak, &mut effects)
            }
            Operation::Replace { claim } => self.replace(claim, &mut effects),
        }
        self.state.settle_all(&mut effects);
        self.state.check();
        self.model.ripen();
        self.compare(effects);
    }

    fn define(
        &mut self,
        known: bool,
        dylib: usize,
        tracked: bool,
        names: u8,
        weak: u8,
        effects: &mut Effects<Integers>,
    ) {
        self.units += 1;
        let unit = self.units;
        let chosen: Vec<_> = (0..NAMES).filter(|name| names >> name & 1 == 1).collect();
        let is_weak = |name: usize| weak >> name & 1 == 1;
        let flags = |name: usize| match is_weak(name) {
            true => SymbolFlags::EXPORTED | SymbolFlags::WEAK,
            false => SymbolFlags::EXPORTED,
        };
        let (unit_name, id) = (self.unit_name.clone(), self.dylibs[dylib]);
        let tracker = tracked.then_some(self.trackers[dylib]);
        let symbols = chosen.iter().map(|&name| (self.names[name].clone(), flags(name)));
        let defined = if known {
            let at = |flags| ExecutorSymbolDef::new(ExecutorAddr::new(u64::from(unit)), flags);
            let symbols = symbols.map(|(name, flags)| (name, at(flags))).collect();
            self.state.define_addresses(
                id,
                tracker,
                Addresses { unit_name, symbols, by_task: false },
                effects,
            )
        } else {
            let (symbols, priority) = (symbols.collect(), TaskPriority::Demanded);
            let definition = Definition {
                unit_name,
                symbols,
                initializer: None,
                priority,
                hints: Default::default(),
                number: None,
                by_task: false,
            };
            self.state.define(id, tracker, definition, unit, effects)
        };
        let model = &mut self.model;
        let existing = |model: &Model, name| {
            model.find(dylib, name).map(|id| (id, model.rows[&id].weak, model.rows[&id].standing))
        };
        let clashes = chosen.iter().any(|&name| {
            !is_weak(name)
                && existing(model, name)
                    .is_some_and(|(_, weak, standing)| !weak || standing != Standing::NeverSearched)
        });
        assert_eq!(defined.is_err(), clashes);
        if clashes {
            return;
        }
        for name in chosen {
            match existing(model, name) {
                Some(_) if is_weak(name) => continue,
                Some((id, ..)) => drop(model.rows.remove(&id)),
                None => {}
            }
            let standing = Standing::NeverSearched;
            let row = ModelRow {
                dylib,
                name,
                weak: is_weak(name),
                tracked,
                unit,
                known,
                standing,
                dependencies: BTreeSet::new(),
            };
            model.rows.insert(model.made, row);
            model.made += 1;
        }
    }

    fn look_up(&mut self, first: usize, names: u8, ready: bool, effects: &mut Effects<Integers>) {
        self.handlers += 1;
        let handler = self.handlers;
        let chosen: Vec<_> = (0..NAMES).filter(|name| names >> name & 1 == 1).collect();
        let order: Vec<_> = (0..DYLIBS).map(|index| (first + index) % DYLIBS).collect();
        let search = Search {
            kind: LookupKind::Static,
            order: order
                .iter()
                .map(|&dylib| (self.dylibs[dylib], JitDylibLookupFlags::MatchAllSymbols))
                .collect(),
            symbols: LookupSet::required(chosen.iter().map(|&name| self.names[name].clone())),
            required_state: if ready { RequiredState::Ready } else { RequiredState::Resolved },
            aliases: Vec::new(),
            by_task: false,
            ..Search::default()
        };
        if let Some(query) = self.state.lookup(search, handler, |_| "gone".into(), effects) {
            self.queries.push((handler, query));
        }
        let model = &mut self.model;
        let rows: Option<Vec<_>> =
            chosen.iter().map(|&name| order.iter().find_map(|&dylib| model.find(dylib, name))).collect();
        match rows.filter(|rows| rows.iter().all(|row| model.rows[row].standing != Standing::Failed)) {
            None => drop(model.ended.insert(handler, false)),
            Some(rows) => {
                rows.iter().for_each(|&row| model.search(row));
                model.queries.insert(handler, ModelQuery { rows, ready });
            }
        }
    }

    fn withdraw(&mut self, query: usize, effects: &mut Effects<Integers>) {
        if self.queries.is_empty() {
            return;
        }
        let (handler, query) = self.queries.swap_remove(query % self.queries.len());
        self.state.withdraw(query, effects);
        self.model.queries.remove(&handler);
    }

    fn begin(&mut self, claim: usize, effects: &mut Effects<Integers>) {
        let Some(index) = self.pick(claim, |begun, _| !begun) else { return };
        let (claimed, ..) = self.claims.remove(index);
        let unit = claimed.unit;
        let rows = self.model.of_unit(unit);
        let demanded = rows.iter().any(|&row| self.model.is_demanded(row));
        let wanted = demanded && !rows.is_empty();
        assert!(wanted || claimed.losses < self.state.losses().count(), "a loss of demand was counted");
        let begun = self.state.begin(claimed, None, effects);
        assert_eq!(begun.is_some(), wanted);
        match begun {
            Some(claimed) => self.claims.push((claimed, true, false)),
            None => {
                for row in rows {
                    self.model.rows.get_mut(&row).unwrap().standing = Standing::Returned;
                }
            }
        }
    }

    fn resolve(&mut self, claim: usize, effects: &mut Effects<Integers>) {
        let Some(index) = self.pick(claim, |begun, resolved| begun && !resolved) else { return };
        let (claimed, _, resolved) = &mut self.claims[index];
        *resolved = true;
        let address = ExecutorAddr::new(u64::from(claimed.unit));
        let addresses = claimed
            .symbols
            .iter()
            .map(|(name, flags)| (name.clone(), ExecutorSymbolDef::new(address, *flags)))
            .collect();
        let outcome =
            self.state.resolve(claimed.claim, &self.unit_name, &claimed.symbols, &addresses, effects);
        let rows = self.model.of_unit(claimed.unit);
        assert_eq!(outcome.is_ok(), !rows.is_empty());
        for row in rows {
            let row = self.model.rows.get_mut(&row).unwrap();
            (row.standing, row.weak) = (Standing::Resolved, false);
        }
    }

    fn emit(
        &mut self,
        claim: usize,
        second: u8,
        ungrouped: u8,
        dependencies: [[u8; DYLIBS]; 2],
        effects: &mut Effects<Integers>,
    ) {
        let Some(index) = self.pick(claim, |_, resolved| resolved) else { return };
        let needed = dependencies.map(|of_group| {
            let of_dylib = |(dylib, names): (usize, u8)| {
                // Few at a time, or nothing is ever Ready.
                let names = names & names >> 2;
                let named = (0..NAMES).filter(move |name| names >> name & 1 == 1);
                named.filter_map(|name| self.model.find(dylib, name)).collect::<Vec<_>>()
            };
            of_group.into_iter().enumerate().flat_map(of_dylib).collect::<Vec<_>>()
        });
        let own = self.model.of_unit(self.claims[index].0.unit);
        // Which of the two groups a definition is in, if in any.
        let group_of = |model: &Model, id: usize| {
            let name = model.rows[&id].name;
            (ungrouped >> name & ungrouped >> (name + 1) & 1 == 0).then_some(usize::from(second >> name & 1))
        };
        let token = |id: &usize| Dependency { row: self.row(*id), session: SessionTag::default() };
        let group = |group: usize| DependenceGroup {
            symbols: own
                .iter()
                .filter(|id| group_of(&self.model, **id) == Some(group))
                .map(|id| self.names[self.model.rows[id].name].clone())
                .collect(),
            dependencies: needed[group].iter().map(token).collect(),
        };
        let groups = [group(0), group(1)];
        let (claimed, ..) = &self.claims[index];
        let outcome = self.state.emit(claimed.claim, &self.unit_name, &claimed.symbols, &groups, effects);
        let refused = needed.iter().flatten().any(|id| self.model.rows[id].standing == Standing::Failed);
        assert_eq!(outcome.is_ok(), !refused && !own.is_empty());
        if outcome.is_err() {
            if own.is_empty() {
                self.claims.remove(index);
            }
            return;
        }
        self.claims.remove(index);
        for (group, needed) in needed.iter().enumerate() {
            // A group of nobody needs nothing.
            if own.iter().any(|id| group_of(&self.model, *id) == Some(group)) {
                needed.iter().for_each(|&id| self.model.search(id));
            }
        }
        // What is Ready now is no dependency: it may be removed later without harm.
        let waits_on = needed.map(|needed| {
            let unready = |id: &usize| self.model.rows[id].standing != Standing::Ready;
            needed.into_iter().filter(unready).collect::<BTreeSet<_>>()
        });
        for id in own {
            let group = group_of(&self.model, id);
            let row = self.model.rows.get_mut(&id).unwrap();
            row.standing = Standing::Emitted;
            row.dependencies = group.map_or_else(BTreeSet::new, |group| waits_on[group].clone());
        }
    }

    fn transfer(&mut self, dylib: usize, by_release: bool) {
        let default = self.state.default_tracker(self.dylibs[dylib]);
        match by_release {
            true => self.state.release_tracker(self.trackers[dylib]),
            false => self.state.transfer_tracker(self.trackers[dylib], default).unwrap(),
        }
        self.trackers[dylib] = self.state.create_tracker(self.dylibs[dylib]);
        for row in self.model.rows.values_mut().filter(|row| row.dylib == dylib) {
            row.tracked = false;
        }
    }

    fn clear(&mut self, dylib: usize, effects: &mut Effects<Integers>) {
        drop(self.state.clear(self.dylibs[dylib], effects));
        self.trackers[dylib] = self.state.create_tracker(self.dylibs[dylib]);
        let rows = self.model.rows.iter().filter(|(_, row)| row.dylib == dylib).map(|(id, _)| *id).collect();
        self.forget(rows);
    }

    fn delegate(&mut self, claim: usize, names: u8) {
        let Some(index) = self.pick(claim, |begun, resolved| begun && !resolved) else { return };
        let rows = self.model.of_unit(self.claims[index].0.unit);
        let goes = |id: &usize| names >> self.model.rows[id].name & 1 == 1;
        let (going, staying): (Vec<_>, Vec<_>) = rows.into_iter().partition(goes);
        if going.is_empty() || staying.is_empty() {
            return;
        }
        self.units += 1;
        let (claimed, ..) = &mut self.claims[index];
        let chosen: Vec<_> = going.iter().map(|id| self.names[self.model.rows[id].name].clone()).collect();
        let delegated = ClaimedUnit {
            unit: self.units,
            discarded: Vec::new(),
            claim: self.state.delegate(claimed.claim, &chosen).expect("the claim has rows"),
            dylib: claimed.dylib,
            dylib_name: claimed.dylib_name.clone(),
            unit_name: claimed.unit_name.clone(),
            symbols: chosen.into_iter().filter_map(|name| claimed.symbols.remove_entry(&name)).collect(),
            initializer: None,
            priority: claimed.priority,
            hints: claimed.hints,
            losses: claimed.losses,
        };
        for id in going {
            self.model.rows.get_mut(&id).unwrap().unit = delegated.unit;
        }
        self.claims.push((delegated, true, false));
    }

    fn define_more(&mut self, claim: usize, names: u8, weak: u8, effects: &mut Effects<Integers>) {
        let Some(index) = self.pick(claim, |begun, resolved| begun && !resolved) else { return };
        let (claimed, ..) = &mut self.claims[index];
        let own = self.model.of_unit(claimed.unit);
        let chosen: Vec<_> = (0..NAMES).filter(|name| names >> name & 1 == 1).collect();
        let is_weak = |name: usize| weak >> name & 1 == 1;
        let flags = |name: usize| match is_weak(name) {
            true => SymbolFlags::EXPORTED | SymbolFlags::WEAK,
            false => SymbolFlags::EXPORTED,
        };
        let symbols = chosen.iter().map(|&name| (self.names[name].clone(), flags(name))).collect();
        let outcome = self.state.define_materializing(claimed.claim, &self.unit_name, symbols, effects);
        let Some(&ModelRow { dylib, tracked, .. }) = own.first().map(|id| &self.model.rows[id]) else {
            assert!(outcome.is_err(), "its symbols were removed");
            return;
        };
        let model = &mut self.model;
        let existing = |model: &Model, name| {
            model.find(dylib, name).map(|id| (id, model.rows[&id].weak, model.rows[&id].standing))
        };
        let clashes = chosen.iter().any(|&name| {
            !is_weak(name)
                && existing(model, name)
                    .is_some_and(|(_, weak, standing)| !weak || standing != Standing::NeverSearched)
        });
        assert_eq!(outcome.is_err(), clashes);
        let Ok(accepted) = outcome else { return };
        for name in chosen {
            match existing(model, name) {
                Some(_) if is_weak(name) => {
                    assert!(!accepted.contains_key(&self.names[name]));
                    continue;
                }
                Some((id, ..)) => drop(model.rows.remove(&id)),
                None => {}
            }
            assert!(accepted.contains_key(&self.names[name]));
            let (unit, standing) = (claimed.unit, Standing::Materializing);
            let dependencies = BTreeSet::new();
            let row = ModelRow {
                dylib,
                name,
                weak: is_weak(name),
                tracked,
                unit,
                standing,
                dependencies,
                known: false,
            };
            model.rows.insert(model.made, row);
            model.made += 1;
        }
        claimed.symbols.extend(accepted);
    }

    fn replace(&mut self, claim: usize, effects: &mut Effects<Integers>) {
        let Some(index) = self.pick(claim, |begun, resolved| begun && !resolved) else { return };
        let (claimed, ..) = self.claims.remove(index);
        self.units += 1;
        let unit = self.units;
        let definition = Definition {
            unit_name: self.unit_name.clone(),
            symbols: claimed.symbols.clone(),
            initializer: None,
            priority: TaskPriority::Demanded,
            hints: Default::default(),
            number: None,
            by_task: false,
        };
        let outcome = self.state.replace(claimed.claim, &claimed.symbols, definition, unit, effects);
        let rows = self.model.of_unit(claimed.unit);
        assert_eq!(outcome.is_ok(), !rows.is_empty());
        let demanded = rows.iter().any(|&row| self.model.is_demanded(row));
        for row in rows {
            let row = self.model.rows.get_mut(&row).unwrap();
            row.unit = unit;
            if !demanded {
                row.standing = Standing::Returned;
            }
        }
    }

    fn fail(&mut self, claim: usize, effects: &mut Effects<Integers>) {
        let Some(index) = self.pick(claim, |_, _| true) else { return };
        let (claimed, ..) = self.claims.remove(index);
        self.state.fail(claimed.claim, FailureCause::Abandoned, effects);
        let roots = self.model.of_unit(claimed.unit).into_iter().collect();
        self.model.answer();
        self.model.fall(&roots);
    }

    fn remove_name(&mut self, dylib: usize, name: usize, effects: &mut Effects<Integers>) {
        let outcome = self.state.remove_names(
            self.dylibs[dylib],
            &[self.names[name].clone()],
            || "gone".into(),
            effects,
        );
        let found = self.model.find(dylib, name);
        let in_use =
            |id: &usize| matches!(self.model.rows[id].standing, Standing::Materializing | Standing::Resolved);
        assert_eq!(outcome.is_ok(), found.is_some_and(|id| !in_use(&id)));
        if outcome.is_ok() {
            self.forget(found.into_iter().collect());
        }
    }

    fn remove_tracker(&mut self, dylib: usize, effects: &mut Effects<Integers>) {
        drop(self.state.remove_tracker(self.trackers[dylib], effects));
        self.trackers[dylib] = self.state.create_tracker(self.dylibs[dylib]);
        let of_tracker = |row: &ModelRow| row.dylib == dylib && row.tracked;
        let rows = self.model.rows.iter().filter(|(_, row)| of_tracker(row)).map(|(id, _)| *id).collect();
        self.forget(rows);
    }

    /// Definitions disappear: whoever waits on one that is not Ready falls.
    fn forget(&mut self, rows: Vec<usize>) {
        let unready = |id: &usize| self.model.rows[id].standing != Standing::Ready;
        let roots: BTreeSet<_> = rows.iter().copied().filter(unready).collect();
        self.model.fall(&roots);
        for row in rows {
            self.model.rows.remove(&row);
        }
    }

    /// The number of a claim of the kind wanted, chosen by `choice`.
    fn pick(&self, choice: usize, wanted: impl Fn(bool, bool) -> bool) -> Option<usize> {
        let fitting: Vec<_> = (0..self.claims.len())
            .filter(|&index| wanted(self.claims[index].1, self.claims[index].2))
            .collect();
        (!fitting.is_empty()).then(|| fitting[choice % fitting.len()])
    }

    fn row(&self, id: usize) -> RowId {
        let row = &self.model.rows[&id];
        self.state.find(self.dylibs[row.dylib], &self.names[row.name]).expect("the model has the row")
    }

    fn compare(&mut self, effects: Effects<Integers>) {
        self.claims.extend(effects.claimed.into_iter().map(|claimed| (claimed, false, false)));
        let ended: BTreeMap<_, _> = effects
            .completed
            .iter()
            .map(|completed| (completed.handler, completed.outcome.is_ok()))
            .collect();
        assert_eq!(ended.len(), effects.completed.len(), "a query ends once");
        assert_eq!(ended, std::mem::take(&mut self.model.ended));
        self.queries.retain(|(handler, _)| !ended.contains_key(handler));
        assert_eq!(self.state.rows.len(), self.model.rows.len());
        for (id, expected) in &self.model.rows {
            let standing = match self.state.rows[self.row(*id)].state {
                RowState::NeverSearched { .. } => Standing::NeverSearched,
                RowState::Returned { .. } => Standing::Returned,
                RowState::Materializing { .. } => Standing::Materializing,
                RowState::Resolved { .. } => Standing::Resolved,
                RowState::Emitted { .. } => Standing::Emitted,
                RowState::Ready { .. } => Standing::Ready,
                RowState::Failed { .. } => Standing::Failed,
            };
            assert_eq!(standing, expected.standing, "row {id}: {expected:?}");
        }
    }
}

fn histories() -> u32 {
    let asked = std::env::var("URUK_HISTORIES").ok();
    asked.map_or(1000, |text| text.parse().expect("URUK_HISTORIES is a number"))
}

proptest! {
    // `URUK_HISTORIES` says how many histories a long run tries.
    #![proptest_config(ProptestConfig { cases: histories(), max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_agree_with_a_naive_model(operations in prop::collection::vec(operation(), 1..60)) {
        let mut harness = Harness::new();
        for operation in &operations {
            harness.run(operation);
        }
    }
}
