//! Lookups: matching, waiting, the three faces.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use protocol_tests::*;
use uruk_core::sync::Latch;
use uruk_core::{
    DefinitionGenerator, DylibError, ExecutionSession, GenerateRequest, JitDylib, JitDylibLookupFlags,
    LookupError, LookupRequest, LookupSet, SearchOrder, SymbolFlags, SymbolLookupFlags, absolute_symbols,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

#[test]
fn a_lookup_runs_the_unit_and_answers_with_its_address() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a"]);
    let found = session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    assert_eq!(found, at(0x1000));
}

#[test]
fn absolute_symbols_are_found() {
    let (session, main) = session();
    let a = session.intern("a");
    main.define(absolute_symbols([(a.clone(), at(7))].into_iter().collect())).unwrap();
    assert_eq!(session.lookup_symbol(&order(&main), &a).unwrap(), at(7));
    assert_eq!(session.lookup_symbol(&order(&main), &a).unwrap(), at(7));
}

#[test]
fn missing_symbols_are_named_with_the_dylibs_searched() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a"]);
    let error =
        session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "b", "c"]))).unwrap_err();
    assert_eq!(error.in_full(), "not found: `b`, `c` (searched `main`)");
}

#[test]
fn a_lookup_in_vain_names_what_it_can_see_and_may_have_meant() {
    let (session, main) = session();
    let hidden = [(session.intern("hiddne"), SymbolFlags::empty()), (session.intern("helper"), EXPORTED)];
    main.define(TestUnit::new("unit", hidden.into_iter().collect(), finish).boxed()).unwrap();
    let exported: SearchOrder = [(main.clone(), EXPORTED_ONLY)].into();
    let told = |names: &[&str]| {
        session.lookup(LookupRequest::new(&exported, set(&session, names))).unwrap_err().in_full()
    };
    assert_eq!(told(&["hepler"]), "not found: `hepler` (searched `main`); did you mean `helper`?");
    assert_eq!(told(&["hidden"]), "not found: `hidden` (searched `main`)");
    let both = told(&["hepler", "other"]);
    assert!(both.ends_with("(searched `main`); did you mean `helper` for `hepler`?"), "{both}");
    // A program that asks for more and more names does not read it, and would pay for it.
    (0..1000).for_each(|number| _ = told(&[&format!("absent{number}")]));
    assert_eq!(told(&["helpre"]), "not found: `helpre` (searched `main`)");
    assert_eq!(told(&["hepler"]), "not found: `hepler` (searched `main`); did you mean `helper`?");
}

#[test]
fn a_lookup_in_vain_is_told_of_what_has_come_and_not_of_what_has_gone() {
    let (session, main) = session();
    let told = || session.lookup(request(&main, &["hepler"])).unwrap_err().in_full();
    assert_eq!(told(), "not found: `hepler` (searched `main`)");
    define_simple(&main, "late", &["helper"]);
    assert_eq!(told(), "not found: `hepler` (searched `main`); did you mean `helper`?");
    main.remove(&[session.intern("helper")]).unwrap();
    assert_eq!(told(), "not found: `hepler` (searched `main`)");
}

#[test]
fn an_empty_lookup_succeeds() {
    let (session, main) = session();
    assert!(session.lookup(LookupRequest::new(order(&main), LookupSet::new())).unwrap().is_empty());
}

#[test]
fn weakly_referenced_symbols_may_be_missing() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a"]);
    let mut symbols = set(&session, &["a"]);
    symbols.add(session.intern("absent"), SymbolLookupFlags::WeaklyReferencedSymbol);
    let found = session.lookup(LookupRequest::new(order(&main), symbols)).unwrap();
    assert_eq!(found.len(), 1);
}

#[test]
fn hidden_symbols_are_seen_by_lookups_of_all_symbols_only() {
    let (session, main) = session();
    let a = session.intern("a");
    let hidden = [(a.clone(), SymbolFlags::empty())].into_iter().collect();
    main.define(TestUnit::new("unit", hidden, finish).boxed()).unwrap();
    let exported_only = [(main.clone(), JitDylibLookupFlags::MatchExportedSymbolsOnly)].into();
    assert!(matches!(session.lookup_symbol(&exported_only, &a), Err(LookupError::NotFound { .. })));
    session.lookup_symbol(&order(&main), &a).unwrap();
}

