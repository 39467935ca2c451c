//! The reader of archives, and that of objects for each member.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| uruk_fuzz::archive(input));
