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

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Mutex;

use super::free_ranges::FreeRanges;
use super::mapping::{self, PAGE_BYTES, ReservedRange};
use super::slab::{Preparation, Slab};
use super::{
    Backing, InFlightAlloc, MemoryError, MemoryManager, MemoryUsage, SegmentBytes, SegmentKind,
    SegmentRequest,
};

/// The range that is reserved when nothing else is asked for.
const RESERVE_BYTES: usize = (2 << 30) - (16 << 20);
/// The least that is worth going on with where address space is limited.
const RESERVE_BYTES_MIN: usize = 64 << 20;
/// A slab for many objects.
const SLAB_BYTES: usize = 2 << 20;
/// From here on an allocation has a slab of its own.
const OWN_SLAB_BYTES: usize = 512 << 10;
/// Slabs start at multiples of this.
const SLAB_ALIGN: usize = 64 << 10;
/// Smallest unit of allocation.
const GRAIN_BYTES: usize = 16;
/// From here on freed pages go back to the system at once rather than with their slab.
const DISCARD_BYTES: usize = 64 << 10;

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

/// The bookkeeping, under the lock.
struct Arena {
    two_views: bool,
    range: Range<usize>,
    /// Parts of the reserved range without a slab.
    unmapped: FreeRanges,
    slabs: BTreeMap<usize, Slab>,
    /// Free parts of the slabs of each kind.
    code: FreeRanges,
    read_only: FreeRanges,
    data: FreeRanges,
    /// A slab of each kind that is free as a whole and kept for the next object.
    spare: [Option<usize>; 3],
    allocated: SegmentBytes,
    allocations: u64,
    slab_bytes: SegmentBytes,
}

/// One segment of an allocation.
#[derive(Clone, Debug)]
struct Piece {
    kind: SegmentKind,
    range: Range<usize>,
    working: usize,
    content_bytes: usize,
    preparation: Preparation,
    /// Whether `mprotect` gives it its final protection.
    protect: bool,
}

struct Allocation {
    pool: Arc<Pool>,
    pieces: Vec<Piece>,
}

impl Arena {
    fn new(range: Range<usize>) -> Self {
        let mut unmapped = FreeRanges::default();
        unmapped.give_back(range.clone(), &range);
        Self {
            two_views: true,
            range,
            unmapped,
            slabs: BTreeMap::new(),
            code: FreeRanges::default(),
            read_only: FreeRanges::default(),
            data: FreeRanges::default(),
            spare: [None; 3],
            allocated: SegmentBytes::default(),
            allocations: 0,
            slab_bytes: SegmentBytes::default(),
        }
    }

    /// Maps the first code slab, which shows whether two views are possible.
    fn probe_two_views(&mut self) -> Result<(), MemoryError> {
        let start =
            self.unmapped.take_highest(SLAB_ALIGN, SLAB_ALIGN).expect("a fresh range has room for a slab");
        let range = start..start + SLAB_ALIGN;
        let slab = Slab::map(range.clone(), SegmentKind::Code, true);
        let released = slab.and_then(|slab| slab.release());
        self.unmapped.give_back(range, &self.range);
        released
    }

    fn free_mut(&mut self, kind: SegmentKind) -> &mut FreeRanges {
        match kind {
            SegmentKind::Code => &mut self.code,
            SegmentKind::ReadOnly => &mut self.read_only,
            SegmentKind::Data => &mut self.data,
        }
    }

    fn take(&mut self, owner: &str, request: &SegmentRequest) -> Result<Piece, MemoryError> {
        let kind = request.kind;
        let own_pages = !self.two_views && kind != SegmentKind::Data;
        let grain = if own_pages { PAGE_BYTES } else { GRAIN_BYTES };
        let mut len = (request.content_bytes + request.zero_fill_bytes).max(1).next_multiple_of(grain);
        let align = request.align.max(grain);
        let start = if len >= OWN_SLAB_BYTES || align > SLAB_ALIGN {
            // Nobody shares its last page, so that the slab goes when the segment does.
            len = len.next_multiple_of(PAGE_BYTES);
            self.take_own_slab(owner, kind, len, align)?
        } else {
            match self.free_mut(kind).take(len, align) {
                Some(start) => start,
                None => {
                    self.add_slab(owner, kind, len)?;
                    self.free_mut(kind).take(len, align).expect("a fresh slab has room for a small segment")
                }
            }
        };
        *self.allocated.of_mut(kind) += len as u64;
        let range = start..start + len;
        let (&slab_start, slab) =
            self.slabs.range_mut(..=start).next_back().expect("taken memory lies in a slab");
        let preparation = slab.touch(&range);
        let piece = Piece {
            kind,
            working: slab.working_address(start),
            content_bytes: request.content_bytes,
            preparation,
            protect: slab.protects_in_place(),
            range,
        };
        let spare = &mut self.spare[kind as usize];
        if *spare == Some(slab_start) {
            *spare = None;
        }
        Ok(piece)
    }

    /// Maps another slab for small segments and adds it to the free memory.
    fn add_slab(&mut self, owner: &str, kind: SegmentKind, len: usize) -> Result<(), MemoryError> {
        // A range smaller than usual is used up in smaller slabs.
        let sizes = [SLAB_BYTES, OWN_SLAB_BYTES, SLAB_ALIGN];
        let found = sizes
            .into_iter()
            .filter(|&size| size >= len + SLAB_ALIGN || size == SLAB_BYTES)
            .find_map(|size| Some((self.unmapped.take_highest(size, SLAB_ALIGN)?, size)));
        let Some((start, size)) = found else {
            return Err(self.exhausted(owner, kind, len));
        };
        let range = start..start + size;
        let slab = self.map_slab(range.clone(), kind)?;
        self.insert_slab(slab);
        self.free_mut(kind).give_back(range.clone(), &range);
        Ok(())
    }

