//! Deadlocks found by looks: states built step by step, without threads. Each kind of edge closes a cycle, and a wait that may still
//! be answered is not refused.

use std::time::Duration;

use crate::ids::{ClaimId, QueryId, TrackerId, WaitId};
use crate::protocol::state::effects::{Completed, Effects};
use crate::protocol::state::lookups::query::Search;
use crate::protocol::symbols::define::Definition;
use crate::protocol::tests::numbers::{definition, exported, search};
use crate::protocol::tests::scene::Scene;
use crate::task::serial_queue::{SerialQueue, SerialQueueId};
use crate::{LookupError, LookupSet, RequiredState};

use crate::protocol::deadlock::FIRST_BUDGET;
use crate::protocol::deadlock::threads::Held;
use crate::protocol::deadlock::threads::Holdings;

/// A scene in which each slice takes one step.
fn in_small_slices() -> Scene {
    let mut scene = Scene::new();
    scene.state.agenda.set_slice_steps(1);
    scene
}

impl Scene {
    fn define(&mut self, tracker: Option<TrackerId>, name: &str) {
        self.define_in(None, tracker, name);
    }

    /// Defines a symbol and claims it: it is materializing.
    fn claim(&mut self, tracker: Option<TrackerId>, name: &str) -> ClaimId {
        self.define(tracker, name);
        let query = self.look_up(0, &[name]).expect("nobody has materialized it");
        self.state.withdraw(query, &mut self.effects);
        self.effects.claimed.pop().expect("the unit was claimed").claim
    }

    fn define_in(&mut self, queue: Option<SerialQueue>, tracker: Option<TrackerId>, name: &str) {
        let definition = definition(&self.name(name), self.flags(name));
        let definition = Definition { serial_queue: queue, ..definition };
        self.state.define(self.dylib, tracker, definition, 0, &mut self.effects).unwrap();
    }

    /// Defines so many symbols of one unit.
    fn define_all(&mut self, many: usize) {
        let names: Vec<_> = (0..many).map(|index| self.name(&format!("s{index}"))).collect();
        let definition = definition(&names[0], exported(&names));
        self.state.define(self.dylib, None, definition, 0, &mut self.effects).unwrap();
    }

    fn add_generator(&mut self) {
        self.state.add_generator(self.dylib, "generator".into(), 0, &mut self.effects).unwrap();
    }

    /// A thread that holds the claim blocks in a lookup of `names`, and looks.
    fn block(&mut self, handler: u32, holds: ClaimId, names: &[&str]) -> WaitId {
        self.block_with(handler, Holdings::of([Held::Claim(holds)]), names)
    }

    fn block_with(&mut self, handler: u32, holdings: Holdings, names: &[&str]) -> WaitId {
        let query = self.look_up(handler, names).expect("it waits");
        self.state.begin_wait(query, holdings, &mut self.effects).expect("it lives")
    }

    fn look(&mut self, wait: WaitId) -> Duration {
        self.state.look(wait, &mut self.effects)
    }

    /// Looks up a symbol that is not defined, on behalf of an alias if there is one: the generator is asked.
    fn ask(&mut self, handler: u32, alias: Option<&str>, name: &str) -> QueryId {
        let alias = alias.map(|alias| self.state.definitions.find(self.dylib, &self.name(alias)).unwrap());
        let search = Search { alias, ..self.search(&[name]) };
        self.state.lookup(search, handler, |_| "main".into(), &mut self.effects).expect("it waits")
    }

    /// The source of an alias is looked up.
    fn seek(&mut self, handler: u32, alias: &str, source: &str) {
        let alias = self.state.definitions.find(self.dylib, &self.name(alias));
        let search = Search { alias, required_state: RequiredState::Resolved, ..self.search(&[source]) };
        self.state.lookup(search, handler, |_| "main".into(), &mut self.effects).expect("it waits");
    }

    /// Which lookups have ended with an error since, and whether that was a deadlock.
    fn told(&mut self) -> Vec<(u32, bool)> {
        let failed = |Completed { handler, outcome, .. }| Some((handler, outcome.err()?));
        let failed = self.effects.completed.drain(..).filter_map(failed);
        failed.map(|(handler, error)| (handler, matches!(error, LookupError::WouldDeadlock { .. }))).collect()
    }

