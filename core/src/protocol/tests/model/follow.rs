//! The consequences of a change: symbols become Ready or fall, lookups end, units are claimed or go.

use std::collections::{BTreeMap, BTreeSet};

use crate::SymbolFlags;

use super::world::*;

impl World {
    /// A definition is needed: its unit is claimed, whole, if it was never needed before. One whose address is known is
    /// Ready, and bound.
    pub(super) fn search(&mut self, number: usize) {
        let definition = self.definition(number);
        match definition.provider {
            Provider::Known if definition.standing == Standing::NeverSearched => {
                definition.standing = Standing::Ready;
                definition.flags = definition.flags.without_common();
                definition.provider = Provider::Nobody;
            }
            Provider::Unit(unit) => {
                let duty = self.number();
                let mut covered = BTreeMap::new();
                for number in self.provided_by(Provider::Unit(unit)) {
                    let definition = self.definition(number);
                    definition.provider = Provider::Duty(duty);
                    definition.standing = Standing::Materializing;
                    covered.insert(definition.name, definition.flags);
                }
                self.claim(unit, duty, number, covered);
            }
            _ => {}
        }
    }

    /// A unit that waits goes on its way, with a responsibility for what it covers; `member` is one of its definitions.
    fn claim(&mut self, unit: usize, duty: usize, member: usize, covered: BTreeMap<usize, SymbolFlags>) {
        let Unit { discarded, initializer, queue } = self.units.remove(&unit).expect("the unit waits");
        let Definition { dylib, tracker, .. } = self.definitions[&member];
        let symbols = covered.keys().copied().collect();
        let claimed = Claimed { duty, symbols, initializer, discarded: discarded.clone() };
        self.news.claimed.insert(unit, claimed);
        let step = Step::Queued;
        let duty_of_it =
            Duty { unit, dylib, tracker, covered, initializer, discarded, queue, step, lives: true };
        self.duties.insert(duty, duty_of_it);
    }

    /// Whether a lookup waits for the definition, or something emitted depends on it.
    pub(super) fn is_demanded(&self, number: usize) -> bool {
        let waits = |query: &Query| match &query.phase {
            Phase::Lodged { waits, .. } => waits.iter().any(|(_, waits_for)| *waits_for == number),
            Phase::Walking(_) => false,
        };
        let needs = |definition: &Definition| {
            definition.standing == Standing::Emitted && definition.needs.contains(&number)
        };
        self.queries.values().any(waits) || self.definitions.values().any(needs)
    }

    /// Everything emitted that reaches nothing unemitted is Ready; lookups that have all they asked for are answered.
    pub(super) fn ripen(&mut self) {
        let mut unripe: BTreeSet<usize> = self
            .numbers(|definition| !matches!(definition.standing, Standing::Emitted | Standing::Ready))
            .into_iter()
            .collect();
        loop {
            let more = self.numbers(|definition| {
                definition.standing == Standing::Emitted && !definition.needs.is_disjoint(&unripe)
            });
            let before = unripe.len();
            unripe.extend(more);
            if unripe.len() == before {
                break;
            }
        }
        for (number, definition) in &mut self.definitions {
            if definition.standing == Standing::Emitted && !unripe.contains(number) {
                definition.standing = Standing::Ready;
            }
        }
        self.answer();
    }

    /// The answer of a definition to a lookup, once it is far enough.
    pub(super) fn says(&self, number: usize, ready: bool) -> Option<Found> {
        let definition = self.definitions.get(&number)?;
        let far_enough = match definition.standing {
            Standing::Ready => true,
            Standing::Resolved | Standing::Emitted => !ready,
            _ => false,
        };
        far_enough.then_some((definition.address, definition.flags))
    }

