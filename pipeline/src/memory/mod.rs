//! Executable memory: its managers, and the values that a link owns while it fills the memory and then keeps it.
//!
//! A link asks a [`MemoryManager`] for all segments of one object at once and receives an
//! [`InFlightAlloc`]: final addresses, and working memory to write the contents through. When the
//! fixups are applied it is consumed by [`InFlightAlloc::finalize`], and the [`FinalizedAlloc`] that comes
//! out keeps the code alive. Dropping either gives everything back; there is no other way to free.
//!
//! This module never runs code and never knows what the bytes mean.
//!
//! **Architecture Invariant:** no page is writable and executable through the same address. Code and
//! constants are written through a second view of their pages (see `in_process.rs`).

mod account;
mod allocation;
mod arena;
mod aside;
mod cores;
pub mod faulty;
mod fork;
mod fork_lock;
mod free_ranges;
mod in_process;
mod mapped_file;
mod mapping;
mod piece;
mod places;
mod ranges;
mod reserve;
mod sent;
mod shared;
mod slab;
mod stack;
mod temporary_file;
mod there;
mod window;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use uruk_core::{ExecutorAddr, SharedError};

pub(crate) use cores::Granted;
pub(crate) use fork::install as watch_forks;
pub(crate) use fork_lock::{HeldOverForks, StaticForkLock};
pub(crate) use mapped_file::MappedFile;
pub(crate) use stack::StackMapping;

pub use account::{KindUsage, MemoryUsage, SegmentBytes};
pub use in_process::{InProcessMemoryManager, MemoryOptions, ViewPolicy};
pub use places::{FilePlace, FileSegment, FileStretch, MappedSegments, ProgramWindow};
pub use sent::{SentMemory, SentRange};
pub use shared::{SharedFile, SharedMemory, SharedRange};
pub use temporary_file::TemporaryFile;
pub use there::MemoryHere;

/// Hands out memory for linked objects.
///
/// # Concurrency
/// Called from every worker at once.
///
/// ORC: `JITLinkMemoryManager`.
#[doc(alias = "JITLinkMemoryManager")]
pub trait MemoryManager: Send + Sync {
    /// Allocates `segments` together, each at its own final address. Code reaches the start of every one of them with
    /// a 32-bit displacement, [`SegmentKind::FarData`] excepted.
    ///
    /// `owner` is the name of the unit the memory is for; errors carry it. The contents read as zeros, and
    /// so does what follows them up to `zero_fill_bytes`.
    ///
    /// # Errors
    /// [`MemoryError`] if the range is exhausted or the operating system refuses; nothing stays allocated.
    fn allocate(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError>;

    /// As [`Self::allocate`], with all addresses below 2 GiB. Zeroes that have no room there begin there. The default refuses.
    ///
    /// # Errors
    /// As [`Self::allocate`]; [`MemoryError::NotLow`] if the manager has no such memory.
    fn allocate_low(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        let _ = segments;
        Err(MemoryError::NotLow { owner: owner.into() })
    }

    /// Where code and data of a program lie, if the manager keeps room for them. The default keeps none.
    fn program_window(&self) -> Option<ProgramWindow> {
        None
    }

    /// The memory that is mapped for segments, by purpose. The default is empty.
    fn mapped(&self) -> MappedSegments {
        Vec::new()
    }

    /// Takes the addresses of a file's segments. `None`, which is the default, if they may lie anywhere and the manager is not to know of them.
    ///
    /// # Errors
    /// [`MemoryError`] if there are none.
    fn place_file(&self, stretch: &FileStretch<'_>) -> Result<Option<FilePlace>, MemoryError> {
        let _ = stretch;
        Ok(None)
    }

    /// The memory that this manager holds at the moment. The default is zero, for managers that do not count.
    fn usage(&self) -> MemoryUsage {
        MemoryUsage::default()
    }
}

/// The use of a finalized segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// Readable and executable.
    Code,
    /// Readable only: constants, unwind tables.
    ReadOnly,
    /// Readable and writable, private to this process, written in place.
    Data,
    /// Like [`Self::Data`], for data that is reached by 64-bit distances and addresses alone: it may lie anywhere.
    FarData,
}

impl SegmentKind {
    /// The kind of memory it is, wherever that lies.
    pub(crate) const fn near(self) -> Self {
        match self {
            Self::FarData => Self::Data,
            other => other,
        }
    }
}

