//! Redirection: a stub is led elsewhere while threads call it for the first time, while others lead it elsewhere too, and while bodies go.
//!
//! ```text
//!  caller                                        who redirects
//!    generation, destination                       under the lock: next generation, its destination,
//!    find the body, which takes long                 slot = the new body, or unbound
//!    under the lock, if the generation is
//!      the same: slot = the body
//!    otherwise again
//! ```
//!
//! The cell is the pipeline's own file. Bodies are numbers here, and finding one reads a flag: whether it is there.
//!
//! Proven, in every order with at most four preemptions (three with three threads): when a redirection has returned, calls reach no older
//! body; a caller whose body went because it was redirected before does not fail; of several redirections the last one stays.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `redirect::binds_an_older_body`: who has found a body does not ask whether the generation is still the same | `pipeline/src/lazy/cell.rs` | `the_last_of_two_redirections_stays` |
//! | `redirect::stores_without_the_lock`: it asks under the lock, and stores after that | `pipeline/src/lazy/cell.rs` | `a_slow_first_call_does_not_overtake_a_redirection` |
//! | `redirect::fails_for_an_older_body`: who has found no body does not ask either | `pipeline/src/lazy/cell.rs` | `a_body_may_go_once_the_stub_leads_elsewhere` |
//! | `redirect::leaves_the_slot`: a redirection does not write the slot | `pipeline/src/lazy/cell.rs` | `a_slow_first_call_does_not_overtake_a_redirection` |
#![cfg(uruk_loom)]

#[expect(dead_code, reason = "nothing is promoted here; `promote.rs` does that")]
#[path = "../../pipeline/src/lazy/cell.rs"]
mod cell;
#[path = "../support/stub.rs"]
mod stub;

use cell::{Cell, JumpWord as _};
use loom_tests::stage::model_within;
use stub::Word;
use uruk_core::ExecutorAddr;
use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::{Arc, thread};

const PREEMPTIONS: usize = 4;

/// A stub, and bodies 1 to 3.
struct Scene {
    cell: Cell<u64, Word>,
    slot: Word,
    is_gone: [AtomicBool; 3],
}

impl Scene {
    fn new() -> Arc<Self> {
        let is_gone = std::array::from_fn(|_| AtomicBool::new(false));
        Arc::new(Self { cell: Cell::new(1), slot: Word::new(), is_gone })
    }

    fn find(&self, body: u64) -> Result<(ExecutorAddr, ()), u64> {
        // Relaxed: the lock of the session, which decides in the pipeline, orders less than the cell's does here.
        let is_gone = self.is_gone[body as usize - 1].load(Ordering::Relaxed);
        if is_gone { Err(body) } else { Ok((ExecutorAddr::new(body), ())) }
    }

    fn call(&self) -> Result<u64, u64> {
        if let Some(body) = self.slot.body() {
            return Ok(body);
        }
        let body = self.cell.bind(&self.slot, |&body| self.find(body), |_, ()| (), |_| None);
        body.map(ExecutorAddr::value)
    }

    fn redirect(&self, body: u64, is_ready: bool) {
        let ready = is_ready.then(|| ExecutorAddr::new(body));
        let (_before, ()) = self.cell.redirect(body, ready, |_| (), Word::store);
    }

    fn remove(&self, body: u64) {
        self.is_gone[body as usize - 1].store(true, Ordering::Relaxed); // see `find`
    }
}

/// ```text
///  main: redirect to 2 ─ call gives 2            another: call gives 1 or 2, the next no older one
/// ```
#[test]
fn a_slow_first_call_does_not_overtake_a_redirection() {
    for is_ready in [false, true] {
        model_within(PREEMPTIONS, move || {
            let scene = Scene::new();
            let caller = thread::spawn({
                let scene = scene.clone();
                move || {
                    let first = scene.call().expect("a body is there");
                    assert!(scene.call().expect("a body is there") >= first);
                }
            });
            scene.redirect(2, is_ready);
            assert_eq!(scene.call(), Ok(2));
            caller.join().expect("no panic");
            assert_eq!(scene.call(), Ok(2));
            assert_eq!(scene.cell.destination(), 2);
        });
    }
}

/// ```text
///  main: redirect to 2 ─ remove 1                another: call
/// ```
#[test]
fn a_body_may_go_once_the_stub_leads_elsewhere() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let caller = thread::spawn({
            let scene = scene.clone();
            move || scene.call().expect("one of them is always there")
        });
        scene.redirect(2, false);
        scene.remove(1);
        caller.join().expect("no panic");
        assert_eq!(scene.call(), Ok(2));
    });
}

/// ```text
///  main: redirect to 2                           another: redirect to 3           another: call
/// ```
#[test]
fn the_last_of_two_redirections_stays() {
    model_within(PREEMPTIONS - 1, || {
        let scene = Scene::new();
        let other = thread::spawn({
            let scene = scene.clone();
            move || scene.redirect(3, true)
        });
        let caller = thread::spawn({
            let scene = scene.clone();
            move || scene.call().expect("a body is there")
        });
        scene.redirect(2, true);
        let called = scene.call();
        assert_ne!(called, Ok(1));
        other.join().expect("no panic");
        caller.join().expect("no panic");
        assert_eq!(scene.call(), Ok(scene.cell.destination()));
    });
}

loom_tests::catches_its_weakenings!();
