//! Units that are declared never to block are held to it, on every dispatcher, by an error that names them.

use std::sync::mpsc;

use protocol_tests::*;
use uruk_core::sync::Latch;
use uruk_core::{
    ExecutionSession, JitDylib, LookupError, MaterializationResponsibility, Task, TaskPriority, WaitError,
};

/// One session in place, one on a pool.
fn sessions() -> [(ExecutionSession, JitDylib); 2] {
    [session(), session_of(1)]
}

/// Runs `code` in a leaf that provides `leaf`, and gives what it answered.
fn in_a_leaf<R: Send + 'static>(
    main: &JitDylib,
    code: impl FnOnce(&MaterializationResponsibility) -> R + Send + 'static,
) -> R {
    let (send, receive) = mpsc::channel();
    let unit = TestUnit::new("careful", exported(main.session(), &["leaf"]), move |responsibility| {
        send.send(code(&responsibility)).unwrap();
        finish(responsibility);
    });
    main.define(unit.leaf().boxed()).unwrap();
    main.session().lookup_symbol(&order(main), &main.session().intern("leaf")).unwrap();
    receive.recv().unwrap()
}

fn names_the_leaf(error: &WaitError) -> bool {
    matches!(error, WaitError::Leaf { task } if &**task == "careful")
}

#[test]
fn a_lookup_that_would_block_in_a_leaf_is_refused_and_claims_nothing() {
    for (session, main) in sessions() {
        let parked = define_parked(&main, "other", &["a"]);
        let answer = in_a_leaf(&main, |responsibility| {
            let (session, main) = (responsibility.session(), responsibility.dylib());
            session.lookup_symbol(&order(main), &session.intern("a"))
        });
        assert!(matches!(&answer, Err(LookupError::Wait(error)) if names_the_leaf(error)), "{answer:?}");
        assert!(parked.try_recv().is_err(), "the refused lookup has started nothing");
        session.close().unwrap();
    }
}

#[test]
fn what_needs_no_wait_is_answered_in_a_leaf_and_the_asynchronous_faces_are_served() {
    for (session, main) in sessions() {
        define_simple(&main, "other", &["a", "b"]);
        session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
        define_simple(&main, "later", &["c"]);
        let (ready, later) = in_a_leaf(&main, |responsibility| {
            let (session, main) = (responsibility.session(), responsibility.dylib());
            let ready = session.lookup_symbol(&order(main), &session.intern("b"));
            (ready, look_up_later(session, request(main, &["c"])))
        });
        ready.unwrap();
        later.recv().unwrap().unwrap();
        session.close().unwrap();
    }
}

#[test]
fn declared_waits_and_waits_of_the_dispatcher_are_refused_in_a_leaf() {
    for (session, main) in sessions() {
        let refusals = in_a_leaf(&main, |responsibility| {
            let (session, dispatcher) = (responsibility.session(), responsibility.session().dispatcher());
            let open = Latch::new();
            open.open();
            dispatcher.wait(&open).expect("there is nothing to wait for");
            [
                session.blocking(|| unreachable!("a leaf does not wait")),
                dispatcher.wait(&Latch::new()),
                dispatcher.blocking(&mut || unreachable!("a leaf does not wait")),
            ]
        });
        for refusal in refusals {
            assert!(refusal.is_err_and(|error| names_the_leaf(&error)));
        }
        session.close().unwrap();
    }
}

/// The mark of a leaf goes with it, also when it panics; and a task of the embedder is a leaf as a unit is.
#[test]
fn what_runs_after_a_leaf_on_its_thread_may_block() {
    let (answered, answers) = mpsc::channel();
    for (session, main) in sessions() {
        define_simple(&main, "other", &["a"]);
        let leaf = Task::new("careless", TaskPriority::Demanded, || panic!("on purpose"));
        session.dispatch(leaf.leaf());
        let (answered, asks) = (answered.clone(), main.clone());
        session.dispatch(Task::new("free", TaskPriority::Demanded, move || {
            let session = asks.session();
            answered.send(session.lookup_symbol(&order(&asks), &session.intern("a"))).unwrap();
        }));
        answers.recv().unwrap().unwrap();
        session.close().unwrap();
    }
}