impl fmt::Display for SegmentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Code => "code",
            Self::ReadOnly => "read-only",
            Self::Data => "data",
            Self::FarData => "far data",
        })
    }
}

/// One segment of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRequest {
    /// Its use once finalized.
    pub kind: SegmentKind,
    /// Bytes that the link writes.
    pub content_bytes: usize,
    /// Bytes after the contents that are zero and cost nothing until the program touches them.
    /// Only [`SegmentKind::Data`] and [`SegmentKind::FarData`] may ask for them.
    pub zero_fill_bytes: usize,
    /// Alignment of the segment's first byte; a power of two.
    pub align: usize,
}

impl SegmentRequest {
    pub(crate) const fn total_bytes(&self) -> usize {
        self.content_bytes.saturating_add(self.zero_fill_bytes)
    }
}

/// A segment of an object, in the process that runs the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentThere {
    /// Its use.
    pub kind: SegmentKind,
    /// Its addresses.
    pub range: Range<u64>,
    /// How many of its bytes, from the first on, are not zero by themselves.
    pub content_bytes: u64,
}

/// The segments of an object, for the process that runs the code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentsThere {
    /// Those that this process has to know.
    pub segments: Vec<SegmentThere>,
    /// The contents of all, one after another. Empty where the process sees what was written.
    pub contents: Vec<u8>,
}

/// The bookkeeping behind an allocation, implemented by each [`MemoryManager`].
///
/// Dropping the value gives the memory back, before and after [`Backing::finalize`].
pub trait Backing: Send + Sync {
    /// The final address of segment number `segment`.
    fn address(&self, segment: usize) -> ExecutorAddr;

    /// The content bytes of segment number `segment`, zeroed when handed out first.
    fn working(&mut self, segment: usize) -> &mut [u8];

    /// Announces that the bytes `range` of segment number `segment` are going to be written next. A hint, for managers to which many pages
    /// at once are cheaper than one by one. Other bytes may be padding and should stay untouched.
    fn will_write(&mut self, segment: usize, range: Range<usize>) {
        let _ = (segment, range);
    }

    /// Gives every segment the protection of its kind. Called once, after which `working` is not called again.
    ///
    /// # Errors
    /// [`MemoryError::Protect`] if the operating system refuses; [`MemoryError::Forked`] in a child of the process that
    /// allocated.
    fn finalize(&mut self) -> Result<(), MemoryError>;

    /// The segments as another process has to know them, if that runs the code. Called once, when they are final. The default has
    /// none.
    fn take_segments_there(&mut self) -> SegmentsThere {
        SegmentsThere::default()
    }

    /// Bytes allocated, by kind. The default is zero, for managers that do not count.
    fn bytes(&self) -> SegmentBytes {
        SegmentBytes::default()
    }

    /// Bytes of this allocation that occupy physical memory of this process now, by kind. The default is zero, for memory that is another's.
    fn resident(&self) -> SegmentBytes {
        SegmentBytes::default()
    }
}

/// Memory that is being filled: final addresses are known, nothing may run yet. Dropping it gives it back.
///
/// ORC: `JITLinkMemoryManager::InFlightAlloc`.
#[must_use = "dropping the allocation frees it"]
pub struct InFlightAlloc {
    backing: Box<dyn Backing>,
}

impl InFlightAlloc {
    /// Wraps a manager's bookkeeping.
    pub fn new(backing: Box<dyn Backing>) -> Self {
        Self { backing }
    }

    /// The final address of segment number `segment`, in the order of the request.
    pub fn address(&self, segment: usize) -> ExecutorAddr {
        self.backing.address(segment)
    }

    /// The content bytes of segment number `segment`, to be written here and seen at [`Self::address`].
    pub fn working(&mut self, segment: usize) -> &mut [u8] {
        self.backing.working(segment)
    }

    /// Bytes allocated, by kind.
    pub fn bytes(&self) -> SegmentBytes {
        self.backing.bytes()
    }

    /// Announces a long write to segment number `segment`; only a hint.
    pub fn will_write(&mut self, segment: usize, range: Range<usize>) {
        self.backing.will_write(segment, range);
    }

