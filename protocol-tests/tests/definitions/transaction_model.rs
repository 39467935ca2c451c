//! Random transactions against a naive model: all or none, and the step that is blamed is the right one.
//!
//! The model keeps one entry for each definition and makes the steps of a transaction on a copy, one after the other;
//! a step that it refuses throws the copy away. Between transactions symbols are looked up, which makes
//! them Ready or leaves them in the making.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use protocol_tests::*;
use uruk_core::sync::Mutex;
use uruk_core::{
    ExecutionSession, JitDylib, JitDylibLookupFlags, LookupRequest, MaterializationUnit, ResourceTracker,
    SearchOrder, SymbolFlags, SymbolName, Transaction, TransactionError,
};

const NAMES: usize = 5;
const DYLIBS: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    Define { dylib: usize, tracked: bool, names: u8, weak: u8, parks: bool, over: bool },
    Remove { dylib: usize, names: u8 },
    RemoveTracker { dylib: usize },
    Link { dylib: usize, to: usize },
    Unlink { dylib: usize, from: usize },
    SetLinkOrder { dylib: usize, twice: bool },
    Relink { dylib: usize, old: usize, new: usize },
}

#[derive(Clone, Debug)]
enum Operation {
    Commit(Vec<Step>),
    LookUp { dylib: usize, name: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let (dylib, other) = (0..DYLIBS, 0..DYLIBS);
    // Few names at a time: transactions of many steps must have a chance.
    let names = prop_oneof![(0..NAMES).prop_map(|name| 1u8 << name), 1u8..1 << NAMES];
    prop_oneof![
        6 => (dylib.clone(), any::<bool>(), names.clone(), any::<u8>(), any::<bool>(), any::<bool>()).prop_map(
            |(dylib, tracked, names, weak, parks, over)| Step::Define { dylib, tracked, names, weak, parks, over }
        ),
        3 => (dylib.clone(), names).prop_map(|(dylib, names)| Step::Remove { dylib, names }),
        1 => dylib.clone().prop_map(|dylib| Step::RemoveTracker { dylib }),
        1 => (dylib.clone(), other.clone()).prop_map(|(dylib, to)| Step::Link { dylib, to }),
        1 => (dylib.clone(), other.clone()).prop_map(|(dylib, from)| Step::Unlink { dylib, from }),
        1 => (dylib.clone(), other.clone(), other).prop_map(|(dylib, old, new)| Step::Relink { dylib, old, new }),
        1 => (dylib, any::<bool>()).prop_map(|(dylib, twice)| Step::SetLinkOrder { dylib, twice }),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        2 => prop::collection::vec(step(), 1..5).prop_map(Operation::Commit),
        1 => (0..DYLIBS, 0..NAMES).prop_map(|(dylib, name)| Operation::LookUp { dylib, name }),
    ]
}

fn of(names: u8) -> impl Iterator<Item = usize> {
    (0..NAMES).filter(move |name| names & (1 << name) != 0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    NeverSearched,
    Materializing,
    Ready,
}

#[derive(Clone, Debug)]
struct Entry {
    unit: u64,
    weak: bool,
    parks: bool,
    tracked: bool,
    standing: Standing,
}

#[derive(Clone, Debug, Default)]
struct Model {
    entries: BTreeMap<(usize, usize), Entry>,
    links: [Vec<usize>; DYLIBS],
    /// How often each dylib's tracker was removed.
    trackers_removed: [usize; DYLIBS],
}

impl Model {
    fn new() -> Self {
        Self { links: [vec![0], vec![1]], ..Self::default() }
    }

    /// Makes the steps, or says which cannot be made.
    fn after(&self, steps: &[Step], first_unit: u64) -> Result<Self, usize> {
        let mut copy = self.clone();
        let mut defunct = [false; DYLIBS];
        for (index, step) in steps.iter().enumerate() {
            copy.make(step, first_unit + index as u64, &mut defunct).ok_or(index)?;
        }
        Ok(copy)
    }

    fn make(&mut self, step: &Step, unit: u64, defunct: &mut [bool; DYLIBS]) -> Option<()> {
        match *step {
            Step::Define { dylib, tracked, names, weak, parks, over } => {
                if tracked && defunct[dylib] {
                    return None;
                }
                if over {
                    self.remove(
                        dylib,
                        of(names).filter(|&name| self.entries.contains_key(&(dylib, name))).collect(),
                    )?;
                }
                for name in of(names) {
                    let weak = weak & (1 << name) != 0;
                    if let Some(existing) = self.entries.get(&(dylib, name)) {
                        if weak {
                            continue;
                        }
                        if !existing.weak
                            || existing.standing != Standing::NeverSearched
                            || existing.unit == unit
                        {
                            return None;
                        }
                    }
                    let entry = Entry { unit, weak, parks, tracked, standing: Standing::NeverSearched };
                    self.entries.insert((dylib, name), entry);
                }
            }
            Step::Remove { dylib, names } => {
                of(names).all(|name| self.entries.contains_key(&(dylib, name))).then_some(())?;
                self.remove(dylib, of(names).collect())?;
            }
            Step::RemoveTracker { dylib } => {
                if !std::mem::replace(&mut defunct[dylib], true) {
                    self.entries.retain(|&(at, _), entry| at != dylib || !entry.tracked);
                    self.trackers_removed[dylib] += 1;
                }
            }
            Step::Link { dylib, to } if self.links[dylib].contains(&to) => {}
            Step::Link { dylib, to } => self.links[dylib].push(to),
            Step::Unlink { dylib, from } => self.links[dylib].retain(|&other| other != from),
            Step::SetLinkOrder { dylib, twice } => {
                self.links[dylib] = vec![1 - dylib; 1 + usize::from(twice)]
            }
            Step::Relink { dylib, old, new } => {
                let links = &mut self.links[dylib];
                if let Some(place) = links.iter().position(|&other| other == old) {
                    let other = |other: &usize| ![old, new].contains(other);
                    let ahead = links[..place].iter().copied().filter(other);
                    let behind = links[place..].iter().copied().filter(other);
                    *links = ahead.chain([new]).chain(behind).collect();
                }
            }
        }
        Some(())
    }

    fn remove(&mut self, dylib: usize, names: Vec<usize>) -> Option<()> {
        let in_use = |name: &usize| self.entries[&(dylib, *name)].standing == Standing::Materializing;
        (!names.iter().any(in_use)).then_some(())?;
        self.entries.retain(|&(at, name), _| at != dylib || !names.contains(&name));
        Some(())
    }

    fn look_up(&mut self, dylib: usize, name: usize) {
        let Some(Entry { unit, parks, standing: Standing::NeverSearched, .. }) =
            self.entries.get(&(dylib, name))
        else {
            return;
        };
        let (unit, standing) = (*unit, if *parks { Standing::Materializing } else { Standing::Ready });
        self.entries
            .values_mut()
            .filter(|entry| entry.unit == unit)
            .for_each(|entry| entry.standing = standing);
    }

    /// The units that have not been materialized and still have a symbol.
    fn waiting_units(&self) -> usize {
        let waits = |entry: &&Entry| entry.standing == Standing::NeverSearched;
        let mut units: Vec<_> = self.entries.values().filter(waits).map(|entry| entry.unit).collect();
        units.sort_unstable();
        units.dedup();
        units.len()
    }
}

struct Stage {
    session: ExecutionSession,
    dylibs: [JitDylib; DYLIBS],
    trackers: [ResourceTracker; DYLIBS],
    names: [SymbolName; NAMES],
    /// Held by every unit that has not been materialized.
    alive: Arc<()>,
    parked: Arc<Mutex<Vec<uruk_core::Detached<uruk_core::MaterializationResponsibility>>>>,
    units: u64,
}

impl Stage {
    fn new() -> Self {
        let (session, main) = session();
        let dylibs = [main, session.create_jit_dylib("other").unwrap()];
        Self {
            trackers: [0, 1].map(|index: usize| dylibs[index].create_tracker()),
            names: ["a", "b", "c", "d", "e"].map(|name| session.intern(name)),
            dylibs,
            session,
            alive: Arc::new(()),
            parked: Arc::default(),
            units: 0,
        }
    }

    fn unit(&self, unit: u64, names: u8, weak: u8, parks: bool) -> Box<dyn MaterializationUnit> {
        let flags =
            |name: usize| if weak & (1 << name) != 0 { EXPORTED | SymbolFlags::WEAK } else { EXPORTED };
        let symbols = of(names).map(|name| (self.names[name].clone(), flags(name))).collect();
        let (alive, parked) = (self.alive.clone(), self.parked.clone());
        let unit = TestUnit::new("unit", symbols, move |responsibility| {
            drop(alive);
            if parks {
                return parked.lock().push(responsibility.detach());
            }
            let addresses = responsibility.symbols().keys().map(|name| (name.clone(), at(unit))).collect();
            responsibility.notify_resolved(&addresses).unwrap().notify_emitted(Vec::new()).unwrap();
        });
        unit.boxed()
    }

    fn transaction(&self, steps: &[Step]) -> Transaction {
        let mut transaction = self.session.transaction();
        let (dylibs, flags) = (&self.dylibs, JitDylibLookupFlags::MatchAllSymbols);
        for (step, number) in steps.iter().zip(self.units..) {
            transaction = match *step {
                Step::Define { dylib, tracked, names, weak, parks, over } => {
                    let unit = self.unit(number, names, weak, parks);
                    match (tracked, over) {
                        (true, false) => transaction.define_with_tracker(unit, &self.trackers[dylib]),
                        (true, true) => transaction.redefine_with_tracker(unit, &self.trackers[dylib]),
                        (false, false) => transaction.define(&dylibs[dylib], unit),
                        (false, true) => transaction.redefine(&dylibs[dylib], unit),
                    }
                }
                Step::Remove { dylib, names } => {
                    transaction.remove(&dylibs[dylib], of(names).map(|name| self.names[name].clone()))
                }
                Step::RemoveTracker { dylib } => transaction.remove_tracker(&self.trackers[dylib]),
                Step::Link { dylib, to } => transaction.add_to_link_order(&dylibs[dylib], &dylibs[to], flags),
                Step::Unlink { dylib, from } => {
                    transaction.remove_from_link_order(&dylibs[dylib], &dylibs[from])
                }
                Step::SetLinkOrder { dylib, twice } => {
                    let order = vec![(dylibs[1 - dylib].clone(), flags); 1 + usize::from(twice)].into();
                    transaction.set_link_order(&dylibs[dylib], order)
                }
                Step::Relink { dylib, old, new } => {
                    transaction.replace_in_link_order(&dylibs[dylib], &dylibs[old], &dylibs[new], flags)
                }
            };
        }
        transaction
    }

    fn run(&mut self, model: &mut Model, operation: &Operation) {
        match operation {
            Operation::LookUp { dylib, name } => {
                let symbols = uruk_core::LookupSet::one(self.names[*name].clone());
                let request = LookupRequest::new(order(&self.dylibs[*dylib]), symbols);
                // The answer is compared with the rest of the state.
                drop(look_up_later(&self.session, request));
                model.look_up(*dylib, *name);
            }
            Operation::Commit(steps) => {
                let removed = model.trackers_removed;
                let expected = model.after(steps, self.units);
                let transaction = self.transaction(steps);
                let units = transaction_units(steps);
                match (transaction.commit(), expected) {
                    (Ok(()), Ok(after)) => *model = after,
                    (Err(refused), Err(step)) => {
                        assert_eq!(step_of(&refused.error), step, "{refused}");
                        assert_eq!(refused.transaction.into_units().len(), units);
                    }
                    (got, expected) => panic!("{got:?}, where the model says {expected:?}"),
                }
                self.units += steps.len() as u64;
                for (dylib, removed) in removed.into_iter().enumerate() {
                    let defunct = model.trackers_removed[dylib] > removed;
                    assert_eq!(self.trackers[dylib].is_defunct(), defunct);
                    if defunct {
                        self.trackers[dylib] = self.dylibs[dylib].create_tracker();
                    }
                }
            }
        }
    }

    fn compare(&self, model: &Model) {
        for (index, dylib) in self.dylibs.iter().enumerate() {
            let mut defined: Vec<_> = dylib.flags(self.names.clone());
            defined.sort_by_key(|(name, _)| self.names.iter().position(|other| other == name));
            let entries = model.entries.iter().filter(|((at, _), _)| *at == index);
            let flags = |entry: &Entry| match entry.weak {
                true => EXPORTED | SymbolFlags::WEAK,
                false => EXPORTED,
            };
            let expected: Vec<_> =
                entries.map(|((_, name), entry)| (self.names[*name].clone(), flags(entry))).collect();
            assert_eq!(defined, expected);
            let links: SearchOrder = model.links[index]
                .iter()
                .map(|&to| (self.dylibs[to].clone(), JitDylibLookupFlags::MatchAllSymbols))
                .collect();
            assert_eq!(dylib.link_order(), links);
        }
        for ((dylib, name), entry) in &model.entries {
            if entry.standing == Standing::Ready {
                let found =
                    self.session.lookup_symbol(&order(&self.dylibs[*dylib]), &self.names[*name]).unwrap();
                assert_eq!(found.address.value(), entry.unit);
            }
        }
        assert_eq!(
            Arc::strong_count(&self.alive) - 1,
            model.waiting_units(),
            "units are where they should be"
        );
    }
}

fn transaction_units(steps: &[Step]) -> usize {
    steps.iter().filter(|step| matches!(step, Step::Define { .. })).count()
}

fn step_of(error: &TransactionError) -> usize {
    match error {
        TransactionError::Define { step, .. }
        | TransactionError::Remove { step, .. }
        | TransactionError::LinkOrder { step, .. }
        | TransactionError::Foreign { step, .. } => *step,
        other => panic!("{other}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn transactions_are_all_or_none(operations in prop::collection::vec(operation(), 1..24)) {
        let (mut stage, mut model) = (Stage::new(), Model::new());
        for operation in &operations {
            stage.run(&mut model, operation);
            stage.compare(&model);
        }
    }
}
