//! Holds the state under test and the naive model side by side: all that anybody can see of either.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::state::definitions::row::{self, RowState};
use crate::protocol::state::effects::{Completed, Effects, Generation, Leftover};
use crate::protocol::state::pending::ClaimedUnit;
use crate::{ExecutorAddr, Failure, FailureCause, LookupError, SymbolLookupFlags, Why, WhyState};

use super::drive_definitions::numbers_in;
use super::drive_removal::by_number;
use super::driver::{Chore, Harness, Integers, Request, Responsibility, number_in};
use super::operation::Manner;
use super::waits::Wait;
use super::world::*;

impl Harness {
    /// Compares the news to the outside, then the states of all definitions.
    pub(super) fn compare(&mut self, mut effects: Effects<Integers>) {
        let more = *effects.take_more().unwrap_or_default();
        let mut news = std::mem::take(&mut self.world.news);
        self.compare_dylibs();
        self.compare_definitions();
        self.compare_dependants();
        self.compare_outcomes(effects.completed.into_vec(), std::mem::take(&mut news.ended));
        self.compare_claimed(effects.claimed.into_vec(), std::mem::take(&mut news.claimed));
        self.compare_asked(more.generations, std::mem::take(&mut news.asked));
        let unheard = self.compare_leftovers(more.leftovers, &news);
        let gone: BTreeSet<_> = more.initializers_gone.iter().map(|number| *number as usize).collect();
        assert_eq!(gone, news.initializers_gone, "initializers that are no longer defined");
        self.compare_unheard(&unheard);
        self.compare_the_rest();
    }

    /// Each lookup ends once, and as it should.
    fn compare_outcomes(&mut self, completed: Vec<Completed<usize>>, expected: BTreeMap<usize, Outcome>) {
        let ended: BTreeSet<_> = completed.iter().map(|completed| completed.handler).collect();
        assert_eq!(ended.len(), completed.len(), "a lookup ends once");
        assert_eq!(ended, expected.keys().copied().collect(), "the lookups that ended");
        for Completed { handler, outcome, .. } in completed {
            let expected = &expected[&handler];
            let alias_lookup = self.alias_lookups.remove(&handler);
            let mut answer = None;
            match (outcome, expected) {
                (Ok(found), Outcome::Found(expected)) => {
                    let found: Vec<_> = found.into_found().collect();
                    let told = found.iter().map(|found| {
                        let name = number_in(found.name.as_str());
                        (name, (found.definition.address.value(), found.definition.flags))
                    });
                    // A name that was asked for twice is told twice.
                    assert_eq!(told.collect::<BTreeMap<_, _>>(), *expected, "the answer");
                    let rows = found.iter().map(|found| {
                        (number_in(found.name.as_str()), (found.row, found.definition.address.value()))
                    });
                    answer = Some(rows.collect());
                }
                (Err(error), Outcome::Wrong(wrongs)) => {
                    let agrees = wrongs.iter().any(|wrong| self.agree_on_error(&error, wrong));
                    assert!(
                        agrees,
                        "the state says {error:?}, the model {wrongs:?} by {:?}",
                        self.explained(wrongs)
                    );
                    match &error {
                        LookupError::Failed(failure) => self.tell_of(failure),
                        LookupError::DeadlineExceeded { waiting } => self.tell_why(waiting),
                        _ => {}
                    }
                }
                (outcome, _) => panic!("the state says {outcome:?}, the model {expected:?}"),
            }
            if let Some(duty) = alias_lookup {
                self.chores.push_back(Chore::FinishAliases { duty, answer });
            }
        }
    }

    fn agree_on_error(&self, error: &LookupError, wrong: &Wrong) -> bool {
        match (error, wrong) {
            (LookupError::NotFound { symbols, .. }, Wrong::NotFound(names)) => numbers_in(symbols) == *names,
            (LookupError::Failed(failure), Wrong::Failed { fallen, causes }) => {
                self.hear(failure, fallen, causes).is_some()
            }
            (LookupError::DylibRemoved { dylib }, Wrong::DylibRemoved(number)) => {
                *dylib == self.dylib_name(*number)
            }
            (LookupError::AliasCycle { cycle }, Wrong::AliasCycle(names)) => {
                cycle.iter().map(|name| number_in(name.as_str())).eq(names.iter().copied())
            }
            (LookupError::Generator { .. }, Wrong::Generator)
            | (LookupError::WouldDeadlock { .. }, Wrong::Deadlock)
            | (LookupError::DeadlineExceeded { .. }, Wrong::Late)
            | (LookupError::Closed, Wrong::Closed) => true,
            _ => false,
        }
    }

