//! A close waits for the work in progress. A caller that may not wait gets an error, and nothing has happened.

use std::cell::Cell;
use std::panic::Location;
use std::sync::{Arc, mpsc};

use protocol_tests::*;
use uruk_core::sync::Latch;
use uruk_core::{CloseError, ExecutionSession, HeldResource, Shutdown, WaitError};
use uruk_dispatch::WorkStealingTaskDispatcher;

thread_local! {
    static HELD: Cell<Option<HeldResource>> = const { Cell::new(None) };
}

/// ```text
///  this thread: holds a context ── closes: refused ── lets go of it ── closes
///  worker:      a unit at work, which ends when the context is free
/// ```
#[test]
fn a_close_by_a_thread_that_holds_what_a_unit_waits_for_is_refused() {
    within_reason(|| {
        let pool = Arc::new(WorkStealingTaskDispatcher::builder().workers(1).build().unwrap());
        let builder = ExecutionSession::builder().dispatcher(pool).refuse_waits_while(|| HELD.get());
        let session = builder.build();
        let main = session.create_jit_dylib("main").unwrap();
        let [begun, free] = [(); 2].map(|()| Arc::new(Latch::new()));
        let unit = TestUnit::new("unit", exported(&session, &["a"]), {
            let (begun, free) = (begun.clone(), free.clone());
            move |responsibility| {
                begun.open();
                free.wait();
                finish(responsibility);
            }
        });
        main.define(unit.boxed()).unwrap();
        let found = look_up_later(&session, request(&main, &["a"]));
        begun.wait();
        let place = Location::caller();
        HELD.set(Some(HeldResource { what: "a context", taken_at: Some(place) }));
        for shutdown in [Shutdown::Drain, Shutdown::Cancel] {
            let refused = session.close_with(shutdown);
            let Err(CloseError::Wait(WaitError::Holding { held })) = &refused else { panic!("{refused:?}") };
            assert_eq!(held.taken_at, Some(place));
            let told = refused.unwrap_err().in_full();
            assert!(told.contains(&format!("holds a context, taken at {place};")), "{told}");
        }
        define_simple(&main, "other", &["b"]);
        HELD.set(None);
        free.open();
        found.recv().unwrap().unwrap();
        session.lookup_symbol(&order(&main), &session.intern("b")).unwrap();
        session.close().unwrap();
        HELD.set(Some(HeldResource { what: "a context", taken_at: None }));
        session.close().unwrap();
        HELD.set(None);
    });
}

#[test]
fn a_close_inside_a_leaf_is_refused_and_names_it() {
    within_reason(|| {
        for (session, main) in [session(), session_of(1), session_of(2)] {
            let (send, receive) = mpsc::channel();
            let unit = TestUnit::new("careful", exported(&session, &["leaf"]), move |responsibility| {
                send.send(responsibility.session().close()).unwrap();
                finish(responsibility);
            });
            main.define(unit.leaf().boxed()).unwrap();
            define_simple(&main, "other", &["a"]);
            session.lookup_symbol(&order(&main), &session.intern("leaf")).unwrap();
            let refused = receive.recv().unwrap();
            let Err(CloseError::Wait(WaitError::Leaf { task })) = &refused else { panic!("{refused:?}") };
            assert_eq!(&**task, "careful");
            session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
            session.close().unwrap();
        }
    });
}
