//! The rules of dependants: who counts, who is refused, who goes along.

use std::collections::BTreeSet;

use crate::RemovalPolicy;
use crate::protocol::removal::policy::OnDependants;

use super::world::*;

/// Whether the dylibs of a slot keep who depends on their symbols.
pub(super) fn keeps_dependants(slot: usize) -> bool {
    slot != 1
}

impl World {
    /// Those of `needs` that are kept for an emission by this responsibility.
    pub(super) fn kept_of(&self, duty: usize, needs: &BTreeSet<usize>) -> BTreeSet<usize> {
        let is_kept = |need: &usize| {
            let needed = &self.definitions[need];
            needed.provider != Provider::Duty(duty) && self.dylibs[&needed.dylib].keeps_dependants
        };
        needs.iter().copied().filter(is_kept).collect()
    }

    /// The definitions in place that need one of these directly.
    pub(super) fn dependants_of(&self, these: &BTreeSet<usize>) -> BTreeSet<usize> {
        let stands =
            |definition: &Definition| matches!(definition.standing, Standing::Emitted | Standing::Ready);
        self.numbers(|definition| stands(definition) && !definition.kept_needs.is_disjoint(these))
            .into_iter()
            .collect()
    }

    /// A tracker goes as the policy says. Gives its resources, and those of dependants that went along.
    pub(super) fn remove_tracker_with(
        &mut self,
        tracker: usize,
        on_dependants: OnDependants,
    ) -> Result<(Vec<usize>, BTreeSet<usize>), Refusal> {
        let Some(Tracker { dylib, .. }) = self.trackers.get(&tracker) else {
            return Ok((Vec::new(), BTreeSet::new()));
        };
        let own: BTreeSet<_> = self.numbers(|definition| definition.tracker == tracker).into_iter().collect();
        let mut orphans = BTreeSet::new();
        match (on_dependants, self.dylibs[dylib].keeps_dependants) {
            (OnDependants::Policy(_), false) => return Err(Refusal::DependantsNotKept),
            (OnDependants::AsKept, false) | (OnDependants::Leave, _) => {}
            (OnDependants::AsKept | OnDependants::Policy(RemovalPolicy::Refuse), true) => {
                let staying: BTreeSet<_> = &self.dependants_of(&own) - &own;
                if !staying.is_empty() {
                    return Err(Refusal::Needed(staying));
                }
            }
            (OnDependants::Policy(RemovalPolicy::Cascade), true) => orphans = self.cascade(&own),
        }
        Ok((self.remove_tracker(tracker), orphans))
    }

    /// All that needs one of these, directly or through others, goes with what it was emitted with; these stay.
    fn cascade(&mut self, these: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut going = these.clone();
        loop {
            let emissions: BTreeSet<_> =
                self.dependants_of(&going).iter().filter_map(|it| self.definitions[it].emission).collect();
            let together = self.numbers(|definition| {
                definition.emission.is_some_and(|emission| emissions.contains(&emission))
            });
            let before = going.len();
            going.extend(together);
            if going.len() == before {
                break;
            }
        }
        let along: Vec<_> = (&going - these).into_iter().collect();
        for number in &along {
            self.shrunk.extend(self.definitions[number].product.map(Shrunk::Product));
        }
        self.forget(&along, true);
        self.sweep()
    }
}
