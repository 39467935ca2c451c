//! One allocation of the in-process manager: its pieces, from the request to the day they are given back.

use std::ops::Range;
use std::sync::Arc;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Process;

use super::in_process::Pool;
use super::piece::Piece;
use super::ranges::Reach;
use super::{Backing, MemoryError, SegmentBytes, SegmentKind, SegmentRequest, cores, mapping};
use crate::arch::host;

/// The pieces of an allocation, in the order of its requests. Dropping it gives them back.
pub(super) struct Allocation {
    pool: Arc<Pool>,
    pieces: Vec<Piece>,
    /// The process that may write the contents.
    filled_by: Process,
    /// Discards the writes of a child of the process that fills the memory.
    scratch: Vec<u8>,
}

impl Allocation {
    /// Takes pieces for `requests` out of `pool`, all or none.
    pub(super) fn take(
        pool: &Arc<Pool>,
        owner: &str,
        requests: &[SegmentRequest],
        reach: Reach,
    ) -> Result<Self, MemoryError> {
        for request in requests {
            check(owner, request)?;
        }
        let pieces = {
            let mut ranges = pool.ranges.lock();
            let pieces = ranges.take_all(owner, requests, reach)?;
            ranges.allocations += 1;
            pieces
        };
        pieces.iter().for_each(Piece::prepare);
        Ok(Self { pool: Arc::clone(pool), pieces, filled_by: Process::current(), scratch: Vec::new() })
    }
}

impl Backing for Allocation {
    fn address(&self, segment: usize) -> ExecutorAddr {
        ExecutorAddr::new(self.pieces[segment].range.start as u64)
    }

    fn working(&mut self, segment: usize) -> &mut [u8] {
        let piece = &self.pieces[segment];
        if self.filled_by != Process::current() {
            // The pages are the parent's to fill, and `finalize` refuses.
            // Fresh zeros occupy no memory until they are written; there may be much padding among them.
            self.scratch = vec![0; piece.content_bytes];
            return &mut self.scratch;
        }
        // SAFETY: the piece was taken out of the free ranges for this allocation alone, its working view is
        // mapped writable until the allocation is given back, and `&mut self` excludes a second borrow. Nothing
        // runs or reads the run view before `finalize` consumes the `InFlightAlloc`.
        unsafe { mapping::bytes_mut(piece.working, piece.content_bytes) }
    }

    fn will_write(&mut self, segment: usize, range: Range<usize>) {
        if self.filled_by == Process::current() {
            self.pieces[segment].will_write(range);
        }
    }

    fn finalize(&mut self) -> Result<(), MemoryError> {
        if self.filled_by != Process::current() {
            return Err(MemoryError::Forked);
        }
        for piece in self.pieces.iter().filter(|piece| piece.protect) {
            mapping::protect(piece.range.start, piece.range.len(), piece.kind)?;
        }
        let mut ranges = self.pool.ranges.lock();
        for piece in self.pieces.iter().filter(|piece| piece.working != piece.range.start) {
            ranges.settle(piece);
        }
        let may_be_stale = ranges.has_old_code || !host::FETCHES_NEW_CODE;
        drop(ranges);
        if may_be_stale && self.has_code() {
            let code = self.pieces.iter().filter(|piece| piece.kind == SegmentKind::Code);
            code.for_each(|piece| host::fetch_anew(&piece.range));
            cores::serialize(); // Other code may have lain here.
        }
        Ok(())
    }

    fn bytes(&self) -> SegmentBytes {
        let mut bytes = SegmentBytes::default();
        for piece in &self.pieces {
            *bytes.of_mut(piece.kind) += piece.range.len() as u64;
        }
        bytes
    }

    fn resident(&self) -> SegmentBytes {
        let mut bytes = SegmentBytes::default();
        for piece in &self.pieces {
            *bytes.of_mut(piece.kind) += mapping::resident_bytes(piece.range.start, piece.range.len());
        }
        bytes
    }
}

impl Allocation {
    fn has_code(&self) -> bool {
        self.pieces.iter().any(|piece| piece.kind == SegmentKind::Code)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut ranges = self.pool.ranges.lock();
        for piece in self.pieces.iter().rev() {
            ranges.give_back(piece);
        }
        ranges.has_old_code |= self.has_code();
        ranges.allocations = ranges.allocations.saturating_sub(1);
    }
}

/// Whether the request makes sense.
pub(super) fn check(owner: &str, request: &SegmentRequest) -> Result<(), MemoryError> {
    let invalid = |what| Err(MemoryError::Invalid { owner: owner.into(), what });
    if !request.align.is_power_of_two() || request.align > 1 << 30 {
        return invalid("the alignment is not a power of two up to 1 GiB");
    }
    if request.zero_fill_bytes > 0 && request.kind.near() != SegmentKind::Data {
        return invalid("only data segments have zero-fill");
    }
    match request.content_bytes.checked_add(request.zero_fill_bytes) {
        Some(total) if total < 1 << 46 => Ok(()),
        _ => invalid("the segment is larger than the address space"),
    }
}
