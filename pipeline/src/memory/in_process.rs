//! Memory of this process: reserved ranges, slabs by kind, many objects to a page.
//!
//! ```text
//!   low                         reserved range (2 GiB less a margin)                        high │ libraries
//!   [ large data ──▶            ...                     ◀── slabs: data │ constants │ code ]      │ libc ...
//! ```
//!
//! A range is shorter than a 32-bit displacement reaches, so everything in it reaches everything else in it. Slabs are taken from its top.
//! The top of the first range lies right below the loaded libraries where the system's default placement is in force, so that code mostly
//! reaches their data too. Large zero-filled data comes from the bottom. In the process of a program, the first range has two stretches at
//! its top, which come first (`window.rs`).
//!
//! An allocation whose data does not fit gets a range of its own (`aside.rs`), in which its code reaches the data; other objects then reach
//! it as they reach a library. A full range is followed by another (`ranges.rs`), and objects that hold addresses in 32 bits have ranges
//! below 2 GiB.
//!
//! Code and constants lie in shared pages with two views (`mapping.rs`); nothing is `mprotect`ed per object, and small objects share pages.
//! Writable data is private and written in place. Where the second view is refused, pages belong to one object and are `mprotect`ed when it
//! is finalized.
//!
//! Memory that is given back is recycled, zeroed before it is handed out again. A slab that becomes free as a whole is unmapped, except for
//! one spare of each kind.
//!
//! # Fork
//! A child runs what was linked before the fork, links more, and gives back, without the parent noticing, and
//! the other way round; see `fork.rs`.
//!
//! # Locks
//! One lock a manager, held for bookkeeping and for the mapping of ranges and slabs; never while memory is zeroed, written or
//! read, and never while user code runs. A fork takes the locks of all managers, in the order they were made, under
//! a lock of its own.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use uruk_core::ExecutorAddr;

use super::allocation::Allocation;
use super::arena::{Arena, SLAB_ALIGN, SLAB_BYTES};
use super::fork;
use super::fork_lock::ForkLock;
use super::mapping::ReservedRange;
use super::places::{FilePlace, FileStretch, KeepsFile, MappedSegments, ProgramWindow};
use super::ranges::{Ranges, Reach, Sizes};
use super::reserve::{self, RANGE_BYTES};
use super::slab::Views;
use super::{InFlightAlloc, MemoryError, MemoryManager, MemoryUsage, SegmentRequest};
use crate::arch::host;

/// How pages that end up executable or constant are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ViewPolicy {
    /// The first of the following that the system allows.
    #[default]
    Automatic,
    /// Two views of anonymous pages.
    TwoViews,
    /// Two views of a file in memory, for processes that may not change what is executable (`PR_SET_MDWE`).
    TwoViewsOfFile,
    /// One view, protected by `mprotect` when an object is finalized.
    OneView,
}

/// How an [`InProcessMemoryManager`] is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Size of a reserved range; `None` for 2 GiB less a margin, or less where `ulimit -v` forbids that. It is
    /// the most that the segments of one object can have together; more than 2 GiB is refused.
    pub range_bytes: Option<u64>,
    /// How much the ranges amount to at most; `None` for as many as there are addresses. Not counted are ranges below
    /// 2 GiB and those that allocations have for themselves.
    pub reserve_bytes: Option<u64>,
    /// How code is written.
    pub views: ViewPolicy,
    /// Whether the first range keeps the code and the data of a program each in one stretch, as an executable has them.
    pub keeps_program: bool,
}

/// Memory for code that runs in this process.
///
/// # Concurrency
/// Any thread may allocate and give back. The range stays reserved until the manager and every allocation
/// are gone.
///
/// # Examples
/// ```
/// use uruk_pipeline::memory::{InProcessMemoryManager, MemoryManager, SegmentKind, SegmentRequest};
///
/// let memory = InProcessMemoryManager::new()?;
/// let code = [0xb8, 42, 0, 0, 0, 0xc3]; // mov eax, 42; ret
/// let request = SegmentRequest { kind: SegmentKind::Code, content_bytes: code.len(), zero_fill_bytes: 0, align: 16 };
/// let mut allocation = memory.allocate("answer", &[request])?;
/// allocation.working(0).copy_from_slice(&code);
/// let code = allocation.finalize()?; // From here on it can run, and not be written.
/// // SAFETY: the bytes above are a function of this type, and `code` lives.
/// let answer: extern "C" fn() -> i32 = unsafe { std::mem::transmute(code.address(0).value() as usize) };
/// assert_eq!(answer(), 42);
/// # Ok::<(), uruk_pipeline::memory::MemoryError>(())
/// ```
///
/// ORC: `MapperJITLinkMemoryManager`, `InProcessMemoryMapper`.
#[doc(alias = "InProcessMemoryMapper")]
pub struct InProcessMemoryManager {
    pool: Arc<Pool>,
}

impl InProcessMemoryManager {
    /// Reserves the default range.
    ///
    /// The system places it below everything that is mapped already. Made before threads and their stacks, it comes
    /// to lie next to the libraries, and code reaches their data; nothing else depends on that.
    ///
    /// # Errors
    /// [`MemoryError::Reserve`] if the system grants no usable range; otherwise as [`Self::with_options`].
    pub fn new() -> Result<Self, MemoryError> {
        Self::with_options(MemoryOptions::default())
    }

