//! Lookups in the background are refused if the dispatcher has enough of such work, before they claim anything; needed work is
//! never refused, and never waits.

use std::sync::Arc;

use protocol_tests::*;
use uruk_core::sync::Latch;
use uruk_core::{
    ExecutionSession, JitDylib, LookupError, Task, TaskDispatcher, TaskPriority, WaitError, absolute_symbols,
};
use uruk_dispatch::WorkStealingTaskDispatcher;

use TaskPriority::{Demanded, Idle, Lazy, Speculative};

/// A session on a pool of one worker, which is occupied until the latch is open, with room for one queued task of each kind in the
/// background.
fn occupied() -> (Arc<WorkStealingTaskDispatcher>, ExecutionSession, JitDylib, Arc<Latch>) {
    let builder = WorkStealingTaskDispatcher::builder().workers(1);
    let pool = Arc::new(builder.speculative_queue_max(1).idle_queue_max(1).build().unwrap());
    let session = ExecutionSession::builder().dispatcher(pool.clone()).build();
    let main = session.create_jit_dylib("main").unwrap();
    let [begun, go_on] = [(); 2].map(|()| Arc::new(Latch::new()));
    session.dispatch(Task::new("occupies the worker", Demanded, {
        let (begun, go_on) = (begun.clone(), go_on.clone());
        move || {
            begun.open();
            go_on.wait();
        }
    }));
    begun.wait();
    (pool, session, main, go_on)
}

#[test]
fn a_producer_in_the_background_is_refused_before_it_claims_anything() {
    let (pool, session, main, go_on) = occupied();
    for name in ["a", "c", "d", "e"] {
        define_simple(&main, name, &[name]);
    }
    let started = define_parked(&main, "b", &["b"]);
    let first = look_up_later(&session, request(&main, &["a"]).at(Speculative));
    assert!(pool.admits(Speculative, 1).is_err() && pool.admits(Idle, 1).is_ok(), "one is queued");
    let refused = look_up_later(&session, request(&main, &["b"]).at(Speculative));
    // Others are served: of another kind, lazy, demanded, and without a priority.
    let others = [
        request(&main, &["c"]).at(Idle),
        request(&main, &["d"]).at(Lazy),
        request(&main, &["d"]).at(Demanded),
        request(&main, &["e"]),
    ];
    let others = others.map(|request| look_up_later(&session, request));
    go_on.open();
    first.recv().unwrap().unwrap();
    others.iter().for_each(|other| drop(other.recv().unwrap().unwrap()));
    let refused = refused.recv().unwrap();
    let reached = match &refused {
        Err(LookupError::Overloaded { priority: Speculative, reached }) => *reached,
        other => panic!("{other:?}"),
    };
    assert_eq!((reached.priority, reached.waiting, reached.bound), (Speculative, 1, 1));
    let told = refused.unwrap_err().in_full();
    for part in
        ["1 speculative task", "at most 1", "wait_for_room(Speculative, 1)", "raise `speculative_queue_max`"]
    {
        assert!(told.contains(part), "{told}");
    }
    assert!(started.try_recv().is_err(), "nothing of it was claimed");
    session.wait_for_room(Speculative, 1).unwrap();
    let again = look_up_later(&session, request(&main, &["b"]).at(Speculative));
    finish(started.recv().unwrap().attach());
    again.recv().unwrap().unwrap();
    session.close().unwrap();
}

/// A unit that declares itself background was queued beyond any bound, if its lookup gave no priority.
#[test]
fn a_lookup_that_says_nothing_is_refused_if_all_that_it_would_bring_about_is_background() {
    let (pool, session, main, go_on) = occupied();
    for (name, priority) in [("a", Speculative), ("b", Speculative), ("c", Lazy), ("d", Idle)] {
        let unit = TestUnit::new(name, exported(&session, &[name]), finish).with_priority(priority);
        main.define(unit.boxed()).unwrap();
    }
    let answers = [&["a"][..], &["b"], &["b", "c"], &["d"], &["a"]]
        .map(|names| look_up_later(&session, request(&main, names)));
    assert!(pool.admits(Speculative, 1).is_err());
    go_on.open();
    let [first, refused, mixed, other_kind, begun] = answers.map(|answer| answer.recv().unwrap());
    assert!(first.is_ok() && mixed.is_ok() && other_kind.is_ok() && begun.is_ok());
    assert!(
        matches!(refused, Err(LookupError::Overloaded { priority: Speculative, .. })),
        "a second one would be queued: {refused:?}"
    );
    session.close().unwrap();
}

#[test]
fn what_is_ready_is_answered_and_what_is_missing_is_missing_however_much_is_queued() {
    let (_pool, session, main, go_on) = occupied();
    define_simple(&main, "a", &["a"]);
    let absolute = [(session.intern("known"), at(7))].into_iter().collect();
    main.define(absolute_symbols(absolute)).unwrap();
    let first = look_up_later(&session, request(&main, &["a"]).at(Speculative));
    let known = look_up_later(&session, request(&main, &["known"]).at(Speculative));
    let missing = look_up_later(&session, request(&main, &["missing"]).at(Speculative));
    go_on.open();
    first.recv().unwrap().unwrap();
    known.recv().unwrap().unwrap();
    assert!(matches!(missing.recv().unwrap(), Err(LookupError::NotFound { .. })));
    session.close().unwrap();
}

/// The unit is in the background, and so is its need; it fills the queue itself before it asks.
#[test]
fn a_lookup_on_behalf_of_a_claim_is_never_refused() {
    let (_pool, session, main, go_on) = occupied();
    define_simple(&main, "last", &["c"]);
    let unit = TestUnit::new("asks", exported(&session, &["a"]), |responsibility| {
        let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
        session.dispatch(Task::new("fills the queue", Speculative, || ()));
        assert!(session.dispatcher().admits(Speculative, 1).is_err());
        let responsibility = responsibility.detach();
        session.lookup_async(request(&main, &["c"]).at(Speculative).until_resolved(), move |answer| {
            answer.unwrap();
            finish(responsibility.attach());
        });
    });
    main.define(unit.boxed()).unwrap();
    let asks = look_up_later(&session, request(&main, &["a"]).at(Speculative));
    go_on.open();
    asks.recv().unwrap().unwrap();
    session.close().unwrap();
}

#[test]
fn a_leaf_may_not_wait_for_room() {
    let (_pool, session, main, go_on) = occupied();
    define_simple(&main, "a", &["a"]);
    let asked = look_up_later(&session, request(&main, &["a"]).at(Idle));
    let (send, receive) = std::sync::mpsc::channel();
    let leaf = Task::new("leaf", Demanded, {
        let session = session.clone();
        move || send.send(session.wait_for_room(Idle, 1)).unwrap()
    });
    session.dispatch(leaf.leaf());
    go_on.open();
    assert!(matches!(receive.recv().unwrap(), Err(WaitError::Leaf { .. })));
    asked.recv().unwrap().unwrap();
    session.close().unwrap();
}
