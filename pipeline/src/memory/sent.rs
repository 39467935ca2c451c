//! Memory of another process, which gets its contents by messages: written into buffers here, copied to its place there.
//!
//! ```text
//!   here    a buffer for each segment ── contents of a message ──▶ there   pages of the segment alone: nothing
//!                                                                             readable and writable, for the copy
//!                                                                             executable | readable | writable
//! ```
//!
//! [`SentMemory`] hands the addresses out. [`SentRange`] is the memory in the process that runs the code. That may lie on another machine: it states
//! the size of its pages, and no page has two segments. There is one view of each page. Code that runs is never in a page that is written.
//!
//! **Holds.** No page is writable and executable at the same time.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Process;

use super::allocation::check;
use super::mapping::{self, PAGE_BYTES};
use super::reserve::RANGE_BYTES;
use super::there::{
    AddressBook, COPIES_BYTES, DataEnd, MemoryHere, PieceThere, bytes_of, parts_there, reserve_here,
};
use super::{
    Backing, InFlightAlloc, MappedSegments, MemoryError, MemoryManager, MemoryUsage, ProgramWindow,
    SegmentBytes, SegmentKind, SegmentRequest, SegmentThere, SegmentsThere, cores,
};
use crate::arch::host;

/// The largest pages that a process is believed to have.
const PAGE_BYTES_MAX: u64 = 1 << 16;

/// Hands out memory at addresses of another process.
///
/// # Concurrency
/// As for every [`MemoryManager`]. One lock, held for bookkeeping.
///
/// # Cost
/// A buffer for the contents of each segment, until they are sent; a page at least for each segment there.
///
/// ORC: `EPCGenericJITLinkMemoryManager`.
#[doc(alias = "EPCGenericJITLinkMemoryManager")]
#[derive(Clone)]
pub struct SentMemory {
    book: Arc<AddressBook>,
}

impl SentMemory {
    /// How many bytes the other process has to reserve.
    pub const RANGE_BYTES: u64 = RANGE_BYTES as u64;

    /// Memory that the other process has reserved from `base` on, in pages of `page_bytes`, with `zeros_bytes` behind it.
    ///
    /// # Errors
    /// The address, if no range can begin there, or if there are no such pages.
    pub fn at(base: u64, page_bytes: u64, zeros_bytes: u64) -> Result<Self, u64> {
        if !page_bytes.is_power_of_two() || !(PAGE_BYTES as u64..=PAGE_BYTES_MAX).contains(&page_bytes) {
            return Err(base);
        }
        Ok(Self { book: Arc::new(AddressBook::new(base, Some(page_bytes as usize), zeros_bytes)?) })
    }
}

impl MemoryManager for SentMemory {
    fn allocate(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        segments.iter().try_for_each(|request| check(owner, request))?;
        let (book, filled_by) = (self.book.clone(), Process::current());
        let mut taken = SentAllocation { book, pieces: Vec::new(), filled_by };
        for request in segments {
            let piece = taken.book.take(owner, request)?;
            taken.pieces.push((piece, vec![0; request.content_bytes]));
        }
        Ok(InFlightAlloc::new(Box::new(taken)))
    }

    fn program_window(&self) -> Option<ProgramWindow> {
        Some(self.book.window())
    }

    fn usage(&self) -> MemoryUsage {
        self.book.usage()
    }
}

/// The segments of an allocation, and their contents until they are sent. Dropping it gives them back.
struct SentAllocation {
    book: Arc<AddressBook>,
    pieces: Vec<(PieceThere, Vec<u8>)>,
    filled_by: Process,
}

impl Backing for SentAllocation {
    fn address(&self, segment: usize) -> ExecutorAddr {
        self.book.address(&self.pieces[segment].0)
    }

    fn working(&mut self, segment: usize) -> &mut [u8] {
        &mut self.pieces[segment].1
    }

    fn finalize(&mut self) -> Result<(), MemoryError> {
        if self.filled_by != Process::current() { Err(MemoryError::Forked) } else { Ok(()) }
    }

    fn take_segments_there(&mut self) -> SegmentsThere {
        let mut written = SegmentsThere::default();
        for (piece, contents) in &mut self.pieces {
            written.segments.push(self.book.segment(piece));
            written.contents.append(contents);
        }
        // Nothing is written here any more.
        self.pieces.iter_mut().for_each(|(_, contents)| *contents = Vec::new());
        written
    }

