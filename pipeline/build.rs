//! Compiles the small C++ files behind `ir/ffi.rs`, against the LLVM that `llvm-sys` found, and writes what `ir/library.rs` needs in
//! order to load that LLVM late. Does nothing without feature `llvm`, and nothing with `unlinked-llvm`, which documents where there is no LLVM.

const FILES: [&str; 12] = [
    "src/ir/shim.cpp",
    "src/ir/canonical.cpp",
    "src/ir/divide.cpp",
    "src/ir/emitter.cpp",
    "src/ir/part.cpp",
    "src/ir/functions.cpp",
    "src/ir/notable.cpp",
    "src/ir/pipeline.cpp",
    "src/ir/shape.cpp",
    "src/ir/shape_copy.cpp",
    "src/ir/type_tests.cpp",
    "src/ir/versions.cpp",
];

fn main() {
    for header in ["assembly", "parts", "shape"] {
        println!("cargo::rerun-if-changed=src/ir/{header}.h");
    }
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rustc-check-cfg=cfg(uruk_lazy_llvm)");
    #[cfg(all(feature = "llvm", not(feature = "unlinked-llvm")))]
    llvm::build();
}

#[cfg(all(feature = "llvm", not(feature = "unlinked-llvm")))]
mod llvm {
    use std::fmt::Write as _;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    pub(super) fn build() {
        let config = std::env::var("DEP_LLVM_22_CONFIG_PATH").unwrap_or_else(|_| "llvm-config-22".to_owned());
        let ask = |question: &[&str]| {
            run(&config, question).unwrap_or_else(|error| panic!("{error}; install llvm-22-dev"))
        };
        let mut shim = shim(ask(&["--includedir"]).trim());
        if cfg!(feature = "lazy-llvm") {
            shim.flag("-fno-plt"); // so that what LLVM lacks is an error of the load, and not of the first call
            match shared_library(&ask) {
                Some(library) => return build_lazy(&mut shim, &library, &ask),
                // The program starts more slowly and does the same.
                None => println!(
                    "cargo::warning={config} knows no libLLVM.so: LLVM is linked, and not loaded late"
                ),
            }
        }
        shim.compile("uruk_llvm_shim");
    }

    fn shim(include: &str) -> cc::Build {
        let mut build = cc::Build::new();
        // Debian's clang-22 brings the C++ headers; a plain C compiler need not be able to do C++.
        if std::env::var_os("CXX").is_none() && Command::new("c++").arg("--version").output().is_err() {
            build.compiler("clang++-22");
        }
        build
            .cpp(true)
            .std("c++17")
            .files(super::FILES)
            // LLVM's headers are not ours to be warned about.
            .flag("-isystem")
            .flag(include)
            // Assertions of LLVM's headers would abort where LLVM itself, a release build, goes on.
            .define("NDEBUG", None)
            .define("__STDC_CONSTANT_MACROS", None)
            .define("__STDC_FORMAT_MACROS", None)
            .define("__STDC_LIMIT_MACROS", None)
            // The same in every profile, so that switching profiles does not change behaviour.
            .opt_level(1);
        build
    }

