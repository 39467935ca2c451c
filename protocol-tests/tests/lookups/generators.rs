//! Definition generators: asked for missing symbols, suspended, queued, failing.

use std::sync::Arc;

use protocol_tests::sends::sends;
use protocol_tests::*;
use uruk_core::{
    DefinitionGenerator, ExecutionSession, GenerateRequest, JitDylib, JitDylibLookupFlags, LookupError,
    LookupKind, LookupRequest, ReexportsGenerator, SearchOrder, SymbolFlags, absolute_symbols, shared_error,
};

/// Defines what it is asked for, at one address.
struct Defines(u64);

impl DefinitionGenerator for Defines {
    fn name(&self) -> &str {
        "defines"
    }

    fn generate(&self, request: GenerateRequest) {
        let symbols = request.symbols().iter().map(|(name, _)| (name.clone(), at(self.0))).collect();
        request.dylib().define(absolute_symbols(symbols)).unwrap();
        request.finish(Ok(()));
    }
}

#[test]
fn missing_symbols_are_generated() {
    let (session, main) = session();
    main.add_generator(Arc::new(Defines(5)));
    define_simple(&main, "unit", &["a"]);
    let found = session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b"]))).unwrap();
    assert_eq!(found[&session.intern("b")], at(5));
    assert_eq!(found[&session.intern("a")], at(0x1000));
}

#[test]
fn an_earlier_dylibs_generator_comes_before_a_later_dylibs_definition() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    main.add_generator(Arc::new(Defines(5)));
    define_simple(&other, "unit", &["a"]);
    let all = JitDylibLookupFlags::MatchAllSymbols;
    let both = [(main.clone(), all), (other, all)].into();
    assert_eq!(session.lookup_symbol(&both, &session.intern("a")).unwrap(), at(5));
}

#[test]
fn a_generator_may_finish_later_on_another_thread() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let answer = look_up_later(&session, request(&main, &["a"]));
    let request = requests.try_recv().unwrap();
    assert!(answer.try_recv().is_err());
    std::thread::spawn(move || {
        let request = request.attach();
        assert_eq!(request.symbols().len(), 1);
        define_simple(request.dylib(), "late", &["a"]);
        request.finish(Ok(()));
    })
    .join()
    .unwrap();
    assert!(answer.recv().unwrap().is_ok());
}

#[test]
fn lookups_queue_at_a_busy_generator() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let first = look_up_later(&session, request(&main, &["a"]));
    let second = look_up_later(&session, request(&main, &["a"]));
    let third = look_up_later(&session, request(&main, &["c"]));
    let asked = requests.try_recv().unwrap().attach();
    assert!(requests.try_recv().is_err(), "one lookup at a time");
    define_simple(&main, "unit", &["a"]);
    asked.finish(Ok(()));
    assert!(first.try_recv().unwrap().is_ok());
    assert!(second.try_recv().unwrap().is_ok(), "its symbol is there by now");
    let asked = requests.try_recv().unwrap().attach();
    assert_eq!(asked.symbols().iter().next().unwrap().0, &session.intern("c"));
    asked.finish(Ok(()));
    assert!(matches!(third.try_recv().unwrap(), Err(LookupError::NotFound { .. })));
}

#[test]
fn a_failing_generator_fails_the_lookup() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let answer = look_up_later(&session, request(&main, &["a"]));
    requests.try_recv().unwrap().attach().finish(Err(shared_error("the archive is truncated")));
    let error = answer.try_recv().unwrap().unwrap_err();
    assert_eq!(
        error.in_full(),
        "definition generator `sends` of dylib `main` failed: the archive is truncated"
    );
}

#[test]
fn a_dropped_request_fails_its_lookup_and_serves_the_next() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let first = look_up_later(&session, request(&main, &["a"]));
    let second = look_up_later(&session, request(&main, &["a"]));
    drop(requests.try_recv().unwrap());
    assert!(matches!(first.try_recv().unwrap(), Err(LookupError::Generator { .. })));
    requests.try_recv().unwrap().attach().finish(Ok(()));
    assert!(matches!(second.try_recv().unwrap(), Err(LookupError::NotFound { .. })));
}

#[test]
fn a_panicking_generator_fails_the_lookup() {
    struct Panics;
    impl DefinitionGenerator for Panics {
        fn name(&self) -> &str {
            "panics"
        }
        fn generate(&self, _request: GenerateRequest) {
            panic!("on purpose");
        }
    }
    let (session, main) = session();
    main.add_generator(Arc::new(Panics));
    let error = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap_err();
    assert!(matches!(error, LookupError::Generator { .. }));
}