    /// Reserves a range as `options` say.
    ///
    /// # Errors
    /// [`MemoryError::Reserve`] if the system does not grant the range; [`MemoryError::Protect`] if two views are
    /// demanded and refused; [`MemoryError::Watch`] if the system is out of memory for our `fork` handlers;
    /// [`MemoryError::Invalid`] if the range is too large.
    pub fn with_options(options: MemoryOptions) -> Result<Self, MemoryError> {
        let reserve_bytes_max = options.reserve_bytes.map_or(usize::MAX, whole_slabs);
        let range_bytes = options.range_bytes.map_or(RANGE_BYTES, whole_slabs);
        if range_bytes > host::REACH_BYTES {
            return Err(MemoryError::Invalid {
                owner: "the memory manager".into(),
                what: "a range of more than 2 GiB, within which code does not reach everything",
            });
        }
        let sizes = Sizes {
            range_bytes: range_bytes.min(reserve_bytes_max),
            is_demanded: options.range_bytes.is_some() || options.reserve_bytes.is_some(),
            reserve_bytes_max,
        };
        let reserved = match sizes.is_demanded {
            true => reserve::exactly(sizes.range_bytes)?,
            false => reserve::near(sizes.range_bytes, 0)?,
        };
        let mut first = Arena::new(reserved, Views::One);
        match options.views {
            ViewPolicy::OneView => {}
            ViewPolicy::TwoViews => first.set_views(Views::Anonymous)?,
            ViewPolicy::TwoViewsOfFile => first.set_views(Views::File)?,
            ViewPolicy::Automatic => {
                // Refused both, pages are protected when they are finalized; that may be refused too, and is told then.
                let _ = first.set_views(Views::Anonymous).or_else(|_| first.set_views(Views::File));
            }
        }
        if options.keeps_program {
            first.keep_window()?;
        }
        let pool = Arc::new(Pool { ranges: ForkLock::new(Ranges::new(first, sizes)) });
        fork::watch(&pool)?;
        Ok(Self { pool })
    }

    /// The addresses of the first range. There may be others.
    pub fn reserved_range(&self) -> Range<ExecutorAddr> {
        let range = self.pool.ranges.lock().first();
        ExecutorAddr::new(range.start as u64)..ExecutorAddr::new(range.end as u64)
    }

    /// Forgets every page table entry through which code was written, for use when linking pauses.
    ///
    /// # Cost
    /// One system call a slab; pages come back one by one when they are written again.
    pub fn trim(&self) {
        for slab in self.pool.ranges.lock().slabs() {
            slab.forget_working_view();
        }
    }
}

impl MemoryManager for InProcessMemoryManager {
    fn allocate(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        let allocation = Allocation::take(&self.pool, owner, segments, Reach::Anywhere)?;
        Ok(InFlightAlloc::new(Box::new(allocation)))
    }

    fn allocate_low(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        let allocation = Allocation::take(&self.pool, owner, segments, Reach::Low)?;
        Ok(InFlightAlloc::new(Box::new(allocation)))
    }

    fn program_window(&self) -> Option<ProgramWindow> {
        self.pool.ranges.lock().window()
    }

    fn mapped(&self) -> MappedSegments {
        self.pool.ranges.lock().mapped()
    }

    fn place_file(&self, stretch: &FileStretch<'_>) -> Result<Option<FilePlace>, MemoryError> {
        let taken = if stretch.is_low { None } else { self.pool.ranges.lock().take_file(stretch) };
        let (reserved, base) = match taken {
            Some(base) => (None, base),
            None => reserve::for_file(stretch).map(|(range, base)| (Some(range), base))?,
        };
        let range = base..base + stretch.size_bytes;
        let keeper = Box::new(KnownFile { pool: self.pool.clone(), range, _reserved: reserved });
        Ok(Some(FilePlace { base, keeper }))
    }

    fn usage(&self) -> MemoryUsage {
        self.pool.ranges.lock().usage()
    }
}

impl fmt::Debug for InProcessMemoryManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessMemoryManager")
            .field("reserved", &self.reserved_range())
            .finish_non_exhaustive()
    }
}

/// State that the manager and its allocations share. Dropped with the last of them.
pub(super) struct Pool {
    pub(super) ranges: ForkLock<Ranges>,
}

/// A file that a manager knows of.
struct KnownFile {
    pool: Arc<Pool>,
    range: Range<usize>,
    /// Addresses outside of all ranges. Unmapped when the manager has forgotten the file.
    _reserved: Option<ReservedRange>,
}

impl KeepsFile for KnownFile {
    fn note(&self, segments: MappedSegments) {
        self.pool.ranges.lock().note_file(self.range.start, segments);
    }
}

impl Drop for KnownFile {
    fn drop(&mut self) {
        self.pool.ranges.lock().drop_file(self.range.clone());
    }
}

/// A size as whole slabs; one that no address space has stays so.
fn whole_slabs(bytes: u64) -> usize {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(SLAB_BYTES);
    bytes.checked_next_multiple_of(SLAB_ALIGN).unwrap_or(usize::MAX)
}
