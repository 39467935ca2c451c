//! [`Unreplaced`]: units of a package that contain no code of replaced definitions, as far as the session has changed nothing since.

use super::reader::ImageReader;
use super::unit_set::UnitSet;
use super::units::UnitKey;
use super::validate::Validation;

/// Units that were looked through together with those whose code they contain. None of their definitions was replaced.
#[derive(Debug)]
pub struct Unreplaced {
    units: UnitSet,
    /// How many definitions had come and gone in the session then.
    changes: u64,
}

impl Unreplaced {
    /// None of so many units was looked through.
    pub fn none_of(units: usize) -> Self {
        Self { units: UnitSet::none_of(units), changes: 0 }
    }

    /// The definitions that `is_replaced` names, of those whose code a unit contains, itself or by way of others. Each with the unit that contains its
    /// code itself. `is_replaced` is given the name and the unit that has it. `changes` is how many definitions had come and gone before.
    ///
    /// # Cost
    /// Linear in the assumptions of the unit, and of the units whose code it contains, as far as these were not looked through since the session has
    /// changed. So it is linear in the package for all units together, if they [pass](Self::pass).
    pub fn look<'r>(
        &mut self,
        reader: &'r ImageReader,
        unit: u32,
        changes: u64,
        mut is_replaced: impl FnMut(&str, u32) -> bool,
    ) -> Vec<(u32, &'r str, UnitKey)> {
        if self.changes != changes {
            self.units.clear();
            self.changes = changes;
        }
        let (mut replaced, mut open) = (Vec::new(), Vec::new());
        if self.units.insert(unit) {
            open.push(unit);
        }
        while let Some(unit) = open.pop() {
            for assumed in Validation::contained_in(reader, unit) {
                let Some(home) = assumed.home.filter(|home| *home != unit) else { continue };
                if is_replaced(assumed.name, home) {
                    replaced.push((unit, assumed.name, assumed.key));
                } else if self.units.insert(home) {
                    open.push(home);
                }
            }
        }
        if !replaced.is_empty() {
            // The next look finds them again.
            self.units.clear();
        }
        replaced
    }

    /// The package has defined `count` names of its own, which replace nothing. Definitions of others may have come and gone beside that: it knows
    /// by how many there were `before` and `after`.
    pub fn pass(&mut self, before: u64, count: u64, after: u64) {
        if self.changes == before && before + count == after {
            self.changes = after;
        }
    }
}
