//! Starts: threads initialise dylibs, each initialiser once, and none goes on before the initialisers that it needs have run.
//!
//! ```text
//!  main                                              another
//!    anything left? ─ no: go on                        the same, of the same home or of another
//!    lock: a thread at it? ─ wait for its end
//!          take what is Ready, begin
//!    run it
//!    lock: end; open the latch
//!    lock: nothing left, none at it? ─ say so
//! ```
//!
//! The model runs the pipeline's own file; homes and units are numbers here.
//!
//! Proven, in every order with at most four preemptions: the initialisers that a thread has asked for have run when its call
//! returns, and when it is told that nothing is left; each runs once; two threads that start the home that the other one is
//! inside of both come to an end.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `starts::waits_for_nobody`: a home that another thread starts is looked at as if none did | `pipeline/src/platform/starts.rs` | `who_initialises_beside_another_waits_for_it` |
//! | `starts::waits_in_a_cycle`: a thread waits for one that waits for it | `pipeline/src/platform/starts.rs` | `threads_that_start_each_others_homes_come_to_an_end` |
//! | `starts::settles_beside_a_start`: nothing is left to take, and it is said that nothing is left to run | `pipeline/src/platform/starts.rs` | `who_sees_nothing_left_sees_what_it_did` |
//! | `starts::looks_relaxed`: a thread that sees that nothing is left need not see the effects | `pipeline/src/platform/starts.rs` | `who_sees_nothing_left_sees_what_it_did` |
//!
//! All of them need an order of two threads.
#![cfg(uruk_loom)]

#[path = "../../pipeline/src/platform/starts.rs"]
mod starts;

use std::convert::Infallible;

use loom_tests::stage::model;
use starts::{Startable, Starts, Unstarted, start_all};
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};

/// Which home a unit belongs to.
type Home = usize;

#[derive(Default)]
struct State {
    starts: Starts<Home>,
    unstarted: Vec<Home>,
}

impl Startable<Home> for State {
    fn starts(&mut self) -> &mut Starts<Home> {
        &mut self.starts
    }

    fn has_unstarted(&self) -> bool {
        !self.unstarted.is_empty()
    }
}

/// Two homes with one unit each.
struct Scene {
    state: Mutex<State>,
    unstarted: Unstarted,
    /// How often each unit has run.
    ran: [AtomicUsize; 2],
}

impl Scene {
    fn with(units: &[Home]) -> Arc<Self> {
        let scene =
            Self { state: Mutex::default(), unstarted: Unstarted::default(), ran: Default::default() };
        scene.state.lock().unstarted.extend(units);
        scene.unstarted.note();
        Arc::new(scene)
    }

    /// Starts a home, and runs `inside` in its initialiser.
    fn start(&self, home: Home, inside: impl Fn()) {
        let take =
            |state: &mut State, home: Home| state.unstarted.extract_if(.., |unit| *unit == home).collect();
        let run = |units: Vec<Home>| {
            inside();
            for unit in units {
                // Relaxed: the order is the business of the file under test.
                self.ran[unit].fetch_add(1, Ordering::Relaxed);
            }
        };
        let wait = |is_over: &uruk_core::sync::Latch| {
            is_over.wait();
            Ok::<(), Infallible>(())
        };
        let Ok(()) = start_all(&self.state, &self.unstarted, || Some((home, home)), take, wait, run);
    }

    /// As a lookup does it.
    fn look_up(&self, home: Home) {
        if self.unstarted.may_be_there() {
            self.start(home, || ());
        }
        assert_eq!(self.ran(home), 1, "what was found is not initialised");
    }

    fn ran(&self, home: Home) -> usize {
        // Relaxed: see `start`.
        self.ran[home].load(Ordering::Relaxed)
    }
}

/// ```text
///  main: start 0                       another: start 0
/// ```
#[test]
fn who_initialises_beside_another_waits_for_it() {
    model(|| {
        let scene = Scene::with(&[0]);
        let other = thread::spawn({
            let scene = scene.clone();
            move || {
                scene.start(0, || ());
                assert_eq!(scene.ran(0), 1);
            }
        });
        scene.start(0, || ());
        assert_eq!(scene.ran(0), 1);
        other.join().expect("no panic");
    });
}

/// ```text
///  main: start 0 [ inside: start 1 ]                       another: start 1 [ inside: start 0 ]
/// ```
#[test]
fn threads_that_start_each_others_homes_come_to_an_end() {
    model(|| {
        let scene = Scene::with(&[0, 1]);
        let other = thread::spawn({
            let scene = scene.clone();
            move || scene.start(1, || scene.start(0, || ()))
        });
        scene.start(0, || scene.start(1, || ()));
        other.join().expect("no panic");
        assert_eq!([scene.ran(0), scene.ran(1)], [1, 1]);
    });
}

/// ```text
///  main: look up in 0                      another: look for something in 1, where nothing is to be started ─ look up in 0
/// ```
#[test]
fn who_sees_nothing_left_sees_what_it_did() {
    model(|| {
        let scene = Scene::with(&[0]);
        let other = thread::spawn({
            let scene = scene.clone();
            move || {
                scene.start(1, || ());
                scene.look_up(0);
            }
        });
        scene.look_up(0);
        other.join().expect("no panic");
    });
}

loom_tests::catches_its_weakenings!();
