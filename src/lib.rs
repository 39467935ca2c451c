//! JIT compile-orchestration engine: symbol queries, a work-stealing compile pool, and a JIT linker of its own.
//!
//! A program is a set of symbols. Asking for one compiles it, and everything it needs, on a pool of threads, and links it into this
//! process. The caller receives an address only when all of that is safe to run.
//!
//! ```
//! # #[cfg(feature = "llvm")]
//! # fn main() -> Result<(), uruk::JitError> {
//! use uruk::prelude::*;
//!
//! let jit = Jit::builder().threads(2).build()?;
//! jit.add_ir_text(
//!     "answer.ll",
//!     "declare i32 @abs(i32)
//!      define i32 @answer(i32 %x) { %y = call i32 @abs(i32 %x) ret i32 %y }",
//! )?;
//! // SAFETY: that is the function's signature, and no copy of the pointer outlives the handle.
//! let answer = unsafe { jit.get::<extern "C" fn(i32) -> i32>("answer")? };
//! assert_eq!(answer(-42), 42);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "llvm"))]
//! # fn main() {}
//! ```
//!
//! # Where things are
//!
//! | to | see |
//! |---|---|
//! | compile modules whose names mean something else each time | [`Scope::add_translation_unit`] |
//! | compile queries with addresses and numbers of their own in them once | [`Scope::add_shaped`] |
//! | add IR, objects, archives, libraries | [`Scope::add_file`] and what stands beside it |
//! | call what was compiled, and keep its code | [`Scope::get`], [`Function`] |
//! | let it call functions and use data of the host; read its data | [`Scope::define`], [`Scope::define_data`], [`Scope::get_data`] |
//! | call it if it is there, and go on otherwise | [`Scope::try_get`] |
//! | call what may turn out not to compile | [`Function::try_call`] |
//! | call what others redefine and remove, from threads of a runtime | [`Scope::enter`], [`Scope::get_guarded`] |
//! | unload | [`Scope::create_tracker`], [`OwnedTracker`], [`Scope::remove_tracker`]; what others need: [`Scope::remove_tracker_with`] |
//! | keep name spaces apart | [`Jit::create_dylib`], [`Scope`] |
//! | build modules with inkwell | [`ThreadSafeModule::build`](pipeline::ir::ThreadSafeModule::build) |
//! | watch it on a page in the browser | `dashboard::Dashboard`, with the feature `dashboard` |
//! | watch it with Prometheus and Grafana | `Jit::metrics`, with the feature `metrics` |
//! | have it compiled in the background | [`Scope::request`] |
//! | bring a compiler of one's own | [`Scope::add_object_fn`]; with a cache [`Scope::add_cached_object_fn`], [`Request::cached`]; [`FnUnit`](core::FnUnit); [`MaterializationUnit`](core::MaterializationUnit) for more |
//! | link code without object files | [`LinkGraph::builder`](pipeline::link::LinkGraph::builder) |
//! | compile functions when they are first called | [`Scope::add_lazy`] |
//! | compile them ahead, in the order of an earlier run | [`Jit::speculator`] |
//! | compile the functions that earlier runs have compiled, into a cache | [`JitBuilder::trace_compile`], [`Jit::precompile`] |
//! | compile a program ahead, and load it in microseconds | [`ImageBuilder`], [`Scope::load_image`] |
//! | the same as objects, assembly or bitcode, for other tools | `ImageBuilder::emit` |
//! | compile soon, and better later | [`JitBuilder::tiers`] |
//! | redefine functions while they run; several at one moment | [`Scope::redefine`]; [`Scope::add_lazy_group`] |
//! | call by boxed values and by types, compile better while it runs, invalidate | [`CodeInstance`](instances::CodeInstance), [`CodeInstanceTable`](instances::CodeInstanceTable), [`InvokeTrampolines`](pipeline::invoke::InvokeTrampolines); `examples/boxed_runtime` |
//! | make definitions when they are missed | [`DefinitionGenerator`](core::DefinitionGenerator) |
//! | choose where compilation runs | [`JitBuilder::dispatcher`], [`dispatch`] |
//! | print an error with its causes | [`WithCauses`](core::WithCauses), or `anyhow` |
//! | do what has no method of [`Jit`] | [`Scope::session`], a [`core::ExecutionSession`] |
//!
//! The crates below stand alone: [`core`] is the symbol protocol, [`dispatch`] the thread pool, [`instances`] the code pointers of a
//! runtime, [`pipeline`] the way from LLVM IR to running code. `examples/` has programs for most of these rows.
//!
//! The [`cookbook`] has a recipe for each of the things that most programs want, and [`spans`] the names that dashboards are built on.
//!
//! # Features
//!
//! - `llvm`, by default: LLVM IR, with LLVM 22 and inkwell. Without it the engine links objects and runs units of one's own.
//! - `cache`, part of `llvm`: what was compiled is found again, also without LLVM.
//! - `rayon`: tasks in a rayon pool of the host.
//! - `trace`: what happens, as a file for Perfetto.
//! - `metrics`: counts and sizes for Prometheus.
//! - `cli`: the command; `cargo install --path . --features cli`.

