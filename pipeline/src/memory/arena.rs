//! One range of the in-process manager: its slabs, and its free parts.
//!
//! Everything here happens under the manager's lock. Slabs are mapped and unmapped here; contents are not touched.
//!
//! Each byte of the range is in exactly one place: in `unmapped`, in the free ranges of its slab's kind, in a
//! piece that was taken and not given back, or withheld in its slab.
//!
//! # After a fork
//! Two processes see the pages of code and constants (`fork.rs`). A piece that was in use at the fork keeps its bytes on both sides: when
//! it is given back, it is withheld, neither overwritten nor freed. Once its whole slab is unused, the slab is unmapped; the other side
//! does not notice. Memory that was free at the fork stays the parent's; the child links into slabs of its own.

use std::collections::BTreeMap;
use std::ops::Range;

use super::free_ranges::FreeRanges;
use super::mapping::{self, PAGE_BYTES, ReservedRange};
use super::piece::{DISCARD_BYTES, Piece};
use super::places::FileStretch;
use super::slab::{Slab, Views};
use super::window::Window;
use super::{MemoryError, SegmentKind, SegmentRequest};

/// A slab for many objects. That of a small range is smaller, so that there is room for all kinds.
pub(super) const SLAB_BYTES: usize = 2 << 20;
/// Slabs start at multiples of this.
pub(super) const SLAB_ALIGN: usize = 64 << 10;
/// A slab of a small range.
const SLAB_BYTES_MIN: usize = 2 * SLAB_ALIGN;
/// A segment of this part of a slab has a slab of its own.
const OWN_SLAB_PART: usize = 4;
/// Smallest unit of allocation.
const GRAIN_BYTES: usize = 16;

/// The bookkeeping of one range, under the lock.
#[derive(Debug)]
pub(super) struct Arena {
    views: Views,
    range: Range<usize>,
    /// Size of a slab for many objects.
    slab_bytes: usize,
    /// Parts of the range without a slab.
    unmapped: FreeRanges,
    /// Parts that are for one program, and come first.
    window: Option<Window>,
    slabs: BTreeMap<usize, Slab>,
    /// Free parts of the slabs of each kind.
    code: FreeRanges,
    read_only: FreeRanges,
    data: FreeRanges,
    /// A slab of each kind that is free as a whole and kept for the next object.
    spare: [Option<usize>; 3],
    /// Pieces that were taken and not given back.
    pieces: u64,
    /// Unmapped after `drop` has unmapped the working views.
    _reserved: ReservedRange,
}

/// Why a range has no piece for a segment.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It has no room; another range may have.
    Full { kind: SegmentKind, size_bytes: usize },
    /// The operating system refused.
    Failed(MemoryError),
}

impl From<MemoryError> for Refusal {
    fn from(error: MemoryError) -> Self {
        Self::Failed(error)
    }
}

impl Arena {
    pub(super) fn new(reserved: ReservedRange, views: Views) -> Self {
        let range = reserved.range();
        let mut unmapped = FreeRanges::default();
        unmapped.give_back(range.clone(), &range);
        let slab_bytes = ((range.len() / 16) & !(SLAB_ALIGN - 1)).clamp(SLAB_BYTES_MIN, SLAB_BYTES);
        Self {
            views,
            range,
            slab_bytes,
            unmapped,
            window: None,
            slabs: BTreeMap::new(),
            code: FreeRanges::default(),
            read_only: FreeRanges::default(),
            data: FreeRanges::default(),
            spare: [None; 3],
            pieces: 0,
            _reserved: reserved,
        }
    }

    /// Its addresses.
    pub(super) const fn range(&self) -> &Range<usize> {
        &self.range
    }

    /// Whether no piece of it is in use.
    pub(super) const fn is_unused(&self) -> bool {
        self.pieces == 0
    }

    /// Keeps a window for a program, if the range is large enough.
    ///
    /// # Errors
    /// As [`Window::take`].
    pub(super) fn keep_window(&mut self) -> Result<(), MemoryError> {
        self.window = Window::take(&mut self.unmapped, self.range.len())?;
        Ok(())
    }