    /// The steps that the hold of the lock that ends here has taken.
    fn steps(&mut self) -> usize {
        self.state.finish_transaction(&mut Effects::default());
        self.state.steps_max()
    }

    fn settle(&mut self) {
        self.state.settle_all(&mut self.effects);
        self.state.check();
    }
}

impl Holdings {
    fn of(held: impl IntoIterator<Item = Held>) -> Self {
        Self { held: held.into_iter().collect(), ..Self::default() }
    }
}

#[test]
fn a_thread_that_needs_what_another_holds_that_needs_what_it_holds_is_told() {
    let mut scene = in_small_slices();
    let (a, b) = (scene.claim(None, "a"), scene.claim(None, "b"));
    scene.block(1, a, &["b"]);
    assert_eq!(scene.told(), []);
    scene.block(2, b, &["a"]);
    assert_eq!(scene.told(), [(2, true)]);
    scene.settle();
}

#[test]
fn only_one_of_a_cycle_is_told() {
    let mut scene = in_small_slices();
    let (a, b, r) = (scene.claim(None, "a"), scene.claim(None, "b"), scene.claim(None, "r"));
    let waits = [scene.block(1, a, &["r"]), scene.block(2, b, &["a"])];
    scene.emit(r, "r", &["b"]);
    assert_eq!(scene.told(), [], "nobody has looked");
    for wait in waits {
        scene.look(wait);
    }
    assert_eq!(scene.told(), [(1, true)]);
    scene.settle();
}

#[test]
fn a_lookup_that_moves_on_from_a_generator_into_a_cycle_is_told_when_it_looks() {
    let mut scene = in_small_slices();
    let (a, b) = (scene.claim(None, "a"), scene.claim(None, "b"));
    scene.add_generator();
    let first = scene.block(1, a, &["b", "x"]);
    let second = scene.block(2, b, &["a"]);
    scene.look(second);
    assert_eq!(scene.told(), []);
    let asked = scene.effects.more().generations.pop().expect("x is not defined");
    scene.define(None, "x");
    scene.state.generated(asked.id, asked.query, Ok(()), &mut scene.effects);
    scene.look(first);
    assert_eq!(scene.told(), [(1, true)]);
    scene.settle();
}

/// It ends by itself, and the others with it. Its own thread can only be told: nothing but its own end breaks the cycle.
#[test]
fn a_lookup_with_a_deadline_counts_for_its_own_thread_alone() {
    let mut scene = in_small_slices();
    let (a, b) = (scene.claim(None, "a"), scene.claim(None, "b"));
    let holdings = Holdings { ends_by_itself: true, ..Holdings::of([Held::Claim(a)]) };
    let first = scene.block_with(1, holdings, &["b"]);
    let second = scene.block(2, b, &["a"]);
    scene.look(second);
    assert_eq!(scene.told(), []);
    scene.look(first);
    assert_eq!(scene.told(), [(1, true)]);
}

#[test]
fn what_lies_beneath_on_the_stack_waits_for_what_lies_above() {
    let mut scene = in_small_slices();
    let (a, _x) = (scene.claim(None, "a"), scene.claim(None, "x"));
    let below = scene.block(1, a, &["x"]);
    let above = Holdings { below: Some(below), ..Holdings::default() };
    let above = scene.block_with(2, above, &["a"]);
    assert_eq!(scene.told(), [(2, true)]);
    // The lookup beneath may still be answered, by the owner of x.
    scene.look(below);
    assert_eq!(scene.told(), []);
    scene.state.end_wait(above, &mut scene.effects);
    scene.look(below);
    assert_eq!(scene.told(), []);
}

