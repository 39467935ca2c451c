//! Sizes by kind of memory.

use std::ops::{Add, AddAssign};

use super::SegmentKind;

/// Bytes, split by their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentBytes {
    /// Executable bytes.
    pub code_bytes: u64,
    /// Constant bytes, unwind tables included.
    pub read_only_bytes: u64,
    /// Writable bytes, zero-fill included.
    pub data_bytes: u64,
}

impl SegmentBytes {
    /// All of them.
    pub const fn total_bytes(self) -> u64 {
        self.code_bytes + self.read_only_bytes + self.data_bytes
    }

    /// The count that belongs to `kind`.
    pub const fn of(self, kind: SegmentKind) -> u64 {
        match kind {
            SegmentKind::Code => self.code_bytes,
            SegmentKind::ReadOnly => self.read_only_bytes,
            SegmentKind::Data | SegmentKind::FarData => self.data_bytes,
        }
    }

    /// The count that belongs to `kind`, to be changed.
    pub const fn of_mut(&mut self, kind: SegmentKind) -> &mut u64 {
        match kind {
            SegmentKind::Code => &mut self.code_bytes,
            SegmentKind::ReadOnly => &mut self.read_only_bytes,
            SegmentKind::Data | SegmentKind::FarData => &mut self.data_bytes,
        }
    }
}

impl AddAssign for SegmentBytes {
    fn add_assign(&mut self, other: Self) {
        self.code_bytes += other.code_bytes;
        self.read_only_bytes += other.read_only_bytes;
        self.data_bytes += other.data_bytes;
    }
}

impl Add for SegmentBytes {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

/// Usage of one kind of memory in a manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindUsage {
    /// Bytes in allocations that are alive.
    pub allocated_bytes: u64,
    /// Bytes of address space in slabs, allocated or free.
    pub slab_bytes: u64,
    /// Bytes that occupy physical memory now.
    pub resident_bytes: u64,
    /// Bytes in unused slabs that are not handed out again, because a process on the other side of a `fork` sees them too.
    pub withheld_bytes: u64,
}

/// The memory that a manager holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Executable memory.
    pub code: KindUsage,
    /// Constants and unwind tables.
    pub read_only: KindUsage,
    /// Writable memory.
    pub data: KindUsage,
    /// Size of the reserved range of addresses, and of the ranges that allocations have for themselves.
    pub reserved_bytes: u64,
    /// Allocations that are alive. Objects that were linked together share one, which goes with the last of them.
    pub allocations: u64,
}

impl MemoryUsage {
    /// The part that belongs to `kind`, to be changed.
    pub const fn of_mut(&mut self, kind: SegmentKind) -> &mut KindUsage {
        match kind {
            SegmentKind::Code => &mut self.code,
            SegmentKind::ReadOnly => &mut self.read_only,
            SegmentKind::Data | SegmentKind::FarData => &mut self.data,
        }
    }
}
