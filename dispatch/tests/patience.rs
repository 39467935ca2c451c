//! The verdict of tests on scenarios that hang: it distinguishes a thread that does nothing from one that gets no processor.
#![cfg(not(any(uruk_loom, uruk_shuttle)))]

#[path = "support/patience.rs"]
pub mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use support::{within, within_reason};
use uruk_core::sync::{Arc, Latch};

#[test]
fn a_scenario_that_does_nothing_any_more_fails() {
    let never = Arc::new(Latch::new());
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let never = never.clone();
        within("it", Duration::from_secs(2), move || never.wait());
    }))
    .unwrap_err();
    never.open();
    let message = panic.downcast_ref::<String>().unwrap();
    assert_eq!(message, "it does not end: nothing has run for 2 looks");
}

/// It outlasts more looks than one that does nothing is given.
#[test]
fn a_scenario_that_goes_on_may_take_its_time() {
    let rounds = within("it", Duration::from_secs(1), || {
        let nobody = Latch::new();
        (0..30).filter(|_| !nobody.wait_timeout(Duration::from_millis(100))).count()
    });
    assert_eq!(rounds, 30);
    assert_eq!(within_reason(|| 7), 7);
}