    /// Maps a slab for one segment of whole pages alone.
    fn take_own_slab(
        &mut self,
        owner: &str,
        kind: SegmentKind,
        len: usize,
        align: usize,
    ) -> Result<usize, MemoryError> {
        let align = align.max(PAGE_BYTES);
        let start = match kind {
            SegmentKind::Data => self.unmapped.take_lowest(len, align),
            _ => self.unmapped.take_highest(len, align),
        };
        let slab = match start {
            Some(start) => self.map_slab(start..start + len, kind)?,
            None if kind == SegmentKind::Data && align <= PAGE_BYTES => {
                let hint = self.range.start.saturating_sub(len) & !(PAGE_BYTES - 1);
                Slab::map_elsewhere(hint, len).map_err(|_| self.exhausted(owner, kind, len))?
            }
            None => return Err(self.exhausted(owner, kind, len)),
        };
        let start = slab.range().start;
        self.insert_slab(slab);
        Ok(start)
    }

    fn map_slab(&mut self, range: Range<usize>, kind: SegmentKind) -> Result<Slab, MemoryError> {
        Slab::map(range.clone(), kind, self.two_views).inspect_err(|_| {
            self.unmapped.give_back(range, &self.range);
        })
    }

    fn insert_slab(&mut self, slab: Slab) {
        *self.slab_bytes.of_mut(slab.kind()) += (slab.range().end - slab.range().start) as u64;
        self.slabs.insert(slab.range().start, slab);
    }

    fn give_back(&mut self, piece: &Piece) {
        *self.allocated.of_mut(piece.kind) -= (piece.range.end - piece.range.start) as u64;
        let (&slab_start, slab) = self
            .slabs
            .range_mut(..=piece.range.start)
            .next_back()
            .expect("what is given back lies in a slab");
        let bounds = slab.range().clone();
        if piece.protect
            && mapping::make_writable(piece.range.start, piece.range.end - piece.range.start).is_err()
        {
            // The system cannot split the mapping: the pages stay as they are and are not used again.
            return;
        }
        let large = piece.range.end - piece.range.start >= DISCARD_BYTES;
        if large && piece.range != bounds {
            slab.discard(&piece.range);
        }
        let joined = self.free_mut(piece.kind).give_back(piece.range.clone(), &bounds);
        if joined == bounds {
            self.retire(slab_start);
        }
    }

    /// Unmaps a slab that is free as a whole, or keeps it as the spare of its kind.
    fn retire(&mut self, slab_start: usize) {
        let slab = self.slabs.get_mut(&slab_start).expect("the slab was just used");
        let (kind, range) = (slab.kind(), slab.range().clone());
        let ordinary = range.end - range.start == SLAB_BYTES && slab.is_reserved();
        if ordinary && self.spare[kind as usize].is_none() {
            if slab.touched_bytes() > DISCARD_BYTES {
                slab.discard(&range);
            }
            self.spare[kind as usize] = Some(slab_start);
            return;
        }
        if slab.release().is_err() {
            return; // Still mapped and free: it serves the next objects of its kind.
        }
        let reserved = slab.is_reserved();
        self.slabs.remove(&slab_start);
        *self.slab_bytes.of_mut(kind) -= (range.end - range.start) as u64;
        self.free_mut(kind).withdraw(&range);
        if reserved {
            let bounds = self.range.clone();
            self.unmapped.give_back(range, &bounds);
        }
    }

    fn exhausted(&self, owner: &str, kind: SegmentKind, len: usize) -> MemoryError {
        let used =
            self.slabs.values().filter(|slab| slab.is_reserved()).map(|slab| slab.range().len() as u64).sum();
        MemoryError::Exhausted {
            owner: owner.into(),
            kind,
            size_bytes: len as u64,
            used_bytes: used,
            reserved_bytes: self.range.len() as u64,
        }
    }

    fn usage(&self) -> MemoryUsage {
        let mut usage = MemoryUsage {
            reserved_bytes: self.range.len() as u64,
            allocations: self.allocations,
            ..MemoryUsage::default()
        };
        for kind in [SegmentKind::Code, SegmentKind::ReadOnly, SegmentKind::Data] {
            usage.of_mut(kind).allocated_bytes = self.allocated.of(kind);
            usage.of_mut(kind).slab_bytes = self.slab_bytes.of(kind);
        }
        for slab in self.slabs.values() {
            usage.of_mut(slab.kind()).resident_bytes += slab.resident_bytes();
        }
        usage
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for slab in self.slabs.values() {
            if slab.is_reserved() {
                slab.release_working_view();
            } else {
                // Unmapping a range of its own cannot run out of mappings.
                let _ = slab.release();
            }
        }
    }
}

impl Piece {
    /// Removes old contents. The piece is ours and not handed out yet, so no lock is needed.
    fn prepare(&self) {
        let Preparation { dirty_bytes, populate } = &self.preparation;
        if !populate.is_empty() {
            mapping::populate(populate.start, populate.len());
        }
        if *dirty_bytes == 0 {
            return;
        }
        let end = self.working + dirty_bytes;
        let (first_page, last_page) = (self.working.next_multiple_of(PAGE_BYTES), end & !(PAGE_BYTES - 1));
        let whole_pages =
            self.kind == SegmentKind::Data && last_page.saturating_sub(first_page) >= DISCARD_BYTES;
        if whole_pages && mapping::discard_pages(first_page, last_page - first_page, false) {
            mapping::zero(self.working, first_page - self.working);
            mapping::zero(last_page, end - last_page);
        } else {
            mapping::zero(self.working, *dirty_bytes);
        }
    }
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
