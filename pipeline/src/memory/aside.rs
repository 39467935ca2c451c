//! A range of its own for an allocation whose data is too large for the common one.
//!
//! ```text
//!   low                                                                    high
//!   [ code │ constants │ data, smallest first ──▶ the largest ... │ far data ]
//! ```
//!
//! Code reaches the *start* of every segment with a 32-bit displacement, however far the largest extends beyond that, and compiled code
//! refers to the starts of variables. Code reaches symbols outside the allocation through the table and the stubs of its object, like every
//! symbol that may be far away.
//!
//! The range is taken apart once its slabs are mapped: gaps go back at once, and each slab unmaps its own part.

use std::ops::Range;

use super::mapping::{PAGE_BYTES, ReservedRange};
use super::slab::{Slab, Views};
use super::{MemoryError, SegmentKind, SegmentRequest};

/// Has `reserve` find a range for `requests`, and maps a slab for each, in the order of the requests.
///
/// # Errors
/// [`MemoryError`] if the system refuses the addresses or a mapping; nothing stays mapped.
pub(super) fn map(
    owner: &str,
    requests: &[SegmentRequest],
    views: Views,
    reserve: fn(usize) -> Result<ReservedRange, MemoryError>,
) -> Result<Vec<Slab>, MemoryError> {
    let plan = AsidePlan::of(requests).ok_or_else(|| MemoryError::Invalid {
        owner: owner.into(),
        what: "the segments together are larger than the address space",
    })?;
    let reserved = reserve(plan.bytes + (plan.align - PAGE_BYTES))?;
    let base = reserved.range().start.next_multiple_of(plan.align);
    let parts: Vec<_> = plan.parts.iter().map(|part| base + part.start..base + part.end).collect();
    let mut slabs: Vec<Slab> = Vec::with_capacity(parts.len());
    for (part, request) in parts.iter().zip(requests) {
        match Slab::map_aside(part.clone(), request.kind.near(), views) {
            Ok(slab) => slabs.push(slab),
            Err(error) => {
                slabs.iter().for_each(Slab::release_working_view);
                return Err(error); // The run views go with the range.
            }
        }
    }
    reserved.keep(parts);
    Ok(slabs)
}

/// Where the segments lie, counted from a base with the alignment of the whole.
#[derive(Debug)]
struct AsidePlan {
    /// In the order of the requests.
    parts: Vec<Range<usize>>,
    bytes: usize,
    align: usize,
}

impl AsidePlan {
    /// `None` if the sizes add up to more than there are addresses.
    fn of(requests: &[SegmentRequest]) -> Option<Self> {
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_by_key(|&index| (rank(requests[index].kind), requests[index].total_bytes()));
        let mut plan = Self { parts: vec![0..0; requests.len()], bytes: 0, align: PAGE_BYTES };
        for index in order {
            let request = &requests[index];
            let align = request.align.max(PAGE_BYTES);
            let start = plan.bytes.checked_next_multiple_of(align)?;
            let len = request.total_bytes().max(1).checked_next_multiple_of(PAGE_BYTES)?;
            plan.bytes = start.checked_add(len)?;
            plan.align = plan.align.max(align);
            plan.parts[index] = start..plan.bytes;
        }
        (plan.bytes < 1 << 47).then_some(plan)
    }
}

const fn rank(kind: SegmentKind) -> u8 {
    match kind {
        SegmentKind::Code => 0,
        SegmentKind::ReadOnly => 1,
        SegmentKind::Data => 2,
        SegmentKind::FarData => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: SegmentKind, zero_fill_bytes: usize, align: usize) -> SegmentRequest {
        SegmentRequest { kind, content_bytes: 16, zero_fill_bytes, align }
    }

    #[test]
    fn code_comes_first_and_the_largest_data_last() {
        let plan = AsidePlan::of(&[
            request(SegmentKind::Data, 3 << 30, 64),
            request(SegmentKind::FarData, 0, 16),
            request(SegmentKind::Data, 0, 16),
            request(SegmentKind::Code, 0, 16),
            request(SegmentKind::ReadOnly, 0, 16),
        ])
        .unwrap();
        let starts: Vec<_> = plan.parts.iter().map(|part| part.start).collect();
        assert_eq!(starts, [0x3000, 0x3000 + (3 << 30) + 0x1000, 0x2000, 0, 0x1000]);
        assert_eq!(plan.bytes, starts[1] + 0x1000);
    }

    #[test]
    fn alignment_is_kept_and_sums_beyond_the_address_space_are_refused() {
        let plan =
            AsidePlan::of(&[request(SegmentKind::Code, 0, 16), request(SegmentKind::Data, 0, 1 << 21)]);
        let plan = plan.unwrap();
        assert_eq!((plan.parts[1].start, plan.align), (1 << 21, 1 << 21));
        let many = vec![request(SegmentKind::Data, 1 << 45, 16); 4];
        assert!(AsidePlan::of(&many).is_none());
    }
}
