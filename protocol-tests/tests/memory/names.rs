//! Memory is proportional to the live symbols.

use protocol_tests::resident::grows_no_more_after_three;
use protocol_tests::*;
use uruk_core::{ExecutionSession, JitDylib, LookupRequest, LookupSet, absolute_symbols};

/// Defines `count` symbols with names of their own in units of 500, makes each of them Ready, and removes them.
fn come_and_go(session: &ExecutionSession, main: &JitDylib, round: usize, count: usize) {
    let tracker = main.create_tracker();
    let names: Vec<_> = (0..count)
        .map(|index| session.intern(&format!("a_name_as_long_as_they_are_{round}_{index}")))
        .collect();
    for names in names.chunks(500) {
        let symbols = names.iter().map(|name| (name.clone(), at(1))).collect();
        main.define_with_tracker(absolute_symbols(symbols), &tracker).unwrap();
    }
    let found = session.lookup(LookupRequest::new(order(main), LookupSet::required(names))).unwrap();
    assert_eq!(found.len(), count);
    drop(found);
    tracker.remove().unwrap();
}

#[test]
fn a_million_symbols_that_came_and_went_leave_nothing() {
    const ROUNDS: usize = 20;
    const EACH: usize = 50_000;
    let (session, main) = session();
    define_simple(&main, "stays", &["stays"]);
    // Each round allocates over 20 MB.
    grows_no_more_after_three(ROUNDS, 4 << 20, |round| {
        come_and_go(&session, &main, round, EACH);
        let names = session.symbol_string_pool().len();
        assert!(names < 2_000, "{names} names after round {round}, 2 of them live");
    });
    session.lookup_symbol(&order(&main), &session.intern("stays")).unwrap();
}

#[test]
fn names_that_the_embedder_still_holds_survive_their_symbols() {
    let (session, main) = session();
    let held = session.intern("held");
    let tracker = main.create_tracker();
    main.define_with_tracker(absolute_symbols([(held.clone(), at(1))].into_iter().collect()), &tracker)
        .unwrap();
    session.lookup_symbol(&order(&main), &held).unwrap();
    tracker.remove().unwrap();
    come_and_go(&session, &main, 0, 10_000);
    assert_eq!(session.symbol_string_pool().get("held"), Some(held));
}
