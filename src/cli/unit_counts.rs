//! The units of a package in figures.

use uruk::{ImageBodyCounts, LoadedImage, UnitState};

/// The units of a package, counted by where they come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitCounts {
    pub(crate) units: usize,
    pub(crate) used: usize,
    pub(crate) rejected: usize,
    pub(crate) bodies: ImageBodyCounts,
}

impl UnitCounts {
    pub(crate) fn of(image: &LoadedImage) -> Self {
        let units = image.units();
        let count = |is_it: fn(&UnitState) -> bool| units.iter().filter(|(_, state)| is_it(state)).count();
        Self {
            units: units.len(),
            used: count(|state| *state == UnitState::Used),
            rejected: count(|state| matches!(state, UnitState::Rejected(_))),
            bodies: image.bodies(),
        }
    }
}
