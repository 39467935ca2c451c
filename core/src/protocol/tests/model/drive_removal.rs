//! Trackers, dylibs, link orders, transactions, the end: what comes and goes around definitions, in both.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::DylibId;
use crate::protocol::removal::transaction;
use crate::protocol::state::definitions::dylib::RemovedDylib;
use crate::protocol::state::definitions::removing::Clearing;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::stage::Shutdown;
use crate::{JitDylibLookupFlags, RemoveError};

use super::define::Arrival;
use super::dependants::keeps_dependants;
use super::drive_definitions::numbers_in;
use super::driver::{Harness, dylib_name, pick};
use super::operation::{self, Order};
use super::remove::Change;
use super::world::Refusal;

impl Harness {
    pub(super) fn remove_names(&mut self, choice: usize, names: &[usize]) {
        let mut effects = Effects::default();
        let aim = self.aim(choice).map(|number| &self.world.definitions[&number]);
        let dylib = aim.map_or(self.slots[0], |definition| definition.dylib);
        let names: Vec<_> = names.iter().copied().chain(aim.map(|definition| definition.name)).collect();
        let chosen: Vec<_> = names.iter().map(|&name| self.name(name)).collect();
        let dylib_name = self.dylib_name(dylib);
        let outcome = self.state.remove_names(self.ids.dylibs[&dylib], &chosen, || dylib_name, &mut effects);
        let expected = self.world.remove_names(dylib, &names);
        let agrees = match (&outcome, &expected) {
            (Ok(orphans), Ok(expected)) => orphans.iter().copied().collect::<BTreeSet<_>>() == *expected,
            (Err(RemoveError::DylibRemoved { .. }), Err(Refusal::DylibRemoved)) => true,
            (Err(RemoveError::NotFound { symbols, .. }), Err(Refusal::NotFound(names)))
            | (Err(RemoveError::InUse { symbols, .. }), Err(Refusal::InUse(names))) => {
                numbers_in(symbols) == *names
            }
            _ => false,
        };
        assert!(agrees, "the state says {outcome:?}, the model {expected:?}");
        self.follow(effects);
    }

    pub(super) fn create_tracker(&mut self, slot: usize) {
        let dylib = self.slots[slot];
        let id = self.state.definitions.create_tracker(self.ids.dylibs[&dylib]);
        let number = self.world.create_tracker(dylib);
        self.ids.trackers.insert(number, id);
        self.ids.handles.push((number, dylib));
        self.follow(Effects::default());
    }

    /// Of one dylib: no tracker takes what another dylib has.
    pub(super) fn transfer(&mut self, source: usize, destination: usize) {
        let Some(source) = self.any_tracker(source) else { return };
        let dylib_of = |tracker: usize| {
            let defaults = self.world.trackers.get(&tracker).map(|tracker| tracker.dylib);
            defaults.or_else(|| Some(self.ids.handles.iter().find(|(of, _)| *of == tracker)?.1))
        };
        let dylib = dylib_of(source).expect("a tracker has a dylib");
        let default = self.world.dylibs.get(&dylib).map(|dylib| dylib.default_tracker);
        let handles = self.ids.handles.iter().filter(|(_, of)| *of == dylib).map(|(tracker, _)| *tracker);
        let candidates: Vec<_> = default.into_iter().chain(handles).collect();
        let Some(destination) = pick(&candidates, destination) else { return };
        let (from, to) = (self.ids.trackers[&source], self.ids.trackers[&destination]);
        let mut effects = Effects::default();
        let outcome = self.state.transfer_tracker(from, to, &mut effects);
        assert_eq!(outcome.is_ok(), self.world.transfer(source, destination));
        self.follow(effects);
    }

    /// The last handle goes: what it had is the default tracker's.
    pub(super) fn release(&mut self, choice: usize) {
        let Some((tracker, dylib)) = pick(&self.ids.handles, choice) else { return };
        let mut effects = Effects::default();
        self.state.release_tracker(self.ids.trackers[&tracker], &mut effects);
        if let Some(dylib) = self.world.dylibs.get(&dylib) {
            self.world.transfer(tracker, dylib.default_tracker);
        }
        self.ids.handles.retain(|(handle, _)| *handle != tracker);
        self.follow(effects);
    }

