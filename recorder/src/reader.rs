//! Readers: the notes since the last time, of all threads, in the order of time.
//!
//! A reader has a place in each ring. It stops no writer, and writers do not know of it: notes that were overwritten before it came are counted
//! as lost.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::area::{Area, thread_at};
use crate::clock::{self, Moment};
use crate::layout::{Layout, PROCESS, RATE, REFUSED, START_TICKS, START_WALL};
use crate::names::Name;
use crate::note::{Kind, Note, ThreadId};
use crate::ring::Words;

/// Reads a recording: this process's, a file's, or a script's.
///
/// # Concurrency
/// Readers do not know of each other. A reader never makes a writer wait.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    layout: Layout,
    places: Vec<Place>,
    /// The newest moment by both clocks.
    newest: Option<Moment>,
    start_ticks: u64,
    first_rate: u64,
    refused: u64,
    threads: HashMap<ThreadId, Name>,
}

/// The notes that came since the last read.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// In the order of time. A note may come one read late if its thread was writing it.
    pub notes: Vec<(ThreadId, Note)>,
    /// How many more there were that this reader cannot have.
    pub lost: u64,
}

/// A file that is no recording, or cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The system cannot read it.
    #[error("the recording cannot be read")]
    Read(#[from] io::Error),
    /// It is something else, or a recording of another version.
    #[error("the file is no recording of this version of Uruk, or has lost its end")]
    NoRecording,
}

#[derive(Debug)]
enum Source {
    Here(&'static Area),
    Script(Box<Area>),
    File(FileWords),
}

/// A place in a ring: the next note, and the thread that writes there.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    next: u64,
    thread: ThreadId,
}

#[derive(Debug)]
struct FileWords(File);

impl Reader {
    /// Reads this process's recording from its oldest note. None if it never began.
    pub fn new() -> Option<Self> {
        let area = crate::recording::area()?;
        Some(Self::of(Source::Here(area), area.layout))
    }

    /// Reads the recording in a file: of a process that runs, or has ended in any way.
    ///
    /// Nothing in the file is trusted: numbers that cannot be are skipped, and the file may change or be cut meanwhile.
    ///
    /// # Errors
    /// If the file cannot be read, or is no recording.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(OpenError::NoRecording);
        }
        let words = usize::try_from(metadata.len() / 8).map_err(|_| OpenError::NoRecording)?;
        let file = FileWords(file);
        let layout = Layout::of(&file, words).ok_or(OpenError::NoRecording)?;
        Ok(Self::of(Source::File(file), layout))
    }

    pub(crate) fn of_script(area: Box<Area>) -> Self {
        let layout = area.layout;
        Self::of(Source::Script(area), layout)
    }

    fn of(source: Source, layout: Layout) -> Self {
        let [start_ticks, first_rate] = [START_TICKS, RATE].map(|at| source.word(at).unwrap_or(0));
        let places = vec![Place::default(); layout.rings];
        let (newest, refused, threads) = (None, 0, HashMap::new());
        Self { source, layout, places, newest, start_ticks, first_rate, refused, threads }
    }

    /// The notes that came since the last read.
    pub fn read(&mut self) -> Batch {
        let mut batch = Batch::default();
        let mut words = Vec::new();
        for ring in 0..self.places.len() {
            // A file that was cut has no more notes there.
            let _ = self.read_ring(ring, &mut words, &mut batch);
        }
        if let Source::Here(area) = &self.source {
            self.newest = Some(area.now());
        }
        let rate = self.newest.and_then(|newest| newest.rate(self.start_ticks)).unwrap_or(self.first_rate);
        for (_, note) in &mut batch.notes {
            note.time = clock::nanos(note.time.saturating_sub(self.start_ticks), rate);
        }
        batch.notes.sort_by_key(|(_, note)| note.time);
        let refused = self.source.word(REFUSED).unwrap_or(self.refused);
        batch.lost = batch.lost.saturating_add(refused.saturating_sub(self.refused));
        self.refused = refused;
        batch
    }

    fn read_ring(&mut self, ring: usize, words: &mut Vec<[u64; 4]>, batch: &mut Batch) -> io::Result<()> {
        words.clear();
        let place = self.places[ring];
        let positions = self.layout.ring(ring).read(&self.source, place.next, words)?;
        let mut thread = place.thread;
        if positions.start != place.next || thread == ThreadId::default() {
            thread = self.thread_of(ring, positions.start)?;
        }
        batch.lost = batch.lost.saturating_add(positions.start.saturating_sub(place.next));
        for note in words.drain(..).filter_map(Note::from_words) {
            match note.kind {
                Kind::Clock => self.tie(Moment { ticks: note.time, nanos: note.a }),
                Kind::ThreadNamed => {
                    thread = ThreadId(note.a as u32);
                    self.threads.insert(thread, note.name);
                    batch.notes.push((thread, note));
                }
                _ => batch.notes.push((thread, note)),
            }
        }
        self.places[ring] = Place { next: positions.end, thread };
        Ok(())
    }

    /// The thread of the note at `position` of a ring, where the note that names it is lost.
    fn thread_of(&mut self, ring: usize, position: u64) -> io::Result<ThreadId> {
        let place = self.layout.ring_head(ring);
        let word = |at| self.source.word(at);
        let thread = thread_at(position, word(place.since)?, word(place.thread)?);
        let name = Name::of_number(word(place.name)? as u32);
        if thread != ThreadId::default() {
            self.threads.insert(thread, name);
        }
        Ok(thread)
    }

    fn tie(&mut self, moment: Moment) {
        if self.newest.is_none_or(|newest| newest.ticks < moment.ticks) {
            self.newest = Some(moment);
        }
    }

    /// The text of a name; empty for none, and for one that a foreign file does not have.
    pub fn name(&self, name: Name) -> String {
        self.layout.names().read(&self.source, name).ok().flatten().unwrap_or_default()
    }

    /// The name of a thread of which notes were read.
    pub fn thread_name(&self, thread: ThreadId) -> String {
        self.threads.get(&thread).map_or_else(String::new, |&name| self.name(name))
    }

    /// The threads of which notes were read.
    pub fn threads(&self) -> HashSet<ThreadId> {
        self.threads.keys().copied().collect()
    }

    /// The process that wrote the recording.
    pub fn process(&self) -> u32 {
        self.source.word(PROCESS).unwrap_or(0) as u32
    }

    /// When the recording began: the zero of its times.
    pub fn began(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.source.word(START_WALL).unwrap_or(0))
    }
}

