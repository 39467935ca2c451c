//! Removals: of rows, trackers, resources, the session; and transactions, which remove and define together.

pub(in crate::protocol) mod close;
pub(crate) mod policy;
pub(in crate::protocol) mod remove;
pub(crate) mod transaction;
