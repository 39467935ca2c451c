//! A pool of helper processes: a helper ends as a request is handed to it, and idle ones are let go while others ask.
//!
//! ```text
//!  asks                                            another
//!    lock: take a place, and its helper if it has one    the helper ends, at any step
//!    start a helper if there is none                     lock: take a place, or wait for one
//!    hand the request over ─ has it begun?               lock: keep none any more, take the idle ones
//!    wait for the answer
//!    lock: give the place back ─ wake one
//! ```
//!
//! The model runs the pipeline's own file, with flags for helpers. A helper that is ended before it begins a request says so; one that is
//! ended later fails it.
//!
//! Proven, in every order with at most three preemptions: a request is answered or failed once; a helper begins a request only once; no
//! more helpers are alive than there are places, as long as helpers are kept; every place is free in the end; no request waits for ever.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `helpers::frees_in_silence`: a place whose helper is gone becomes free, and no thread is woken | `pipeline/src/helpers/shelf.rs` | `a_place_whose_helper_is_gone_is_for_the_next` |
//! | `helpers::asks_again`: a request is given to another helper though one has begun it | `pipeline/src/helpers/shelf.rs` | `a_request_is_begun_once` |
//!
//! `a_request_that_had_not_begun_is_given_to_another_helper` and `a_helper_that_comes_back_late_is_let_go` are in no row: each watches a
//! branch, and no step that could be left out.
#![cfg(uruk_loom)]

#[path = "../../pipeline/src/helpers/shelf.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "the model asks, and looks at nothing; the pipeline publishes the constant"
)]
mod shelf;

use loom_tests::stage::model_within;
use shelf::{Asked, HelperShelf, request};
use uruk_core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use uruk_core::sync::{Arc, thread};

const PREEMPTIONS: usize = 3;

/// A process: it lives until it is ended, and takes a place on the machine until it is dropped.
struct Helper {
    ended: Arc<AtomicBool>,
    scene: Arc<Scene>,
}

struct Scene {
    alive: AtomicUsize,
    begun: AtomicUsize,
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Relaxed, here and below: counts of a model, which the shelf's lock orders.
        self.scene.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Scene {
    fn new() -> Arc<Self> {
        Arc::new(Self { alive: AtomicUsize::new(0), begun: AtomicUsize::new(0) })
    }

    fn start(self: &Arc<Self>, ended: &Arc<AtomicBool>) -> Helper {
        self.alive.fetch_add(1, Ordering::Relaxed);
        Helper { ended: ended.clone(), scene: self.clone() }
    }

    /// Has one answered on a thread of its own; holds that no more helpers are alive than there is a place for.
    fn ask_beside(
        self: &Arc<Self>,
        shelf: &Arc<HelperShelf<Helper>>,
        first: Arc<AtomicBool>,
    ) -> thread::JoinHandle<Result<(), &'static str>> {
        let (scene, shelf) = (self.clone(), shelf.clone());
        thread::spawn(move || {
            let asked = scene.ask(&shelf, &first);
            assert!(scene.alive.load(Ordering::Relaxed) <= 1, "one place");
            asked
        })
    }

    /// Has a request answered. Its first helper ends when `first` says so; later ones do not end.
    fn ask(
        self: &Arc<Self>,
        shelf: &HelperShelf<Helper>,
        first: &Arc<AtomicBool>,
    ) -> Result<(), &'static str> {
        let mut flag = Some(first.clone());
        let mut start = || Ok(self.start(&flag.take().unwrap_or_default()));
        request(shelf, &mut start, &mut |helper: &mut Helper| {
            if helper.ended.load(Ordering::Acquire) {
                return Asked::NotBegun("before");
            }
            self.begun.fetch_add(1, Ordering::Relaxed);
            match helper.ended.load(Ordering::Acquire) {
                true => Asked::Failed("at work"),
                false => Asked::Answered { answer: (), is_fit: true },
            }
        })
    }
}

/// ```text
///  main: ask                     another: end the helper
/// ```
#[test]
fn a_request_is_begun_once() {
    model_within(PREEMPTIONS, || {
        let (scene, shelf) = (Scene::new(), Arc::new(HelperShelf::new(1)));
        let ended = Arc::new(AtomicBool::new(false));
        let flag = ended.clone();
        let ends = thread::spawn(move || flag.store(true, Ordering::Release));
        let asked = scene.ask(&shelf, &ended);
        ends.join().expect("no panic");
        assert_eq!(scene.begun.load(Ordering::Relaxed), 1, "{asked:?}");
        assert_ne!(asked, Err("before"), "another helper begins it");
        drop(shelf.clear());
        assert_eq!(scene.alive.load(Ordering::Relaxed), 0);
    });
}

/// ```text
///  main: ask, of one place       another: ask                    (the first helper of each has ended)
/// ```
#[test]
fn a_request_that_had_not_begun_is_given_to_another_helper() {
    model_within(PREEMPTIONS, || {
        let (scene, shelf) = (Scene::new(), Arc::new(HelperShelf::new(1)));
        let ended = || Arc::new(AtomicBool::new(true));
        let other = scene.ask_beside(&shelf, ended());
        assert_eq!(scene.ask(&shelf, &ended()), Ok(()));
        assert_eq!(other.join().expect("no panic"), Ok(()));
        assert_eq!(scene.begun.load(Ordering::Relaxed), 2);
        drop(shelf.clear());
        assert_eq!(scene.alive.load(Ordering::Relaxed), 0);
    });
}

/// ```text
///  main: take the place; its helper is gone          another: ask, of the same place
/// ```
#[test]
fn a_place_whose_helper_is_gone_is_for_the_next() {
    model_within(PREEMPTIONS, || {
        let (scene, shelf) = (Scene::new(), Arc::new(HelperShelf::new(1)));
        let other = scene.ask_beside(&shelf, Arc::default());
        let mut start = || Ok(scene.start(&Arc::default()));
        let failed: Result<(), _> = request(&shelf, &mut start, &mut |_| Asked::Failed("at work"));
        assert_eq!(failed, Err("at work"));
        assert_eq!(other.join().expect("no panic"), Ok(()));
        drop(shelf.clear());
        assert_eq!(scene.alive.load(Ordering::Relaxed), 0);
    });
}

/// ```text
///  main: ask                     another: let idle helpers go
/// ```
#[test]
fn a_helper_that_comes_back_late_is_let_go() {
    model_within(PREEMPTIONS, || {
        let (scene, shelf) = (Scene::new(), Arc::new(HelperShelf::new(1)));
        let clears = {
            let shelf = shelf.clone();
            thread::spawn(move || drop(shelf.clear()))
        };
        assert_eq!(scene.ask(&shelf, &Arc::default()), Ok(()));
        clears.join().expect("no panic");
        assert_eq!(scene.alive.load(Ordering::Relaxed), 0);
        // And a later request has one of its own.
        assert_eq!(scene.ask(&shelf, &Arc::default()), Ok(()));
        assert_eq!(scene.alive.load(Ordering::Relaxed), 0);
    });
}

loom_tests::catches_its_weakenings!();
