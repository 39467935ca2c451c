//! JIT compile-orchestration engine: symbol queries, a work-stealing compile pool, and a JIT linker of its own.
//!
//! [`Jit`] is the whole engine behind one type. The crates below it stand alone: [`core`] is the symbol
//! protocol, [`dispatch`] the thread pool, [`pipeline`] the way from LLVM IR to running code.

#[cfg(all(doctest, feature = "llvm"))]
#[doc = include_str!("../README.md")]
struct ReadmeIsTrue;

mod adding;
mod archive;
mod builder;
mod compiler_runtime;
mod dylibs;
mod error;
mod files;
mod function;
mod handle;
mod initialize;
mod jit;
mod lookup;
mod ready;
mod scope;
#[cfg(feature = "trace")]
pub mod trace;
mod unit;
mod unmapping;

pub use builder::JitBuilder;
pub use error::JitError;
pub use function::FunctionPointer;
pub use handle::Function;
pub use jit::Jit;
pub use scope::Scope;
pub use unmapping::Unmapping;
pub use uruk_core::OwnedTracker;

#[cfg(feature = "llvm")]
pub use uruk_pipeline::ir::inkwell;

pub use uruk_core as core;
pub use uruk_dispatch as dispatch;
pub use uruk_pipeline as pipeline;

/// What a program that embeds the engine usually needs.
pub mod prelude {
    pub use crate::{Function, FunctionPointer, Jit, JitBuilder, JitError, Scope};
    pub use uruk_core::{
        ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupError, OwnedTracker,
        ResourceTracker, SymbolName,
    };
    pub use uruk_pipeline::object::ObjectBuffer;
}
