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
//! the bottom. Where it does not fit, it is mapped elsewhere: code then reaches it through the GOT or with
//! `-mcmodel=large`, and a direct reference is a link error that says so.
//!
//! Code and constants lie in shared pages with two views (`mapping.rs`); nothing is `mprotect`ed per
//! object, and small objects share pages. Writable data is private and written in place. Where the second
//! view is refused, pages belong to one object and are `mprotect`ed when it is finalized.
//!
//! What is given back is recycled, zeroed before it is handed out again. A slab that becomes free as a
//! whole is unmapped, except for one spare of each kind.
//!
//! # Fork
//! Code and constants are shared with a child, and both see what either writes: after `fork` a child may run
//! what was linked before, but must not link more, and a parent that frees and reuses code changes it
//! under the child. Writable data is private to each. A child that goes on linking needs its code re-homed
//! first, which is not done here yet.
//!
//! # Locks
//! One lock a manager, held for bookkeeping and for the mapping of slabs; never while memory is zeroed, written or
//! read, and never while user code runs.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Mutex;

use super::arena::{Arena, Piece, SLAB_ALIGN, SLAB_BYTES};
use super::mapping::{self, ReservedRange};
use super::{
    Backing, InFlightAlloc, MemoryError, MemoryManager, MemoryUsage, SegmentBytes, SegmentKind,
    SegmentRequest,
};

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
    /// [`MemoryError::Reserve`] if the system grants no usable range.
    pub fn new() -> Result<Self, MemoryError> {
        Self::with_options(MemoryOptions::default())
    }

    /// Reserves a range as `options` say.
    ///
    /// # Errors
    /// [`MemoryError::Reserve`] if the system does not grant the range; [`MemoryError::Protect`] if two views are
    /// demanded and refused.
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
        Ok(Self { pool: Arc::new(Pool { arena: Mutex::new(arena), reserved }) })
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
        for request in segments {
            check(owner, request)?;
        }
        let mut allocation =
            Allocation { pool: Arc::clone(&self.pool), pieces: Vec::with_capacity(segments.len()) };
        {
            let mut arena = self.pool.arena.lock();
            arena.allocations += 1;
            for request in segments {
                match arena.take(owner, request) {
                    Ok(piece) => allocation.pieces.push(piece),
                    Err(error) => {
                        drop(arena);
                        return Err(error); // what was taken so far goes back with `allocation`
                    }
                }
            }
        }
        for piece in &allocation.pieces {
            piece.prepare();
        }
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
struct Pool {
    arena: Mutex<Arena>,
    /// Unmapped after `arena` has unmapped the working views: fields drop in order.
    reserved: ReservedRange,
}

struct Allocation {
    pool: Arc<Pool>,
    pieces: Vec<Piece>,
}

impl Backing for Allocation {
    fn address(&self, segment: usize) -> ExecutorAddr {
        ExecutorAddr::new(self.pieces[segment].range.start as u64)
    }

    fn working(&mut self, segment: usize) -> &mut [u8] {
        let piece = &self.pieces[segment];
        // SAFETY: the piece was taken out of the free ranges for this allocation alone, its working view is
        // mapped writable until the allocation is given back, and `&mut self` excludes a second borrow. Nothing
        // runs or reads the run view before `finalize` consumes the `InFlightAlloc`.
        unsafe { mapping::bytes_mut(piece.working, piece.content_bytes) }
    }

    fn finalize(&mut self) -> Result<(), MemoryError> {
        for piece in self.pieces.iter().filter(|piece| piece.protect) {
            mapping::protect(piece.range.start, piece.range.end - piece.range.start, piece.kind)?;
        }
        let mut arena = self.pool.arena.lock();
        for piece in self.pieces.iter().filter(|piece| piece.working != piece.range.start) {
            if let Some((_, slab)) = arena.slabs.range_mut(..=piece.range.start).next_back() {
                slab.settle();
            }
        }
        Ok(())
    }

    fn bytes(&self) -> SegmentBytes {
        let mut bytes = SegmentBytes::default();
        for piece in &self.pieces {
            *bytes.of_mut(piece.kind) += piece.range.len() as u64;
        }
        bytes
    }

    fn resident(&self) -> SegmentBytes {
        let mut bytes = SegmentBytes::default();
        for piece in &self.pieces {
            *bytes.of_mut(piece.kind) += mapping::resident_bytes(piece.range.start, piece.range.len());
        }
        bytes
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut arena = self.pool.arena.lock();
        for piece in self.pieces.iter().rev() {
            arena.give_back(piece);
        }
        arena.allocations = arena.allocations.saturating_sub(1);
    }
}

fn check(owner: &str, request: &SegmentRequest) -> Result<(), MemoryError> {
    let invalid = |what| Err(MemoryError::Invalid { owner: owner.into(), what });
    if !request.align.is_power_of_two() || request.align > 1 << 30 {
        return invalid("the alignment is not a power of two up to 1 GiB");
    }
    if request.zero_fill_bytes > 0 && request.kind != SegmentKind::Data {
        return invalid("only data segments have zero-fill");
    }
    match request.content_bytes.checked_add(request.zero_fill_bytes) {
        Some(total) if total < 1 << 46 => Ok(()),
        _ => invalid("the segment is larger than the address space"),
    }
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
