//! An area: the words of a recording, the rings that threads take of it, and its names.
//!
//! A ring outlives its thread: the next thread goes on behind its notes. A thread says nothing when it ends, because nothing of it has a
//! destructor. So a new thread takes a ring that no thread ever had, and otherwise one whose thread the system does not know any more.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FallocateFlags, OFlags, fallocate};

use crate::clock::{self, Moment};
use crate::layout::{
    Layout, MAGIC, NAME_WORDS, PROCESS, RATE, REFUSED, RING_NOTES, RINGS, START_TICKS, START_WALL, THREADS,
};
use crate::memory::Memory;
use crate::names::{Name, Names};
use crate::note::{Entry, Kind, ThreadId};
use crate::ring::Writer;
use crate::sync::{AtomicU64, Ordering, weakened};

/// How many notes of a ring lie between two that tie ticks to time: a power of two.
const CLOCK_EVERY: u64 = 1024;

/// So many units of names are reserved in a file at first, and then twice as many each time.
const NAMES_FIRST: usize = 1 << 11;

/// A recording's words, with what this process knows of them.
#[derive(Debug)]
pub(crate) struct Area {
    memory: Memory,
    pub(crate) layout: Layout,
    /// When the recording began, by the system's clock.
    started: Instant,
    /// The file that has the words.
    file: Option<RecordingFile>,
}

/// The file of a recording. No descriptor stays open: a program that shares the process may count its own, or close all that there are.
#[derive(Debug)]
struct RecordingFile {
    path: PathBuf,
    /// Device and number, by which the file is known again.
    id: (u64, u64),
    /// How many units of names are reserved.
    names: AtomicU64,
}

/// A thread that takes a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taker<'a> {
    /// Its number in the system, from 1.
    pub(crate) system: u32,
    /// Its name.
    pub(crate) name: &'a str,
}

