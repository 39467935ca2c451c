//! Priority follows demand: what is lowered when demand is lost, and what is not.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use TaskPriority::{Demanded, Lazy, Speculative};
use protocol_tests::scene::Scene;
use protocol_tests::*;
use uruk_core::{Deadline, LookupError, TaskPriority};

#[test]
fn dropping_the_last_demand_lowers_a_queued_unit() {
    let scene = Scene::new();
    scene.define(&["a", "x"]);
    let _low = scene.want("a", Speculative);
    let high = scene.want("a", Demanded);
    let _x = scene.want("x", Lazy);
    drop(high);
    assert_eq!(scene.order(), ["x", "a"]);
}

#[test]
fn a_unit_dispatched_as_demanded_is_dispatched_again_when_it_is_not() {
    let scene = Scene::new();
    scene.define(&["a", "x"]);
    let high = scene.want("a", Demanded);
    let _low = scene.want("a", Speculative);
    let _x = scene.want("x", Lazy);
    drop(high);
    assert_eq!(scene.dispatcher.queued(Speculative), 0);
    assert_eq!(scene.order(), ["x", "a"]);
}

#[test]
fn each_lookup_counts_until_it_is_dropped() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let (low, mid, high) = (scene.want("a", Speculative), scene.want("a", Lazy), scene.want("a", Demanded));
    let priority = || scene.session.why(&scene.main, &scene.session.intern("a")).demand.priority;
    assert_eq!(priority(), Some(Demanded));
    drop(mid);
    assert_eq!(priority(), Some(Demanded));
    drop(high);
    assert_eq!(priority(), Some(Speculative));
    let again = scene.want("a", Lazy);
    assert_eq!(priority(), Some(Lazy));
    drop((low, again));
    assert_eq!(scene.order(), [""; 0]);
}

#[test]
fn lowering_a_running_unit_lowers_what_it_has_asked_for() {
    let scene = Scene::new();
    scene.define_linked("a", "b");
    scene.define_linked("b", "c");
    scene.define(&["c", "x"]);
    let _low = scene.want("a", Speculative);
    let high = scene.want("a", Demanded);
    scene.run_until_started("b");
    let _x = scene.want("x", Lazy);
    drop(high);
    assert_eq!(scene.order(), ["x", "c"]);
}

#[test]
fn lowering_an_emitted_symbol_lowers_what_it_depends_on() {
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
    assert_eq!(scene.order(), ["x", "c"]);
}

#[test]
fn what_others_need_is_not_lowered() {
    let scene = Scene::new();
    scene.define_linked("a", "shared");
    scene.define_linked("b", "shared");
    scene.define(&["shared", "x"]);
    let (low, high) = (scene.want("a", Speculative), scene.want("a", Demanded));
    scene.run_until_started("a");
    let _b = scene.want("b", Demanded);
    // Behind `shared`, which `a` has asked for.
    assert_eq!(scene.dispatcher.queued(Demanded), 2);
    drop(high);
    let _x = scene.want("x", Lazy);
    // `b` has not begun to ask: for now `shared` is as urgent as `a`.
    assert_eq!(scene.order(), ["b", "shared", "x"]);
    drop(low);
}

#[test]
fn a_deadline_that_passes_lowers() {
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
    assert_eq!(scene.order(), ["x", "a"]);
}
