//! Compiles the small C++ files behind `ir/ffi.rs`, against the LLVM that `llvm-sys` found. Does nothing
//! without feature `llvm`.

const FILES: [&str; 5] = [
    "src/ir/shim.cpp",
    "src/ir/canonical.cpp",
    "src/ir/divide.cpp",
    "src/ir/part.cpp",
    "src/ir/pipeline.cpp",
];

fn main() {
    println!("cargo::rerun-if-changed=src/ir/parts.h");
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    #[cfg(feature = "llvm")]
    build_shim();
}

#[cfg(feature = "llvm")]
fn build_shim() {
    let config = std::env::var("DEP_LLVM_22_CONFIG_PATH").unwrap_or_else(|_| "llvm-config-22".to_owned());
    let output = std::process::Command::new(&config).arg("--includedir").output();
    let include = match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Ok(output) => panic!("{config} --includedir: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => panic!("{config} --includedir: {error}; install llvm-22-dev"),
    };
    let mut build = cc::Build::new();
    // Debian's clang-22 brings the C++ headers; a plain C compiler need not be able to do C++.
    if std::env::var_os("CXX").is_none()
        && std::process::Command::new("c++").arg("--version").output().is_err()
    {
        build.compiler("clang++-22");
    }
    build
        .cpp(true)
        .std("c++17")
        .files(FILES)
        // LLVM's headers are not ours to be warned about.
        .flag("-isystem")
        .flag(include)
        // Assertions of LLVM's headers would abort where LLVM itself, a release build, goes on.
        .define("NDEBUG", None)
        .define("__STDC_CONSTANT_MACROS", None)
        .define("__STDC_FORMAT_MACROS", None)
        .define("__STDC_LIMIT_MACROS", None)
        // The same in every profile, so that switching profiles does not change behaviour.
        .opt_level(1)
        .compile("uruk_llvm_shim");
}
