//! Vocabulary of symbols: their names, what they are, and sets of them.

pub(crate) mod flags;
pub(crate) mod map;
pub(crate) mod name;
pub(crate) mod set;
mod table;
