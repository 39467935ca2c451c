//! Memory that a link writes an image into: no code runs there.

use std::sync::OnceLock;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Arc;

use super::format::PAGE_BYTES;
use crate::memory::{Backing, InFlightAlloc, MemoryError, MemoryManager, SegmentRequest};

/// Memory at made-up addresses, one segment behind the other.
pub(super) struct PlainMemory {
    pub(super) base: u64,
    /// Where each segment is, and what it was asked for as.
    pub(super) requests: Arc<OnceLock<Vec<(u64, SegmentRequest)>>>,
}

struct PlainContents(Vec<(u64, Vec<u8>)>);

impl MemoryManager for PlainMemory {
    fn allocate(&self, _: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        let mut at = self.base + PAGE_BYTES;
        let (mut contents, mut requests) = (Vec::new(), Vec::new());
        for request in segments {
            at = at.next_multiple_of((request.align as u64).max(PAGE_BYTES));
            contents.push((at, vec![0; request.content_bytes]));
            requests.push((at, *request));
            at += (request.content_bytes + request.zero_fill_bytes) as u64;
        }
        // A link asks once.
        let _ = self.requests.set(requests);
        Ok(InFlightAlloc::new(Box::new(PlainContents(contents))))
    }
}

impl Backing for PlainContents {
    fn address(&self, segment: usize) -> ExecutorAddr {
        ExecutorAddr::new(self.0[segment].0)
    }

    fn working(&mut self, segment: usize) -> &mut [u8] {
        &mut self.0[segment].1
    }

    fn finalize(&mut self) -> Result<(), MemoryError> {
        Ok(())
    }
}
