//! Random histories in which operations come between the slices of what earlier ones left to do.
//!
//! The state takes one to three steps a slice and is asked for slices at random moments, so removals, failures, ended
//! queries and emissions overtake each other in every way. The answer of each operation depends on how far the work
//! has come. The invariants of a state with no work left do not.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::model::seeds::try_histories;
use super::numbers::{Numbers, definition, search, with_main};
use crate::ids::SessionTag;
use crate::ids::{DylibId, QueryId, RowId, TrackerId};
use crate::protocol::slices::agenda::{Attendance, FOREIGN_SLICES_MAX};
use crate::protocol::state::SessionState;
use crate::protocol::state::definitions::row::RowState;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::pending::ClaimedUnit;
use crate::{
    DependenceGroup, Dependency, ExecutorAddr, ExecutorSymbolDef, FailureCause, LookupSet, RequiredState,
    SymbolFlags, SymbolFlagsMap, SymbolName,
};

const NAMES: usize = 12;
const TRACKERS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Define { tracker: usize, names: u16 },
    LookUp { names: u16, ready: bool },
    Withdraw(usize),
    Resolve(usize),
    Emit { claim: usize, dependencies: u16 },
    Fail(usize),
    RemoveName(usize),
    RemoveTracker(usize),
    Clear,
    Slice,
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    let names = 1u16..1 << NAMES;
    prop_oneof![
        6 => (0..=TRACKERS, names.clone()).prop_map(|(tracker, names)| Step::Define { tracker, names }),
        6 => (names, any::<bool>()).prop_map(|(names, ready)| Step::LookUp { names, ready }),
        1 => (0usize..8).prop_map(Step::Withdraw),
        5 => (0usize..8).prop_map(Step::Resolve),
        6 => (0usize..8, any::<u16>()).prop_map(|(claim, dependencies)| Step::Emit { claim, dependencies }),
        2 => (0usize..8).prop_map(Step::Fail),
        2 => (0..NAMES).prop_map(Step::RemoveName),
        2 => (0..=TRACKERS).prop_map(Step::RemoveTracker),
        1 => Just(Step::Clear),
        8 => Just(Step::Slice),
        1 => Just(Step::Drain),
    ]
}

pub(super) struct History {
    pub(super) state: SessionState<Numbers>,
    pub(super) names: Vec<SymbolName>,
    pub(super) unit_name: SymbolName,
    pub(super) dylib: DylibId,
    /// The first is the dylib's default tracker.
    pub(super) trackers: Vec<TrackerId>,
    made: u32,
    pub(super) queries: Vec<QueryId>,
    ended: BTreeSet<u32>,
    /// Claims, resolved or not.
    pub(super) claims: Vec<(ClaimedUnit<u32>, bool)>,
    /// The dependencies of each emitted row that were not Ready then.
    dependencies: BTreeMap<RowId, Vec<RowId>>,
    /// Rows that were Ready once, whether they knew or not.
    ready: BTreeSet<RowId>,
    /// The attendance for the next slice.
    attendance: Option<Attendance>,
}

impl History {
    pub(super) fn new(slice_steps: usize) -> Self {
        let (mut state, pool, dylib) = with_main(true);
        state.agenda.set_slice_steps(slice_steps);
        let trackers = (0..=TRACKERS).map(|_| state.definitions.create_tracker(dylib)).collect();
        Self {
            state,
            names: (0..NAMES).map(|index| pool.intern(&format!("s{index}"))).collect(),
            unit_name: pool.intern("unit"),
            dylib,
            trackers,
            made: 0,
            queries: Vec::new(),
            ended: BTreeSet::new(),
            claims: Vec::new(),
            dependencies: BTreeMap::new(),
            ready: BTreeSet::new(),
            attendance: None,
        }
    }

    fn chosen(&self, names: u16) -> Vec<SymbolName> {
        (0..NAMES).filter(|name| names >> name & 1 == 1).map(|name| self.names[name].clone()).collect()
    }

    fn run(&mut self, step: &Step) {
        self.note_ready();
        let mut effects = Effects::default();
        self.apply(step, &mut effects);
        let attendance = self.state.finish_transaction(&mut effects);
        self.attendance = attendance.or(self.attendance);
        self.take(effects);
        self.note_ready();
        if !self.state.has_work() {
            self.check();
        }
    }

    fn note_ready(&mut self) {
        for (id, row) in self.state.definitions.rows() {
            let is_ready = match row.state {
                RowState::Ready { .. } => true,
                RowState::Emitted { .. } => self.state.is_ready_unknowingly(id),
                _ => false,
            };
            if is_ready {
                self.ready.insert(id);
            }
        }
    }

