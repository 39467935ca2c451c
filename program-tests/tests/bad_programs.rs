//! Whole files that make no program, or none that can be run here, and command lines that mean nothing: an error as for broken
//! files (`bad_input.rs`).

use std::ffi::OsStr;

use uruk_tests::inputs::{archive, bitcode, compile, file, object};
use uruk_tests::process::End;
use uruk_tests::refusal::{MAIN, assert_ran_or_advised, assert_refused, uruk_run, uruk_with};

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
        &["run", "-Ofast", good],
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