#[cfg(all(doctest, feature = "llvm"))]
#[doc = include_str!("../README.md")]
struct ReadmeIsTrue;

mod adding;
mod all_or_nothing;
mod archive;
mod binding;
mod builder;
#[cfg(feature = "cache")]
mod cache;
#[cfg(feature = "cache")]
mod cached_object;
#[cfg(feature = "cache")]
mod caching;
mod compiler_runtime;
#[cfg(feature = "dashboard")]
pub mod dashboard;
mod dylibs;
#[cfg(feature = "llvm")]
mod emitted;
mod engine;
mod error;
mod executable;
mod files;
mod function;
mod guard;
mod handle;
mod host;
mod image;
mod image_builder;
mod image_instances;
mod image_options;
mod image_targets;
mod image_unit;
mod initialize;
mod jit;
mod lazy;
mod link;
mod loaded_images;
mod lookup;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "llvm")]
mod modules;
mod object_unit;
mod objects;
mod package;
mod package_bodies;
mod package_checks;
mod package_sources;
mod precompile;
mod ready;
mod redefinitions;
#[cfg(feature = "llvm")]
mod remote;
mod request;
mod scope;
#[cfg(feature = "trace")]
pub mod trace;
mod unit;
mod units;
mod unmapping;

/// Recipes: what most programs that embed an engine want sooner or later.
#[cfg(feature = "llvm")]
#[doc = include_str!("cookbook.md")]
pub mod cookbook {}

/// Spans: what a subscriber of `tracing` sees.
#[doc = include_str!("spans.md")]
pub mod spans {}

pub use builder::JitBuilder;
#[cfg(feature = "cache")]
pub use cache::CacheOptions;
#[cfg(feature = "cache")]
pub use cached_object::NotCached;
#[cfg(feature = "llvm")]
pub use emitted::{EmitForm, Emitted};
pub use error::{JitError, Unexported};
pub use function::FunctionPointer;
pub use guard::{Guard, GuardedFunction, PendingReclaim};
pub use handle::Function;
pub use host::Data;
pub use image::LoadedImage;
pub use image_builder::{Image, ImageBuilder};
pub use image_instances::{InstanceDefinitions, InstanceOrigin, InstanceRejection};
pub use image_options::ImageOptions;
pub use image_unit::{FromImage, ImageEvent, RedefinedUnits, UnitRejected, UnitState};
pub use jit::Jit;
pub use lazy::LazyName;
pub use objects::OnCall;
pub use package_bodies::ImageBodyCounts;
pub use precompile::Precompiled;
pub use request::Request;
pub use scope::Scope;
pub use unmapping::Unmapping;
pub use uruk_core::{OwnedTracker, RefusedRemoval, RemovalPolicy};
pub use uruk_dispatch::AfterFork;
pub use uruk_pipeline::lazy::LazyCallFailure;

#[cfg(feature = "llvm")]
pub use uruk_pipeline::ir::inkwell;

pub use uruk_core as core;
pub use uruk_dispatch as dispatch;
pub use uruk_instances as instances;
pub use uruk_pipeline as pipeline;

/// The items that a program with an embedded engine usually needs.
pub mod prelude {
    pub use crate::{Function, FunctionPointer, Jit, JitBuilder, JitError, Scope};
    pub use uruk_core::{
        ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupError, OwnedTracker,
        ResourceTracker, SymbolName,
    };
    pub use uruk_pipeline::object::ObjectBuffer;
}