    /// Ends the writing: from here on every segment has the protection of its kind.
    ///
    /// # Errors
    /// [`MemoryError::Protect`] if the operating system refuses, [`MemoryError::Forked`] in a child of the process that
    /// allocated; the memory has been given back then.
    pub fn finalize(mut self) -> Result<FinalizedAlloc, MemoryError> {
        self.backing.finalize()?;
        Ok(FinalizedAlloc { backing: self.backing })
    }
}

impl fmt::Debug for InFlightAlloc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlightAlloc").field("bytes", &self.backing.bytes()).finish_non_exhaustive()
    }
}

/// Memory in use by linked code. Dropping it gives it back: nothing may run in it or point to it then.
///
/// ORC: `JITLinkMemoryManager::FinalizedAlloc`.
#[must_use = "dropping the allocation frees the code"]
pub struct FinalizedAlloc {
    backing: Box<dyn Backing>,
}

impl FinalizedAlloc {
    /// The address of segment number `segment`, in the order of the request.
    pub fn address(&self, segment: usize) -> ExecutorAddr {
        self.backing.address(segment)
    }

    /// Bytes allocated, by kind.
    pub fn bytes(&self) -> SegmentBytes {
        self.backing.bytes()
    }

    /// See [`Backing::take_segments_there`].
    pub fn take_segments_there(&mut self) -> SegmentsThere {
        self.backing.take_segments_there()
    }

    /// Bytes that occupy physical memory now, by kind.
    ///
    /// # Cost
    /// One system call a segment and 64 MiB of it.
    pub fn resident(&self) -> SegmentBytes {
        self.backing.resident()
    }
}

impl fmt::Debug for FinalizedAlloc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FinalizedAlloc").field("bytes", &self.backing.bytes()).finish_non_exhaustive()
    }
}

/// Why memory could not be had or protected.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The operating system refused address space.
    #[error("cannot reserve {size_bytes} bytes of address space for linked code{}", limit(*.limit_bytes))]
    Reserve {
        /// How much was asked for.
        size_bytes: u64,
        /// How much the process may have in all (`ulimit -v`), if that is limited.
        limit_bytes: Option<u64>,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// The operating system refused to back or protect a range.
    #[error("cannot make {:#x}..{:#x} {wanted}", range.start, range.end)]
    Protect {
        /// The addresses in question.
        range: Range<u64>,
        /// The protection or backing that was wanted.
        wanted: &'static str,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// No range has room left, and there may not be another, or one is not large enough for the object.
    #[error(
        "no room for {size_bytes} bytes of {kind} of `{owner}`: {used_bytes} of the {reserved_bytes} reserved bytes are \
         in use; reserve more, or compile units with large data with -mcmodel=large so that it may lie elsewhere"
    )]
    Exhausted {
        /// The unit that asked.
        owner: Box<str>,
        /// The kind of the segment that did not fit.
        kind: SegmentKind,
        /// Its size.
        size_bytes: u64,
        /// How much of the ranges is taken by slabs.
        used_bytes: u64,
        /// The size of the ranges together.
        reserved_bytes: u64,
    },
    /// There is no memory below 2 GiB, or no more of it.
    #[error(
        "`{owner}` needs memory below 2 GiB, as code does that was not built position-independent, and there is none; \
         recompile it with -fPIC"
    )]
    NotLow {
        /// The unit that asked.
        owner: Box<str>,
    },
    /// The process has forked since the memory was asked for.
    #[error(
        "the process forked while the memory was being filled: that is the parent's to finish, and the child has to \
         link the unit again"
    )]
    Forked,
    /// The system cannot note what has to happen when the process forks.
    #[error("cannot register what has to be done when the process forks")]
    Watch {
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// The request contradicts itself.
    #[error("invalid memory request of `{owner}`: {what}")]
    Invalid {
        /// The unit that asked.
        owner: Box<str>,
        /// The contradiction.
        what: &'static str,
    },
    /// A manager of the embedder's did not give or protect it.
    #[error("no memory for `{owner}`")]
    Refused {
        /// The unit that asked.
        owner: Box<str>,
        /// Why.
        source: SharedError,
    },
    /// A failure that a test asked for.
    #[error("injected failure at {operation} number {number}")]
    Injected {
        /// The operation that was told to fail.
        operation: &'static str,
        /// Which call it was.
        number: u64,
    },
}

fn limit(limit_bytes: Option<u64>) -> String {
    limit_bytes
        .map_or_else(String::new, |bytes| format!(": the process may have {bytes} in all (`ulimit -v`)"))
}
