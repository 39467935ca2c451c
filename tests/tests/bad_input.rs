//! What is no program, or not one that can be run here, is an error: exit code 1 (2 for wrong usage), one block on
//! standard error that says what to do, nothing on standard output, and never a signal.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::{archive, bitcode, compile, cuts, file, llvm_survives, object};
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

const MAIN: &str = "int puts(const char *);\nint main(void) { puts(\"it ran\"); return 0; }\n";

fn uruk_with(arguments: &[&OsStr]) -> Outcome {
    let mut command = Command::new(uruk());
    command.args(arguments);
    run(&mut command, &Input::default(), Duration::from_secs(60)).expect("the command can be started")
}

fn uruk_run(options: &[&str], files: &[&Path]) -> Outcome {
    let run = ["run"].iter().chain(options).map(OsStr::new);
    uruk_with(&run.chain(files.iter().map(|file| file.as_os_str())).collect::<Vec<_>>())
}

/// Fails unless `outcome` is an orderly refusal with `code` that mentions all of `words`.
#[track_caller]
fn assert_refused(outcome: &Outcome, code: i32, words: &[&str]) {
    if let Some(wrong) = not_refused(outcome, code, words) {
        panic!("{wrong}");
    }
}

fn not_refused(outcome: &Outcome, code: i32, words: &[&str]) -> Option<String> {
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    let stdout = String::from_utf8_lossy(&outcome.stdout);
    let wrong = if outcome.end != End::Exited(code) {
        format!("{}, expected exit code {code}", outcome.end)
    } else if !stdout.is_empty() {
        "standard output is not empty".to_owned()
    } else if !stderr.starts_with("error:") {
        "standard error does not begin with `error:`".to_owned()
    } else if stderr.lines().filter(|line| line.starts_with("error:")).count() != 1 {
        "standard error holds more than one block".to_owned()
    } else if stderr.contains("panicked at") {
        "a thread of the engine panicked".to_owned()
    } else {
        format!("standard error does not mention `{}`", words.iter().find(|&&word| !stderr.contains(word))?)
    };
    Some(format!("{wrong}\n{}\nout| {stdout}\nerr| {stderr}", outcome.command))
}

/// Fails unless the program ran, or was refused with advice on how to compile it.
#[track_caller]
fn assert_ran_or_advised(outcome: &Outcome, printed: &str) {
    if outcome.end == End::Exited(0) {
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), printed, "{}", outcome.command);
    } else {
        assert_refused(outcome, 1, &["-fPIC"]);
    }
}

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

#[test]
fn two_strong_definitions() {
    let one = "int twice(int x) { return 2 * x; } int main(void) { return twice(0); }";
    let two = "int twice(int x) { return x + x; }";
    let first = [bitcode("first.c", one), object("first.c", one)].map(|made| made.expect("it compiles"));
    let second = [bitcode("second.c", two), object("second.c", two)].map(|made| made.expect("it compiles"));
    for first in &first {
        for second in &second {
            assert_refused(&uruk_run(&["-j2"], &[first, second]), 1, &["twice", "first.", "second."]);
        }
    }
    assert_refused(&uruk_run(&[], &[&second[0], &second[0]]), 1, &["twice", "second.bc"]);
}

#[test]
fn a_missing_symbol_is_named_with_who_needs_it_and_where_it_was_searched() {
    let text = "int not_written_yet(void); int main(void) { return not_written_yet(); }";
    let words = ["not_written_yet", "main.", "main"];
    for (file, searched) in [(bitcode("main.c", text), "libc"), (object("main.c", text), "libc")] {
        let outcome = uruk_run(&["-j2"], &[&file.expect("it compiles")]);
        assert_refused(&outcome, 1, &words);
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        let told = ["searched", "search", "process", searched].iter().any(|word| stderr.contains(word));
        assert!(told, "does not say where it searched: {stderr}");
    }
    let data =
        "extern int not_written_either[]; int *at = &not_written_either[3]; int main(void) { return *at; }";
    for file in [bitcode("data.c", data), object("data.c", data)] {
        assert_refused(&uruk_run(&[], &[&file.expect("it compiles")]), 1, &["not_written_either", "data."]);
    }
}