    fn apply(&mut self, step: &Step, effects: &mut Effects<Numbers>) {
        match *step {
            Step::Define { tracker, names } => self.define(tracker, names, effects),
            Step::LookUp { names, ready } => self.look_up(names, ready, effects),
            Step::Withdraw(query) if !self.queries.is_empty() => {
                let query = self.queries.remove(query % self.queries.len());
                self.state.withdraw(query, effects);
            }
            Step::Resolve(claim) => self.resolve(claim, effects),
            Step::Emit { claim, dependencies } => self.emit(claim, dependencies, effects),
            Step::Fail(claim) if !self.claims.is_empty() => {
                let (claimed, _) = self.claims.remove(claim % self.claims.len());
                self.state.fail(claimed.claim, FailureCause::Abandoned, effects);
            }
            Step::RemoveName(name) => {
                let names = [self.names[name].clone()];
                let _ = self.state.remove_names(self.dylib, &names, || "main".into(), effects);
            }
            Step::RemoveTracker(tracker) => {
                drop(self.state.remove_tracker(self.trackers[tracker], effects));
                self.trackers[tracker] = self.state.definitions.create_tracker(self.dylib);
            }
            Step::Clear => {
                self.state.clear(self.dylib, effects);
                let fresh = (0..=TRACKERS).map(|_| self.state.definitions.create_tracker(self.dylib));
                self.trackers = fresh.collect();
            }
            Step::Slice => {
                self.attendance = self.attendance.filter(|&attendance| self.state.slice(attendance, effects));
            }
            Step::Drain => self.state.settle_all(effects),
            Step::Withdraw(_) | Step::Fail(_) => {}
        }
    }

    pub(super) fn define(&mut self, tracker: usize, names: u16, effects: &mut Effects<Numbers>) {
        self.made += 1;
        // An existing one would refuse all of them.
        let fresh = |name: &SymbolName| self.state.definitions.find(self.dylib, name).is_none();
        let symbols: SymbolFlagsMap =
            self.chosen(names).into_iter().filter(fresh).map(|name| (name, SymbolFlags::EXPORTED)).collect();
        let definition = definition(&self.unit_name, symbols);
        let tracker = (tracker > 0).then(|| self.trackers[tracker]);
        self.state
            .define(self.dylib, tracker, definition, self.made, effects)
            .expect("nothing is defined twice");
    }

    pub(super) fn look_up(&mut self, names: u16, ready: bool, effects: &mut Effects<Numbers>) {
        self.made += 1;
        let required_state = if ready { RequiredState::Ready } else { RequiredState::Resolved };
        let search = search(self.dylib, LookupSet::weakly_referenced(self.chosen(names)), required_state);
        self.queries.extend(self.state.lookup(search, self.made, |_| "main".into(), effects));
    }