#[test]
fn removing_a_generator_fails_its_queue_and_lets_its_lookup_finish() {
    let (session, main) = session();
    let (generator, requests) = sends();
    let id = main.add_generator(generator).unwrap();
    let first = look_up_later(&session, request(&main, &["a"]));
    let second = look_up_later(&session, request(&main, &["b"]));
    assert!(main.remove_generator(id));
    assert!(!main.remove_generator(id));
    assert!(matches!(second.try_recv().unwrap(), Err(LookupError::Generator { .. })));
    define_simple(&main, "unit", &["a"]);
    requests.try_recv().unwrap().attach().finish(Ok(()));
    assert!(first.try_recv().unwrap().is_ok());
}

#[test]
fn a_generator_is_not_asked_for_what_a_hidden_symbol_matched() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let hidden = [(session.intern("a"), SymbolFlags::empty())].into_iter().collect();
    main.define(TestUnit::new("unit", hidden, finish).boxed()).unwrap();
    let exported_only = [(main.clone(), JitDylibLookupFlags::MatchExportedSymbolsOnly)].into();
    let error = session.lookup_symbol(&exported_only, &session.intern("a")).unwrap_err();
    assert!(matches!(error, LookupError::NotFound { .. }));
    assert!(requests.try_recv().is_err());
}

#[test]
fn a_suspended_future_can_be_withdrawn() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    drop(session.lookup_future(request(&main, &["a"])));
    let next = look_up_later(&session, request(&main, &["b"]));
    requests.try_recv().unwrap().attach().finish(Ok(()));
    requests.try_recv().unwrap().attach().finish(Ok(()));
    assert!(matches!(next.try_recv().unwrap(), Err(LookupError::NotFound { .. })));
}

/// The query was taken out when the generator had finished and lodged under a new id, which the future did not know: dropping
/// it withdrew nothing, and a unit that no lookup wanted any more stayed wanted.
#[test]
fn a_lookup_can_be_withdrawn_after_its_generator_has_finished() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let future = session.lookup_future(request(&main, &["a"]));
    let parked = define_parked(&main, "unit", &["a"]);
    requests.try_recv().unwrap().attach().finish(Ok(()));
    let responsibility = parked.try_recv().unwrap().attach();
    assert_eq!(responsibility.requested_symbols(), [session.intern("a")]);
    drop(future);
    assert!(responsibility.requested_symbols().is_empty(), "nobody waits any more");
}

#[test]
fn static_and_dlsym_lookups_tell_generators_their_kind() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let exported_only: SearchOrder = [(main.clone(), JitDylibLookupFlags::MatchExportedSymbolsOnly)].into();
    for kind in [LookupKind::Static, LookupKind::DlSym] {
        let mut request = LookupRequest::new(exported_only.clone(), set(&session, &["a"]));
        request.kind = kind;
        let _answer = look_up_later(&session, request);
        let asked = requests.try_recv().unwrap().attach();
        assert_eq!(
            (asked.kind(), asked.lookup_flags()),
            (kind, JitDylibLookupFlags::MatchExportedSymbolsOnly)
        );
        assert_eq!(asked.dylib(), &main);
        asked.finish(Ok(()));
    }
}

#[test]
fn generators_of_a_dylib_are_asked_in_order_for_what_is_left() {
    let (session, main) = session();
    let (first, to_first) = sends();
    let (second, to_second) = sends();
    main.add_generator(first);
    main.add_generator(second);
    let answer = look_up_later(&session, request(&main, &["a", "b"]));
    assert!(to_second.try_recv().is_err(), "one after the other");
    define_simple(&main, "unit of a", &["a"]);
    to_first.try_recv().unwrap().attach().finish(Ok(()));
    let asked = to_second.try_recv().unwrap().attach();
    let names: Vec<_> = asked.symbols().iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, [session.intern("b")]);
    define_simple(&main, "unit of b", &["b"]);
    asked.finish(Ok(()));
    assert!(answer.try_recv().unwrap().is_ok());
}

