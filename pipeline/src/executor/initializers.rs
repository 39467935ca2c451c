//! [`Initializers`]: the functions that a linked object wants to be run.

use uruk_core::ExecutorAddr;

/// The priority of fragments of code in `.init` and `.fini`: they run before everything in `.init_array`, and after
/// everything in `.fini_array`.
pub(crate) const FRAGMENT_PRIORITY: i32 = -1;

/// The functions that an object registers to be run, in the order of its sections. Priorities are those of sections, and -1 for fragments
/// of code in `.init` and `.fini`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Initializers {
    /// Functions that run before all initializers of the program, in order.
    pub preinitializers: Vec<ExecutorAddr>,
    /// Functions that run before the program, first to last: by priority, lower first, then in order.
    pub initializers: Vec<(i32, ExecutorAddr)>,
    /// Functions that run after the program, *last to first*; but fragments run first to last.
    pub finalizers: Vec<(i32, ExecutorAddr)>,
}