    fn bytes(&self) -> SegmentBytes {
        bytes_of(self.pieces.iter().map(|(piece, _)| piece))
    }
}

impl Drop for SentAllocation {
    fn drop(&mut self) {
        self.pieces.iter().rev().for_each(|(piece, _)| self.book.give_back(piece));
    }
}

impl fmt::Debug for SentMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentMemory").field("base", &self.book.base()).finish_non_exhaustive()
    }
}

/// The range of this process that another process fills with code by messages, for as long as this process runs.
#[derive(Clone, Debug)]
pub struct SentRange {
    range: Range<u64>,
    page_bytes: u64,
    zeros_bytes: u64,
    data_end: Arc<DataEnd>,
}

impl SentRange {
    /// Reserves `bytes`, near the libraries, in pages of `page_bytes`: those of this system.
    ///
    /// # Errors
    /// [`MemoryError`] if the system grants no such range.
    pub fn reserve(bytes: usize, page_bytes: u64) -> Result<Self, MemoryError> {
        let (reserved, zeros_bytes) = reserve_here(bytes)?;
        let range = reserved.range();
        mapping::map_private(range.start + bytes, COPIES_BYTES)?;
        // Programs read what they are told of from end to end.
        mapping::make_readable(range.start, bytes)?;
        reserved.keep(vec![range.clone()]); // Code runs there to the end of the process.
        let range = range.start as u64..(range.start + bytes) as u64;
        let zeros_bytes = zeros_bytes as u64;
        Ok(Self { data_end: Arc::new(DataEnd::new(range.start)), range, page_bytes, zeros_bytes })
    }

    fn check(&self, written: &SegmentsThere) -> Result<(), String> {
        let mut contents_bytes = 0_u64;
        let zeros_at = self.range.end + COPIES_BYTES as u64;
        let parts = [self.range.clone(), zeros_at..zeros_at + self.zeros_bytes];
        for SegmentThere { range, content_bytes, .. } in &written.segments {
            let is_whole = |address: u64| address.is_multiple_of(self.page_bytes);
            let is_in = |part: &Range<u64>| part.start <= range.start && range.end <= part.end;
            let is_in = range.start < range.end && parts.iter().any(is_in);
            if !is_in || !is_whole(range.start) || !is_whole(range.end) {
                return Err(format!("{range:#x?} are no pages of this memory"));
            }
            if *content_bytes > range.end - range.start {
                return Err(format!("{content_bytes} bytes do not fit into {range:#x?}"));
            }
            contents_bytes += content_bytes; // no more than address space
        }
        if contents_bytes == written.contents.len() as u64 {
            Ok(())
        } else {
            Err(format!("{} bytes came for segments of {contents_bytes}", written.contents.len()))
        }
    }
}

impl MemoryHere for SentRange {
    fn addresses(&self) -> Range<u64> {
        self.range.clone()
    }

    fn zeros_bytes(&self) -> u64 {
        self.zeros_bytes
    }

    fn take(&self, written: SegmentsThere) -> Result<InFlightAlloc, String> {
        self.check(&written)?;
        let is_data = |segment: &&SegmentThere| segment.kind.near() == SegmentKind::Data;
        let ends = written.segments.iter().filter(is_data).map(|segment| segment.range.end);
        self.data_end.rise_to(ends, |_| Ok(())).map_err(|error| error.to_string())?;
        Ok(InFlightAlloc::new(Box::new(ReceivedAllocation { written, is_final: false })))
    }

    fn mapped(&self) -> MappedSegments {
        parts_there(self.range.start, self.data_end.get())
    }

    fn serialize(&self) {
        cores::serialize();
    }
}

/// Segments at the addresses that the host has given them. Dropping it leaves nothing mapped there.
struct ReceivedAllocation {
    written: SegmentsThere,
    is_final: bool,
}

impl Backing for ReceivedAllocation {
    fn address(&self, segment: usize) -> ExecutorAddr {
        ExecutorAddr::new(self.written.segments[segment].range.start)
    }

    fn working(&mut self, _: usize) -> &mut [u8] {
        &mut []
    }

