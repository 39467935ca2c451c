//! A script: a recording that a test writes, with the times and threads it wants.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use crate::area::{Area, Taker};
use crate::layout::Layout;
use crate::names::Name;
use crate::note::{Entry, ThreadId};
use crate::reader::Reader;
use crate::ring::Writer;
use crate::sync::Ordering;

/// Notes with given times, on given threads, for tests of readers.
///
/// ```
/// use uruk_recorder::{Entry, Kind, Script};
///
/// let mut script = Script::new(64, 2);
/// let worker = script.thread("worker");
/// let phase = script.name("ir.optimize");
/// script.note(worker, 10, Entry::new(Kind::PhaseBegun).named(phase));
/// script.note(worker, 25, Entry::new(Kind::PhaseEnded).named(phase));
/// let mut reader = script.reader();
/// let times: Vec<_> = reader.read().notes.iter().map(|(_, note)| note.time).collect();
/// assert_eq!(times, [0, 10, 25]);
/// ```
#[derive(Debug)]
pub struct Script {
    area: Box<Area>,
    writers: HashMap<ThreadId, Writer>,
    names: HashMap<String, Name>,
}

impl Script {
    /// An empty one with room for so many notes a thread, and so many threads.
    ///
    /// # Panics
    /// If these are no sizes of a recording.
    pub fn new(ring_notes: usize, threads: usize) -> Self {
        let layout = Layout { ring_notes, rings: threads, name_words: 1 << 16 };
        assert!(layout.is_sound(), "a power of two of notes, and a thread at least");
        Self { area: Box::new(Area::owned(layout)), writers: HashMap::new(), names: HashMap::new() }
    }

    /// A thread, whose first note says so at time 0.
    ///
    /// # Panics
    /// If there are as many as there is room for.
    pub fn thread(&mut self, name: &str) -> ThreadId {
        let thread = ThreadId(self.writers.len() as u32 + 1);
        let writer = self.area.take_ring(Taker { system: thread.0, name }, 0, |_| true);
        self.writers.insert(thread, writer.expect("there is room for the thread"));
        thread
    }

    /// A name.
    pub fn name(&mut self, text: &str) -> Name {
        *self.names.entry(text.to_owned()).or_insert_with(|| self.area.write_name(text))
    }

    /// Writes a note at a time in nanoseconds.
    ///
    /// # Panics
    /// If the thread is not of this script.
    pub fn note(&mut self, thread: ThreadId, nanos: u64, entry: Entry) {
        let writer = self.writers.get_mut(&thread).expect("the thread is of this script");
        self.area.push(writer, nanos, entry);
    }

    /// Reads it from the oldest note.
    pub fn reader(self) -> Reader {
        Reader::of_script(self.area)
    }

    /// Writes it as a file, for [`Reader::open`].
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut file = io::BufWriter::new(File::create(path)?);
        for word in self.area.words() {
            // Relaxed: this thread wrote all of it.
            file.write_all(&word.load(Ordering::Relaxed).to_le_bytes())?;
        }
        file.flush()
    }
}
