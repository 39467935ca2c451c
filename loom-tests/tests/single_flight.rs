//! Single flight: threads want the entry of one key. One makes it; when it fails, the next one does; some give up.
//!
//! ```text
//!  leader                                         who waits
//!    lock: begin a flight                           lock: sit down
//!    make the entry, store it ─ or fail             wait for the latch ─ or not any longer
//!    lock: tell all: it is here ─ or the next: lead lock: what was I told? else stand up
//!    open the latches                               have it, lead, or go alone
//! ```
//!
//! The model runs the pipeline's own file, with numbers for keys and entries. A store stands for the caches: the leader looks
//! there first, as `CompileCache::get_or_make` does. Models have no clock, so a thread that gives up does not wait at all.
//!
//! Proven, in every order with at most three preemptions: an entry is made once, for any number of threads; if making it fails,
//! the next thread makes it; every thread has it in the end, even if some give up; no flight is left.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `single_flight::looks_before_it_enters`: a flight is looked for under one lock, and begun under another | `pipeline/src/cache/flights.rs` | `an_entry_is_made_once` |
//! | `single_flight::wakes_one_only`: of the threads that get the leader's entry, one is woken | `pipeline/src/cache/flights.rs` | `an_entry_is_made_once` |
//! | `single_flight::leaves_without_a_successor`: a leader that fails ends the flight, and wakes none | `pipeline/src/cache/flights.rs` | `the_next_one_leads_when_the_leader_fails` |
//! | `single_flight::gives_up_unseen`: a thread that gives up looks whether it was woken, and not at its message | `pipeline/src/cache/flights.rs` | `who_gives_up_as_it_is_to_lead_leads` |
//!
//! The first and the last need an order of two threads that a test can hardly stage: the step in between makes no call.
#![cfg(uruk_loom)]

#[path = "../../pipeline/src/cache/flights.rs"]
mod flights;

use flights::{EnteredFlight, Flights};
use loom_tests::stage::model_within;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Latch, Mutex, thread};

const PREEMPTIONS: usize = 3;

const KEY: u32 = 1;
const ENTRY: u32 = 7;

/// Threads that want one entry.
struct Scene {
    flights: Flights<u32, u32>,
    store: Mutex<Option<u32>>,
    made: AtomicUsize,
    /// How many of the first attempts to make it fail.
    failures: Mutex<usize>,
}

impl Scene {
    fn new(failures: usize) -> Arc<Self> {
        Arc::new(Self {
            flights: Flights::new(),
            store: Mutex::new(None),
            made: AtomicUsize::new(0),
            failures: Mutex::new(failures),
        })
    }

    /// Wants the entry. A thread that fails to make it gets nothing.
    fn obtain(&self, wait: fn(&Latch)) -> Option<u32> {
        let leader = match self.flights.enter(KEY, wait) {
            EnteredFlight::Landed(entry) => return Some(entry),
            EnteredFlight::Leads(leader) => Some(leader),
            EnteredFlight::Alone => None,
        };
        let stored = *self.store.lock();
        let entry = match stored {
            Some(entry) => entry,
            None => self.make()?,
        };
        if let Some(leader) = leader {
            leader.land(&entry);
        }
        Some(entry)
    }

    fn make(&self) -> Option<u32> {
        let mut failures = self.failures.lock();
        if let Some(left) = failures.checked_sub(1) {
            *failures = left;
            return None;
        }
        drop(failures);
        // Relaxed, here and below: a count of a model, read when its threads have been joined.
        self.made.fetch_add(1, Ordering::Relaxed);
        *self.store.lock() = Some(ENTRY);
        Some(ENTRY)
    }

    /// Wants it on a thread of its own.
    fn obtain_beside(self: &Arc<Self>, wait: fn(&Latch)) -> thread::JoinHandle<Option<u32>> {
        let scene = self.clone();
        thread::spawn(move || scene.obtain(wait))
    }

    /// Holds that nothing is left of a flight; says how often the entry was made.
    fn end(&self) -> usize {
        assert_eq!(self.flights.len(), (0, 0), "a flight is left");
        self.made.load(Ordering::Relaxed)
    }
}

fn gives_up(_: &Latch) {}

/// ```text
///  main: obtain                  another: obtain                  another: obtain
/// ```
#[test]
fn an_entry_is_made_once() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new(0);
        let others = [(); 2].map(|()| scene.obtain_beside(Latch::wait));
        assert_eq!(scene.obtain(Latch::wait), Some(ENTRY));
        assert_eq!(others.map(|other| other.join().expect("no panic")), [Some(ENTRY); 2]);
        assert_eq!(scene.end(), 1);
    });
}

/// ```text
///  main: obtain                  another: obtain                  (the first to make it fails)
/// ```
#[test]
fn the_next_one_leads_when_the_leader_fails() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new(1);
        let other = scene.obtain_beside(Latch::wait);
        let mut obtained = [scene.obtain(Latch::wait), other.join().expect("no panic")];
        obtained.sort_unstable();
        assert_eq!(obtained, [None, Some(ENTRY)]);
        assert_eq!(scene.end(), 1);
    });
}

/// ```text
///  main: obtain, or give up      another: obtain                  (the first to make it fails)
/// ```
#[test]
fn who_gives_up_as_it_is_to_lead_leads() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new(1);
        let other = scene.obtain_beside(Latch::wait);
        let mut obtained = [scene.obtain(gives_up), other.join().expect("no panic")];
        obtained.sort_unstable();
        assert_eq!(obtained, [None, Some(ENTRY)]);
        // A thread that has given up may have made it for itself.
        assert_eq!(scene.end(), 1);
    });
}

loom_tests::catches_its_weakenings!();
