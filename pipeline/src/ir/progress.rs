//! How many functions of a module are done, told while LLVM works on it.
//!
//! An event of the target `uruk::functions` has the module's name, the step, how many functions are `done`, and how many `more` there
//! are. A note of the recorder says the same. Neither costs anything unless a subscriber takes such events, or a reader asks for such notes.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use uruk_recorder::{Detail, Entry, Kind, is_asked_for};

/// The target of the events.
const FUNCTIONS: &str = "uruk::functions";

/// The steps, in the shim's order: the call graph was walked, the function was vectorized, it is machine code.
const STEPS: [&str; 3] = ["simplified", "optimized", "compiled"];

/// How LLVM tells of functions.
pub(super) type CountFunctions = unsafe extern "C" fn(*mut c_void, u32, u64, u64);

/// Whether functions are counted.
pub(super) fn is_watched() -> bool {
    tracing::enabled!(target: FUNCTIONS, tracing::Level::TRACE) || is_asked_for(Detail::Functions)
}

/// Tells of functions of the module called `unit`.
pub(super) fn tell(unit: &str, step: u32, done: u64, more: u64) {
    if is_asked_for(Detail::Functions) {
        let name = uruk_recorder::write_name(unit);
        let (functions, step) = (more << 32 | done & u64::from(u32::MAX), u64::from(step));
        uruk_recorder::note(|| Entry::new(Kind::Functions).named(name).with(functions, step));
    }
    let step = STEPS.get(step as usize).copied().unwrap_or_default();
    // A subscriber must not unwind through LLVM.
    _ = catch_unwind(AssertUnwindSafe(|| {
        tracing::trace!(target: FUNCTIONS, unit, step, done, more, "functions");
    }));
}