impl Words for Source {
    fn word(&self, at: usize) -> io::Result<u64> {
        match self {
            Self::Here(area) => area.words().word(at),
            Self::Script(area) => area.words().word(at),
            Self::File(file) => file.word(at),
        }
    }

    fn copy(&self, at: usize, into: &mut [u64]) -> io::Result<()> {
        match self {
            Self::Here(area) => area.words().copy(at, into),
            Self::Script(area) => area.words().copy(at, into),
            Self::File(file) => file.copy(at, into),
        }
    }
}

impl Words for FileWords {
    fn word(&self, at: usize) -> io::Result<u64> {
        let mut word = [0; 8];
        self.0.read_exact_at(&mut word, 8 * at as u64)?;
        Ok(u64::from_le_bytes(word))
    }

    fn copy(&self, at: usize, into: &mut [u64]) -> io::Result<()> {
        let mut bytes = vec![0; 8 * into.len()];
        self.0.read_exact_at(&mut bytes, 8 * at as u64)?;
        for (word, bytes) in into.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok(())
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;
    use crate::{Entry, Script};

    fn mark(number: u64) -> Entry {
        Entry::new(Kind::Mark).with(number, 0)
    }

    /// The marks of a batch: thread, time, number.
    fn marks(batch: &Batch) -> Vec<(u32, u64, u64)> {
        let marks = batch.notes.iter().filter(|(_, note)| note.kind == Kind::Mark);
        marks.map(|(thread, note)| (thread.0, note.time, note.a)).collect()
    }

    /// A path that is free again when this goes.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("uruk-recorder-{}-{name}", std::process::id())))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn notes_of_all_threads_come_in_the_order_of_time() {
        let mut script = Script::new(8, 2);
        let (a, b) = (script.thread("a"), script.thread("b"));
        for (thread, time) in [(a, 5), (a, 30), (b, 10), (b, 20)] {
            script.note(thread, time, mark(time));
        }
        let mut reader = script.reader();
        let batch = reader.read();
        assert_eq!(marks(&batch), [(1, 5, 5), (2, 10, 10), (2, 20, 20), (1, 30, 30)]);
        assert_eq!([a, b].map(|thread| reader.thread_name(thread)), ["a", "b"]);
        assert_eq!((batch.lost, reader.read().notes.len()), (0, 0));
    }

