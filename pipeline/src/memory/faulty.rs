//! A memory manager that fails when told to, for fault tests.
//!
//! It passes everything on to another manager and counts; the chosen call fails with
//! [`MemoryError::Injected`] and does nothing.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use uruk_core::ExecutorAddr;
use uruk_core::sync::atomic::{AtomicU64, Ordering};

use super::{
    Backing, FilePlace, FileStretch, InFlightAlloc, MemoryError, MemoryManager, MemoryUsage, SegmentBytes,
    SegmentRequest,
};

/// Which call fails. Calls are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The n-th allocation.
    Allocate(u64),
    /// The n-th finalization.
    Finalize(u64),
    /// Every n-th call of either sort.
    Every(u64),
}

/// A [`MemoryManager`] with one planned failure.
pub struct FaultyMemoryManager {
    inner: Arc<dyn MemoryManager>,
    plan: Arc<FaultPlan>,
}

#[derive(Debug)]
struct FaultPlan {
    fault: Fault,
    allocations: AtomicU64,
    finalizations: AtomicU64,
}

impl FaultyMemoryManager {
    /// Wraps `inner` so that `fault` happens.
    pub fn new(inner: Arc<dyn MemoryManager>, fault: Fault) -> Self {
        let plan = FaultPlan { fault, allocations: AtomicU64::new(0), finalizations: AtomicU64::new(0) };
        Self { inner, plan: Arc::new(plan) }
    }

    fn wrap(&self, flight: InFlightAlloc) -> InFlightAlloc {
        let inner = flight.backing;
        InFlightAlloc::new(Box::new(FaultyBacking { inner, plan: Arc::clone(&self.plan) }))
    }
}

impl FaultPlan {
    fn allocation(&self) -> Result<(), MemoryError> {
        // Relaxed: a count; no other memory depends on it.
        let number = self.allocations.fetch_add(1, Ordering::Relaxed) + 1;
        let fails = match self.fault {
            Fault::Allocate(n) => number == n,
            Fault::Every(n) => number.is_multiple_of(n),
            Fault::Finalize(_) => false,
        };
        if fails { Err(MemoryError::Injected { operation: "allocate", number }) } else { Ok(()) }
    }

    fn finalization(&self) -> Result<(), MemoryError> {
        // Relaxed: a count; no other memory depends on it.
        let number = self.finalizations.fetch_add(1, Ordering::Relaxed) + 1;
        let fails = match self.fault {
            Fault::Finalize(n) => number == n,
            Fault::Every(n) => number.is_multiple_of(n),
            Fault::Allocate(_) => false,
        };
        if fails { Err(MemoryError::Injected { operation: "finalize", number }) } else { Ok(()) }
    }
}

impl MemoryManager for FaultyMemoryManager {
    fn allocate(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        self.plan.allocation()?;
        Ok(self.wrap(self.inner.allocate(owner, segments)?))
    }

    fn allocate_low(&self, owner: &str, segments: &[SegmentRequest]) -> Result<InFlightAlloc, MemoryError> {
        self.plan.allocation()?;
        Ok(self.wrap(self.inner.allocate_low(owner, segments)?))
    }

    fn place_file(&self, stretch: &FileStretch<'_>) -> Result<Option<FilePlace>, MemoryError> {
        self.inner.place_file(stretch)
    }

    fn usage(&self) -> MemoryUsage {
        self.inner.usage()
    }
}

impl fmt::Debug for FaultyMemoryManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyMemoryManager").field("plan", &self.plan).finish_non_exhaustive()
    }
}

struct FaultyBacking {
    inner: Box<dyn Backing>,
    plan: Arc<FaultPlan>,
}

impl Backing for FaultyBacking {
    fn address(&self, segment: usize) -> ExecutorAddr {
        self.inner.address(segment)
    }

    fn working(&mut self, segment: usize) -> &mut [u8] {
        self.inner.working(segment)
    }

    fn will_write(&mut self, segment: usize, range: Range<usize>) {
        self.inner.will_write(segment, range);
    }

    fn finalize(&mut self) -> Result<(), MemoryError> {
        self.plan.finalization()?;
        self.inner.finalize()
    }

    fn bytes(&self) -> SegmentBytes {
        self.inner.bytes()
    }

    fn resident(&self) -> SegmentBytes {
        self.inner.resident()
    }
}
