//! The bookkeeping of the in-process manager: which slabs there are, and what of them is free.
//!
//! Everything here happens under the manager's lock, [`Piece::prepare`] excepted. Slabs are mapped and unmapped
//! here; contents are never touched but by `prepare`.
//!
//! Each byte of the reserved range is in exactly one place: in `unmapped`, in the free ranges of its slab's kind,
//! or in a piece that was taken and not given back.

use std::collections::BTreeMap;
use std::ops::Range;

use super::free_ranges::FreeRanges;
use super::mapping::{self, PAGE_BYTES};
use super::slab::{Preparation, Slab};
use super::{MemoryError, MemoryUsage, SegmentBytes, SegmentKind, SegmentRequest};

/// A slab for many objects.
pub(super) const SLAB_BYTES: usize = 2 << 20;
/// Slabs start at multiples of this.
pub(super) const SLAB_ALIGN: usize = 64 << 10;
/// From here on an allocation has a slab of its own.
const OWN_SLAB_BYTES: usize = 512 << 10;
/// Smallest unit of allocation.
const GRAIN_BYTES: usize = 16;
/// From here on freed pages go back to the system at once rather than with their slab.
const DISCARD_BYTES: usize = 64 << 10;

/// The bookkeeping, under the lock.
#[derive(Debug)]
pub(super) struct Arena {
    pub(super) two_views: bool,
    range: Range<usize>,
    /// Parts of the reserved range without a slab.
    unmapped: FreeRanges,
    pub(super) slabs: BTreeMap<usize, Slab>,
    /// Free parts of the slabs of each kind.
    code: FreeRanges,
    read_only: FreeRanges,
    data: FreeRanges,
    /// A slab of each kind that is free as a whole and kept for the next object.
    spare: [Option<usize>; 3],
    allocated: SegmentBytes,
    pub(super) allocations: u64,
    slab_bytes: SegmentBytes,
}

/// One segment of an allocation.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) kind: SegmentKind,
    pub(super) range: Range<usize>,
    pub(super) working: usize,
    pub(super) content_bytes: usize,
    preparation: Preparation,
    /// Whether `mprotect` gives it its final protection.
    pub(super) protect: bool,
}

impl Arena {
    pub(super) fn new(range: Range<usize>) -> Self {
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
    pub(super) fn probe_two_views(&mut self) -> Result<(), MemoryError> {
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

    pub(super) fn take(&mut self, owner: &str, request: &SegmentRequest) -> Result<Piece, MemoryError> {
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

    pub(super) fn give_back(&mut self, piece: &Piece) {
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

    pub(super) fn usage(&self) -> MemoryUsage {
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
    pub(super) fn prepare(&self) {
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
