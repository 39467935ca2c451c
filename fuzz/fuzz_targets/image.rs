//! The reader of images: everything can be asked of tables with any numbers. Nothing is mapped.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| uruk_fuzz::image(input));
