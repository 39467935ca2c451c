//! Call frames, as a linker and the place where code runs speak of them.

use std::ops::Range;

/// Unwind information of a linked graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwindTable {
    /// The code it covers.
    pub code: Range<u64>,
    /// The sorted index, which begins with the distance to `.eh_frame`.
    pub eh_frame_hdr: u64,
}

/// Bytes at the start of linked code, before the first function, that may be read.
pub(crate) const BEFORE_CODE_BYTES: u64 = 16;