    /// Takes addresses for a file: of the window, if there is one that has them, or of the free part, which is near to libraries too. A file that would
    /// take up much of that goes elsewhere.
    pub(super) fn take_file(&mut self, stretch: &FileStretch<'_>) -> Option<usize> {
        let in_window = self.window.as_mut().and_then(|window| window.take_file(stretch));
        let start = match in_window {
            Some(start) => start,
            None if stretch.size_bytes > self.range.len() / 4 => return None,
            None => self.unmapped.take_highest(stretch.size_bytes, stretch.align)?,
        };
        self.pieces += 1;
        Some(start)
    }

    /// Takes back the addresses of a file, at which nothing is used any more.
    pub(super) fn give_back_file(&mut self, range: Range<usize>) {
        self.pieces -= 1;
        // Pages that the system does not take back stay out of use.
        if mapping::map_nothing(range.start, range.len()).is_ok() {
            self.give_back_unmapped(range);
        }
    }

    /// The window, if there is one.
    pub(super) const fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }

    /// Sets how slabs are mapped from here on, after mapping one that way, which shows whether it is possible.
    ///
    /// # Errors
    /// [`MemoryError::Protect`] if it is not; slabs are mapped as before then.
    pub(super) fn set_views(&mut self, views: Views) -> Result<(), MemoryError> {
        let start =
            self.unmapped.take_highest(SLAB_ALIGN, SLAB_ALIGN).expect("a fresh range has room for a slab");
        let range = start..start + SLAB_ALIGN;
        let slab = Slab::map(range.clone(), SegmentKind::Code, views);
        let released = slab.and_then(|slab| slab.release());
        self.unmapped.give_back(range, &self.range);
        released.map(|()| self.views = views)
    }

    /// How slabs are mapped.
    pub(super) const fn views(&self) -> Views {
        self.views
    }

    fn free_mut(&mut self, kind: SegmentKind) -> &mut FreeRanges {
        match kind {
            SegmentKind::Code => &mut self.code,
            SegmentKind::ReadOnly => &mut self.read_only,
            SegmentKind::Data | SegmentKind::FarData => &mut self.data,
        }
    }

    /// Takes a piece for `request`.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is taken.
    pub(super) fn take(&mut self, request: &SegmentRequest) -> Result<Piece, Refusal> {
        let kind = request.kind.near();
        let own_pages = self.views == Views::One && kind != SegmentKind::Data;
        let grain = if own_pages { PAGE_BYTES } else { GRAIN_BYTES };
        let mut len = request.total_bytes().max(1).next_multiple_of(grain);
        let align = request.align.max(grain);
        let start = if wants_own_slab(request, self.slab_bytes) {
            // The slab shares its last page with no other segment, so that the slab goes when the segment does.
            len = len.next_multiple_of(PAGE_BYTES);
            self.take_own_slab(kind, len, align)?
        } else {
            match self.free_mut(kind).take(len, align) {
                Some(start) => start,
                None => {
                    self.add_slab(kind, len)?;
                    self.free_mut(kind).take(len, align).expect("a fresh slab has room for a small segment")
                }
            }
        };
        Ok(self.hand_out(start..start + len, request.content_bytes))
    }

    /// Makes a piece of a range that has been taken out of the free ranges.
    fn hand_out(&mut self, range: Range<usize>, content_bytes: usize) -> Piece {
        let (slab_start, slab) = slab_of(&mut self.slabs, range.start);
        let piece = slab.hand_out(range, content_bytes);
        self.pieces += 1;
        let spare = &mut self.spare[piece.kind as usize];
        if *spare == Some(slab_start) {
            *spare = None;
        }
        piece
    }

    /// Maps another slab for small segments and adds it to the free memory.
    fn add_slab(&mut self, kind: SegmentKind, len: usize) -> Result<(), Refusal> {
        // The end of a range is used up in smaller slabs.
        let sizes = [self.slab_bytes, SLAB_BYTES_MIN];
        let found = sizes
            .into_iter()
            .filter(|&size| size >= len + SLAB_ALIGN)
            .find_map(|size| Some((self.take_unmapped(kind, size, SLAB_ALIGN)?, size)));
        let (start, size) = found.ok_or(Refusal::Full { kind, size_bytes: len })?;
        let range = start..start + size;
        self.map_slab(range.clone(), kind)?;
        self.free_mut(kind).give_back(range.clone(), &range);
        Ok(())
    }

    /// Maps a slab for one segment of whole pages alone.
    fn take_own_slab(&mut self, kind: SegmentKind, len: usize, align: usize) -> Result<usize, Refusal> {
        let align = align.max(PAGE_BYTES);
        let in_window = self.window.as_mut().and_then(|window| window.take_slab(kind, len, align));
        let start = in_window.or_else(|| match kind {
            SegmentKind::Data => self.unmapped.take_lowest(len, align),
            _ => self.unmapped.take_highest(len, align),
        });
        let start = start.ok_or(Refusal::Full { kind, size_bytes: len })?;
        self.map_slab(start..start + len, kind)?;
        Ok(start)
    }

    /// Takes addresses for a slab of the usual kind.
    fn take_unmapped(&mut self, kind: SegmentKind, len: usize, align: usize) -> Option<usize> {
        let in_window = self.window.as_mut().and_then(|window| window.take_slab(kind, len, align));
        in_window.or_else(|| self.unmapped.take_highest(len, align))
    }

    fn give_back_unmapped(&mut self, range: Range<usize>) {
        if !self.window.as_mut().is_some_and(|window| window.give_back(&range)) {
            self.unmapped.give_back(range, &self.range);
        }
    }

    fn map_slab(&mut self, range: Range<usize>, kind: SegmentKind) -> Result<(), MemoryError> {
        let slab = Slab::map(range.clone(), kind, self.views)
            .inspect_err(|_| self.give_back_unmapped(range.clone()))?;
        self.slabs.insert(range.start, slab);
        Ok(())
    }

    pub(super) fn give_back(&mut self, piece: &Piece) {
        self.pieces -= 1;
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
        let ordinary = range.len() == self.slab_bytes;
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

    /// Unmaps an unused slab. If the system refuses, the slab stays mapped and its state does not change.
    fn unmap_slab(&mut self, slab_start: usize) -> bool {
        let (_, slab) = slab_of(&mut self.slabs, slab_start);
        if slab.release().is_err() {
            return false;
        }
        let range = slab.range().clone();
        self.slabs.remove(&slab_start);
        self.give_back_unmapped(range);
        true
    }

    /// Forgets the working view of finalized pieces, where that is worth it.
    pub(super) fn settle(&mut self, piece: &Piece) {
        slab_of(&mut self.slabs, piece.range.start).1.settle();
    }

    /// Notes a fork, in the process that goes on: pieces that are in use now belong to the child too.
    pub(super) fn note_fork_in_parent(&mut self) {
        self.slabs.values_mut().for_each(Slab::inherit);
    }

    /// Notes a fork, in the new process: free memory in shared pages is the parent's.
    pub(super) fn note_fork_in_child(&mut self) {
        if self.views == Views::One {
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

    /// Its slabs, each of which it keeps.
    pub(super) fn slabs(&self) -> impl Iterator<Item = &Slab> {
        self.slabs.values()
    }
}

/// Whether a segment is too large to share a slab of the usual size with others.
pub(super) const fn is_large(request: &SegmentRequest) -> bool {
    wants_own_slab(request, SLAB_BYTES)
}

const fn wants_own_slab(request: &SegmentRequest, slab_bytes: usize) -> bool {
    request.total_bytes() >= slab_bytes / OWN_SLAB_PART || request.align > SLAB_ALIGN
}

/// The slab that memory at `address` was taken from, and where it starts.
fn slab_of(slabs: &mut BTreeMap<usize, Slab>, address: usize) -> (usize, &mut Slab) {
    let (start, slab) = slabs.range_mut(..=address).next_back().expect("taken memory lies in a slab");
    (*start, slab)
}

impl Drop for Arena {
    fn drop(&mut self) {
        // The run views go with the range.
        self.slabs.values().for_each(Slab::release_working_view);
    }
}
