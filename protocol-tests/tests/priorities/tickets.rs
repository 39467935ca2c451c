//! A raised unit stands in several queues: it starts once, with the first of its tickets, whether the others run or are
//! dropped.

use std::sync::Arc;

use TaskPriority::{Demanded, Idle, Lazy, Speculative};
use protocol_tests::scene::Scene;
use protocol_tests::*;
use uruk_core::sync::Mutex;
use uruk_core::{LookupError, Shutdown, TaskPriority};

#[test]
fn a_raised_unit_starts_once_and_its_older_ticket_does_nothing() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let _low = scene.want("a", Idle);
    let _mid = scene.want("a", Speculative);
    let _high = scene.want("a", Demanded);
    assert_eq!([Idle, Speculative, Demanded].map(|priority| scene.dispatcher.queued(priority)), [1, 1, 1]);
    assert_eq!(scene.order(), ["a"]);
}

#[test]
fn two_lookups_of_one_priority_queue_one_ticket() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let _low = scene.want("a", Idle);
    let _again = [scene.want("a", Lazy), scene.want("a", Lazy), scene.want("a", Speculative)];
    assert_eq!(
        [Idle, Speculative, Lazy, Demanded].map(|priority| scene.dispatcher.queued(priority)),
        [1, 0, 1, 0]
    );
}

#[test]
fn a_raised_unit_that_nobody_wants_any_more_goes_back_to_its_rows() {
    let scene = Scene::new();
    scene.define(&["a"]);
    drop((scene.want("a", Speculative), scene.want("a", Demanded)));
    assert_eq!(scene.order(), [""; 0]);
    // It can be had again, and no ticket of before takes it.
    let _again = scene.want("a", Idle);
    assert_eq!(scene.order(), ["a"]);
}

#[test]
fn a_raised_unit_that_is_removed_does_not_start() {
    let scene = Scene::new();
    scene.define(&["x"]);
    let tracker = scene.main.create_tracker();
    let unit = TestUnit::new("gone", exported(&scene.session, &["a"]), |_| panic!("it was removed"));
    scene.main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    let answers = [Speculative, Demanded]
        .map(|priority| look_up_later(&scene.session, scene.request("a").at(priority)));
    tracker.remove().unwrap();
    scene.dispatcher.run_all();
    for answer in answers {
        assert!(matches!(answer.recv().unwrap(), Err(LookupError::Failed(_))));
    }
}

#[test]
fn a_raised_unit_fails_with_its_last_ticket() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let answers =
        [Speculative, Lazy].map(|priority| look_up_later(&scene.session, scene.request("a").at(priority)));
    scene.dispatcher.drop_queued(Lazy);
    scene.settle();
    assert!(answers[0].try_recv().is_err() && answers[1].try_recv().is_err(), "one ticket is left");
    scene.dispatcher.drop_queued(Speculative);
    scene.dispatcher.run_all();
    for answer in answers {
        let error = answer.recv().unwrap().unwrap_err();
        assert!(error.in_full().contains("dispatch"), "{error}");
    }
}

#[test]
fn a_stale_ticket_that_is_dropped_fails_nobody() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let answers =
        [Speculative, Lazy].map(|priority| look_up_later(&scene.session, scene.request("a").at(priority)));
    scene.dispatcher.run_next();
    scene.dispatcher.drop_queued(Speculative);
    scene.settle();
    answers.into_iter().for_each(|answer| drop(answer.recv().unwrap().unwrap()));
}

#[test]
fn a_dispatcher_that_refuses_the_raise_runs_the_unit_as_it_was() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let _low = scene.want("a", Speculative);
    scene.dispatcher.refuse(true);
    let _high = scene.want("a", Demanded);
    scene.dispatcher.refuse(false);
    assert_eq!(scene.dispatcher.queued(Demanded), 0);
    assert_eq!(scene.order(), ["a"]);
}

#[test]
fn a_session_that_closes_runs_what_was_raised_once() {
    let scene = Scene::new();
    scene.define(&["a", "b"]);
    let lookups = [("a", Speculative), ("b", Idle), ("a", Demanded)]
        .map(|(name, priority)| look_up_later(&scene.session, scene.request(name).at(priority)));
    scene.session.close_with(Shutdown::Drain).unwrap();
    lookups.into_iter().for_each(|answer| drop(answer.recv().unwrap().unwrap()));
    assert_eq!(scene.take_started(), ["a", "b"]);
}

#[test]
fn a_session_that_is_cancelled_starts_nothing_that_was_raised() {
    let scene = Scene::new();
    scene.define(&["a"]);
    let lookups = [Speculative, Demanded]
        .map(|priority| look_up_later(&scene.session, scene.request("a").at(priority)));
    scene.session.close_with(Shutdown::Cancel).unwrap();
    for answer in lookups {
        assert!(matches!(answer.recv().unwrap(), Err(LookupError::Closed)));
    }
    assert!(scene.take_started().is_empty());
}

#[test]
fn in_place_a_raised_unit_runs_once() {
    let (session, main) = session();
    let log = Arc::new(Mutex::new(0));
    let count = log.clone();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        *count.lock() += 1;
        finish(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    let outer = TestUnit::new("outer", exported(&session, &["o"]), |responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        let low = session.lookup_future(request(&main, &["a"]).at(Speculative));
        session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
        drop(low);
        finish(responsibility);
    });
    main.define(outer.boxed()).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("o")).unwrap();
    assert_eq!(*log.lock(), 1);
}