/// ```text
///  first lookup:  along main, other      asks main's generator, then other's
///  second lookup: along other, main      asks other's generator, then main's
/// ```
#[test]
fn lookups_blocked_behind_one_another_at_two_generators_go_on() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let (mains, to_main) = sends();
    let (others, to_other) = sends();
    main.add_generator(mains);
    other.add_generator(others);
    let along = |dylibs: [&JitDylib; 2]| -> SearchOrder {
        dylibs.map(|dylib| (dylib.clone(), JitDylibLookupFlags::MatchAllSymbols)).into()
    };
    let look_up = |dylibs| look_up_later(&session, LookupRequest::new(along(dylibs), set(&session, &["a"])));
    let (one, two) = (look_up([&main, &other]), look_up([&other, &main]));
    let (at_main, at_other) = (to_main.try_recv().unwrap().attach(), to_other.try_recv().unwrap().attach());
    // Each goes on to a generator that is busy with the other lookup.
    at_main.finish(Ok(()));
    at_other.finish(Ok(()));
    to_main.try_recv().unwrap().attach().finish(Ok(()));
    to_other.try_recv().unwrap().attach().finish(Ok(()));
    assert!(matches!(one.try_recv().unwrap(), Err(LookupError::NotFound { .. })));
    assert!(matches!(two.try_recv().unwrap(), Err(LookupError::NotFound { .. })));
}

#[test]
fn a_generator_added_in_flight_is_asked_where_the_lookup_has_not_been_yet() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let mut along = order(&main);
    along.push(other.clone(), JitDylibLookupFlags::MatchAllSymbols);
    let answer = look_up_later(&session, LookupRequest::new(along, set(&session, &["a"])));
    main.add_generator(Arc::new(Defines(1)));
    other.add_generator(Arc::new(Defines(2)));
    requests.try_recv().unwrap().attach().finish(Ok(()));
    let found = answer.try_recv().unwrap().unwrap();
    assert_eq!(found[&session.intern("a")], at(2), "behind the place where the lookup was");
    let later = look_up_later(&session, request(&main, &["b"]));
    requests.try_recv().unwrap().attach().finish(Ok(()));
    assert_eq!(later.try_recv().unwrap().unwrap()[&session.intern("b")], at(1));
}

#[test]
fn a_generator_removed_in_flight_fails_the_lookup_that_was_on_its_way_to_it() {
    let (session, main) = session();
    let (first, requests) = sends();
    main.add_generator(first);
    let second = main.add_generator(Arc::new(Defines(1))).unwrap();
    let answer = look_up_later(&session, request(&main, &["a"]));
    assert!(main.remove_generator(second));
    requests.try_recv().unwrap().attach().finish(Ok(()));
    let error = answer.try_recv().unwrap().unwrap_err();
    assert!(matches!(error, LookupError::Generator { .. }), "{error}");
    assert!(error.in_full().contains("was removed while the lookup was on its way to it"), "{error}");
}

/// With no generator left the lookup once ignored the removal, and said that the symbol was not found.
#[test]
fn the_last_generators_removed_in_flight_fail_the_lookup_as_well() {
    let (session, main) = session();
    let (first, requests) = sends();
    let added = [main.add_generator(first), main.add_generator(Arc::new(Defines(1)))];
    let answer = look_up_later(&session, request(&main, &["a"]));
    assert!(added.into_iter().all(|generator| main.remove_generator(generator.unwrap())));
    requests.try_recv().unwrap().attach().finish(Ok(()));
    let error = answer.try_recv().unwrap().unwrap_err();
    assert!(matches!(error, LookupError::Generator { .. }), "{error}");
}

#[test]
fn a_generator_destroyed_with_its_dylib_fails_its_queue_and_its_lookup() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let (generator, requests) = sends();
    main.add_generator(generator.clone());
    let first = look_up_later(&session, request(&main, &["a"]));
    let second = look_up_later(&session, request(&main, &["b"]));
    let mut along = order(&other);
    along.push(main.clone(), JitDylibLookupFlags::MatchAllSymbols);
    let third = look_up_later(&session, LookupRequest::new(along, set(&session, &["c"])));
    session.remove_jit_dylib(&main).unwrap();
    for answer in [first, second, third] {
        assert!(matches!(answer.try_recv().unwrap(), Err(LookupError::DylibRemoved { .. })));
    }
    assert_eq!(Arc::strong_count(&generator), 1, "the session has let go of it");
    // Its request has no effect any more.
    requests.try_recv().unwrap().attach().finish(Ok(()));
    assert!(requests.try_recv().is_err());
}

