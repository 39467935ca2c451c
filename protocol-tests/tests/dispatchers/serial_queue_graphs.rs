//! Random graphs of units that block on each other, some of them in serial queues: everything ends, on any dispatcher.
//!
//! Units look up later ones only, so a unit waits for ever only for the turn of a queue that a unit beneath it has. A unit that
//! leaves its turn before it blocks delays no other: if all do, all symbols are found. If some do not, a lookup that closes a
//! cycle is told, and no lookup is left waiting; the order of the turns decides which units fail. The same is true in place,
//! where a unit whose turn comes on a thread may lie above one that it needs.

use std::sync::Arc;

use proptest::prelude::*;
use protocol_tests::*;
use uruk_core::{LookupRequest, SerialQueue, TaskPriority};

#[derive(Clone, Debug)]
struct Plan {
    /// How far on lies what the unit looks up, one after another.
    needs: Vec<usize>,
    /// Its queue, if it has one.
    queue: Option<usize>,
    leaves: bool,
    urgent: bool,
}

const QUEUES: usize = 2;

fn plan() -> impl Strategy<Value = Plan> {
    let needs = prop::collection::vec(1..6usize, 0..3);
    (needs, prop::option::weighted(0.7, 0..QUEUES), any::<bool>(), any::<bool>())
        .prop_map(|(needs, queue, leaves, urgent)| Plan { needs, queue, leaves, urgent })
}

/// Looks all units of the plans up, on two threads; says whether all were found.
fn all_found(plans: &[Plan], workers: usize, all_leave: bool) -> bool {
    let (session, main) = session_of(workers);
    let queues: Vec<_> = (0..QUEUES).map(|_| SerialQueue::new()).collect();
    let name = |index: usize| format!("s{index}");
    for (index, plan) in plans.iter().enumerate() {
        let needs: Vec<String> =
            plan.needs.iter().map(|far| index + far).filter(|&far| far < plans.len()).map(name).collect();
        let queue = plan.queue.map(|queue| queues[queue].clone());
        let leaves = plan.leaves || all_leave;
        let unit = TestUnit::new(&name(index), exported(&session, &[&name(index)]), {
            let queue = queue.clone();
            move |responsibility| {
                if let Some(queue) = queue.filter(|_| leaves) {
                    assert!(queue.leave(), "a unit of a queue has its turn");
                }
                let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
                let look_up =
                    |name: &String| session.lookup(LookupRequest::new(order(&main), set(&session, &[name])));
                match needs.iter().try_for_each(|name| look_up(name).map(drop)) {
                    Ok(()) => finish(responsibility),
                    Err(error) => responsibility.fail(Arc::new(error)),
                }
            }
        });
        let unit = queue.iter().fold(unit, TestUnit::in_queue);
        let unit = if plan.urgent { unit } else { unit.with_priority(TaskPriority::Speculative) };
        main.define(unit.boxed()).expect("new");
    }
    let look_up = |index: usize| {
        session.lookup(LookupRequest::new(order(&main), set(&session, &[&name(index)]))).map(drop)
    };
    let found = std::thread::scope(|scope| {
        let from_behind = scope.spawn(|| (0..plans.len()).rev().map(look_up).collect::<Vec<_>>());
        let mut found: Vec<_> = (0..plans.len()).map(look_up).collect();
        found.extend(from_behind.join().expect("no panic"));
        found
    });
    session.close().expect("there are no resources");
    assert_eq!(queues.iter().map(SerialQueue::waiting).sum::<usize>(), 0);
    for error in found.iter().filter_map(|found| found.as_ref().err()) {
        assert!(error.in_full().contains("would never end"), "{error}");
    }
    found.iter().all(Result::is_ok)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn units_that_leave_their_turns_before_they_block_are_all_found(
        plans in prop::collection::vec(plan(), 1..14),
        workers in 1..4usize,
    ) {
        prop_assert!(within_reason(move || all_found(&plans, workers, true)));
    }

    #[test]
    fn units_that_block_in_their_turns_are_found_or_told(
        plans in prop::collection::vec(plan(), 1..14),
        workers in 0..4usize,
    ) {
        within_reason(move || all_found(&plans, workers, false));
    }
}