#[test]
fn the_first_dylib_of_the_order_wins() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let a = session.intern("a");
    for (dylib, address) in [(&main, 1), (&other, 2)] {
        dylib.define(absolute_symbols([(a.clone(), at(address))].into_iter().collect())).unwrap();
    }
    let all = JitDylibLookupFlags::MatchAllSymbols;
    let both = [(other.clone(), all), (main.clone(), all)].into();
    assert_eq!(session.lookup_symbol(&both, &a).unwrap(), at(2));
}

#[test]
fn a_linker_is_answered_when_addresses_are_known() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let resolved = look_up_later(&session, request(&main, &["a"]).until_resolved());
    let ready = look_up_later(&session, request(&main, &["a"]));
    let responsibility = parked.try_recv().unwrap().attach();
    let definitions = addresses(responsibility.symbols());
    let responsibility = responsibility.notify_resolved(&definitions).unwrap();
    let answer = resolved.try_recv().unwrap().unwrap();
    assert_eq!(answer.get(&session.intern("a")), Some(at(0x1000)));
    assert!(ready.try_recv().is_err());
    responsibility.notify_emitted(Vec::new()).unwrap();
    assert!(ready.try_recv().unwrap().is_ok());
}

#[test]
fn ten_thousand_symbols_of_one_unit_and_of_as_many() {
    let (session, main) = session();
    let names: Vec<String> = (0..10_000).map(|index| format!("one_{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    define_simple(&main, "large", &names);
    assert_eq!(
        session.lookup(LookupRequest::new(order(&main), set(&session, &names))).unwrap().len(),
        names.len()
    );
    let many: Vec<String> = (0..10_000).map(|index| format!("many_{index}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for name in &many {
        define_simple(&main, name, &[name]);
    }
    assert_eq!(
        session.lookup(LookupRequest::new(order(&main), set(&session, &many))).unwrap().len(),
        many.len()
    );
}

#[test]
fn a_future_answers_and_wakes() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let mut future = pin!(session.lookup_future(request(&main, &["a"])));
    let waker = waker();
    let mut context = Context::from_waker(&waker);
    assert!(future.as_mut().poll(&mut context).is_pending());
    finish(parked.recv().unwrap().attach());
    let Poll::Ready(Ok(answer)) = future.as_mut().poll(&mut context) else { panic!("the unit has finished") };
    assert_eq!(answer.len(), 1);
}

#[test]
fn a_lookup_inside_a_unit_is_served_on_the_same_thread() {
    let (session, main) = session();
    define_simple(&main, "inner", &["inner"]);
    let (looking, dylib) = (session.clone(), main.clone());
    let outer = TestUnit::new("outer", exported(&session, &["outer"]), move |responsibility| {
        looking.lookup_symbol(&order(&dylib), &looking.intern("inner")).unwrap();
        finish(responsibility);
    });
    main.define(outer.boxed()).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("outer")).unwrap();
}

const EXPORTED_ONLY: JitDylibLookupFlags = JitDylibLookupFlags::MatchExportedSymbolsOnly;

fn names(dylibs: &[JitDylib]) -> Vec<&str> {
    dylibs.iter().map(JitDylib::name).collect()
}

#[test]
fn each_place_of_a_link_order_matches_as_it_says() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let a = session.intern("a");
    let hidden = [(a.clone(), SymbolFlags::empty())].into_iter().collect();
    main.define(TestUnit::new("hidden", hidden, finish).boxed()).unwrap();
    define_absolute(&other, "a", 7);
    let along = |flags| [(main.clone(), flags), (other.clone(), EXPORTED_ONLY)].into();
    assert_eq!(session.lookup_symbol(&along(EXPORTED_ONLY), &a).unwrap(), at(7), "past the hidden one");
    let own = session.lookup_symbol(&along(JitDylibLookupFlags::MatchAllSymbols), &a).unwrap();
    assert_eq!(own.flags, SymbolFlags::empty(), "a dylib sees its own");
}

