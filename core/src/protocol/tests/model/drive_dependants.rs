//! Removal of trackers, and of those who need them, in both.

use std::collections::BTreeSet;

use crate::protocol::removal::policy::OnDependants;
use crate::protocol::state::definitions::row::RowState;
use crate::protocol::state::effects::Effects;
use crate::{RemoveError, SymbolFlags};

use super::drive_definitions::numbers_in;
use super::driver::{Harness, number_in, pick};
use super::world::Refusal;

impl Harness {
    /// A tracker with a handle, or a default one; mostly one whose symbols are needed.
    pub(super) fn remove_tracker(&mut self, choice: usize, on_dependants: OnDependants) {
        let is_needed = |number: &&usize| !self.world.dependants_of(&[**number].into()).is_empty();
        let needed = self.world.definitions.keys().filter(is_needed);
        let needed: Vec<_> = needed.map(|number| self.world.definitions[number].tracker).collect();
        let aim = pick(&needed, choice).filter(|_| !choice.is_multiple_of(4));
        let Some(tracker) = aim.or_else(|| self.any_tracker(choice)) else { return };
        let mut effects = Effects::default();
        let id = self.ids.trackers[&tracker];
        let before = self.world.definitions.clone();
        let name_of = |number: &usize| before[number].name;
        let outcome = self.state.remove_tracker_with(id, on_dependants, || "d0".into(), &mut effects);
        match (outcome, self.world.remove_tracker_with(tracker, on_dependants)) {
            (Ok(removed), Ok((own, orphans))) => {
                let removed = removed.into_vec();
                assert_eq!(removed[..own.len()], own, "resources of a removed tracker");
                let others: BTreeSet<_> = removed[own.len()..].iter().copied().collect();
                assert_eq!(others, orphans, "resources of dependants");
            }
            (Err(RemoveError::Needed { symbol, dependants, count, .. }), Err(Refusal::Needed(staying))) => {
                let effects_only = SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY;
                let tells = |number: &&usize| !before[number].flags.contains(effects_only);
                let telling: BTreeSet<_> = staying.iter().filter(tells).copied().collect();
                let told = if telling.is_empty() { &staying } else { &telling };
                assert_eq!(count, told.len(), "how many dependants stay");
                assert_eq!(numbers_in(&dependants), told.iter().map(name_of).collect(), "who stays");
                // Their other needs may be gone, removed without them.
                let goes = |need: &&usize| before.get(need).is_some_and(|need| need.tracker == tracker);
                let mut needed = staying.iter().flat_map(|it| before[it].kept_needs.iter().filter(goes));
                let named = number_in(symbol.as_str());
                assert!(needed.any(|need| name_of(need) == named), "what they need");
            }
            (Err(RemoveError::DependantsNotKept { .. }), Err(Refusal::DependantsNotKept)) => {}
            (outcome, expected) => {
                panic!(
                    "the state says {:?}, the model {expected:?}",
                    outcome.map(|removed| removed.into_vec())
                )
            }
        }
        self.follow(effects);
    }

    /// The state knows of each definition who needs it.
    pub(super) fn compare_dependants(&self) {
        for &number in self.world.definitions.keys() {
            let stands = |number: &usize| {
                let state = &self.state.definitions[self.ids.definitions[number]].state;
                matches!(state, RowState::Emitted { .. } | RowState::Ready { .. })
            };
            let known = self.state.dependants.of(self.ids.definitions[&number]);
            let known = known.filter_map(|row| self.ids.numbers.get(&row).copied());
            let known: BTreeSet<_> =
                known.filter(|number| self.world.definitions.contains_key(number)).filter(stands).collect();
            assert_eq!(known, self.world.dependants_of(&[number].into()), "who needs {number}");
        }
    }
}
