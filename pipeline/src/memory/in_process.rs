//! Memory of this process: one reserved range, slabs by kind, many objects to a page.
//!
//! ```text
//!   low                         reserved range (2 GiB less a margin)                        high │ libraries
//!   [ large data ──▶            ...                     ◀── slabs: data │ constants │ code ]      │ libc ...
//! ```
//!
//! The range is shorter than a 32-bit displacement reaches, so everything in it reaches everything else in
//! it. Slabs are taken from its top, which lies right below the loaded libraries where the system's default
//! placement is in force, so that code mostly reaches their data too. Large zero-filled data comes from
//! the bottom. Where data does not fit, its whole allocation gets a range of its own (`aside.rs`), in which its code
//! reaches it; other objects then reach it as they reach a library.
//!
//! Code and constants lie in shared pages with two views (`mapping.rs`); nothing is `mprotect`ed per
//! object, and small objects share pages. Writable data is private and written in place. Where the second
//! view is refused, pages belong to one object and are `mprotect`ed when it is finalized.
//!
//! What is given back is recycled, zeroed before it is handed out again. A slab that becomes free as a
//! whole is unmapped, except for one spare of each kind.
//!
//! # Fork
//! A child runs what was linked before the fork, links more, and gives back, without the parent noticing, and
//! the other way round; see `fork.rs`.
//!
//! # Locks
//! One lock a manager, held for bookkeeping and for the mapping of slabs; never while memory is zeroed, written or
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
use super::{InFlightAlloc, MemoryError, MemoryManager, MemoryUsage, SegmentRequest};

/// The range that is reserved when nothing else is asked for.
const RESERVE_BYTES: usize = (2 << 30) - (16 << 20);
/// The least that is worth going on with where address space is limited.
const RESERVE_BYTES_MIN: usize = 64 << 20;

/// How pages that end up executable or constant are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ViewPolicy {
    /// Two views if the system allows them, one otherwise.
    #[default]
    Automatic,
    /// Two views or nothing.
    TwoViews,
    /// One view, protected by `mprotect` when an object is finalized.
    OneView,
}

/// How an [`InProcessMemoryManager`] is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryOptions {
    /// Size of the reserved range; `None` for 2 GiB less a margin, or less where `ulimit -v` forbids that.
    /// More than 2 GiB gives up that all code reaches all code.
    pub reserve_bytes: Option<u64>,
    /// How code is written.
    pub views: ViewPolicy,
}

/// Memory for code that runs in this process.
///
/// # Concurrency
/// Any thread may allocate and give back. The range stays reserved until the manager and every allocation
/// are gone.
///
/// Source: ORC `MapperJITLinkMemoryManager`, `InProcessMemoryMapper`.
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
    /// demanded and refused; [`MemoryError::Watch`] if the system is out of memory for our `fork` handlers.
    pub fn with_options(options: MemoryOptions) -> Result<Self, MemoryError> {
        let reserved = match options.reserve_bytes {
            Some(bytes) => ReservedRange::reserve(whole_slabs(bytes)?)?,
            None => reserve_what_is_granted()?,
        };
        let mut arena = Arena::new(reserved.range());
        arena.two_views = match options.views {
            ViewPolicy::OneView => false,
            ViewPolicy::TwoViews => {
                arena.probe_two_views()?;
                true
            }
            ViewPolicy::Automatic => arena.probe_two_views().is_ok(),
        };
        let pool = Arc::new(Pool { arena: ForkLock::new(arena), reserved });
        fork::watch(&pool)?;
        Ok(Self { pool })
    }

    /// The reserved addresses.
    pub fn reserved_range(&self) -> Range<ExecutorAddr> {
        let range = self.pool.reserved.range();
        ExecutorAddr::new(range.start as u64)..ExecutorAddr::new(range.end as u64)
    }

    /// Forgets every page table entry through which code was written, for use when linking pauses.
    ///
    /// # Cost
    /// One system call a slab; pages come back one by one when they are written again.
    pub fn trim(&self) {
        for slab in self.pool.arena.lock().slabs.values() {
            slab.forget_working_view();
        }
    }
}

impl MemoryManager for InProcessMemoryManager {
    fn allocate(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        let allocation = Allocation::take(&self.pool, owner, segments)?;
        Ok(InFlightAlloc::new(Box::new(allocation)))
    }

    fn usage(&self) -> MemoryUsage {
        self.pool.arena.lock().usage()
    }
}

impl fmt::Debug for InProcessMemoryManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessMemoryManager")
            .field("reserved", &self.reserved_range())
            .finish_non_exhaustive()
    }
}

/// What the manager and its allocations share. Dropped with the last of them.
pub(super) struct Pool {
    pub(super) arena: ForkLock<Arena>,
    /// Unmapped after `arena` has unmapped the working views: fields drop in order.
    reserved: ReservedRange,
}

fn whole_slabs(bytes: u64) -> Result<usize, MemoryError> {
    usize::try_from(bytes)
        .ok()
        .and_then(|bytes| bytes.max(SLAB_BYTES).checked_next_multiple_of(SLAB_ALIGN))
        .ok_or_else(|| MemoryError::Invalid {
            owner: "the memory manager".into(),
            what: "the reserved range is larger than the address space",
        })
}

fn reserve_what_is_granted() -> Result<ReservedRange, MemoryError> {
    let mut bytes = RESERVE_BYTES;
    loop {
        match ReservedRange::reserve(bytes) {
            Err(_) if bytes / 2 >= RESERVE_BYTES_MIN => bytes = (bytes / 2).next_multiple_of(SLAB_ALIGN),
            result => return result,
        }
    }
}