#[test]
fn weakly_referenced_symbols_that_exist_are_waited_for_and_fail_the_lookup() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    let weakly = LookupSet::weakly_referenced([session.intern("a")]);
    let answer = look_up_later(&session, LookupRequest::new(order(&main), weakly.clone()));
    assert!(answer.try_recv().is_err(), "it is there, so it is waited for");
    drop(parked.recv().unwrap().attach());
    assert!(matches!(answer.recv().unwrap(), Err(LookupError::Failed(_))));
    assert!(matches!(session.lookup(LookupRequest::new(order(&main), weakly)), Err(LookupError::Failed(_))));
}

#[test]
fn an_empty_lookup_of_every_face_succeeds_and_still_checks_its_order() {
    let (session, main) = session();
    let gone = session.create_jit_dylib("gone").unwrap();
    session.remove_jit_dylib(&gone).unwrap();
    let empty = || LookupRequest::new(order(&main), LookupSet::new());
    assert!(look_up_later(&session, empty()).recv().unwrap().unwrap().is_empty());
    assert!(session.lookup(LookupRequest::new(SearchOrder::new(), LookupSet::new())).unwrap().is_empty());
    assert!(session.lookup_flags(LookupRequest::new(order(&main), LookupSet::new())).unwrap().is_empty());
    let refused = session.lookup(LookupRequest::new(order(&gone), LookupSet::new()));
    assert!(matches!(refused, Err(LookupError::DylibRemoved { .. })));
}

#[test]
fn flags_are_looked_up_along_an_order_without_materializing() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let parked = define_parked(&main, "unit", &["a"]);
    let symbols = [(session.intern("a"), SymbolFlags::empty()), (session.intern("b"), EXPORTED)];
    other.define(TestUnit::new("other", symbols.into_iter().collect(), finish).boxed()).unwrap();
    let along = [(main.clone(), EXPORTED_ONLY), (other.clone(), EXPORTED_ONLY)].into();
    let flags = session.lookup_flags(LookupRequest::new(&along, set(&session, &["a", "b"]))).unwrap();
    assert_eq!(
        flags,
        [(session.intern("a"), EXPORTED), (session.intern("b"), EXPORTED)].into_iter().collect()
    );
    assert!(parked.try_recv().is_err(), "nothing was materialized");
    let missing = session.lookup_flags(LookupRequest::new(&along, set(&session, &["a", "c"]))).unwrap_err();
    assert_eq!(missing.to_string(), "not found: `c` (searched `main`, `other`)");
    let weakly = LookupSet::weakly_referenced([session.intern("c")]);
    assert!(session.lookup_flags(LookupRequest::new(&along, weakly)).unwrap().is_empty());
}

#[test]
fn flags_of_failed_and_side_effect_symbols_are_told() {
    let (session, main) = session();
    let init = session.intern("init");
    let unit = TestUnit::new("unit", exported(&session, &["a"]), drop).with_initializer(init.clone());
    main.define(unit.boxed()).unwrap();
    assert!(session.lookup_symbol(&order(&main), &session.intern("a")).is_err());
    let flags =
        session.lookup_flags(LookupRequest::new(order(&main), set(&session, &["a", "init"]))).unwrap();
    assert_eq!(flags[&init], SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY);
    assert_eq!(flags[&session.intern("a")], EXPORTED);
}

#[test]
fn a_failing_lookup_claims_nothing() {
    let (session, main) = session();
    let parked = define_parked(&main, "unit", &["a"]);
    assert!(session.lookup(LookupRequest::new(order(&main), set(&session, &["a", "missing"]))).is_err());
    assert!(parked.try_recv().is_err(), "the unit was not started");
    // Nor was the symbol searched: a strong definition still overrides a weak one.
    let weak = [(session.intern("w"), EXPORTED | SymbolFlags::WEAK)].into_iter().collect();
    main.define(TestUnit::new("weak", weak, finish).boxed()).unwrap();
    assert!(session.lookup(LookupRequest::new(order(&main), set(&session, &["w", "missing"]))).is_err());
    define_absolute(&main, "w", 7);
    assert_eq!(session.lookup_symbol(&order(&main), &session.intern("w")).unwrap(), at(7));
}

