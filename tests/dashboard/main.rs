//! The dashboard, as a browser has it and as those who mean harm do.

mod browser;
mod client;
mod guests;
#[cfg(feature = "llvm")]
mod metrics;
mod page;
#[cfg(feature = "llvm")]
mod prometheus;
mod recording;
