//! Responsibilities: what units do once they have been claimed, in both.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::SessionTag;
use crate::protocol::state::effects::Effects;
use crate::{
    DependenceGroup, Dependency, EmitError, ExecutorAddr, ExecutorSymbolDef, FailureCause, ResolveError,
    SymbolFlags, SymbolMap, SymbolName, shared_error,
};

use super::define::{Arrival, address_of};
use super::drive_definitions::{agree_on_definition, numbers_in};
use super::driver::{Harness, Responsibility, number_in};
use super::materialize::{Group, Refused};
use super::operation::{self, Fault, NAMES, Symbol};
use super::world::{Broken, Found, Step};

impl Harness {
    pub(super) fn work(&mut self, choice: usize, groups: &[operation::Group], fault: Fault) {
        let Some(duty) = self.pick(choice, &[Step::Queued, Step::Begun, Step::Resolved]) else { return };
        match self.world.duties[&duty].step {
            // It is not its turn while another's task is blocked.
            Step::Queued if self.world.waits_for_turn(duty) => {}
            Step::Queued => self.begin(duty),
            Step::Begun => self.resolve_somehow(duty, fault),
            Step::Resolved => self.emit_somehow(duty, groups, fault),
        }
    }

    fn begin(&mut self, duty: usize) {
        let mut effects = Effects::default();
        let responsibility = self.responsibilities.get_mut(&duty).expect("just picked");
        let claimed = responsibility.queued.take().expect("it has not begun");
        let losses = claimed.losses;
        let begun = self.state.begin(claimed, &mut effects).is_some();
        assert_eq!(begun, self.world.begin(duty));
        assert!(begun || losses != self.state.losses().count(), "a loss of demand was not counted");
        match begun {
            true => self.begins_aliases(duty),
            false => drop(self.responsibilities.remove(&duty)),
        }
        self.follow(effects);
    }

    fn resolve_somehow(&mut self, duty: usize, fault: Fault) {
        let unit = self.world.duties[&duty].unit;
        let covered = &self.world.duties[&duty].covered;
        let effects_only = SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY;
        let mut given: BTreeMap<usize, Found> = covered
            .iter()
            .filter(|(_, flags)| !flags.contains(effects_only))
            .map(|(name, flags)| (*name, (address_of(unit, *name), *flags)))
            .collect();
        match fault {
            Fault::None => {}
            Fault::LeavesOneOut => drop(given.pop_first()),
            Fault::AddsOne => {
                let other = (0..NAMES).find(|name| !given.contains_key(name));
                given.extend(other.map(|name| (name, (1, SymbolFlags::EXPORTED))));
            }
            Fault::ChangesFlags => {
                given.values_mut().take(1).for_each(|(_, flags)| flags.toggle(SymbolFlags::CALLABLE));
            }
        }
        self.resolve(duty, &given);
    }

    /// Says whether the addresses were accepted.
    pub(super) fn resolve(&mut self, duty: usize, given: &BTreeMap<usize, Found>) -> bool {
        let mut effects = Effects::default();
        let at = |(&name, &(address, flags)): (&usize, &Found)| {
            (self.name(name), ExecutorSymbolDef::new(ExecutorAddr::new(address), flags))
        };
        let addresses: SymbolMap = given.iter().map(at).collect();
        let Responsibility { claim, covered, unit_name, .. } = &self.responsibilities[&duty];
        let outcome = self.state.resolve(*claim, unit_name, covered, &addresses, &mut effects);
        let refused = self.world.resolve(duty, given);
        let agrees = match &outcome {
            Ok(()) => refused.is_empty(),
            Err(error) => refused.iter().any(|refused| match (error, refused) {
                (ResolveError::TrackerDefunct { .. }, Refused::Defunct) => true,
                (ResolveError::Missing { symbols, .. }, Refused::Missing(names))
                | (ResolveError::Unexpected { symbols, .. }, Refused::Unexpected(names)) => {
                    numbers_in(symbols) == *names
                }
                (ResolveError::Flags { symbol, .. }, Refused::Flags(names)) => {
                    names.contains(&number_in(symbol.as_str()))
                }
                _ => false,
            }),
        };
        assert!(agrees, "the state says {outcome:?}, the model {refused:?}");
        self.follow(effects);
        refused.is_empty()
    }

