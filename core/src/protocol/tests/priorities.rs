//! Random histories of lookups of every priority, against a model that knows of nothing but needs.
//!
//! The model knows what was asked, by whom, and what was emitted as depending on what. The priority of a claimed unit is the
//! highest with which anybody has needed it since it was claimed, directly or not. After each step the model repeats the table
//! at the head of `urgency/` until nothing changes. State and model agree in *tame* histories: units have one symbol and need
//! later ones only, and lookups are answered or given up. There nothing that still has to rise meets a later claim, for
//! everything rises before a need or a claim ends. In *wild* histories no need is more urgent than what it leads to, which
//! `check.rs` sees to. In both no claim ever becomes less urgent.

mod highest;
mod long;
mod step;

use proptest::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::numbers::{Numbers, definition, exported, search, with_main};
use crate::ids::SessionTag;
use crate::ids::{ClaimId, DylibId, QueryId, RowId};
use crate::protocol::state::SessionState;
use crate::protocol::state::definitions::row::RowState;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::lookups::query::Asker;
use crate::protocol::state::lookups::query::Search;
use crate::protocol::state::pending::{ClaimedUnit, PendingUnit};
use crate::protocol::symbols::define::Definition;
use crate::{
    DependenceGroup, Dependency, ExecutorAddr, ExecutorSymbolDef, FailureCause, LookupSet, RequiredState,
    SymbolFlags, SymbolName, TaskPriority,
};
use highest::{Asked, By, Highest};
use step::{NAMES, PRIORITIES, Step, tame, wild};

struct History {
    state: SessionState<Numbers>,
    dylib: DylibId,
    names: Vec<SymbolName>,
    unit_name: SymbolName,
    own: Vec<TaskPriority>,
    highest: Highest,
    /// How urgent each claim was when it was seen last.
    seen: FxHashMap<ClaimId, TaskPriority>,
    claims: Vec<ClaimedUnit<u32>>,
    queries: Vec<QueryId>,
    asked: Vec<Asked>,
    /// The dependencies with which each name was emitted.
    dependencies: Vec<Vec<usize>>,
    /// Units that have begun do not begin again.
    begun: FxHashSet<ClaimId>,
    made: u32,
    is_tame: bool,
}

impl History {
    /// Every name has a unit of its own, or shares one with its neighbour.
    fn new(own: &[usize], is_tame: bool, slice: usize) -> Self {
        let (mut state, pool, dylib) = with_main(false);
        state.agenda.set_slice_steps(slice);
        let mut effects = Effects::default();
        let names: Vec<_> = (0..NAMES).map(|index| pool.intern(&format!("n{index}"))).collect();
        let own: Vec<_> = own.iter().map(|&own| PRIORITIES[own]).collect();
        let width = if is_tame { 1 } else { 2 };
        for (index, chunk) in names.chunks(width).enumerate() {
            let definition =
                Definition { priority: own[index], ..definition(&pool.intern("unit"), exported(chunk)) };
            let unit = u32::try_from(index).expect("few");
            state.define(dylib, None, definition, unit, &mut effects).expect("new");
        }
        // The first priority below the highest: everything is followed from now on.
        let flag = pool.intern("flag");
        let definition = Definition {
            priority: TaskPriority::Idle,
            ..definition(&pool.intern("unit"), exported([&flag]))
        };
        state.define(dylib, None, definition, 99, &mut effects).expect("new");
        let unit_name = pool.intern("unit");
        let dependencies = vec![Vec::new(); NAMES];
        let mut history = Self {
            state,
            dylib,
            names,
            unit_name,
            own,
            highest: Highest::default(),
            seen: FxHashMap::default(),
            claims: Vec::new(),
            queries: Vec::new(),
            asked: Vec::new(),
            dependencies,
            begun: FxHashSet::default(),
            made: 0,
            is_tame,
        };
        let search = history.search(vec![flag], true);
        history.state.lookup(search, 0, |_| "main".into(), &mut effects).expect("it waits");
        history
    }

    fn search(&self, names: Vec<SymbolName>, ready: bool) -> Search {
        let required_state = if ready { RequiredState::Ready } else { RequiredState::Resolved };
        search(self.dylib, LookupSet::weakly_referenced(names), required_state)
    }

    /// The names after `after`, in tame histories; any in wild ones.
    fn chosen(&self, names: u16, after: Option<usize>) -> Vec<usize> {
        let first = after.filter(|_| self.is_tame).map_or(0, |after| after + 1);
        (first..NAMES).filter(|index| names & 1 << index != 0).collect()
    }

