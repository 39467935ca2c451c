//! Unwind index: exceptions look for the object of an address without a lock, while others register objects and remove them.
//!
//! ```text
//!  reader                                         writer, under its lock
//!    own count += 1                                 leaf or top = another
//!    fence(SeqCst)                                  fence(SeqCst)
//!    top ─ leaf ─ entry                             a count that is zero: its readers have left
//!    own count -= 1                                 all have been zero: free what was unlinked before
//! ```
//!
//! The model runs the pipeline's own file, with two stripes, leaves of two entries, and batches of one piece. Freed memory
//! stays where it is, so a read that comes too late is noticed.
//!
//! Proven, in every order with at most four preemptions (two with three threads): an entry that stays is found while others
//! come and go; nothing is read before it was written or after it was freed; unlinked memory is freed in the end.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `unwind_index::enters_without_fence`: a reader may enter unlinked memory, unseen by the thread that unlinked it | `pipeline/src/runtime/unwind/index.rs` | `what_was_unlinked_is_freed_when_its_readers_have_left` |
//! | `unwind_index::leaves_unordered`: memory may be freed ahead of its readers' reads | `pipeline/src/runtime/unwind/index.rs` | `what_was_unlinked_is_freed_when_its_readers_have_left` |
//! | `unwind_index::frees_beneath_readers`: what was unlinked is freed without a look at the counts | `pipeline/src/runtime/unwind/index.rs` | `what_was_unlinked_is_freed_when_its_readers_have_left` |
//! | `unwind_index::replaces_unordered`: a leaf may be seen ahead of its entries | `pipeline/src/runtime/unwind/index.rs` | `what_stays_is_found_while_its_neighbours_come_and_go` |
//! | `unwind_index::publishes_unordered`: a top may be seen ahead of its leaves | `pipeline/src/runtime/unwind/index.rs` | `what_stays_is_found_while_leaves_split_and_empty` |
//! | `unwind_index::frees_beneath_readers`: the same, with a reader on each stripe | `pipeline/src/runtime/unwind/index.rs` | `readers_of_two_stripes_are_both_waited_for` |
#![cfg(uruk_loom)]

#[path = "../../pipeline/src/runtime/unwind/index.rs"]
mod index;

use index::{UnwindEntry, UnwindIndex};
use loom_tests::stage::model_within;
use uruk_core::sync::{Arc, thread};

const PREEMPTIONS: usize = 4;

/// An index with the entries of these numbers.
fn with(numbers: &[u64]) -> Arc<UnwindIndex> {
    let index = Arc::new(UnwindIndex::new());
    for &number in numbers {
        index.insert(entry(number)).expect("they lie apart");
    }
    index
}

fn entry(number: u64) -> UnwindEntry {
    UnwindEntry { start: number * 16, end: number * 16 + 8, eh_frame_hdr: number }
}

fn find(index: &UnwindIndex, number: u64) -> Option<u64> {
    index.find(number * 16 + 4).map(|entry| entry.eh_frame_hdr)
}

/// ```text
///  main: is 1 there? is 2?                        writer: remove 2 ─ insert 3
/// ```
#[test]
fn what_stays_is_found_while_its_neighbours_come_and_go() {
    model_within(PREEMPTIONS, || {
        let index = with(&[1, 2]);
        let writer = thread::spawn({
            let index = index.clone();
            move || {
                assert!(index.remove(entry(2).start));
                index.insert(entry(3)).expect("there is room");
            }
        });
        assert_eq!(find(&index, 1), Some(1));
        let found = find(&index, 2);
        assert!(found.is_none() || found == Some(2), "found {found:?}");
        writer.join().expect("no panic");
        assert_eq!([1, 2, 3].map(|number| find(&index, number)), [Some(1), None, Some(3)]);
        assert_eq!(index.len(), 2);
    });
}

/// ```text
///  main: is 2 there?                              writer: insert 3: the leaf splits ─ remove 1: a leaf empties
/// ```
#[test]
fn what_stays_is_found_while_leaves_split_and_empty() {
    model_within(PREEMPTIONS, || {
        let index = with(&[1, 2]);
        let writer = thread::spawn({
            let index = index.clone();
            move || {
                index.insert(entry(3)).expect("there is room");
                assert!(index.remove(entry(1).start));
            }
        });
        assert_eq!(find(&index, 2), Some(2));
        writer.join().expect("no panic");
        assert_eq!([1, 2, 3].map(|number| find(&index, number)), [None, Some(2), Some(3)]);
    });
}

/// ```text
///  main: is 1 there?                              writer: remove 2, which frees what went before, and again
/// ```
#[test]
fn what_was_unlinked_is_freed_when_its_readers_have_left() {
    model_within(PREEMPTIONS, || {
        let index = with(&[1]);
        let writer = thread::spawn({
            let index = index.clone();
            move || {
                index.insert(entry(2)).expect("there is room");
                assert!(index.remove(entry(2).start));
            }
        });
        assert_eq!(find(&index, 1), Some(1));
        writer.join().expect("no panic");
        // No reader is inside any more: two changes free all memory that was unlinked before them.
        index.insert(entry(4)).expect("there is room");
        index.insert(entry(5)).expect("there is room");
        assert!(index.unfreed() <= 1, "{} pieces are kept", index.unfreed());
    });
}

/// ```text
///  main: insert 2 ─ remove 2         reader: is 1 there?         reader: is 1 there?
/// ```
#[test]
fn readers_of_two_stripes_are_both_waited_for() {
    model_within(2, || {
        let index = with(&[1]);
        let readers = [(); 2].map(|()| {
            let index = index.clone();
            thread::spawn(move || find(&index, 1))
        });
        index.insert(entry(2)).expect("there is room");
        assert!(index.remove(entry(2).start));
        assert_eq!(readers.map(|reader| reader.join().expect("no panic")), [Some(1); 2]);
    });
}

loom_tests::catches_its_weakenings!();
