//! The pure protocol.

pub(crate) mod waiting_on;
