//! Rust programs as bitcode and objects against the shared standard library, one or several codegen units, and with
//! real crates as archives.

uruk_tests::programs! { rust:
    arguments, collections, crates, double_panic, failing_main, foreign_functions, panics, statics, thread_locals,
    threads, uncaught_panic,
}
