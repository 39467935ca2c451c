//! Harness of the whole-program tests: builds real programs in every form a user may have them in, runs each form
//! through `uruk run`, and compares it with the native executable.
//!
//! **Never** does it link the engine: the `uruk` command is a file like any other toolchain's, so that a test sees
//! what a user sees, and a crash of the engine is a failed test rather than a dead test binary.

pub mod sources;
