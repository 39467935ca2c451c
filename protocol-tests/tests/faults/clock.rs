//! A session's clock that panics on a thread that starts a unit or delivers an answer. A unit was lost over it, with its
//! symbols, so that their lookups waited for ever; and a handler was dropped uncalled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use protocol_tests::on::On;
use protocol_tests::*;
use uruk_core::{Deadline, ExecutionSession, JitDylib, LookupRequest, SessionError};

on_every_dispatcher! {
    a_unit_begins_whose_beginning_a_clock_does_not_tell,
    a_handler_hears_its_answer_though_a_clock_does_not_tell_whether_it_is_late,
    a_lookup_whose_clock_panics_is_withdrawn_and_others_go_on,
}

/// A session whose clock panics while it is `broken`, and the session's reports.
fn session_with_a_clock(on: On) -> (ExecutionSession, JitDylib, Arc<AtomicBool>, mpsc::Receiver<String>) {
    let broken = Arc::new(AtomicBool::new(false));
    let (send, reports) = mpsc::channel();
    let is_broken = broken.clone();
    let clock = move || match is_broken.load(Ordering::Relaxed) {
        true => panic!("the clock is broken"),
        false => Instant::now(),
    };
    let session = ExecutionSession::builder()
        .dispatcher(on.dispatcher())
        // The test may have ended.
        .error_reporter(Arc::new(move |error: &SessionError| drop(send.send(error.in_full()))))
        .clock(Arc::new(clock))
        .time_units(true)
        .build();
    let main = session.create_jit_dylib("main").unwrap();
    (session, main, broken, reports)
}

fn a_unit_begins_whose_beginning_a_clock_does_not_tell(on: On) {
    let (session, main, broken, reports) = session_with_a_clock(on);
    define_simple(&main, "unit", &["a"]);
    broken.store(true, Ordering::Relaxed);
    session.lookup(LookupRequest::new(order(&main), set(&session, &["a"]))).unwrap();
    session.close().unwrap();
    let report = reports.recv().unwrap();
    assert!(report.contains("the session's clock") && report.contains("is broken"), "{report}");
}

fn a_handler_hears_its_answer_though_a_clock_does_not_tell_whether_it_is_late(on: On) {
    let (session, main, broken, _reports) = session_with_a_clock(on);
    let parked = define_parked(&main, "unit", &["a"]);
    let until = Deadline::after(Duration::from_secs(1000));
    let answer = look_up_later(&session, request(&main, &["a"]).until(until));
    let parked = parked.recv().unwrap();
    broken.store(true, Ordering::Relaxed);
    finish(parked.attach());
    answer.recv().unwrap().unwrap();
    session.close().unwrap();
}

fn a_lookup_whose_clock_panics_is_withdrawn_and_others_go_on(on: On) {
    let (session, main, broken, _reports) = session_with_a_clock(on);
    let parked = define_parked(&main, "unit", &["a"]);
    let breaks = broken.clone();
    let unit = TestUnit::new("breaks it", exported(&session, &["b"]), move |responsibility| {
        let main = responsibility.dylib().clone();
        let look_up = || {
            let until = Deadline::after(Duration::from_secs(1000));
            breaks.store(true, Ordering::Relaxed);
            main.session()
                .lookup(LookupRequest::new(order(&main), set(main.session(), &["a"])).until(until))
                .map(drop)
        };
        catch_unwind(AssertUnwindSafe(look_up)).expect_err("the clock is asked how much time is left");
        breaks.store(false, Ordering::Relaxed);
        finish(responsibility);
    });
    main.define(unit.boxed()).unwrap();
    let other = look_up_later(&session, request(&main, &["a"]));
    session.lookup(LookupRequest::new(order(&main), set(&session, &["b"]))).unwrap();
    finish(parked.recv().unwrap().attach());
    other.recv().unwrap().unwrap();
    session.close().unwrap();
}
