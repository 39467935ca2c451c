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
//! the process has written is its own copy until it drops that; the bookkeeping here hears of a page only after that.
//!
//! **Holds.** No page is writable and executable through the same address. Neither side maps the other's view. Neither can make the file shorter.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use rustix::fs::SealFlags;
use uruk_core::ExecutorAddr;
use uruk_core::sync::Process;

use super::allocation::check;
use super::mapping::{self, PAGE_BYTES};
use super::reserve::RANGE_BYTES;
use super::there::{
    AddressBook, COPIES_BYTES, DataEnd, MemoryHere, PARTS, PieceThere, ZEROS_AT, bytes_of, parts_there,
    reserve_here,
};
use super::{
    Backing, InFlightAlloc, MappedSegments, MemoryError, MemoryManager, MemoryUsage, ProgramWindow,
    SegmentBytes, SegmentKind, SegmentRequest, SegmentThere, SegmentsThere, TemporaryFile, cores,
};

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
    book: AddressBook,
    owner: Process,
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

    /// The memory, which the other process has mapped from `base` on, with `zeros_bytes` of its own behind it.
    ///
    /// # Errors
    /// The address, if no range can begin there.
    pub fn mapped_at(self, base: u64, zeros_bytes: u64) -> Result<SharedMemory, u64> {
        let book = AddressBook::new(base, None, zeros_bytes)?;
        Ok(SharedMemory { pool: Arc::new(SharedPool { view: self.view, book, owner: Process::current() }) })
    }
}

impl MemoryManager for SharedMemory {
    fn allocate(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        segments.iter().try_for_each(|request| check(owner, request))?;
        let mut taken = SharedAllocation { pool: self.pool.clone(), pieces: Vec::new(), scratch: Vec::new() };
        for request in segments {
            taken.pieces.push(self.pool.book.take(owner, request)?);
        }
        taken.pieces.iter().for_each(|piece| self.pool.prepare(piece));
        Ok(InFlightAlloc::new(Box::new(taken)))
    }

    fn program_window(&self) -> Option<ProgramWindow> {
        Some(self.pool.book.window())
    }

    fn usage(&self) -> MemoryUsage {
        self.pool.book.usage()
    }
}

impl SharedPool {
    /// Code and constants that were used before are zeroed. Data was when it was given back. A child of a fork leaves the memory of its parent's
    /// executor as it is.
    fn prepare(&self, piece: &PieceThere) {
        if self.owner == Process::current() && !piece.is_fresh && piece.kind.near() != SegmentKind::Data {
            mapping::zero(self.view.0 + piece.range.start, piece.range.len());
        }
    }

    fn give_back(&self, piece: &PieceThere) {
        let is_data = piece.kind.near() == SegmentKind::Data && piece.is_in_file();
        let start = self.view.0 + piece.range.start;
        if is_data && !mapping::discard_pages(start, piece.range.len(), true) {
            mapping::zero(start, piece.range.len());
        }
        self.book.give_back(piece);
    }
}

/// The segments of an allocation. Dropping it gives them back.
struct SharedAllocation {
    pool: Arc<SharedPool>,
    pieces: Vec<PieceThere>,
    /// Discards the writes of a child of this process.
    scratch: Vec<u8>,
}

impl Backing for SharedAllocation {
    fn address(&self, segment: usize) -> ExecutorAddr {
        self.pool.book.address(&self.pieces[segment])
    }

