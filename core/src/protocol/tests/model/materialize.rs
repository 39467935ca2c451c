//! The rules of responsibilities: addresses, dependencies, failure.

use std::collections::{BTreeMap, BTreeSet};

use crate::SymbolFlags;

use super::world::*;

/// Symbols of one emission, and what all of them depend on.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) symbols: BTreeSet<usize>,
    pub(super) needs: BTreeSet<usize>,
}

/// Why addresses or an emission were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Defunct,
    Missing(BTreeSet<usize>),
    Unexpected(BTreeSet<usize>),
    /// One of these is not what was promised.
    Flags(BTreeSet<usize>),
    /// One of these has failed.
    DependencyFailed(BTreeSet<usize>),
    DependencyRemoved,
}

impl World {
    /// Addresses for exactly the symbols that have one, as what they were promised. The ways in which that is wrong, if
    /// it is.
    pub(super) fn resolve(&mut self, number: usize, given: &BTreeMap<usize, Found>) -> Vec<Refused> {
        let Duty { lives, covered, .. } = &self.duties[&number];
        if !lives {
            return vec![Refused::Defunct];
        }
        let has_address =
            |flags: &SymbolFlags| !flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY);
        let wanted: BTreeSet<_> =
            covered.iter().filter(|(_, flags)| has_address(flags)).map(|(name, _)| *name).collect();
        let named: BTreeSet<_> = given.keys().copied().collect();
        let (missing, unexpected): (BTreeSet<_>, BTreeSet<_>) = (&wanted - &named, &named - &wanted);
        let differs = |name: &&usize| {
            covered[name].without_weak_and_common() != given[name].1.without_weak_and_common()
        };
        let different: BTreeSet<_> = (&wanted & &named).iter().filter(differs).copied().collect();
        let mut refused = Vec::new();
        if !missing.is_empty() {
            refused.push(Refused::Missing(missing));
        }
        if !unexpected.is_empty() {
            refused.push(Refused::Unexpected(unexpected));
        }
        if !different.is_empty() {
            refused.push(Refused::Flags(different));
        }
        if !refused.is_empty() {
            return refused;
        }
        for definition in self.provided_by(Provider::Duty(number)) {
            let definition = self.definition(definition);
            definition.standing = Standing::Resolved;
            definition.flags = definition.flags.without_common();
            definition.address = given.get(&definition.name).map_or(0, |(address, _)| *address);
        }
        self.duties.get_mut(&number).expect("it is there").step = Step::Resolved;
        refused
    }

    /// All groups, or nothing. `named_twice` says which names the groups do not name once each as symbols of the unit.
    pub(super) fn emit(
        &mut self,
        number: usize,
        groups: &[Group],
        misnamed: &BTreeSet<usize>,
    ) -> Vec<Refused> {
        if !self.duties[&number].lives {
            return vec![Refused::Defunct];
        }
        let needs: BTreeSet<_> = groups.iter().flat_map(|group| &group.needs).copied().collect();
        let failed: BTreeSet<_> =
            needs.iter().filter(|need| self.stands(**need) == Some(Standing::Failed)).copied().collect();
        let mut refused = Vec::new();
        if !misnamed.is_empty() {
            refused.push(Refused::Unexpected(misnamed.clone()));
        } else {
            if !failed.is_empty() {
                refused.push(Refused::DependencyFailed(failed));
            }
            if needs.iter().any(|need| self.stands(*need).is_none()) {
                refused.push(Refused::DependencyRemoved);
            }
        }
        if !refused.is_empty() {
            return refused;
        }
        let own = self.provided_by(Provider::Duty(number));
        let group_of = |world: &Self, definition: usize| {
            let name = world.definitions[&definition].name;
            groups.iter().position(|group| group.symbols.contains(&name))
        };
        // Being depended on is being needed, by those who are still there.
        for &definition in &own {
            if let Some(group) = group_of(self, definition) {
                groups[group].needs.iter().for_each(|&need| self.search(need));
            }
        }
        let emission = self.number();
        let kept: Vec<_> = groups.iter().map(|group| self.kept_of(number, &group.needs)).collect();
        for definition in own {
            let group = group_of(self, definition);
            let needs = group.map_or_else(BTreeSet::new, |group| {
                let unready = |need: &&usize| self.stands(**need) != Some(Standing::Ready);
                groups[group].needs.iter().filter(unready).copied().collect()
            });
            if let Some((_, of_ever)) = self.ever.get_mut(&definition) {
                of_ever.clone_from(&needs);
            }
            let definition = self.definition(definition);
            definition.needs = needs;
            definition.kept_needs = group.map_or_else(BTreeSet::new, |group| kept[group].clone());
            definition.emission = Some(emission);
            definition.standing = Standing::Emitted;
            definition.provider = Provider::Nobody;
        }
        self.duties.remove(&number);
        refused
    }

    /// A responsibility ends without having emitted its symbols. Gives the event, if that fells anything.
    pub(super) fn fail(&mut self, number: usize, kind: Broken) -> Option<usize> {
        let duty = self.duties.remove(&number).expect("it is there");
        let own = self.provided_by(Provider::Duty(number));
        let names: BTreeSet<_> = own.iter().map(|definition| self.definitions[definition].name).collect();
        let unit = own.first().map_or(duty.unit, |definition| self.definitions[definition].unit);
        if own.is_empty() {
            return None;
        }
        let event = self.happen(kind, unit, duty.dylib, names);
        let broken: Vec<_> = own.into_iter().map(|definition| (definition, event)).collect();
        self.fall(&broken);
        Some(event)
    }

    /// The symbols of a responsibility that are wanted.
    pub(super) fn requested(&self, number: usize) -> BTreeSet<usize> {
        let own = self.provided_by(Provider::Duty(number)).into_iter();
        own.filter(|&definition| self.is_demanded(definition))
            .map(|definition| self.definitions[&definition].name)
            .collect()
    }

    fn stands(&self, number: usize) -> Option<Standing> {
        self.definitions.get(&number).map(|definition| definition.standing)
    }
}
