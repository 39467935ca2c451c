//! The rules of definitions: who wins, who yields, who is refused.

use std::collections::{BTreeMap, BTreeSet};

use crate::SymbolFlags;

use super::world::*;

/// A unit that comes into a dylib.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) unit: usize,
    pub(super) symbols: BTreeMap<usize, SymbolFlags>,
    /// Their addresses are known.
    pub(super) known: bool,
    /// The name that stands for its initialisers.
    pub(super) initializer: Option<usize>,
    /// The serial queue of its tasks.
    pub(super) queue: Option<usize>,
}

impl World {
    /// A definition of many symbols is accepted whole or not at all.
    pub(super) fn define(
        &mut self,
        dylib: usize,
        tracker: Option<usize>,
        arrival: &Arrival,
        by_task: bool,
    ) -> Result<(), Refusal> {
        let &Arrival { unit, ref symbols, known, initializer, queue } = arrival;
        let admitted = self.admit(dylib, tracker, by_task).and_then(|tracker| {
            let duplicates = self.duplicates(dylib, symbols);
            if duplicates.is_empty() { Ok(tracker) } else { Err(Refusal::Duplicate(duplicates)) }
        });
        let tracker = match admitted {
            Ok(tracker) => tracker,
            Err(refusal) => {
                if !known {
                    self.news.refused.insert(unit);
                }
                return Err(refusal);
            }
        };
        let accepted = self.compete(dylib, symbols);
        let yielding: BTreeSet<_> =
            symbols.keys().filter(|name| !accepted.contains_key(name)).copied().collect();
        let initialized = initializer.filter(|name| accepted.contains_key(name));
        if initializer.is_some() && initialized.is_none() {
            self.news.initializers_gone.insert(unit);
        }
        if !known {
            match accepted.is_empty() {
                true => drop(self.news.left.insert(unit, yielding)),
                false => {
                    let waiting = Unit { discarded: yielding, initializer: initialized, queue };
                    self.units.insert(unit, waiting);
                }
            }
        }
        for (name, flags) in accepted {
            let effects_only = flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY);
            let place = Place { dylib, tracker, unit };
            let number = self.insert(place, name, flags);
            let definition = self.definition(number);
            definition.provider = if known { Provider::Known } else { Provider::Unit(unit) };
            definition.initializer = (initialized == Some(name)).then_some(unit);
            if known && !effects_only {
                definition.address = address_of(unit, name);
            }
        }
        Ok(())
    }

    /// A responsibility takes on further symbols.
    pub(super) fn define_more(
        &mut self,
        number: usize,
        symbols: &BTreeMap<usize, SymbolFlags>,
    ) -> Result<BTreeSet<usize>, Refusal> {
        let Duty { lives, dylib, tracker, unit, .. } = self.duties[&number];
        if !lives || !self.trackers.contains_key(&tracker) || self.stage == Stage::Closed {
            return Err(Refusal::TrackerDefunct);
        }
        let duplicates = self.duplicates(dylib, symbols);
        if !duplicates.is_empty() {
            return Err(Refusal::Duplicate(duplicates));
        }
        let accepted = self.compete(dylib, symbols);
        let product = self.product_of(number);
        for (&name, &flags) in &accepted {
            let definition = self.insert(Place { dylib, tracker, unit }, name, flags);
            let definition = self.definition(definition);
            definition.product = product;
            definition.provider = Provider::Duty(number);
            definition.standing = Standing::Materializing;
        }
        let names = accepted.keys().copied().collect();
        self.duties.get_mut(&number).expect("it is there").covered.extend(accepted);
        Ok(names)
    }

    /// A responsibility hands its symbols to another unit: at once to be materialized if one of them is wanted.
    pub(super) fn replace(&mut self, number: usize, arrival: &Arrival) -> Result<(), Refusal> {
        let refusal = self.refuses_replacement(number, arrival);
        if refusal.is_some() || self.duties[&number].covered.is_empty() {
            self.news.refused.insert(arrival.unit);
            return match refusal {
                Some(refusal) => Err(refusal),
                None => {
                    self.duties.remove(&number);
                    Ok(())
                }
            };
        }
        let own = self.provided_by(Provider::Duty(number));
        self.duties.remove(&number);
        let unit = arrival.unit;
        let Arrival { initializer, queue, .. } = *arrival;
        let waiting = Unit { initializer, queue, discarded: BTreeSet::new() };
        self.units.insert(unit, waiting);
        for &definition in &own {
            let definition = self.definition(definition);
            (definition.unit, definition.provider) = (unit, Provider::Unit(unit));
            definition.standing = Standing::Returned;
        }
        if own.iter().any(|&definition| self.is_demanded(definition)) {
            self.search(own[0]);
        }
        Ok(())
    }

    fn refuses_replacement(&self, number: usize, arrival: &Arrival) -> Option<Refusal> {
        let Duty { lives, covered, .. } = &self.duties[&number];
        if !lives {
            return Some(Refusal::TrackerDefunct);
        }
        let (given, covers): (BTreeSet<_>, BTreeSet<_>) =
            (arrival.symbols.keys().copied().collect(), covered.keys().copied().collect());
        if given != covers {
            return Some(Refusal::NotCovered(given.symmetric_difference(&covers).copied().collect()));
        }
        let differs = |name: &usize| {
            arrival.symbols[name].without_weak_and_common() != covered[name].without_weak_and_common()
        };
        let different: BTreeSet<_> = given.into_iter().filter(differs).collect();
        (!different.is_empty()).then_some(Refusal::Flags(different))
    }

    /// Some of a responsibility's symbols become another's. None if its symbols were removed.
    pub(super) fn delegate(&mut self, number: usize, names: &BTreeSet<usize>) -> Option<usize> {
        let delegate = self.number();
        let duty = self.duties.get_mut(&number).filter(|duty| duty.lives)?;
        let mut part = duty.clone();
        part.covered.retain(|name, _| names.contains(name));
        duty.covered.retain(|name, _| !names.contains(name));
        part.initializer = duty.initializer.take_if(|name| names.contains(name));
        self.duties.insert(delegate, part);
        for definition in self.provided_by(Provider::Duty(number)) {
            let definition = self.definition(definition);
            if names.contains(&definition.name) {
                definition.provider = Provider::Duty(delegate);
            }
        }
        Some(delegate)
    }

    /// Whether a claimed unit may start: not if its symbols are gone, not if all is cancelled, and if it is not wanted
    /// any more it goes back to wait.
    pub(super) fn begin(&mut self, number: usize) -> bool {
        let duty = self.duties[&number].clone();
        let own = self.provided_by(Provider::Duty(number));
        let cancelled = matches!(self.stage, Stage::Cancelled | Stage::Closed);
        if !duty.lives || cancelled {
            self.news.refused.insert(duty.unit);
            self.fail(number, Broken::Closed);
            return false;
        }
        if own.iter().any(|&definition| self.is_demanded(definition)) {
            self.duties.get_mut(&number).expect("it is there").step = Step::Begun;
            return true;
        }
        self.duties.remove(&number);
        let waiting = Unit { discarded: duty.discarded, initializer: duty.initializer, queue: duty.queue };
        self.units.insert(duty.unit, waiting);
        for definition in own {
            let definition = self.definition(definition);
            (definition.provider, definition.standing) = (Provider::Unit(duty.unit), Standing::Returned);
        }
        false
    }

    /// The tracker of a definition that is admitted.
    fn admit(&self, dylib: usize, tracker: Option<usize>, by_task: bool) -> Result<usize, Refusal> {
        if !self.admits(by_task) {
            return Err(Refusal::Closed);
        }
        let dylib = self.dylibs.get(&dylib).ok_or(Refusal::DylibRemoved)?;
        let tracker = tracker.unwrap_or(dylib.default_tracker);
        if self.trackers.contains_key(&tracker) { Ok(tracker) } else { Err(Refusal::TrackerDefunct) }
    }

    /// The strong ones among `symbols` for which there is something already that does not yield: it is strong, or
    /// was searched.
    fn duplicates(&self, dylib: usize, symbols: &BTreeMap<usize, SymbolFlags>) -> BTreeSet<usize> {
        let clashes = |name: usize, flags: SymbolFlags| {
            !flags.is_weak_or_common()
                && self.find(dylib, name).is_some_and(|existing| {
                    let existing = &self.definitions[&existing];
                    if existing.has_failed() {
                        return false;
                    }
                    !existing.flags.is_weak_or_common() || existing.standing != Standing::NeverSearched
                })
        };
        symbols.iter().filter(|(name, flags)| clashes(**name, **flags)).map(|(name, _)| *name).collect()
    }

    /// Where nothing clashes: strong ones take the places of what exists, weak and common ones yield to it. Gives those
    /// that do not yield.
    fn compete(
        &mut self,
        dylib: usize,
        symbols: &BTreeMap<usize, SymbolFlags>,
    ) -> BTreeMap<usize, SymbolFlags> {
        let mut accepted = BTreeMap::new();
        for (&name, &flags) in symbols {
            match self.find(dylib, name) {
                Some(existing) if flags.is_weak_or_common() && !self.definitions[&existing].has_failed() => {
                    continue;
                }
                Some(existing) => {
                    let product = self.definitions[&existing].product;
                    self.take_from_unit(existing, true);
                    self.delete(existing);
                    self.drop_if_left(product);
                }
                None => {}
            }
            accepted.insert(name, flags);
        }
        accepted
    }

    /// The resources of a failed unit go with the last of its symbols.
    fn drop_if_left(&mut self, product: Option<usize>) {
        if product.is_none() || self.definitions.values().any(|definition| definition.product == product) {
            return;
        }
        let part_of = &self.part_of;
        for tracker in self.trackers.values_mut() {
            let left = tracker.resources.extract_if(.., |resource| part_of.get(resource) == product.as_ref());
            self.news.resources_refused.extend(left);
        }
    }

    fn insert(&mut self, place: Place, name: usize, flags: SymbolFlags) -> usize {
        let Place { dylib, tracker, unit } = place;
        let number = self.number();
        let definition = Definition {
            dylib,
            name,
            flags,
            tracker,
            unit,
            provider: Provider::Nobody,
            standing: Standing::NeverSearched,
            address: 0,
            needs: BTreeSet::new(),
            kept_needs: BTreeSet::new(),
            emission: None,
            initializer: None,
            product: None,
            causes: BTreeSet::new(),
        };
        self.definitions.insert(number, definition);
        self.ever.insert(number, (name, BTreeSet::new()));
        number
    }
}

impl Definition {
    fn has_failed(&self) -> bool {
        self.standing == Standing::Failed
    }
}

/// Where a definition goes, and from what unit it comes.
#[derive(Clone, Copy)]
struct Place {
    dylib: usize,
    tracker: usize,
    unit: usize,
}

/// Where a unit puts a symbol: no two of them at one place.
pub(super) fn address_of(unit: usize, name: usize) -> u64 {
    0x1000 + 64 * unit as u64 + name as u64
}
