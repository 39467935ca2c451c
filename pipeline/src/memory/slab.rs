//! A slab: a stretch of a reserved range with one kind of memory, and its two views.
//!
//! A slab knows where its views are, how far it has been used and how much of it is in use. Which bytes of it are
//! free is `arena.rs`'s business, through `free_ranges.rs`.

use std::ops::Range;

use super::mapping::{self, PAGE_BYTES};
use super::piece::Piece;
use super::{MemoryError, SegmentKind};

/// How slabs of code and constants are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Views {
    /// Two views of anonymous shared pages.
    Anonymous,
    /// Two views of a file in memory. Slower to name for profilers, but neither view ever changes its protection.
    File,
    /// One view, protected by `mprotect`.
    One,
}

/// How a slab's pages can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlabAccess {
    /// Shared pages with a second, writable view at this address.
    TwoViews { working: usize },
    /// Private pages written in place; constants and code are protected by `mprotect` when finalized.
    InPlace,
}

/// One mapped stretch of memory of one kind.
#[derive(Debug)]
pub(super) struct Slab {
    kind: SegmentKind,
    range: Range<usize>,
    access: SlabAccess,
    /// Whether its addresses belong to the range of an arena, or to the slab alone.
    reserved: bool,
    /// Bytes in pieces that were taken and not given back.
    live_bytes: usize,
    /// Whether a process on the other side of a `fork` uses its pages too.
    inherited: bool,
    /// Bytes that are not in use and never will be again, on account of that process.
    withheld_bytes: usize,
    /// Everything from here on has never been handed out and still reads as zeros.
    touched_end: usize,
    /// The working view has been forgotten up to here.
    settled_end: usize,
    /// The working view has been filled with pages up to here.
    populated_end: usize,
}

/// The steps that a piece of a slab needs before it can be handed out; done without the manager's lock.
#[derive(Clone, Debug)]
pub(super) struct Preparation {
    /// How many of its first bytes may hold old contents.
    pub(super) dirty_bytes: usize,
    /// A part of the working view that is about to be written for the first time.
    pub(super) populate: Range<usize>,
    /// Whether the working view is filled with pages only where a write is announced: a piece that has a slab of its own
    /// may be mostly padding.
    pub(super) populate_announced: bool,
}

/// How many bytes of a working view are filled with pages at once. One call for sixteen pages instead of as
/// many page faults: writing and calling objects in a row went from 4.5 to 3.5 µs for 4 KiB, from 0.52 to 0.38 for 256 bytes.
const POPULATE_BYTES: usize = 64 * 1024;

/// How much of a working view must have been filled before it is worth a system call to forget it.
const SETTLE_BYTES: usize = 64 * 1024;

impl Slab {
    /// Maps a slab at `range` of the range of an arena.
    pub(super) fn map(range: Range<usize>, kind: SegmentKind, views: Views) -> Result<Self, MemoryError> {
        Self::map_in(range, kind, views, true)
    }

    /// Maps a slab at reserved addresses that are its own from then on.
    pub(super) fn map_aside(
        range: Range<usize>,
        kind: SegmentKind,
        views: Views,
    ) -> Result<Self, MemoryError> {
        Self::map_in(range, kind, views, false)
    }

    fn map_in(
        range: Range<usize>,
        kind: SegmentKind,
        views: Views,
        reserved: bool,
    ) -> Result<Self, MemoryError> {
        let len = range.end - range.start;
        let access = match views {
            Views::Anonymous if kind != SegmentKind::Data => {
                SlabAccess::TwoViews { working: mapping::map_two_views(range.start, len, kind)? }
            }
            Views::File if kind != SegmentKind::Data => {
                SlabAccess::TwoViews { working: mapping::map_file_views(range.start, len, kind)? }
            }
            _ => {
                mapping::map_private(range.start, len)?;
                SlabAccess::InPlace
            }
        };
        Ok(Self::new(range, kind, access, reserved))
    }

    fn new(range: Range<usize>, kind: SegmentKind, access: SlabAccess, reserved: bool) -> Self {
        let start = range.start;
        Self {
            kind,
            range,
            access,
            reserved,
            live_bytes: 0,
            inherited: false,
            withheld_bytes: 0,
            touched_end: start,
            settled_end: start,
            populated_end: start,
        }
    }

    /// Its addresses.
    pub(super) const fn range(&self) -> &Range<usize> {
        &self.range
    }

    /// The kind of its contents.
    pub(super) const fn kind(&self) -> SegmentKind {
        self.kind
    }

    /// Makes a piece of an unused part of the slab.
    pub(super) fn hand_out(&mut self, range: Range<usize>, content_bytes: usize) -> Piece {
        Piece {
            kind: self.kind,
            working: self.working_address(range.start),
            content_bytes,
            preparation: self.touch(&range),
            protect: self.protects_in_place(),
            range,
        }
    }

