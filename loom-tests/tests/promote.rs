//! Promotion: a function that is called often gets a better body while threads call it for the first time, and while it is led elsewhere.
//!
//! ```text
//!  promoter                                      caller                          who redirects
//!    generation, destination, slot                 find the body                   under the lock:
//!    compile it better, which takes long           under the lock, if the           next generation, its slot
//!    under the lock, if the generation is           generation is the same and
//!      the same: slot = the better body             has no body: slot = the body
//! ```
//!
//! The cell is the pipeline's own file, as in `redirect.rs`. Bodies are numbers: 10 is the first one of destination 1, and 11 is better. The
//! slot says too whether calls are counted.
//!
//! Proven, in every order with at most four preemptions (three with three threads): a better body stays, even if a thread finds
//! the first one late; a slow promotion leads nothing away from a newer destination; and a body that cannot be promoted is
//! counted again, unless its slot was led elsewhere.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `promote::binds_again`: who has found a body does not ask whether there is one already | `pipeline/src/lazy/cell.rs` | `a_slow_first_call_does_not_overtake_a_promotion` |
//! | `promote::overtakes_a_redirection`: a promotion does not ask whether the generation is still the same | `pipeline/src/lazy/cell.rs` | `a_slow_promotion_does_not_overtake_a_redirection` |
//! | `promote::stores_without_the_lock`: it asks under the lock, and stores after that | `pipeline/src/lazy/cell.rs` | `what_was_led_elsewhere_is_not_counted_again` |
//!
//! `callers_reach_no_older_body_than_before` is in no row: it needs three threads, and the others catch the same weakenings
//! with two.
#![cfg(uruk_loom)]

#[expect(dead_code, reason = "redirections are the other model's")]
#[path = "../../pipeline/src/lazy/cell.rs"]
mod cell;
#[path = "../support/stub.rs"]
mod stub;

use cell::{Cell, JumpWord as _};
use loom_tests::stage::model_within;
use stub::{COUNTED, Word};
use uruk_core::ExecutorAddr;
use uruk_core::sync::{Arc, thread};

const PREEMPTIONS: usize = 4;

const CALLS: u32 = 30;

/// A stub of destination 1, whose first body is 10 and better one 11; those of destination 2 are 20 and 21.
struct Scene {
    cell: Cell<u64, Word>,
    slot: Word,
}

impl Scene {
    fn new() -> Arc<Self> {
        Arc::new(Self { cell: Cell::new(1), slot: Word::new() })
    }

    /// Which body a call reaches.
    fn call(&self) -> u64 {
        self.slot.body().unwrap_or_else(|| {
            let find = |&destination: &u64| Ok::<_, ()>((ExecutorAddr::new(destination * 10), ()));
            let bound = self.cell.bind(&self.slot, find, |_, ()| (), |_| Some(CALLS));
            bound.expect("a body is there").value()
        })
    }

    /// Whether there was anything to promote, and it was wanted until the end.
    fn promote(&self) -> bool {
        let Some((generation, destination, _)) = self.cell.bound() else { return false };
        let better = ExecutorAddr::new(destination * 10 + 1);
        self.cell.promote(generation, better, || ()).is_some()
    }

    fn fail_to_promote(&self) {
        if let Some((generation, _, _)) = self.cell.bound() {
            self.cell.count_again(generation, Some(CALLS));
        }
    }

    fn redirect(&self, is_ready: bool) {
        let ready = is_ready.then(|| ExecutorAddr::new(20));
        let (_before, ()) = self.cell.redirect(2, ready, |_| (), Word::store);
    }
}

/// ```text
///  main: call ─ promote ─ call gives 11          another: call gives 10 or 11, the next no worse one
/// ```
#[test]
fn a_slow_first_call_does_not_overtake_a_promotion() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let caller = thread::spawn({
            let scene = scene.clone();
            move || {
                let first = scene.call();
                assert!(scene.call() >= first);
            }
        });
        scene.call();
        assert!(scene.promote());
        assert_eq!(scene.call(), 11);
        caller.join().expect("no panic");
        assert_eq!(scene.slot.load(), 11, "the better body is not counted");
    });
}

/// ```text
///  main, after a call: redirect ─ call gives 20 or 21      another: promote
/// ```
#[test]
fn a_slow_promotion_does_not_overtake_a_redirection() {
    for is_ready in [false, true] {
        model_within(PREEMPTIONS, move || {
            let scene = Scene::new();
            scene.call();
            let promoter = thread::spawn({
                let scene = scene.clone();
                move || scene.promote()
            });
            scene.redirect(is_ready);
            assert!(scene.call() >= 20);
            promoter.join().expect("no panic");
            assert!(scene.call() >= 20);
        });
    }
}

/// ```text
///  main, after a call: redirect                  another: promote                 another: call
/// ```
#[test]
fn callers_reach_no_older_body_than_before() {
    model_within(PREEMPTIONS - 1, || {
        let scene = Scene::new();
        scene.call();
        let promoter = thread::spawn({
            let scene = scene.clone();
            move || scene.promote()
        });
        let caller = thread::spawn({
            let scene = scene.clone();
            move || {
                let first = scene.call();
                assert!(scene.call() >= first);
            }
        });
        scene.redirect(false);
        assert!(scene.call() >= 20);
        promoter.join().expect("no panic");
        caller.join().expect("no panic");
    });
}

/// ```text
///  main, after a call: redirect, ready           another: fail to promote
/// ```
#[test]
fn what_was_led_elsewhere_is_not_counted_again() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        scene.call();
        assert_eq!(scene.slot.load(), 10 + COUNTED);
        let promoter = thread::spawn({
            let scene = scene.clone();
            move || scene.fail_to_promote()
        });
        scene.redirect(true);
        promoter.join().expect("no panic");
        let slot = scene.slot.load();
        assert!(slot == 20 || slot == 20 + COUNTED, "{slot}");
    });
}

loom_tests::catches_its_weakenings!();
