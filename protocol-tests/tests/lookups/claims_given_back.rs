//! A lookup that fails after it has claimed gives back units that no other lookup wants; one that fails before has claimed
//! nothing.

use std::sync::mpsc;

use protocol_tests::halt::while_nothing_else_runs;
use protocol_tests::on::On;
use protocol_tests::sends::sends;
use protocol_tests::units::define_telling;
use protocol_tests::*;
use uruk_core::{LookupError, SymbolFlags, WhyState, shared_error};

on_every_dispatcher!(what_was_found_beside_a_generator_that_fails_was_never_searched,);

/// ```text
///  the only thread:  lookup of { a, b }: a is claimed and queued ─ b fails ─ why(a) │ the task of a
/// ```
#[test]
fn a_lookup_that_fails_after_it_has_claimed_gives_back_what_has_not_started() {
    for workers in [0, 1] {
        within_reason(move || {
            let (session, main) = session_of(workers);
            let started = define_telling(&main, "unit of a", &["a"]);
            let b = define_parked(&main, "unit of b", &["b"]);
            let b_alone = look_up_later(&session, request(&main, &["b"]));
            let b = b.recv().unwrap();
            let answer = while_nothing_else_runs(&session, &main, |session, main| {
                let answer = look_up_later(session, request(main, &["a", "b"]));
                let a = session.why(main, &session.intern("a"));
                assert!(matches!(a.state, WhyState::Queued { .. } | WhyState::Materializing(_)), "{a}");
                assert_eq!(a.demand.lookups, 1);
                b.fail(shared_error("on purpose"));
                assert_eq!(session.why(main, &session.intern("a")).demand.lookups, 0);
                answer
            });
            for answer in [answer, b_alone] {
                let error = answer.recv().unwrap().unwrap_err();
                let LookupError::Failed(failure) = &error else { panic!("{error}") };
                assert_eq!(failure.symbol().as_str(), "b");
            }
            while session.metrics().withdrawn_units == 0 {
                std::thread::yield_now();
            }
            let a = session.why(&main, &session.intern("a"));
            assert!(matches!(a.state, WhyState::Returned { .. }), "{a}");
            assert!(started.try_recv().is_err(), "nobody wanted it any more");
            session.lookup_symbol(&order(&main), &session.intern("a")).unwrap();
            assert_eq!(started.try_iter().count(), 1);
            assert_eq!(session.metrics().withdrawn_units, 1);
            session.close().unwrap();
        });
    }
}

/// The same if another lookup wants the claimed unit: it runs, once.
#[test]
fn what_another_lookup_wants_too_is_not_given_back() {
    for workers in [0, 1] {
        within_reason(move || {
            let (session, main) = session_of(workers);
            let started = define_telling(&main, "unit of a", &["a"]);
            let b = define_parked(&main, "unit of b", &["b"]);
            let _b = look_up_later(&session, request(&main, &["b"]));
            let b = b.recv().unwrap();
            let (both, alone) = while_nothing_else_runs(&session, &main, |session, main| {
                let both = look_up_later(session, request(main, &["a", "b"]));
                let alone = look_up_later(session, request(main, &["a"]));
                b.fail(shared_error("on purpose"));
                (both, alone)
            });
            assert!(matches!(both.recv().unwrap(), Err(LookupError::Failed(_))));
            assert!(alone.recv().unwrap().is_ok());
            assert_eq!(started.try_iter().count(), 1);
            assert_eq!(session.metrics().withdrawn_units, 0);
            session.close().unwrap();
        });
    }
}

fn what_was_found_beside_a_generator_that_fails_was_never_searched(on: On) {
    let (session, main) = on.session();
    let (generator, requests) = sends();
    main.add_generator(generator);
    let (discard, discarded) = mpsc::channel();
    let weak = [(session.intern("found"), EXPORTED | SymbolFlags::WEAK)].into_iter().collect();
    let weak = TestUnit::new("weak", weak, |_| panic!("nobody asks for it"));
    main.define(weak.on_discard(move |name| discard.send(name.clone()).unwrap()).boxed()).unwrap();
    let answer = look_up_later(&session, request(&main, &["found", "missing"]));
    let suspended = requests.recv().unwrap().attach();
    assert_eq!(suspended.symbols().len(), 1, "what was found is not generated");
    suspended.finish(Err(shared_error("on purpose")));
    assert!(matches!(answer.recv().unwrap(), Err(LookupError::Generator { .. })));
    let found = session.why(&main, &session.intern("found"));
    assert!(matches!(found.state, WhyState::NeverSearched { .. }), "{found}");
    assert!(found.demand.is_empty(), "{found}");
    // A weak one that was searched would stay, and this be a duplicate.
    define_simple(&main, "strong", &["found"]);
    assert_eq!(discarded.recv().unwrap(), session.intern("found"));
    session.lookup_symbol(&order(&main), &session.intern("found")).unwrap();
    session.close().unwrap();
}
