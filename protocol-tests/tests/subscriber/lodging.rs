//! A subscriber that panics when a lookup has been lodged: the caller never gets it, so it is withdrawn, and so are the units
//! that it has started.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use protocol_tests::kept::kept;
use protocol_tests::*;
use uruk_core::{Deadline, JitDylib, LookupRequest};

use crate::*;

/// Looks up what a unit defines that must not run, while the subscriber panics over the end of `lookup.lodge`.
fn lodge<R>(main: &JitDylib, look_up: impl FnOnce() -> R) {
    let unit = TestUnit::new("unit", exported(main.session(), &["a"]), |_| panic!("nobody wants it"));
    main.define(unit.boxed()).expect("it is new");
    // Relaxed: see where it is read.
    WHEN.store(LEFT, Ordering::Relaxed);
    panic_over(SPANS.iter().position(|span| *span == "lookup.lodge").expect("it is one of them"));
    let panicked = catch_unwind(AssertUnwindSafe(look_up)).map(drop);
    panic_over(NONE);
    assert_eq!(panicked.expect_err("the subscriber does").downcast_ref(), Some(&SUBSCRIBER_SAYS.to_owned()));
    assert!(main.session().why(main, &main.session().intern("a")).demand.is_empty(), "it is withdrawn");
}

/// In place what a lookup with a deadline starts is held back until the wait, which never comes.
#[test]
fn what_was_held_back_until_the_wait_does_not_stay_in_the_threads_queue() {
    let _alone = watched();
    let (session, main) = session();
    let deadline = Deadline::after(Duration::from_secs(3600));
    lodge(&main, || session.lookup(LookupRequest::new(order(&main), set(&session, &["a"])).until(deadline)));
    assert_eq!(session.metrics().withdrawn_units, 1, "it has had its turn already");
}

#[test]
fn a_future_that_nobody_got_is_withdrawn() {
    let _alone = watched();
    let (kept, dispatcher) = kept();
    let (session, main) = session_on(dispatcher);
    lodge(&main, || session.lookup_future(request(&main, &["a"])));
    assert_eq!(session.metrics().withdrawn_units, 0, "its task waits");
    kept.run_all();
    assert_eq!(session.metrics().withdrawn_units, 1);
}