    #[test]
    fn notes_that_were_overwritten_are_counted_and_their_thread_is_known() {
        let mut script = Script::new(8, 1);
        let thread = script.thread("worker");
        (0..20).for_each(|time| script.note(thread, time, mark(time)));
        let mut reader = script.reader();
        let batch = reader.read();
        // One slot of the eight may be in writing. The first note named the thread.
        assert_eq!(marks(&batch), (13..20).map(|time| (1, time, time)).collect::<Vec<_>>());
        assert_eq!((batch.lost, reader.thread_name(thread)), (1 + 13, "worker".to_owned()));
    }

    #[test]
    fn a_file_reads_as_the_script_that_wrote_it() {
        let scratch = Scratch::new("saved");
        let mut script = Script::new(8, 2);
        let thread = script.thread("worker");
        let name = script.name("ir.optimize");
        script.note(thread, 7, mark(1).named(name));
        script.save(&scratch.0).unwrap();
        let mut reader = Reader::open(&scratch.0).unwrap();
        let batch = reader.read();
        assert_eq!(marks(&batch), [(1, 7, 1)]);
        assert_eq!(reader.name(batch.notes[1].1.name), "ir.optimize");
        assert_eq!((reader.process(), reader.thread_name(thread)), (std::process::id(), "worker".to_owned()));
    }

    #[test]
    fn a_file_of_something_else_is_no_recording() {
        let scratch = Scratch::new("foreign");
        let mut script = Script::new(8, 2);
        script.thread("worker");
        script.save(&scratch.0).unwrap();
        let whole = std::fs::read(&scratch.0).unwrap();
        let with = |at: usize, value: u64| {
            let mut bytes = whole.clone();
            bytes[8 * at..8 * at + 8].copy_from_slice(&value.to_le_bytes());
            bytes
        };
        use crate::layout::{NAME_WORDS, RING_NOTES, RINGS};
        let foreign = [
            Vec::new(),
            b"URUKREC1".to_vec(),
            whole[..whole.len() - 8].to_vec(),
            with(0, 0),
            with(RING_NOTES, 0),
            with(RING_NOTES, 7),
            with(RING_NOTES, 1 << 63),
            with(RINGS, 0),
            with(RINGS, u64::MAX),
            with(NAME_WORDS, u64::MAX / 4),
        ];
        for bytes in foreign {
            std::fs::write(&scratch.0, &bytes).unwrap();
            assert!(matches!(Reader::open(&scratch.0), Err(OpenError::NoRecording)), "{} bytes", bytes.len());
        }
        assert!(matches!(Reader::open("/nowhere/at/all"), Err(OpenError::Read(_))));
        assert!(matches!(Reader::open("/dev/null"), Err(OpenError::NoRecording)));
    }

    #[test]
    fn nothing_that_a_foreign_file_says_is_trusted() {
        let scratch = Scratch::new("hostile");
        let mut script = Script::new(8, 2);
        let thread = script.thread("worker");
        script.note(thread, 7, mark(1));
        script.save(&scratch.0).unwrap();
        let whole = std::fs::read(&scratch.0).unwrap();
        // Each word in turn says the worst: counts, times, names, kinds and places alike.
        for word in (0..whole.len() / 8).filter(|word| *word < 200 || word % 4099 == 0) {
            for value in [0, 1, u64::MAX, u64::MAX / 2, 1 << 32] {
                let mut bytes = whole.clone();
                bytes[8 * word..8 * word + 8].copy_from_slice(&value.to_le_bytes());
                std::fs::write(&scratch.0, &bytes).unwrap();
                let Ok(mut reader) = Reader::open(&scratch.0) else { continue };
                for _ in 0..2 {
                    let batch = reader.read();
                    assert!(batch.notes.len() <= 16);
                    batch.notes.iter().for_each(|(thread, note)| {
                        reader.name(note.name);
                        reader.thread_name(*thread);
                    });
                }
            }
        }
    }

    #[test]
    fn a_file_that_is_cut_while_it_is_read_has_no_more_notes() {
        let scratch = Scratch::new("cut");
        let mut script = Script::new(8, 2);
        script.thread("worker");
        script.save(&scratch.0).unwrap();
        let mut reader = Reader::open(&scratch.0).unwrap();
        File::options().write(true).open(&scratch.0).unwrap().set_len(100).unwrap();
        assert_eq!(reader.read().notes, []);
        assert_eq!(reader.name(Name::of_number(1)), "");
    }
}
