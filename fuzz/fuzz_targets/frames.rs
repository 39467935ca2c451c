//! Frames of another process, in pieces.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| uruk_fuzz::frames(input));
