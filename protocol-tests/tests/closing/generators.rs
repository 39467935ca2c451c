//! The session ends while a lookup is suspended at a generator and others queue behind it.

use std::sync::{Arc, mpsc};

use protocol_tests::on::On;
use protocol_tests::sends::sends;
use protocol_tests::*;
use uruk_core::{DefineError, LookupError, Shutdown};

on_every_dispatcher!(
    a_drain_ends_lookups_that_are_suspended_at_a_generator,
    a_cancelling_close_ends_lookups_that_are_suspended_at_a_generator,
);

fn a_drain_ends_lookups_that_are_suspended_at_a_generator(on: On) {
    ends_what_is_suspended(on, Shutdown::Drain);
}

fn a_cancelling_close_ends_lookups_that_are_suspended_at_a_generator(on: On) {
    ends_what_is_suspended(on, Shutdown::Cancel);
}

fn ends_what_is_suspended(on: On, shutdown: Shutdown) {
    // Once the request is finished after the close, once it is merely dropped.
    for finishes in [true, false] {
        let (session, main) = on.session();
        let (generator, requests) = sends();
        let generator_gone = Arc::downgrade(&generator);
        main.add_generator(generator).unwrap();
        let first = look_up_later(&session, request(&main, &["a"]));
        let request_of_a = requests.recv().unwrap();
        let queued = look_up_later(&session, request(&main, &["b"]));
        let future = session.lookup_future(request(&main, &["c"]));
        let why = session.why(&main, &session.intern("b"));
        let uruk_core::WhyState::Undefined { generators } = &why.state else { panic!("{why}") };
        assert!(generators[0].is_busy, "{why}");
        assert_eq!(generators[0].queued, 2, "{why}");
        session.close_with(shutdown).unwrap();
        for answer in [first, queued] {
            assert!(matches!(answer.recv().unwrap(), Err(LookupError::Closed)));
            assert!(answer.recv().is_err(), "told once");
        }
        drop(future);
        assert!(requests.try_recv().is_err(), "who queued was not served");
        if finishes {
            let request = request_of_a.attach();
            let late = request.dylib().define(absolute(request.dylib(), "a", 1));
            assert!(matches!(late, Err(DefineError::Closed { .. } | DefineError::DylibRemoved { .. })));
            request.finish(Ok(()));
        } else {
            drop(request_of_a);
        }
        assert!(requests.try_recv().is_err(), "nor was anybody afterwards");
        assert!(generator_gone.upgrade().is_none(), "nothing keeps the generator");
        session.close_with(shutdown).unwrap();
    }
}

/// A thread that is blocked in its lookup at the generator goes on, and the close does not wait for the request.
#[test]
fn a_thread_blocked_at_a_generator_is_told_of_the_close() {
    for shutdown in [Shutdown::Drain, Shutdown::Cancel] {
        for workers in [0, 1, 2] {
            within_reason(move || {
                let (session, main) = session_of(workers);
                let (generator, requests) = sends();
                main.add_generator(generator).unwrap();
                let (of_unit, unit_told) = mpsc::channel();
                let unit = TestUnit::new("asks", exported(&session, &["asks"]), move |responsibility| {
                    let main = responsibility.dylib().clone();
                    let answer = main.session().lookup_symbol(&order(&main), &main.session().intern("a"));
                    of_unit.send(answer.map(drop)).unwrap();
                    drop(responsibility);
                });
                main.define(unit.boxed()).unwrap();
                let client = std::thread::spawn({
                    let (session, main) = (session.clone(), main.clone());
                    move || session.lookup_symbol(&order(&main), &session.intern("asks"))
                });
                let request_of_a = requests.recv().unwrap();
                session.close_with(shutdown).unwrap();
                assert!(matches!(unit_told.recv().unwrap(), Err(LookupError::Closed)));
                assert!(client.join().unwrap().is_err());
                drop(request_of_a);
            });
        }
    }
}
