//! Transfers of waiting symbols: an emitted one whose dependence is not emitted, and a claim at work whose new tracker goes.

use std::sync::mpsc;

use protocol_tests::on::On;
use protocol_tests::tracked::{Log, noted, parked_under_a_tracker};
use protocol_tests::*;
use uruk_core::{
    DependenceGroup, EmitError, ExecutionSession, FailureCause, JitDylib, LookupError, LookupResult,
    ResolveError, ResolvedResponsibility, ResourceTracker, WhyState,
};

on_every_dispatcher!(
    an_emitted_symbol_that_waits_is_transferred_and_becomes_ready,
    an_emitted_symbol_that_waits_goes_with_its_new_tracker,
    a_claim_at_work_goes_with_its_new_tracker,
    a_resolved_claim_goes_with_its_new_tracker,
);

type Answer = mpsc::Receiver<Result<LookupResult, LookupError>>;

/// `a`, emitted under a tracker with a resource, which waits for `x`.
struct Waiting {
    session: ExecutionSession,
    main: JitDylib,
    tracker: ResourceTracker,
    a_ready: Answer,
    x: ResolvedResponsibility,
    x_ready: Answer,
    log: Log,
}

impl Waiting {
    fn new(on: On) -> Self {
        let (session, main) = on.session();
        let (tracker, parked) = parked_under_a_tracker(&main);
        let x_parked = define_parked(&main, "unit of x", &["x"]);
        let a_ready = look_up_later(&session, request(&main, &["a"]));
        let x_ready = look_up_later(&session, request(&main, &["x"]));
        let a = parked.recv().unwrap().attach();
        let x = resolve(x_parked.recv().unwrap().attach());
        let log = Log::default();
        a.add_resource(noted("code", &log)).unwrap();
        let dependencies = vec![x.dependency(&session.intern("x")).unwrap()];
        finish_with(a, vec![DependenceGroup { symbols: vec![session.intern("a")], dependencies }]);
        let why = session.why(&main, &session.intern("a"));
        assert!(matches!(why.state, WhyState::Emitted { .. }), "{why}");
        Self { session, main, tracker, a_ready, x, x_ready, log }
    }

    fn is_gone(&self, name: &str) -> bool {
        let found = self.session.lookup_symbol(&order(&self.main), &self.session.intern(name));
        matches!(found, Err(LookupError::NotFound { .. }))
    }
}

fn was_removed(answer: &Answer) {
    let error = answer.recv().unwrap().unwrap_err();
    let LookupError::Failed(failure) = &error else { panic!("{error}") };
    assert!(matches!(failure.cause, FailureCause::Removed), "{error}");
}

fn an_emitted_symbol_that_waits_is_transferred_and_becomes_ready(on: On) {
    let waiting = Waiting::new(on);
    let new = waiting.main.create_tracker();
    waiting.tracker.transfer_to(&new).unwrap();
    waiting.tracker.remove().unwrap();
    assert!(waiting.a_ready.try_recv().is_err(), "it waits as before");
    let Waiting { session, main, a_ready, x, x_ready, log, .. } = waiting;
    x.notify_emitted(Vec::new()).unwrap();
    assert!(x_ready.recv().unwrap().is_ok());
    assert!(a_ready.recv().unwrap().is_ok());
    assert!(log.lock().is_empty());
    new.remove().unwrap();
    assert_eq!(*log.lock(), ["code"]);
    let found = session.lookup_symbol(&order(&main), &session.intern("a"));
    assert!(matches!(found, Err(LookupError::NotFound { .. })));
    session.lookup_symbol(&order(&main), &session.intern("x")).unwrap();
    session.close().unwrap();
}

fn an_emitted_symbol_that_waits_goes_with_its_new_tracker(on: On) {
    let waiting = Waiting::new(on);
    let new = waiting.main.create_tracker();
    waiting.tracker.transfer_to(&new).unwrap();
    new.remove().unwrap();
    was_removed(&waiting.a_ready);
    assert_eq!(*waiting.log.lock(), ["code"]);
    assert!(waiting.is_gone("a"));
    let Waiting { session, main, x, x_ready, .. } = waiting;
    let why = session.why(&main, &session.intern("x"));
    assert!(why.demand.symbols.is_empty(), "nobody depends on it any more: {why}");
    x.notify_emitted(Vec::new()).unwrap();
    assert!(x_ready.recv().unwrap().is_ok());
    define_simple(&main, "again", &["a"]);
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    session.close().unwrap();
}

fn a_claim_at_work_goes_with_its_new_tracker(on: On) {
    let (session, main) = on.session();
    let (tracker, parked) = parked_under_a_tracker(&main);
    let answer = look_up_later(&session, request(&main, &["a"]));
    let responsibility = parked.recv().unwrap().attach();
    let new = main.create_tracker();
    let log = Log::default();
    responsibility.add_resource(noted("code", &log)).unwrap();
    tracker.transfer_to(&new).unwrap();
    new.remove().unwrap();
    was_removed(&answer);
    assert_eq!(*log.lock(), ["code"]);
    let late = responsibility.add_resource(noted("late", &log));
    assert!(late.is_err());
    let definitions = addresses(responsibility.symbols());
    let refused = responsibility.notify_resolved(&definitions).unwrap_err();
    assert!(matches!(refused.error, ResolveError::TrackerDefunct { .. }), "{}", refused.error);
    // Its name is another's by now, whom the drop does not concern.
    define_simple(&main, "again", &["a"]);
    drop(refused);
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    session.close().unwrap();
}

fn a_resolved_claim_goes_with_its_new_tracker(on: On) {
    let (session, main) = on.session();
    let (tracker, parked) = parked_under_a_tracker(&main);
    let answer = look_up_later(&session, request(&main, &["a"]));
    let resolved = resolve(parked.recv().unwrap().attach());
    let new = main.create_tracker();
    tracker.transfer_to(&new).unwrap();
    new.remove().unwrap();
    was_removed(&answer);
    let refused = resolved.notify_emitted(Vec::new()).unwrap_err();
    assert!(matches!(refused.error, EmitError::TrackerDefunct { .. }), "{}", refused.error);
    define_simple(&main, "again", &["a"]);
    drop(refused);
    session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
    session.close().unwrap();
}
