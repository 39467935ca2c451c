//! Programs that embed the engine, as their authors would write them: a module a theme.

#[cfg(feature = "llvm")]
mod cache;
mod dependants;
mod dylibs;
mod endings;
#[cfg(feature = "llvm")]
mod errors;
mod handles;
mod support;
#[cfg(feature = "llvm")]
mod unload;
