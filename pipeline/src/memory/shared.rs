//! Memory of another process, which it shares with this one: written here, run there.
//!
//! ```text
//!   here    working view, anywhere   [ code | constants | data ]   readable and writable
//!                                        │        │        │        one file in memory
//!   there   at the final addresses   [ code | constants | data ]   executable | readable | writable, private
//! ```
//!
//! [`SharedMemory`] hands the range out, and knows the addresses there without mapping them. [`SharedRange`] is the range in the process that
//! runs the code. It is mapped once: no object costs a system call there.
//!
//! The other process has data of its own: a child that it forks has copies, as natively. So data has whole pages for each allocation. A page that
//! the process has written is its own copy until [`SharedRange::discard`] drops that; the bookkeeping here hears of a page only after that.
//!
//! **Holds.** No page is writable and executable through the same address. Neither side maps the other's view. Neither can make the file shorter.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use rustix::fs::SealFlags;
use uruk_core::ExecutorAddr;
use uruk_core::sync::{Mutex, Process};

use super::allocation::check;
use super::free_ranges::FreeRanges;
use super::mapping::{self, PAGE_BYTES};
use super::reserve::{self, RANGE_BYTES};
use super::{
    Backing, InFlightAlloc, MemoryError, MemoryManager, MemoryUsage, SegmentBytes, SegmentKind,
    SegmentRequest, TemporaryFile, cores,
};

/// Code, and constants, have a quarter of the range each; data has the rest.
const PART_BYTES: usize = 512 << 20;

/// The parts of the range, as offsets.
const PARTS: [(SegmentKind, Range<usize>); 3] = [
    (SegmentKind::Code, 0..PART_BYTES),
    (SegmentKind::ReadOnly, PART_BYTES..2 * PART_BYTES),
    (SegmentKind::Data, 2 * PART_BYTES..RANGE_BYTES),
];

/// The least alignment of code and constants.
const ALIGN_MIN: usize = 16;

/// Hands out memory at addresses of another process.
///
/// # Concurrency
/// As for every [`MemoryManager`]. One lock, held for bookkeeping.
///
/// ORC: `SharedMemoryMapper`.
#[doc(alias = "SharedMemoryMapper")]
#[derive(Clone)]
pub struct SharedMemory {
    pool: Arc<SharedPool>,
}

struct SharedPool {
    view: WorkingView,
    /// The first address there.
    base: u64,
    parts: Mutex<[SharedPart; 3]>,
    owner: Process,
}

#[derive(Default)]
struct SharedPart {
    free: FreeRanges,
    /// Beyond this offset nothing was ever written.
    touched_end: usize,
    allocated_bytes: u64,
    allocations: u64,
}

/// The file of such memory, and the view of it here, before the other process has said where it maps it.
#[derive(Debug)]
pub struct SharedFile {
    view: WorkingView,
    file: File,
}

#[derive(Debug)]
struct WorkingView(usize);

impl Drop for WorkingView {
    fn drop(&mut self) {
        mapping::unmap(self.0, RANGE_BYTES);
    }
}

impl SharedFile {
    /// Makes the file. It takes memory for what is written.
    ///
    /// # Errors
    /// If the system has no files in memory, or allows none of 2 GiB.
    pub fn new() -> io::Result<Self> {
        // A file beyond the limit on files would cost the process a deadly signal.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if limit.is_some_and(|limit| limit < RANGE_BYTES as u64) {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "memory that is shared with the executor needs a file of 2 GiB, of which only the used part takes memory; see `ulimit -f`",
            ));
        }
        TemporaryFile::with(|file| {
            if !file.is_in_memory() {
                return Err(io::ErrorKind::Unsupported.into());
            }
            rustix::fs::ftruncate(file.file(), RANGE_BYTES as u64)?;
            // Code there may do as it likes with the file. Were it shorter, an access through the view here would be a deadly signal.
            rustix::fs::fcntl_add_seals(file.file(), SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            let view = WorkingView(mapping::map_working_view(file.file(), RANGE_BYTES)?);
            Ok(Self { view, file: file.file().try_clone()? })
        })
    }

    /// The file, for the other process.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The memory, which the other process has mapped from `base` on.
    ///
    /// # Errors
    /// The address, if no range can begin there.
    pub fn mapped_at(self, base: u64) -> Result<SharedMemory, u64> {
        let is_page = base.is_multiple_of(PAGE_BYTES as u64);
        let is_address = base.checked_add(RANGE_BYTES as u64).is_some_and(|end| end < 1 << 47);
        if base == 0 || !is_page || !is_address {
            return Err(base);
        }
        let mut parts: [SharedPart; 3] = Default::default();
        for (part, (_, range)) in parts.iter_mut().zip(PARTS) {
            part.touched_end = range.start;
            part.free.give_back(range.clone(), &range);
        }
        let pool = SharedPool { view: self.view, base, parts: Mutex::new(parts), owner: Process::current() };
        Ok(SharedMemory { pool: Arc::new(pool) })
    }
}

