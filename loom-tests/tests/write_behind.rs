//! Write behind: entries are pushed to a queue, and a thread writes them, while somebody flushes, and while the thread retires.
//!
//! ```text
//!  push                           flush, retire                         the thread
//!    lock: retired? write it        lock: all written? else wait          lock: nothing queued? wait, or end
//!    else queue it ─ notify         lock: retired ─ notify ─ join         take what there is ─ write it
//!                                                                         lock: nothing is being written ─ notify
//! ```
//!
//! What runs is the file of the pipeline itself, with numbers for entries.
//!
//! Proven, in every order with at most three preemptions: what was pushed before a flush is written when that returns; what is pushed
//! beside a retirement is written once, by the thread or by who pushes it; the thread ends.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `write_behind::flushes_what_was_taken`: a flush looks whether the queue is empty, and not whether the thread writes | `pipeline/src/cache/write_behind.rs` | `what_was_pushed_is_written_when_a_flush_returns` |
//! | `write_behind::leaves_what_is_queued`: a thread that has retired ends before it looks at the queue | `pipeline/src/cache/write_behind.rs` | `what_is_pushed_beside_a_retirement_is_written` |
//! | `write_behind::retires_unheard`: the thread is not told that it has retired | `pipeline/src/cache/write_behind.rs` | `what_is_pushed_beside_a_retirement_is_written` |
//!
//! The first two need an order of two threads: the thread is between its lock and its write, or has not run yet.
#![cfg(uruk_loom)]

#[path = "../../pipeline/src/cache/write_behind.rs"]
mod write_behind;

use loom_tests::stage::model_within;
use uruk_core::sync::{Arc, Mutex, thread};
use write_behind::{Job, WriteBehind};

const PREEMPTIONS: usize = 3;

struct Entry(u32);

impl Job for Entry {
    fn size_bytes(&self) -> usize {
        1
    }
}

type Written = Arc<Mutex<Vec<u32>>>;

/// A queue, and what was written.
fn queue() -> (Arc<WriteBehind<Entry>>, Written) {
    let written = Written::default();
    let queue = WriteBehind::new({
        let written = written.clone();
        move |entries: Vec<Entry>| written.lock().extend(entries.iter().map(|entry| entry.0))
    });
    (Arc::new(queue), written)
}

fn sorted(written: &Written) -> Vec<u32> {
    let mut written = written.lock().clone();
    written.sort_unstable();
    written
}

/// Pushes 1 here and 2 on another thread. What was pushed here is written when `written_by` returns, both are in the end.
fn push_beside_another(written_by: fn(&WriteBehind<Entry>)) {
    model_within(PREEMPTIONS, move || {
        let (queue, written) = queue();
        let other = thread::spawn({
            let queue = queue.clone();
            move || queue.push(Entry(2))
        });
        queue.push(Entry(1));
        written_by(&queue);
        assert!(written.lock().contains(&1), "it was pushed before");
        other.join().expect("no panic");
        queue.retire();
        assert_eq!(sorted(&written), [1, 2]);
    });
}

/// ```text
///  main: push 1 ─ flush                   another: push 2
/// ```
#[test]
fn what_was_pushed_is_written_when_a_flush_returns() {
    push_beside_another(WriteBehind::flush);
}

/// ```text
///  main: push 1 ─ retire                  another: push 2
/// ```
#[test]
fn what_is_pushed_beside_a_retirement_is_written() {
    push_beside_another(WriteBehind::retire);
}

loom_tests::catches_its_weakenings!();
