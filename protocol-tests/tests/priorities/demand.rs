//! Priority follows demand: who makes which unit how urgent, seen by the order in which units start.

use TaskPriority::{Demanded, Idle, Lazy, Speculative};
use protocol_tests::scene::Scene;
use protocol_tests::*;
use uruk_core::{EventKind, TaskPriority};

#[test]
fn a_unit_is_as_urgent_as_the_lookup_that_claims_it_says() {
    let scene = Scene::new();
    scene.define(&["idle", "speculative", "lazy", "demanded"]);
    let wanted: Vec<_> =
        [("idle", Idle), ("speculative", Speculative), ("lazy", Lazy), ("demanded", Demanded)]
            .map(|(name, priority)| scene.want(name, priority))
            .into();
    assert_eq!(scene.order(), ["demanded", "lazy", "speculative", "idle"]);
    drop(wanted);
}

#[test]
fn a_lookup_that_says_nothing_leaves_units_at_their_own_priority() {
    let scene = Scene::new();
    scene.define_as("idle", Idle, finish);
    scene.define_as("lazy", Lazy, finish);
    scene.define_as("lowered", Demanded, finish);
    scene.define_as("raised", Idle, finish);
    let _all = ["idle", "lazy"].map(|name| scene.session.lookup_future(scene.request(name)));
    let _said = (scene.want("lowered", Speculative), scene.want("raised", Demanded));
    assert_eq!(scene.order(), ["raised", "lazy", "lowered", "idle"]);
}

#[test]
fn a_lookup_that_says_nothing_counts_as_the_units_own_priority_beside_others() {
    let scene = Scene::new();
    scene.define_as("a", Lazy, finish);
    scene.define(&["b"]);
    let _idle = scene.want("a", Idle);
    let _b = scene.want("b", Speculative);
    let _quiet = scene.session.lookup_future(scene.request("a"));
    assert_eq!(scene.dispatcher.queued(Lazy), 1);
    scene.dispatcher.run_down_to(Lazy);
    assert_eq!(scene.take_started(), ["a"]);
}

#[test]
fn a_blocking_lookup_starts_the_queued_unit_it_waits_for_next() {
    let scene = Scene::new();
    let names = ["a", "b", "c", "d", "e"];
    scene.define(&names);
    let _speculative = names.map(|name| scene.want(name, Speculative));
    scene.session.lookup_symbol(&order(&scene.main), &scene.session.intern("d")).unwrap();
    assert_eq!(scene.take_started(), ["d"]);
    assert_eq!(scene.order(), ["a", "b", "c", "e"]);
}

#[test]
fn what_a_speculative_unit_asks_for_is_speculative() {
    let scene = Scene::new();
    scene.define_linked("a", "b");
    scene.define(&["b", "lazy"]);
    let _a = scene.want("a", Speculative);
    scene.run_until_started("a");
    let _lazy = scene.want("lazy", Lazy);
    assert_eq!((scene.dispatcher.queued(Speculative), scene.dispatcher.queued(Demanded)), (1, 0));
    assert_eq!(scene.order(), ["lazy", "b"]);
}

#[test]
fn what_an_answer_to_a_speculative_unit_asks_for_is_speculative() {
    let scene = Scene::new();
    scene.define(&["b", "c", "d", "lazy"]);
    // Ready when it is asked for: the answer comes without the session's lock.
    scene.session.lookup_symbol(&order(&scene.main), &scene.session.intern("c")).unwrap();
    scene.define_as("a", Demanded, |responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        let asks = |name: &str| request(&main, &[name]).until_resolved();
        let (b, c, d) = (asks("b"), asks("c"), asks("d"));
        let inner = session.clone();
        session.lookup_async(b, move |_| {
            let last = inner.clone();
            inner.lookup_async(c, move |_| last.lookup_async(d, |_| {}));
        });
        // It ends before its answers come: they are as urgent as it was.
        finish(responsibility);
    });
    let _a = scene.want("a", Speculative);
    scene.run_until_started("a");
    let _lazy = scene.want("lazy", Lazy);
    assert_eq!(scene.order(), ["lazy", "b", "d"]);
}

/// It was raised while it was queued, and its claim is over when it asks: what it asked for was as urgent as it had once been claimed.
#[test]
fn what_a_raised_unit_asks_for_after_its_end_is_as_urgent_as_it_was_at_its_start() {
    let scene = Scene::new();
    scene.define(&["b", "lazy"]);
    scene.define_as("a", Demanded, |responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        finish(responsibility);
        session.lookup_async(request(&main, &["b"]), |_| {});
    });
    let _low = scene.want("a", Speculative);
    let _high = scene.want("a", Demanded);
    scene.run_until_started("a");
    let _lazy = scene.want("lazy", Lazy);
    assert_eq!(scene.order(), ["b", "lazy"]);
}

#[test]
fn a_unit_blocked_in_a_lookup_demands() {
    let scene = Scene::observed();
    scene.define(&["b", "lazy"]);
    scene.define_as("a", Demanded, |responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        session.lookup_symbol(&order(&main), &session.intern("b")).unwrap();
        finish(responsibility);
    });
    let (_a, _lazy) = (scene.want("a", Speculative), scene.want("lazy", Idle));
    assert_eq!(scene.order(), ["a", "b", "lazy"]);
    let raised = |event: &EventKind| matches!(event, EventKind::Prioritized { .. });
    assert!(!scene.events.lock().iter().any(raised), "`b` was claimed as what it is");
}

#[test]
fn observers_see_each_rise_of_a_units_priority() {
    let scene = Scene::observed();
    scene.define(&["a"]);
    let _low = scene.want("a", Speculative);
    let mid = scene.want("a", Lazy);
    let _as_low = scene.want("a", Speculative);
    drop(mid);
    let _high = scene.want("a", Demanded);
    scene.dispatcher.run_all();
    let changes: Vec<_> = scene
        .events
        .lock()
        .iter()
        .filter_map(|event| match event {
            EventKind::Prioritized { unit, priority, .. } => Some((unit.to_string(), *priority)),
            _ => None,
        })
        .collect();
    assert_eq!(changes, [("a".to_owned(), Lazy), ("a".to_owned(), Demanded)]);
}