#[test]
fn link_orders_as_trees_are_walked_depth_first() {
    let (session, main) = session();
    let [a, b, a1, a2] = ["a", "b", "a1", "a2"].map(|name| session.create_jit_dylib(name).unwrap());
    for (from, to) in [(&main, &a), (&main, &b), (&a, &a1), (&a, &a2)] {
        from.add_to_link_order(to, EXPORTED_ONLY).unwrap();
    }
    let order = session.dfs_link_order(std::slice::from_ref(&main)).unwrap();
    assert_eq!(names(&order), ["main", "a", "a1", "a2", "b"]);
    let reverse = session.reverse_dfs_link_order(std::slice::from_ref(&main)).unwrap();
    assert_eq!(names(&reverse), ["b", "a2", "a1", "a", "main"]);
    assert_eq!(names(&session.dfs_link_order(&[b, a]).unwrap()), ["b", "a", "a1", "a2"], "several roots");
}

#[test]
fn link_orders_as_diamonds_and_cycles_name_each_dylib_once() {
    let (session, main) = session();
    let [left, right, base] = ["left", "right", "base"].map(|name| session.create_jit_dylib(name).unwrap());
    for (from, to) in [(&main, &left), (&main, &right), (&left, &base), (&right, &base)] {
        from.add_to_link_order(to, EXPORTED_ONLY).unwrap();
    }
    let diamond = session.dfs_link_order(std::slice::from_ref(&main)).unwrap();
    assert_eq!(names(&diamond), ["main", "left", "base", "right"]);
    base.add_to_link_order(&main, EXPORTED_ONLY).unwrap();
    let cycle = session.dfs_link_order(std::slice::from_ref(&base)).unwrap();
    assert_eq!(names(&cycle), ["base", "main", "left", "right"]);
}

#[test]
fn a_link_order_of_a_thousand_dylibs_in_a_chain_is_walked() {
    const LENGTH: usize = 1_000;
    let (session, main) = session();
    let mut last = main.clone();
    for index in 0..LENGTH {
        let next = session.create_jit_dylib(&index.to_string()).unwrap();
        last.add_to_link_order(&next, EXPORTED_ONLY).unwrap();
        last = next;
    }
    assert_eq!(session.dfs_link_order(&[main]).unwrap().len(), LENGTH + 1);
}

#[test]
fn the_dfs_order_of_removed_and_foreign_dylibs_is_an_error() {
    let ((session, main), (_elsewhere, foreign)) = (session(), session());
    assert!(matches!(session.dfs_link_order(&[foreign]), Err(DylibError::Foreign { .. })));
    session.remove_jit_dylib(&main).unwrap();
    assert!(matches!(session.dfs_link_order(&[main]), Err(DylibError::Removed { .. })));
}

#[test]
fn a_dylib_searches_itself_first_and_others_in_the_order_they_were_added() {
    let (session, main) = session();
    let [one, two] = ["one", "two"].map(|name| session.create_jit_dylib(name).unwrap());
    assert_eq!(main.link_order(), SearchOrder::of(&main), "self, with hidden symbols");
    main.add_to_link_order(&one, EXPORTED_ONLY).unwrap();
    main.add_to_link_order(&two, EXPORTED_ONLY).unwrap();
    main.add_to_link_order(&one, JitDylibLookupFlags::MatchAllSymbols).unwrap();
    let along = main.link_order();
    let dylibs: Vec<_> = along.iter().map(|(dylib, _)| dylib.name()).collect();
    assert_eq!(dylibs, ["main", "one", "two"], "without duplicates");
    assert_eq!(along.as_slice()[1].1, EXPORTED_ONLY, "what was there stays");
    define_absolute(&two, "a", 2);
    define_absolute(&one, "a", 1);
    assert_eq!(session.lookup_symbol(&main.link_order(), &session.intern("a")).unwrap(), at(1));
    define_absolute(&main, "a", 0);
    assert_eq!(session.lookup_symbol(&main.link_order(), &session.intern("a")).unwrap(), at(0));
}

