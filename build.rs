//! Has the linker name what debuggers ask the command for. Its other names are stripped, and in a program only those stay that a library of it
//! refers to.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["uruk_debugger", "__jit_debug_register_code", "__jit_debug_descriptor"] {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={name}");
    }
}