    fn answer(&mut self) {
        let numbers: Vec<_> = self.queries.keys().copied().collect();
        for number in numbers {
            let Query { ready, phase: Phase::Lodged { waits, found, .. }, .. } = &self.queries[&number]
            else {
                continue;
            };
            let (mut left, mut found) = (Vec::new(), found.clone());
            for &(name, definition) in waits {
                match self.says(definition, *ready) {
                    Some(said) => drop(found.insert(name, said)),
                    None => left.push((name, definition)),
                }
            }
            if left.is_empty() {
                // A symbol for side effects only is no part of an answer.
                found.retain(|_, (_, flags)| !flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY));
                self.end_query(number, Outcome::Found(found));
            } else if let Phase::Lodged { waits, found: so_far, .. } =
                &mut self.queries.get_mut(&number).expect("just seen").phase
            {
                (*waits, *so_far) = (left, found);
            }
        }
    }

    pub(super) fn end_query(&mut self, query: usize, outcome: Outcome) {
        if self.queries.remove(&query).is_some() {
            let before = self.news.ended.insert(query, outcome);
            assert!(before.is_none(), "the model ends a lookup twice");
        }
    }

    pub(super) fn fail_query(&mut self, query: usize, wrong: Wrong) {
        self.end_query(query, Outcome::Wrong(vec![wrong]));
    }

    /// These definitions are no more, each by an event: all that is emitted and leads to one of them falls, and so do
    /// lookups that still wait for what fell.
    pub(super) fn fall(&mut self, broken: &[(usize, usize)]) {
        let mut causes: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for &(number, event) in broken {
            causes.entry(number).or_default().insert(event);
        }
        loop {
            let mut changed = false;
            for (&number, definition) in &self.definitions {
                if definition.standing != Standing::Emitted {
                    continue;
                }
                let reached: BTreeSet<_> =
                    definition.needs.iter().filter_map(|need| causes.get(need)).flatten().copied().collect();
                if !reached.is_empty() {
                    let of_this = causes.entry(number).or_default();
                    let before = of_this.len();
                    of_this.extend(reached);
                    changed |= of_this.len() > before;
                }
            }
            if !changed {
                break;
            }
        }
        for (number, causes) in &causes {
            let definition = self.definition(*number);
            definition.standing = Standing::Failed;
            definition.provider = Provider::Nobody;
            definition.causes.clone_from(causes);
        }
        let numbers: Vec<_> = self.queries.keys().copied().collect();
        for query in numbers {
            let Phase::Lodged { waits, .. } = &self.queries[&query].phase else { continue };
            let fallen: BTreeSet<_> = waits
                .iter()
                .map(|(_, number)| *number)
                .filter(|number| causes.contains_key(number))
                .collect();
            if !fallen.is_empty() {
                let wrong = self.failed(fallen, |number| &causes[&number]);
                self.fail_query(query, wrong);
            }
        }
    }

    /// The error of a lookup that needs these definitions.
    pub(super) fn failed<'a>(
        &self,
        fallen: BTreeSet<usize>,
        causes_of: impl Fn(usize) -> &'a BTreeSet<usize>,
    ) -> Wrong {
        let causes: BTreeSet<_> = fallen.iter().flat_map(|&number| causes_of(number)).copied().collect();
        match causes.iter().all(|cause| self.events[cause].kind == Broken::Closed) {
            true => Wrong::Closed,
            false => Wrong::Failed { fallen, causes },
        }
    }

    /// Notes that something broke.
    pub(super) fn happen(
        &mut self,
        kind: Broken,
        unit: usize,
        dylib: usize,
        names: BTreeSet<usize>,
    ) -> usize {
        let number = self.number();
        let dylib = self.dylibs[&dylib].slot;
        self.events.insert(number, Event { kind, unit, dylib, names, told: false });
        number
    }

    /// A definition goes. Those who waited for it have been told.
    pub(super) fn delete(&mut self, number: usize) {
        let Some(definition) = self.definitions.remove(&number) else { return };
        self.news.initializers_gone.extend(definition.initializer);
        if let Provider::Duty(duty) = definition.provider
            && self.provided_by(definition.provider).is_empty()
            && let Some(duty) = self.duties.get_mut(&duty)
        {
            duty.lives = false;
        }
    }

    /// A definition that waits for its unit to be claimed goes, and the unit with the last.
    pub(super) fn take_from_unit(&mut self, number: usize, tells: bool) {
        let Definition { provider: Provider::Unit(unit), name, .. } = self.definitions[&number] else {
            return;
        };
        let waiting = self.units.get_mut(&unit).expect("the unit waits");
        waiting.initializer.take_if(|initializer| *initializer == name);
        if tells {
            waiting.discarded.insert(name);
        }
        if self.provided_by(Provider::Unit(unit)) == [number]
            && let Some(unit_of_it) = self.units.remove(&unit)
        {
            self.news.left.insert(unit, unit_of_it.discarded);
        }
    }
}
