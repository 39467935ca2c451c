//! The edge that closes a cycle of waits comes late: by an emission, an alias, a replacement, a part delegated.
//!
//! Late edges are staged in place, where a task that a unit leaves behind runs while the unit is blocked above it.

use std::sync::mpsc;

use protocol_tests::deadlock::{define_blocking, look_up, the_cycle, while_blocked};
use protocol_tests::on::EVERYWHERE;
use protocol_tests::*;
use uruk_core::{
    DeadlockStep, DependenceGroup, LookupError, MaterializationResponsibility, SymbolFlags, symbol_aliases,
};

#[test]
fn the_last_edge_may_be_an_emission() {
    within_reason(|| {
        let (session, main) = session();
        let parked = define_parked(&main, "X", &["x"]);
        let x_wanted = look_up_later(&session, request(&main, &["x"]));
        let (teller, told) = mpsc::channel();
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let a = responsibility.dependency(&session.intern("a")).unwrap();
            let _held = resolve(responsibility);
            while_blocked(&session, move || {
                let x = resolve(parked.recv().unwrap().attach());
                let symbols = x.symbols().keys().cloned().collect();
                x.notify_emitted(vec![DependenceGroup { symbols, dependencies: vec![a] }]).unwrap();
            });
            teller.send(("A".to_owned(), look_up(&main, &["x"]).unwrap_err())).unwrap();
        });
        main.define(unit.boxed()).unwrap();
        look_up(&main, &["a"]).unwrap_err();
        let (_, error) = told.try_recv().unwrap();
        let LookupError::WouldDeadlock { path } = &error else { panic!("{error}") };
        for step in path.iter() {
            match step {
                DeadlockStep::DependsOn { symbol, .. } => assert_eq!(symbol.as_str(), "x"),
                DeadlockStep::LooksUp { symbol, .. } => assert_eq!(symbol.as_str(), "a"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(path.len(), 2, "{error}");
        // Not told: it fails with its dependence.
        assert!(matches!(x_wanted.recv().unwrap(), Err(LookupError::Failed(_))));
    });
}

#[test]
fn the_last_edge_may_be_the_second_dependency_of_a_chain_of_emissions() {
    within_reason(|| [true, false].into_iter().for_each(a_chain_of_emissions));
}

/// x depends on y; y on p, which stays parked, and on a. The forest hangs y on the one of the two that it explores first, and may
/// never look at the other: whichever is named first, the cycle through a is told.
fn a_chain_of_emissions(names_p_first: bool) {
    let (session, main) = session();
    let (x, y) = (define_parked(&main, "X", &["x"]), define_parked(&main, "Y", &["y"]));
    let p = define_parked(&main, "P", &["p"]);
    let wanted = look_up_later(&session, request(&main, &["x", "y", "p"]));
    let (x, y, p) = (x.recv().unwrap(), y.recv().unwrap(), p.recv().unwrap().attach());
    let (teller, told) = mpsc::channel();
    let token = |responsibility: &MaterializationResponsibility, name: &str| {
        responsibility.dependency(&responsibility.session().intern(name)).unwrap()
    };
    let on_p = token(&p, "p");
    let p = p.detach();
    let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        let on_a = token(&responsibility, "a");
        let _held = resolve(responsibility);
        while_blocked(&session, move || {
            let (x, y) = (x.attach(), y.attach());
            let on_y = token(&y, "y");
            let needs = if names_p_first { vec![on_p, on_a] } else { vec![on_a, on_p] };
            for (responsibility, dependencies) in [(x, vec![on_y]), (y, needs)] {
                let symbols = responsibility.symbols().keys().cloned().collect();
                let group = DependenceGroup { symbols, dependencies };
                resolve(responsibility).notify_emitted(vec![group]).unwrap();
            }
        });
        teller.send(("A".to_owned(), look_up(&main, &["x"]).unwrap_err())).unwrap();
    });
    main.define(unit.boxed()).unwrap();
    look_up(&main, &["a"]).unwrap_err();
    assert_eq!(the_cycle(&told).1, ["a", "x", "y"]);
    drop(p);
    assert!(wanted.recv().unwrap().is_err());
}

#[test]
fn the_last_edge_may_be_an_alias() {
    for on in EVERYWHERE {
        within_reason(move || {
            let (session, main) = on.session();
            let (teller, told) = mpsc::channel();
            define_blocking(&main, "a", &["other"], &teller);
            let target = uruk_core::AliasTarget { source: session.intern("a"), flags: SymbolFlags::EXPORTED };
            main.define(symbol_aliases([(session.intern("other"), target)].into_iter().collect())).unwrap();
            look_up(&main, &["a"]).unwrap_err();
            let (_, error) = told.try_recv().unwrap();
            let LookupError::WouldDeadlock { path } = &error else { panic!("{error}") };
            assert!(path.iter().any(|step| matches!(step, DeadlockStep::AliasOf { .. })), "{error}");
            assert_eq!(path.len(), 2, "{error}");
        });
    }
}

#[test]
fn the_last_edge_may_come_from_a_replacement() {
    within_reason(|| {
        let (session, main) = session();
        let (teller, told) = mpsc::channel();
        let parked = define_parked(&main, "X", &["x"]);
        let x_wanted = look_up_later(&session, request(&main, &["x"]));
        let errors = teller.clone();
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let symbols = exported(&session, &["x"]);
            let replacement = TestUnit::new("X2", symbols, move |x| {
                errors.send(("X2".into(), look_up(x.dylib(), &["a"]).unwrap_err())).unwrap();
            });
            while_blocked(&session, move || {
                parked.recv().unwrap().attach().replace(replacement.boxed()).unwrap();
            });
            assert!(matches!(look_up(&main, &["x"]), Err(LookupError::Failed(_))));
        });
        main.define(unit.boxed()).unwrap();
        look_up(&main, &["a"]).unwrap_err();
        assert_eq!(the_cycle(&told), ("X2".into(), vec!["a".into(), "x".into()]));
        assert!(x_wanted.recv().unwrap().is_err());
    });
}

#[test]
fn the_last_edge_may_come_from_a_part_that_was_delegated() {
    within_reason(|| {
        let (session, main) = session();
        let (teller, told) = mpsc::channel();
        let parked = define_parked(&main, "X", &["x", "y"]);
        let wanted = look_up_later(&session, request(&main, &["x"]));
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            while_blocked(&session, move || {
                let mut whole = parked.recv().unwrap().attach();
                let part = whole.delegate([whole.session().intern("y")]).unwrap();
                finish(whole);
                teller.send(("Y".into(), look_up(part.dylib(), &["a"]).unwrap_err())).unwrap();
            });
            look_up(&main, &["y"]).unwrap_err();
        });
        main.define(unit.boxed()).unwrap();
        look_up(&main, &["a"]).unwrap_err();
        assert_eq!(the_cycle(&told), ("Y".into(), vec!["a".into(), "y".into()]));
        assert!(wanted.recv().unwrap().is_ok());
    });
}