    /// The event that a failure tells of, if that is one of `causes` and its path leads from one of the `fallen` there.
    pub(super) fn hear(
        &self,
        failure: &Failure,
        fallen: &BTreeSet<usize>,
        causes: &BTreeSet<usize>,
    ) -> Option<usize> {
        let path: Vec<_> = failure.path.iter().map(|name| number_in(name.as_str())).collect();
        let named = |numbers: &BTreeSet<usize>, name: usize| -> BTreeSet<usize> {
            numbers.iter().copied().filter(|number| self.world.ever[number].0 == name).collect()
        };
        let mut here = named(fallen, path[0]);
        // Definitions on the way may be gone, and are then left out.
        let steps = if failure.path_omitted == 0 { path.len() } else { path.len() - 1 };
        for (step, &name) in path.iter().enumerate().take(steps).skip(1) {
            let next: BTreeSet<_> =
                here.iter().flat_map(|number| &self.world.ever[number].1).copied().collect();
            here = named(&next, name);
            if here.is_empty() && step + 1 == path.len() {
                // For a symbol that began it and is gone another of its unit may stand.
                here = next;
                here.retain(|number| !self.world.definitions.contains_key(number));
            }
        }
        let last = *path.last().expect("a path has an end");
        let leads_there = !here.is_empty() || path.len() == 1;
        let of_event = |event: &&usize| {
            self.is_event(&failure.cause, failure.unit.as_str(), &failure.dylib, last, **event)
        };
        causes.iter().find(of_event).copied().filter(|_| leads_there)
    }

    /// The events behind wrongs, for the message that they were not told.
    fn explained<'a>(&'a self, wrongs: &'a [Wrong]) -> Vec<&'a Event> {
        let causes = wrongs.iter().filter_map(|wrong| match wrong {
            Wrong::Failed { causes, .. } => Some(causes),
            _ => None,
        });
        causes.flatten().map(|cause| &self.world.events[cause]).collect()
    }

    fn is_event(&self, cause: &FailureCause, unit: &str, dylib: &str, name: usize, number: usize) -> bool {
        let event = &self.world.events[&number];
        let of_kind = match (cause, event.kind) {
            (FailureCause::Unit(error), Broken::Unit) => number_in(&error.to_string()) == number,
            (FailureCause::Removed, Broken::Removed) | (FailureCause::Closed, Broken::Closed) => true,
            _ => false,
        };
        of_kind
            && number_in(unit) == event.unit
            && number_in(dylib) == event.dylib
            && event.names.contains(&name)
    }

    /// Notes that a failure has been told.
    pub(super) fn tell_of(&mut self, failure: &Failure) {
        if let FailureCause::Unit(error) = &failure.cause {
            let number = number_in(&error.to_string());
            self.world.events.get_mut(&number).expect("it happened").told = true;
        }
    }

    /// The same by an explanation.
    fn tell_why(&mut self, whys: &[Why]) {
        for why in whys {
            if let WhyState::Failed(failure) = &why.state {
                self.tell_of(failure);
            }
        }
    }

    fn compare_claimed(&mut self, claimed: Vec<ClaimedUnit<usize>>, mut expected: BTreeMap<usize, Claimed>) {
        for claimed in claimed {
            let unit = claimed.pending.unit;
            let Some(expected) = expected.remove(&unit) else { panic!("u{unit} was claimed") };
            let symbols: Vec<_> = claimed.pending.symbols.keys().cloned().collect();
            let initializer = claimed.pending.initializer().map(|name| number_in(name.as_str()));
            let discarded = numbers_in(claimed.pending.discarded());
            let told = Claimed { duty: expected.duty, symbols: numbers_in(&symbols), initializer, discarded };
            assert_eq!(told, expected, "what u{unit} was claimed with");
            assert_eq!(claimed.pending.dylib_name, self.dylib_name(self.world.duties[&expected.duty].dylib));
            let responsibility = Responsibility {
                claim: claimed.claim,
                covered: claimed.pending.symbols.clone(),
                unit_name: claimed.pending.name.clone(),
                queued: Some(claimed),
                is_busy: false,
            };
            self.responsibilities.insert(expected.duty, responsibility);
        }
        assert!(expected.is_empty(), "nobody has claimed {expected:?}");
    }

