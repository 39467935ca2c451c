//! Services that linked code needs from its process: symbols, unwinding, thread-local storage, start and exit.
//!
//! Nothing here knows objects or LLVM; of the session protocol only `process` knows that there are definition
//! generators. Linux with the GNU C library; code that depends on the
//! processor is in `arch/*/host`.
//!
//! The documentation shows the modules that embedders need.

#[doc(hidden)]
pub mod allocation;
pub mod background;
pub(crate) mod call_through;
#[doc(hidden)]
pub mod cxa_filter;
pub(crate) mod endings;
#[doc(hidden)]
pub mod entry;
#[doc(hidden)]
pub mod exit;
#[doc(hidden)]
pub mod fatal;
pub(crate) mod forks;
#[doc(hidden)]
pub mod frames;
#[doc(hidden)]
pub mod ifunc;
pub mod image;
pub mod in_process;
mod loaded;
pub mod process;
mod set_aside;
mod start_block;
#[doc(hidden)]
pub mod startup;
#[doc(hidden)]
pub mod thread_exit;
#[doc(hidden)]
pub mod threads;
#[doc(hidden)]
pub mod tls;
pub mod unwind;

pub use set_aside::set_aside;
