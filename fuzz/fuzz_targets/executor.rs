//! The host of an executor: the process that it has connected to answers with made-up messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| uruk_fuzz::executor(input));
