//! Where the first range keeps the code and the data of a program, each in one stretch (`runtime/image.rs`).
//!
//! Both are filled from below. All of the data stretch can be read: programs scan it from end to end.

use std::ops::Range;

use uruk_core::ExecutorAddr;

use super::arena::SLAB_ALIGN;
use super::free_ranges::FreeRanges;
use super::mapping;
use super::places::{FileStretch, ProgramWindow};
use super::{MemoryError, SegmentKind};

/// The most that a stretch has.
const STRETCH_BYTES_MAX: usize = 64 << 20;

/// The two stretches of an arena, and their parts without a slab.
#[derive(Debug)]
pub(super) struct Window {
    text: Range<usize>,
    data: Range<usize>,
    free_text: FreeRanges,
    free_data: FreeRanges,
}

impl Window {
    /// Takes the stretches out of the free part of a range of `range_bytes`. `None` if that is too small.
    ///
    /// # Errors
    /// [`MemoryError::Protect`] if the system does not let the data stretch be read.
    pub(super) fn take(free: &mut FreeRanges, range_bytes: usize) -> Result<Option<Self>, MemoryError> {
        let len = (range_bytes / 8).min(STRETCH_BYTES_MAX) & !(SLAB_ALIGN - 1);
        if len == 0 {
            return Ok(None);
        }
        let Some(start) = free.take_highest(2 * len, SLAB_ALIGN) else { return Ok(None) };
        let (text, data) = (start..start + len, start + len..start + 2 * len);
        mapping::make_readable(data.start, data.len())?;
        let (mut free_text, mut free_data) = (FreeRanges::default(), FreeRanges::default());
        free_text.give_back(text.clone(), &text);
        free_data.give_back(data.clone(), &data);
        Ok(Some(Self { text, data, free_text, free_data }))
    }

    /// Takes the lowest room for a slab.
    pub(super) fn take_slab(&mut self, kind: SegmentKind, len: usize, align: usize) -> Option<usize> {
        match kind.near() {
            SegmentKind::Data => self.free_data.take_lowest(len, align),
            _ => self.free_text.take_lowest(len, align),
        }
    }

    /// Takes the addresses of a file's segments, of which those of data come last: on both sides of the border between the stretches, or, where that
    /// is taken, among the data, all of which programs scan.
    pub(super) fn take_file(&mut self, stretch: &FileStretch<'_>) -> Option<usize> {
        let border = self.data.start;
        if let Some(start) = stretch.data_at().and_then(|data_at| border.checked_sub(data_at)) {
            let (text, data) = (start..border, border..start + stretch.size_bytes);
            if start.is_multiple_of(stretch.align) && self.free_text.take_exactly(text.clone()) {
                if self.free_data.take_exactly(data) {
                    return Some(start);
                }
                self.free_text.give_back(text, &self.text);
            }
        }
        self.free_data.take_lowest(stretch.size_bytes, stretch.align)
    }

    /// Takes back the addresses of a slab or of a file; says whether they are of a stretch.
    pub(super) fn give_back(&mut self, range: &Range<usize>) -> bool {
        let border = self.data.start;
        let text = range.start..range.end.min(border);
        let data = range.start.max(border)..range.end;
        let is_text = self.text.contains(&text.start) && !text.is_empty();
        let is_data = self.data.contains(&data.start) && !data.is_empty();
        if is_text {
            self.free_text.give_back(text, &self.text);
        }
        if is_data {
            // Where that is refused, a program that scans the stretch after code has gone finds a hole.
            let _ = mapping::make_readable(data.start, data.len());
            self.free_data.give_back(data, &self.data);
        }
        is_text || is_data
    }

    /// Where they are.
    pub(super) fn addresses(&self) -> ProgramWindow {
        let of =
            |range: &Range<usize>| ExecutorAddr::new(range.start as u64)..ExecutorAddr::new(range.end as u64);
        ProgramWindow { text: of(&self.text), data: of(&self.data) }
    }
}
