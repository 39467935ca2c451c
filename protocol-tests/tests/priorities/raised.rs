//! Priority follows demand: what is raised with a unit that becomes more urgent.

use std::sync::Arc;

use TaskPriority::{Demanded, Idle, Lazy, Speculative};
use protocol_tests::scene::{Parks, Scene, link, noting_unit};
use protocol_tests::*;
use uruk_core::sync::Mutex;
use uruk_core::{AliasTarget, EventKind, JitDylibLookupFlags, TaskPriority, reexports, symbol_aliases};

#[test]
fn raising_a_running_unit_raises_what_it_has_asked_for() {
    let scene = Scene::new();
    scene.define_linked("a", "b");
    scene.define_linked("b", "c");
    scene.define(&["c", "x", "y"]);
    let _a = scene.want("a", Speculative);
    scene.run_until_started("b");
    let _others = (scene.want("x", Speculative), scene.want("y", Lazy));
    let _demanded = scene.want("a", Demanded);
    assert_eq!(scene.order(), ["c", "y", "x"]);
}

#[test]
fn raising_an_emitted_symbol_raises_what_it_depends_on() {
    let scene = Scene::observed();
    scene.define_linked("a", "b");
    scene.define_linked("b", "c");
    scene.define_slow("c", "d");
    scene.define(&["d", "x"]);
    let _a = scene.want("a", Idle);
    scene.run_until_started("c");
    scene.settle();
    // `a` hangs on `b`, that on `c`, and `c` has only its lookup of `d`.
    let emitted = |event: &EventKind| matches!(event, EventKind::Emitted { .. });
    assert_eq!(scene.events.lock().iter().filter(|event| emitted(event)).count(), 2);
    let _x = scene.want("x", Lazy);
    let _demanded = scene.want("a", Demanded);
    assert_eq!(scene.order(), ["d", "x"]);
}

#[test]
fn an_emission_raises_what_it_comes_to_depend_on() {
    let scene = Scene::new();
    scene.define_slow("b", "c");
    scene.define(&["c", "x"]);
    // Asking as little as possible: what counts is the dependence.
    scene.define_as("a", Demanded, |responsibility| link(responsibility, "b", |request| request.at(Idle)));
    let _b = scene.want("b", Idle);
    scene.run_until_started("b");
    let _x = scene.want("x", Lazy);
    assert_eq!(scene.dispatcher.queued(Idle), 1);
    let _a = scene.want("a", Demanded);
    assert_eq!(scene.order(), ["a", "c", "x"]);
}

#[test]
fn raising_an_alias_raises_its_source() {
    let scene = Scene::observed();
    let alias = |name: &str, source: &str| {
        let (name, source) = (scene.session.intern(name), scene.session.intern(source));
        (name, AliasTarget { source, flags: EXPORTED })
    };
    // `outer` is in a part of the unit that is delegated: it comes after `inner`.
    let aliases = [alias("outer", "inner"), alias("inner", "a")].into_iter().collect();
    scene.main.define(symbol_aliases(aliases)).unwrap();
    let other = scene.session.create_jit_dylib("other").unwrap();
    let flags = JitDylibLookupFlags::MatchAllSymbols;
    let exported = [alias("exported", "outer")].into_iter().collect();
    other.define(reexports(scene.main.clone(), flags, exported)).unwrap();
    scene.define(&["a", "x"]);
    let names = request(&other, &["exported"]);
    let _low = scene.session.lookup_future(names.clone().at(Idle));
    while !scene.started.lock().iter().any(|_| true) && scene.dispatcher.queued(Idle) > 0 {
        let claimed = EventKind::Claimed { dylib: scene.main.name().into(), unit: scene.session.intern("a") };
        if scene.events.lock().contains(&claimed) {
            break;
        }
        scene.dispatcher.run_next();
    }
    let _x = scene.want("x", Lazy);
    assert!(scene.started.lock().is_empty());
    let _high = scene.session.lookup_future(names.at(Demanded));
    assert_eq!(scene.order(), ["a", "x"]);
}

#[test]
fn a_delegated_symbol_raises_what_its_unit_has_asked_for() {
    let scene = Scene::new();
    scene.define(&["c", "x"]);
    let symbols = exported(&scene.session, &["a", "b"]);
    let unit = TestUnit::new("unit", symbols, |mut responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        let rest = responsibility.delegate([session.intern("b")]).unwrap().detach();
        let parked = responsibility.detach();
        session.lookup_async(request(&main, &["c"]).until_resolved(), move |_| {
            finish(parked.attach());
            finish(rest.attach());
        });
    });
    scene.main.define(unit.boxed()).unwrap();
    let _b = scene.want("b", Speculative);
    scene.dispatcher.run_next();
    scene.settle();
    let _x = scene.want("x", Lazy);
    let _high = scene.want("b", Demanded);
    assert_eq!(scene.order(), ["c", "x"]);
}

#[test]
fn a_unit_that_takes_over_is_as_urgent_as_what_waits() {
    let scene = Scene::new();
    scene.define_as("first", Demanded, {
        let started = scene.started.clone();
        move |responsibility| {
            let symbol = responsibility.session().intern("first");
            let unit = noting_unit("second", symbol, Demanded, started, finish);
            responsibility.replace(unit).unwrap();
        }
    });
    scene.define(&["x", "y"]);
    let _first = scene.want("first", Speculative);
    scene.run_until_started("first");
    let _x = scene.want("x", Lazy);
    assert_eq!((scene.dispatcher.queued(Speculative), scene.dispatcher.queued(Demanded)), (1, 0));
    let _y = scene.want("y", Idle);
    assert_eq!(scene.order(), ["x", "second", "y"]);
}

#[test]
fn a_unit_that_takes_over_is_as_urgent_as_it_says_for_a_lookup_that_says_nothing() {
    let scene = Scene::new();
    let started = scene.started.clone();
    scene.define_as("first", Idle, move |responsibility| {
        let symbol = responsibility.session().intern("first");
        responsibility.replace(noting_unit("second", symbol, Demanded, started, finish)).unwrap();
    });
    scene.define(&["x"]);
    let _first = scene.session.lookup_future(scene.request("first"));
    scene.run_until_started("first");
    let _x = scene.want("x", Lazy);
    assert_eq!(scene.order(), ["second", "x"]);
}

#[test]
fn a_lookup_raised_while_it_waits_for_a_generator_claims_as_urgently() {
    let scene = Scene::new();
    let parked = Arc::new(Mutex::new(None));
    scene.main.add_generator(Arc::new(Parks(parked.clone()))).unwrap();
    scene.define_linked("a", "made");
    scene.define(&["x"]);
    let _a = scene.want("a", Speculative);
    scene.run_until_started("a");
    scene.settle();
    let _high = scene.want("a", Demanded);
    let _x = scene.want("x", Lazy);
    scene.define(&["made"]);
    let request = parked.lock().take().expect("the generator was asked");
    request.attach().finish(Ok(()));
    assert_eq!(scene.order(), ["made", "x"]);
}

#[test]
fn what_a_unit_asks_for_less_urgently_than_it_is_stays_so() {
    let scene = Scene::new();
    scene.define_as("a", Demanded, |responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        session.lookup_async(request(&main, &["guess"]).at(Speculative), |_| {});
        link(responsibility, "b", |request| request);
    });
    scene.define(&["b", "guess", "x"]);
    let _a = scene.want("a", Idle);
    scene.run_until_started("a");
    let _x = scene.want("x", Lazy);
    let _high = scene.want("a", Demanded);
    assert_eq!(scene.order(), ["b", "x", "guess"]);
}
