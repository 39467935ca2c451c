//! The whole link, from bytes to protected memory; what comes out never runs.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| uruk_fuzz::link(input));
