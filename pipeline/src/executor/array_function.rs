//! [`ArrayFunction`]: an initialiser or finaliser, and its place among others.

use uruk_core::ExecutorAddr;

/// One element of an `.init_array` or `.fini_array`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArrayFunction {
    /// Lower ones are initialized earlier and finalized later. Functions in `.preinit_array` have -2, fragments of code in `.init` and
    /// `.fini` have -1.
    pub priority: i32,
    /// Place of the unit among the program's files; decides among equal priorities.
    pub unit: u32,
    /// Place within the unit's array.
    pub index: u32,
    /// The function.
    pub address: ExecutorAddr,
}
