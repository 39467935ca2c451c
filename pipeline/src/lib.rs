#![doc = include_str!("../README.md")]

/// The binding to LLVM with which modules are built, in the version that this crate takes them in:
/// [`ThreadSafeModule::build`](ir::ThreadSafeModule::build).
#[cfg(feature = "llvm")]
pub use inkwell;

pub mod cache;
#[cfg(feature = "llvm")]
pub mod ir;
pub mod layer;
pub mod link;
pub mod memory;
pub mod object;
pub mod platform;
pub mod runtime;
