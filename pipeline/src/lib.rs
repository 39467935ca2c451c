//! From LLVM IR to running code: compile layers, a JIT linker, executable memory, unwinding and thread-local storage.

#[cfg(feature = "llvm")]
pub mod ir;
pub mod layer;
pub mod link;
pub mod memory;
pub mod object;
pub mod platform;
pub mod runtime;