    /// Links the shim as a library of its own that needs LLVM, and writes functions in place of both.
    fn build_lazy(shim: &mut cc::Build, library: &Path, ask: &dyn Fn(&[&str]) -> String) {
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
        let linked = out.join("uruk_llvm_shim.so");
        let mut linker = shim.get_compiler().to_command();
        // Only functions of ours can be seen: what headers of LLVM define is neither taken from another LLVM, nor shown to debuggers.
        let exported = out.join("uruk_llvm_shim.map");
        std::fs::write(&exported, "{ global: uruk_llvm_*; local: *; };")
            .expect("cargo's directory can be written to");
        linker.arg(format!("-Wl,--version-script={}", exported.display()));
        linker.args(["-shared", "-s", "-Wl,-z,defs", "-o"]).arg(&linked);
        linker.args(shim.compile_intermediates()).arg(library);
        let output = linker.output().unwrap_or_else(|error| panic!("{linker:?}: {error}"));
        assert!(output.status.success(), "{linker:?}: {}", String::from_utf8_lossy(&output.stderr));
        let tool = Path::new(ask(&["--bindir"]).trim()).join("llvm-nm");
        let symbols = |file: &Path| {
            let arguments = ["-P", "-D", "--defined-only", file.to_str().expect("a path in UTF-8")];
            run(&tool, &arguments)
                .or_else(|_| run("nm", &arguments))
                .unwrap_or_else(|error| panic!("{error}"))
        };
        let mut stubs = String::new();
        let mut with_text = None;
        for (file, prefix) in [(library, "LLVM"), (&linked, "uruk_llvm_")] {
            for line in symbols(file).lines() {
                if line.starts_with(GIVES_TEXT) {
                    with_text = line.split([' ', '@']).next().map(str::to_owned);
                }
                let mut words = line.split(' ');
                if let (Some(name), Some("T")) = (words.next(), words.next())
                    && name.starts_with(prefix)
                    // A library may define ORC's interface on its own, and nothing here calls it.
                    && !name.starts_with("LLVMOrc")
                {
                    let name = name.split('@').next().unwrap_or(name);
                    let linkage = match IN_FRONT.iter().any(|start| name.starts_with(start)) {
                        true => &[".weak"][..],
                        false => &[".globl", ".hidden"],
                    };
                    write_stub(&mut stubs, name, linkage);
                }
            }
        }
        std::fs::write(out.join("llvm_stubs.s"), stubs).expect("cargo's directory can be written to");
        println!("cargo::rerun-if-changed={}", library.display());
        println!("cargo::rustc-env=URUK_LIBLLVM={}", library.display());
        println!("cargo::rustc-env=URUK_LIBLLVM_NAME={}", soname(library, ask));
        println!("cargo::rustc-env=URUK_LIBLLVM_VERSION={}", ask(&["--version"]).trim());
        println!(
            "cargo::rustc-env=URUK_LIBLLVM_GIVES_TEXT={}",
            with_text.expect("LLVM knows its default target")
        );
        println!("cargo::rustc-cfg=uruk_lazy_llvm");
    }

    /// The file that a program linked with LLVM would load.
    fn shared_library(ask: &dyn Fn(&[&str]) -> String) -> Option<PathBuf> {
        if ask(&["--shared-mode"]).trim() != "shared" {
            return None;
        }
        let files = ask(&["--libfiles", "--link-shared"]);
        Path::new(files.split_whitespace().next()?).canonicalize().ok()
    }

    /// So begins the name of a function that gives a `std::string`. The rest says of which C++ library.
    const GIVES_TEXT: &str = "_ZN4llvm3sys22getDefaultTargetTriple";

    /// The name by which programs need the library.
    fn soname(library: &Path, ask: &dyn Fn(&[&str]) -> String) -> String {
        let tool = Path::new(ask(&["--bindir"]).trim()).join("llvm-readelf");
        let arguments = ["-d", library.to_str().expect("a path in UTF-8")];
        let dynamic = run(&tool, &arguments).or_else(|_| run("readelf", &arguments));
        let dynamic = dynamic.unwrap_or_else(|error| panic!("{error}"));
        let name = dynamic
            .lines()
            .find(|line| line.contains("(SONAME)"))
            .and_then(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned()));
        name.unwrap_or_else(|| panic!("{} has no name for programs that need it", library.display()))
    }

    /// So begin the names of functions that a library may define in front of libLLVM. Its own count then, and others see them.
    const IN_FRONT: [&str; 7] = [
        "LLVMCreatePassBuilderOptions",
        "LLVMDisposePassBuilderOptions",
        "LLVMLinkModules2",
        "LLVMParseCommandLineOptions",
        "LLVMPassBuilderOptions",
        "LLVMRunPasses",
        "LLVMTargetMachineEmitTo",
    ];

    /// A jump to where the slot says, which is to the next instruction at first. Linkers leave out functions without callers.
    fn write_stub(text: &mut String, name: &str, linkage: &[&str]) {
        let linkage: String = linkage.iter().map(|directive| format!("{directive} {name}\n")).collect();
        let written = write!(
            text,
            ".pushsection .data.uruk_llvm.{name},\"aw\",@progbits\n.p2align 3\n\
             .Luruk_slot_{name}: .quad .Luruk_bind_{name}\n.asciz \"{name}\"\n.popsection\n\
             .pushsection .text.uruk_llvm.{name},\"ax\",@progbits\n.p2align 4\n\
             {linkage}.type {name},@function\n{name}:\n.cfi_startproc\n\
             jmpq *.Luruk_slot_{name}(%rip)\n\
             .Luruk_bind_{name}:\nleaq .Luruk_slot_{name}(%rip), %r11\njmp uruk_llvm_bind\n\
             .cfi_endproc\n.size {name}, .-{name}\n.popsection\n",
        );
        written.expect("a string takes everything");
    }

    fn run(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Result<String, String> {
        let name = format!("{} {}", program.as_ref().display(), arguments.join(" "));
        match Command::new(program).args(arguments).output() {
            Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            Ok(output) => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim_end())),
            Err(error) => Err(format!("{name}: {error}")),
        }
    }
}
