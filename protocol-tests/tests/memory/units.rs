//! Memory is proportional to the live symbols, also after units ran, depended on each other, failed, and had aliases.

use protocol_tests::resident::grows_no_more_after_three;
use protocol_tests::*;
use uruk_core::{
    AliasTarget, ExecutionSession, JitDylib, LookupError, LookupRequest, LookupSet, ResourceTracker,
    SymbolName, shared_error, symbol_aliases,
};

/// The fate of the symbol of this number: a third depends on the next one, a third fails, a third becomes Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Depends,
    Fails,
    Finishes,
}

fn fate(index: usize) -> Fate {
    // The symbol after one that depends fails and finishes by turns.
    match index % 6 {
        0 | 3 => Fate::Depends,
        1 | 2 => Fate::Fails,
        _ => Fate::Finishes,
    }
}

/// Whether the symbol of this number is Ready in the end.
fn is_ready(index: usize) -> bool {
    match fate(index) {
        Fate::Depends => fate(index + 1) == Fate::Finishes,
        fate => fate == Fate::Finishes,
    }
}

fn define_one(main: &JitDylib, tracker: &ResourceTracker, round: usize, index: usize) -> SymbolName {
    let name = |index| format!("a_symbol_as_long_as_they_are_{round}_{index}");
    let (symbol, next) = (name(index), name(index + 1));
    let unit = format!("a_unit_with_a_name_of_its_own_{round}_{index}");
    let unit = TestUnit::new(&unit, exported(main.session(), &[&symbol]), move |responsibility| {
        match fate(index) {
            Fate::Depends => {
                let needs = request(responsibility.dylib(), &[&next]);
                emit_depending_on(resolve(responsibility), needs);
            }
            Fate::Fails => {
                let error = format!("no code for number {index} of round {round}, whatever was tried");
                // Half of them fail once they have an address, when another symbol may depend on them.
                match index % 6 {
                    1 => resolve(responsibility).fail(shared_error(error)),
                    _ => responsibility.fail(shared_error(error)),
                }
            }
            Fate::Finishes => finish(responsibility),
        }
    });
    main.define_with_tracker(unit.boxed(), tracker).unwrap();
    main.session().intern(&symbol)
}

/// Defines `count` units of one symbol each and aliases of every tenth of them, looks all of it up, and removes it.
fn come_and_go(session: &ExecutionSession, main: &JitDylib, round: usize, count: usize) {
    assert_eq!(count % 6, 0, "the last one depends on nothing");
    let tracker = main.create_tracker();
    let symbols: Vec<_> = (0..count).map(|index| define_one(main, &tracker, round, index)).collect();
    let alias = |index: &usize| session.intern(&format!("another_name_for_{round}_{index}"));
    let numbers: Vec<usize> = (0..count).step_by(10).collect();
    let target = |index: &usize| AliasTarget { source: symbols[*index].clone(), flags: EXPORTED };
    let aliases = numbers.iter().map(|index| (alias(index), target(index))).collect();
    main.define_with_tracker(symbol_aliases(aliases), &tracker).unwrap();

    let mut failed = 0;
    for (index, symbol) in symbols.iter().enumerate() {
        match session.lookup_symbol(&order(main), symbol) {
            Ok(_) => assert!(is_ready(index), "{index}"),
            Err(LookupError::Failed(failure)) => {
                let text = failure.in_full();
                assert!(!is_ready(index) && text.contains("whatever was tried"), "{index}: {text}");
                failed += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(failed, count / 2);
    for index in numbers {
        let found = session.lookup(LookupRequest::new(order(main), LookupSet::one(alias(&index))));
        assert_eq!(found.is_ok(), is_ready(index), "{index}");
    }
    drop(symbols);
    tracker.remove().unwrap();
}

#[test]
fn units_that_came_and_went_leave_nothing() {
    const ROUNDS: usize = 8;
    const EACH: usize = 2_400;
    let (session, main) = session();
    define_simple(&main, "stays", &["stays"]);
    // Each round has names and messages alone of over half a megabyte.
    grows_no_more_after_three(ROUNDS, 2 << 20, |round| {
        come_and_go(&session, &main, round, EACH);
        // A round has twice as many, of symbols and of units. Some of the last one's wait for the next sweep.
        let names = session.symbol_string_pool().len();
        assert!(names < EACH, "{names} names after round {round}, 2 of them live");
    });
    session.lookup_symbol(&order(&main), &session.intern("stays")).unwrap();
    session.close().unwrap();
}