    pub(super) fn add_resource(&mut self, choice: usize) {
        let Some(tracker) = self.any_tracker(choice) else { return };
        let mut effects = Effects::default();
        let resource = self.world.number();
        let outcome = self.state.add_resource(self.ids.trackers[&tracker], resource, &mut effects);
        assert_eq!(outcome.is_ok(), self.world.add_resource(tracker, resource));
        self.follow(effects);
    }

    /// To wherever the symbols of a responsibility are.
    pub(super) fn add_resource_of_duty(&mut self, choice: usize) {
        let duties: Vec<_> = self.responsibilities.keys().copied().collect();
        let Some(duty) = pick(&duties, choice) else { return };
        let mut effects = Effects::default();
        let resource = self.world.number();
        let claim = self.responsibilities[&duty].claim;
        let outcome = self.state.add_claim_resource(claim, resource, &mut effects);
        assert_eq!(outcome.is_ok(), self.world.add_resource_of_duty(duty, resource));
        self.follow(effects);
    }

    pub(super) fn clear(&mut self, dylib: usize) {
        let mut effects = Effects::default();
        let clearing = self.state.clear(self.ids.dylibs[&dylib], &mut effects);
        let resources = self.cleared(clearing);
        assert_eq!(resources, self.world.clear(dylib), "resources of a cleared dylib");
        self.follow(effects);
    }

    /// The resources of a dylib that was cleared, if it was there.
    fn cleared(&mut self, clearing: Option<Clearing>) -> Vec<usize> {
        let Some(clearing) = clearing else { return Vec::new() };
        self.state.definitions.take_cleared(clearing).expect("no more than a slice").into_resources()
    }

    pub(super) fn create_dylib(&mut self, slot: usize) {
        let outcome = match keeps_dependants(slot) {
            true => self.state.create_dylib_keeping_dependants(dylib_name(slot)),
            false => self.state.create_dylib(dylib_name(slot)),
        };
        let created = self.world.create_dylib(slot);
        assert_eq!(outcome.is_ok(), created.is_some(), "{outcome:?}");
        if let (Ok(id), Some(number)) = (outcome, created) {
            self.slots[slot] = number;
            self.ids.dylibs.insert(number, id);
            self.ids.slots.insert(number, slot);
        }
        self.follow(Effects::default());
    }

    pub(super) fn remove_dylib(&mut self, dylib: usize) {
        let mut effects = Effects::default();
        let clearing = self.state.remove_dylib(self.ids.dylibs[&dylib], &mut effects);
        let resources = self.cleared(clearing);
        assert_eq!(resources, self.world.remove_dylib(dylib), "resources of a removed dylib");
        self.follow(effects);
    }

    pub(super) fn set_order(&mut self, slot: usize, order: &Order) {
        let (dylib, order) = (self.slots[slot], self.numbered(order));
        let outcome = self.state.definitions.set_link_order(self.ids.dylibs[&dylib], self.order_ids(&order));
        self.agree_on_order(outcome, dylib, &order);
        assert_eq!(outcome.is_ok(), self.world.set_order(dylib, &order));
        self.follow(Effects::default());
    }

    pub(super) fn add_to_order(&mut self, slot: usize, added: usize, all: bool) {
        let (dylib, added) = (self.slots[slot], self.slots[added]);
        let (id, added_id) = (self.ids.dylibs[&dylib], self.ids.dylibs[&added]);
        let outcome = self.state.definitions.add_to_link_order(id, added_id, lookup_flags(all));
        self.agree_on_order(outcome, dylib, &[(added, all)]);
        assert_eq!(outcome.is_ok(), self.world.add_to_order(dylib, added, all));
        self.follow(Effects::default());
    }

    pub(super) fn remove_from_order(&mut self, slot: usize, removed: usize) {
        let (dylib, removed) = (self.slots[slot], self.slots[removed]);
        self.state.definitions.remove_from_link_order(self.ids.dylibs[&dylib], self.ids.dylibs[&removed]);
        self.world.remove_from_order(dylib, removed);
        self.follow(Effects::default());
    }

