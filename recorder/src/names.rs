//! Names: texts that notes have as numbers, written once and never moved.
//!
//! ```text
//!  unit of 8 bytes   n               n + 1 ...
//!                    length, bytes   text, padded with zeros
//! ```
//!
//! The number of a name is the unit where it stands, so a reader of a file needs no table. A text may stand there twice: a [`NameCell`]
//! beside the text keeps its number, and is what saves the second time.

use std::io;

use crate::ring::Words;
use crate::sync::{AtomicU32, AtomicU64, Ordering, weakened};

/// The longest name in bytes; the rest of a longer one is cut off.
pub(crate) const NAME_BYTES_MAX: usize = 1024;

/// The number of a text in a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(u32);

impl Name {
    /// No name.
    pub const NONE: Self = Self(0);

    /// A name by the number that [`number`](Self::number) gave.
    pub const fn of_number(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Keeps the number of one text, so that it is written once. Stands beside the text.
#[derive(Debug)]
pub struct NameCell(AtomicU32);

impl NameCell {
    /// With a text that was not written yet.
    #[cfg(not(uruk_loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// With a text that was not written yet.
    #[cfg(uruk_loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The name of the text, which `write` writes if no thread has yet. Two threads may write it at the same time.
    #[inline]
    pub(crate) fn get_or(&self, write: impl FnOnce() -> Name) -> Name {
        let known = self.get();
        if known != Name::NONE {
            return known;
        }
        let name = write();
        self.set(name);
        name
    }

    #[inline]
    fn get(&self) -> Name {
        // ordering[recorder-name]: Acquire. Pairs with the Release in `set`; a note with this number comes after its text.
        // Model: loom-tests/tests/models/recorder.rs.
        Name(self.0.load(Ordering::Acquire))
    }

    fn set(&self, name: Name) {
        let order = if weakened("recorder::name_unordered") {
            // Relaxed in the one run of the model that must fail.
            Ordering::Relaxed
        } else {
            // ordering[recorder-name]: Release. Pairs with the Acquire in `get`.
            Ordering::Release
        };
        self.0.store(name.0, order);
    }
}

impl Default for NameCell {
    fn default() -> Self {
        Self::new()
    }
}

/// The texts of a recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    /// The word that counts the units which were given out.
    pub(crate) used: usize,
    /// The first word of the texts. Its unit is no name: number 0 is none.
    pub(crate) begin: usize,
    /// How many words.
    pub(crate) size: usize,
}

impl Names {
    /// Writes a text. None if there is no room, or if `has_place` says so of the units below a number.
    pub(crate) fn write(self, words: &[AtomicU64], has_place: impl FnOnce(u64) -> bool, text: &str) -> Name {
        let bytes = &text.as_bytes()[..text.floor_char_boundary(NAME_BYTES_MAX)];
        let count = 1 + bytes.len().div_ceil(8);
        // Relaxed: the units are this thread's alone; no reader looks before a note has the number.
        let unit = 1 + words[self.used].fetch_add(count as u64, Ordering::Relaxed);
        let Some(end) = unit.checked_add(count as u64).filter(|&end| end <= self.size as u64) else {
            return Name::NONE;
        };
        let Ok(number) = u32::try_from(unit) else { return Name::NONE };
        if !has_place(end) {
            return Name::NONE;
        }
        let mut places = words[self.begin + unit as usize..self.begin + end as usize].iter();
        let values = std::iter::once(bytes.len() as u64).chain(text_words(bytes));
        for (place, value) in places.by_ref().zip(values) {
            // Relaxed: published by the head of the ring whose note has the number, or by a `NameCell` before that.
            place.store(value, Ordering::Relaxed);
        }
        Name(number)
    }

    /// Whether a name is that of the text.
    fn is(self, words: &[AtomicU64], name: Name, text: &[u8]) -> bool {
        let begin = self.begin + name.0 as usize;
        let Some(written) = words.get(begin..begin + 1 + text.len().div_ceil(8)) else { return false };
        // Relaxed: this thread has acquired the number of the text, in `KnownNames`.
        let mut written = written.iter().map(|word| word.load(Ordering::Relaxed));
        written.next() == Some(text.len() as u64) && written.eq(text_words(text))
    }