    fn name_of(&self, claimed: &ClaimedUnit<u32>) -> usize {
        let is_of = |name: &SymbolName| claimed.pending.symbols.contains_key(name);
        self.names.iter().position(is_of).unwrap_or(0)
    }

    fn row(&self, name: usize) -> Option<RowId> {
        self.state.definitions.find(self.dylib, &self.names[name])
    }

    fn run(&mut self, step: &Step) {
        let mut effects = Effects::default();
        self.apply(step, &mut effects);
        // As at the end of a transaction, but what is left is left for later steps.
        self.state.finish_transaction(&mut effects);
        self.note_needs();
        self.nothing_sinks();
        if matches!(step, Step::Drain) {
            self.state.settle_all(&mut effects);
        }
        self.take(effects);
        if matches!(step, Step::Drain) {
            self.check();
        }
    }

    fn nothing_sinks(&mut self) {
        let now = self.state.definitions.claims().map(|(id, claim)| (id, claim.priority.get()));
        let now: FxHashMap<_, _> = now.collect();
        for (claim, before) in &self.seen {
            assert!(now.get(claim).is_none_or(|now| now >= before), "{claim:?} was {before:?}");
        }
        self.seen = now;
    }

    fn take(&mut self, effects: Effects<Numbers>) {
        self.claims.extend(effects.claimed.into_iter().filter(|claimed| claimed.pending.unit != 99));
    }

    fn apply(&mut self, step: &Step, effects: &mut Effects<Numbers>) {
        // A need or a claim may end.
        let ends =
            matches!(step, Step::Withdraw(_) | Step::Begin(_) | Step::Emit { .. } | Step::Replace { .. });
        if self.is_tame && ends {
            self.state.settle_all(effects);
        }
        match *step {
            Step::LookUp { names, priority, ready } => {
                let priority = priority.map(|priority| PRIORITIES[priority]);
                let by = priority.map_or(By::Nobody, By::Saying);
                let names = self.chosen(names, None);
                self.look_up(names, ready, by, |search| search.priority = priority, effects);
            }
            Step::Ask { claim, names, ready } if !self.claims.is_empty() => {
                let claimed = &self.claims[claim % self.claims.len()];
                let (claim, name) = (claimed.claim, self.name_of(claimed));
                let (names, by) = (self.chosen(names, Some(name)), By::Claim(claim, name));
                // Claims that have ended ask no more: what counts for those is seen in the protocol's tests.
                if names.is_empty() || self.state.definitions.get_claim(claim).is_none() {
                    return;
                }
                let asker = Asker { claim, priority: TaskPriority::Idle };
                let asks = |search: &mut Search| search.asked_by = Some(asker);
                self.look_up(names, ready, by, asks, effects);
            }
            Step::Withdraw(query) if !self.queries.is_empty() => {
                let query = self.queries.remove(query % self.queries.len());
                self.state.withdraw(query, effects);
            }
            Step::Begin(claim) if !self.claims.is_empty() => {
                let index = claim % self.claims.len();
                if self.begun.contains(&self.claims[index].claim) {
                    return;
                }
                let claimed = self.claims.remove(index);
                if let Some(claimed) = self.state.begin(claimed, effects) {
                    self.begun.insert(claimed.claim);
                    self.claims.push(claimed);
                }
            }
            Step::Emit { claim, dependencies } if !self.claims.is_empty() => {
                self.emit(claim, dependencies, effects)
            }
            Step::Replace { claim, own } if !self.claims.is_empty() => self.replace(claim, own, effects),
            Step::Fail(claim) if !self.claims.is_empty() => {
                let claimed = self.claims.remove(claim % self.claims.len());
                self.state.fail(claimed.claim, FailureCause::Abandoned, effects);
            }
            Step::RemoveName(name) => {
                let names = [self.names[name].clone()];
                // A unit at work cannot be removed by name.
                let _ = self.state.remove_names(self.dylib, &names, || "main".into(), effects);
            }
            Step::Delegate { claim, names } if !self.claims.is_empty() => self.delegate(claim, names),
            Step::Slice => self.state.help(effects),
            _ => {}
        }
    }

    fn look_up(
        &mut self,
        names: Vec<usize>,
        ready: bool,
        by: By,
        change: impl FnOnce(&mut Search),
        effects: &mut Effects<Numbers>,
    ) {
        self.made += 1;
        let mut search = self.search(names.iter().map(|&name| self.names[name].clone()).collect(), ready);
        change(&mut search);
        if let Some(id) = self.state.lookup(search, self.made, |_| "main".into(), effects) {
            self.queries.push(id);
            self.asked.push(Asked { id, names, by });
        }
    }