    fn emit_somehow(&mut self, duty: usize, groups: &[operation::Group], fault: Fault) {
        let covered: BTreeSet<_> = self.world.duties[&duty].covered.keys().copied().collect();
        let mut left = covered.clone();
        let mut chosen = Vec::new();
        for group in groups {
            let symbols: BTreeSet<_> =
                left.iter().filter(|name| group.symbols >> **name & 1 == 1).copied().collect();
            left.retain(|name| !symbols.contains(name));
            let mut needs: BTreeSet<_> = group.needs.iter().filter_map(|&choice| self.aim(choice)).collect();
            let is_gone = |number: &&usize| !self.world.definitions.contains_key(number);
            needs.extend(self.ids.definitions.keys().find(is_gone).filter(|_| group.stale));
            chosen.push(Group { symbols, needs });
        }
        let mut misnamed = BTreeSet::new();
        if let Some(first) = chosen.first_mut() {
            misnamed = match fault {
                Fault::AddsOne => (0..NAMES).find(|name| !covered.contains(name)).into_iter().collect(),
                // A second time, in a group of its own.
                Fault::LeavesOneOut => first.symbols.first().copied().into_iter().collect(),
                _ => BTreeSet::new(),
            };
            let extra = Group { symbols: misnamed.clone(), needs: BTreeSet::new() };
            chosen.extend((!misnamed.is_empty()).then_some(extra));
        }
        self.emit(duty, &chosen, &misnamed);
    }

    /// Says whether the emission was accepted. `misnamed` are names in the groups that the unit does not have, or that are
    /// there twice.
    pub(super) fn emit(&mut self, duty: usize, groups: &[Group], misnamed: &BTreeSet<usize>) -> bool {
        let mut effects = Effects::default();
        let token =
            |need: &usize| Dependency { row: self.ids.definitions[need], session: SessionTag::default() };
        let group = |group: &Group| DependenceGroup {
            symbols: group.symbols.iter().map(|&name| self.name(name)).collect(),
            dependencies: group.needs.iter().map(token).collect(),
        };
        let tokens: Vec<_> = groups.iter().map(group).collect();
        let Responsibility { claim, covered, unit_name, .. } = &self.responsibilities[&duty];
        let outcome = self.state.emit(*claim, unit_name, covered, &tokens, &mut effects);
        let refused = self.world.emit(duty, groups, misnamed);
        let agrees = match &outcome {
            Ok(()) => refused.is_empty(),
            Err(error) => refused.iter().any(|refused| match (error, refused) {
                (EmitError::TrackerDefunct { .. }, Refused::Defunct)
                | (EmitError::DependencyRemoved { .. }, Refused::DependencyRemoved) => true,
                (EmitError::Unexpected { symbols, .. }, Refused::Unexpected(names)) => {
                    numbers_in(symbols) == *names
                }
                (EmitError::DependencyFailed { failure, .. }, Refused::DependencyFailed(failed)) => {
                    let definitions = &self.world.definitions;
                    let causes = failed.iter().flat_map(|number| &definitions[number].causes);
                    let causes: BTreeSet<_> = causes.copied().collect();
                    self.hear(failure, failed, &causes).is_some()
                }
                _ => false,
            }),
        };
        assert!(agrees, "the state says {outcome:?}, the model {refused:?}");
        if let Err(EmitError::DependencyFailed { failure, .. }) = &outcome {
            self.tell_of(failure);
        }
        if outcome.is_ok() {
            self.responsibilities.remove(&duty);
        }
        self.follow(effects);
        refused.is_empty()
    }

    /// At any step.
    pub(super) fn fail_one(&mut self, choice: usize) {
        if let Some(duty) = self.pick(choice, &[Step::Queued, Step::Begun, Step::Resolved]) {
            self.fail(duty, Broken::Unit);
        }
    }

