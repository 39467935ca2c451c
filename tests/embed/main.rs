//! Programs that embed the engine, as their authors would write them: a module a theme.

mod endings;
#[cfg(feature = "llvm")]
mod errors;
mod support;
