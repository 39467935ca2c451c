//! Services that linked code needs from its process: symbols, unwinding, thread-local storage, start and exit.
//!
//! Nothing here knows objects or LLVM; of the session protocol only `process` knows that there are definition
//! generators. Linux with the GNU C library on x86-64.

pub mod allocation;
pub mod background;
pub(crate) mod call_through;
pub mod cxa_filter;
pub(crate) mod endings;
pub mod entry;
pub mod exit;
pub mod fatal;
pub(crate) mod forks;
pub mod frames;
pub mod ifunc;
pub mod image;
pub mod in_process;
mod loaded;
pub mod process;
mod registers;
pub mod startup;
pub mod thread_exit;
pub mod threads;
pub mod tls;
pub mod unwind;
