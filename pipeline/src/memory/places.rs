//! Where the memory of a program is, and the addresses of files that are mapped into it.

use std::fmt;
use std::ops::Range;

use uruk_core::ExecutorAddr;

use super::SegmentKind;

/// The addresses of the two stretches. The data follows the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramWindow {
    /// Code and constants.
    pub text: Range<ExecutorAddr>,
    /// Writable data.
    pub data: Range<ExecutorAddr>,
}

/// A segment of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSegment {
    /// Its use.
    pub kind: SegmentKind,
    /// Where it begins, from the start of the mapping: a multiple of a page.
    pub address: u64,
    /// Where its contents begin in the file: a multiple of a page.
    pub file_offset: u64,
    /// The length of its contents. Zeros follow these in the file, up to the end of a page.
    pub content_bytes: u64,
    /// How much zero memory follows the contents.
    pub zero_fill_bytes: u64,
    /// Whether words of the contents are going to be changed.
    pub is_written: bool,
}

/// Memory that is mapped for segments: its addresses, and the purpose of each part.
pub type MappedSegments = Vec<(Range<ExecutorAddr>, SegmentKind)>;

/// The addresses that a file needs for its segments, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct FileStretch<'f> {
    pub(super) size_bytes: usize,
    /// The start is a multiple of this, which is a page at least.
    pub(super) align: usize,
    /// Whether it lies below 2 GiB.
    pub(super) is_low: bool,
    pub(super) segments: &'f [FileSegment],
}

impl FileStretch<'_> {
    /// Where data begins, if nothing but data comes behind that.
    pub(super) fn data_at(&self) -> Option<usize> {
        let is_data = |segment: &&FileSegment| segment.kind.near() == SegmentKind::Data;
        let data_at = self.segments.iter().filter(is_data).map(|segment| segment.address).min()?;
        let others = self.segments.iter().filter(|segment| !is_data(segment));
        let is_behind = |other: &FileSegment| other.address + other.content_bytes > data_at;
        (!others.clone().any(is_behind)).then_some(data_at as usize)
    }
}

/// The addresses of a file's segments. Dropping it gives them back.
pub struct FilePlace {
    pub(super) base: usize,
    pub(super) keeper: Box<dyn KeepsFile>,
}

/// The owner of a file's addresses. Dropping it gives them back.
pub(super) trait KeepsFile: Send + Sync {
    /// The segments of the file are mapped from now on.
    fn note(&self, segments: MappedSegments) {
        let _ = segments;
    }
}

impl fmt::Debug for FilePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilePlace").field("base", &self.base).finish_non_exhaustive()
    }
}
