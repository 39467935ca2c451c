//! The forest against a naive model on random histories, and the shapes that break naive forests.

use proptest::prelude::*;

use crate::protocol::dependences::*;
use crate::protocol::tests::model::seeds::try_histories;

mod families;
mod model;

use model::{History, Step};

fn step() -> impl Strategy<Value = Step> {
    let group = (prop::collection::vec(any::<u8>(), 1..4), prop::collection::vec(any::<u8>(), 0..5));
    prop_oneof![
        8 => prop::collection::vec(group, 1..4).prop_map(Step::Emit),
        1 => any::<u8>().prop_map(Step::Fail),
        4 => any::<u8>().prop_map(Step::Redefine),
        4 => (0..12usize).prop_map(Step::Advance),
        2 => Just(Step::Drain),
        1 => any::<u8>().prop_map(Step::Depend),
    ]
}

/// Groups, cycles, failures before and after emission, removals, slot reuse, slices of any size: what
/// is Ready and what failed is what the definition says, and the forest falls empty in the end.
#[test]
fn forest_agrees_with_the_naive_model() {
    let histories = (2..14usize, prop::collection::vec(step(), 1..40));
    try_histories(3000, &histories, |(names, steps)| {
        let mut history = History::new(names, STEPS_UP_MIN);
        for step in &steps {
            history.apply(step);
        }
        history.finish();
    });
}

/// The same where a slice often ends on the way up to a root, which others change before the next goes on.
#[test]
fn forest_agrees_with_the_naive_model_wherever_a_way_up_is_interrupted() {
    let histories = (10..60usize, prop::collection::vec(step(), 20..80));
    try_histories(1000, &histories, |(names, steps)| {
        let mut history = History::new(names, 1);
        for step in &steps {
            history.apply(step);
        }
        history.finish();
    });
}

fn drain<P: Copy + Send + 'static>(forest: &mut WaitingForest<P>) -> Vec<Settled<P>> {
    let mut settled = Vec::new();
    assert!(!forest.advance(usize::MAX, &mut settled));
    settled
}

/// A node for each payload, none of them emitted.
fn nodes<P: Copy + Send + 'static, const N: usize>(
    forest: &mut WaitingForest<P>,
    payloads: [P; N],
) -> [NodeId; N] {
    payloads.map(|payload| forest.add(payload))
}

#[test]
fn dependencies_that_are_ready_are_not_stored() {
    let mut forest = WaitingForest::new();
    let [ready, late] = nodes(&mut forest, [0, 1]);
    forest.emit(&[ready], &[]);
    assert_eq!(drain(&mut forest), [Settled::Ready(0)]);
    forest.emit(&[late], &[ready]);
    assert_eq!(drain(&mut forest), [Settled::Ready(1)]);
    forest.emit(&[], &[ready]);
    assert!(!forest.has_work() && forest.is_empty());
    assert_eq!(forest.counters(), Counters::default());
}

#[test]
fn members_of_a_group_become_ready_together() {
    let mut forest = WaitingForest::new();
    let [late, one, other] = nodes(&mut forest, ["late", "one", "other"]);
    forest.emit(&[one, other], &[late]);
    assert_eq!(drain(&mut forest), []);
    assert_eq!(forest.dependencies(one).collect::<Vec<_>>(), ["late"]);
    forest.emit(&[late], &[]);
    let settled = drain(&mut forest);
    assert_eq!(settled[0], Settled::Ready("late"));
    assert!(settled.contains(&Settled::Ready("one")) && settled.contains(&Settled::Ready("other")));
    assert!(forest.is_empty());
}

#[test]
fn removing_one_symbol_of_a_group_spares_its_neighbours_but_not_its_dependants() {
    let mut forest = WaitingForest::new();
    let [late, removed, neighbour, dependant] =
        nodes(&mut forest, ["late", "removed", "neighbour", "dependant"]);
    forest.emit(&[removed, neighbour], &[late]);
    forest.emit(&[dependant], &[removed]);
    assert!(forest.has_dependants(removed));
    assert_eq!(forest.dependants(removed).collect::<Vec<_>>(), ["dependant"]);
    assert!(forest.fail(removed));
    assert!(!forest.fail(removed));
    assert_eq!(
        drain(&mut forest),
        [
            Settled::Failed { payload: "removed", via: None },
            Settled::Failed { payload: "dependant", via: Some("removed") }
        ]
    );
    forest.emit(&[late], &[]);
    assert_eq!(drain(&mut forest), [Settled::Ready("late"), Settled::Ready("neighbour")]);
    assert!(forest.is_empty());
}

/// Its component stands, so it is still there; who comes too late for its failure falls all the same.
#[test]
fn an_emission_that_depends_on_a_failed_node_fails() {
    let mut forest = WaitingForest::new();
    let [late, removed, neighbour, dependant] =
        nodes(&mut forest, ["late", "removed", "neighbour", "dependant"]);
    forest.emit(&[removed, neighbour], &[late]);
    assert!(forest.fail(removed));
    assert_eq!(drain(&mut forest), [Settled::Failed { payload: "removed", via: None }]);
    assert_eq!(forest.state(removed), NodeState::Failed);
    forest.emit(&[dependant], &[late, removed]);
    assert_eq!(drain(&mut forest), [Settled::Failed { payload: "dependant", via: Some("removed") }]);
    forest.emit(&[late], &[]);
    assert_eq!(drain(&mut forest), [Settled::Ready("late"), Settled::Ready("neighbour")]);
    assert!(forest.is_empty());
}