    /// Copies the contents to their places, which get their protection.
    fn finalize(&mut self) -> Result<(), MemoryError> {
        let contents = std::mem::take(&mut self.written.contents);
        self.is_final = true;
        let mut rest = &contents[..];
        for SegmentThere { kind, range, content_bytes } in &self.written.segments {
            let (start, len) = (range.start as usize, (range.end - range.start) as usize);
            mapping::make_writable(start, len)?;
            let content;
            (content, rest) = rest.split_at(*content_bytes as usize);
            // SAFETY: `check` has seen that these are whole pages of the range, and that the contents fit. They are writable since the line above.
            // The host gives each page to one segment, and takes it back when this process has dropped that: no other code uses them.
            unsafe { mapping::bytes_mut(start, content.len()) }.copy_from_slice(content);
            mapping::protect(start, len, *kind)?;
            if *kind == SegmentKind::Code && !host::FETCHES_NEW_CODE {
                host::fetch_anew(&(start..start + len));
                cores::serialize();
            }
        }
        Ok(())
    }
}

impl Drop for ReceivedAllocation {
    fn drop(&mut self) {
        let segments = if self.is_final { &self.written.segments[..] } else { &[] };
        for SegmentThere { range, .. } in segments {
            let (start, len) = (range.start as usize, (range.end - range.start) as usize);
            if mapping::map_nothing(start, len).and_then(|()| mapping::make_readable(start, len)).is_err() {
                // They are read and written again as zeros all the same.
                mapping::discard_pages(start, len, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: SegmentKind, content_bytes: usize, zero_fill_bytes: usize) -> SegmentRequest {
        SegmentRequest { kind, content_bytes, zero_fill_bytes, align: 64 }
    }

    /// Both sides in one process.
    fn both() -> (SentMemory, SentRange) {
        let range = SentRange::reserve(RANGE_BYTES, 4096).expect("address space");
        (SentMemory::at(range.addresses().start, 4096, range.zeros_bytes()).expect("an address"), range)
    }

    fn there(address: u64) -> u8 {
        // SAFETY: a segment that was published, and whose allocation is alive.
        unsafe { ExecutorAddr::new(address).to_ptr::<u8>().read_volatile() }
    }

    #[test]
    fn bytes_that_are_sent_are_read_there_and_pages_come_back_as_zeros() {
        let (memory, range) = both();
        let kinds = [SegmentKind::Code, SegmentKind::ReadOnly, SegmentKind::Data];
        let requests = kinds.map(|kind| request(kind, 100, if kind == SegmentKind::Data { 5000 } else { 0 }));
        for round in 1..=2 {
            let mut allocation = memory.allocate("three", &requests).expect("there is room");
            (0..3).for_each(|segment| allocation.working(segment).fill(segment as u8 + round));
            let mut code = allocation.finalize().expect("it is final");
            let written = code.take_segments_there();
            assert_eq!(written.contents.len(), 300);
            let received = range.take(written).expect("they are pages").finalize().expect("they are there");
            for segment in 0..3 {
                let start = code.address(segment).value();
                assert!(start.is_multiple_of(4096), "a page of its own");
                let last = if segment == 2 { 5099 } else { 4095 };
                let bytes = [start, start + 99, start + 100, start + last].map(there);
                let filled = segment as u8 + round;
                assert_eq!(bytes, [filled, filled, 0, 0], "round {round}");
            }
            drop(received);
        }
        let usage = memory.usage();
        assert_eq!((usage.code.allocated_bytes, usage.data.allocated_bytes, usage.allocations), (0, 0, 0));
    }

    #[test]
    fn segments_that_are_no_pages_of_the_range_are_refused() {
        let (_, range) = both();
        let Range { start, end } = range.addresses();
        let lies = [
            (start - 4096..start, 0, 0),
            (end - 4096..end + 4096, 0, 0),
            (start + 1..start + 4096, 0, 0),
            (start..start + 4095, 0, 0),
            (start..start, 0, 0),
            (start..start + 4096, 4097, 4097),
            (start..start + 4096, 4, 3),
            (start..start + 4096, 4, 5),
            (start..start + 4096, u64::MAX, 0),
        ];
        for (range_there, content_bytes, contents) in lies {
            let segment = SegmentThere { kind: SegmentKind::Data, range: range_there, content_bytes };
            let written = SegmentsThere { segments: vec![segment], contents: vec![0; contents] };
            range.take(written.clone()).expect_err(&format!("{written:x?}"));
        }
    }

    #[test]
    fn pages_that_no_process_has_are_refused() {
        for page_bytes in [0, 1, 2048, 5000, 1 << 17] {
            assert_eq!(SentMemory::at(1 << 30, page_bytes, 0).map(drop), Err(1 << 30));
        }
        for base in [0, 4096, u64::MAX - 65535] {
            assert_eq!(SentMemory::at(base, 1 << 16, 0).map(drop), Err(base));
        }
    }
}
