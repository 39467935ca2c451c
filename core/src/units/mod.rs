//! The units every program needs.

pub(crate) mod absolute;
pub(crate) mod function;
pub(crate) mod reexports;
pub(crate) mod reexports_generator;
