//! Long consequences, worked off in slices.

pub(crate) mod settle;
