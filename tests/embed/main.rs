//! Programs that embed the engine, as their authors would write them: a module a theme.

mod dylibs;
mod endings;
#[cfg(feature = "llvm")]
mod errors;
mod handles;
mod support;
#[cfg(feature = "llvm")]
mod unload;
