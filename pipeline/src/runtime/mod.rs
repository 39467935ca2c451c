//! What linked code needs from the process it lives in: symbols, unwinding, thread-local storage, start and exit.
//!
//! Nothing here knows the session protocol, objects, or LLVM.

pub mod entry;
pub mod ifunc;
pub mod tls;
pub mod unwind;
