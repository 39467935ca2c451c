//! Long consequences, worked off in slices.

pub(crate) mod agenda;
pub(crate) mod settle;