/// The thread is busy above it; the one above is in no cycle.
#[test]
fn a_thread_does_not_look_for_a_lookup_beneath_another() {
    let mut scene = in_small_slices();
    let (a, b, _y) = (scene.claim(None, "a"), scene.claim(None, "b"), scene.claim(None, "y"));
    let r = scene.claim(None, "r");
    let below = scene.block(1, a, &["r"]);
    let above = Holdings { below: Some(below), ..Holdings::default() };
    let above = scene.block_with(2, above, &["y"]);
    let other = scene.block(3, b, &["a"]);
    scene.emit(r, "r", &["b"]);
    scene.look(below);
    assert_eq!(scene.told(), []);
    scene.state.end_wait(above, &mut scene.effects);
    scene.look(below);
    scene.look(other);
    assert_eq!(scene.told(), [(1, true)]);
}

#[test]
fn a_unit_in_a_serial_queue_waits_for_the_thread_that_has_the_turn() {
    let mut scene = in_small_slices();
    let queue = SerialQueue::new();
    let a = scene.claim(None, "a");
    scene.define_in(Some(queue.clone()), None, "b");
    let turn = Held::Strand(queue.id());
    let wait = scene.block_with(1, Holdings::of([Held::Claim(a), turn]), &["b"]);
    assert_eq!(scene.told(), [(1, true)]);
    scene.state.end_wait(wait, &mut scene.effects);
    // The turn of another queue is of no concern.
    let other = Held::Strand(SerialQueueId(u64::MAX));
    scene.block_with(2, Holdings::of([Held::Claim(a), other]), &["b"]);
    assert_eq!(scene.told(), []);
}

#[test]
fn nobody_is_told_over_what_a_blocked_thread_has_passed_on() {
    let mut scene = in_small_slices();
    let (a, b) = (scene.claim(None, "a"), scene.claim(None, "b"));
    let first = scene.block(1, a, &["b"]);
    scene.state.lose(first, Held::Claim(a));
    let second = scene.block(2, b, &["a"]);
    scene.look(first);
    assert_eq!(scene.told(), []);
    // Another thread has it now, and blocks. That the first goes on changes nothing of that.
    let third = scene.block(3, a, &["b"]);
    assert_eq!(scene.told(), [(3, true)]);
    scene.state.end_wait(third, &mut scene.effects);
    scene.block(4, a, &["b"]);
    scene.state.end_wait(first, &mut scene.effects);
    assert_eq!(scene.told(), [(4, true)]);
    scene.look(second);
    assert_eq!(scene.told(), []);
    scene.settle();
}

#[test]
fn a_thread_that_has_gone_on_is_in_no_cycle() {
    let mut scene = in_small_slices();
    let (a, b, r) = (scene.claim(None, "a"), scene.claim(None, "b"), scene.claim(None, "r"));
    let first = scene.block(1, a, &["r"]);
    let second = scene.block(2, b, &["a"]);
    scene.emit(r, "r", &["b"]);
    scene.state.end_wait(first, &mut scene.effects);
    scene.look(first);
    scene.look(second);
    assert_eq!(scene.told(), []);
    scene.settle();
}

#[test]
fn nobody_is_told_of_a_cycle_that_a_removal_is_about_to_end() {
    let mut scene = in_small_slices();
    let tracker = scene.state.definitions.create_tracker(scene.dylib);
    let (a, b, r) = (scene.claim(None, "a"), scene.claim(None, "b"), scene.claim(None, "r"));
    scene.claim(Some(tracker), "gone");
    for index in 0..8 {
        scene.define(Some(tracker), &format!("gone too {index}"));
    }
    scene.emit(r, "r", &["gone", "b"]);
    let first = scene.block(1, a, &["r"]);
    drop(scene.state.remove_tracker(tracker, &mut scene.effects));
    assert!(scene.state.is_falling(), "more than one slice");
    let second = scene.block(2, b, &["a"]);
    let pauses = [scene.look(first), scene.look(first), scene.look(second)];
    assert_eq!(scene.told(), []);
    assert_eq!(pauses[0], pauses[1], "they look again as soon");
    scene.settle();
    for wait in [first, second] {
        scene.look(wait);
    }
    assert_eq!(scene.told(), [(1, false)]);
}

