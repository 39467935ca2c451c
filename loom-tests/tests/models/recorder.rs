//! Recorder: a thread writes notes into its ring while another reads them, and a text gets its number.
//!
//! ```text
//!  writer                                        reader
//!    words of the slot ─ head                      head ─ words ─ head again: keep what was not overwritten
//!  a thread that knows the text                  another
//!    text ─ number in its cell                     number in the cell ─ text
//!  a thread without a ring                       another
//!    owner: 0 becomes the thread                   owner: 0 becomes the thread
//! ```
//!
//! Rings have two slots, so that each note overwrites another. Loom follows the last access to a word alone: the writer does not read its head.
//!
//! Proven, in every order with at most three preemptions: a reader gets whole notes, each once, and those that it misses are counted; a
//! number comes after its text; a ring has one thread.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `recorder::publishes_first`: a note counts before it is written | `recorder/src/ring.rs` | `a_reader_gets_whole_notes_while_they_are_overwritten` |
//! | `recorder::looks_once`: the reader does not look whether notes were overwritten | `recorder/src/ring.rs` | `a_reader_gets_whole_notes_while_they_are_overwritten` |
//! | `recorder::takes_the_slot_in_writing`: a note counts whose slot may be in writing | `recorder/src/ring.rs` | `a_reader_gets_whole_notes_while_they_are_overwritten` |
//! | `recorder::overwrites_unordered`: a reader may see words of the next lap and not that it began | `recorder/src/ring.rs` | `a_reader_gets_whole_notes_while_they_are_overwritten` |
//! | `recorder::name_unordered`: a number may be seen ahead of its text | `recorder/src/names.rs` | `a_number_comes_after_its_text` |
//! | `recorder::takes_what_was_taken`: a ring is taken without an exchange | `recorder/src/area.rs` | `a_ring_has_one_thread` |

use loom_tests::stage::model_within;
use uruk_core::sync::{Arc, thread};
use uruk_recorder::NameCell;
use uruk_recorder::parts::SmallArea;

const PREEMPTIONS: usize = 3;

/// ```text
///  main: read ─ read                     writer: notes 1, 2, 3, 4
/// ```
#[test]
fn a_reader_gets_whole_notes_while_they_are_overwritten() {
    model_within(PREEMPTIONS, || {
        let area = Arc::new(SmallArea::new(1, 2));
        let writer = thread::spawn({
            let area = area.clone();
            move || area.write(4)
        });
        let mut next = 0;
        for _ in 0..2 {
            let (first, notes) = area.read(next);
            assert!(first >= next);
            for (note, value) in notes.iter().zip(first + 1..) {
                assert_eq!(*note, [value; 4]);
            }
            next = first + notes.len() as u64;
        }
        writer.join().expect("no panic");
    });
}

/// ```text
///  main: name ─ read its text            another: the same
/// ```
#[test]
fn a_number_comes_after_its_text() {
    model_within(PREEMPTIONS, || {
        let (area, cell) = (Arc::new(SmallArea::new(1, 2)), Arc::new(NameCell::new()));
        let text_of = |area: &SmallArea, cell: &NameCell| area.text(area.name(cell, "unit"));
        let other = thread::spawn({
            let (area, cell) = (area.clone(), cell.clone());
            move || assert_eq!(text_of(&area, &cell), "unit")
        });
        assert_eq!(text_of(&area, &cell), "unit");
        other.join().expect("no panic");
    });
}

/// ```text
///  main: take                            another: take
/// ```
#[test]
fn a_ring_has_one_thread() {
    model_within(PREEMPTIONS, || {
        let area = Arc::new(SmallArea::new(2, 8));
        let other = thread::spawn({
            let area = area.clone();
            move || area.find_ring(2).expect("there are two")
        });
        let ring = area.find_ring(1).expect("there are two");
        assert_ne!(ring, other.join().expect("no panic"));
    });
}

loom_tests::catches_its_weakenings!();
