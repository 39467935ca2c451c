//! The eighth statement: a function may be given another body in any state.

use std::sync::Arc;

use uruk::Function;
use uruk::core::sync::Latch;

use crate::Watched;

type Unary = extern "C" fn(f64) -> f64;

fn get(watched: &Watched, name: &str) -> Function<Unary> {
    // SAFETY: what these tests define takes and gives a number, and the session outlives the handle.
    unsafe { watched.session.jit().get(name) }.expect("a stub")
}

#[test]
fn s8_before_anybody_has_searched_it() {
    let mut watched = Watched::new();
    watched.run("def f(x) x + 1");
    watched.run("def f(x) x + 2");
    assert_eq!(watched.value("f(1)"), 3.0);
    assert_eq!(watched.lowered(), ["f$2"]);
}

#[test]
fn s8_when_its_stub_was_searched_and_not_called() {
    let mut watched = Watched::new();
    watched.run("def f(x) x + 1");
    let f = get(&watched, "f");
    watched.run("def f(x) x + 2");
    assert_eq!((f(1.0), watched.lowered()), (3.0, vec!["f$2".to_owned()]));
}

/// ```text
///   caller:  calls f ─ makes IR of f$1, waits ······················ goes on ─ the call answers
///   session:                                  ─ defines f$2, returns ┘
/// ```
#[test]
fn s8_while_it_is_compiled() {
    let (begun, goes_on) = (Arc::new(Latch::new()), Arc::new(Latch::new()));
    let (tell, wait) = (begun.clone(), goes_on.clone());
    let mut watched = Watched::observed(1, move |body| {
        if body == "f$1" {
            tell.open();
            wait.wait();
        }
    });
    watched.run("def f(x) x + 1");
    let f = get(&watched, "f");
    std::thread::scope(|scope| {
        let call = scope.spawn(|| f(1.0));
        begun.wait();
        watched.run("def f(x) x + 2");
        goes_on.open();
        assert_eq!(
            call.join().expect("it returns"),
            3.0,
            "who waits for the old body goes on to the new one"
        );
    });
    assert_eq!((f(1.0), watched.lowered()), (3.0, vec!["f$1".to_owned(), "f$2".to_owned()]));
}

#[test]
fn s8_when_it_has_run_and_others_call_it() {
    let mut watched = Watched::new();
    watched.run("def f(x) x + 1 def caller(x) f(x) * 10");
    assert_eq!(watched.value("caller(1)"), 20.0);
    watched.run("def f(x) x + 2");
    assert_eq!(watched.value("caller(1)"), 30.0);
    assert_eq!(watched.lowered(), ["caller$1", "f$1", "f$2"]);
    // Recursion goes through the stub too.
    watched.run("def f(x) if x < 1 then 0 else f(x - 1) + 1");
    assert_eq!(watched.value("caller(5)"), 50.0);
}

/// A call that begins after a redefinition has returned never enters an older body: what threads see never goes back.
#[test]
fn s8_at_whatever_step_while_threads_call_it() {
    const GENERATIONS: u32 = 60;
    let mut watched = Watched::observed(2, |_| {});
    watched.run("def f(x) 1");
    // The handle keeps the old bodies for those who are in one.
    let f = get(&watched, "f");
    let is_done = Latch::new();
    std::thread::scope(|scope| {
        let call = || {
            let mut last = 1.0;
            while !is_done.is_open() {
                let now = f(0.0);
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
        };
        let threads = [scope.spawn(call), scope.spawn(call)];
        for generation in 2..=GENERATIONS {
            watched.run(&format!("def f(x) {generation}"));
            assert_eq!(f(0.0), f64::from(generation));
        }
        is_done.open();
        for thread in threads {
            thread.join().expect("its answers never went back");
        }
    });
}
