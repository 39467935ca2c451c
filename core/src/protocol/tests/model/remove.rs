//! The rules of what comes and goes around definitions: trackers, dylibs, link orders, the session itself.

use std::collections::{BTreeMap, BTreeSet};

use super::define::Arrival;
use super::dependants::keeps_dependants;
use super::world::*;

/// One step of a transaction.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Define {
        dylib: usize,
        tracker: Option<usize>,
        arrival: Arrival,
        replaces: bool,
    },
    Remove {
        dylib: usize,
        names: Vec<usize>,
    },
    /// None for the default one.
    RemoveTracker {
        dylib: usize,
        tracker: Option<usize>,
    },
    SetOrder {
        dylib: usize,
        order: Vec<(usize, bool)>,
    },
    AddToOrder {
        dylib: usize,
        added: usize,
        all: bool,
    },
    RemoveFromOrder {
        dylib: usize,
        removed: usize,
    },
}

/// The resources that a transaction has taken out: by removed tracker, and those of no symbol any more.
type Removed = (Vec<Vec<usize>>, BTreeSet<usize>);

impl World {
    /// A dylib that searches itself. None if there is one of its name, or the session closes.
    pub(super) fn create_dylib(&mut self, slot: usize) -> Option<usize> {
        if self.stage != Stage::Open || self.dylibs.values().any(|dylib| dylib.slot == slot) {
            return None;
        }
        let (number, default_tracker) = (self.number(), self.number());
        self.trackers.insert(default_tracker, Tracker { dylib: number, resources: Vec::new() });
        let order = vec![(number, true)];
        self.dylibs.insert(
            number,
            Dylib {
                slot,
                order,
                generators: Vec::new(),
                default_tracker,
                keeps_dependants: keeps_dependants(slot),
            },
        );
        Some(number)
    }

    /// By name: all of them, or none. Gives the resources that serve no symbol any more.
    pub(super) fn remove_names(&mut self, dylib: usize, names: &[usize]) -> Result<BTreeSet<usize>, Refusal> {
        self.remove_named(dylib, names)?;
        Ok(self.sweep())
    }

    /// As a step of an operation that ends with [`Self::sweep`].
    fn remove_named(&mut self, dylib: usize, names: &[usize]) -> Result<(), Refusal> {
        if !self.dylibs.contains_key(&dylib) {
            return Err(Refusal::DylibRemoved);
        }
        let found: BTreeMap<_, _> = names.iter().map(|&name| (name, self.find(dylib, name))).collect();
        let missing: BTreeSet<_> =
            found.iter().filter(|(_, found)| found.is_none()).map(|(name, _)| *name).collect();
        if !missing.is_empty() {
            return Err(Refusal::NotFound(missing));
        }
        let at_work = |number: &usize| matches!(self.definitions[number].provider, Provider::Duty(_));
        let in_use: BTreeSet<_> = found
            .iter()
            .filter(|(_, found)| found.as_ref().is_some_and(at_work))
            .map(|(name, _)| *name)
            .collect();
        if !in_use.is_empty() {
            return Err(Refusal::InUse(in_use));
        }
        let found: Vec<_> = found.into_values().flatten().collect();
        for definition in found.iter().map(|number| &self.definitions[number]) {
            if let Provider::Unit(unit) = definition.provider {
                self.shrunk.insert(Shrunk::Unit(unit));
            }
            self.shrunk.extend(definition.product.map(Shrunk::Product));
        }
        self.forget(&found, true);
        Ok(())
    }

    /// The end of an operation that removes by name: an initializer that is left alone goes, and then resources without any symbol.
    pub(super) fn sweep(&mut self) -> BTreeSet<usize> {
        let shrunk = std::mem::take(&mut self.shrunk);
        for &of in &shrunk {
            let left = self.numbers(|definition| match of {
                Shrunk::Unit(unit) => definition.provider == Provider::Unit(unit),
                Shrunk::Product(product) => definition.product == Some(product),
            });
            if let [only] = left[..]
                && self.definitions[&only].initializer.is_some()
                && !matches!(self.definitions[&only].provider, Provider::Duty(_))
            {
                self.forget(&[only], true);
            }
        }
        self.take_orphans()
    }

    /// Resources without any symbol go at once, before a later step of a transaction removes their tracker.
    fn take_orphans(&mut self) -> BTreeSet<usize> {
        let serves =
            |product: usize| self.definitions.values().any(|definition| definition.product == Some(product));
        let orphans: BTreeSet<_> =
            self.part_of.iter().filter(|(_, product)| !serves(**product)).map(|(no, _)| *no).collect();
        // Resources that went with their tracker are in none.
        let mut taken = BTreeSet::new();
        for tracker in self.trackers.values_mut() {
            taken.extend(tracker.resources.extract_if(.., |resource| orphans.contains(resource)));
        }
        taken
    }

    /// The product of a responsibility's symbols, if it has any.
    pub(super) fn product_of(&self, duty: usize) -> Option<usize> {
        self.provided_by(Provider::Duty(duty)).first().and_then(|first| self.definitions[first].product)
    }