#[test]
fn a_cycle_that_appears_during_a_removal_is_told_after_it() {
    let mut scene = in_small_slices();
    let tracker = scene.state.definitions.create_tracker(scene.dylib);
    let (a, b, r) = (scene.claim(None, "a"), scene.claim(None, "b"), scene.claim(None, "r"));
    for index in 0..8 {
        scene.define(Some(tracker), &format!("gone {index}"));
    }
    let first = scene.block(1, a, &["r"]);
    drop(scene.state.remove_tracker(tracker, &mut scene.effects));
    scene.block(2, b, &["a"]);
    assert!(scene.state.is_falling(), "more than one slice");
    scene.emit(r, "r", &["b"]);
    scene.look(first);
    assert_eq!(scene.told(), []);
    scene.settle();
    scene.look(first);
    assert_eq!(scene.told(), [(1, true)]);
}

#[test]
fn aliases_that_wait_at_a_generator_wait_for_whom_it_waits() {
    let mut scene = in_small_slices();
    let alias = scene.claim(None, "alias");
    scene.add_generator();
    let query = scene.ask(1, Some("alias"), "x");
    scene.block_with(2, Holdings::of([Held::Request(query)]), &["alias"]);
    assert_eq!(scene.told(), [(2, true)]);
    scene.settle();
    let asked = scene.effects.more().generations.pop().expect("x is not defined");
    scene.state.generated(asked.id, asked.query, Err(crate::shared_error("no")), &mut scene.effects);
    scene.state.fail(alias, crate::FailureCause::Abandoned, &mut scene.effects);
    scene.settle();
    assert_eq!(scene.state.lookups.aliases(), (0, 0));
}

#[test]
fn aliases_that_come_to_a_generator_later_wait_for_whom_it_waits() {
    let mut scene = in_small_slices();
    let a = scene.claim(None, "a");
    scene.claim(None, "alias");
    scene.add_generator();
    let served = scene.ask(1, None, "y");
    // One thread serves the request for y and needs the alias; another holds a.
    let serves = scene.block_with(2, Holdings::of([Held::Request(served)]), &["alias"]);
    let other = scene.block(3, a, &["alias"]);
    assert_eq!(scene.told(), []);
    scene.ask(4, Some("alias"), "x");
    scene.look(other);
    assert_eq!(scene.told(), []);
    scene.look(serves);
    assert_eq!(scene.told(), [(2, true)]);
    scene.settle();
}

/// ```text
///   thread: serves x of library ─ lookup of y in main, which its generator serves apart ─ asks library, whose generator is busy with x
/// ```
#[test]
fn a_lookup_that_is_served_apart_waits_for_what_is_asked_for_it() {
    let mut scene = in_small_slices();
    let library = scene.state.create_dylib("library".into()).unwrap();
    scene.add_generator();
    scene.state.add_generator(library, "of library".into(), 0, &mut scene.effects).unwrap();
    let ask = |scene: &mut Scene, name: &str, apart: QueryId| {
        let asked = scene.effects.more().generations.pop().expect("it is not defined");
        scene.state.serve_apart(asked.id, apart, &mut scene.effects);
        let symbols = LookupSet::required([scene.name(name)]);
        let question = search(library, symbols, RequiredState::Ready);
        let question = Search { on_behalf_of: Some(apart), ..question };
        scene.state.lookup(question, 0, |_| "library".into(), &mut scene.effects).expect("it waits")
    };
    let first = scene.ask(1, None, "x");
    let of_first = ask(&mut scene, "x", first);
    let served = scene.effects.more().generations.pop().expect("x is not defined");
    assert_eq!(served.query, of_first);
    let blocked = scene.ask(2, None, "y");
    let holdings = Holdings::of([Held::Request(of_first)]);
    let wait = scene.state.begin_wait(blocked, holdings, &mut scene.effects).expect("it waits");
    scene.look(wait);
    assert_eq!(scene.told(), []);
    ask(&mut scene, "y", blocked);
    scene.look(wait);
    assert_eq!(scene.told(), [(2, true)]);
    scene.settle();
}

/// Each alias of a unit is finished by itself: the unit of one alias's source may need the alias beside it.
#[test]
fn an_alias_waits_for_its_source_and_not_for_those_of_others_beside_it() {
    let mut scene = in_small_slices();
    for alias in ["alias", "beside"] {
        scene.claim(None, alias);
    }
    let (first, last) = (scene.claim(None, "first"), scene.claim(None, "last"));
    scene.seek(1, "alias", "first");
    scene.seek(2, "beside", "last");
    let third = scene.block(3, last, &["alias"]);
    assert_eq!(scene.told(), []);
    scene.block(4, first, &["alias"]);
    scene.look(third);
    assert_eq!(scene.told(), [(4, true)]);
    scene.settle();
}

