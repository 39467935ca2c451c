//! Which parts of an address range are free: coalescing on return, best fit on demand.
//!
//! Pure bookkeeping on numbers; it never touches the memory it describes. The free ranges are disjoint,
//! not empty, and no two of them inside the same bounds touch each other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A set of disjoint free ranges.
#[derive(Debug, Default)]
pub(super) struct FreeRanges {
    by_start: BTreeMap<usize, usize>,
    by_len: BTreeSet<(usize, usize)>,
}

impl FreeRanges {
    /// Takes `len` bytes aligned to `align` out of the smallest range found that fits.
    ///
    /// # Cost
    /// Logarithmic. Beyond pointer alignment a few candidates are tried before one that must fit is taken.
    pub(super) fn take(&mut self, len: usize, align: usize) -> Option<usize> {
        const CANDIDATES: usize = 8;
        let snug = self.by_len.range((len, 0)..).take(CANDIDATES).find_map(|&(size, start)| {
            let aligned = start.next_multiple_of(align);
            (aligned + len <= start + size).then_some((start, size, aligned))
        });
        let (start, size, aligned) = match snug {
            Some(found) => found,
            None => {
                let &(size, start) = self.by_len.range((len.checked_add(align)?, 0)..).next()?;
                (start, size, start.next_multiple_of(align))
            }
        };
        self.carve(start, size, aligned..aligned + len);
        Some(aligned)
    }

    /// Takes `len` bytes aligned to `align` at the highest address where they fit.
    ///
    /// # Cost
    /// Linear in the number of free ranges: for slabs, of which there are few.
    pub(super) fn take_highest(&mut self, len: usize, align: usize) -> Option<usize> {
        let (start, size, aligned) = self.by_start.iter().rev().find_map(|(&start, &size)| {
            let aligned = (start + size).checked_sub(len)? & !(align - 1);
            (aligned >= start).then_some((start, size, aligned))
        })?;
        self.carve(start, size, aligned..aligned + len);
        Some(aligned)
    }

    /// Takes `len` bytes aligned to `align` at the lowest address where they fit.
    ///
    /// # Cost
    /// Linear in the number of free ranges.
    pub(super) fn take_lowest(&mut self, len: usize, align: usize) -> Option<usize> {
        let (start, size, aligned) = self.by_start.iter().find_map(|(&start, &size)| {
            let aligned = start.next_multiple_of(align);
            (aligned.checked_add(len)? <= start + size).then_some((start, size, aligned))
        })?;
        self.carve(start, size, aligned..aligned + len);
        Some(aligned)
    }

    /// Takes exactly `range`, if all of it is free. Says whether it is.
    ///
    /// # Cost
    /// Logarithmic.
    pub(super) fn take_exactly(&mut self, range: Range<usize>) -> bool {
        let Some((&start, &size)) = self.by_start.range(..=range.start).next_back() else { return false };
        let is_free = range.end <= start + size;
        if is_free {
            self.carve(start, size, range);
        }
        is_free
    }

    /// Returns `range`, joining it with free neighbours inside `bounds`; answers the joined range.
    pub(super) fn give_back(&mut self, range: Range<usize>, bounds: &Range<usize>) -> Range<usize> {
        let mut joined = range;
        if let Some((&start, &len)) = self.by_start.range(bounds.start..=joined.start).next_back() {
            assert!(start + len <= joined.start, "memory at {:#x} is given back twice", joined.start);
            if start + len == joined.start {
                self.remove(start, len);
                joined.start = start;
            }
        }
        if let Some((&start, &len)) = self.by_start.range(joined.end..bounds.end).next()
            && start == joined.end
        {
            self.remove(start, len);
            joined.end = start + len;
        }
        self.insert(joined.start, joined.end - joined.start);
        joined
    }

    /// Forgets everything free inside `bounds`, which cut through no free range; says how many bytes that was.
    pub(super) fn withdraw(&mut self, bounds: &Range<usize>) -> usize {
        let inside: Vec<_> = self.by_start.range(bounds.clone()).map(|(&start, &len)| (start, len)).collect();
        inside.iter().for_each(|&(start, len)| self.remove(start, len));
        inside.iter().map(|(_, len)| len).sum()
    }

