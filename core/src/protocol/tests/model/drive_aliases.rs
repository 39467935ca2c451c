//! A unit of aliases, as `units/reexports.rs` has one: it gives back unwanted aliases, looks its sources up, takes their
//! addresses and depends on them.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::RowId;

use super::define::Arrival;
use super::driver::{Chore, Harness};
use super::materialize::Group;
use super::world::{Broken, Duty, Phase, Provider, Query, Searched, Walk};

/// Aliases and the names of their sources.
#[derive(Clone, Debug)]
pub(super) struct AliasUnit {
    pub(super) sources: BTreeMap<usize, usize>,
    /// The dylib of the sources, and whether hidden ones will do; none for the aliases' own.
    pub(super) from: Option<Searched>,
}

/// The answer of a lookup of sources: rows and addresses by name.
pub(super) type AliasAnswer = Option<BTreeMap<usize, (RowId, u64)>>;

impl Harness {
    pub(super) fn look_up_sources(&mut self, duty: usize) {
        let unit = self.world.duties[&duty].unit;
        let AliasUnit { sources, from } = self.aliases[&unit].clone();
        let own = self.world.duties[&duty].dylib;
        let (dylib, all) = from.unwrap_or((own, true));
        self.give_back_unwanted(duty, &sources, from);
        // Each alias has a responsibility and a lookup of its own.
        let mut parts = vec![duty];
        let covered: Vec<_> = self.world.duties[&duty].covered.keys().copied().collect();
        for name in covered.into_iter().skip(1) {
            parts.extend(self.delegate(duty, [name].into()));
        }
        parts.into_iter().for_each(|part| self.look_up_for(part, &sources, (dylib, all)));
    }

    /// Splits off, as a unit to be claimed later, the aliases that were not asked for and that no wanted alias names.
    fn give_back_unwanted(&mut self, duty: usize, sources: &BTreeMap<usize, usize>, from: Option<Searched>) {
        let Duty { covered, dylib, .. } = self.world.duties[&duty].clone();
        let own = from.is_none_or(|(from, _)| from == dylib);
        let mut wanted = BTreeSet::new();
        let mut reached: Vec<_> = self.world.requested(duty).into_iter().collect();
        while let Some(name) = reached.pop() {
            if covered.contains_key(&name) && wanted.insert(name) && own {
                reached.extend(sources.get(&name));
            }
        }
        let unwanted: BTreeSet<_> = covered.keys().filter(|name| !wanted.contains(name)).copied().collect();
        if unwanted.is_empty() {
            return;
        }
        let Some(rest) = self.delegate(duty, unwanted) else { return };
        let unit = self.world.number();
        self.aliases.insert(unit, AliasUnit { sources: sources.clone(), from });
        let symbols = self.world.duties[&rest].covered.clone();
        let initializer = self.world.duties[&rest].initializer;
        self.replace(rest, &Arrival { unit, symbols, known: false, initializer, queue: None });
    }

    fn look_up_for(&mut self, duty: usize, sources: &BTreeMap<usize, usize>, dylib: Searched) {
        self.responsibilities.get_mut(&duty).expect("it is there").is_busy = true;
        // None if it was removed meanwhile.
        let alias = self.world.provided_by(Provider::Duty(duty)).into_iter().next();
        let names = self.world.duties[&duty].covered.keys().map(|name| (sources[name], false));
        let query = Query {
            symbols: names.collect(),
            order: vec![dylib],
            ready: false,
            flags_only: false,
            alias,
            made_for: None,
            phase: Phase::Walking(Walk::default()),
        };
        // It may end at once.
        self.alias_lookups.insert(self.world.next_number(), duty);
        self.start_lookup(query, None, true);
    }

    /// The sources are resolved, or will not be.
    pub(super) fn finish_aliases(&mut self, duty: usize, answer: AliasAnswer) {
        let Some(found) = answer else { return self.fail(duty, Broken::Unit) };
        let unit = self.world.duties[&duty].unit;
        let sources = self.aliases[&unit].sources.clone();
        let covered = self.world.duties[&duty].covered.clone();
        let given =
            covered.iter().map(|(alias, flags)| (*alias, (found[&sources[alias]].1, *flags))).collect();
        if !self.resolve(duty, &given) {
            return self.fail(duty, Broken::Unit);
        }
        let groups: Vec<_> = covered
            .keys()
            .map(|alias| Group {
                symbols: [*alias].into(),
                needs: [self.ids.numbers[&found[&sources[alias]].0]].into(),
            })
            .collect();
        if !self.emit(duty, &groups, &BTreeSet::new()) {
            self.fail(duty, Broken::Unit);
        }
    }

    /// Whether the unit that begins is one of aliases; its work follows.
    pub(super) fn begins_aliases(&mut self, duty: usize) {
        if self.aliases.contains_key(&self.world.duties[&duty].unit) {
            self.chores.push_back(Chore::LookUpSources { duty });
        }
    }
}