    pub(super) fn fail(&mut self, duty: usize, kind: Broken) {
        let mut effects = Effects::default();
        let event = self.world.fail(duty, kind);
        let cause = FailureCause::Unit(shared_error(format!("e{}", event.unwrap_or_default())));
        let responsibility = self.responsibilities.remove(&duty).expect("it is there");
        self.state.fail(responsibility.claim, cause, &mut effects);
        self.follow(effects);
    }

    pub(super) fn delegate_one(&mut self, choice: usize, names: u8) {
        let Some(duty) = self.pick(choice, &[Step::Begun]) else { return };
        let covered = self.world.duties[&duty].covered.keys();
        let names = covered.filter(|name| names >> **name & 1 == 1).copied().collect();
        self.delegate(duty, names);
    }

    /// Gives the number of the new responsibility, if the symbols have not been removed.
    pub(super) fn delegate(&mut self, duty: usize, names: BTreeSet<usize>) -> Option<usize> {
        let delegate = self.world.delegate(duty, &names);
        let chosen: Vec<SymbolName> = names.iter().map(|&name| self.name(name)).collect();
        let responsibility = self.responsibilities.get_mut(&duty).expect("it is there");
        let claim = self.state.definitions.delegate(responsibility.claim, &chosen);
        assert_eq!(claim.is_some(), delegate.is_some());
        let part = claim.map(|claim| Responsibility {
            claim,
            covered: chosen.iter().filter_map(|name| responsibility.covered.remove_entry(name)).collect(),
            unit_name: responsibility.unit_name.clone(),
            queued: None,
            is_busy: false,
        });
        self.responsibilities.extend(delegate.zip(part));
        self.follow(Effects::default());
        delegate
    }

    pub(super) fn define_more(&mut self, choice: usize, symbols: &[Symbol]) {
        let Some(duty) = self.pick(choice, &[Step::Begun]) else { return };
        let mut effects = Effects::default();
        let symbols = Self::interface(symbols);
        let given = self.flags_map(&symbols);
        let Responsibility { claim, unit_name, .. } = &self.responsibilities[&duty];
        let outcome = self.state.define_materializing(*claim, unit_name, given, &mut effects);
        let expected = self.world.define_more(duty, &symbols);
        if let (Ok(accepted), Ok(names)) = (&outcome, &expected) {
            let accepted: Vec<_> = accepted.keys().cloned().collect();
            assert_eq!(numbers_in(&accepted), *names, "the accepted symbols");
        }
        agree_on_definition(&outcome, &expected.map(drop));
        if let Ok(accepted) = outcome {
            self.responsibilities.get_mut(&duty).expect("it is there").covered.extend(accepted);
        }
        self.follow(effects);
    }

    pub(super) fn replace_one(&mut self, choice: usize, queue: Option<usize>, fault: Fault) {
        let Some(duty) = self.pick(choice, &[Step::Begun]) else { return };
        let mut symbols = self.world.duties[&duty].covered.clone();
        let initializer = self.world.duties[&duty].initializer;
        match fault {
            Fault::None => {}
            Fault::LeavesOneOut => drop(symbols.pop_first()),
            Fault::AddsOne => {
                let other = (0..NAMES).find(|name| !symbols.contains_key(name));
                symbols.extend(other.map(|name| (name, SymbolFlags::EXPORTED)));
            }
            Fault::ChangesFlags => {
                symbols.values_mut().take(1).for_each(|flags| flags.toggle(SymbolFlags::CALLABLE));
            }
        }
        let unit = self.world.number();
        self.replace(duty, &Arrival { unit, symbols, known: false, initializer, queue });
    }

    pub(super) fn replace(&mut self, duty: usize, arrival: &Arrival) {
        let mut effects = Effects::default();
        let definition =
            crate::protocol::symbols::define::Definition { number: None, ..self.definition(arrival, true) };
        let Responsibility { claim, covered, .. } = &self.responsibilities[&duty];
        let outcome = self.state.replace(*claim, covered, definition, arrival.unit, &mut effects);
        agree_on_definition(&outcome, &self.world.replace(duty, arrival));
        if outcome.is_ok() {
            self.responsibilities.remove(&duty);
        }
        self.follow(effects);
    }
}