impl MemoryManager for SharedMemory {
    fn allocate(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        segments.iter().try_for_each(|request| check(owner, request))?;
        let mut taken = SharedAllocation { pool: self.pool.clone(), pieces: Vec::new(), scratch: Vec::new() };
        for request in segments {
            let piece = self.pool.take(request).ok_or_else(|| self.exhausted(owner, request))?;
            taken.pieces.push(piece);
        }
        taken.pieces.iter().for_each(|piece| self.pool.prepare(piece));
        Ok(InFlightAlloc::new(Box::new(taken)))
    }

    fn usage(&self) -> MemoryUsage {
        let parts = self.pool.parts.lock();
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

impl SharedMemory {
    fn exhausted(&self, owner: &str, request: &SegmentRequest) -> MemoryError {
        let index = index_of(request.kind);
        let used_bytes = self.pool.parts.lock()[index].allocated_bytes;
        MemoryError::Exhausted {
            owner: owner.into(),
            kind: request.kind,
            size_bytes: request.total_bytes() as u64,
            used_bytes,
            reserved_bytes: PARTS[index].1.len() as u64,
        }
    }
}

impl SharedPool {
    fn take(&self, request: &SegmentRequest) -> Option<SharedPiece> {
        let index = index_of(request.kind);
        let is_data = request.kind.near() == SegmentKind::Data;
        let (least, granule) = if is_data { (PAGE_BYTES, PAGE_BYTES) } else { (ALIGN_MIN, 1) };
        let bytes = request.total_bytes().max(1).checked_next_multiple_of(granule)?;
        let mut parts = self.parts.lock();
        let part = &mut parts[index];
        // Offsets are aligned as addresses are only up to a page: the base is one.
        let align = request.align.max(least);
        let start = if align <= PAGE_BYTES {
            part.free.take(bytes, align)?
        } else {
            let room = part.free.take(bytes.checked_add(align)?, PAGE_BYTES)?;
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
        Some(SharedPiece { kind: request.kind, range, content_bytes: request.content_bytes, is_fresh })
    }

    /// Code and constants that were used before are zeroed. Data was when it was given back. A child of a fork leaves the memory of its parent's
    /// executor as it is.
    fn prepare(&self, piece: &SharedPiece) {
        if self.owner == Process::current() && !piece.is_fresh && piece.kind.near() != SegmentKind::Data {
            mapping::zero(self.view.0 + piece.range.start, piece.range.len());
        }
    }

    fn give_back(&self, piece: &SharedPiece) {
        let is_data = piece.kind.near() == SegmentKind::Data;
        let start = self.view.0 + piece.range.start;
        if is_data && !mapping::discard_pages(start, piece.range.len(), true) {
            mapping::zero(start, piece.range.len());
        }
        let index = index_of(piece.kind);
        let part = &mut self.parts.lock()[index];
        part.free.give_back(piece.range.clone(), &PARTS[index].1);
        part.allocated_bytes -= piece.range.len() as u64;
        part.allocations -= 1;
    }
}

fn index_of(kind: SegmentKind) -> usize {
    match kind {
        SegmentKind::Code => 0,
        SegmentKind::ReadOnly => 1,
        SegmentKind::Data | SegmentKind::FarData => 2,
    }
}

/// A segment, as offsets.
struct SharedPiece {
    kind: SegmentKind,
    range: Range<usize>,
    content_bytes: usize,
    is_fresh: bool,
}

/// The segments of an allocation. Dropping it gives them back.
struct SharedAllocation {
    pool: Arc<SharedPool>,
    pieces: Vec<SharedPiece>,
    /// Discards the writes of a child of this process.
    scratch: Vec<u8>,
}

impl Backing for SharedAllocation {
    fn address(&self, segment: usize) -> ExecutorAddr {
        ExecutorAddr::new(self.pool.base + self.pieces[segment].range.start as u64)
    }

    fn working(&mut self, segment: usize) -> &mut [u8] {
        let piece = &self.pieces[segment];
        if self.pool.owner != Process::current() {
            self.scratch = vec![0; piece.content_bytes];
            return &mut self.scratch;
        }
        // SAFETY: the piece was taken out of the free ranges for this allocation alone, the view is mapped writable as long as the pool is
        // there, and `&mut self` excludes a second borrow. The other process reads it only when it has been published, which consumes the
        // `InFlightAlloc`.
        unsafe { mapping::bytes_mut(self.pool.view.0 + piece.range.start, piece.content_bytes) }
    }

    fn finalize(&mut self) -> Result<(), MemoryError> {
        if self.pool.owner != Process::current() { Err(MemoryError::Forked) } else { Ok(()) }
    }

    fn private_ranges(&self) -> Vec<Range<u64>> {
        let data = self.pieces.iter().filter(|piece| piece.kind.near() == SegmentKind::Data);
        let base = self.pool.base;
        data.map(|piece| base + piece.range.start as u64..base + piece.range.end as u64).collect()
    }

    fn bytes(&self) -> SegmentBytes {
        let mut bytes = SegmentBytes::default();
        self.pieces.iter().for_each(|piece| *bytes.of_mut(piece.kind) += piece.range.len() as u64);
        bytes
    }

    fn resident(&self) -> SegmentBytes {
        let mut bytes = SegmentBytes::default();
        for piece in &self.pieces {
            let start = self.pool.view.0 + piece.range.start;
            *bytes.of_mut(piece.kind) += mapping::resident_bytes(start, piece.range.len());
        }
        bytes
    }
}

impl Drop for SharedAllocation {
    fn drop(&mut self) {
        // A child of this process has the same pages, which are its parent's.
        if self.pool.owner == Process::current() {
            self.pieces.iter().rev().for_each(|piece| self.pool.give_back(piece));
        }
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").field("base", &self.pool.base).finish_non_exhaustive()
    }
}

/// The range of this process that another process fills with code, for as long as this process runs.
#[derive(Debug)]
pub struct SharedRange {
    range: Range<u64>,
}

impl SharedRange {
    /// Maps the `file` of the other process, near the libraries.
    ///
    /// # Errors
    /// [`MemoryError`] if the system grants no such range.
    pub fn map(file: &File) -> Result<Self, MemoryError> {
        let reserved = reserve::exactly(RANGE_BYTES)?;
        let start = reserved.range().start;
        for (kind, part) in PARTS {
            let (at, len) = (start + part.start, part.len());
            match kind {
                SegmentKind::Data => mapping::map_contents(file, part.start as u64, at, len, kind)?,
                _ => mapping::map_shared_contents(file, part.start as u64, at, len, kind)?,
            }
        }
        let range = reserved.range();
        reserved.keep(vec![range.clone()]); // Code runs there to the end of the process.
        Ok(Self { range: range.start as u64..range.end as u64 })
    }

    /// Its addresses.
    pub fn addresses(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Its first address.
    pub fn base(&self) -> u64 {
        self.range.start
    }

    /// Whether all of `range` lies in it, and something does.
    pub fn has(&self, range: &Range<u64>) -> bool {
        range.start < range.end && self.range.start <= range.start && range.end <= self.range.end
    }

    /// Whether `range` consists of whole pages of data.
    pub fn is_data(&self, range: &Range<u64>) -> bool {
        let data = self.base() + PARTS[2].1.start as u64..self.range.end;
        let is_whole = |address: u64| address.is_multiple_of(PAGE_BYTES as u64);
        self.has(range) && data.start <= range.start && is_whole(range.start) && is_whole(range.end)
    }

    /// Drops this process's own copies of pages of [data](Self::is_data) that nothing uses any more. Other ranges are left alone.
    pub fn discard(&self, range: &Range<u64>) {
        if self.is_data(range) {
            mapping::discard_pages(range.start as usize, (range.end - range.start) as usize, false);
        }
    }

    /// Has the processors see code that was written where other code lay.
    pub fn serialize(&self) {
        cores::serialize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: SegmentKind, content_bytes: usize, align: usize) -> SegmentRequest {
        SegmentRequest { kind, content_bytes, zero_fill_bytes: 0, align }
    }

    /// Both sides in one process.
    fn both() -> (SharedMemory, SharedRange) {
        let file = SharedFile::new().expect("a file in memory");
        let range = SharedRange::map(file.file()).expect("address space");
        (file.mapped_at(range.base()).expect("an address"), range)
    }

    fn there(address: ExecutorAddr) -> u8 {
        // SAFETY: the range is mapped readable, to the end of the process.
        unsafe { address.to_ptr::<u8>().read_volatile() }
    }

    #[test]
    fn bytes_that_are_written_here_are_read_there() {
        let (memory, range) = both();
        let kinds = [SegmentKind::Code, SegmentKind::ReadOnly, SegmentKind::Data];
        let requests = kinds.map(|kind| request(kind, 100, 64));
        let mut allocation = memory.allocate("three", &requests).expect("there is room");
        (0..3).for_each(|segment| allocation.working(segment).fill(segment as u8 + 1));
        let code = allocation.finalize().expect("it is final");
        (0..3).for_each(|segment| assert_eq!(there(code.address(segment)), segment as u8 + 1));
        let written = code.address(2).value();
        assert_eq!(code.private_ranges(), std::slice::from_ref(&(written..written + 4096)));
        assert!(range.is_data(&code.private_ranges()[0]));
        assert!(!range.is_data(&(code.address(0).value()..code.address(0).value() + 4096)));
    }

    /// A page that the process has written is its own copy. Without `discard` the next object's data is not seen there.
    #[test]
    fn data_that_comes_where_other_data_lay_is_seen_there() {
        let (memory, range) = both();
        let allocate = |byte: u8| {
            let data = request(SegmentKind::Data, 8, 8);
            let mut allocation = memory.allocate("data", &[data]).expect("there is room");
            assert!(allocation.working(0).iter().all(|&byte| byte == 0));
            allocation.working(0).fill(byte);
            allocation.finalize().expect("it is final")
        };
        let first = allocate(1);
        let address = first.address(0);
        // SAFETY: data of the range, which nothing else uses.
        unsafe { address.to_ptr::<u8>().write_volatile(9) };
        first.private_ranges().iter().for_each(|pages| range.discard(pages));
        drop(first);
        let second = allocate(2);
        assert_eq!(second.address(0), address);
        assert_eq!(there(address), 2);
    }

    #[test]
    fn memory_that_was_given_back_is_zeroed_and_all_of_it_comes_back() {
        let (memory, _range) = both();
        for kind in [SegmentKind::Code, SegmentKind::Data] {
            let mut first = memory.allocate("first", &[request(kind, 5000, 1 << 16)]).expect("there is room");
            assert!(first.address(0).value().is_multiple_of(1 << 16));
            first.working(0).fill(7);
            drop(first);
            let mut second = memory.allocate("second", &[request(kind, 100_000, 16)]).expect("there is room");
            assert!(second.working(0).iter().all(|&byte| byte == 0), "{kind}");
        }
        let usage = memory.usage();
        assert_eq!((usage.code.allocated_bytes, usage.data.allocated_bytes, usage.allocations), (0, 0, 0));
    }

    #[test]
    fn the_file_keeps_its_size() {
        let file = SharedFile::new().expect("a file in memory");
        for size in [0, 4096, RANGE_BYTES as u64 + 4096] {
            let error = file.file().set_len(size).expect_err("it is sealed");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{size}");
        }
        rustix::fs::fcntl_add_seals(file.file(), SealFlags::WRITE).expect_err("nor are there more seals");
    }

    #[test]
    fn no_memory_begins_at_an_address_that_is_none() {
        for base in [0, 1, 4095, 1 << 47, u64::MAX - 4095] {
            let file = SharedFile::new().expect("a file in memory");
            assert_eq!(file.mapped_at(base).map(drop), Err(base));
        }
    }
}
