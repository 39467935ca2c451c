//! The process as linked code finds it: symbols, thread-locals, unwinding, calls through trampolines.

mod generator;
mod image;
mod invoke_trampolines;
mod process;
mod tls;
mod unwind;