    pub(super) fn resolve(&mut self, claim: usize, effects: &mut Effects<Numbers>) {
        let unresolved: Vec<_> = (0..self.claims.len()).filter(|&index| !self.claims[index].1).collect();
        if unresolved.is_empty() {
            return;
        }
        let (claimed, resolved) = &mut self.claims[unresolved[claim % unresolved.len()]];
        let address = ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), SymbolFlags::EXPORTED);
        let addresses = claimed.pending.symbols.keys().map(|name| (name.clone(), address)).collect();
        *resolved = self
            .state
            .resolve(claimed.claim, &self.unit_name, &claimed.pending.symbols, &addresses, effects)
            .is_ok();
    }

    pub(super) fn emit(&mut self, claim: usize, dependencies: u16, effects: &mut Effects<Numbers>) {
        let resolved: Vec<_> = (0..self.claims.len()).filter(|&index| self.claims[index].1).collect();
        if resolved.is_empty() {
            return;
        }
        let index = resolved[claim % resolved.len()];
        let needed = self.chosen(dependencies & dependencies >> 4);
        let needed: Vec<RowId> =
            needed.iter().filter_map(|name| self.state.definitions.find(self.dylib, name)).collect();
        let is_ready = |row: &RowId| matches!(self.state.definitions[*row].state, RowState::Ready { .. });
        let unready: Vec<RowId> = needed.iter().copied().filter(|row| !is_ready(row)).collect();
        let claimed = &self.claims[index].0;
        let own: Vec<RowId> = claimed
            .pending
            .symbols
            .keys()
            .filter_map(|name| self.state.definitions.row_of_claim(claimed.claim, name))
            .collect();
        let symbols = claimed.pending.symbols.keys().cloned().collect();
        let token = |&row: &RowId| Dependency { row, session: SessionTag::default() };
        let group = DependenceGroup { symbols, dependencies: needed.iter().map(token).collect() };
        let emitted =
            self.state.emit(claimed.claim, &self.unit_name, &claimed.pending.symbols, &[group], effects);
        if emitted.is_ok() {
            self.claims.remove(index);
            self.dependencies.extend(own.into_iter().map(|row| (row, unready.clone())));
        }
    }

    pub(super) fn take(&mut self, effects: Effects<Numbers>) {
        self.claims.extend(effects.claimed.into_iter().map(|claimed| (claimed, false)));
        for completed in effects.completed {
            assert!(self.ended.insert(completed.handler), "a query ends once");
        }
    }

    /// Nothing is left to do: all consequences have come.
    fn check(&mut self) {
        self.state.check();
        for (row, dependencies) in &self.dependencies {
            let Some(dependant) = self.state.definitions.row(*row) else { continue };
            for dependency in dependencies {
                let state = self.state.definitions.row(*dependency).map(|row| &row.state);
                let failed = matches!(state, Some(RowState::Failed { .. }));
                match dependant.state {
                    RowState::Ready { .. } => assert!(
                        self.ready.contains(dependency),
                        "{row:?} is Ready and {dependency:?} never was"
                    ),
                    RowState::Emitted { .. } => {
                        assert!(!failed, "{row:?} waits for {dependency:?}, which has failed");
                        assert!(
                            state.is_some() || self.ready.contains(dependency),
                            "{row:?} waits for {dependency:?}, which was removed"
                        );
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Removes all symbols by way of a tracker; gives the attendance that comes of it.
fn define_and_begin_removing(history: &mut History, tracker: usize) -> Option<Attendance> {
    let mut effects = Effects::default();
    history.define(tracker, (1 << NAMES) - 1, &mut effects);
    drop(history.state.remove_tracker(history.trackers[tracker], &mut effects));
    history.trackers[tracker] = history.state.definitions.create_tracker(history.dylib);
    history.take(effects);
    history.state.finish_transaction(&mut Effects::default())
}

#[test]
fn under_sustained_load_whoever_attends_is_relieved() {
    let mut history = History::new(1);
    let mut effects = Effects::default();
    let first = define_and_begin_removing(&mut history, 1).expect("nobody attends yet");
    let mut slices = 0;
    let second = loop {
        if let Some(second) = define_and_begin_removing(&mut history, 2) {
            break second;
        }
        assert!(slices < FOREIGN_SLICES_MAX, "still not relieved");
        assert!(history.state.slice(first, &mut effects), "more comes than goes");
        slices += 1;
    };
    assert_eq!(slices, FOREIGN_SLICES_MAX);
    assert!(!history.state.slice(first, &mut effects), "the first may go");
    assert!(history.state.has_work(), "and leaves what is left to the second");
    while history.state.slice(second, &mut effects) {}
    assert!(!history.state.has_work());
}

#[test]
fn whoever_adds_no_work_is_not_held_up_by_that_of_others() {
    let mut history = History::new(1);
    let mut effects = Effects::default();
    let first = define_and_begin_removing(&mut history, 1).expect("nobody attends yet");
    for _ in 0..=FOREIGN_SLICES_MAX {
        assert_eq!(define_and_begin_removing(&mut history, 2), None);
    }
    for _ in 0..=FOREIGN_SLICES_MAX {
        assert!(history.state.slice(first, &mut effects), "more has come than went");
        history.look_up(1, true, &mut effects);
        assert_eq!(history.state.finish_transaction(&mut effects), None);
    }
    assert!(define_and_begin_removing(&mut history, 3).is_some(), "now somebody may take over");
}

#[test]
fn whatever_comes_between_slices_everything_follows_in_the_end() {
    let histories = (1usize..4, prop::collection::vec(step(), 1..80));
    try_histories(200, &histories, |(slice_steps, steps)| {
        let mut history = History::new(slice_steps);
        for step in &steps {
            history.run(step);
        }
        history.run(&Step::Drain);
        history.run(&Step::Clear);
        history.run(&Step::Drain);
        assert_eq!(history.state.definitions.counts().rows, 0);
        assert_eq!(history.state.lookups.len(), 0);
        assert_eq!(history.state.definitions.counts().claims, 0);
        assert_eq!(history.state.failures.len(), (0, 0));
        assert_eq!(history.state.definitions.counts().units, 0);
        assert!(history.state.forest.is_empty());
    });
}