#[test]
fn link_orders_are_replaced_and_dylibs_taken_out_of_them() {
    let (session, main) = session();
    let [one, two] = ["one", "two"].map(|name| session.create_jit_dylib(name).unwrap());
    define_absolute(&one, "a", 1);
    define_absolute(&two, "a", 2);
    let found = || session.lookup_symbol(&main.link_order(), &session.intern("a")).ok();
    main.set_link_order([(one.clone(), EXPORTED_ONLY), (two.clone(), EXPORTED_ONLY)]).unwrap();
    assert_eq!(found(), Some(at(1)));
    main.set_link_order([(two.clone(), EXPORTED_ONLY), (one.clone(), EXPORTED_ONLY)]).unwrap();
    assert_eq!(found(), Some(at(2)));
    main.remove_from_link_order(&two);
    assert_eq!(found(), Some(at(1)));
    main.remove_from_link_order(&one);
    main.remove_from_link_order(&one);
    assert_eq!((found(), main.link_order().len()), (None, 0));
}

#[test]
fn a_lookup_along_a_link_order_takes_the_order_of_its_own_moment() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    define_absolute(&other, "a", 1);
    let a = session.intern("a");
    assert!(matches!(
        session.lookup(LookupRequest::along(&main, LookupSet::one(a.clone()))),
        Err(LookupError::NotFound { .. })
    ));
    main.add_to_link_order(&other, EXPORTED_ONLY).unwrap();
    assert_eq!(session.lookup(LookupRequest::along(&main, LookupSet::one(a.clone()))).unwrap()[&a], at(1));
    session.remove_jit_dylib(&main).unwrap();
    assert!(matches!(
        session.lookup(LookupRequest::along(&main, LookupSet::one(a))),
        Err(LookupError::DylibRemoved { .. })
    ));
}

/// ```text
///  changers: define and remove in one dylib │ add and remove a generator of another │ turn a link order round
///  readers:  look up what is always somewhere along the order
/// ```
#[test]
fn lookups_go_on_while_definitions_link_orders_and_generators_change_underneath() {
    struct Empty;
    impl DefinitionGenerator for Empty {
        fn name(&self) -> &str {
            "empty"
        }
        fn generate(&self, request: GenerateRequest) {
            request.finish(Ok(()));
        }
    }
    const ROUNDS: u64 = 500;
    within_reason(|| {
        let pool = WorkStealingTaskDispatcher::builder().workers(2).build().unwrap();
        let session = ExecutionSession::builder().dispatcher(Arc::new(pool)).build();
        let [main, front, back] =
            ["main", "front", "back"].map(|name| session.create_jit_dylib(name).unwrap());
        define_absolute(&back, "a", 1);
        main.set_link_order([(front.clone(), EXPORTED_ONLY), (back.clone(), EXPORTED_ONLY)]).unwrap();
        let (a, over) = (session.intern("a"), Latch::new());
        std::thread::scope(|scope| {
            let changers = [
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        define_absolute(&front, "a", 2 + round);
                        front.remove(std::slice::from_ref(&a)).unwrap();
                    }
                }),
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let generator = front.add_generator(Arc::new(Empty)).unwrap();
                        assert!(front.remove_generator(generator));
                    }
                }),
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        let mut order = [(front.clone(), EXPORTED_ONLY), (back.clone(), EXPORTED_ONLY)];
                        order.rotate_left((round % 2) as usize);
                        main.set_link_order(order).unwrap();
                    }
                }),
            ];
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        loop {
                            let last_look = over.is_open();
                            for found in [
                                session.lookup_symbol(&main.link_order(), &a),
                                session
                                    .lookup(LookupRequest::along(&main, LookupSet::one(a.clone())))
                                    .map(|found| found[&a]),
                            ] {
                                match found {
                                    Ok(found) => assert!((1..2 + ROUNDS).contains(&found.address.value())),
                                    // Its generator went while the lookup was on its way to it.
                                    Err(LookupError::Generator { .. }) => {}
                                    Err(error) => panic!("{error}"),
                                }
                            }
                            if last_look {
                                break;
                            }
                        }
                    })
                })
                .collect();
            changers.into_iter().for_each(|changer| changer.join().unwrap());
            over.open();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        assert_eq!(
            session.lookup(LookupRequest::along(&main, LookupSet::one(a.clone()))).unwrap()[&a],
            at(1)
        );
        session.close().unwrap();
    });
}
