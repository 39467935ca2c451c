//! Where everything stands in the words of a recording, in memory and in a file.
//!
//! ```text
//!  word          what
//!  0             "URUKREC1"
//!  1             the process
//!  2             ticks when the recording began
//!  3             nanoseconds since 1970 at that moment
//!  4             nanoseconds a tick, as first measured, times 2^32
//!  5             notes a ring takes: a power of two, at most 2^20
//!  6             rings, at most 4096
//!  7             words for names
//!  8             units of names that were given out
//!  9             numbers of threads that were given out
//!  10            notes that had no ring
//!  64            rings: 16 words each
//!                  0  the thread that has it, by the system's number; 0 is none
//!                  1  that thread's `ThreadId`
//!                  2  that thread's first note
//!                  3  notes that were written
//!                  4  that thread's name
//!  64 + 16 r     names, see `names.rs`
//!  then          slots: 4 words a note, see `note.rs`
//! ```
//!
//! All words are little-endian. Words that are not listed are 0.

use crate::names::Names;
use crate::note::NOTE_WORDS;
use crate::ring::{Ring, Words};

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"URUKREC1");
pub(crate) const PROCESS: usize = 1;
pub(crate) const START_TICKS: usize = 2;
pub(crate) const START_WALL: usize = 3;
pub(crate) const RATE: usize = 4;
pub(crate) const RING_NOTES: usize = 5;
pub(crate) const RINGS: usize = 6;
pub(crate) const NAME_WORDS: usize = 7;
const NAMES_USED: usize = 8;
pub(crate) const THREADS: usize = 9;
pub(crate) const REFUSED: usize = 10;

const HEADER: usize = 64;
/// The words of a ring's head: two cache lines, so that writers do not meet.
const RING_HEAD: usize = 16;
const OWNER: usize = 0;
const THREAD: usize = 1;
const SINCE: usize = 2;
const COUNT: usize = 3;
const THREAD_NAME: usize = 4;

pub(crate) const RING_NOTES_MAX: usize = 1 << 20;
pub(crate) const RINGS_MAX: usize = 1 << 12;
/// Four gigabytes: larger files are none of ours.
const WORDS_MAX: usize = 1 << 29;

/// The sizes from which every place follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) ring_notes: usize,
    pub(crate) rings: usize,
    pub(crate) name_words: usize,
}

/// Where the words about one ring stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingHead {
    pub(crate) owner: usize,
    pub(crate) thread: usize,
    pub(crate) since: usize,
    pub(crate) name: usize,
}

impl Layout {
    /// The sizes in a header, if a recording of `words` words can have them.
    pub(crate) fn of(source: &(impl Words + ?Sized), words: usize) -> Option<Self> {
        let word = |at| usize::try_from(source.word(at).ok()?).ok();
        let (magic, ring_notes, rings) = (source.word(0).ok()?, word(RING_NOTES)?, word(RINGS)?);
        let layout = Self { ring_notes, rings, name_words: word(NAME_WORDS)? };
        (magic == MAGIC && words >= HEADER && layout.is_sound() && layout.words() <= words).then_some(layout)
    }

    /// Whether the sizes are within their limits.
    pub(crate) fn is_sound(self) -> bool {
        self.ring_notes.is_power_of_two()
            && (2..=RING_NOTES_MAX).contains(&self.ring_notes)
            && (1..=RINGS_MAX).contains(&self.rings)
            && self.name_words <= WORDS_MAX
            && self.words() <= WORDS_MAX
    }

    pub(crate) fn words(self) -> usize {
        self.slots() + self.rings * self.ring_words()
    }

    /// The first word of the slots.
    pub(crate) fn slots(self) -> usize {
        HEADER + self.rings * RING_HEAD + self.name_words
    }

    pub(crate) fn ring_words(self) -> usize {
        self.ring_notes * NOTE_WORDS
    }

    #[inline]
    pub(crate) fn ring(self, index: usize) -> Ring {
        Ring {
            head: HEADER + index * RING_HEAD + COUNT,
            slots: self.slots() + index * self.ring_words(),
            size: self.ring_notes as u64,
        }
    }

    pub(crate) fn ring_head(self, index: usize) -> RingHead {
        let begin = HEADER + index * RING_HEAD;
        RingHead {
            owner: begin + OWNER,
            thread: begin + THREAD,
            since: begin + SINCE,
            name: begin + THREAD_NAME,
        }
    }

    pub(crate) fn names(self) -> Names {
        Names { used: NAMES_USED, begin: HEADER + self.rings * RING_HEAD, size: self.name_words }
    }
}
