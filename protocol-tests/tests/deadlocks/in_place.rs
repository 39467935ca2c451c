//! In place one thread runs the units it waits for, in an order in which no unit lies above another that it needs.

use std::sync::mpsc;

use protocol_tests::deadlock::finish_or_fail;
use protocol_tests::on::{EVERYWHERE, On};
use protocol_tests::*;
use uruk_core::{
    AliasTarget, JitDylib, LookupError, LookupRequest, LookupResult, LookupSet, Task, TaskPriority,
    symbol_aliases,
};

/// A unit of `symbol` that finishes once a lookup of `needs` is answered: one that blocks its thread, or one of addresses, as linkers
/// make them, in whose handler the unit goes on.
fn define_needing(main: &JitDylib, symbol: &str, needs: &'static str, blocks: bool) {
    let unit = TestUnit::new(symbol, exported(main.session(), &[symbol]), move |responsibility| {
        let main = responsibility.dylib().clone();
        if blocks {
            let found = main.session().lookup_symbol(&order(&main), &main.session().intern(needs));
            return finish_or_fail(responsibility, found.map(drop));
        }
        let parked = responsibility.detach();
        main.session().lookup_async(request(&main, &[needs]).until_resolved(), move |found| {
            finish_or_fail(parked.attach(), found.map(drop));
        });
    });
    main.define(unit.boxed()).unwrap();
}

/// ```text
///   a ─ blocks for ─▶ s          b ─ blocks for ─▶ c ─ asks, and goes on in the handler ─▶ a
/// ```
///
/// One thread once ran b above a, for b was queued before s. There b waited for c, c for a, and a's frame could not go on
/// before b's had returned. No other thread could end that, and no lookup was told, though the graph has no cycle.
#[test]
fn a_unit_that_the_lookup_does_not_need_runs_above_none_that_waits() {
    EVERYWHERE.into_iter().for_each(answers_whatever_is_queued_first);
}

fn answers_whatever_is_queued_first(on: On) {
    for names in [&["a", "b"][..], &["a", "b", "s"], &["b", "a"], &["c", "b", "s", "a"]] {
        for (b_blocks, c_blocks) in [(true, false), (true, true), (false, true)] {
            for at_once in [true, false] {
                within_reason(move || {
                    let (session, main) = on.session();
                    define_needing(&main, "a", "s", true);
                    define_needing(&main, "b", "c", b_blocks);
                    define_needing(&main, "c", "a", c_blocks);
                    define_simple(&main, "s", &["s"]);
                    match at_once {
                        true => drop(
                            session.lookup(LookupRequest::new(order(&main), set(&session, names))).unwrap(),
                        ),
                        // From a frame, so that all of them are queued one by one before the first of them runs.
                        false => {
                            let (answers, answer) = mpsc::channel();
                            let (inner, dylib) = (session.clone(), main.clone());
                            session.dispatch(Task::new("asks", TaskPriority::Demanded, move || {
                                for name in names {
                                    let answers = answers.clone();
                                    inner.lookup_async(request(&dylib, &[name]), move |found| {
                                        answers.send(found.is_ok()).unwrap();
                                    });
                                }
                            }));
                            assert_eq!(answer.iter().collect::<Vec<_>>(), vec![true; names.len()]);
                        }
                    }
                    session.close().unwrap();
                });
            }
        }
    }
}

/// A unit that a blocked lookup needs may be queued for long, and far away: behind a detached responsibility, an alias, and a
/// dependence of an emitted symbol.
#[test]
fn what_the_lookup_needs_is_found_in_the_queue_however_far_away_it_is() {
    within_reason(|| {
        let (session, main) = session();
        let target = AliasTarget { source: session.intern("emitted"), flags: EXPORTED };
        define_needing(&main, "a", "detached", true);
        define_needing(&main, "other", "a", true);
        define_needing(&main, "detached", "alias", false);
        main.define(symbol_aliases([(session.intern("alias"), target)].into_iter().collect())).unwrap();
        let unit = TestUnit::new("emitted", exported(&session, &["emitted"]), |responsibility| {
            let needs = request(responsibility.dylib(), &["last"]);
            emit_depending_on(resolve(responsibility), needs);
        });
        main.define(unit.boxed()).unwrap();
        define_simple(&main, "last", &["last"]);
        let (send, log) = mpsc::channel();
        let ended = move |name: &'static str| {
            let send = send.clone();
            move |found: Result<LookupResult, LookupError>| send.send((name, found.is_ok())).unwrap()
        };
        let (inner, dylib) = (session.clone(), main.clone());
        session.dispatch(Task::new("asks", TaskPriority::Demanded, move || {
            for name in ["a", "other", "detached", "alias", "emitted", "last"] {
                inner.lookup_async(request(&dylib, &[name]), ended(name));
            }
        }));
        let answers: Vec<_> = log.iter().collect();
        assert!(answers.iter().all(|(_, found)| *found), "{answers:?}");
        assert_eq!(answers.len(), 6);
        session.close().unwrap();
    });
}

/// Each unit needs some that come later in the queue. The stack is no deeper than the longest chain of needs is long.
#[test]
fn a_thousand_units_of_one_lookup_that_block_for_each_other_need_little_stack() {
    within_reason(|| {
        let (session, main) = session();
        let names: Vec<String> = (0..1_000).map(|index| format!("s{index}")).collect();
        for index in 0..names.len() {
            let symbols = exported(&session, &[&names[index]]);
            let needs: Vec<_> = [2 * index + 1, 2 * index + 2]
                .iter()
                .filter_map(|&needed| names.get(needed))
                .cloned()
                .collect();
            let unit = TestUnit::new("unit", symbols, move |responsibility| {
                let main = responsibility.dylib().clone();
                let needs: Vec<_> = needs.iter().map(String::as_str).collect();
                let found =
                    main.session().lookup(LookupRequest::new(order(&main), set(main.session(), &needs)));
                finish_or_fail(responsibility, found.map(drop));
            });
            main.define(unit.boxed()).unwrap();
        }
        let names = LookupSet::required(names.iter().map(|name| session.intern(name)));
        assert_eq!(session.lookup(LookupRequest::new(order(&main), names)).unwrap().len(), 1_000);
        session.close().unwrap();
    });
}
