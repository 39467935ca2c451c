//! Programs that embed the engine, as their authors would write them: a module a theme.

mod beginnings;
#[cfg(feature = "llvm")]
mod cache;
#[cfg(feature = "cache")]
mod cached_objects;
mod code_unit;
mod debugged;
mod dependants;
#[cfg(feature = "llvm")]
mod dumped;
mod dylibs;
mod endings;
#[cfg(feature = "llvm")]
mod errors;
mod first_calls;
#[path = "../../pipeline/tests/support/function_unit.rs"]
mod function_unit;
mod guards;
mod handles;
mod host;
mod image_instances;
mod image_parts;
mod images;
mod lazy;
#[cfg(feature = "llvm")]
mod meanings;
mod memory;
mod names;
#[cfg(feature = "llvm")]
mod on_call;
#[cfg(feature = "llvm")]
mod on_call_files;
#[cfg(feature = "llvm")]
mod packages;
#[cfg(feature = "llvm")]
mod packages_tiered;
mod plugins;
mod profiled;
mod redefine;
mod redefine_level;
mod reload;
mod requests;
#[cfg(feature = "llvm")]
mod retry;
mod scopes;
#[cfg(feature = "llvm")]
mod shaped_alike;
#[cfg(feature = "llvm")]
mod shapes;
mod shutdown;
#[cfg(feature = "llvm")]
mod speculation;
mod storm;
mod support;
#[cfg(feature = "llvm")]
mod tasks;
mod thread_locals;
#[cfg(feature = "llvm")]
mod tiers;
mod translated;
#[cfg(feature = "llvm")]
mod unload;
