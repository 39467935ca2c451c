//! Random graphs of units that block in lookups: always an end, errors exactly where there is a cycle.
//!
//! In place, if several threads ask, units only block and have no other dependences. A thread there runs its own queue: while
//! it waits for another thread, it also runs units that its lookup does not need. Such a unit may need one beneath it, and is
//! then told of a deadlock although the graph has no cycle. A single thread never comes to that.

use std::collections::BTreeSet;
use std::sync::Arc;

use protocol_tests::random::Random;
use protocol_tests::*;
use uruk_core::{
    ExecutionSession, JitDylib, LookupError, LookupRequest, LookupSet, MaterializationResponsibility,
};

/// The units that a unit waits for before it finishes, and those it depends on as a linker's unit does, without waiting.
#[derive(Clone, Default)]
struct Unit {
    blocks_for: BTreeSet<usize>,
    depends_on: BTreeSet<usize>,
}

fn names(indices: &BTreeSet<usize>) -> Vec<String> {
    indices.iter().map(|index| format!("s{index}")).collect()
}

fn define(main: &JitDylib, index: usize, unit: Unit) {
    let symbols = exported(main.session(), &[&format!("s{index}")]);
    let materialize = move |responsibility: MaterializationResponsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        let resolved = resolve(responsibility);
        for name in names(&unit.blocks_for) {
            if let Err(error) = session.lookup_symbol(&order(&main), &session.intern(&name)) {
                return resolved.fail(Arc::new(error));
            }
        }
        let needs = names(&unit.depends_on);
        let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
        emit_depending_on(resolved, request(&main, &needs));
    };
    main.define(TestUnit::new("unit", symbols, materialize).boxed()).unwrap();
}

/// For each unit, whether it needs, directly or not, a unit that needs itself before it goes on.
fn stuck(units: &[Unit]) -> Vec<bool> {
    let reaches = |start: usize| {
        let (mut seen, mut stack) = (BTreeSet::new(), vec![start]);
        while let Some(index) = stack.pop() {
            for &next in units[index].blocks_for.iter().chain(&units[index].depends_on) {
                if seen.insert(next) {
                    stack.push(next);
                }
            }
        }
        seen
    };
    let reached: Vec<_> = (0..units.len()).map(reaches).collect();
    let blocks_for_itself = |index: usize| {
        units[index].blocks_for.iter().any(|&needed| needed == index || reached[needed].contains(&index))
    };
    let itself: Vec<_> = (0..units.len()).map(blocks_for_itself).collect();
    (0..units.len())
        .map(|index| itself[index] || reached[index].iter().any(|&needed| itself[needed]))
        .collect()
}

/// The threads that run the units of a graph, and the clients that ask for them.
#[derive(Clone, Copy)]
struct Stage {
    /// None in place.
    workers: usize,
    clients: usize,
}

impl Stage {
    fn of(seed: u64) -> Self {
        match seed % 6 {
            5 => Self { workers: 0, clients: 1 },
            workers => Self { workers: workers as usize, clients: 4 },
        }
    }

    /// The graph that may be tried here.
    fn restrict(self, units: &mut [Unit]) {
        if self.workers == 0 && self.clients > 1 {
            units.iter_mut().for_each(|unit| unit.depends_on.clear());
        }
    }
}

/// Looks every symbol up from several threads at once, each in another order; a thread that is alone asks for all of them together
/// first.
fn look_all_up(session: &ExecutionSession, main: &JitDylib, stage: Stage, expected: &[bool], seed: u64) {
    let (clients, count) = (stage.clients, expected.len());
    if clients == 1 {
        let names = (0..count).map(|index| session.intern(&format!("s{index}")));
        let found = session.lookup(LookupRequest::new(order(main), LookupSet::required(names)));
        assert_eq!(found.is_err(), expected.contains(&true), "seed {seed}");
    }
    std::thread::scope(|scope| {
        for client in 0..clients {
            scope.spawn(move || {
                for step in 0..count {
                    let index = (step * 7 + client * 11) % count;
                    let found = session.lookup_symbol(&order(main), &session.intern(&format!("s{index}")));
                    match found {
                        Ok(_) => assert!(!expected[index], "seed {seed}: s{index} is stuck and was found"),
                        Err(LookupError::Failed(failure)) => {
                            assert!(expected[index], "seed {seed}: s{index} is not stuck: {failure}");
                            assert!(failure.in_full().contains("would never end"), "seed {seed}: {failure}");
                        }
                        Err(error) => panic!("seed {seed}: s{index}: {error}"),
                    }
                }
            });
        }
    });
}

#[test]
fn graphs_without_a_cycle_are_never_refused() {
    for seed in 0..60 {
        within_reason(move || {
            let mut numbers = Random(seed);
            let count = 60;
            let mut units = vec![Unit::default(); count];
            for index in 0..count - 6 {
                // Waits lead downwards only; symbols that merely depend on each other form rings of three.
                for _ in 0..numbers.below(3) {
                    units[index].blocks_for.insert(index + 6 + numbers.below(count - index - 6));
                }
                let ring = index - index % 3 + (index + 1) % 3;
                if units[index].blocks_for.is_empty() && units[ring].blocks_for.is_empty() {
                    units[index].depends_on.insert(ring);
                }
                units[index].depends_on.insert(index + 6 + numbers.below(count - index - 6));
            }
            let stage = Stage::of(seed);
            stage.restrict(&mut units);
            let expected = stuck(&units);
            assert!(!expected.contains(&true), "seed {seed}: the graph is not what it should be");
            let (session, main) = session_of(stage.workers);
            units.into_iter().enumerate().for_each(|(index, unit)| define(&main, index, unit));
            look_all_up(&session, &main, stage, &expected, seed);
            session.close().unwrap();
        });
    }
}

#[test]
fn of_any_graph_exactly_what_is_stuck_fails() {
    for seed in 0..90 {
        within_reason(move || {
            let mut numbers = Random(1_000 + seed);
            let count = 20 + numbers.below(30);
            let mut units = vec![Unit::default(); count];
            for unit in &mut units {
                for _ in 0..numbers.below(3) {
                    match numbers.below(3) {
                        0 => unit.blocks_for.insert(numbers.below(count)),
                        _ => unit.depends_on.insert(numbers.below(count)),
                    };
                }
            }
            let stage = Stage::of(seed);
            stage.restrict(&mut units);
            let expected = stuck(&units);
            let (session, main) = session_of(stage.workers);
            units.into_iter().enumerate().for_each(|(index, unit)| define(&main, index, unit));
            look_all_up(&session, &main, stage, &expected, seed);
            session.close().unwrap();
        });
    }
}
