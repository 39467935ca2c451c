//! A piece of a slab, taken for one segment of an allocation.

use std::ops::Range;

use super::SegmentKind;
use super::mapping::{self, PAGE_BYTES};
use super::slab::Preparation;

/// From here on freed pages go back to the system at once rather than with their slab.
pub(super) const DISCARD_BYTES: usize = 64 << 10;

/// One segment of an allocation.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) kind: SegmentKind,
    pub(super) range: Range<usize>,
    pub(super) working: usize,
    pub(super) content_bytes: usize,
    /// The work of `prepare`.
    pub(super) preparation: Preparation,
    /// Whether `mprotect` gives it its final protection.
    pub(super) protect: bool,
}

impl Piece {
    /// Fills a part of the working view with pages, unless it has pages already.
    pub(super) fn will_write(&self, part: Range<usize>) {
        if self.preparation.populate_announced && part.start < part.end && part.end <= self.content_bytes {
            let start = (self.working + part.start) & !(PAGE_BYTES - 1);
            mapping::populate(start, self.working + part.end - start);
        }
    }

    /// Removes old contents. The piece is ours and not handed out yet, so no lock is needed.
    pub(super) fn prepare(&self) {
        let Preparation { dirty_bytes, populate, populate_announced: _ } = &self.preparation;
        if !populate.is_empty() {
            mapping::populate(populate.start, populate.len());
        }
        if *dirty_bytes == 0 {
            return;
        }
        let end = self.working + dirty_bytes;
        let (first_page, last_page) = (self.working.next_multiple_of(PAGE_BYTES), end & !(PAGE_BYTES - 1));
        let whole_pages =
            self.kind == SegmentKind::Data && last_page.saturating_sub(first_page) >= DISCARD_BYTES;
        if whole_pages && mapping::discard_pages(first_page, last_page - first_page, false) {
            mapping::zero(self.working, first_page - self.working);
            mapping::zero(last_page, end - last_page);
        } else {
            mapping::zero(self.working, *dirty_bytes);
        }
    }
}
