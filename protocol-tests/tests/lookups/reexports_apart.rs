//! Dylibs that re-export each other's symbols in a ring, asked at the same time.
//!
//! ```text
//!   lookup of `2` in dylib 0 ─▶ re-exports of 1 ─▶ what has 1? ─┐
//!   lookup of `0` in dylib 1 ─▶ re-exports of 2 ─▶ what has 2?  │ each question comes to a generator that another lookup is at
//!   lookup of `1` in dylib 2 ─▶ re-exports of 0 ─▶ what has 0? ─┘
//! ```
//!
//! Such a generator served one lookup at a time, so each question waited for another's lookup, and no lookup was told.

use std::collections::VecDeque;
use std::sync::{Arc, mpsc};

use protocol_tests::kept::{Kept, kept};
use protocol_tests::*;
use uruk_core::sync::Mutex;
use uruk_core::{
    AddedUnit, ExecutionSession, JitDylib, JitDylibLookupFlags, LookupError, LookupResult, Platform,
    ReexportsGenerator, SharedError, TaskDispatcher, UnitNumber, WhyState,
};

type Answer = mpsc::Receiver<Result<LookupResult, LookupError>>;

/// A ring of so many dylibs, each of which re-exports the symbols of the next.
fn ring(count: usize) -> (Arc<Kept>, ExecutionSession, Vec<JitDylib>) {
    let (kept, dispatcher) = kept();
    let session = ExecutionSession::builder().dispatcher(dispatcher).build();
    let dylib = |index: usize| session.create_jit_dylib(&format!("dylib {index}")).unwrap();
    let dylibs: Vec<_> = (0..count).map(dylib).collect();
    for (dylib, next) in dylibs.iter().zip(dylibs.iter().cycle().skip(1)) {
        let reexports = ReexportsGenerator::new(next.clone(), JitDylibLookupFlags::MatchAllSymbols);
        dylib.add_generator(Arc::new(reexports)).unwrap();
    }
    (kept, session, dylibs)
}

/// Looks in each dylib for the symbol named after the one before it, then lets all go on.
fn look_up_everywhere(kept: &Kept, session: &ExecutionSession, dylibs: &[JitDylib]) -> Vec<Answer> {
    let before = |index: usize| (index + dylibs.len() - 1) % dylibs.len();
    let ask = |(index, dylib)| look_up_later(session, request(dylib, &[&before(index).to_string()]));
    let answers = dylibs.iter().enumerate().map(ask).collect();
    kept.run_all();
    answers
}

#[test]
fn lookups_at_once_find_what_lies_further_along_the_ring() {
    let (kept, session, dylibs) = ring(3);
    for (index, dylib) in dylibs.iter().enumerate() {
        define_simple(dylib, "unit", &[&index.to_string()]);
    }
    for answer in look_up_everywhere(&kept, &session, &dylibs) {
        answer.try_recv().expect("the lookup has ended").unwrap();
    }
}

#[test]
fn lookups_at_once_of_what_nobody_has_are_told() {
    for count in [2, 3] {
        let (kept, session, dylibs) = ring(count);
        for answer in look_up_everywhere(&kept, &session, &dylibs) {
            let error = answer.try_recv().expect("the lookup has ended").unwrap_err();
            assert!(error.in_full().contains("leads back to it"), "{error}");
        }
    }
}

#[test]
fn a_generator_that_asks_on_behalf_of_a_lookup_says_that_it_is_busy() {
    let (kept, session, dylibs) = ring(2);
    let answer = look_up_later(&session, request(&dylibs[0], &["nobody's"]));
    let is_busy = || {
        let WhyState::Undefined { generators } = session.why(&dylibs[0], &session.intern("nobody's")).state
        else {
            panic!("nobody has it")
        };
        generators[0].is_busy
    };
    assert!(is_busy());
    kept.next().expect("the generator was asked").run();
    assert!(is_busy(), "it asks the other dylib");
    kept.run_all();
    assert!(!is_busy());
    answer.try_recv().expect("the lookup has ended").unwrap_err();
}