    fn compare_asked(&mut self, generations: Vec<Generation<usize>>, expected: Vec<Asked>) {
        let query_of = |id| {
            let numbers = self.ids.queries.iter();
            numbers.rev().find(|(_, query)| **query == id).map(|(number, _)| *number).expect("it was made")
        };
        let asked: Vec<_> = generations
            .iter()
            .map(|generation| Asked {
                generator: generation.generator,
                query: query_of(generation.query),
                symbols: generation
                    .symbols
                    .iter()
                    .map(|(name, flags)| {
                        (number_in(name.as_str()), flags == SymbolLookupFlags::WeaklyReferencedSymbol)
                    })
                    .collect(),
            })
            .collect();
        assert_eq!(asked, expected, "what generators were asked");
        for (generation, Asked { generator, query, symbols }) in generations.into_iter().zip(asked) {
            let request = Request {
                generator,
                id: generation.id,
                query,
                query_id: generation.query,
                dylib: self.ids.generates[&generator],
                names: symbols.into_iter().map(|(name, _)| name).collect(),
            };
            match &self.manners[&generator] {
                Manner::Synchronous(defines) => {
                    self.chores.push_back(Chore::Generate(request, defines.clone()));
                }
                Manner::Later => self.requests.push(request),
            }
        }
    }

    /// Values that leave. Gives the events that were never told.
    fn compare_leftovers(&self, leftovers: Vec<Leftover<Integers>>, expected: &News) -> BTreeSet<usize> {
        let (mut left, mut refused, mut withdrawn) = (Vec::new(), Vec::new(), Vec::new());
        let (mut generators, mut resources, mut unheard) = (Vec::new(), Vec::new(), Vec::new());
        for leftover in leftovers {
            match leftover {
                Leftover::Unit { unit, discarded, .. } => left.push((unit, numbers_in(&discarded))),
                Leftover::RefusedUnit(unit) => refused.push((unit, ())),
                Leftover::Handler(query) => withdrawn.push((query, ())),
                Leftover::Generator(generator) => generators.push((generator, ())),
                Leftover::Resource(resource) => resources.push((resource, ())),
                Leftover::Unheard(failure) => unheard.push((number_in(&failure.cause.to_string()), ())),
                Leftover::Error(_) | Leftover::Cause(_) => {}
            }
        }
        let numbers = |told: Vec<(usize, ())>| by_number(told).into_keys().collect::<BTreeSet<_>>();
        assert_eq!(by_number(left), expected.left, "units that nothing is left of");
        assert_eq!(numbers(refused), expected.refused, "units that were refused");
        assert_eq!(numbers(withdrawn), expected.withdrawn, "handlers of withdrawn lookups");
        assert_eq!(numbers(generators), expected.generators_gone, "generators that are gone");
        assert_eq!(numbers(resources), expected.resources_refused, "resources that came too late");
        numbers(unheard)
    }

    /// A failure that nothing refers to any more, and that was never told, goes to the reporter.
    fn compare_unheard(&mut self, unheard: &BTreeSet<usize>) {
        let known: BTreeSet<_> =
            self.world.definitions.values().flat_map(|definition| &definition.causes).copied().collect();
        let over: BTreeSet<_> =
            self.world.events.keys().filter(|event| !known.contains(event)).copied().collect();
        let is_news = |number: &&usize| {
            let event = &self.world.events[number];
            event.kind == Broken::Unit && !event.told
        };
        let expected: BTreeSet<_> = over.iter().filter(is_news).copied().collect();
        assert_eq!(*unheard, expected, "failures that nobody was told of");
        for event in over {
            // It is told once.
            self.world.events.get_mut(&event).expect("it happened").told = true;
        }
    }

    fn compare_dylibs(&mut self) {
        assert_eq!(self.state.definitions.counts().dylibs, self.world.dylibs.len());
        for (number, dylib) in &self.world.dylibs {
            let id = self.ids.dylibs[number];
            let default = self.state.definitions.default_tracker(id);
            let before = self.ids.trackers.insert(dylib.default_tracker, default);
            assert!(before.is_none_or(|before| before == default), "the default tracker of d{}", dylib.slot);
            let order: Vec<_> =
                self.state.definitions.link_order(id).into_iter().map(|(_, name, _)| name).collect();
            let expected: Vec<_> = dylib.order.iter().map(|(linked, _)| self.dylib_name(*linked)).collect();
            assert_eq!(order, expected, "the link order of d{}", dylib.slot);
            let mut depth_first = Vec::new();
            self.world.depth_first(*number, &mut depth_first);
            let expected: Vec<_> = depth_first.into_iter().map(|dylib| self.dylib_name(dylib)).collect();
            let order = self.state.definitions.dfs_link_order(&[id]).expect("it is there");
            assert_eq!(order.into_iter().map(|(_, name)| name).collect::<Vec<_>>(), expected);
            let initializers = numbers_in(&self.state.definitions.initializers(id));
            let expected =
                |definition: &&Definition| definition.dylib == *number && definition.initializer.is_some();
            let expected = self.world.definitions.values().filter(expected);
            assert_eq!(initializers, expected.map(|definition| definition.name).collect());
        }
    }

