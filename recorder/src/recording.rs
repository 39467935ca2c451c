//! The recording of this process: whether it is on, and the ring of each thread.

use std::cell::Cell;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::area::{Area, Taker};
use crate::clock;
use crate::layout::Layout;
use crate::names::{KnownNames, Name, NameCell};
use crate::note::Entry;
use crate::ring::Writer;
use crate::sync::switch;

/// How a recording is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many notes of 32 bytes each thread keeps: a power of two.
    pub ring_notes: usize,
    /// How many threads at the same time have a ring. Notes of others are lost, and counted.
    pub threads: usize,
    /// Room for names. Notes beyond it have none.
    pub name_bytes: usize,
    /// A file that has the recording while it is written, and afterwards. It must not be there yet, and should stand where no other user may
    /// write. Without one the recording is in memory alone. It is opened by this path again when a thread writes its first note.
    pub file: Option<PathBuf>,
}

impl Options {
    /// For a recording that is always there: the last 4096 notes of each thread, of 64 threads. 128 kilobytes a thread, and what names take.
    pub fn small() -> Self {
        Self { ring_notes: 1 << 12, threads: 64, ..Self::default() }
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout {
            ring_notes: self.ring_notes,
            rings: self.threads,
            name_words: self.name_bytes / size_of::<u64>(),
        }
    }
}

impl Default for Options {
    /// Half a megabyte for each thread that writes, up to 256 threads, and eight megabytes for names. Memory alone.
    fn default() -> Self {
        Self { ring_notes: 1 << 14, threads: 256, name_bytes: 8 << 20, file: None }
    }
}

/// Why a recording does not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnableError {
    /// A size is zero, too large, or should be a power of two.
    #[error(
        "a recording takes a power of two of notes a thread, 2 to 2^20, at most 4096 threads, and 4 GiB in all"
    )]
    Size,
    /// The process has one already, which was made otherwise.
    #[error("the process has a recording already, which was made with other options")]
    Differs,
    /// The file or the memory cannot be had.
    #[error("the recording's memory cannot be had")]
    Memory(#[source] io::Error),
    /// The file cannot be made.
    #[error("the recording's file `{}` cannot be made", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

static RECORDING: OnceLock<(Area, Options, KnownNames)> = OnceLock::new();

pub(crate) fn area() -> Option<&'static Area> {
    RECORDING.get().map(|(area, ..)| area)
}

/// Begins to record, or goes on after [`disable`]. A process has one recording, which stays until it ends.
///
/// # Errors
/// If the memory or the file cannot be had, or the process has a recording that was made with other options.
pub fn enable(options: Options) -> Result<(), EnableError> {
    if area().is_none() {
        let made = (make(&options)?, options.clone(), KnownNames::new(options.ring_notes));
        // Another thread may have been first: then its options count, below.
        drop(RECORDING.set(made));
    }
    if !RECORDING.get().is_some_and(|(area, made, _)| area.is_here() && *made == options) {
        return Err(EnableError::Differs);
    }
    switch::turn(true);
    Ok(())
}

fn make(options: &Options) -> Result<Area, EnableError> {
    let layout = options.layout();
    if !layout.is_sound() {
        return Err(EnableError::Size);
    }
    Area::map(options.file.as_deref(), layout).map_err(|source| match &options.file {
        Some(path) => EnableError::File { path: path.clone(), source },
        None => EnableError::Memory(source),
    })
}

/// Writes no more notes. Those that were written stay to be read.
pub fn disable() {
    switch::turn(false);
}

/// Whether notes are written: a load and no more.
#[inline(always)]
pub fn is_on() -> bool {
    switch::is_on()
}

/// Whether the notes of this process are read here: not in a forked child.
pub(crate) fn is_here() -> bool {
    is_on() && area().is_some_and(Area::is_here)
}

/// Writes a note if the recording is on; `entry` is run only then.
///
/// # Concurrency
/// Takes no lock and does not allocate, except for a thread's first note. Writes nothing in a forked child. Not for signal handlers.
#[inline(always)]
pub fn note(entry: impl FnOnce() -> Entry) {
    if is_on() {
        write(entry());
    }
}

/// The name of a text, which is written the first time. None unless the recording is on.
#[inline]
pub fn name(cell: &NameCell, text: &str) -> Name {
    if is_on() { cell.get_or(|| write_name(text)) } else { Name::NONE }
}

/// The name of a text that has no cell. None unless the recording is on.
pub fn write_name(text: &str) -> Name {
    let here = RECORDING.get().filter(|(area, ..)| is_on() && area.is_here());
    here.map_or(Name::NONE, |(area, _, known)| {
        known.name(area.names(), area.words(), text, || area.write_name(text))
    })
}

/// Where a thread writes its notes.
#[derive(Clone, Copy)]
enum Seat {
    /// It has written none.
    Unknown,
    /// There was no ring for it.
    Nowhere,
    Ring(Writer),
}

thread_local! {
    /// Has no destructor, so destructors may note as well.
    static SEAT: Cell<Seat> = const { Cell::new(Seat::Unknown) };
}

#[inline(never)]
fn write(entry: Entry) {
    let Some(area) = area().filter(|area| area.is_here()) else { return };
    let ticks = clock::ticks();
    let mut seat = SEAT.get();
    if let Seat::Unknown = seat {
        seat = take_ring(area, ticks);
    }
    match &mut seat {
        Seat::Ring(writer) => area.push(writer, ticks, entry),
        _ => area.refuse(),
    }
    SEAT.set(seat);
}

#[cold]
fn take_ring(area: &Area, ticks: u64) -> Seat {
    let system = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let name = rustix::thread::name().unwrap_or_default();
    let name = if system == std::process::id() { "main".into() } else { name.to_string_lossy() };
    // Only asked when every ring has had a thread.
    let lives = |thread: u32| std::path::Path::new(&format!("/proc/self/task/{thread}")).exists();
    area.take_ring(Taker { system, name: &name }, ticks, lives).map_or(Seat::Nowhere, Seat::Ring)
}
