//! Symbols that exist for their side effects only: who refers to one weakly waits for these.

use std::sync::mpsc;

use protocol_tests::*;
use uruk_core::{
    Detached, JitDylib, LookupError, LookupRequest, LookupResult, LookupSet, MaterializationResponsibility,
};

/// A weak reference to the initializer of a unit that is being materialized.
fn waits_for_an_initializer(
    main: &JitDylib,
    how: impl FnOnce(LookupRequest) -> LookupRequest,
) -> (Detached<MaterializationResponsibility>, mpsc::Receiver<Result<LookupResult, LookupError>>) {
    let session = main.session();
    let init = session.intern("init");
    let (send, parked) = mpsc::channel();
    let unit = TestUnit::new("unit", exported(session, &["a"]), move |responsibility| {
        send.send(responsibility.detach()).unwrap();
    });
    main.define(unit.with_initializer(init.clone()).boxed()).unwrap();
    let request = LookupRequest::new(order(main), LookupSet::weakly_referenced([init]));
    let answer = look_up_later(session, how(request));
    assert!(answer.try_recv().is_err(), "its unit has only begun");
    (parked.recv().unwrap(), answer)
}

#[test]
fn a_weak_reference_waits_until_the_side_effects_have_happened() {
    let (_session, main) = session();
    let (responsibility, answer) = waits_for_an_initializer(&main, |request| request);
    let resolved = resolve(responsibility.attach());
    assert!(answer.try_recv().is_err(), "its unit has no more than addresses for others");
    resolved.notify_emitted(Vec::new()).unwrap();
    assert!(answer.recv().unwrap().unwrap().is_empty(), "found, and without an address");
}

#[test]
fn a_linker_waits_until_it_is_certain_that_there_is_no_address() {
    let (_session, main) = session();
    let (responsibility, answer) = waits_for_an_initializer(&main, LookupRequest::until_resolved);
    let resolved = resolve(responsibility.attach());
    assert!(answer.recv().unwrap().unwrap().is_empty());
    resolved.notify_emitted(Vec::new()).unwrap();
}

#[test]
fn a_weak_reference_fails_with_the_unit_of_the_side_effects() {
    let (_session, main) = session();
    let (responsibility, answer) = waits_for_an_initializer(&main, |request| request);
    drop(resolve(responsibility.attach()));
    assert!(matches!(answer.recv().unwrap(), Err(LookupError::Failed(_))));
}
