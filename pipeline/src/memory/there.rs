//! Memory of another process, as the process that links for it has it in its books: which addresses are taken, and what lies there.

use std::ops::Range;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Mutex;
use uruk_core::sync::atomic::{AtomicU64, Ordering};

use super::free_ranges::FreeRanges;
use super::mapping::{PAGE_BYTES, ReservedRange};
use super::reserve::{self, RANGE_BYTES};
use super::{
    InFlightAlloc, MappedSegments, MemoryError, MemoryUsage, ProgramWindow, SegmentBytes, SegmentKind,
    SegmentRequest, SegmentThere, SegmentsThere,
};

/// Code, and constants, have a quarter of the range each; data has the rest.
const PART_BYTES: usize = 512 << 20;

/// The parts of the range, as offsets: in the order in which an executable has them. A program's header is the first of the constants. Code reaches
/// the start of the zeros behind the range.
pub(super) const PARTS: [(SegmentKind, Range<usize>); 3] = [
    (SegmentKind::ReadOnly, 0..PART_BYTES),
    (SegmentKind::Code, PART_BYTES..2 * PART_BYTES),
    (SegmentKind::Data, 2 * PART_BYTES..RANGE_BYTES),
];

/// How much room follows the range in its process, for copies of libraries' variables. It is within reach of all of the range.
pub(super) const COPIES_BYTES: usize = 4 << 20;

/// How many zeros follow that, for data without contents that has no room in the range. They are memory when they are touched.
const ZEROS_BYTES: usize = 64 << 30;
/// Where the zeros begin, as an offset.
pub(super) const ZEROS_AT: usize = RANGE_BYTES + COPIES_BYTES;
/// The number of the part that is the zeros.
const ZEROS: usize = PARTS.len();

/// Reserves a range of `bytes`, with the room behind it, and with zeros behind that if the system grants them. Gives their number too.
///
/// # Errors
/// [`MemoryError::Reserve`] if the system refuses the range.
pub(super) fn reserve_here(bytes: usize) -> Result<(ReservedRange, usize), MemoryError> {
    let least = bytes + COPIES_BYTES;
    match reserve::exactly(least + ZEROS_BYTES) {
        Ok(reserved) => Ok((reserved, ZEROS_BYTES)),
        Err(_) => Ok((reserve::exactly(least)?, 0)),
    }
}

/// The first data, which programs scan from end to end. Beyond that data lies outside of what the symbols of linkers bound.
const SCANNED_BYTES: usize = 64 << 20;
/// Programs are told of data in steps of this, so that the answer seldom changes.
const STEP_BYTES: u64 = 1 << 20;

/// The least alignment of code and constants that share pages.
const ALIGN_MIN: usize = 16;

/// The memory of a process that runs code which another process links.
///
/// # Concurrency
/// Called from the thread that takes the host's messages.
pub trait MemoryHere: Send + Sync {
    /// Its addresses.
    fn addresses(&self) -> Range<u64>;

    /// How many zeros lie behind these and the room for copies.
    fn zeros_bytes(&self) -> u64;

    /// Writable memory right behind these that the host does not know, of 4 MiB. Code in the memory reaches it.
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

    /// The parts of it in which there is something, and of data all that may be read and written.
    fn mapped(&self) -> MappedSegments;

    /// Has the processors see code that came where other code lay.
    fn serialize(&self);
}

/// The addresses of the parts of a range that begins at `base`. Of data up to `data_end`.
pub(super) fn parts_there(base: u64, data_end: u64) -> MappedSegments {
    let part = |(kind, part): &(SegmentKind, Range<usize>)| {
        let (start, end) = (base + part.start as u64, base + part.end as u64);
        let end = if *kind == SegmentKind::Data { data_end } else { end };
        (ExecutorAddr::new(start)..ExecutorAddr::new(end), *kind)
    };
    PARTS.iter().map(part).filter(|(range, _)| range.start < range.end).collect()
}

/// The end of all data that there has been, by whole steps.
///
/// A child that the program forks asks too, so there is no lock. One thread, which takes the host's messages, has it rise.
#[derive(Debug)]
pub(super) struct DataEnd {
    limit: u64,
    end: AtomicU64,
}

impl DataEnd {
    /// No data yet, in a range that begins at `base`.
    pub(super) fn new(base: u64) -> Self {
        let [.., (_, data)] = PARTS;
        Self { limit: base + data.end as u64, end: AtomicU64::new(base + data.start as u64) }
    }

    pub(super) fn get(&self) -> u64 {
        // Relaxed: what lies beyond may be read too, as zeroes, so an old value does not mislead.
        self.end.load(Ordering::Relaxed)
    }

