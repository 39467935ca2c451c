//! [`ReserveRooms`]: which ranges of a reserve belong to objects. The reserve itself may be another process's.

use std::ops::Range;

use super::reserve::{RESERVE_ALIGN, RESERVE_BYTES};
use crate::executor::NotStatic;

/// The ranges that are taken, in order.
#[derive(Debug, Default)]
pub(crate) struct ReserveRooms {
    taken: Vec<Range<usize>>,
}

impl ReserveRooms {
    pub(super) const fn new() -> Self {
        Self { taken: Vec::new() }
    }

    /// Takes room. An object that can do without, which is not `required`, gets none of the last half: an object may come that cannot.
    pub(crate) fn take(&mut self, total_bytes: usize, align: usize, required: bool) -> Option<Range<usize>> {
        let limit = if required { RESERVE_BYTES } else { RESERVE_BYTES / 2 };
        if align > RESERVE_ALIGN || total_bytes > limit {
            return None;
        }
        // An object without bytes has a place nevertheless.
        let len = total_bytes.max(1);
        let mut start = 0;
        let mut position = self.taken.len();
        for (index, taken) in self.taken.iter().enumerate() {
            if start + len <= taken.start {
                position = index;
                break;
            }
            start = taken.end.next_multiple_of(align);
        }
        let range = start..start + len;
        if range.end > limit {
            return None;
        }
        self.taken.insert(position, range.clone());
        Some(range)
    }

    /// Takes the range that another process has taken of this reserve. `false` if it has no such room.
    #[cfg(feature = "helpers")]
    pub(super) fn adopt(&mut self, range: Range<usize>) -> bool {
        let position = self.taken.partition_point(|taken| taken.end <= range.start);
        let is_free = self.taken.get(position).is_none_or(|next| range.end <= next.start);
        let is_room = is_free && !range.is_empty() && range.end <= RESERVE_BYTES;
        if is_room {
            self.taken.insert(position, range);
        }
        is_room
    }

    /// Ends what [`take`](Self::take) has begun.
    pub(crate) fn give_back(&mut self, range: &Range<usize>) {
        self.taken.retain(|taken| taken != range);
    }

    /// Why an object has no room.
    pub(crate) fn why_not(&self) -> NotStatic {
        NotStatic::ReserveFull {
            free_bytes: RESERVE_BYTES - self.taken.iter().map(Range::len).sum::<usize>(),
            reserve_bytes: RESERVE_BYTES,
        }
    }
}

#[cfg(all(test, feature = "helpers"))]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_adopted_where_there_is_room() {
        let mut rooms = ReserveRooms::new();
        assert!(rooms.adopt(64..128) && rooms.adopt(0..64) && rooms.adopt(128..136));
        for range in [0..1, 60..65, 100..140, 135..137, 200..200, RESERVE_BYTES - 1..RESERVE_BYTES + 1] {
            assert!(!rooms.adopt(range.clone()), "{range:?}");
        }
        rooms.give_back(&(64..128));
        assert_eq!(rooms.take(32, 16, false), Some(64..96), "its room is free");
        assert!(rooms.adopt(96..128));
    }
}
