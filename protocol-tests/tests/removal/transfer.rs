//! Transfer: what one tracker has becomes another's, before, during and after materializing.

use std::sync::mpsc;

use protocol_tests::tracked::{Log, noted, parked_under_a_tracker};
use protocol_tests::*;
use uruk_core::{DefineError, TrackerError};

#[test]
fn transfer_moves_symbols_and_resources() {
    let (session, main) = session();
    let (one, two) = (main.create_tracker(), main.create_tracker());
    let log = Log::default();
    one.add_resource(noted("of one", &log)).unwrap();
    two.add_resource(noted("of two", &log)).unwrap();
    main.define_with_tracker(absolute(&main, "a", 1), &one).unwrap();
    one.transfer_to(&two).unwrap();
    assert!(one.is_defunct());
    let late = main.define_with_tracker(absolute(&main, "late", 1), &one);
    assert!(matches!(late, Err(DefineError::TrackerDefunct { .. })));
    one.remove().unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    two.remove().unwrap();
    assert_eq!(*log.lock(), ["of one", "of two"]);
    assert!(session.lookup_symbol(&order(&main), &session.intern("a")).is_err());
}

#[test]
fn a_transfer_during_materializing_takes_the_claim_along() {
    let (session, main) = session();
    let (one, two) = (main.create_tracker(), main.create_tracker());
    let (send, parked) = mpsc::channel();
    let unit = TestUnit::new("unit", exported(&session, &["a"]), move |responsibility| {
        send.send(responsibility.detach()).unwrap();
    });
    main.define_with_tracker(unit.boxed(), &one).unwrap();
    let answer = look_up_later(&session, request(&main, &["a"]));
    one.transfer_to(&two).unwrap();
    let log = Log::default();
    let responsibility = parked.recv().unwrap().attach();
    responsibility.add_resource(noted("code", &log)).unwrap();
    finish(responsibility);
    assert!(answer.recv().unwrap().is_ok());
    two.remove().unwrap();
    assert_eq!(*log.lock(), ["code"]);
}

#[test]
fn a_dropped_tracker_transfers_to_the_default_one() {
    let (session, main) = session();
    let tracker = main.create_tracker();
    main.define_with_tracker(absolute(&main, "a", 1), &tracker).unwrap();
    drop(tracker);
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    main.default_tracker().remove().unwrap();
    assert!(session.lookup_symbol(&order(&main), &session.intern("a")).is_err());
    main.define(absolute(&main, "a", 2)).unwrap();
    assert_eq!(session.lookup_symbol(&order(&main), &session.intern("a")).unwrap(), at(2));
}

#[test]
fn a_transfer_before_materializing_takes_the_unit_along() {
    let (session, main) = session();
    let (one, parked) = parked_under_a_tracker(&main);
    let two = main.create_tracker();
    one.transfer_to(&two).unwrap();
    one.remove().unwrap();
    let answer = look_up_later(&session, request(&main, &["a"]));
    let log = Log::default();
    let responsibility = parked.recv().unwrap().attach();
    responsibility.add_resource(noted("code", &log)).unwrap();
    finish(responsibility);
    assert!(answer.try_recv().unwrap().is_ok());
    two.remove().unwrap();
    assert_eq!(*log.lock(), ["code"]);
    assert!(session.lookup_symbol(&order(&main), &session.intern("a")).is_err());
}

#[test]
fn a_transfer_after_materializing_takes_symbols_and_resources_along() {
    let (session, main) = session();
    let (one, parked) = parked_under_a_tracker(&main);
    let two = main.create_tracker();
    let log = Log::default();
    let answer = look_up_later(&session, request(&main, &["a"]));
    let responsibility = parked.recv().unwrap().attach();
    responsibility.add_resource(noted("code", &log)).unwrap();
    let definitions = addresses(responsibility.symbols());
    let resolved = responsibility.notify_resolved(&definitions).unwrap();
    // Once while it is resolved, once when it is Ready.
    one.transfer_to(&two).unwrap();
    resolved.notify_emitted(Vec::new()).unwrap();
    assert!(answer.try_recv().unwrap().is_ok());
    let three = main.create_tracker();
    two.transfer_to(&three).unwrap();
    two.remove().unwrap();
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    assert!(log.lock().is_empty());
    three.remove().unwrap();
    assert_eq!(*log.lock(), ["code"]);
    assert!(session.lookup_symbol(&order(&main), &session.intern("a")).is_err());
}

#[test]
fn trackers_of_two_dylibs_do_not_mix() {
    let (session, main) = session();
    let other = session.create_jit_dylib("other").unwrap();
    let (ours, theirs) = (main.create_tracker(), other.create_tracker());
    assert!(matches!(ours.transfer_to(&theirs), Err(TrackerError::Foreign { .. })));
    let foreign = main.define_with_tracker(absolute(&main, "a", 1), &theirs);
    assert!(matches!(foreign, Err(DefineError::ForeignTracker { .. })));
    assert!(!ours.is_defunct() && !theirs.is_defunct());
}
