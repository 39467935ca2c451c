//! Questions: lookups, generators, flags, link orders, and why a query waits.

mod advise;
pub(crate) mod anew;
mod generate;
pub(crate) mod lookup;
pub(crate) mod why;