    fn carve(&mut self, start: usize, size: usize, taken: Range<usize>) {
        self.remove(start, size);
        if start < taken.start {
            self.insert(start, taken.start - start);
        }
        if taken.end < start + size {
            self.insert(taken.end, start + size - taken.end);
        }
    }

    fn insert(&mut self, start: usize, len: usize) {
        self.by_start.insert(start, len);
        self.by_len.insert((len, start));
    }

    fn remove(&mut self, start: usize, len: usize) {
        let known = self.by_start.remove(&start);
        assert_eq!(known, Some(len), "free range at {start:#x} is not what it was thought to be");
        self.by_len.remove(&(len, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(range: Range<usize>) -> FreeRanges {
        let mut free = FreeRanges::default();
        free.give_back(range.clone(), &range);
        free
    }

    #[test]
    fn returned_neighbours_join_and_the_whole_comes_back() {
        let bounds = 0x1000..0x2000;
        let mut free = filled(bounds.clone());
        let pieces: Vec<_> = (0..16).map(|_| free.take(0x100, 16).unwrap()).collect();
        assert_eq!(free.take(16, 16), None);
        let mut last = 0..0;
        for start in pieces.iter().step_by(2).chain(pieces.iter().skip(1).step_by(2)) {
            last = free.give_back(*start..*start + 0x100, &bounds);
        }
        assert_eq!(last, bounds);
    }

    #[test]
    fn ranges_of_different_bounds_do_not_join() {
        let mut free = filled(0x1000..0x2000);
        assert_eq!(free.give_back(0x2000..0x3000, &(0x2000..0x3000)), 0x2000..0x3000);
        assert_eq!(free.take(0x1800, 16), None);
    }

    #[test]
    fn the_smallest_fit_is_taken_first() {
        let mut free = filled(0x1000..0x2000);
        free.give_back(0x8000..0x8040, &(0x8000..0x9000));
        assert_eq!(free.take(0x40, 16), Some(0x8000));
    }

    #[test]
    fn alignment_is_kept_and_the_gap_stays_free() {
        let mut free = filled(0x1010..0x3000);
        assert_eq!(free.take(0x10, 0x1000), Some(0x2000));
        assert_eq!(free.take(0xff0, 16), Some(0x1010));
    }

    #[test]
    fn highest_and_lowest_take_from_the_ends() {
        let mut free = filled(0x10_0000..0x20_0000);
        assert_eq!(free.take_highest(0x1000, 0x1_0000), Some(0x1f_0000));
        assert_eq!(free.take_lowest(0x1000, 0x1000), Some(0x10_0000));
    }

    #[test]
    fn an_exact_range_is_taken_only_if_all_of_it_is_free() {
        let mut free = filled(0x1000..0x2000);
        assert!(free.take_exactly(0x1800..0x1900));
        for taken in [0x1700..0x1801, 0x18ff..0x1a00, 0x1800..0x1900, 0xf00..0x1001, 0x1f00..0x2001] {
            assert!(!free.take_exactly(taken.clone()), "{taken:x?}");
        }
        assert!(free.take_exactly(0x1000..0x1800) && free.take_exactly(0x1900..0x2000));
        assert_eq!(free.take(16, 16), None);
    }

    #[test]
    fn withdrawn_ranges_are_not_handed_out() {
        let mut free = filled(0x1000..0x2000);
        free.give_back(0x2000..0x3000, &(0x2000..0x3000));
        assert_eq!(free.take(0x100, 0x1000), Some(0x1000));
        assert_eq!(free.withdraw(&(0x1000..0x2000)), 0xf00);
        assert_eq!(free.take(0x1000, 16), Some(0x2000));
        assert_eq!(free.take(16, 16), None);
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn giving_back_twice_is_a_programming_error() {
        let mut free = filled(0x1000..0x2000);
        free.give_back(0x1800..0x1900, &(0x1000..0x2000));
    }
}
