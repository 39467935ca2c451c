//! Certain deadlocks: a cycle of waits is an error that names it, and nothing else is.

use std::sync::mpsc;

use protocol_tests::deadlock::{define_blocking, look_up, look_up_as, the_cycle};
use protocol_tests::on::EVERYWHERE;
use protocol_tests::*;
use uruk_core::{DeadlockStep, Detached, LookupError, MaterializationResponsibility};

#[test]
fn two_units_that_look_each_other_up_are_told_on_every_dispatcher() {
    for on in EVERYWHERE {
        within_reason(move || {
            let (session, main) = on.session();
            let (teller, told) = mpsc::channel();
            define_blocking(&main, "a", &["b"], &teller);
            define_blocking(&main, "b", &["a"], &teller);
            let error = look_up(&main, &["a"]).unwrap_err();
            assert!(matches!(error, LookupError::Failed(_)), "{error}");
            let text = error.in_full();
            assert!(text.contains("would never end"), "{text}");
            assert_eq!(the_cycle(&told), ("B".into(), vec!["a".into(), "b".into()]));
            assert!(look_up(&main, &["b"]).is_err());
            session.close().unwrap();
        });
    }
}

#[test]
fn whoever_comes_last_is_told_and_only_once() {
    for on in EVERYWHERE {
        for _ in 0..20 {
            within_reason(move || {
                let (_session, main) = on.session();
                let (teller, told) = mpsc::channel();
                define_blocking(&main, "a", &["b"], &teller);
                define_blocking(&main, "b", &["a"], &teller);
                std::thread::scope(|scope| {
                    scope.spawn(|| look_up(&main, &["a"]).unwrap_err());
                    scope.spawn(|| look_up(&main, &["b"]).unwrap_err());
                });
                assert_eq!(the_cycle(&told).1, ["a", "b"]);
            });
        }
    }
}

#[test]
fn three_units_in_a_circle_are_told_with_the_whole_of_it() {
    for on in EVERYWHERE {
        within_reason(move || {
            let (_session, main) = on.session();
            let (teller, told) = mpsc::channel();
            for (symbol, needs) in [("a", "b"), ("b", "c"), ("c", "a"), ("outside", "a")] {
                define_blocking(&main, symbol, &[needs], &teller);
            }
            look_up(&main, &["outside"]).unwrap_err();
            assert_eq!(the_cycle(&told), ("C".into(), vec!["a".into(), "b".into(), "c".into()]));
        });
    }
}

#[test]
fn a_unit_that_looks_itself_up_is_told() {
    for on in EVERYWHERE {
        within_reason(move || {
            let (_session, main) = on.session();
            let (teller, told) = mpsc::channel();
            define_blocking(&main, "a", &["a"], &teller);
            look_up(&main, &["a"]).unwrap_err();
            assert_eq!(the_cycle(&told), ("A".into(), vec!["a".into()]));
        });
    }
}

#[test]
fn the_error_reads_from_symbol_to_symbol() {
    let (session, main) = session();
    let (teller, told) = mpsc::channel();
    define_blocking(&main, "a", &["b"], &teller);
    define_blocking(&main, "b", &["a"], &teller);
    look_up(&main, &["a"]).unwrap_err();
    let (_, error) = told.try_iter().find(|(unit, _)| unit == "B").unwrap();
    let text = error.in_full();
    let a_first = "`a` (dylib `main`, unit `A`) looks up `b` (unit `B`), which looks up `a`";
    let b_first = "`b` (dylib `main`, unit `B`) looks up `a` (unit `A`), which looks up `b`";
    assert!(text.contains(a_first) || text.contains(b_first), "{text}");
    drop(session);
}

