//! What is no program, or not one that can be run here, is an error: exit code 1 (2 for wrong usage), one block on
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

/// Who calls a program as `uruk run x.c arg` was told that `arg` cannot be read, and not what to do.
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

#[test]
fn one_bad_file_among_good_ones_is_named() {
    let good = bitcode("main.c", MAIN).expect("it compiles");
    let bad = file("broken.o", b"\x7fELF and no more").expect("it can be written");
    assert_refused(&uruk_run(&["-j2"], &[&good, &bad]), 1, &["broken.o"]);
}

#[test]
fn files_for_other_machines() {
    let targets = [
        ("aarch64-linux-gnu", "aarch64"),
        ("i386-linux-gnu", "32"),
        ("riscv64-linux-gnu", "risc-v"),
        ("x86_64-apple-macosx", ""),
        ("x86_64-pc-windows-msvc", ""),
    ];
    let text = "int helper(int x) { return x + 1; } int main(void) { return helper(-1); }";
    for (target, word) in targets {
        let flag = format!("--target={target}");
        let object = compile("main.c", text, &[&flag], "foreign.o").expect("clang has the target");
        let outcome = uruk_run(&[], &[&object]);
        assert_refused(&outcome, 1, &["foreign.o"]);
        let stderr = String::from_utf8_lossy(&outcome.stderr).to_lowercase();
        let machine = stderr.contains(word) || stderr.contains("machine") || stderr.contains("format");
        assert!(machine, "does not say what is foreign about {target}: {stderr}");
    }
    for target in ["aarch64-linux-gnu", "i386-linux-gnu"] {
        let flag = format!("--target={target}");
        let foreign =
            compile("main.c", text, &[&flag, "-emit-llvm"], "foreign.bc").expect("clang has the target");
        assert_refused(
            &uruk_run(&[], &[&foreign]),
            1,
            &["foreign.bc", target.split('-').next().unwrap_or("")],
        );
    }
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
