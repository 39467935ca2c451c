//! [`UnitSet`]: some of the units of a package, by their numbers.

/// Units: a bit for each one of the package, and a list of the members.
///
/// # Cost
/// A question reads a word. Clearing is linear in the members.
#[derive(Debug)]
pub(super) struct UnitSet {
    bits: Box<[u64]>,
    count: u32,
    members: Vec<u32>,
}

impl UnitSet {
    /// None of so many units.
    pub(super) fn none_of(units: usize) -> Self {
        let count = u32::try_from(units).unwrap_or(u32::MAX);
        Self { bits: vec![0; units.div_ceil(64)].into(), count, members: Vec::new() }
    }

    pub(super) fn contains(&self, unit: u32) -> bool {
        self.bits.get(unit as usize / 64).is_some_and(|word| word >> (unit % 64) & 1 == 1)
    }

    /// Adds a unit. Says whether it is new. A number that is too large is that of no unit.
    pub(super) fn insert(&mut self, unit: u32) -> bool {
        let word = self.bits.get_mut(unit as usize / 64).filter(|_| unit < self.count);
        let Some(word) = word else { return false };
        let bit = 1 << (unit % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        if is_new {
            self.members.push(unit);
        }
        is_new
    }

    /// The members, in the order in which they were added.
    pub(super) fn members(&self) -> &[u32] {
        &self.members
    }

    pub(super) fn into_members(self) -> Vec<u32> {
        self.members
    }

    pub(super) fn clear(&mut self) {
        for unit in self.members.drain(..) {
            self.bits[unit as usize / 64] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cleared_set_has_no_members() {
        let mut set = UnitSet::none_of(130);
        assert!(set.insert(129) && set.insert(64) && set.insert(65) && !set.insert(64));
        assert!(!set.insert(4_000_000_000) && !set.insert(130) && !set.insert(191), "there is no such unit");
        assert_eq!(set.members(), [129, 64, 65]);
        set.clear();
        assert!((0..130).all(|unit| !set.contains(unit)));
        assert!(set.insert(64));
        assert_eq!(set.into_members(), [64]);
    }
}