impl Area {
    /// An area of this process, of a new file if there is a path.
    pub(crate) fn map(path: Option<&Path>, layout: Layout) -> io::Result<Self> {
        let create = |path| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o600).open(path)
        };
        let file = path.map(create).transpose()?;
        let memory = Memory::mapped(file.as_ref(), layout.words())?;
        let file = match path.zip(file.as_ref()) {
            Some((path, file)) => Some(RecordingFile::new(path, file, layout)?),
            None => None,
        };
        let (start_ticks, started, rate) = clock::begin();
        let area = Self { memory, layout, started, file };
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        area.write_header(start_ticks, wall, rate);
        Ok(area)
    }

    /// An area of no file, whose ticks are nanoseconds from 0. For scripts and models.
    pub(crate) fn owned(layout: Layout) -> Self {
        let memory = Memory::owned(layout.words());
        let area = Self { memory, layout, started: Instant::now(), file: None };
        area.write_header(0, 0, 1 << 32);
        area
    }

    fn write_header(&self, start_ticks: u64, wall: u64, rate: u64) {
        let Layout { ring_notes, rings, name_words } = self.layout;
        let values = [
            (PROCESS, u64::from(std::process::id())),
            (START_TICKS, start_ticks),
            (START_WALL, wall),
            (RATE, rate),
            (RING_NOTES, ring_notes as u64),
            (RINGS, rings as u64),
            (NAME_WORDS, name_words as u64),
            (0, MAGIC),
        ];
        for (at, value) in values {
            // Relaxed: no other thread has the area yet, and a process that reads the file meanwhile tries again.
            self.memory[at].store(value, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.memory
    }

    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.memory.is_here()
    }

    pub(crate) fn names(&self) -> Names {
        self.layout.names()
    }

    pub(crate) fn write_name(&self, text: &str) -> Name {
        let names = self.names();
        let has_place = |end| self.file.as_ref().is_none_or(|file| file.has_names(names, end));
        names.write(&self.memory, has_place, text)
    }

    /// This moment by both clocks.
    pub(crate) fn now(&self) -> Moment {
        Moment { ticks: clock::ticks(), nanos: self.started.elapsed().as_nanos() as u64 }
    }

    /// Writes a note.
    #[inline]
    pub(crate) fn push(&self, writer: &mut Writer, ticks: u64, entry: Entry) {
        writer.push(&self.memory, entry.words(ticks));
        if writer.next() & (CLOCK_EVERY - 1) == 0 {
            self.push_clock(writer);
        }
    }

    #[cold]
    fn push_clock(&self, writer: &mut Writer) {
        if let Memory::Mapped { .. } = self.memory {
            let now = self.now();
            let entry = Entry::new(Kind::Clock).with(now.nanos, 0);
            writer.push(&self.memory, entry.words(now.ticks));
        }
    }

    /// Counts a note of a thread that has no ring.
    #[cold]
    pub(crate) fn refuse(&self) {
        // Relaxed: a count alone.
        self.memory[REFUSED].fetch_add(1, Ordering::Relaxed);
    }

    /// Finds a ring for a thread that has none; none if all have one whose thread `lives`. `at` is now in ticks.
    pub(crate) fn take_ring(&self, taker: Taker<'_>, at: u64, lives: impl Fn(u32) -> bool) -> Option<Writer> {
        let ring = self.find_ring(taker.system, &lives)?;
        let (place, ring) = (self.layout.ring_head(ring), self.layout.ring(ring));
        if let Some(file) = &self.file
            && file.reserve(ring.slots..ring.slots + self.layout.ring_words()).is_err()
        {
            // Relaxed: the ring has nothing new.
            self.memory[place.owner].store(0, Ordering::Relaxed);
            return None;
        }
        // Relaxed: a number alone.
        let thread = 1 + self.memory[THREADS].fetch_add(1, Ordering::Relaxed);
        let name = self.write_name(taker.name);
        let mut writer = Writer::of(ring, &self.memory);
        let values =
            [(place.since, writer.next()), (place.name, u64::from(name.number())), (place.thread, thread)];
        for (at, value) in values {
            // Relaxed: readers that find a note of this thread have acquired the ring's head behind it.
            self.memory[at].store(value, Ordering::Relaxed);
        }
        let entry = Entry::new(Kind::ThreadNamed).named(name).with(thread, u64::from(taker.system));
        writer.push(&self.memory, entry.words(at));
        self.push_clock(&mut writer);
        Some(writer)
    }

    /// Takes a ring: one that no thread has had, or one whose thread has ended.
    pub(crate) fn find_ring(&self, taker: u32, lives: &impl Fn(u32) -> bool) -> Option<usize> {
        let is_free = |owner: u64| owner == 0;
        // A thread without a ring that has the number of the ring's thread came after it.
        let is_left = |owner: u64| owner == u64::from(taker) || !lives(owner as u32);
        self.find_ring_where(taker, is_free).or_else(|| self.find_ring_where(taker, is_left))
    }

    fn find_ring_where(&self, taker: u32, may_be_taken: impl Fn(u64) -> bool) -> Option<usize> {
        (0..self.layout.rings).find(|&ring| {
            let word = &self.memory[self.layout.ring_head(ring).owner];
            // Relaxed: what decides is the exchange.
            let owner = word.load(Ordering::Relaxed);
            if weakened("recorder::takes_what_was_taken") && may_be_taken(owner) {
                word.store(u64::from(taker), Ordering::Relaxed);
                return true;
            }
            // Relaxed: the thread that had the ring has ended, and the system ordered what it did before that.
            may_be_taken(owner)
                && word
                    .compare_exchange(owner, u64::from(taker), Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
        })
    }
}

/// The thread that a note at `position` is of, by the ring's head: unknown if another had the ring then.
pub(crate) fn thread_at(position: u64, since: u64, thread: u64) -> ThreadId {
    ThreadId(if position >= since { thread as u32 } else { 0 })
}

impl RecordingFile {
    /// Reserves all words before the names, and the first of these.
    fn new(path: &Path, file: &File, layout: Layout) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let (path, id) = (std::path::absolute(path)?, (metadata.dev(), metadata.ino()));
        let (begin, names) = (layout.names().begin, NAMES_FIRST.min(layout.name_words));
        reserve(file, 0..begin + names)?;
        Ok(Self { path, id, names: AtomicU64::new(names as u64) })
    }

    /// Whether the file has a place for names up to a unit: reserves some more if not.
    fn has_names(&self, names: Names, end: u64) -> bool {
        // Relaxed: what was reserved stays so. Two threads may reserve the same.
        let reserved = self.names.load(Ordering::Relaxed) as usize;
        let end = end as usize;
        if end > reserved {
            let wanted = end.max(2 * reserved).min(names.size);
            if self.reserve(names.begin + reserved..names.begin + wanted).is_err() {
                return false;
            }
            // Relaxed: as above.
            self.names.fetch_max(wanted as u64, Ordering::Relaxed);
        }
        true
    }

    fn reserve(&self, words: std::ops::Range<usize>) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&self.path)?;
        let metadata = file.metadata()?;
        if (metadata.dev(), metadata.ino()) != self.id {
            return Err(io::ErrorKind::NotFound.into());
        }
        reserve(&file, words)
    }
}

/// Has the system keep a place for words: one that is not there when it is written ends the process, where the disk is full.
fn reserve(file: &File, words: std::ops::Range<usize>) -> io::Result<()> {
    let [begin, end] = [words.start, words.end].map(|word| (word * size_of::<u64>()) as u64);
    Ok(fallocate(file, FallocateFlags::empty(), begin, end - begin)?)
}