#[test]
fn what_lies_beneath_on_the_same_stack_waits_too() {
    within_reason(|| {
        let (session, main) = session();
        let (teller, told) = mpsc::channel();
        // A is blocked for x, which another thread may finish. Neither queued unit is known to be needed for that; the first
        // waits for a, the second finishes x.
        let parked = define_parked(&main, "X", &["x"]);
        let x_wanted = look_up_later(&session, request(&main, &["x"]));
        define_blocking(&main, "c", &["a"], &teller);
        let finishes = TestUnit::new("Z", exported(&session, &["z"]), move |responsibility| {
            finish(parked.recv().unwrap().attach());
            finish(responsibility);
        });
        main.define(finishes.boxed()).unwrap();
        let (c_told, c_wanted) = mpsc::channel();
        let unit = TestUnit::new("A", exported(&session, &["a"]), move |responsibility| {
            let (session, main) = (responsibility.session().clone(), responsibility.dylib().clone());
            let c_wanted = look_up_later(&session, request(&main, &["c"]));
            drop(look_up_later(&session, request(&main, &["z"])));
            look_up(&main, &["x"]).unwrap();
            finish(responsibility);
            c_told.send(c_wanted).unwrap();
        });
        main.define(unit.boxed()).unwrap();
        look_up(&main, &["a"]).unwrap();
        assert!(c_wanted.recv().unwrap().recv().unwrap().is_err());
        let (unit, error) = told.try_recv().unwrap();
        let LookupError::WouldDeadlock { path } = &error else { panic!("{error}") };
        assert!(matches!(&path[..], [DeadlockStep::Beneath { .. }]), "{unit}: {error}");
        assert!(x_wanted.recv().unwrap().is_ok());
    });
}

#[test]
fn a_foreign_thread_that_took_a_responsibility_up_is_part_of_the_circle() {
    for on in EVERYWHERE {
        within_reason(move || {
            let (session, main) = on.session();
            let (teller, told) = mpsc::channel();
            let parked = define_parked(&main, "A", &["a"]);
            define_blocking(&main, "b", &["a"], &teller);
            let wanted = look_up_later(&session, request(&main, &["a"]));
            std::thread::scope(|scope| {
                let (parked, main, teller) = (parked.recv().unwrap(), &main, &teller);
                let client = scope.spawn(move || {
                    let responsibility = parked.attach();
                    let outcome = look_up_as("client", main, &["b"], teller);
                    finish(responsibility);
                    outcome
                });
                // Whichever lookup is told: the client goes on and finishes.
                let _ = client.join().unwrap();
                let _ = look_up(main, &["b"]);
            });
            assert!(wanted.recv().unwrap().is_ok());
            assert_eq!(the_cycle(&told).1, ["a", "b"]);
        });
    }
}

#[test]
fn what_another_thread_will_finish_is_waited_for() {
    within_reason(|| {
        let (_session, main) = session_of(2);
        let (teller, told) = mpsc::channel();
        let (send, parked) = mpsc::channel::<Detached<MaterializationResponsibility>>();
        let (blocked, b_asked) = mpsc::channel();
        // The circle of `two_units_that_look_each_other_up`, but for the detached responsibility.
        let unit = TestUnit::new("A", exported(main.session(), &["a"]), move |responsibility| {
            let main = responsibility.dylib().clone();
            send.send(responsibility.detach()).unwrap();
            blocked.send(look_up(&main, &["b"])).unwrap();
        });
        main.define(unit.boxed()).unwrap();
        define_blocking(&main, "b", &["a"], &teller);
        std::thread::scope(|scope| {
            scope.spawn(|| look_up(&main, &["a", "b"]).unwrap());
            finish(parked.recv().unwrap().attach());
        });
        b_asked.recv().unwrap().unwrap();
        assert!(told.try_recv().is_err());
    });
}

#[test]
fn a_cycle_of_emitted_symbols_is_no_deadlock() {
    within_reason(|| {
        let (session, main) = session_of(2);
        let (teller, told) = mpsc::channel();
        for (symbol, needs) in [("r0", ["r1", "slow"]), ("r1", ["r0", "r0"])] {
            let unit = TestUnit::new("ring", exported(&session, &[symbol]), move |responsibility| {
                let needs = request(responsibility.dylib(), &needs);
                emit_depending_on(resolve(responsibility), needs);
            });
            main.define(unit.boxed()).unwrap();
        }
        let parked = define_parked(&main, "slow", &["slow"]);
        define_blocking(&main, "b", &["r0"], &teller);
        std::thread::scope(|scope| {
            scope.spawn(|| look_up(&main, &["b"]).unwrap());
            let slow = resolve(parked.recv().unwrap().attach());
            look_up_later(&session, request(&main, &["r0", "r1"]).until_resolved()).recv().unwrap().unwrap();
            slow.notify_emitted(Vec::new()).unwrap();
        });
        assert!(told.try_recv().is_err());
    });
}
