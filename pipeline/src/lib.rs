//! From LLVM IR to running code: compile layers, a JIT linker, executable memory, unwinding and thread-local storage.

pub mod link;
pub mod memory;
pub mod runtime;