    pub(super) fn commit(&mut self, changes: &[operation::Change], by_task: bool) {
        let mut effects = Effects::default();
        let planned: Vec<Change> = changes.iter().map(|change| self.planned(change)).collect();
        let changes = planned.iter().map(|change| self.change(change, by_task)).collect();
        let outcome = self.state.commit(changes, &mut effects);
        let expected = self.world.commit(&planned, by_task);
        match (&outcome, &expected) {
            (Ok(resources), Ok((expected, orphans))) => {
                let of = |(_, resources): &transaction::RemovedResources<usize>| {
                    resources.iter().copied().collect()
                };
                let mut resources: Vec<Vec<usize>> = resources.iter().map(of).collect();
                let left: BTreeSet<_> = resources.drain(expected.len()..).flatten().collect();
                assert_eq!(resources, *expected, "resources of removed trackers");
                assert_eq!(left, *orphans, "resources of symbols removed by name");
            }
            (Err(refused), Err((step, refusal))) => {
                assert_eq!(refused.step, *step, "{:?}, {refusal:?}", refused.refusal);
                assert!(
                    agree_on_change(&refused.refusal, refusal),
                    "the state says {:?}, the model {refusal:?}",
                    refused.refusal
                );
            }
            _ => panic!("the state says {outcome:?}, the model {expected:?}"),
        }
        self.follow(effects);
    }

    pub(super) fn start_closing(&mut self, cancel: bool) {
        self.state.start_closing(if cancel { Shutdown::Cancel } else { Shutdown::Drain });
        self.world.start_closing(cancel);
        self.follow(Effects::default());
    }

    /// Everything ends, piece by piece in the state, at once in the model.
    pub(super) fn end(&mut self) {
        let mut effects = Effects::default();
        let dylibs = self.state.end();
        let (mut first, end) = (0, self.state.queries_end());
        while let Some(next) = self.state.end_some_queries(first, end, &mut effects) {
            first = next;
        }
        let mut end = |(dylib, name)| {
            let clearing = self.state.end_dylib(dylib, &mut effects);
            (name, self.cleared(clearing))
        };
        let ended: Vec<_> = dylibs.into_iter().map(&mut end).collect();
        let expected = self.world.end().into_iter();
        let expected: Vec<_> =
            expected.map(|(dylib, resources)| (self.dylib_name(dylib), resources)).collect();
        assert_eq!(ended, expected, "dylibs and their resources");
        self.follow(effects);
    }

    pub(super) fn any_tracker(&self, choice: usize) -> Option<usize> {
        let handles = self.ids.handles.iter().map(|(tracker, _)| *tracker);
        let defaults = self.world.dylibs.values().map(|dylib| dylib.default_tracker);
        pick(&handles.chain(defaults).collect::<Vec<_>>(), choice)
    }

    pub(super) fn numbered(&self, order: &Order) -> Vec<(usize, bool)> {
        order.iter().map(|&(slot, all)| (self.slots[slot], all)).collect()
    }

    fn order_ids(&self, order: &[(usize, bool)]) -> Vec<(DylibId, JitDylibLookupFlags)> {
        order.iter().map(|&(dylib, all)| (self.ids.dylibs[&dylib], lookup_flags(all))).collect()
    }

    /// A refusal names a dylib that is gone.
    fn agree_on_order(&self, outcome: Result<(), RemovedDylib>, dylib: usize, order: &[(usize, bool)]) {
        let gone = match outcome {
            Ok(()) => return,
            Err(RemovedDylib::Itself) => dylib,
            Err(RemovedDylib::InOrder(position)) => order[position].0,
        };
        assert!(!self.world.dylibs.contains_key(&gone), "the state says {outcome:?}");
    }

