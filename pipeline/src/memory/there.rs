//! Memory of another process, as the process that links for it has it in its books: which addresses are taken, and what lies there.

use std::ops::Range;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Mutex;

use super::free_ranges::FreeRanges;
use super::mapping::PAGE_BYTES;
use super::reserve::RANGE_BYTES;
use super::{
    InFlightAlloc, MemoryError, MemoryUsage, SegmentBytes, SegmentKind, SegmentRequest, SegmentThere,
    SegmentsThere,
};

/// Code, and constants, have a quarter of the range each; data has the rest.
const PART_BYTES: usize = 512 << 20;

/// The parts of the range, as offsets.
pub(super) const PARTS: [(SegmentKind, Range<usize>); 3] = [
    (SegmentKind::Code, 0..PART_BYTES),
    (SegmentKind::ReadOnly, PART_BYTES..2 * PART_BYTES),
    (SegmentKind::Data, 2 * PART_BYTES..RANGE_BYTES),
];

/// How much room follows the range in its process, for copies of libraries' variables. It is within reach of all of the range.
pub(super) const COPIES_BYTES: usize = 4 << 20;

/// The least alignment of code and constants that share pages.
const ALIGN_MIN: usize = 16;

/// The memory of a process that runs code which another process links.
///
/// # Concurrency
/// Called from the thread that takes the host's messages.
pub trait MemoryHere: Send + Sync {
    /// Its addresses.
    fn addresses(&self) -> Range<u64>;

    /// Writable memory right behind these that the host does not know, as large as [`COPIES_BYTES`]. Code in the memory reaches it.
    fn copies(&self) -> Range<u64> {
        let end = self.addresses().end;
        end..end + COPIES_BYTES as u64
    }

    /// Takes an object's segments, which the host has placed. They have their protection when the allocation is finalized; dropping it has this
    /// process forget them.
    ///
    /// # Errors
    /// A segment that does not lie in this memory, or that is not of whole pages where it has to be.
    fn take(&self, written: SegmentsThere) -> Result<InFlightAlloc, String>;

    /// Has the processors see code that came where other code lay.
    fn serialize(&self);
}

/// Which addresses of the range are taken.
pub(super) struct AddressBook {
    /// The first address.
    base: u64,
    /// The size of a page, where no two segments may share one; data never shares any.
    page_bytes: Option<usize>,
    parts: Mutex<[PartThere; 3]>,
}

#[derive(Default)]
struct PartThere {
    free: FreeRanges,
    /// Beyond this offset nothing was ever written.
    touched_end: usize,
    allocated_bytes: u64,
    allocations: u64,
}

/// A segment, as offsets.
pub(super) struct PieceThere {
    pub(super) kind: SegmentKind,
    pub(super) range: Range<usize>,
    pub(super) content_bytes: usize,
    pub(super) is_fresh: bool,
}