#[test]
fn lookups_of_flags_ask_generators_and_materialize_nothing() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    std::thread::scope(|scope| {
        let flags = scope.spawn(|| session.lookup_flags(request(&main, &["a"])));
        let asked = requests.recv().unwrap();
        let parked = define_parked(&main, "unit", &["a"]);
        asked.attach().finish(Ok(()));
        assert_eq!(flags.join().unwrap().unwrap()[&session.intern("a")], EXPORTED);
        assert!(parked.try_recv().is_err(), "nothing was materialized");
        let flags = scope.spawn(|| session.lookup_flags(request(&main, &["b"])));
        requests.recv().unwrap().attach().finish(Err(shared_error("the index is torn")));
        assert!(matches!(flags.join().unwrap(), Err(LookupError::Generator { .. })));
    });
    main.add_generator(Arc::new(Defines(3)));
    let blocking = std::thread::scope(|scope| {
        let lookup =
            scope.spawn(|| session.lookup_flags(LookupRequest::new(order(&main), set(&session, &["c"]))));
        requests.recv().unwrap().attach().finish(Ok(()));
        lookup.join().unwrap()
    });
    assert_eq!(blocking.unwrap().len(), 1);
}

fn reexporting(session: &ExecutionSession, from: &JitDylib) -> JitDylib {
    let facade = session.create_jit_dylib("facade").unwrap();
    let generator = ReexportsGenerator::new(from.clone(), JitDylibLookupFlags::MatchExportedSymbolsOnly)
        .allow_only(|name| !name.as_str().starts_with('_'));
    facade.add_generator(Arc::new(generator));
    facade
}

#[test]
fn a_reexports_generator_shows_what_another_dylib_exports_and_its_list_allows() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a", "_private"]);
    let hidden = [(session.intern("hidden"), SymbolFlags::empty())].into_iter().collect();
    main.define(TestUnit::new("hidden", hidden, finish).boxed()).unwrap();
    let facade = reexporting(&session, &main);
    let a = session.intern("a");
    let (own, shown) = (session.lookup_symbol(&order(&main), &a), session.lookup_symbol(&order(&facade), &a));
    assert_eq!(own.unwrap(), shown.unwrap());
    for name in ["_private", "hidden", "missing"] {
        let error = session.lookup_symbol(&order(&facade), &session.intern(name)).unwrap_err();
        assert!(matches!(error, LookupError::NotFound { .. }), "{error}");
    }
}

#[test]
fn a_reexports_generator_materializes_nothing_before_somebody_asks() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let facade = reexporting(&session, &main);
    let flags = session.lookup_flags(LookupRequest::new(order(&facade), set(&session, &["a"]))).unwrap();
    assert_eq!(flags[&session.intern("a")], EXPORTED);
    assert!(parked.try_recv().is_err());
    let answer = look_up_later(&session, request(&facade, &["a"]));
    finish(parked.try_recv().unwrap().attach());
    assert!(answer.try_recv().unwrap().is_ok());
}

#[test]
fn a_reexports_generator_asks_the_generators_of_its_source() {
    let (session, main) = session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let facade = reexporting(&session, &main);
    let answer = look_up_later(&session, request(&facade, &["a"]));
    define_simple(&main, "unit", &["a"]);
    requests.try_recv().unwrap().attach().finish(Ok(()));
    assert!(answer.try_recv().unwrap().is_ok());
    let failed = look_up_later(&session, request(&facade, &["b"]));
    requests.try_recv().unwrap().attach().finish(Err(shared_error("the index is torn")));
    let error = failed.try_recv().unwrap().unwrap_err();
    assert!(error.in_full().contains("`re-exports of main` of dylib `facade` failed"), "{error}");
}

#[test]
fn dylibs_that_reexport_each_other_find_what_one_has_and_never_wait_for_themselves() {
    within_reason(|| {
        let (session, main) = session();
        let facade = reexporting(&session, &main);
        let all = JitDylibLookupFlags::MatchAllSymbols;
        main.add_generator(Arc::new(ReexportsGenerator::new(facade.clone(), all)));
        main.add_generator(Arc::new(ReexportsGenerator::new(main.clone(), all)));
        define_simple(&main, "unit of a", &["a"]);
        define_simple(&facade, "unit of b", &["b"]);
        session.lookup(LookupRequest::new(order(&facade), set(&session, &["a", "b"]))).unwrap();
        session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b"]))).unwrap();
        let error = session.lookup_symbol(&order(&main), &session.intern("c")).unwrap_err();
        assert!(error.in_full().contains("leads back to it"), "{error}");
        // No lookup is left behind at either generator.
        assert!(session.lookup_symbol(&order(&facade), &session.intern("d")).is_err());
    });
}
