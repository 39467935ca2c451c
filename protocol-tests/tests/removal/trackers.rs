//! Trackers: what is removed together, before, during and after materializing.

use std::sync::mpsc;

use protocol_tests::tracked::{Log, noted, parked_under_a_tracker, sticking};
use protocol_tests::*;
use uruk_core::{DefineError, DelegateError, EmitError, LookupError, ResolveError, TrackerError};

#[test]
fn a_trackers_symbols_and_resources_go_together_newest_first() {
    let (session, main) = session();
    let tracker = main.create_tracker();
    let log = Log::default();
    let resources = log.clone();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        responsibility.add_resource(noted("first", &resources)).unwrap();
        responsibility.add_resource(noted("second", &resources)).unwrap();
        finish(responsibility);
    });
    main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    tracker.remove().unwrap();
    assert_eq!(*log.lock(), ["second", "first"]);
    assert!(tracker.is_defunct());
    assert!(session.lookup_symbol(&order(&main), &session.intern("a")).is_err());
    tracker.remove().unwrap();
}

#[test]
fn removal_goes_on_past_errors_and_joins_them() {
    let (_session, main) = session();
    let tracker = main.create_tracker();
    let log = Log::default();
    for resource in [sticking("one", &log), noted("two", &log), sticking("three", &log)] {
        tracker.add_resource(resource).unwrap();
    }
    let error = tracker.remove().unwrap_err();
    assert_eq!(error.in_full(), "resources of dylib `main` could not be removed: three sticks; one sticks");
    assert_eq!(*log.lock(), ["three", "two", "one"]);
}

#[test]
fn a_resource_that_comes_too_late_is_refused_and_dropped() {
    let (_session, main) = session();
    let tracker = main.create_tracker();
    tracker.remove().unwrap();
    let log = Log::default();
    let refused = tracker.add_resource(noted("late", &log));
    assert!(matches!(refused, Err(TrackerError::Defunct { .. })));
    assert_eq!(*log.lock(), ["late dropped"]);
}

#[test]
fn removing_a_tracker_before_materializing_drops_the_unit() {
    let (session, main) = session();
    let tracker = main.create_tracker();
    let (send, alive) = mpsc::channel::<()>();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        drop(send);
        finish(responsibility);
    });
    main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    tracker.remove().unwrap();
    assert_eq!(alive.recv(), Err(mpsc::RecvError), "the unit is gone");
}

#[test]
fn removing_a_tracker_during_materializing_fails_its_queries() {
    let (session, main) = session();
    let tracker = main.create_tracker();
    let (send, parked) = mpsc::channel();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        send.send(responsibility.detach()).unwrap();
    });
    main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    let answer = look_up_later(&session, request(&main, &["a"]));
    tracker.remove().unwrap();
    let error = answer.recv().unwrap().unwrap_err();
    assert!(error.in_full().contains("`a` (dylib `main`, unit `unit`) failed: it was removed"), "{error}");
    let responsibility = parked.recv().unwrap().attach();
    let log = Log::default();
    assert!(responsibility.add_resource(noted("late", &log)).is_err());
    let definitions = addresses(responsibility.symbols());
    let refused = responsibility.notify_resolved(&definitions).unwrap_err();
    assert!(matches!(refused.error, ResolveError::TrackerDefunct { .. }));
    // The name is free again, and the old responsibility does not touch the new definition.
    main.define(absolute(&main, "a", 9)).unwrap();
    drop(refused);
    assert_eq!(session.lookup_symbol(&order(&main), &session.intern("a")).unwrap(), at(9));
}

#[test]
fn ten_thousand_trackers_come_and_go() {
    let (session, main) = session();
    for round in 0..10 {
        let trackers: Vec<_> = (0..1000)
            .map(|index| {
                let tracker = main.create_tracker();
                main.define_with_tracker(absolute(&main, &format!("r{round}_{index}"), 1), &tracker).unwrap();
                tracker
            })
            .collect();
        session.lookup_symbol(&order(&main), &session.intern(&format!("r{round}_7"))).unwrap();
        for tracker in trackers {
            tracker.remove().unwrap();
        }
    }
}

#[test]
fn removing_a_tracker_between_resolution_and_emission_refuses_the_emission() {
    let (session, main) = session();
    let (tracker, parked) = parked_under_a_tracker(&main);
    let ready = look_up_later(&session, request(&main, &["a"]));
    let responsibility = parked.recv().unwrap().attach();
    let log = Log::default();
    responsibility.add_resource(noted("code", &log)).unwrap();
    let definitions = addresses(responsibility.symbols());
    let resolved = responsibility.notify_resolved(&definitions).unwrap();
    tracker.remove().unwrap();
    assert_eq!(*log.lock(), ["code"]);
    assert!(matches!(ready.try_recv().unwrap(), Err(LookupError::Failed(_))));
    let refused = resolved.notify_emitted(Vec::new()).unwrap_err();
    assert!(matches!(refused.error, EmitError::TrackerDefunct { .. }));
}

#[test]
fn a_defunct_tracker_refuses_define_replace_delegate_and_further_symbols() {
    let (session, main) = session();
    let (tracker, parked) = parked_under_a_tracker(&main);
    let _answer = look_up_later(&session, request(&main, &["a"]));
    let mut responsibility = parked.recv().unwrap().attach();
    tracker.remove().unwrap();
    let unit = || TestUnit::new("late", exported(&session, &["a"]), finish).boxed();
    let defined = main.define_with_tracker(unit(), &tracker);
    assert!(matches!(defined, Err(DefineError::TrackerDefunct { .. })));
    let more = responsibility.define_materializing(exported(&session, &["more"]));
    assert!(matches!(more, Err(DefineError::TrackerDefunct { .. })));
    let delegated = responsibility.delegate([session.intern("a")]);
    assert!(matches!(delegated, Err(DelegateError::TrackerDefunct { .. })));
    let refused = responsibility.replace(unit()).unwrap_err();
    assert!(matches!(refused.error, DefineError::TrackerDefunct { .. }));
    drop(refused);
    let gone = session.lookup_symbol(&order(&main), &session.intern("a"));
    assert!(matches!(gone, Err(LookupError::NotFound { .. })));
}
