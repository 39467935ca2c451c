//! The bookkeeping of the in-process manager: which slabs there are, and what of them is free.
//!
//! Everything here happens under the manager's lock. Slabs are mapped and unmapped here; contents are not touched.
//!
//! Each byte of the common range is in exactly one place: in `unmapped`, in the free ranges of its slab's kind, in a
//! piece that was taken and not given back, or withheld in its slab. Slabs outside of the common range belong to one
//! piece each (`aside.rs`).
//!
//! # After a fork
//! Two processes see the pages of code and constants (`fork.rs`). What was in use then stays as it is on both sides:
//! given back, it is neither overwritten nor freed but withheld, until its slab is unused as a whole and can be unmapped,
//! which the other side does not notice. What was free then stays the parent's; the child links into slabs of its own.

use std::collections::BTreeMap;
use std::ops::Range;

use super::aside;
use super::free_ranges::FreeRanges;
use super::mapping::{self, PAGE_BYTES};
use super::piece::{DISCARD_BYTES, Piece};
use super::slab::Slab;
use super::{MemoryError, MemoryUsage, SegmentBytes, SegmentKind, SegmentRequest};

/// A slab for many objects.
pub(super) const SLAB_BYTES: usize = 2 << 20;
/// Slabs start at multiples of this.
pub(super) const SLAB_ALIGN: usize = 64 << 10;
/// From here on an allocation has a slab of its own.
const OWN_SLAB_BYTES: usize = 512 << 10;
/// Smallest unit of allocation.
const GRAIN_BYTES: usize = 16;

