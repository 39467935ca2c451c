//! How long the session's lock is held can be read from a session that was asked to measure it.

use std::time::Duration;

use protocol_tests::*;
use uruk_core::ExecutionSession;

#[test]
fn holds_are_not_measured_unless_asked_for() {
    let (session, main) = session();
    define_simple(&main, "unit", &["a"]);
    assert_eq!(session.take_lock_holds(), None);
}

#[test]
fn every_transaction_is_measured_until_the_figures_are_taken() {
    let session = ExecutionSession::builder().measure_lock_holds(true).build();
    let main = session.create_jit_dylib("main").unwrap();
    assert_eq!(session.take_lock_holds().unwrap().count, 1, "the creation of the dylib");
    define_simple(&main, "unit", &["a"]);
    define_simple(&main, "unit", &["b"]);
    let holds = session.take_lock_holds().unwrap();
    assert_eq!(holds.count, 2);
    assert!(
        Duration::ZERO < holds.longest && holds.longest <= holds.total && holds.total <= 2 * holds.longest
    );
    let nothing = session.take_lock_holds().unwrap();
    assert_eq!((nothing.count, nothing.longest, nothing.total), (0, Duration::ZERO, Duration::ZERO));
}

#[test]
fn lookups_of_what_is_ready_hold_no_lock() {
    let session = ExecutionSession::builder().measure_lock_holds(true).build();
    let main = session.create_jit_dylib("main").unwrap();
    define_simple(&main, "unit", &["a"]);
    let (order, name) = (order(&main), session.intern("a"));
    session.lookup_symbol(&order, &name).unwrap();
    assert!(session.take_lock_holds().unwrap().count > 0, "the unit was materialized");
    session.lookup_symbol(&order, &name).unwrap();
    assert_eq!(session.take_lock_holds().unwrap().count, 0);
}