    fn planned(&mut self, change: &operation::Change) -> Change {
        match change {
            operation::Change::Define { dylib, tracker, symbols, replaces } => {
                let dylib = self.slots[*dylib];
                let tracker = tracker.and_then(|choice| self.tracker_of(dylib, choice));
                let (unit, symbols) = (self.world.number(), Self::interface(symbols));
                let arrival = Arrival { unit, symbols, known: false, initializer: None, queue: None };
                Change::Define { dylib, tracker, arrival, replaces: *replaces }
            }
            operation::Change::Remove { dylib, names } => {
                Change::Remove { dylib: self.slots[*dylib], names: names.clone() }
            }
            operation::Change::RemoveTracker { dylib, tracker } => {
                let dylib = self.slots[*dylib];
                let tracker = tracker.and_then(|choice| self.tracker_of(dylib, choice));
                Change::RemoveTracker { dylib, tracker }
            }
            operation::Change::SetOrder { dylib, order } => {
                Change::SetOrder { dylib: self.slots[*dylib], order: self.numbered(order) }
            }
            operation::Change::AddToOrder { dylib, added, all } => {
                Change::AddToOrder { dylib: self.slots[*dylib], added: self.slots[*added], all: *all }
            }
            operation::Change::RemoveFromOrder { dylib, removed } => {
                Change::RemoveFromOrder { dylib: self.slots[*dylib], removed: self.slots[*removed] }
            }
        }
    }

    fn change(&self, change: &Change, by_task: bool) -> transaction::Change<usize> {
        let id = |dylib: usize| self.ids.dylibs[&dylib];
        let tracker_id = |tracker: Option<usize>| tracker.map(|tracker| self.ids.trackers[&tracker]);
        match *change {
            Change::Define { dylib, tracker, ref arrival, replaces } => {
                let (dylib, tracker, unit) = (id(dylib), tracker_id(tracker), arrival.unit);
                let definition = self.definition(arrival, by_task);
                match replaces {
                    true => transaction::Change::Redefine { dylib, tracker, definition, unit },
                    false => transaction::Change::Define { dylib, tracker, definition, unit },
                }
            }
            Change::Remove { dylib, ref names } => {
                let names = names.iter().map(|&name| self.name(name)).collect();
                transaction::Change::Remove { dylib: id(dylib), names }
            }
            Change::RemoveTracker { dylib, tracker } => {
                transaction::Change::RemoveTracker { dylib: id(dylib), tracker: tracker_id(tracker) }
            }
            Change::SetOrder { dylib, ref order } => {
                transaction::Change::SetLinkOrder { dylib: id(dylib), order: self.order_ids(order) }
            }
            Change::AddToOrder { dylib, added, all } => transaction::Change::AddToLinkOrder {
                dylib: id(dylib),
                added: id(added),
                flags: lookup_flags(all),
            },
            Change::RemoveFromOrder { dylib, removed } => {
                transaction::Change::RemoveFromLinkOrder { dylib: id(dylib), removed: id(removed) }
            }
        }
    }
}

fn agree_on_change(refusal: &transaction::Refusal, expected: &Refusal) -> bool {
    use transaction::Refusal as Told;
    match (refusal, expected) {
        (Told::Closed, Refusal::Closed)
        | (Told::DylibRemoved | Told::LinkedDylibRemoved(_), Refusal::DylibRemoved)
        | (Told::TrackerDefunct, Refusal::TrackerDefunct) => true,
        (Told::Duplicate { symbol, .. }, Refusal::Duplicate(names)) => {
            numbers_in(std::slice::from_ref(symbol)).is_subset(names)
        }
        (Told::NotFound(symbols), Refusal::NotFound(names))
        | (Told::InUse(symbols), Refusal::InUse(names)) => numbers_in(symbols) == *names,
        _ => false,
    }
}

pub(super) fn lookup_flags(all: bool) -> JitDylibLookupFlags {
    match all {
        true => JitDylibLookupFlags::MatchAllSymbols,
        false => JitDylibLookupFlags::MatchExportedSymbolsOnly,
    }
}

/// Kept together: what is in `map` and what is expected there.
pub(super) fn by_number<K: Ord, V>(pairs: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    for (key, value) in pairs {
        assert!(map.insert(key, value).is_none(), "told twice");
    }
    map
}
