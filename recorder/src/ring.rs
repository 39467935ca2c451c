//! A ring: the newest notes of one thread, read by others that never stop it.
//!
//! ```text
//!  writer, note p                              reader, from note f
//!    words of slot p mod size: Release           head: Acquire                        ── h
//!    head = p + 1: Release                       words of max(f, h - size + 1) .. h: Acquire
//!                                                head again                           ── now
//!                                                keep p with now < p + size
//! ```
//!
//! Why it suffices. Note `p` is whole for a reader that found a head above `p`. Its slot is written next for note `p + size`, when the head is
//! `p + size`. A reader that saw a word of that write has acquired it, and so the head before it: its second look finds at least `p + size`,
//! and the note does not count. The slot of note `h - size` may be in writing, so it never counts.
//!
//! **Architecture Invariant:** a writer never waits, and a reader never gives out words of two notes as one.

use std::io;
use std::ops::Range;

use crate::note::NOTE_WORDS;
use crate::sync::{AtomicU64, Ordering, weakened};

/// Where the words of a recording are read: memory of this process, or a file.
pub(crate) trait Words {
    /// Reads one word.
    fn word(&self, at: usize) -> io::Result<u64>;

    /// Reads several, in any order.
    fn copy(&self, at: usize, into: &mut [u64]) -> io::Result<()>;
}

/// Where a ring stands in its recording's words, and how many notes it takes: a power of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// The word that counts the notes which were written.
    pub(crate) head: usize,
    /// The first word of the slots.
    pub(crate) slots: usize,
    /// How many slots.
    pub(crate) size: u64,
}

/// The one thread that writes into a ring, with the number of its next note.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    ring: Ring,
    next: u64,
}

impl Writer {
    /// Goes on behind the notes that a ring has. Its thread before has ended.
    pub(crate) fn of(ring: Ring, words: &[AtomicU64]) -> Self {
        // Relaxed: the system ordered what a thread did before its end.
        Self { ring, next: words[ring.head].load(Ordering::Relaxed) }
    }

    /// The number of the next note.
    pub(crate) fn next(self) -> u64 {
        self.next
    }

    /// Writes a note. The head is not read for that: a model follows one access of a thread to a word, and forgets those before it.
    #[inline]
    pub(crate) fn push(&mut self, words: &[AtomicU64], note: [u64; NOTE_WORDS]) {
        let Ring { head, .. } = self.ring;
        if weakened("recorder::publishes_first") {
            // ordering[ring-head]: Release. See below.
            words[head].store(self.next + 1, Ordering::Release);
        }
        let begin = self.ring.slot(self.next);
        for (word, value) in words[begin..begin + NOTE_WORDS].iter().zip(note) {
            let order = if weakened("recorder::overwrites_unordered") {
                // Relaxed in the one run of the model that must fail.
                Ordering::Relaxed
            } else {
                // ordering[ring-slot]: Release. Pairs with the Acquire in `copy`; a reader of this word sees in its second look that
                // the slot was being overwritten.
                Ordering::Release
            };
            word.store(value, order);
        }
        self.next += 1;
        // ordering[ring-head]: Release. Pairs with the Acquire in `word`; a reader of this head sees whole notes below it.
        words[head].store(self.next, Ordering::Release);
    }
}

impl Ring {
    /// Reads the notes from position `from` on into `notes`. Gives their positions; those between `from` and the first are lost.
    pub(crate) fn read(
        self,
        words: &(impl Words + ?Sized),
        from: u64,
        notes: &mut Vec<[u64; NOTE_WORDS]>,
    ) -> io::Result<Range<u64>> {
        let begin = notes.len();
        let head = words.word(self.head)?;
        // A foreign file may say anything.
        let from = from.min(head);
        let first = from.max(head.saturating_sub(self.size - 1));
        notes.resize(begin + (head - first) as usize, [0; NOTE_WORDS]);
        let lap_end = (first | (self.size - 1)).saturating_add(1).min(head);
        let (before, after) =
            notes[begin..].as_flattened_mut().split_at_mut((lap_end - first) as usize * NOTE_WORDS);
        words.copy(self.slot(first), before)?;
        words.copy(self.slot(lap_end), after)?;
        let mut now = words.word(self.head)?;
        if weakened("recorder::looks_once") {
            now = head;
        }
        if weakened("recorder::takes_the_slot_in_writing") {
            now = now.saturating_sub(1);
        }
        let whole = now.saturating_add(1).saturating_sub(self.size).clamp(first, head);
        notes.drain(begin..begin + (whole - first) as usize);
        Ok(whole..head)
    }

    #[inline]
    fn slot(self, position: u64) -> usize {
        self.slots + (position & (self.size - 1)) as usize * NOTE_WORDS
    }
}

impl Words for [AtomicU64] {
    fn word(&self, at: usize) -> io::Result<u64> {
        // ordering[ring-head]: Acquire. Pairs with the Release in `Writer::push`. Model: loom-tests/tests/models/recorder.rs.
        self.get(at).map(|word| word.load(Ordering::Acquire)).ok_or_else(outside)
    }

    fn copy(&self, at: usize, into: &mut [u64]) -> io::Result<()> {
        let words = self.get(at..at + into.len()).ok_or_else(outside)?;
        for (value, word) in into.iter_mut().zip(words) {
            // ordering[ring-slot]: Acquire. Pairs with the Release in `Writer::push`, so that the second look comes after.
            *value = word.load(Ordering::Acquire);
        }
        Ok(())
    }
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a place outside of the recording")
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;

    const RING: Ring = Ring { head: 0, slots: 1, size: 4 };

    fn words() -> Vec<AtomicU64> {
        (0..1 + 4 * NOTE_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn push(words: &[AtomicU64], notes: Range<u64>) {
        let mut writer = Writer::of(RING, words);
        notes.for_each(|note| writer.push(words, [note; NOTE_WORDS]));
    }

    fn read(words: &[AtomicU64], from: u64) -> (Range<u64>, Vec<u64>) {
        let mut notes = Vec::new();
        let positions = RING.read(words, from, &mut notes).unwrap();
        (positions, notes.iter().map(|note| note[0]).collect())
    }

    #[test]
    fn notes_come_in_the_order_in_which_they_went() {
        let words = words();
        push(&words, 0..2);
        assert_eq!(read(&words, 0), (0..2, vec![0, 1]));
        push(&words, 2..5);
        assert_eq!(read(&words, 2), (2..5, vec![2, 3, 4]));
        assert_eq!(read(&words, 5), (5..5, vec![]));
    }

    #[test]
    fn the_oldest_slot_never_counts_since_it_may_be_in_writing() {
        let words = words();
        push(&words, 0..4);
        assert_eq!(read(&words, 0), (1..4, vec![1, 2, 3]));
        push(&words, 4..11);
        assert_eq!(read(&words, 4), (8..11, vec![8, 9, 10]));
    }

    #[test]
    fn a_position_beyond_the_head_is_that_of_the_head() {
        let words = words();
        push(&words, 0..2);
        assert_eq!(read(&words, 100), (2..2, vec![]));
    }
}