    fn emit(&mut self, claim: usize, dependencies: u16, effects: &mut Effects<Numbers>) {
        let claimed = &self.claims[claim % self.claims.len()];
        let name = self.name_of(claimed);
        self.begun.insert(claimed.claim);
        let address = ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), SymbolFlags::EXPORTED);
        let addresses = claimed.pending.symbols.keys().map(|name| (name.clone(), address)).collect();
        let _ =
            self.state.resolve(claimed.claim, &self.unit_name, &claimed.pending.symbols, &addresses, effects);
        let dependencies = self.chosen(dependencies, Some(name));
        let token = |&name: &usize| Some(Dependency { row: self.row(name)?, session: SessionTag::default() });
        let group = DependenceGroup {
            symbols: claimed.pending.symbols.keys().cloned().collect(),
            dependencies: dependencies.iter().filter_map(token).collect(),
        };
        if self
            .state
            .emit(claimed.claim, &self.unit_name, &claimed.pending.symbols, &[group], effects)
            .is_ok()
        {
            self.claims.remove(claim % self.claims.len());
            self.dependencies[name] = dependencies;
        }
    }

    fn replace(&mut self, claim: usize, own: usize, effects: &mut Effects<Numbers>) {
        let index = claim % self.claims.len();
        let is_at_work = |name: &SymbolName| {
            let row =
                self.state.definitions.find(self.dylib, name).map(|row| &self.state.definitions[row].state);
            matches!(row, Some(RowState::Materializing { .. }))
        };
        let claimed = &self.claims[index];
        if !self.begun.contains(&claimed.claim) || !claimed.pending.symbols.keys().all(is_at_work) {
            return;
        }
        let (claimed, own) = (self.claims.remove(index), PRIORITIES[own]);
        self.begun.remove(&claimed.claim);
        // Without a need the claim ends.
        let goes_on = self.state.is_wanted(claimed.claim);
        self.replaced(self.name_of(&claimed), own, goes_on);
        let definition =
            Definition { priority: own, ..definition(&self.unit_name, claimed.pending.symbols.clone()) };
        let replaced = self.state.replace(claimed.claim, &claimed.pending.symbols, definition, 0, effects);
        replaced.expect("it covers what it covered");
    }

    fn delegate(&mut self, claim: usize, names: u16) {
        let index = claim % self.claims.len();
        let names: Vec<_> =
            self.chosen(names, None).into_iter().map(|name| self.names[name].clone()).collect();
        let claimed = &mut self.claims[index];
        let symbols: crate::SymbolFlagsMap =
            names.into_iter().filter_map(|name| claimed.pending.symbols.remove_entry(&name)).collect();
        if symbols.is_empty() || claimed.pending.symbols.is_empty() {
            claimed.pending.symbols.extend(symbols);
            return;
        }
        let names: Vec<_> = symbols.keys().cloned().collect();
        let Some(claim) = self.state.definitions.delegate(claimed.claim, &names) else { return };
        self.begun.extend([claimed.claim, claim]);
        let PendingUnit { ref name, dylib, ref dylib_name, own_priority, .. } = *claimed.pending;
        let home = (dylib, dylib_name.clone());
        let part = PendingUnit::new(0, name.clone(), home, symbols, own_priority, Default::default());
        let (losses, ticketed) = (claimed.losses, None);
        self.claims.push(ClaimedUnit { pending: Box::new(part), claim, losses, ticketed });
    }
}

fn own() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(prop_oneof![1 => Just(3usize), 1 => 0usize..4], NAMES)
}

/// As many as usual, or as a long run tries.
fn config() -> ProptestConfig {
    let cases = std::env::var("URUK_HISTORIES").ok().and_then(|count| count.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(600), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn priorities_are_the_highest_that_anybody_needed(
        own in own(),
        slice in prop_oneof![Just(1usize), Just(3), Just(1024)],
        steps in proptest::collection::vec(tame(), 1..60),
    ) {
        let mut history = History::new(&own, true, slice);
        steps.iter().for_each(|step| history.run(step));
        history.run(&Step::Drain);
    }

    #[test]
    fn no_need_is_more_urgent_than_what_it_leads_to(
        own in own(),
        slice in prop_oneof![Just(1usize), Just(3), Just(1024)],
        steps in proptest::collection::vec(wild(), 1..80),
    ) {
        let mut history = History::new(&own, false, slice);
        steps.iter().for_each(|step| history.run(step));
        history.run(&Step::Drain);
    }
}