/// The bookkeeping, under the lock.
#[derive(Debug)]
pub(super) struct Arena {
    pub(super) two_views: bool,
    range: Range<usize>,
    /// Parts of the common range without a slab.
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
            SegmentKind::Data | SegmentKind::FarData => &mut self.data,
        }
    }

    /// Takes a piece for each of `requests`, all in the common range, or, where data does not fit there, all in a
    /// range of their own. On an error nothing is taken.
    pub(super) fn take_all(
        &mut self,
        owner: &str,
        requests: &[SegmentRequest],
    ) -> Result<Vec<Piece>, MemoryError> {
        let mut pieces = Vec::with_capacity(requests.len());
        for request in requests {
            match self.take(owner, request) {
                Ok(piece) => pieces.push(piece),
                Err(error) => {
                    pieces.iter().rev().for_each(|piece| self.give_back(piece));
                    return match error {
                        MemoryError::Exhausted { kind: SegmentKind::Data, .. } if wants_own_slab(request) => {
                            self.take_aside(owner, requests)
                        }
                        error => Err(error),
                    };
                }
            }
        }
        Ok(pieces)
    }

    fn take(&mut self, owner: &str, request: &SegmentRequest) -> Result<Piece, MemoryError> {
        let kind = request.kind.near();
        let own_pages = !self.two_views && kind != SegmentKind::Data;
        let grain = if own_pages { PAGE_BYTES } else { GRAIN_BYTES };
        let mut len = request.total_bytes().max(1).next_multiple_of(grain);
        let align = request.align.max(grain);
        let start = if wants_own_slab(request) {
            if request.kind == SegmentKind::FarData {
                // The room that code reaches is for what needs to be reached.
                let pieces = self.take_aside(owner, std::slice::from_ref(request))?;
                return Ok(pieces.into_iter().next().expect("one request has one piece"));
            }
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
        Ok(self.hand_out(start..start + len, request.content_bytes))
    }

    fn take_aside(&mut self, owner: &str, requests: &[SegmentRequest]) -> Result<Vec<Piece>, MemoryError> {
        let slabs = aside::map(owner, requests, self.two_views)?;
        let ranges: Vec<_> = slabs.iter().map(|slab| slab.range().clone()).collect();
        slabs.into_iter().for_each(|slab| self.insert_slab(slab));
        Ok(ranges
            .into_iter()
            .zip(requests)
            .map(|(range, request)| self.hand_out(range, request.content_bytes))
            .collect())
    }

    /// Makes a piece of what has been taken out of the free ranges.
    fn hand_out(&mut self, range: Range<usize>, content_bytes: usize) -> Piece {
        let (slab_start, slab) = slab_of(&mut self.slabs, range.start);
        let preparation = slab.touch(&range);
        let piece = Piece {
            kind: slab.kind(),
            working: slab.working_address(range.start),
            content_bytes,
            preparation,
            protect: slab.protects_in_place(),
            range,
        };
        *self.allocated.of_mut(piece.kind) += piece.range.len() as u64;
        let spare = &mut self.spare[piece.kind as usize];
        if *spare == Some(slab_start) {
            *spare = None;
        }
        piece
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
        let start = start.ok_or_else(|| self.exhausted(owner, kind, len))?;
        let slab = self.map_slab(start..start + len, kind)?;
        self.insert_slab(slab);
        Ok(start)
    }

    fn map_slab(&mut self, range: Range<usize>, kind: SegmentKind) -> Result<Slab, MemoryError> {
        Slab::map(range.clone(), kind, self.two_views).inspect_err(|_| {
            self.unmapped.give_back(range, &self.range);
        })
    }

    fn insert_slab(&mut self, slab: Slab) {
        *self.slab_bytes.of_mut(slab.kind()) += slab.range().len() as u64;
        self.slabs.insert(slab.range().start, slab);
    }

    pub(super) fn give_back(&mut self, piece: &Piece) {
        *self.allocated.of_mut(piece.kind) -= piece.range.len() as u64;
        let (slab_start, slab) = slab_of(&mut self.slabs, piece.range.start);
        let bounds = slab.range().clone();
        if piece.protect && mapping::make_writable(piece.range.start, piece.range.len()).is_err() {
            // The system cannot split the mapping: the pages stay as they are and are not used again.
            return;
        }
        slab.leave(piece.range.len());
        if slab.is_inherited() {
            slab.withhold(piece.range.len());
            if slab.is_unused() {
                self.leave_to_other_side(slab_start);
            }
            return;
        }
        if piece.range.len() >= DISCARD_BYTES && piece.range != bounds {
            slab.discard(&piece.range);
        }
        let joined = self.free_mut(piece.kind).give_back(piece.range.clone(), &bounds);
        if joined == bounds {
            self.retire(slab_start);
        }
    }

    /// Unmaps a slab that is free as a whole, or keeps it as the spare of its kind.
    fn retire(&mut self, slab_start: usize) {
        let (_, slab) = slab_of(&mut self.slabs, slab_start);
        let (kind, range) = (slab.kind(), slab.range().clone());
        let ordinary = range.len() == SLAB_BYTES && slab.is_reserved();
        if ordinary && self.spare[kind as usize].is_none() {
            if slab.touched_bytes() > DISCARD_BYTES {
                slab.discard(&range);
            }
            self.spare[kind as usize] = Some(slab_start);
            return;
        }
        if self.unmap_slab(slab_start) {
            self.free_mut(kind).withdraw(&range);
        }
    }

    /// Unmaps a slab that nobody uses. Where the system refuses, it stays mapped and in what state it was.
    fn unmap_slab(&mut self, slab_start: usize) -> bool {
        let (_, slab) = slab_of(&mut self.slabs, slab_start);
        if slab.release().is_err() {
            return false;
        }
        let (kind, range, reserved) = (slab.kind(), slab.range().clone(), slab.is_reserved());
        self.slabs.remove(&slab_start);
        *self.slab_bytes.of_mut(kind) -= range.len() as u64;
        if reserved {
            self.unmapped.give_back(range, &self.range);
        }
        true
    }

    /// Forgets the working view of what is finalized, where that is worth it.
    pub(super) fn settle(&mut self, piece: &Piece) {
        slab_of(&mut self.slabs, piece.range.start).1.settle();
    }

    /// Notes a fork, in the process that goes on: what is in use now belongs to the child too.
    pub(super) fn note_fork_in_parent(&mut self) {
        self.slabs.values_mut().for_each(Slab::inherit);
    }

    /// Notes a fork, in the new process: what was free in shared pages is the parent's.
    pub(super) fn note_fork_in_child(&mut self) {
        if !self.two_views {
            return; // Every page is private and each side has its own.
        }
        self.slabs.values_mut().for_each(Slab::inherit);
        for kind in [SegmentKind::Code, SegmentKind::ReadOnly] {
            let starts: Vec<_> = self
                .slabs
                .values()
                .filter(|slab| slab.kind() == kind)
                .map(|slab| slab.range().start)
                .collect();
            starts.into_iter().for_each(|start| self.leave_to_other_side(start));
            self.spare[kind as usize] = None;
        }
    }

    /// Takes what is free in a slab out of use, and unmaps the slab if nothing in it is in use.
    fn leave_to_other_side(&mut self, slab_start: usize) {
        let (_, slab) = slab_of(&mut self.slabs, slab_start);
        let (kind, range, unused) = (slab.kind(), slab.range().clone(), slab.is_unused());
        let free_bytes = self.free_mut(kind).withdraw(&range);
        slab_of(&mut self.slabs, slab_start).1.withhold(free_bytes);
        if unused {
            self.unmap_slab(slab_start);
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
        let aside =
            self.slabs.values().filter(|slab| !slab.is_reserved()).map(|slab| slab.range().len() as u64);
        let mut usage = MemoryUsage {
            reserved_bytes: self.range.len() as u64 + aside.sum::<u64>(),
            allocations: self.allocations,
            ..MemoryUsage::default()
        };
        for kind in [SegmentKind::Code, SegmentKind::ReadOnly, SegmentKind::Data] {
            usage.of_mut(kind).allocated_bytes = self.allocated.of(kind);
            usage.of_mut(kind).slab_bytes = self.slab_bytes.of(kind);
        }
        for slab in self.slabs.values() {
            usage.of_mut(slab.kind()).resident_bytes += slab.resident_bytes();
            usage.of_mut(slab.kind()).withheld_bytes += slab.withheld_bytes() as u64;
        }
        usage
    }
}

const fn wants_own_slab(request: &SegmentRequest) -> bool {
    request.total_bytes() >= OWN_SLAB_BYTES || request.align > SLAB_ALIGN
}

/// The slab that memory at `address` was taken from, and where it starts.
fn slab_of(slabs: &mut BTreeMap<usize, Slab>, address: usize) -> (usize, &mut Slab) {
    let (start, slab) = slabs.range_mut(..=address).next_back().expect("taken memory lies in a slab");
    (*start, slab)
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