    /// Reads a text, whose number may come from a foreign file.
    pub(crate) fn read(self, words: &(impl Words + ?Sized), name: Name) -> io::Result<Option<String>> {
        let unit = name.0 as usize;
        if name == Name::NONE || unit >= self.size {
            return Ok(None);
        }
        let length = words.word(self.begin + unit)?;
        let Some(length) = usize::try_from(length).ok().filter(|&length| length <= NAME_BYTES_MAX) else {
            return Ok(None);
        };
        let mut text = vec![0; length.div_ceil(8)];
        if unit + 1 + text.len() > self.size {
            return Ok(None);
        }
        words.copy(self.begin + unit + 1, &mut text)?;
        let bytes: Vec<u8> = text.into_iter().flat_map(u64::to_le_bytes).take(length).collect();
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

fn text_words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    })
}

/// Remembers the numbers of texts that were written, as many as there is room for: a text that meets another in its place is written again.
#[derive(Debug)]
pub(crate) struct KnownNames(Box<[NameCell]>);

impl KnownNames {
    /// With room for so many: a power of two.
    pub(crate) fn new(room: usize) -> Self {
        Self((0..room).map(|_| NameCell::new()).collect())
    }

    /// The name of a text, which `write` writes unless it is known.
    pub(crate) fn name(
        &self,
        names: Names,
        words: &[AtomicU64],
        text: &str,
        write: impl FnOnce() -> Name,
    ) -> Name {
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let bytes = &text.as_bytes()[..text.floor_char_boundary(NAME_BYTES_MAX)];
        let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER);
        let place = text_words(bytes).fold(bytes.len() as u64, mix) >> (u64::BITS - self.0.len().ilog2());
        let cell = &self.0[place as usize];
        let known = cell.get();
        if known != Name::NONE && names.is(words, known, bytes) {
            return known;
        }
        let name = write();
        if name != Name::NONE {
            cell.set(name);
        }
        name
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;

    const NAMES: Names = Names { used: 0, begin: 1, size: 8 };

    fn words() -> Vec<AtomicU64> {
        (0..9).map(|_| AtomicU64::new(0)).collect()
    }

    fn read(words: &[AtomicU64], name: Name) -> Option<String> {
        NAMES.read(words, name).unwrap()
    }

    #[test]
    fn texts_come_back_until_there_is_no_room() {
        let words = words();
        let first = NAMES.write(&words, |_| true, "eight by");
        let second = NAMES.write(&words, |_| true, "nine byte");
        assert_eq!(read(&words, first).as_deref(), Some("eight by"));
        assert_eq!(read(&words, second).as_deref(), Some("nine byte"));
        let none = NAMES.write(&words, |_| true, "more than is left");
        assert_eq!((none, read(&words, none)), (Name::NONE, None));
    }

    #[test]
    fn a_text_that_has_no_place_in_the_file_is_none() {
        let words = words();
        let write = |text, place: u64| NAMES.write(&words, |end| end <= place, text);
        assert_eq!((write("one", 2), write("two", 5)), (Name::NONE, Name::of_number(3)));
        assert_eq!(words[1 + 1].load(Ordering::Relaxed), 0, "not written");
    }

    #[test]
    fn a_long_name_is_cut_where_a_character_ends() {
        let words: Vec<_> = (0..200).map(|_| AtomicU64::new(0)).collect();
        let names = Names { used: 0, begin: 1, size: 199 };
        let name = names.write(&words, |_| true, &"€".repeat(1000));
        let text = names.read(&words[..], name).unwrap().unwrap();
        assert_eq!(text, "€".repeat(NAME_BYTES_MAX / 3));
    }

    #[test]
    fn numbers_and_lengths_of_foreign_files_lead_nowhere() {
        let words = words();
        words[1 + 1].store(u64::MAX, Ordering::Relaxed);
        words[1 + 7].store(64, Ordering::Relaxed);
        for number in [1, 7, 8, u32::MAX] {
            assert_eq!(read(&words, Name::of_number(number)), None, "{number}");
        }
    }

    #[test]
    fn a_text_that_is_known_is_written_once() {
        let words: Vec<_> = (0..200).map(|_| AtomicU64::new(0)).collect();
        let (names, known) = (Names { used: 0, begin: 1, size: 199 }, KnownNames::new(64));
        let texts = ["ir.optimize", "", "main", "a name of thirty characters ..."];
        let name = |text: &str| known.name(names, &words, text, || names.write(&words, |_| true, text));
        let first = texts.map(name);
        assert_eq!(texts.map(name), first);
        assert_eq!(first.map(|name| names.read(&words[..], name).unwrap().unwrap()), texts);
    }

    #[test]
    fn a_cell_writes_its_text_once() {
        let words = words();
        let cell = NameCell::new();
        let names = [(); 2].map(|()| cell.get_or(|| NAMES.write(&words, |_| true, "once")));
        assert_eq!(names, [Name::of_number(1); 2]);
    }
}