#[test]
fn a_failure_reaches_dependants_through_edges_not_yet_explored() {
    let mut forest = WaitingForest::new();
    let [first, second, waiting] = nodes(&mut forest, ["first", "second", "waiting"]);
    forest.emit(&[waiting], &[first, second]);
    drain(&mut forest);
    forest.fail(second);
    assert_eq!(forest.state(second), NodeState::Failed);
    assert_eq!(
        drain(&mut forest),
        [
            Settled::Failed { payload: "second", via: None },
            Settled::Failed { payload: "waiting", via: Some("second") }
        ]
    );
    assert_eq!(forest.state(waiting), NodeState::Gone);
    assert_eq!(forest.state(first), NodeState::Unemitted);
    assert!(forest.remove(first) && forest.is_empty());
}

#[test]
fn a_symbol_that_depends_on_itself_waits_for_nobody() {
    let mut forest = WaitingForest::new();
    let own = forest.add(1);
    forest.emit(&[own], &[own]);
    assert_eq!(drain(&mut forest), [Settled::Ready(1)]);
}

#[test]
fn ids_of_freed_nodes_stay_dead_when_slots_are_reused_or_given_back() {
    let mut forest = WaitingForest::new();
    let mut ids = Vec::new();
    for round in 0..3 {
        let count = if round == 1 { 5_000 } else { 3 };
        let nodes: Vec<_> = (0..count).map(|payload| forest.add(payload)).collect();
        assert!(ids.iter().all(|&id| forest.state(id) == NodeState::Gone));
        nodes.iter().for_each(|&node| assert!(forest.fail(node)));
        drain(&mut forest);
        ids.extend(nodes);
    }
    assert!(forest.is_empty());
    assert!(forest.capacity().0 < 5_000, "a large forest that fell empty gives its memory back");
}

/// A node that waited through it all once kept the memory of the busiest moment.
#[test]
fn memory_follows_what_is_live_while_one_node_lives_on() {
    const ROUNDS: usize = 10;
    const NODES: usize = 100_000;
    let mut forest = WaitingForest::new();
    let [late, old] = nodes(&mut forest, [0, 1]);
    forest.emit(&[old], &[late]);
    let mut gone = Vec::new();
    let mut level = None;
    for round in 0..ROUNDS {
        let last = forest.add(0);
        // A chain in even rounds and one cycle in odd ones; every other round fails.
        let nodes: Vec<_> = (0..NODES).map(|payload| forest.add(payload)).collect();
        let head = if round % 2 == 0 { last } else { nodes[0] };
        for (&node, &next) in nodes.iter().zip(nodes[1..].iter().chain([&head])) {
            forest.emit(&[node], &[next, last]);
        }
        if round % 4 < 2 {
            forest.emit(&[last], &[]);
        } else {
            assert!(forest.fail(last));
        }
        let mut settled = Vec::new();
        let mut discarded = 0;
        while forest.advance(1_000, &mut settled) {
            settled.clear();
            discarded = discarded.max(forest.take_discarded().map_or(0, |memory| memory.len()));
        }
        drop(forest.take_discarded());
        assert!(discarded > 0, "chunks are freed by somebody else");
        assert!(discarded <= 16, "{discarded} pieces of memory were given up by one slice");
        assert_eq!((forest.len(), forest.edges()), (2, 1));
        let capacity = forest.capacity();
        assert!(capacity.0 + capacity.1 <= 4 * CHUNK, "{capacity:?} places for 2 nodes and 1 edge");
        assert!(capacity <= *level.get_or_insert(capacity), "the first round's level is every round's");
        gone.extend([nodes[0], nodes[NODES / 2], last]);
        assert!(gone.iter().all(|&node| forest.state(node) == NodeState::Gone));
    }
    assert_eq!(forest.state(old), NodeState::Waiters);
    forest.emit(&[late], &[]);
    assert_eq!(drain(&mut forest), [Settled::Ready(0), Settled::Ready(1)]);
    assert!(forest.is_empty());
}

/// The last emission of a ring once walked half of it at a time, however small the budget.
#[test]
fn the_way_up_to_a_root_is_gone_in_slices() {
    for (count, budget) in [(2_000, 1), (20_000, 100)] {
        let mut forest = WaitingForest::new();
        let nodes: Vec<_> = (0..count).map(|payload| forest.add(payload)).collect();
        let mut settled = Vec::new();
        for (&node, &next) in nodes.iter().zip(nodes[1..].iter().chain(&nodes[..1])) {
            let is_last = next == nodes[0];
            forest.emit(&[node], &[next]);
            while !is_last && forest.advance(budget, &mut settled) {}
        }
        assert_eq!(settled, []);
        let begun = forest.counters().parent_steps;
        loop {
            let before = forest.counters().parent_steps;
            let more = forest.advance(budget, &mut settled);
            let steps = forest.counters().parent_steps - before;
            assert!(steps <= 2 * budget as u64 + 32, "{steps} steps up of a budget of {budget}");
            if !more {
                break;
            }
        }
        let steps = forest.counters().parent_steps - begun;
        assert!(steps <= 4 * count, "{steps} steps up a ring of {count}");
        assert_eq!(settled.len() as u64, count);
        assert!(forest.is_empty());
    }
}
