//! Memory at made-up addresses, which is never executable: for code of other processors.

use std::sync::Arc;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Mutex;
use uruk_pipeline::memory::{Backing, InFlightAlloc, MemoryError, MemoryManager, SegmentRequest};

/// Every segment of an allocation that was finalized.
pub(crate) type Written = Arc<Mutex<Vec<MadeSegment>>>;

/// Bytes that are to be loaded at an address.
#[derive(Clone, Debug)]
pub(crate) struct MadeSegment {
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
}

impl MadeSegment {
    /// The `count` bytes at `address`, if they lie in it.
    pub(crate) fn at(&self, address: u64, count: usize) -> Option<&[u8]> {
        let offset = usize::try_from(address.checked_sub(self.address)?).ok()?;
        self.bytes.get(offset..offset.checked_add(count)?)
    }
}

/// Gives out addresses from a start on: code, constants and data a megabyte apart.
pub(crate) struct MadeUpMemory {
    start: u64,
    pub(crate) written: Written,
}

const APART: u64 = 1 << 20;

impl MadeUpMemory {
    pub(crate) fn at(start: u64) -> Self {
        Self { start, written: Written::default() }
    }
}

impl MemoryManager for MadeUpMemory {
    fn allocate(&self, _: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        let segments = segments.iter().enumerate().map(|(index, request)| MadeSegment {
            address: self.start + index as u64 * APART,
            bytes: vec![0; request.content_bytes + request.zero_fill_bytes],
        });
        let backing = MadeBacking { segments: segments.collect(), written: self.written.clone() };
        Ok(InFlightAlloc::new(Box::new(backing)))
    }
}

struct MadeBacking {
    segments: Vec<MadeSegment>,
    written: Written,
}

impl Backing for MadeBacking {
    fn address(&self, segment: usize) -> ExecutorAddr {
        ExecutorAddr::new(self.segments[segment].address)
    }

    fn working(&mut self, segment: usize) -> &mut [u8] {
        &mut self.segments[segment].bytes
    }

    fn finalize(&mut self) -> Result<(), MemoryError> {
        self.written.lock().extend(self.segments.iter().cloned());
        Ok(())
    }
}