    fn working(&mut self, segment: usize) -> &mut [u8] {
        let piece = &self.pieces[segment];
        if !piece.is_in_file() {
            return &mut [];
        }
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

    /// Pages of data, of which the other process has copies of its own.
    fn take_segments_there(&mut self) -> SegmentsThere {
        let data = self.pieces.iter().filter(|piece| piece.kind.near() == SegmentKind::Data);
        let segments = data.map(|piece| SegmentThere { content_bytes: 0, ..self.pool.book.segment(piece) });
        SegmentsThere { segments: segments.collect(), contents: Vec::new() }
    }

    fn bytes(&self) -> SegmentBytes {
        bytes_of(self.pieces.iter())
    }

    fn resident(&self) -> SegmentBytes {
        let mut bytes = SegmentBytes::default();
        for piece in self.pieces.iter().filter(|piece| piece.is_in_file()) {
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
        f.debug_struct("SharedMemory").field("base", &self.pool.book.base()).finish_non_exhaustive()
    }
}

/// The range of this process that another process fills with code, for as long as this process runs.
#[derive(Clone, Debug)]
pub struct SharedRange {
    range: Range<u64>,
    zeros_bytes: u64,
    /// Up to there data may be written. All else of it is read as zeroes.
    data_end: Arc<DataEnd>,
}

impl SharedRange {
    /// Maps the `file` of the other process, near the libraries.
    ///
    /// # Errors
    /// [`MemoryError`] if the system grants no such range.
    pub fn map(file: &File) -> Result<Self, MemoryError> {
        let (reserved, zeros_bytes) = reserve_here(RANGE_BYTES)?;
        let start = reserved.range().start;
        mapping::map_private(start + RANGE_BYTES, COPIES_BYTES + zeros_bytes)?;
        for (kind, part) in PARTS {
            let (at, len) = (start + part.start, part.len());
            match kind {
                SegmentKind::Data => {
                    mapping::map_contents(file, part.start as u64, at, len, SegmentKind::ReadOnly)?;
                }
                _ => mapping::map_shared_contents(file, part.start as u64, at, len, kind)?,
            }
        }
        let range = reserved.range();
        reserved.keep(vec![range.clone()]); // Code runs there to the end of the process.
        let range = range.start as u64..(range.start + RANGE_BYTES) as u64;
        let zeros_bytes = zeros_bytes as u64;
        Ok(Self { data_end: Arc::new(DataEnd::new(range.start)), range, zeros_bytes })
    }

    /// Whether `range` consists of whole pages of data.
    fn is_data(&self, range: &Range<u64>) -> bool {
        let at = |offset: usize| self.range.start + offset as u64;
        let data = at(PARTS[2].1.start)..at(PARTS[2].1.end);
        let zeros = at(ZEROS_AT)..at(ZEROS_AT) + self.zeros_bytes;
        let is_whole = |address: u64| address.is_multiple_of(PAGE_BYTES as u64);
        let is_in = [data, zeros].iter().any(|part| part.start <= range.start && range.end <= part.end);
        is_in && range.start < range.end && is_whole(range.start) && is_whole(range.end)
    }
}

impl MemoryHere for SharedRange {
    fn addresses(&self) -> Range<u64> {
        self.range.clone()
    }

    fn zeros_bytes(&self) -> u64 {
        self.zeros_bytes
    }

    fn take(&self, written: SegmentsThere) -> Result<InFlightAlloc, String> {
        if !written.contents.is_empty() {
            return Err("contents came beside memory that is shared".into());
        }
        let data: Vec<_> = written.segments.into_iter().map(|segment| segment.range).collect();
        if let Some(range) = data.iter().find(|range| !self.is_data(range)) {
            return Err(format!("{range:#x?} are no pages of data"));
        }
        let make_writable =
            |new: Range<u64>| mapping::make_writable(new.start as usize, (new.end - new.start) as usize);
        self.data_end
            .rise_to(data.iter().map(|range| range.end), make_writable)
            .map_err(|error| error.to_string())?;
        Ok(InFlightAlloc::new(Box::new(WrittenAllocation { data })))
    }

    fn mapped(&self) -> MappedSegments {
        parts_there(self.range.start, self.data_end.get())
    }

    fn serialize(&self) {
        cores::serialize();
    }
}

/// Memory that the host has written. This process's copies of its data go before the host hears of it.
struct WrittenAllocation {
    data: Vec<Range<u64>>,
}

impl Backing for WrittenAllocation {
    fn address(&self, _: usize) -> ExecutorAddr {
        ExecutorAddr::NULL
    }

    fn working(&mut self, _: usize) -> &mut [u8] {
        &mut []
    }

    fn finalize(&mut self) -> Result<(), MemoryError> {
        Ok(())
    }
}

impl Drop for WrittenAllocation {
    fn drop(&mut self) {
        for range in &self.data {
            mapping::discard_pages(range.start as usize, (range.end - range.start) as usize, false);
        }
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
        (file.mapped_at(range.addresses().start, range.zeros_bytes()).expect("an address"), range)
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
        let mut code = allocation.finalize().expect("it is final");
        (0..3).for_each(|segment| assert_eq!(there(code.address(segment)), segment as u8 + 1));
        let written = code.address(2).value();
        let data = code.take_segments_there();
        assert_eq!((&*data.contents, &data.segments[0].range), (&[][..], &(written..written + 4096)));
        assert!(range.is_data(&data.segments[0].range));
        assert!(!range.is_data(&(code.address(0).value()..code.address(0).value() + 4096)));
    }

    /// A page that the process has written is its own copy. Without a discard the next object's data is not seen there.
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
        let mut first = allocate(1);
        let seen = range.take(first.take_segments_there()).expect("it is data");
        let address = first.address(0);
        // SAFETY: data of the range, which nothing else uses.
        unsafe { address.to_ptr::<u8>().write_volatile(9) };
        drop((seen, first));
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

    /// Data of this size has no room in the range.
    #[test]
    fn great_zeros_lie_behind_the_range_and_come_back() {
        let (memory, range) = both();
        let zero_fill_bytes = 3 << 30;
        let request = SegmentRequest { zero_fill_bytes, ..request(SegmentKind::Data, 0, 64) };
        let first = || {
            let allocation = memory.allocate("zeros", &[request]).expect("there is room");
            allocation.finalize().expect("it is final")
        };
        let mut zeros = first();
        let address = zeros.address(0);
        assert!(address.value() >= range.addresses().end);
        let seen = range.take(zeros.take_segments_there()).expect("it is data");
        let last = ExecutorAddr::new(address.value() + zero_fill_bytes as u64 - 1);
        assert_eq!(there(last), 0);
        // SAFETY: data of the range, which nothing else uses.
        unsafe { last.to_ptr::<u8>().write_volatile(9) };
        drop((seen, zeros));
        assert_eq!((first().address(0), there(last)), (address, 0));
        assert_eq!(memory.usage().data.allocated_bytes, 0);
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
            assert_eq!(file.mapped_at(base, 0).map(drop), Err(base));
        }
    }
}
