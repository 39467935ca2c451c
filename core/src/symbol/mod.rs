//! Vocabulary of symbols: their names, what they are, and sets of them.

pub(crate) mod address;
mod count;
pub(crate) mod flags;
mod hash;
pub(crate) mod map;
pub(crate) mod name;
pub(crate) mod readable;
pub(crate) mod set;
mod table;
mod text;
mod window;

#[cfg(uruk_loom)]
pub use count::follow_counts;