impl AddressBook {
    /// A range that begins at `base`.
    ///
    /// # Errors
    /// The address, if no range can begin there.
    pub(super) fn new(base: u64, page_bytes: Option<usize>) -> Result<Self, u64> {
        let is_page = base.is_multiple_of(page_bytes.unwrap_or(PAGE_BYTES) as u64);
        let is_address = base.checked_add(RANGE_BYTES as u64).is_some_and(|end| end < 1 << 47);
        if base == 0 || !is_page || !is_address {
            return Err(base);
        }
        let mut parts: [PartThere; 3] = Default::default();
        for (part, (_, range)) in parts.iter_mut().zip(PARTS) {
            part.touched_end = range.start;
            part.free.give_back(range.clone(), &range);
        }
        Ok(Self { base, page_bytes, parts: Mutex::new(parts) })
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn address(&self, piece: &PieceThere) -> ExecutorAddr {
        ExecutorAddr::new(self.base + piece.range.start as u64)
    }

    /// Takes room for a segment.
    ///
    /// # Errors
    /// [`MemoryError::Exhausted`].
    pub(super) fn take(&self, owner: &str, request: &SegmentRequest) -> Result<PieceThere, MemoryError> {
        self.piece(request).ok_or_else(|| {
            let index = index_of(request.kind);
            MemoryError::Exhausted {
                owner: owner.into(),
                kind: request.kind,
                size_bytes: request.total_bytes() as u64,
                used_bytes: self.parts.lock()[index].allocated_bytes,
                reserved_bytes: PARTS[index].1.len() as u64,
            }
        })
    }

    fn piece(&self, request: &SegmentRequest) -> Option<PieceThere> {
        let index = index_of(request.kind);
        let is_data = request.kind.near() == SegmentKind::Data;
        let (least, granule) = match self.page_bytes {
            Some(page) => (page, page),
            None if is_data => (PAGE_BYTES, PAGE_BYTES),
            None => (ALIGN_MIN, 1),
        };
        let page = self.page_bytes.unwrap_or(PAGE_BYTES);
        let bytes = request.total_bytes().max(1).checked_next_multiple_of(granule)?;
        let mut parts = self.parts.lock();
        let part = &mut parts[index];
        // Offsets are aligned as addresses are only up to a page: the base is one.
        let align = request.align.max(least);
        let start = if align <= page {
            part.free.take(bytes, align)?
        } else {
            let room = part.free.take(bytes.checked_add(align)?, page)?;
            let address = (self.base as usize + room).next_multiple_of(align);
            let start = address - self.base as usize;
            let whole = room..room + bytes + align;
            let bounds = &PARTS[index].1;
            for rest in [whole.start..start, start + bytes..whole.end] {
                if !rest.is_empty() {
                    part.free.give_back(rest, bounds);
                }
            }
            start
        };
        let range = start..start + bytes;
        let is_fresh = start >= part.touched_end;
        part.touched_end = part.touched_end.max(range.end);
        part.allocated_bytes += bytes as u64;
        part.allocations += 1;
        Some(PieceThere { kind: request.kind, range, content_bytes: request.content_bytes, is_fresh })
    }

    pub(super) fn give_back(&self, piece: &PieceThere) {
        let index = index_of(piece.kind);
        let part = &mut self.parts.lock()[index];
        part.free.give_back(piece.range.clone(), &PARTS[index].1);
        part.allocated_bytes -= piece.range.len() as u64;
        part.allocations -= 1;
    }

    pub(super) fn segment(&self, piece: &PieceThere) -> SegmentThere {
        let range = self.base + piece.range.start as u64..self.base + piece.range.end as u64;
        SegmentThere { kind: piece.kind, range, content_bytes: piece.content_bytes as u64 }
    }

    pub(super) fn usage(&self) -> MemoryUsage {
        let parts = self.parts.lock();
        let mut usage = MemoryUsage { reserved_bytes: RANGE_BYTES as u64, ..MemoryUsage::default() };
        for (part, (kind, range)) in parts.iter().zip(PARTS) {
            usage.allocations = usage.allocations.max(part.allocations);
            let kind = usage.of_mut(kind);
            kind.allocated_bytes = part.allocated_bytes;
            kind.slab_bytes = (part.touched_end - range.start) as u64;
            kind.resident_bytes = kind.allocated_bytes;
        }
        usage
    }
}

/// The sizes of `pieces`, by kind.
pub(super) fn bytes_of<'p>(pieces: impl Iterator<Item = &'p PieceThere>) -> SegmentBytes {
    let mut bytes = SegmentBytes::default();
    pieces.for_each(|piece| *bytes.of_mut(piece.kind) += piece.range.len() as u64);
    bytes
}

fn index_of(kind: SegmentKind) -> usize {
    match kind {
        SegmentKind::Code => 0,
        SegmentKind::ReadOnly => 1,
        SegmentKind::Data | SegmentKind::FarData => 2,
    }
}