/// Each of them withdrawn while its generator asks on its behalf: what was asked goes round the ring once and ends.
#[test]
fn lookups_that_are_withdrawn_meanwhile_leave_nothing_behind() {
    let (kept, session, dylibs) = ring(3);
    for _ in 0..2 {
        let futures: Vec<_> =
            dylibs.iter().map(|dylib| session.lookup_future(request(dylib, &["nobody's"]))).collect();
        // The generators' tasks, which have then asked, and no more.
        for _ in &futures {
            kept.next().expect("each generator was asked").run();
        }
        drop(futures);
        kept.run_all();
    }
    define_simple(&dylibs[0], "unit", &["0"]);
    let answer = look_up_later(&session, request(&dylibs[1], &["0"]));
    kept.run_all();
    answer.try_recv().expect("the lookup has ended").unwrap();
}

/// Does something once, when it is first told of a unit.
#[derive(Default)]
struct FirstUnit(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Platform for FirstUnit {
    fn unit_adding(&self, _unit: &AddedUnit<'_>) -> Result<(), SharedError> {
        let act = self.0.lock().take();
        act.into_iter().for_each(|act| act());
        Ok(())
    }

    fn unit_removed(&self, _unit: UnitNumber) {}
}

/// While a generator defines what it has found for one lookup, it is asked for no other: not even when one that it has served apart
/// comes to the same point and ends.
///
/// ```text
///  lookup of x:  asks ─ ....... ─ found: defines x: platform ─────────────────────────┐ goes on, ends
///  lookup of y:         asks ─ ........................        │ found: defines y, ends │
///  lookup of z:                                      │ waits for the generator ──────────────────▶ is served
/// ```
#[test]
fn who_defines_alone_is_not_driven_out_by_one_who_comes_later() {
    let ((kept, dispatcher), platform) = (kept(), Arc::new(FirstUnit::default()));
    let session =
        ExecutionSession::builder().dispatcher(dispatcher.clone()).platform(platform.clone()).build();
    let [facade, library] = ["facade", "library"].map(|name| session.create_jit_dylib(name).unwrap());
    ["x", "y", "z"].iter().for_each(|name| define_simple(&library, "unit", &[name]));
    let reexports = ReexportsGenerator::new(library, JitDylibLookupFlags::MatchAllSymbols);
    facade.add_generator(Arc::new(reexports)).unwrap();
    let ask = |name| look_up_later(&session, request(&facade, &[name]));
    let first = [ask("x"), ask("y")];
    // The generator is asked for `x`, then, as it lets others in, for `y`; the library has told of neither.
    let mut found = VecDeque::new();
    while found.len() < 2 {
        let task = kept.next().expect("the generator asks the library");
        match task.label() {
            "generator.generate" => task.run(),
            _ => found.push_back(task),
        }
    }
    let (of_x, of_y) = (found.pop_front().unwrap(), found.pop_front().unwrap());
    let (told, tells) = mpsc::channel();
    let (inner, dylib, tasks) = (session.clone(), facade.clone(), kept.clone());
    *platform.0.lock() = Some(Box::new(move || {
        let third = look_up_later(&inner, request(&dylib, &["z"]));
        of_y.run();
        let brought: Vec<_> = std::iter::from_fn(|| tasks.next()).collect();
        let asked = brought.iter().filter(|task| task.label() == "generator.generate").count();
        brought.into_iter().for_each(|task| tasks.dispatch(task).unwrap());
        told.send((third, asked)).unwrap();
    }));
    of_x.run();
    let (third, asked) = tells.try_recv().expect("the platform was told of a unit");
    assert_eq!(asked, 0, "the generator is busy with x");
    kept.run_all();
    for answer in first.iter().chain([&third]) {
        answer.try_recv().expect("the lookup has ended").unwrap();
    }
}
