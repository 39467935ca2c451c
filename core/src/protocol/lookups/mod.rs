//! What is asked: lookups, generators, flags, link orders, and why a query waits.

pub(in crate::protocol) mod flags;
pub(crate) mod generate;
pub(in crate::protocol) mod link_order;
pub(crate) mod lookup;
pub(crate) mod lookup_one;
pub(crate) mod why;
