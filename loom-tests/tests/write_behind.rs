//! Write behind: entries are pushed to a queue, and a thread writes them, while another thread flushes, and while the first
//! retires.
//!
//! ```text
//!  push                           flush, retire                         the thread
//!    lock: queue it                 lock: all written? else wait,         lock: retiring? end
//!    a thread? notify                 or write if there is no thread      nothing queued? wait
//!    else, if it is much, flush     lock: retiring ─ notify ─ join        take what there is ─ write it
//!                                   lock: retired ─ notify ─ flush        lock: nothing is being written ─ notify
//! ```
//!
//! The model runs the pipeline's own file, with numbers for entries.
//!
//! Proven, in every order with at most three preemptions: an entry pushed before a flush is written when that returns; an entry
//! pushed beside a retirement is written once, by the thread, its retirer or a flusher; the thread ends.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `write_behind::flushes_what_was_taken`: a flush looks whether the queue is empty, and not whether the thread writes | `pipeline/src/cache/write_behind.rs` | `what_was_pushed_is_written_when_a_flush_returns` |
//! | `write_behind::flushes_beside_another`: a caller that writes because there is no thread does not say so | `pipeline/src/cache/write_behind.rs` | `what_is_pushed_after_a_retirement_is_written_by_who_flushes` |
//! | `write_behind::ends_while_it_retires`: the thread ends only if it finds a caller waiting for it | `pipeline/src/cache/write_behind.rs` | `who_retires_beside_another_returns_too` |
//! | `write_behind::leaves_what_is_queued`: the caller that has ended the thread does not look at the queue | `pipeline/src/cache/write_behind.rs` | `what_is_pushed_beside_a_retirement_is_written` |
//! | `write_behind::retires_unheard`: the thread is not told that it has retired | `pipeline/src/cache/write_behind.rs` | `what_is_pushed_beside_a_retirement_is_written` |
//!
//! The first four need an order of two threads: one is between its lock and its write, or has not run yet.
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

/// A queue, and the written entries.
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

/// Pushes 1 here and 2 on another thread. Entry 1 is written when `written_by` returns, both are in the end.
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

/// ```text
///  main: retire ─ push 1 ─ flush          another: push 2 ─ flush
/// ```
#[test]
fn what_is_pushed_after_a_retirement_is_written_by_who_flushes() {
    model_within(PREEMPTIONS, || {
        let (queue, written) = queue();
        queue.retire();
        let push_and_flush = |queue: &WriteBehind<Entry>, written: &Written, entry| {
            queue.push(Entry(entry));
            queue.flush();
            assert!(written.lock().contains(&entry), "it was pushed before");
        };
        let other = thread::spawn({
            let (queue, written) = (queue.clone(), written.clone());
            move || push_and_flush(&queue, &written, 2)
        });
        push_and_flush(&queue, &written, 1);
        other.join().expect("no panic");
        assert_eq!(sorted(&written), [1, 2]);
    });
}

/// ```text
///  main: push 1 ─ retire                  another: retire
/// ```
#[test]
fn who_retires_beside_another_returns_too() {
    model_within(PREEMPTIONS, || {
        let (queue, written) = queue();
        queue.push(Entry(1));
        let other = thread::spawn({
            let queue = queue.clone();
            move || queue.retire()
        });
        queue.retire();
        other.join().expect("no panic");
        assert_eq!(sorted(&written), [1]);
    });
}

loom_tests::catches_its_weakenings!();
