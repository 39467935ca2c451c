//! LLVM IR: modules that move between threads, their symbols, and their way to an object.
//!
//! ```text
//! source ─parse─▶ ThreadSafeModule ─normalize─▶ ─optimize─▶ ─codegen─▶ ObjectBuffer
//! ```
//!
//! This is the only module that names LLVM. It never waits for a symbol and never looks one up: a thread that works on a module holds its
//! context, and [`ThreadSafeContext::held_by_current_thread`] tells.
//!
//! An error that LLVM reports is an error, even if LLVM also returns a result. If LLVM gives up, that is an error too, at the price of the
//! context it worked on. Truncated, empty, foreign and invalid input is refused with a message. Bitcode made to harm LLVM can still crash
//! the process that reads it: its reader is not built to withstand it. So that process may be a helper (`contained.rs`).

mod attached;
mod better_bodies;
mod build;
mod cached;
mod canonical;
mod compile;
mod contained;
mod context;
mod copies;
mod dump;
mod emitter;
mod error;
mod ffi;
mod function_compiler;
mod hooks;
mod image_bodies;
mod interface_bytes;
mod ir_layer;
mod job;
mod kept;
mod layer;
mod lazy_body;
mod lazy_module;
mod library;
#[cfg(uruk_lazy_llvm)]
mod library_file;
mod linker_info;
mod listing;
mod llvm_build;
mod machines;
mod module;
mod normalize;
mod optimize;
mod outline;
mod part_cache;
mod partition;
mod pending;
mod processor;
mod progress;
mod read;
mod serve;
mod shape;
mod shell;
mod source;
mod stages;
mod symbols;
mod target;
mod target_machine;
mod unit;
mod versions;
mod whole_file;

/// The binding to LLVM with which modules are built, in the version that [`ThreadSafeModule::build`] takes them in.
pub use inkwell;

pub use attached::{attach_texts, take_attached};
pub use cached::{IrCache, IrCacheStats};
pub use compile::IrCompiler;
pub use context::ThreadSafeContext;
pub use copies::copied_names;
pub use dump::{Dump, DumpError};
pub use error::CompileError;
pub use hooks::{ExtensionPoint, HookSite, PassHook};
pub use image_bodies::{BesideImageError, BetterCompiler, ImageBodies, ImageNames, LocalVariable};
pub use ir_layer::IrLayer;
pub use kept::{KeptIr, KeptModule, WantedIr};
pub use layer::{IrCompileLayer, IrTransform, IrTransformLayer};
pub use lazy_module::{LazyModule, LazyUnits};
pub use linker_info::LinkerInfo;
pub use listing::{Listing, ListingForm};
pub use llvm_build::llvm_build;
pub use module::ThreadSafeModule;
pub use optimize::{OptimizationLevel, OptimizationPipeline};
pub use partition::{Partition, PartitionPolicy};
pub use pending::PendingModule;
#[doc(hidden)]
pub use serve::serve_compiles_watched;
pub use serve::{helper_build, serve_compiles};
pub use stages::Stage;
pub use symbols::{ModuleInterface, ModuleSymbol};
pub use target::{CodeModel, CodegenLevel, JitTargetMachineBuilder, TargetOptions};
pub use unit::{IrMaterializationUnit, define_ir};
pub use versions::{ModuleVersion, features_of_processor};
pub use whole_file::StaysWhole;