    /// With their tracker. Gives its resources; nothing if it is defunct.
    pub(super) fn remove_tracker(&mut self, number: usize) -> Vec<usize> {
        let Some(Tracker { dylib, resources }) = self.trackers.remove(&number) else { return Vec::new() };
        self.forget(&self.numbers(|definition| definition.tracker == number), false);
        if self.dylibs[&dylib].default_tracker == number {
            let fresh = self.number();
            self.trackers.insert(fresh, Tracker { dylib, resources: Vec::new() });
            self.dylibs.get_mut(&dylib).expect("a tracker has a dylib").default_tracker = fresh;
        }
        resources
    }

    /// A tracker of a dylib; defunct from the start if that is gone.
    pub(super) fn create_tracker(&mut self, dylib: usize) -> usize {
        let number = self.number();
        if self.dylibs.contains_key(&dylib) {
            self.trackers.insert(number, Tracker { dylib, resources: Vec::new() });
        }
        number
    }

    /// All a tracker has is another's from now on. A default tracker stays; any other is defunct.
    pub(super) fn transfer(&mut self, source: usize, destination: usize) -> bool {
        if !self.trackers.contains_key(&source) || !self.trackers.contains_key(&destination) {
            return false;
        }
        if source == destination {
            return true;
        }
        let Tracker { dylib, resources } = self.trackers[&source].clone();
        self.trackers.get_mut(&destination).expect("it is there").resources.extend(resources);
        for number in self.numbers(|definition| definition.tracker == source) {
            let definition = self.definition(number);
            definition.tracker = destination;
            // A responsibility without symbols has nothing by which to follow.
            if let Provider::Duty(duty) = definition.provider {
                self.duties.get_mut(&duty).expect("it provides").tracker = destination;
            }
        }
        self.trackers.get_mut(&source).expect("it is there").resources.clear();
        if self.dylibs[&dylib].default_tracker != source {
            self.trackers.remove(&source);
        }
        true
    }

    /// Refused by a tracker that is defunct, or when all has ended.
    pub(super) fn add_resource(&mut self, tracker: usize, resource: usize) -> bool {
        let open = self.stage != Stage::Closed;
        match self.trackers.get_mut(&tracker).filter(|_| open) {
            Some(tracker) => tracker.resources.push(resource),
            None => drop(self.news.resources_refused.insert(resource)),
        }
        !self.news.resources_refused.contains(&resource)
    }

    /// To the tracker where the symbols of a responsibility are.
    pub(super) fn add_resource_of_duty(&mut self, duty: usize, resource: usize) -> bool {
        let Duty { lives, tracker, .. } = self.duties[&duty];
        // No tracker has this number.
        let added = self.add_resource(if lives { tracker } else { 0 }, resource);
        let own = self.provided_by(Provider::Duty(duty));
        if added && !own.is_empty() {
            let product = self.product_of(duty).unwrap_or_else(|| self.number());
            self.part_of.insert(resource, product);
            own.into_iter().for_each(|number| self.definition(number).product = Some(product));
        }
        added
    }

    /// Every tracker of the dylib, at one moment. Gives their resources, those of the oldest first.
    pub(super) fn clear(&mut self, dylib: usize) -> Vec<usize> {
        let trackers: Vec<_> =
            self.trackers.iter().filter(|(_, tracker)| tracker.dylib == dylib).map(|(no, _)| *no).collect();
        self.forget(&self.numbers(|definition| definition.dylib == dylib), false);
        trackers.into_iter().flat_map(|tracker| self.remove_tracker(tracker)).collect()
    }

    /// A dylib goes with all it has; lookups on their way along it fail.
    pub(super) fn remove_dylib(&mut self, number: usize) -> Vec<usize> {
        if !self.dylibs.contains_key(&number) {
            return Vec::new();
        }
        let queries: Vec<_> = self.queries.keys().copied().collect();
        for query in queries {
            let Query { order, phase, .. } = &self.queries[&query];
            if matches!(phase, Phase::Walking(_)) && order.iter().any(|(dylib, _)| *dylib == number) {
                self.fail_query(query, Wrong::DylibRemoved(number));
            }
        }
        let resources = self.clear(number);
        for generator in self.dylibs[&number].generators.clone() {
            self.remove_generator(generator);
        }
        self.trackers.remove(&self.dylibs[&number].default_tracker);
        self.dylibs.remove(&number);
        for other in self.dylibs.values_mut() {
            other.order.retain(|(dylib, _)| *dylib != number);
        }
        resources
    }

    /// Says whether all dylibs are there.
    pub(super) fn set_order(&mut self, dylib: usize, order: &[(usize, bool)]) -> bool {
        let there = order.iter().all(|(linked, _)| self.dylibs.contains_key(linked));
        match self.dylibs.get_mut(&dylib).filter(|_| there) {
            Some(dylib) => dylib.order = order.to_vec(),
            None => return false,
        }
        true
    }