#[test]
fn a_missing_symbol_deep_in_an_archive_names_the_member() {
    let main = object("main.c", "int outer(void); int main(void) { return outer(); }").expect("it compiles");
    let outer =
        object("outer.c", "int inner(void); int outer(void) { return inner(); }").expect("it compiles");
    let inner =
        object("inner.c", "int abyss(void); int inner(void) { return abyss(); }").expect("it compiles");
    let library = archive("libdeep.a", &[&outer, &inner]).expect("it is archived");
    assert_refused(&uruk_run(&[], &[&main, &library]), 1, &["abyss", "inner.o"]);
}

#[test]
fn all_missing_symbols_are_told_at_once() {
    let text = "int first_gap(void), second_gap(void); int main(void) { return first_gap() + second_gap(); }";
    let file = bitcode("main.c", text).expect("it compiles");
    assert_refused(&uruk_run(&[], &[&file]), 1, &["first_gap", "second_gap"]);
}

#[test]
fn wrong_ir() {
    let syntax =
        "define i32 @main() {\n  ret i32 0\n}\n\ndefine i32 @broken() {\n  %x = add i32 1\n  ret i32 %x\n}\n";
    let path = file("syntax.ll", syntax.as_bytes()).expect("it can be written");
    assert_refused(&uruk_run(&[], &[&path]), 1, &["syntax.ll", "7:3", "ret i32 %x"]);
    let dominance = "define i32 @main() {\n  %y = add i32 %x, 1\n  %x = add i32 1, 1\n  ret i32 %y\n}\n";
    let path = file("dominance.ll", dominance.as_bytes()).expect("it can be written");
    assert_refused(&uruk_run(&[], &[&path]), 1, &["dominance.ll", "dominate"]);
    let kinds = "declare void @f(i32)\ndefine i32 @main() {\n  call void @f(i64 1)\n  ret i32 0\n}\n";
    let path = file("kinds.ll", kinds.as_bytes()).expect("it can be written");
    assert_refused(&uruk_run(&[], &[&path]), 1, &["kinds.ll"]);
}

#[test]
fn wrong_inline_assembly() {
    let inline = |text: &str| {
        format!("define i32 @main() {{\n  call void asm sideeffect \"{text}\", \"\"()\n  ret i32 0\n}}\n")
    };
    let cases = [
        ("instruction", inline("frobnicate %eax")),
        ("directive", inline(".section \\22unclosed")),
        (
            "module",
            "module asm \"this is no assembly at all\"\ndefine i32 @main() {\n  ret i32 0\n}\n".to_owned(),
        ),
    ];
    for (name, text) in cases {
        let text = format!("target triple = \"x86_64-pc-linux-gnu\"\n{text}");
        let path = file(&format!("{name}.ll"), text.as_bytes()).expect("it can be written");
        assert_refused(&uruk_run(&["-j2"], &[&path]), 1, &[name, "inline asm"]);
    }
    let unknown = bitcode("unknown.c", "int main(void) { __asm__(\"frobnicate %eax\"); return 0; }")
        .expect("it compiles");
    assert_refused(&uruk_run(&["-j2"], &[&unknown]), 1, &["unknown.bc", "frobnicate"]);
}

#[test]
fn code_that_llvm_cannot_generate() {
    let text = "target triple = \"x86_64-pc-linux-gnu\"\ndefine i32 @main() {\n  \
                %x = call i32 asm \"\", \"={nosuchregister}\"()\n  ret i32 %x\n}\n";
    let path = file("register.ll", text.as_bytes()).expect("it can be written");
    assert_refused(&uruk_run(&["-j2"], &[&path]), 1, &["register.ll"]);
    let text = "target triple = \"x86_64-pc-linux-gnu\"\ndeclare i32 @llvm.read_register.i32(metadata)\n\
                define i32 @main() {\n  %x = call i32 @llvm.read_register.i32(metadata !0)\n  ret i32 %x\n}\n\
                !0 = !{!\"no such register\"}\n";
    let path = file("fatal.ll", text.as_bytes()).expect("it can be written");
    assert_refused(&uruk_run(&["-j2"], &[&path]), 1, &["fatal.ll", "no such register"]);
}

#[test]
fn wrong_passes() {
    let good = bitcode("main.c", MAIN).expect("it compiles");
    for passes in ["no-such-pass", "default<O9>", "function(", "instcombine,,gvn)"] {
        assert_refused(&uruk_run(&["--passes", passes], &[&good]), 1, &[passes]);
    }
}

#[test]
fn wrong_entry() {
    let good = bitcode("main.c", MAIN).expect("it compiles");
    assert_refused(&uruk_run(&["--entry", "nobody"], &[&good]), 1, &["nobody"]);
    let library = object("helper.c", "int helper(void) { return 0; }").expect("it compiles");
    assert_refused(&uruk_run(&[], &[&library]), 1, &["main"]);
}

