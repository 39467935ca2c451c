//! What becomes of each value of a module whose functions are compiled one at a time.

use std::collections::HashSet;

use super::ffi::symbol_bits;

/// What becomes of a value of a module; `functions.cpp` has the same list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Elsewhere,
    OnCall,
    InData,
    WithFunction,
    OtherName,
}

/// What a module's values become.
#[derive(Debug, Default)]
pub(super) struct Outline {
    pub(super) values: Vec<OutlinedValue>,
    /// What is local to the module and known to several parts of it.
    pub(super) locals: HashSet<Box<str>>,
    /// Functions whose blocks data refers to. They cannot be compiled twice.
    pub(super) with_tables: HashSet<u32>,
}

#[derive(Debug)]
pub(super) struct OutlinedValue {
    pub(super) name: Box<str>,
    pub(super) kind: Kind,
    /// The number of the function that it belongs to.
    pub(super) of: u32,
    pub(super) bits: u32,
}

impl OutlinedValue {
    pub(super) fn is_local(&self) -> bool {
        self.bits & symbol_bits::LOCAL != 0
    }
}
