//! What goes: rows, trackers, resources, the session; and transactions, which remove and define together.

pub(in crate::protocol) mod close;
pub(in crate::protocol) mod remove;
pub(crate) mod transaction;
