//! A session's clock that panics on a thread that delivers an answer. A handler was dropped uncalled over it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use protocol_tests::on::On;
use protocol_tests::*;
use uruk_core::{Deadline, ExecutionSession, JitDylib, LookupRequest};

on_every_dispatcher! {
    a_handler_hears_its_answer_though_a_clock_does_not_tell_whether_it_is_late,
    a_lookup_whose_clock_panics_is_withdrawn_and_others_go_on,
}

/// A session whose clock panics while it is `broken`.
fn session_with_a_clock(on: On) -> (ExecutionSession, JitDylib, Arc<AtomicBool>) {
    let broken = Arc::new(AtomicBool::new(false));
    let is_broken = broken.clone();
    let clock = move || match is_broken.load(Ordering::Relaxed) {
        true => panic!("the clock is broken"),
        false => Instant::now(),
    };
    let session = ExecutionSession::builder().dispatcher(on.dispatcher()).clock(Arc::new(clock)).build();
    let main = session.create_jit_dylib("main").unwrap();
    (session, main, broken)
}

fn a_handler_hears_its_answer_though_a_clock_does_not_tell_whether_it_is_late(on: On) {
    let (session, main, broken) = session_with_a_clock(on);
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
    let (session, main, broken) = session_with_a_clock(on);
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
