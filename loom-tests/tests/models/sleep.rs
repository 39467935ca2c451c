//! The parking protocol, alone: a thread sees each push, each closing and each item that a searcher leaves behind.
//!
//! ```text
//!  producer            worker
//!  push                searching: looks, finds nothing
//!  fence               counts itself as sleeping (or vacant)
//!  load the counts     fence
//!   └ none to wake?    looks again, sleeps (or ends)
//! ```
//!
//! Unordered flags stand for queues: locked queues would order what the fences must order. `pool.rs` has whole pools.
//!
//! Proven, in every order within the preemption bound: every thread that sleeps is woken for an item that it did not see.
//!
//! **Fails if** one of these steps is left out:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `sleep::notifies_without_fence` | `dispatch/src/sleep.rs` | `a_push_and_a_second_look_cannot_miss_each_other` |
//! | `sleep::looks_without_fence` | `dispatch/src/sleep.rs` | `a_push_and_a_second_look_cannot_miss_each_other` |
//! | `sleep::changes_the_word_without_order` | `dispatch/src/sleep.rs` | `the_last_searcher_sees_what_those_before_it_had_in_hand` |
//! | `sleep::closes_by_a_look`: without a change of the word if no thread seems to sleep | `dispatch/src/sleep.rs` | `a_closing_and_a_second_look_cannot_miss_each_other` |
#![cfg(uruk_loom)]

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom_tests::stage::model_within;
use uruk_core::sync::Arc;
use uruk_dispatch::sleep::{Sleep, Wake};

loom_tests::catches_its_weakenings!();

/// ```text
///  producer: flag = 1; notify        worker: searching; flag? ─ sleep(look at flag) ─ flag must be 1
/// ```
#[test]
fn a_push_and_a_second_look_cannot_miss_each_other() {
    model_within(2, || {
        let sleep = Arc::new(Sleep::new(1));
        let flag = Arc::new(AtomicUsize::new(0));
        assert_eq!(sleep.notify(), Wake::Start);
        let worker = loom::thread::spawn({
            let (sleep, flag) = (sleep.clone(), flag.clone());
            move || {
                // Relaxed here and below: the protocol's own fences are what is checked.
                while flag.load(Ordering::Relaxed) == 0 {
                    sleep.sleep(|| flag.load(Ordering::Relaxed) != 0);
                }
            }
        });
        flag.store(1, Ordering::Relaxed);
        assert_ne!(sleep.notify(), Wake::Start, "the only slot is taken");
        worker.join().expect("the worker ends");
    });
}

/// The pushed item is the closed flag, and only a thread that is about to sleep asks for it.
///
/// ```text
///  closer: closed = 1; wake_all      worker: searching; closed? ─ sleep(look at closed) ─ closed must be 1, or a token comes
/// ```
#[test]
fn a_closing_and_a_second_look_cannot_miss_each_other() {
    model_within(2, || {
        let sleep = Arc::new(Sleep::new(1));
        let closed = Arc::new(AtomicUsize::new(0));
        assert_eq!(sleep.notify(), Wake::Start);
        let worker = loom::thread::spawn({
            let (sleep, closed) = (sleep.clone(), closed.clone());
            move || {
                // Relaxed, here and below: the protocol's own order is what is checked.
                while closed.load(Ordering::Relaxed) == 0 {
                    sleep.sleep(|| closed.load(Ordering::Relaxed) != 0);
                }
            }
        });
        closed.store(1, Ordering::Relaxed);
        sleep.wake_all();
        worker.join().expect("the worker ends");
    });
}

/// One searcher has a batch on the way to its deque, which no other can see, when it finds its item.
///
/// ```text
///  one searcher:   deque = 1; found ─┬─ the last of them to leave looks, and sees the deque
///  other searcher:            found ─┘
/// ```
#[test]
fn the_last_searcher_sees_what_those_before_it_had_in_hand() {
    model_within(2, || {
        let sleep = Arc::new(Sleep::new(2));
        let deque = Arc::new(AtomicUsize::new(0));
        assert_eq!(sleep.notify(), Wake::Start);
        assert!(sleep.occupy());
        sleep.start_searching();
        let looks = |sleep: &Sleep, deque: &AtomicUsize| {
            let mut saw = None;
            let wake = sleep.found(|| {
                // Relaxed, here and below: as above.
                saw = Some(deque.load(Ordering::Relaxed));
                false
            });
            assert_eq!(wake, Wake::Nobody);
            assert_ne!(saw, Some(0), "what the other had in hand is forgotten");
            saw.is_some()
        };
        let other = loom::thread::spawn({
            let (sleep, deque) = (sleep.clone(), deque.clone());
            move || looks(&sleep, &deque)
        });
        deque.store(1, Ordering::Relaxed);
        let here = looks(&sleep, &deque);
        let there = other.join().expect("the other searcher ends");
        assert!(here != there, "the last one looks, and no other");
    });
}
