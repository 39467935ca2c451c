//! A file that is no program, or not one that can be run here, is an error: exit code 1 (2 for wrong usage), one block on
//! standard error that says what to do, nothing on standard output, and never a signal.

use std::path::{Path, PathBuf};

use uruk_tests::inputs::{archive, bitcode, compile, cuts, file, llvm_survives, object};
use uruk_tests::process::End;
use uruk_tests::refusal::{MAIN, assert_refused, not_refused, uruk_run};

#[test]
fn the_good_input_runs() {
    for file in [bitcode("main.c", MAIN), object("main.c", MAIN)] {
        let outcome = uruk_run(&["-j2"], &[&file.expect("it compiles")]);
        assert_eq!(outcome.end, End::Exited(0), "{outcome:?}");
        assert_eq!(outcome.stdout, b"it ran\n");
    }
}

/// Cuts the file at many lengths and reports every cut that is not refused.
fn assert_cuts_are_refused(whole: &Path, with: &[&Path]) {
    let contents = std::fs::read(whole).expect("the whole file is there");
    let name = whole.file_name().expect("it has a name").to_string_lossy();
    let mut failures = Vec::new();
    for cut in cuts(contents.len()) {
        let path = file(&name, &contents[..cut]).expect("it can be written");
        let files: Vec<&Path> = with.iter().copied().chain([path.as_path()]).collect();
        let wrong = not_refused(&uruk_run(&["-j1"], &files), 1, &[]);
        failures.extend(wrong.map(|wrong| format!("{cut} of {} bytes: {wrong}", contents.len())));
    }
    assert!(failures.is_empty(), "{} cuts:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn bitcode_cut_short() {
    assert_cuts_are_refused(&bitcode("main.c", MAIN).expect("it compiles"), &[]);
}

#[test]
fn object_cut_short() {
    assert_cuts_are_refused(&object("main.c", MAIN).expect("it compiles"), &[]);
}

#[test]
fn archive_cut_short() {
    let member = object("helper.c", "int helper(void) { return 0; }").expect("it compiles");
    let main =
        object("main.c", "int helper(void); int main(void) { return helper(); }").expect("it compiles");
    let whole = archive("libhelper.a", &[&member]).expect("it is archived");
    assert_eq!(uruk_run(&[], &[&main, &whole]).end, End::Exited(0));
    assert_cuts_are_refused(&whole, &[&main]);
}

/// Each of these once ended the command with a signal: data was called, or a thread asked for 32 TB.
#[test]
fn what_is_called_is_code_and_what_a_thread_gets_has_a_bound() {
    let cases = [
        (
            "resolver",
            ".data\n.globl chosen\n.type chosen, @gnu_indirect_function\nchosen: .quad 0",
            ["`chosen`", "no code"],
        ),
        ("array", ".section .init_array, \"aw\", @init_array\n.quad 0x1234", [".init_array+0x0", "0x1234"]),
        (
            "array_of_data",
            ".section .fini_array, \"aw\", @fini_array\n.quad environ",
            [".fini_array", "`environ`"],
        ),
        ("variables", ".section .tbss, \"awT\", @nobits\n.zero 1 << 45", [".tbss", "at most"]),
    ];
    for (name, assembly, words) in cases {
        let text = format!("asm({:?});\n{MAIN}", format!("{assembly}\n.text\n"));
        let file = object(&format!("{name}.c"), &text).expect("it compiles");
        assert_refused(&uruk_run(&[], &[&file]), 1, &words);
    }
    let text = "asm(\".data\\n.globl main\\n.type main, @function\\nmain: ret\");";
    let file = object("entry.c", text).expect("it compiles");
    assert_refused(&uruk_run(&[], &[&file]), 1, &["`main` is not a function"]);
}

#[test]
fn empty_files() {
    for name in ["empty.bc", "empty.ll", "empty.o", "empty.a", "empty.so", "empty"] {
        assert_refused(&uruk_run(&[], &[&file(name, b"").expect("it can be written")]), 1, &["empty"]);
    }
}

#[test]
fn text_and_noise() {
    let noise: Vec<u8> = (0u32..5000).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for name in ["notes.bc", "notes.ll", "notes.o", "notes.a", "notes.so", "notes.txt", "notes"] {
        for contents in
            [&b"He who saw the deep.\n"[..], &noise, &[0; 4096], b"BC\xC0\xDE", b"\x7fELF", b"!<arch>\nx"]
        {
            let path = file(name, contents).expect("it can be written");
            assert_refused(&uruk_run(&[], &[&path]), 1, &["notes"]);
        }
    }
}

#[test]
fn paths_that_cannot_be_read() {
    let directory = file("inside.bc", b"").expect("it can be written");
    let directory = directory.parent().expect("it lies in a directory");
    assert_refused(&uruk_run(&[], &[directory]), 1, &["directory"]);
    let missing = Path::new("/no/such/place/tablet.bc");
    assert_refused(&uruk_run(&[], &[missing]), 1, &["/no/such/place/tablet.bc", "No such file"]);
    // Reading it fails even for root.
    assert_refused(&uruk_run(&[], &[Path::new("/proc/self/mem")]), 1, &["/proc/self/mem"]);
    for library in ["libnothing.so", "/no/such/libnothing.so.1"] {
        assert_refused(&uruk_run(&[], &[Path::new(library)]), 1, &[library]);
        let good = bitcode("main.c", MAIN).expect("it compiles");
        assert_refused(&uruk_run(&["--load", library], &[&good]), 1, &[library]);
    }
}

/// A person who calls a program as `uruk run x.c arg` was told that `arg` cannot be read, and not what to do.
#[test]
fn what_is_no_file_and_follows_one_is_taken_for_an_argument() {
    let good = bitcode("main.c", MAIN).expect("it compiles");
    let hint = format!("put it behind `--`: uruk run {} -- verbose", good.display());
    let missing = uruk_run(&[], &[&good, Path::new("verbose")]);
    assert_refused(&missing, 1, &["cannot take `verbose` as a file", &hint, "verbose: cannot be read"]);
    let notes = file("notes.txt", b"neither code nor data").expect("it can be written");
    assert_refused(&uruk_run(&[], &[&good, &notes]), 1, &["behind `--`", "neither LLVM IR"]);
    // The first can only be meant as a file.
    let first = uruk_run(&[], &[Path::new("verbose"), &good]);
    assert!(!String::from_utf8_lossy(&first.stderr).contains("behind `--`"), "{first:?}");
}

/// The message was that `main` is not found in a list of libraries.
#[test]
fn a_missing_entry_says_how_to_name_another() {
    let helper = object("helper.c", "int helper(void) { return 0; }").expect("it compiles");
    assert_refused(&uruk_run(&[], &[&helper]), 1, &["no file defines `main`", "--entry NAME"]);
    assert_refused(&uruk_run(&["--entry", "start"], &[&helper]), 1, &["no file defines `start`"]);
    assert_eq!(uruk_run(&["--entry", "helper"], &[&helper]).end, End::Exited(0));
    // The entry is there; what it needs is not.
    let lost =
        object("lost.c", "int absent(void); int main(void) { return absent(); }").expect("it compiles");
    let outcome = uruk_run(&[], &[&lost]);
    assert_refused(&outcome, 1, &["cannot link the program", "`absent` (needed by `main`"]);
    assert!(!String::from_utf8_lossy(&outcome.stderr).contains("--entry"), "{outcome:?}");
}

/// A missing symbol was told with a list of what had been searched, twice, and in C++ by mangled names.
#[test]
fn what_is_missing_is_said_once_with_what_to_do() {
    let source = file("lacks.c", b"char *zlibVersion(void); int main(void) { return zlibVersion()[0]; }");
    let source = source.expect("it can be written");
    let told = |options: &[&str], files: &[&Path]| {
        let outcome = uruk_run(options, files);
        assert_refused(&outcome, 1, &[]);
        String::from_utf8_lossy(&outcome.stderr).into_owned()
    };
    let message = told(&[], &[&source]);
    let place = format!("at {}: .text", source.display());
    assert!(message.contains(&place) && message.ends_with("\n  hint: add --load libz.so.1\n"), "{message}");
    assert_eq!((message.lines().count(), message.matches("zlibVersion").count()), (3, 1), "{message}");
    assert_eq!(uruk_run(&["--load", "libz.so.1"], &[&source]).end, End::Exited(b'1'.into()));

    // Of the C library, and of another file.
    let source = b"int prinft(const char *); int caller(void) { return prinft(\"\"); } int main(void) { return caller(); }";
    let source = file("slips.c", source).expect("it can be written");
    for options in [&[][..], &["--lazy"], &["--lazy=module"], &["--tiered"]] {
        let message = told(options, &[&source]);
        assert!(message.contains("undefined: `prinft` (needed by `caller` at "), "{message}");
        assert!(
            message.ends_with("hint: did you mean `printf`?\n") && !message.contains("body of"),
            "{message}"
        );
    }
    let caller = object("caller.c", "int hepler(void); int main(void) { return hepler(); }");
    let helper = object("helper.c", "int helper(void) { return 0; }").expect("it compiles");
    assert!(told(&[], &[&caller.expect("it compiles"), &helper]).contains("hint: did you mean `helper`?\n"));
    assert!(told(&["--entry", "hepler"], &[&helper]).contains("did you mean --entry helper?\n"));

    let source = b"#include <string>\nstruct A { void method(std::string, int) const; static int st; };\nint main() { A().method(\"x\", A::st); }";
    let message = told(&[], &[&file("lacks.cpp", source).expect("it can be written")]);
    assert!(
        message.contains("`A::st`") && message.contains("`A::method(std::string, int) const`"),
        "{message}"
    );
    assert!(!message.contains("_ZN"), "{message}");
}

#[test]
fn one_bad_file_among_good_ones_is_named() {
    let good = bitcode("main.c", MAIN).expect("it compiles");
    let bad = file("broken.o", b"\x7fELF and no more").expect("it can be written");
    assert_refused(&uruk_run(&["-j2"], &[&good, &bad]), 1, &["broken.o"]);
}

const FOREIGN: &str = "int helper(int x) { return x + 1; } int main(void) { return helper(-1); }";

/// The message was that the file is neither LLVM IR, an object, an archive nor a shared library.
#[test]
fn objects_of_other_systems_are_named_with_what_to_do() {
    let targets = [
        ("aarch64-linux-gnu", "an ELF object for AArch64"),
        ("i386-linux-gnu", "an ELF object for x86 (32 bits)"),
        ("riscv64-linux-gnu", "an ELF object for RISC-V"),
        ("s390x-linux-gnu", "an ELF object for IBM Z"),
        ("x86_64-linux-gnux32", "an ELF object for x86-64 with 32-bit pointers"),
        ("bpf", "an ELF object for BPF"),
        ("x86_64-apple-macosx", "Mach-O"),
        ("arm64-apple-macosx", "Mach-O"),
        ("x86_64-pc-windows-msvc", "COFF"),
        ("aarch64-windows-msvc", "COFF"),
        ("wasm32", "WebAssembly"),
        ("powerpc-ibm-aix", "XCOFF"),
    ];
    let user = "int helper(int); int main(void) { return helper(-1); }";
    let user = object("user.c", user).expect("it compiles");
    for (target, what) in targets {
        let flag = format!("--target={target}");
        let object = compile("main.c", FOREIGN, &[&flag], "foreign.o").expect("clang has the target");
        let words = ["foreign.o", what, "--target=x86_64-linux-gnu"];
        assert_refused(&uruk_run(&[], &[&object]), 1, &words);
        // A member that a program needs, whose names may be others. For AIX, archives have another form.
        if what != "XCOFF" {
            let archive = archive("libforeign.a", &[&object]).expect("it is archived");
            assert_refused(&uruk_run(&[], &[&user, &archive]), 1, &words);
        }
    }
}

#[test]
fn modules_for_other_systems_are_named_with_what_to_do() {
    let targets = [
        "aarch64-linux-gnu",
        "i386-linux-gnu",
        "x86_64-linux-gnux32",
        "x86_64-apple-macosx",
        "x86_64-pc-windows-msvc",
        "wasm32",
    ];
    for target in targets {
        let flag = format!("--target={target}");
        for (output, form) in [("foreign.bc", "-c"), ("foreign.ll", "-S")] {
            let flags = [&flag, "-emit-llvm", form];
            let foreign = compile("main.c", FOREIGN, &flags, output).expect("clang has the target");
            let architecture = target.split('-').next().unwrap_or_default();
            let words = [output, &format!("compiled for {architecture}"), "--target=x86_64-pc-linux-gnu"];
            assert_refused(&uruk_run(&[], &[&foreign]), 1, &words);
        }
    }
}

/// Both hold what the engine takes: bitcode behind a header, and machine code beside bitcode.
#[test]
fn wrapped_bitcode_and_objects_with_bitcode_run() {
    let bytes = std::fs::read(bitcode("main.c", MAIN).expect("it compiles")).expect("it can be read");
    let wrapper = |size: u32| {
        let fields = [0x0b17_c0de, 0, 20, size, 0x0100_0007_u32];
        let header: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
        file("wrapped.bc", &[&header, &*bytes].concat()).expect("it can be written")
    };
    let fat = |flags: &[&str]| {
        compile("main.c", MAIN, &[flags, &["-fPIC"]].concat(), "fat.o").expect("it compiles")
    };
    let files =
        [wrapper(bytes.len() as u32), fat(&["-fembed-bitcode"]), fat(&["-flto", "-ffat-lto-objects"])];
    for file in files {
        assert_eq!(uruk_run(&[], &[&file]).stdout, b"it ran\n", "{}", file.display());
    }
    assert_refused(&uruk_run(&[], &[&wrapper(1 << 30)]), 1, &["wrapped.bc", "wrapper"]);
}

#[test]
fn other_files_are_named_with_what_to_do() {
    let files: [(&str, &[u8], [&str; 2]); 6] = [
        ("main.bc.gz", b"\x1f\x8b\x08\0", ["gzip", "unpack"]),
        ("libc.so", b"/* GNU ld script */\nGROUP ( libc.so.6 )", ["linker script", "libraries"]),
        ("universal.o", b"\xca\xfe\xba\xbe\0\0\0\x02", ["Mach-O", "--target"]),
        ("main.ll", b"\xcf\xfa\xed\xfe\0\0\0\x02", ["Mach-O", "--target"]),
        ("main.exe", b"MZ\x90\0\x03\0\0\0", ["Windows", "--target"]),
        ("libaix.a", b"<bigaf>\n", ["AIX", "--target"]),
    ];
    for (name, contents, words) in files {
        let file = file(name, contents).expect("it can be written");
        assert_refused(&uruk_run(&[], &[&file]), 1, &[&words[..], &[name]].concat());
    }
    let helper = object("helper.c", "int helper(void) { return 0; }").expect("it compiles");
    let thin = archive("libhelper.a", &[&helper]).expect("it is archived");
    let thin = std::fs::read(thin).expect("it can be read");
    let thin = file("libthin.a", &[b"!<thin>\n", &thin[8..]].concat()).expect("it can be written");
    assert_refused(&uruk_run(&[], &[&thin]), 1, &["libthin.a", "a thin archive", "ar rcs"]);
}

/// Bytes of good bitcode changed at random. The program around it only needs its functions to exist: what a mutated
/// function does when it runs is its own affair.
#[test]
fn mutated_bitcode_is_refused_or_compiled() {
    let text = "struct node { struct node *next; int value; };\n\
                int sum(struct node *at) { int s = 0; for (; at; at = at->next) s += at->value; return s; }\n\
                double scale(double *x, int n) { for (int i = 0; i < n; i++) x[i] *= 2.5; return x[0]; }\n\
                const char *name(int n) { switch (n) { case 1: return \"one\"; case 2: return \"two\"; } return 0; }\n";
    let user = "int sum(void *); double scale(double *, int); const char *name(int);\n\
                int main(int argc, char **argv) { if (argc > 9) return sum(argv) + scale(0, 0) + *name(1); return 0; }\n";
    let whole = std::fs::read(bitcode("mutated.c", text).expect("it compiles")).expect("it can be read");
    let user = bitcode("user.c", user).expect("it compiles");
    let mut failures = Vec::new();
    let (mut refused, mut ran) = (0, 0);
    for seed in 1..=48_u64 {
        let path = file("mutated.bc", &mutated(&whole, seed)).expect("it can be written");
        if !llvm_survives(&path).expect("LLVM's tools are there") {
            continue;
        }
        let outcome = uruk_run(&["-j1"], &[&user, &path]);
        match not_refused(&outcome, 1, &[]) {
            None => refused += 1,
            Some(_) if outcome.end == End::Exited(0) => ran += 1,
            Some(wrong) => failures.push(format!("seed {seed}: {wrong}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(
        refused > 10 && refused + ran > 30,
        "the mutations no longer test much: {refused} refused, {ran} ran"
    );
}

/// Changes one to eight bytes, anywhere.
fn mutated(whole: &[u8], seed: u64) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 11).unwrap_or(0) % bound
    };
    for _ in 0..=next(8) {
        let at = next(bytes.len());
        bytes[at] ^= 1 << next(8);
    }
    bytes
}

#[test]
fn awkward_names_are_fine() {
    let path: PathBuf = file("a name, with (marks) and 'quotes'.bc", b"").expect("it can be written");
    assert_refused(&uruk_run(&[], &[&path]), 1, &["a name, with (marks)"]);
    let contents = std::fs::read(bitcode("main.c", MAIN).expect("it compiles")).expect("it can be read");
    let path = file("a name, with (marks) and 'quotes'.bc", &contents).expect("it can be written");
    assert_eq!(uruk_run(&[], &[&path]).stdout, b"it ran\n");
}
