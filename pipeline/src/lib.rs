#![doc = include_str!("../README.md")]

pub mod arch;
#[cfg(feature = "cache")]
pub mod cache;
mod code_ranges;
pub mod debug;
#[doc(hidden)]
pub mod executor;
pub mod guard;
#[cfg(feature = "helpers")]
pub mod helpers;
pub mod image;
#[cfg(target_arch = "x86_64")] // its trampolines are code of that architecture
pub mod invoke;
#[cfg(feature = "llvm")]
pub mod ir;
pub mod lazy;
pub mod link;
pub mod linking;
pub mod memory;
pub mod object;
#[cfg(feature = "helpers")]
pub mod peer;
pub mod platform;
#[cfg(feature = "helpers")]
pub mod remote;
pub mod runtime;
pub mod tiers;
