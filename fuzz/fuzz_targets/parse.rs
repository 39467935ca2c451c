//! All readers of objects.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| uruk_fuzz::parse(input));