    /// Whether its pieces need `mprotect` when they are finalized.
    fn protects_in_place(&self) -> bool {
        self.access == SlabAccess::InPlace && self.kind != SegmentKind::Data
    }

    /// Where the byte at `address` can be written.
    const fn working_address(&self, address: usize) -> usize {
        match self.access {
            SlabAccess::TwoViews { working } => working + (address - self.range.start),
            SlabAccess::InPlace => address,
        }
    }

    /// Whether nothing of it is in use.
    pub(super) const fn is_unused(&self) -> bool {
        self.live_bytes == 0
    }

    /// Notes that `len` bytes are not in use any more.
    pub(super) fn leave(&mut self, len: usize) {
        self.live_bytes -= len;
    }

    /// Notes that the process has forked and both sides go on using what is in use now. Private pages are each
    /// side's own from then on; the shared pages behind two views are not.
    pub(super) fn inherit(&mut self) {
        self.inherited |= matches!(self.access, SlabAccess::TwoViews { .. }) && !self.is_unused();
    }

    /// Notes that `len` bytes of it are out of use for good.
    pub(super) fn withhold(&mut self, len: usize) {
        self.withheld_bytes += len;
    }

    /// Bytes in pieces that were taken and not given back.
    pub(super) const fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// How much of it is out of use for good.
    pub(super) const fn withheld_bytes(&self) -> usize {
        self.withheld_bytes
    }

    /// Whether what was in use at a `fork` must stay as it was then, because another process may read it.
    pub(super) const fn is_inherited(&self) -> bool {
        self.inherited
    }

    /// Notes that `taken` is handed out; answers what has to be done to it before that.
    fn touch(&mut self, taken: &Range<usize>) -> Preparation {
        let dirty_bytes = self.touched_end.clamp(taken.start, taken.end) - taken.start;
        self.touched_end = self.touched_end.max(taken.end);
        self.live_bytes += taken.len();
        let mut populate = 0..0;
        let has_two_views = matches!(self.access, SlabAccess::TwoViews { .. });
        let populate_announced = has_two_views && *taken == self.range;
        if populate_announced {
            self.populated_end = taken.end;
        }
        if let SlabAccess::TwoViews { working } = self.access
            && taken.end > self.populated_end
        {
            let from = self.populated_end.max(taken.start & !(PAGE_BYTES - 1));
            self.populated_end = taken.end.next_multiple_of(POPULATE_BYTES).min(self.range.end);
            populate = working + (from - self.range.start)..working + (self.populated_end - self.range.start);
        }
        Preparation { dirty_bytes, populate, populate_announced }
    }

    /// Forgets the part of the working view that has been filled, unless it is too little to be worth it.
    pub(super) fn settle(&mut self) {
        if let SlabAccess::TwoViews { working } = self.access {
            let whole = self.touched_end == self.range.end;
            let end = if whole { self.range.end } else { self.touched_end & !(SETTLE_BYTES - 1) };
            if end > self.settled_end {
                mapping::forget_view(working + (self.settled_end - self.range.start), end - self.settled_end);
                self.settled_end = end;
            }
        }
    }

    /// Forgets all of the working view. Later writes bring pages back one by one.
    pub(super) fn forget_working_view(&self) {
        if let SlabAccess::TwoViews { working } = self.access {
            mapping::forget_view(working, self.touched_end.next_multiple_of(PAGE_BYTES) - self.range.start);
        }
    }

    /// Frees the whole pages inside `free`, which is unused.
    pub(super) fn discard(&mut self, free: &Range<usize>) {
        let start = free.start.next_multiple_of(PAGE_BYTES);
        let end = free.end & !(PAGE_BYTES - 1);
        if start >= end {
            return;
        }
        let shared = matches!(self.access, SlabAccess::TwoViews { .. });
        let discarded = mapping::discard_pages(self.working_address(start), end - start, shared);
        if discarded && *free == self.range {
            self.touched_end = self.range.start;
            self.settled_end = self.range.start;
            self.populated_end = self.range.start;
        }
    }

    /// How far it has been used, in bytes.
    pub(super) const fn touched_bytes(&self) -> usize {
        self.touched_end - self.range.start
    }

    /// How many bytes of it occupy physical memory.
    pub(super) fn resident_bytes(&self) -> u64 {
        mapping::resident_bytes(self.range.start, self.range.end - self.range.start)
    }

    /// Unmaps it; its addresses are reserved again if they belong to an arena, and gone if not. On an error
    /// the slab is as before.
    pub(super) fn release(&self) -> Result<(), MemoryError> {
        let len = self.range.end - self.range.start;
        if self.reserved {
            mapping::map_nothing(self.range.start, len)?;
        } else {
            mapping::unmap(self.range.start, len);
        }
        self.release_working_view();
        Ok(())
    }

    /// Unmaps the working view alone: the run view goes with the reserved range.
    pub(super) fn release_working_view(&self) {
        if let SlabAccess::TwoViews { working } = self.access {
            mapping::unmap(working, self.range.end - self.range.start);
        }
    }
}