#[test]
fn wrong_usage() {
    let good = bitcode("main.c", MAIN).expect("it compiles");
    let good = good.to_str().expect("a path of text");
    let lines: [&[&str]; 12] = [
        &[],
        &["walk", good],
        &["run"],
        &["run", "--"],
        &["run", "--no-such-option", good],
        &["run", "-j0", good],
        &["run", "-j", "many", good],
        &["run", "-j", "-1", good],
        &["run", "-O4", good],
        &["run", "-Os", good],
        &["run", good, "--entry"],
        &["run", "--trace"],
    ];
    for line in lines {
        let outcome = uruk_with(&line.iter().map(OsStr::new).collect::<Vec<_>>());
        // With no arguments at all the help stands in for the error.
        if line.is_empty() {
            assert_eq!(outcome.end, End::Exited(2), "{outcome:?}");
            continue;
        }
        assert_refused(&outcome, 2, &[]);
    }
}

#[test]
fn outputs_that_cannot_be_written() {
    let good = bitcode("main.c", MAIN).expect("it compiles");
    let outcome = uruk_run(&["--trace", "/no/such/place/trace.json"], &[&good]);
    assert_refused(&outcome, 1, &["/no/such/place/trace.json"]);
}

#[test]
fn objects_that_are_not_position_independent_run() {
    let text = "#include <stdio.h>\nstatic int table[4] = {1, 2, 3, 4};\nint at;\n\
                int main(int argc, char **argv) { printf(\"%d\\n\", table[argc + at]); return argv == 0; }\n";
    let object = compile("fixed.c", text, &["-O1", "-fno-pic"], "fixed.o").expect("it compiles");
    let outcome = uruk_run(&[], &[&object]);
    assert_eq!((outcome.end, &*outcome.stdout), (End::Exited(0), &b"2\n"[..]), "{}", outcome.command);
    let kernel =
        compile("fixed.c", text, &["-O1", "-fno-pic", "-mcmodel=kernel"], "kernel.o").expect("it compiles");
    assert_ran_or_advised(&uruk_run(&[], &[&kernel]), "2\n");
}

#[test]
fn objects_with_an_executables_thread_locals() {
    let text = "#include <stdio.h>\n__thread int local = 5;\nint main(void) { printf(\"%d\\n\", ++local); return 0; }\n";
    for flags in [&["-O1", "-fPIE"][..], &["-O1", "-fPIC", "-ftls-model=initial-exec"]] {
        let object = compile("local.c", text, flags, "local.o").expect("it compiles");
        let outcome = uruk_run(&[], &[&object]);
        assert_ran_or_advised(&outcome, "6\n");
        if outcome.end != End::Exited(0) {
            assert_refused(&outcome, 1, &["local"]);
        }
    }
    // More than any reserve can hold.
    let large =
        text.replace("__thread int local = 5;", "__thread int local = 5; __thread char large[1 << 24];");
    let large = large.replace("return 0;", "return large[local];");
    let object = compile("large.c", &large, &["-O1", "-fPIE"], "large.o").expect("it compiles");
    assert_ran_or_advised(&uruk_run(&[], &[&object]), "6\n");
}

#[test]
fn a_relocation_out_of_range() {
    let far = "\n.globl far_away\nfar_away = 0x123456789abc\n";
    let near = ".globl main\nmain: cmpl $1, far_away(%rip)\n xorl %eax, %eax\n ret\n";
    let user = compile("near.s", near, &[], "near.o").expect("it assembles");
    let definition = compile("far.s", far, &[], "far.o").expect("it assembles");
    let words = ["far_away", "near.o", "R_X86_64_PC32", "32"];
    assert_refused(&uruk_run(&[], &[&user, &definition]), 1, &words);
    let both = compile("both.s", &format!("{near}{far}"), &[], "both.o").expect("it assembles");
    assert_refused(&uruk_run(&[], &[&both]), 1, &["both.o", "R_X86_64_PC32"]);
}

#[test]
fn a_source_with_an_error_shows_the_compilers_message() {
    let path = file("wrong.c", b"int main(void) { return undeclared_name; }\n").expect("it can be written");
    assert_refused(&uruk_run(&[], &[&path]), 1, &["wrong.c:1", "undeclared_name"]);
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
