//! The string pool: the last handle of a name goes while another thread interns the same text.
//!
//! ```text
//!  leaver                          comer
//!  name = intern("f")
//!  drop(name)   count: pool only
//!  sweep: lock ─ dead? ─ remove    intern("f"): lock ─ find ─ count it ─ unlock
//! ```
//!
//! Proven, in every order of the locks: all threads that hold the text "f" at one moment hold one name, with that text; a sweep
//! takes only names without a handle, and one after the last handle takes them all. Counts change outside the locks, but the
//! deciding reads are under them (`core/src/symbol/name.rs`, "Why sweeping the dead cannot race"). A text is freed once, after
//! all reads of it (`core/src/symbol/text.rs`).
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `symbol_name::found_and_taken_in_two_steps`: the lock is let go between finding a name and counting the new handle | `core/src/symbol/name.rs` | `a_name_found_is_not_swept_before_it_is_counted` |
//! | `symbol_name::found_and_taken_in_two_steps`: the same, where a second handle is taken | `core/src/symbol/name.rs` | `a_sweep_spares_what_was_interned_meanwhile` |
//! | `symbol_name::found_and_taken_in_two_steps`: the same, where both intern | `core/src/symbol/name.rs` | `two_threads_that_hold_one_text_hold_one_name` |
//! | `symbol_name::leaves_unordered`: a handle is let go without Release | `core/src/symbol/text.rs` | `what_was_read_of_a_name_comes_before_it_is_freed` |
//! | `symbol_name::frees_unordered`: the last handle frees without Acquire | `core/src/symbol/text.rs` | `what_was_read_of_a_name_comes_before_it_is_freed` |
//! | `symbol_name::frees_unordered`: the same, of a sweep | `core/src/symbol/text.rs` | `a_name_is_swept_behind_what_was_read_of_it` |
#![cfg(uruk_loom)]

use uruk_core::sync::thread;
use uruk_core::{SymbolStringPool, follow_counts};

#[test]
fn a_name_found_is_not_swept_before_it_is_counted() {
    model(|| {
        let pool = SymbolStringPool::new();
        let leaver = thread::spawn({
            let (name, pool) = (pool.intern("f"), pool.clone());
            move || {
                drop(name);
                pool.reclaim();
            }
        });
        let name = pool.intern("f");
        assert_eq!(name.as_str(), "f");
        leaver.join().expect("the leaver ends");
        assert_eq!(pool.get("f"), Some(name));
    });
}

#[test]
fn a_sweep_spares_what_was_interned_meanwhile() {
    model(|| {
        let pool = SymbolStringPool::new();
        drop(pool.intern("f"));
        let sweeper = thread::spawn({
            let pool = pool.clone();
            move || pool.reclaim()
        });
        let first = pool.intern("f");
        let second = pool.intern("f");
        assert_eq!(first, second);
        sweeper.join().expect("the sweeper ends");
        assert_eq!(pool.get("f"), Some(first));
    });
}

#[test]
fn two_threads_that_hold_one_text_hold_one_name() {
    model(|| {
        let pool = SymbolStringPool::new();
        let other = thread::spawn({
            let pool = pool.clone();
            move || {
                drop(pool.intern("f"));
                pool.reclaim();
                pool.intern("f")
            }
        });
        let here = pool.intern("f");
        let there = other.join().expect("the other ends");
        assert_eq!(here, there);
        drop((here, there));
        assert_eq!(pool.reclaim(), 1);
        assert!(pool.is_empty());
    });
}

#[test]
fn what_was_read_of_a_name_comes_before_it_is_freed() {
    model(|| {
        let pool = SymbolStringPool::new();
        let name = pool.intern("f");
        let reader = thread::spawn({
            let name = name.clone();
            move || assert_eq!(name.as_str(), "f")
        });
        // The last to drop it frees it: the pool, this thread or the reader.
        drop(pool);
        drop(name);
        reader.join().expect("the reader ends");
    });
}

#[test]
fn a_name_is_swept_behind_what_was_read_of_it() {
    model(|| {
        let pool = SymbolStringPool::new();
        let reader = thread::spawn({
            let name = pool.intern("f");
            move || assert_eq!(name.clone().as_str(), "f")
        });
        let swept = pool.reclaim();
        assert_eq!(pool.len(), 1 - swept);
        reader.join().expect("the reader ends");
        assert_eq!(pool.reclaim(), 1 - swept);
    });
}

/// Counts are part of these models, if of no others.
fn model(run: impl Fn() + Sync + Send + 'static) {
    follow_counts();
    loom::model(run);
}

loom_tests::catches_its_weakenings!();