    fn compare_definitions(&mut self) {
        assert_eq!(self.state.definitions.counts().rows, self.world.definitions.len(), "as many definitions");
        let numbers: Vec<_> = self.world.definitions.keys().copied().collect();
        for number in numbers {
            let expected = &self.world.definitions[&number];
            let name = &self.names[expected.name];
            let found = self.state.definitions.find(self.ids.dylibs[&expected.dylib], name);
            let id = found.unwrap_or_else(|| panic!("the model has {expected:?}"));
            let row = &self.state.definitions[id];
            assert_eq!(
                format!("{:?}", row.state.standing()),
                format!("{:?}", expected.standing),
                "{expected:?}"
            );
            assert_eq!(row.flags, expected.flags, "{expected:?}");
            assert_eq!(row.tracker, self.ids.trackers[&expected.tracker], "{expected:?}");
            assert_eq!(number_in(row.unit_name.as_str()), expected.unit, "{expected:?}");
            if let RowState::Resolved { address, .. }
            | RowState::Emitted { address, .. }
            | RowState::Ready { address } = row.state
            {
                assert_eq!(address, ExecutorAddr::new(expected.address), "{expected:?}");
            }
            let actual = self.cause_of(row, &expected.causes);
            assert!(expected.causes.is_empty() || !actual.is_empty(), "{row:?} for {expected:?}");
            // Events of one moment have no order; an event told once stays told.
            self.world.definition(number).causes = actual;
            let before = self.ids.definitions.insert(number, id);
            assert!(before.is_none_or(|before| before == id), "a definition stays where it is");
            self.ids.numbers.insert(id, number);
        }
    }

    /// Which of these events a row says has felled it.
    fn cause_of(&self, row: &row::Row, causes: &BTreeSet<usize>) -> BTreeSet<usize> {
        let RowState::Failed { failed_row, .. } = row.state else { return BTreeSet::new() };
        let (symbol, unit, dylib, cause) = self.state.failures.is_of(failed_row.failure);
        let symbol = number_in(symbol.as_str());
        let told = |event: &&usize| self.is_event(cause, unit.as_str(), dylib, symbol, **event);
        causes.iter().find(told).copied().into_iter().collect()
    }

    fn compare_the_rest(&self) {
        assert_eq!(self.state.lookups.len(), self.world.queries.len(), "lookups that have not ended");
        assert_eq!(self.state.definitions.counts().units, self.world.units.len(), "units that wait");
        assert_eq!(self.state.definitions.counts().trackers, self.world.trackers.len(), "trackers");
        for (number, tracker) in &self.world.trackers {
            let resources = &self.state.definitions[self.ids.trackers[number]].resources;
            assert!(resources.iter().eq(&tracker.resources), "{resources:?} are {:?}", tracker.resources);
        }
        assert_eq!(self.state.lookups.generators(), self.world.generators.len(), "generators");
        for (number, generator) in &self.world.generators {
            let state = &self.state.lookups[self.ids.generators[number]];
            assert_eq!(state.occupant(), generator.serves.map(|query| self.ids.queries[&query]));
        }
        let held = self.world.waits.values().map(Wait::holds).sum();
        assert_eq!(
            self.state.waits.len(),
            (self.world.waits.len(), held),
            "blocked threads and what they hold"
        );
        assert!(self.responsibilities.keys().eq(self.world.duties.keys()), "responsibilities");
        for (number, responsibility) in &self.responsibilities {
            let requested = numbers_in(&self.state.requested(responsibility.claim));
            assert_eq!(requested, self.world.requested(*number), "requested of {responsibility:?}");
            let holder = self.world.waits.values().find(|wait| wait.duties.contains(number));
            let holder = holder.map(|wait| self.ids.queries[&wait.query]);
            let blocked = self.state.waits.blocked_with(responsibility.claim);
            assert_eq!(blocked, holder, "who is blocked with {responsibility:?}");
        }
    }
}
