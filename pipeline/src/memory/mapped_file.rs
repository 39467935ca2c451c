//! [`MappedFile`]: segments that are the pages of a file, and not copies of them.
//!
//! ```text
//!   reserve ─▶ map each segment's contents over it, zero fill behind ─▶ written where words change ─▶ final protection
//! ```
//!
//! Every page is private: a written one is copied by the system and is this mapping's own. Pages that no word changes in are shared with
//! every process that maps the file, and are read when they are touched.
//!
//! **Never:** no page is writable and executable. Code in which no word changes is mapped executable at once, so that processes that may not
//! make pages executable later can have it too.

use std::fs::File;
use std::ops::Range;

use uruk_core::ExecutorAddr;

use super::mapping::{self, PAGE_BYTES, ReservedRange};
use super::places::{FilePlace, FileSegment, FileStretch, KeepsFile, MappedSegments};
use super::reserve;
use super::{Backing, MemoryError, MemoryManager, SegmentBytes, SegmentKind};

/// The segments of a file in one stretch of addresses. Dropping it gives the addresses back.
#[derive(Debug)]
pub(crate) struct MappedFile {
    place: FilePlace,
    segments: Box<[FileSegment]>,
}

impl MappedFile {
    /// Maps `segments` of `file` in `memory`. They lie one behind the other in `size_bytes` from an address that is a multiple of `align` on; below
    /// 2 GiB, if it `is_low`.
    ///
    /// # Errors
    /// [`MemoryError`] if the system refuses.
    ///
    /// # Cost
    /// Two system calls, and one or two a segment. No page of the file is read.
    pub(crate) fn map(
        file: &File,
        memory: &dyn MemoryManager,
        (size_bytes, align, is_low): (usize, usize, bool),
        segments: Box<[FileSegment]>,
    ) -> Result<Self, MemoryError> {
        let stretch = FileStretch {
            size_bytes: size_bytes.next_multiple_of(PAGE_BYTES),
            align: align.max(PAGE_BYTES),
            is_low,
            segments: &segments,
        };
        let place = match memory.place_file(&stretch)? {
            Some(place) => place,
            None => {
                let (range, base) = reserve::for_file(&stretch)?;
                FilePlace { base, keeper: Box::new(range) }
            }
        };
        let mapped = Self { place, segments };
        for segment in &mapped.segments {
            let (start, contents) = (mapped.start(segment), segment.content_bytes as usize);
            let contents = contents.next_multiple_of(PAGE_BYTES);
            if contents > 0 {
                mapping::map_contents(file, segment.file_offset, start, contents, segment.view())?;
            }
            let end = (segment.content_bytes + segment.zero_fill_bytes) as usize;
            if end > contents {
                mapping::map_private(start + contents, (end - contents).next_multiple_of(PAGE_BYTES))?;
            }
        }
        mapped.place.keeper.note(mapped.known());
        Ok(mapped)
    }

    /// Where the stretch begins.
    pub(crate) fn base(&self) -> u64 {
        self.place.base as u64
    }

    fn start(&self, segment: &FileSegment) -> usize {
        self.place.base + segment.address as usize
    }

    fn content(&self, segment: &FileSegment) -> Range<usize> {
        self.start(segment)..self.start(segment) + segment.content_bytes as usize
    }

    /// The segments as programs are told of them.
    fn known(&self) -> MappedSegments {
        let segments = self.segments.iter().map(|segment| {
            let bytes = (segment.content_bytes + segment.zero_fill_bytes) as usize;
            let start = self.start(segment);
            let address = |address: usize| ExecutorAddr::new(address as u64);
            (address(start)..address(start + bytes.next_multiple_of(PAGE_BYTES)), segment.kind)
        });
        segments.filter(|(range, _)| range.start < range.end).collect()
    }

    fn sum(&self, of: impl Fn(&FileSegment) -> u64) -> SegmentBytes {
        let mut bytes = SegmentBytes::default();
        for segment in &self.segments {
            *bytes.of_mut(segment.kind) += of(segment);
        }
        bytes
    }
}

impl KeepsFile for ReservedRange {}

impl FileSegment {
    /// The use of its pages until it is final.
    fn view(&self) -> SegmentKind {
        if self.is_written { SegmentKind::Data } else { self.kind }
    }
}

impl Backing for MappedFile {
    fn address(&self, segment: usize) -> ExecutorAddr {
        ExecutorAddr::new(self.start(&self.segments[segment]) as u64)
    }

    fn working(&mut self, segment: usize) -> &mut [u8] {
        let segment = &self.segments[segment];
        if segment.view().near() != SegmentKind::Data {
            return &mut [];
        }
        let content = self.content(segment);
        // SAFETY: `map` made these pages readable and writable, nothing runs or reads them before `finalize` consumes the
        // `InFlightAlloc`, and `&mut self` excludes a second borrow.
        unsafe { mapping::bytes_mut(content.start, content.len()) }
    }

    fn finalize(&mut self) -> Result<(), MemoryError> {
        for segment in self.segments.iter().filter(|segment| segment.is_written) {
            let content = self.content(segment);
            mapping::protect(content.start, content.len(), segment.kind)?;
        }
        Ok(())
    }

    fn bytes(&self) -> SegmentBytes {
        self.sum(|segment| segment.content_bytes + segment.zero_fill_bytes)
    }

    fn resident(&self) -> SegmentBytes {
        let length = |segment: &FileSegment| (segment.content_bytes + segment.zero_fill_bytes) as usize;
        self.sum(|segment| mapping::resident_bytes(self.start(segment), length(segment)))
    }
}
