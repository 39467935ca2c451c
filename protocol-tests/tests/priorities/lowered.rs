//! Priority follows demand upwards only: nothing is lowered when demand is lost. A unit that no lookup needs goes back instead.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use TaskPriority::{Demanded, Idle, Lazy, Speculative};
use protocol_tests::scene::{Scene, noting_unit};
use protocol_tests::*;
use uruk_core::{Deadline, LookupError, TaskPriority};

#[test]
fn a_queued_unit_keeps_the_priority_of_a_lookup_that_is_given_up() {
    for first in [Speculative, Demanded] {
        let scene = Scene::new();
        scene.define(&["a", "x"]);
        let (one, other) = (scene.want("a", first), scene.want("a", Demanded));
        let _low = scene.want("a", Speculative);
        let _x = scene.want("x", Lazy);
        drop((one, other));
        assert_eq!(scene.order(), ["a", "x"]);
    }
}

#[test]
fn a_unit_is_as_urgent_as_any_lookup_of_it_has_been() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let low = scene.want("a", Speculative);
    let priority = || scene.session.why(&scene.main, &scene.session.intern("a")).demand.priority;
    assert_eq!(priority(), Some(Speculative));
    let mid = scene.want("a", Lazy);
    assert_eq!(priority(), Some(Lazy));
    drop(mid);
    assert_eq!(priority(), Some(Lazy));
    drop(scene.want("a", Demanded));
    assert_eq!(priority(), Some(Demanded));
    drop(low);
    assert_eq!(scene.order(), [""; 0]);
    assert_eq!(priority(), None);
}

#[test]
fn a_unit_that_went_back_is_as_urgent_as_the_lookup_that_claims_it_again() {
    let scene = Scene::new();
    scene.define(&["a", "x"]);
    drop((scene.want("a", Speculative), scene.want("a", Demanded)));
    assert_eq!(scene.order(), [""; 0]);
    let _again = scene.want("a", Idle);
    let _x = scene.want("x", Lazy);
    assert_eq!(scene.order(), ["x", "a"]);
}

#[test]
fn what_a_running_unit_has_asked_for_is_not_lowered() {
    let scene = Scene::new();
    scene.define_linked("a", "b");
    scene.define_linked("b", "c");
    scene.define(&["c", "x"]);
    let _low = scene.want("a", Speculative);
    let high = scene.want("a", Demanded);
    scene.run_until_started("b");
    let _x = scene.want("x", Lazy);
    drop(high);
    assert_eq!(scene.order(), ["c", "x"]);
}

#[test]
fn what_an_emitted_symbol_depends_on_is_not_lowered() {
    let scene = Scene::new();
    scene.define_linked("a", "b");
    scene.define_slow("b", "c");
    scene.define(&["c", "x"]);
    let _low = scene.want("a", Speculative);
    let high = scene.want("a", Demanded);
    scene.run_until_started("b");
    while scene.dispatcher.queued(Demanded) > 1 {
        scene.dispatcher.run_next();
    }
    let _x = scene.want("x", Lazy);
    drop(high);
    assert_eq!(scene.order(), ["c", "x"]);
}

#[test]
fn a_unit_that_takes_over_is_no_less_urgent_than_the_first() {
    let scene = Scene::new();
    let started = scene.started.clone();
    scene.define_as("first", Demanded, move |responsibility| {
        let symbol = responsibility.session().intern("first");
        responsibility.replace(noting_unit("second", symbol, Idle, started, finish)).unwrap();
    });
    scene.define(&["x"]);
    let _first = scene.session.lookup_future(scene.request("first"));
    let _low = scene.want("x", Lazy);
    assert_eq!(scene.order(), ["first", "second", "x"]);
}

#[test]
fn a_deadline_that_passes_lowers_nothing() {
    let scene = Scene::new();
    scene.define(&["a", "x"]);
    let _low = scene.want("a", Speculative);
    let deadline = Deadline::at(*scene.now.lock() + Duration::from_secs(1));
    let late = scene.session.lookup_future(scene.request("a").at(Demanded).until(deadline));
    let _x = scene.want("x", Lazy);
    *scene.now.lock() += Duration::from_secs(2);
    let mut late = pin!(late);
    let polled = late.as_mut().poll(&mut Context::from_waker(&waker()));
    assert!(matches!(polled, Poll::Ready(Err(LookupError::DeadlineExceeded { .. }))), "{polled:?}");
    assert_eq!(scene.order(), ["a", "x"]);
}
