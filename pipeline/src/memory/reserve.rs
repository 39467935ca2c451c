//! Where ranges come from: how much address space is requested, and how much less is accepted if the system refuses.

use std::ops::Range;

use super::MemoryError;
use super::arena::SLAB_ALIGN;
use super::mapping::{PAGE_BYTES, ReservedRange};
use super::places::FileStretch;
use crate::arch::host;

/// The size of a range whose size is not given: as far as a 32-bit displacement reaches, less a margin.
pub(super) const RANGE_BYTES: usize = host::REACH_BYTES - (16 << 20);
/// The smallest range that is useful where address space is limited. When it is full, there may be another.
const RANGE_BYTES_MIN: usize = 1 << 20;

/// The part of the low addresses that is requested first. The rest stays for others, until it is needed.
const LOW_BYTES: usize = 1 << 30;
/// Addresses that 31 bits hold, without both ends: the pages that no process may map, and a margin for addresses a little beyond the end of
/// a variable.
const LOW: Range<usize> = 1 << 20..(1 << 31) - (1 << 20);
/// How far apart two tries in the low addresses lie.
const LOW_STEP: usize = 16 << 20;

/// Reserves `bytes`.
///
/// # Errors
/// [`MemoryError::Reserve`] if the system does not grant them.
pub(super) fn exactly(bytes: usize) -> Result<ReservedRange, MemoryError> {
    ReservedRange::reserve(bytes)
}

/// Reserves `bytes`, or where the system refuses that, as much of them as leaves as much again for others, and
/// `needed_bytes` at least.
///
/// # Errors
/// [`MemoryError::Reserve`] if the system does not grant even the least.
pub(super) fn near(bytes: usize, needed_bytes: usize) -> Result<ReservedRange, MemoryError> {
    let least = needed_bytes.clamp(RANGE_BYTES_MIN, bytes);
    let mut granted = largest_of(bytes, least, ReservedRange::reserve)?;
    if granted.range().len() == bytes {
        return Ok(granted);
    }
    // The limit counts what this range takes, and the program, its threads and our second views need theirs.
    let half = (granted.range().len() / 2).next_multiple_of(SLAB_ALIGN);
    if half >= least {
        granted.shrink(half);
    }
    Ok(granted)
}

/// Reserves up to `bytes` in the highest gap below 2 GiB that has room, and `needed_bytes` at least.
///
/// # Errors
/// [`MemoryError::Reserve`] if no gap has even the least.
pub(super) fn low(bytes: usize, needed_bytes: usize) -> Result<ReservedRange, MemoryError> {
    let most = LOW.end - LOW.start;
    let least = needed_bytes.clamp(RANGE_BYTES_MIN, most);
    largest_of(bytes.min(LOW_BYTES).max(least), least, reserve_low)
}

/// Reserves `bytes` below 2 GiB, or beginning there if they are too many, from the lowest addresses on that are free.
///
/// # Errors
/// [`MemoryError::Reserve`] if no gap has room.
fn low_exactly(bytes: usize) -> Result<ReservedRange, MemoryError> {
    in_steps_from_below(bytes, bytes.next_multiple_of(SLAB_ALIGN).min(LOW_STEP))
}

/// Reserves the addresses of a file. Gives where the file begins in them, too.
///
/// # Errors
/// [`MemoryError::Reserve`] if the system does not grant them.
pub(super) fn for_file(stretch: &FileStretch<'_>) -> Result<(ReservedRange, usize), MemoryError> {
    let slack = if stretch.align > PAGE_BYTES { stretch.align } else { 0 };
    let reserve = if stretch.is_low { low_exactly } else { ReservedRange::reserve };
    let range = reserve(stretch.size_bytes.saturating_add(slack))?;
    let base = range.range().start.next_multiple_of(stretch.align);
    Ok((range, base))
}

/// Reserves `bytes` from the lowest addresses on, of which the last may lie above 2 GiB.
///
/// # Errors
/// [`MemoryError::Reserve`] if no gap that begins early enough has room.
pub(super) fn from_below(bytes: usize) -> Result<ReservedRange, MemoryError> {
    in_steps_from_below(bytes, LOW_STEP)
}

fn in_steps_from_below(bytes: usize, step: usize) -> Result<ReservedRange, MemoryError> {
    let mut start = LOW.start;
    loop {
        match ReservedRange::reserve_at(start, bytes) {
            Err(_) if start + step < LOW_BYTES => start += step,
            result => return result,
        }
    }
}

/// Tries smaller and smaller sizes, and the least in the end.
fn largest_of(
    bytes: usize,
    least: usize,
    reserve: impl Fn(usize) -> Result<ReservedRange, MemoryError>,
) -> Result<ReservedRange, MemoryError> {
    let mut size = bytes;
    loop {
        match reserve(size) {
            Err(_) if size > least => size = (size / 2).next_multiple_of(SLAB_ALIGN).max(least),
            result => return result,
        }
    }
}

fn reserve_low(bytes: usize) -> Result<ReservedRange, MemoryError> {
    let mut start = LOW.end - bytes;
    loop {
        match ReservedRange::reserve_at(start, bytes) {
            Err(_) if start >= LOW.start + LOW_STEP => start -= LOW_STEP,
            result => return result,
        }
    }
}