    /// The same; one that is in the order already stays as it is.
    pub(super) fn add_to_order(&mut self, dylib: usize, added: usize, all: bool) -> bool {
        let Some(mut order) = self.dylibs.get(&dylib).map(|dylib| dylib.order.clone()) else { return false };
        if !order.iter().any(|(linked, _)| *linked == added) {
            order.push((added, all));
        }
        self.set_order(dylib, &order)
    }

    pub(super) fn remove_from_order(&mut self, dylib: usize, removed: usize) {
        if let Some(dylib) = self.dylibs.get_mut(&dylib) {
            dylib.order.retain(|(linked, _)| *linked != removed);
        }
    }

    /// Every dylib that orders lead to, each once, itself before those it links against.
    pub(super) fn depth_first(&self, dylib: usize, order: &mut Vec<usize>) {
        if !order.contains(&dylib) {
            order.push(dylib);
            self.dylibs[&dylib].order.iter().for_each(|(next, _)| self.depth_first(*next, order));
        }
    }

    /// All changes or none: on a copy, which takes this world's place if every change is accepted. Gives what it has
    /// taken out, or the first change that is refused.
    pub(super) fn commit(&mut self, changes: &[Change], by_task: bool) -> Result<Removed, (usize, Refusal)> {
        let mut after = self.clone();
        let (mut resources, mut orphans) = (Vec::new(), BTreeSet::new());
        for (step, change) in changes.iter().enumerate() {
            after.make(change, by_task, &mut resources).map_err(|refusal| (step, refusal))?;
            orphans.extend(after.take_orphans());
        }
        orphans.extend(after.sweep());
        *self = after;
        Ok((resources, orphans))
    }

    fn make(
        &mut self,
        change: &Change,
        by_task: bool,
        resources: &mut Vec<Vec<usize>>,
    ) -> Result<(), Refusal> {
        let or_removed = |there: bool| if there { Ok(()) } else { Err(Refusal::DylibRemoved) };
        match *change {
            Change::Define { dylib, tracker, ref arrival, replaces } => {
                // Symbols that cannot be defined are not removed for it either; the copy forgets that they were.
                if replaces && self.dylibs.contains_key(&dylib) && self.admits(by_task) {
                    let tracker_lives = tracker.is_none_or(|tracker| self.trackers.contains_key(&tracker));
                    let names = arrival.symbols.keys().copied();
                    let names: Vec<_> = names.filter(|&name| self.find(dylib, name).is_some()).collect();
                    if tracker_lives {
                        self.remove_named(dylib, &names)?;
                    }
                }
                self.define(dylib, tracker, arrival, by_task)
            }
            Change::Remove { dylib, ref names } => self.remove_named(dylib, names),
            Change::RemoveTracker { dylib, tracker } => {
                let default = || Some(self.dylibs.get(&dylib)?.default_tracker);
                if let Some(tracker) = tracker.or_else(default).filter(|it| self.trackers.contains_key(it)) {
                    resources.push(self.remove_tracker(tracker));
                }
                Ok(())
            }
            Change::SetOrder { dylib, ref order } => or_removed(self.set_order(dylib, order)),
            Change::AddToOrder { dylib, added, all } => or_removed(self.add_to_order(dylib, added, all)),
            Change::RemoveFromOrder { dylib, removed } => {
                self.remove_from_order(dylib, removed);
                Ok(())
            }
        }
    }

    /// No more work is taken from outside; or none at all, and none starts.
    pub(super) fn start_closing(&mut self, cancel: bool) {
        self.stage = match (self.stage, cancel) {
            (Stage::Closed, _) => Stage::Closed,
            (Stage::Cancelled, _) | (_, true) => Stage::Cancelled,
            _ => Stage::Draining,
        };
    }

    /// Everything ends. Gives the dylibs, newest first, and the resources of each.
    pub(super) fn end(&mut self) -> Vec<(usize, Vec<usize>)> {
        self.stage = Stage::Closed;
        let queries: Vec<_> = self.queries.keys().copied().collect();
        queries.into_iter().for_each(|query| self.fail_query(query, Wrong::Closed));
        let dylibs: Vec<_> = self.dylibs.keys().rev().copied().collect();
        let end = |dylib: usize| {
            let resources = self.clear(dylib);
            let generators = self.dylibs[&dylib].generators.clone();
            generators.into_iter().for_each(|generator| self.remove_generator(generator));
            (dylib, resources)
        };
        dylibs.into_iter().map(end).collect()
    }

    /// Definitions go: waiters of one that is not Ready fall.
    pub(super) fn forget(&mut self, numbers: &[usize], tells: bool) {
        let mut broken = Vec::new();
        for &number in numbers {
            let Definition { dylib, name, unit, standing, .. } = self.definitions[&number];
            if matches!(standing, Standing::Materializing | Standing::Resolved | Standing::Emitted) {
                let event = self.happen(Broken::Removed, unit, dylib, [name].into());
                broken.push((number, event));
            }
        }
        let providers: Vec<_> = numbers.iter().map(|number| self.definitions[number].provider).collect();
        self.fall(&broken);
        for (&number, provider) in numbers.iter().zip(providers) {
            self.definition(number).provider = provider;
            self.take_from_unit(number, tells);
            self.delete(number);
        }
    }
}