    /// Data comes that ends at `ends`. Prepares the addresses by which it lies beyond all other. Zeros behind the range do not count: programs are
    /// not told of them.
    ///
    /// # Errors
    /// Those of `prepare`.
    pub(super) fn rise_to(
        &self,
        ends: impl Iterator<Item = u64>,
        prepare: impl FnOnce(Range<u64>) -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        let known = self.get();
        let end = ends.filter(|end| *end <= self.limit).max().unwrap_or_default();
        if end > known {
            let new = end.next_multiple_of(STEP_BYTES).min(self.limit);
            prepare(known..new)?;
            self.end.store(new, Ordering::Relaxed); // as in `get`
        }
        Ok(())
    }
}

/// Which addresses of the range are taken.
pub(super) struct AddressBook {
    /// The first address.
    base: u64,
    /// The size of a page, where no two segments may share one; data never shares any.
    page_bytes: Option<usize>,
    parts: Mutex<[PartThere; PARTS.len() + 1]>,
    /// How many zeros follow the range.
    zeros_bytes: usize,
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

impl PieceThere {
    /// Whether it lies in the range, and not among the zeros behind it.
    pub(super) fn is_in_file(&self) -> bool {
        self.range.start < ZEROS_AT
    }
}

impl AddressBook {
    /// A range that begins at `base`, with zeros behind it.
    ///
    /// # Errors
    /// The address, if no range can begin there.
    pub(super) fn new(base: u64, page_bytes: Option<usize>, zeros_bytes: u64) -> Result<Self, u64> {
        let page = page_bytes.unwrap_or(PAGE_BYTES) as u64;
        let end = base.checked_add(ZEROS_AT as u64).and_then(|end| end.checked_add(zeros_bytes));
        let is_address = end.is_some_and(|end| end < 1 << 47) && zeros_bytes.is_multiple_of(page);
        if base == 0 || !base.is_multiple_of(page) || !is_address {
            return Err(base);
        }
        let book = Self { base, page_bytes, parts: Mutex::default(), zeros_bytes: zeros_bytes as usize };
        for (index, part) in book.parts.lock().iter_mut().enumerate() {
            let range = book.bounds(index);
            part.touched_end = range.start;
            if !range.is_empty() {
                part.free.give_back(range.clone(), &range);
            }
        }
        Ok(book)
    }

    /// The extent of a part, as offsets.
    fn bounds(&self, index: usize) -> Range<usize> {
        PARTS.get(index).map_or(ZEROS_AT..ZEROS_AT + self.zeros_bytes, |(_, range)| range.clone())
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Where code and data of a program are.
    pub(super) fn window(&self) -> ProgramWindow {
        let address = |offset: usize| ExecutorAddr::new(self.base + offset as u64);
        let [(_, constants), (_, code), (_, data)] = &PARTS;
        let data_end = data.start + SCANNED_BYTES;
        ProgramWindow {
            text: address(constants.start)..address(code.end),
            data: address(data.start)..address(data_end),
        }
    }

    pub(super) fn address(&self, piece: &PieceThere) -> ExecutorAddr {
        ExecutorAddr::new(self.base + piece.range.start as u64)
    }

    /// Takes room for a segment.
    ///
    /// # Errors
    /// [`MemoryError::Exhausted`].
    pub(super) fn take(&self, owner: &str, request: &SegmentRequest) -> Result<PieceThere, MemoryError> {
        let index = index_of(request.kind);
        let is_zeros = request.content_bytes == 0 && request.kind.near() == SegmentKind::Data;
        let taken = self.piece(request, index);
        taken.or_else(|| is_zeros.then(|| self.piece(request, ZEROS)).flatten()).ok_or_else(|| {
            MemoryError::Exhausted {
                owner: owner.into(),
                kind: request.kind,
                size_bytes: request.total_bytes() as u64,
                used_bytes: self.parts.lock()[index].allocated_bytes,
                reserved_bytes: self.bounds(index).len() as u64,
            }
        })
    }

    fn piece(&self, request: &SegmentRequest, index: usize) -> Option<PieceThere> {
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
            let bounds = self.bounds(index);
            for rest in [whole.start..start, start + bytes..whole.end] {
                if !rest.is_empty() {
                    part.free.give_back(rest, &bounds);
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
        let index = if piece.is_in_file() { index_of(piece.kind) } else { ZEROS };
        let part = &mut self.parts.lock()[index];
        part.free.give_back(piece.range.clone(), &self.bounds(index));
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
        for (index, part) in parts.iter().enumerate() {
            usage.allocations = usage.allocations.max(part.allocations);
            let kind = usage.of_mut(PARTS.get(index).map_or(SegmentKind::Data, |(kind, _)| *kind));
            kind.allocated_bytes += part.allocated_bytes;
            kind.slab_bytes += (part.touched_end - self.bounds(index).start) as u64;
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
        SegmentKind::ReadOnly => 0,
        SegmentKind::Code => 1,
        SegmentKind::Data | SegmentKind::FarData => 2,
    }
}