#[test]
fn a_cycle_past_an_alias_of_an_alias_is_told() {
    let mut scene = in_small_slices();
    for name in ["alias", "inner"] {
        scene.claim(None, name);
    }
    let last = scene.claim(None, "last");
    scene.seek(1, "alias", "inner");
    let wait = scene.block(2, last, &["alias"]);
    assert_eq!(scene.told(), []);
    scene.seek(3, "inner", "last");
    scene.look(wait);
    assert_eq!(scene.told(), [(2, true)]);
    scene.settle();
}

#[test]
fn a_chain_of_aliases_is_followed_only_where_it_may_lead_back() {
    const LENGTH: usize = 20_000;
    let mut scene = in_small_slices();
    let name = |index: usize| format!("a{index}");
    for index in 0..=LENGTH {
        scene.claim(None, &name(index));
    }
    let row = |scene: &Scene, index: usize| {
        scene.state.definitions.find(scene.dylib, &scene.name(&name(index))).unwrap()
    };
    let point = |scene: &mut Scene, alias: usize, source: usize| {
        let search = Search { alias: Some(row(scene, alias)), ..scene.search(&[&name(source)]) };
        scene.state.lookup(search, 0, |_| "main".into(), &mut scene.effects)
    };
    for index in 0..LENGTH {
        point(&mut scene, index + 1, index).expect("it waits");
    }
    assert!(point(&mut scene, 0, LENGTH).is_none(), "a cycle");
    let [Completed { outcome: Err(LookupError::AliasCycle { cycle }), .. }] = &scene.effects.completed[..]
    else {
        panic!("only the last lookup has failed")
    };
    assert_eq!(cycle.len(), LENGTH + 2);
}

/// So many symbols that one look does not come to the end.
#[test]
fn a_look_takes_at_most_its_budget_and_each_the_double() {
    const MANY: usize = 3 * FIRST_BUDGET;
    let mut scene = in_small_slices();
    let (a, b) = (scene.claim(None, "a"), scene.claim(None, "b"));
    let wanted: Vec<_> = (0..MANY).map(|index| format!("s{index}")).collect();
    for name in &wanted {
        scene.claim(None, name);
    }
    let wanted: Vec<_> = wanted.iter().map(String::as_str).chain(["b"]).collect();
    scene.block(2, b, &["a"]);
    scene.steps();
    let wait = scene.block(1, a, &wanted);
    assert_eq!(scene.steps(), FIRST_BUDGET, "the first look");
    scene.look(wait);
    assert_eq!(scene.steps(), 2 * FIRST_BUDGET, "the second look");
    assert_eq!(scene.told(), [], "it has not come to the end");
    scene.look(wait);
    assert_eq!(scene.told(), [(1, true)]);
}

/// Two threads look: each step of one is followed by twenty microseconds in which it leaves the lock alone.
#[test]
fn pauses_grow_to_a_second_and_beyond_only_after_long_looks() {
    // With the step from the thread to its lookup.
    const MANY: usize = 120 * FIRST_BUDGET - 1;
    let mut scene = in_small_slices();
    let (a, b) = (scene.claim(None, "a"), scene.claim(None, "b"));
    scene.claim(None, "z");
    let short = scene.block(1, a, &["z"]);
    let pauses: Vec<_> = (0..10).map(|_| scene.look(short).as_millis()).collect();
    assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000, 1000, 1000]);
    scene.define_all(MANY);
    let wanted: Vec<_> = (0..MANY).map(|index| format!("s{index}")).collect();
    let wanted: Vec<_> = wanted.iter().map(String::as_str).collect();
    let long = scene.block(2, b, &wanted);
    let pauses: Vec<_> = (0..10).map(|_| scene.look(long)).collect();
    assert_eq!(pauses.last(), Some(&Duration::from_millis(2400)), "{pauses:?}");
}
