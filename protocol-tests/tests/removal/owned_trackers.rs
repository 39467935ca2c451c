//! Owned trackers, and removals that report the fate of the resources.

use std::any::Any;
use std::error::Error;

use protocol_tests::tracked::{Log, noted};
use protocol_tests::*;
use uruk_core::sync::{Arc, Mutex};
use uruk_core::{ExecutionSession, OwnedTracker, RemoveError, Resource};

/// Refuses to go.
struct Stuck;

impl Resource for Stuck {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Err("it is stuck".into())
    }
}

/// A function that lost a tracker on an early return left its symbols to the dylib for ever.
#[test]
fn what_an_owned_tracker_has_goes_with_it() {
    let (session, main) = session();
    let name = session.intern("a");
    for address in 1..=3 {
        let tracker = OwnedTracker::new(main.create_tracker());
        main.define_with_tracker(absolute(&main, "a", address), &tracker).unwrap();
        assert_eq!(session.lookup_symbol(&order(&main), &name).unwrap(), at(address));
    }
    assert!(session.lookup_symbol(&order(&main), &name).is_err());

    let kept = OwnedTracker::from(main.create_tracker());
    main.define_with_tracker(absolute(&main, "a", 4), &kept).unwrap();
    drop(kept.into_inner());
    assert_eq!(session.lookup_symbol(&order(&main), &name).unwrap(), at(4), "the dylib has it now");
}

#[test]
fn what_resources_say_is_returned_or_reported() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let reports = told.clone();
    let reporter = move |error: &uruk_core::SessionError| reports.lock().push(format!("{error:?}"));
    let session = ExecutionSession::builder().error_reporter(Arc::new(reporter)).build();
    let main = session.create_jit_dylib("main").unwrap();
    let stuck = || {
        let tracker = OwnedTracker::new(main.create_tracker());
        tracker.add_resource(Box::new(Stuck)).unwrap();
        tracker
    };
    let refused = stuck().remove().unwrap_err();
    assert!(refused.tracker.is_none() && matches!(refused.error, RemoveError::Resources { .. }));
    assert!(told.lock().is_empty());
    drop(stuck());
    let told = told.lock();
    assert!(matches!(&told[..], [only] if only.contains("it is stuck")), "{told:?}");
}

#[test]
fn who_removes_may_do_it_in_their_own_way() {
    let (session, main) = session();
    let log = Log::default();
    let tracker = main.create_tracker();
    tracker.add_resource(noted("first", &log)).unwrap();
    tracker.add_resource(Box::new(Stuck)).unwrap();
    tracker.add_resource(noted("last", &log)).unwrap();
    let mut stuck = 0;
    let removed = tracker.remove_by(|resource| match (&*resource as &dyn Any).is::<Stuck>() {
        true => {
            stuck += 1;
            Ok(())
        }
        false => resource.remove(),
    });
    assert!(removed.is_ok() && stuck == 1);
    assert_eq!(*log.lock(), ["last", "first"]);

    let other = session.create_jit_dylib("other").unwrap();
    other.default_tracker().add_resource(Box::new(Stuck)).unwrap();
    session.remove_jit_dylib_by(&other, |_| Ok(())).expect("nobody asks it");
    assert!(session.jit_dylib("other").is_none());
}

/// A unit that kept a handle of its tracker kept the whole session.
#[test]
fn a_weak_tracker_ends_with_the_last_handle() {
    let (_session, main) = session();
    let tracker = main.create_tracker();
    let weak = tracker.downgrade();
    assert_eq!(weak.upgrade(), Some(tracker.clone()));
    drop(tracker);
    assert_eq!(weak.upgrade(), None);
}
