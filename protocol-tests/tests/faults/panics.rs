//! A panic of one call of the embedder's code takes no other call with it: each has a guard of its own, the rest is still
//! done, and every panic is reported.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use protocol_tests::on::{On, failure_of};
use protocol_tests::*;
use uruk_core::{
    AddedUnit, DefinitionGenerator, EventKind, ExecutionSession, FailureCause, GenerateRequest, JitDylib,
    Platform, SharedError, SymbolFlags, SymbolFlagsMap, UnitNumber,
};

on_every_dispatcher! {
    a_platform_that_panics_over_a_unit_hears_of_the_others,
    an_observer_that_panics_over_an_event_sees_the_others,
    a_unit_that_panics_over_a_loss_hears_of_the_others_before_it_goes,
    a_unit_that_panics_over_a_loss_hears_of_the_others_and_does_not_begin,
    a_unit_whose_drop_panics_beside_its_loss_ends_no_process,
    values_whose_drops_panic_go_each_by_itself,
}

/// The reports, sorted by their texts, as tasks may end in any order.
fn sorted(reports: &mpsc::Receiver<String>) -> Vec<String> {
    let mut reports: Vec<_> = reports.try_iter().collect();
    reports.sort();
    reports
}

/// Panics over every other unit that is gone.
struct Touchy {
    told: mpsc::Sender<UnitNumber>,
    calls: AtomicUsize,
}

impl Platform for Touchy {
    fn unit_adding(&self, _unit: &AddedUnit<'_>) -> Result<(), SharedError> {
        Ok(())
    }

    fn unit_removed(&self, unit: UnitNumber) {
        self.told.send(unit).unwrap();
        // Relaxed: calls of one removal come one after another.
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(call % 2 == 1, "call {call} was too much");
    }
}

fn a_platform_that_panics_over_a_unit_hears_of_the_others(on: On) {
    let ((told, gone), (send, reports)) = (mpsc::channel(), mpsc::channel());
    let session = ExecutionSession::builder()
        .dispatcher(on.dispatcher())
        .platform(Arc::new(Touchy { told, calls: AtomicUsize::new(0) }))
        .error_reporter(Arc::new(move |error| send.send(error.in_full()).unwrap()))
        .build();
    let main = session.create_jit_dylib("main").unwrap();
    let tracker = main.create_tracker();
    for number in 0..4 {
        let (unit, symbol) = (format!("unit {number}"), format!("symbol {number}"));
        let unit = TestUnit::new(&unit, exported(&session, &[&symbol]), finish);
        let unit = unit.with_initializer(session.intern(&format!("init {number}")));
        main.define_with_tracker(unit.boxed(), &tracker).unwrap();
    }
    tracker.remove().unwrap();
    session.close().unwrap();
    let mut gone: Vec<_> = gone.try_iter().collect();
    gone.sort();
    gone.dedup();
    assert_eq!(gone.len(), 4, "each was told of once");
    let text = |call| format!("the session's platform panicked: call {call} was too much");
    assert_eq!(sorted(&reports), [text(0), text(2)]);
}

fn an_observer_that_panics_over_an_event_sees_the_others(on: On) {
    let ((told, seen), (send, reports)) = (mpsc::channel(), mpsc::channel());
    let session = ExecutionSession::builder()
        .dispatcher(on.dispatcher())
        .observer(Arc::new(move |event| {
            if let EventKind::Defined { unit, .. } = &event.kind {
                told.send(unit.to_string()).unwrap();
                assert!(unit.as_str() != "first", "the first is too much");
            }
        }))
        .error_reporter(Arc::new(move |error| send.send(error.in_full()).unwrap()))
        .build();
    let main = session.create_jit_dylib("main").unwrap();
    let unit = |name: &str| TestUnit::new(name, exported(&session, &[name]), finish).boxed();
    let all = session.transaction().define(&main, unit("first")).define(&main, unit("second"));
    all.define(&main, unit("third")).commit().unwrap();
    session.close().unwrap();
    assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["first", "second", "third"]);
    assert_eq!(sorted(&reports), ["the session's observer panicked: the first is too much"]);
}

/// Panics when it is dropped, with this message.
#[derive(Debug)]
struct PanicsWhenDropped(&'static str);

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("{}", self.0);
    }
}

fn weak(session: &ExecutionSession, names: &[&str]) -> SymbolFlagsMap {
    names.iter().map(|name| (session.intern(name), EXPORTED | SymbolFlags::WEAK)).collect()
}

