//! Stacks of our own, for work that is called on stacks of unknown size.

use std::ops::Range;

use super::MemoryError;
use super::mapping::{PAGE_BYTES, ReservedRange};

/// A stack: address space, which takes memory as far as it is used. Its lowest page stays inaccessible.
#[derive(Debug)]
pub(crate) struct StackMapping(ReservedRange);

impl StackMapping {
    /// Reserves `bytes`.
    ///
    /// # Errors
    /// If the system does not grant them.
    pub(crate) fn reserve(bytes: usize) -> Result<Self, MemoryError> {
        let reserved = ReservedRange::reserve(bytes)?;
        reserved.make_writable(PAGE_BYTES)?;
        Ok(Self(reserved))
    }

    /// The addresses. A stack begins at their end.
    pub(crate) fn range(&self) -> Range<usize> {
        self.0.range()
    }
}
