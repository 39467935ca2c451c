//! [`ArrayFunction`]: an initialiser or finaliser, and its place among others; [`Startup`]: those of what was linked.

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

/// Functions that run before or after others, of what was linked and not started yet. They are the caller's, taken by
/// [`Platform::take_startup`](crate::platform::Platform::take_startup).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Startup {
    /// Descriptors of functions that choose their implementation.
    pub indirect: Vec<ExecutorAddr>,
    /// Functions that run now.
    pub initializers: Vec<ArrayFunction>,
    /// Functions that run at the end, last to first.
    pub finalizers: Vec<ArrayFunction>,
}