/// Defines weak symbols whose unit panics over the loss of each but `c`, and when it is dropped; then overrides `lost`.
/// Gives what the unit is told.
fn define_losing(main: &JitDylib, symbols: &[&str], lost: &[&str]) -> mpsc::Receiver<String> {
    let (send, told) = mpsc::channel();
    let (discards, owned) = (send.clone(), PanicsWhenDropped("it does not go quietly"));
    let unit = TestUnit::new("loses", weak(main.session(), symbols), move |responsibility| {
        send.send("begins".to_owned()).unwrap();
        finish(responsibility);
    });
    let unit = unit.on_discard(move |symbol| {
        let _ = &owned;
        discards.send(symbol.to_string()).unwrap();
        assert!(symbol.as_str() == "c", "{symbol} was dear");
    });
    main.define(unit.boxed()).unwrap();
    define_simple(main, "wins", lost);
    told
}

fn heard(told: &mpsc::Receiver<String>) -> Vec<String> {
    let mut heard: Vec<_> = told.try_iter().collect();
    heard.sort();
    heard
}

const DROPS: &str = "a drop of the embedder's value panicked: it does not go quietly";
const UNIT_DROPS: &str = "the drop of a unit panicked: it does not go quietly";

fn a_unit_that_panics_over_a_loss_hears_of_the_others_before_it_goes(on: On) {
    let (session, main, reports) = on.reporting_session();
    let told = define_losing(&main, &["a", "b", "c"], &["a", "b", "c"]);
    session.close().unwrap();
    assert_eq!(heard(&told), ["a", "b", "c"]);
    let dear = |symbol| format!("a unit's `discard` panicked: {symbol} was dear");
    assert_eq!(sorted(&reports), [DROPS.to_owned(), dear("a"), dear("b")]);
}

fn a_unit_that_panics_over_a_loss_hears_of_the_others_and_does_not_begin(on: On) {
    let (session, main, reports) = on.reporting_session();
    let told = define_losing(&main, &["a", "b", "c", "kept"], &["a", "b", "c"]);
    let answer = session.lookup_symbol(&order(&main), &session.intern("kept"));
    session.close().unwrap();
    assert_eq!(heard(&told), ["a", "b", "c"]);
    // One of the panics is the cause, and the other, as the drop's, is told to those who listen.
    let FailureCause::Panicked(message) = failure_of(answer) else { panic!("another cause") };
    let reports = sorted(&reports);
    let other = if &*message == "a was dear" { "b" } else { "a" };
    let dear = format!("a unit's `discard` panicked: {other} was dear");
    assert!(message.ends_with(" was dear"), "{message}");
    assert_eq!(reports, [dear, UNIT_DROPS.to_owned()]);
}

fn a_unit_whose_drop_panics_beside_its_loss_ends_no_process(on: On) {
    let (session, main, reports) = on.reporting_session();
    let told = define_losing(&main, &["a", "kept"], &["a"]);
    let answer = session.lookup_symbol(&order(&main), &session.intern("kept"));
    session.close().unwrap();
    assert_eq!(heard(&told), ["a"]);
    assert!(matches!(failure_of(answer), FailureCause::Panicked(message) if &*message == "a was dear"));
    assert_eq!(sorted(&reports), [UNIT_DROPS]);
}

/// Units that never began, and a generator.
fn values_whose_drops_panic_go_each_by_itself(on: On) {
    const UNITS: usize = 3;
    let (session, main, reports) = on.reporting_session();
    for number in 0..UNITS {
        let owned = PanicsWhenDropped("a unit does not go quietly");
        let name = format!("unit {number}");
        let unit = TestUnit::new(&name, exported(&session, &[&name]), finish);
        let unit = unit.on_discard(move |_| {
            let _ = &owned;
        });
        main.define(unit.boxed()).unwrap();
    }
    main.clear().unwrap();
    let generator = main.add_generator(Arc::new(Idle(PanicsWhenDropped("a generator does not go quietly"))));
    assert!(main.remove_generator(generator.unwrap()));
    session.close().unwrap();
    let unit = "a drop of the embedder's value panicked: a unit does not go quietly";
    let generator = "a drop of the embedder's value panicked: a generator does not go quietly";
    assert_eq!(sorted(&reports), [generator, unit, unit, unit]);
}

/// Generates nothing.
#[derive(Debug)]
struct Idle(#[expect(dead_code, reason = "held to be dropped")] PanicsWhenDropped);

impl DefinitionGenerator for Idle {
    fn name(&self) -> &str {
        "idle"
    }

    fn generate(&self, request: GenerateRequest) {
        request.finish(Ok(()));
    }
}
