//! The command's own work around a program: sources and textual IR as input, shared libraries, statistics, traces,
//! signals from outside.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::forms::Form;
use uruk_tests::inputs::{archive, bitcode, compile, file, object, shared_library};
use uruk_tests::matrix::{Compiles, Variant};
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::program::Program;
use uruk_tests::uruk::uruk;

fn uruk_run(arguments: &[&OsStr]) -> Outcome {
    let mut command = Command::new(uruk());
    command.arg("run").args(arguments);
    run(&mut command, &Input::default(), Duration::from_secs(60)).expect("the command can be started")
}

#[track_caller]
fn assert_prints(outcome: &Outcome, end: End, stdout: &str) {
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), stdout, "{}\n{stderr}", outcome.command);
    assert_eq!(outcome.end, end, "{}\n{stderr}", outcome.command);
}

#[test]
fn sources_and_text_are_input_too() {
    let names =
        ["c/unflushed", "c/switches", "c/function_identity", "c/thread_locals", "cxx/exceptions", "cxx/rtti"];
    for name in names {
        let source = Variant { form: Form::Source, level: 0, jobs: 2, compiles: Compiles::Whole };
        let text = Variant { form: Form::Text, level: 2, jobs: 1, compiles: Compiles::Whole };
        Program::load(name).expect("the program is there").check_variants(&[source, text]);
    }
}

/// A library with a function, data, a thread-local variable, a callback, an initialiser and an exception, and its user.
fn library_and_user() -> (PathBuf, Vec<PathBuf>) {
    let library = r#"
        #include <cstdio>
        #include <stdexcept>
        extern "C" { int shared_data = 5; thread_local int shared_local = 7; }
        extern "C" int shared_call(int (*back)(int), int x) { return back(x) + shared_data + shared_local; }
        extern "C" void shared_throw() { throw std::out_of_range("from the library"); }
        static struct Loaded { Loaded() { std::puts("library loaded"); } ~Loaded() { std::puts("library unloaded"); } } loaded;
    "#;
    let user = r#"
        #include <cstdio>
        #include <stdexcept>
        extern "C" { extern int shared_data; extern thread_local int shared_local; }
        extern "C" int shared_call(int (*back)(int), int x);
        extern "C" void shared_throw();
        static int back(int x) { return x * 100; }
        int main() {
          shared_data++, shared_local++;
          std::printf("%d\n", shared_call(back, 3));
          try { shared_throw(); } catch (const std::out_of_range &error) { std::puts(error.what()); }
        }
    "#;
    let library = shared_library("shared.cpp", library, "libshared.so").expect("it links");
    let bitcode = compile("user.cpp", user, &["-O1", "-emit-llvm"], "user.bc").expect("it compiles");
    let object = compile("user.cpp", user, &["-O1", "-fPIC"], "user.o").expect("it compiles");
    (library, vec![bitcode, object])
}

/// A member of an archive counts from when it is needed, and by then the object of an executable that reads its variables
/// directly had been placed out of their reach.
#[test]
fn an_archive_without_position_independent_code_is_linked_with_objects_of_executables() {
    let member = r#"
        #include <stdio.h>
        int counter = 41;
        static int twice(int x) { return 2 * x; }
        int (*const functions[])(int) = { twice };
        int (*printer(void))(const char *) { return puts; }
        FILE *stream(void) { return stdout; }
        int index_of(int n) { return &functions[n] == functions; }
    "#;
    let user = r#"
        #include <stdio.h>
        extern int counter; extern int (*const functions[])(int);
        int (*printer(void))(const char *); FILE *stream(void); int index_of(int n);
        int main(void) {
          printf("%d %d %d %d\n", ++counter, functions[0](4), printer() == puts, index_of(0));
          return fprintf(stdout, "%d\n", stream() == stdout) - 2;
        }
    "#;
    let member = compile("member.c", member, &["-O1", "-fno-pic"], "member.o").expect("it compiles");
    let library = archive("libfixed.a", &[&member]).expect("it is archived");
    for flags in [&["-O1", "-fPIE"][..], &["-O1", "-fno-pic"], &["-O1", "-fPIC"]] {
        let user = compile("user.c", user, flags, "user.o").expect("it compiles");
        let outcome = uruk_run(&[user.as_ref(), library.as_ref()]);
        assert_prints(&outcome, End::Exited(0), "42 8 1 1\n1\n");
    }
}

#[test]
fn what_dlsym_pulls_out_of_an_archive_is_constructed_first() {
    let member = r#"
        int puts(const char *);
        static int ready;
        __attribute__((constructor)) static void start(void) { ready = 1; puts("constructed"); }
        __attribute__((destructor)) static void end(void) { puts("destroyed"); }
        int is_ready(void) { return ready; }
    "#;
    let user = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        int main(void) {
          puts("main");
          int (*is_ready)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "is_ready");
          printf("%d\n", is_ready ? is_ready() : -1);
          return 0;
        }
    "#;
    let library =
        archive("liblate.a", &[&object("late.c", member).expect("it compiles")]).expect("it is archived");
    let user = object("late_user.c", user).expect("it compiles");
    let outcome = uruk_run(&[user.as_os_str(), library.as_os_str()]);
    assert_prints(&outcome, End::Exited(0), "main\nconstructed\n1\ndestroyed\n");
}

#[test]
fn a_shared_library_is_a_file_or_loaded() {
    let (library, users) = library_and_user();
    let printed = "library loaded\n314\nfrom the library\nlibrary unloaded\n";
    for user in &users {
        let as_file: [&OsStr; 2] = [user.as_os_str(), library.as_os_str()];
        assert_prints(&uruk_run(&as_file), End::Exited(0), printed);
        let loaded: [&OsStr; 3] = ["--load".as_ref(), library.as_os_str(), user.as_os_str()];
        assert_prints(&uruk_run(&loaded), End::Exited(0), printed);
    }
}

const HELLO: &str =
    "int puts(const char *);\nint helper(int);\nint main(void) { puts(\"hello\"); return helper(3); }\n";
const HELPER: &str = "int helper(int x) { return x + 1; }\n";

fn hello() -> [PathBuf; 2] {
    [bitcode("hello.c", HELLO), bitcode("helper.c", HELPER)].map(|made| made.expect("it compiles"))
}

#[test]
fn nothing_is_printed_beside_the_program() {
    let [hello, helper] = hello();
    let outcome = uruk_run(&[hello.as_os_str(), helper.as_os_str()]);
    assert_prints(&outcome, End::Exited(4), "hello\n");
    assert!(outcome.stderr.is_empty(), "{}", String::from_utf8_lossy(&outcome.stderr));
}

#[test]
fn statistics_go_to_standard_error() {
    let [hello, helper] = hello();
    let outcome = uruk_run(&["--stats".as_ref(), "-j2".as_ref(), hello.as_os_str(), helper.as_os_str()]);
    assert_prints(&outcome, End::Exited(4), "hello\n");
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    for word in ["optimize", "codegen", "link"] {
        assert!(stderr.contains(word), "no `{word}` in the statistics:\n{stderr}");
    }
}

/// A function that is called first when the process ends is compiled then, where threads have no variables any more.
#[test]
fn a_lazy_program_that_is_watched_compiles_its_exit_handlers() {
    let text = "#include <stdio.h>\n#include <stdlib.h>\nstatic void last(void) { puts(\"last\"); }\n\
                int main(void) { atexit(last); return 3; }\n";
    let file = bitcode("exits.c", text).expect("it compiles");
    let place = file.with_file_name("exits.json");
    for tier in ["--lazy", "--tiered"] {
        let options = ["--stats".as_ref(), "--trace".as_ref(), place.as_os_str(), tier.as_ref()];
        let outcome = uruk_run(&[&options[..], &[file.as_os_str()]].concat());
        assert_prints(&outcome, End::Exited(3), "last\n");
        let stderr = String::from_utf8_lossy(&outcome.stderr);
        assert!(stderr.contains("codegen") && !stderr.contains("panic"), "{tier}:\n{stderr}");
    }
}

#[test]
fn a_trace_is_json_with_the_stages() {
    let [hello, helper] = hello();
    let place = hello.with_file_name("trace.json");
    let outcome = uruk_run(&["--trace".as_ref(), place.as_os_str(), hello.as_os_str(), helper.as_os_str()]);
    assert_prints(&outcome, End::Exited(4), "hello\n");
    let text = std::fs::read(&place).expect("the trace was written");
    let trace: serde_json::Value = serde_json::from_slice(&text).expect("the trace is JSON");
    let events =
        trace.as_array().or_else(|| trace["traceEvents"].as_array()).expect("it is a list of events");
    for stage in ["unit.materialize", "ir.optimize", "ir.codegen", "link.parse", "link.fixup", "symbols.emit"]
    {
        let begins = |event: &&serde_json::Value| event["ph"] == "B" || event["ph"] == "X";
        let units = events.iter().filter(begins).filter(|event| event["name"] == stage).count();
        assert!(units >= 2, "{units} spans `{stage}`, expected one for each of two modules");
    }
    // Every process was called `uruk` in a viewer.
    let process = events.iter().find(|event| event["name"] == "process_name").expect("it has a name");
    assert_eq!(process["args"]["name"].as_str(), hello.file_name().and_then(OsStr::to_str));
}

/// The trace was empty after a crash or `_exit`, and cut in the middle after SIGINT.
#[test]
fn a_trace_is_whole_however_the_program_ends() {
    let ends = [
        ("crash", "*(volatile int *)0 = 1;", End::Killed(11)),
        ("leave", "_exit(3);", End::Exited(3)),
        ("interrupt", "kill(getpid(), SIGINT);", End::Killed(2)),
        ("kill", "kill(getpid(), SIGKILL);", End::Killed(9)),
    ];
    for (name, statement, end) in ends {
        let text =
            format!("#include <signal.h>\n#include <unistd.h>\nint main(void) {{ {statement} return 0; }}\n");
        let file = bitcode(&format!("{name}.c"), &text).expect("it compiles");
        let place = file.with_file_name(format!("{name}.json"));
        let outcome = uruk_run(&["--trace".as_ref(), place.as_os_str(), file.as_os_str()]);
        assert_prints(&outcome, end, "");
        let text = std::fs::read(&place).expect("the trace was written");
        let trace: Vec<serde_json::Value> = serde_json::from_slice(&text).expect("it is a list in JSON");
        assert!(trace.iter().any(|event| event["name"] == "symbols.emit"), "{name}: {trace:?}");
    }
}

#[test]
fn an_exit_code_is_a_byte() {
    for (returned, seen) in [(0, 0), (1, 1), (255, 255), (256 + 7, 7), (-1, 255)] {
        let text = format!("int main(void) {{ return {returned}; }}\n");
        let file = object("code.c", &text).expect("it compiles");
        assert_prints(&uruk_run(&[file.as_os_str()]), End::Exited(seen), "");
    }
}

/// A child of the program sends the signal, so that it arrives when the program runs.
#[test]
fn signals_from_outside_reach_the_program() {
    for (name, number) in [("SIGTERM", 15), ("SIGINT", 2), ("SIGHUP", 1), ("SIGKILL", 9), ("SIGUSR2", 12)] {
        let text = format!(
            "#include <signal.h>\n#include <unistd.h>\n\
             int main(void) {{ if (!fork()) {{ kill(getppid(), {name}); _exit(0); }} for (;;) pause(); }}\n"
        );
        let file = bitcode(&format!("{name}.c"), &text).expect("it compiles");
        assert_prints(&uruk_run(&[file.as_os_str()]), End::Killed(number), "");
    }
}

#[test]
fn help_and_version_are_no_errors() {
    for arguments in [&["--help"][..], &["--version"], &["run", "--help"]] {
        let mut command = Command::new(uruk());
        command.args(arguments);
        let outcome = run(&mut command, &Input::default(), Duration::from_secs(60)).expect("it starts");
        assert_eq!(outcome.end, End::Exited(0), "{outcome:?}");
        assert!(!outcome.stdout.is_empty() && outcome.stderr.is_empty(), "{outcome:?}");
    }
}

/// A command line for the shell, run where `file` lies, with the command as `$1`.
fn in_directory_of(file: &Path, line: &str) -> Outcome {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("cd \"$2\" && {line}"), "sh"]).arg(uruk());
    command.arg(file.parent().expect("it lies in a directory"));
    run(&mut command, &Input::default(), Duration::from_secs(60)).expect("it starts")
}

/// A file of the working directory was taken for the system's library of that name.
#[test]
fn a_library_in_the_working_directory_is_that_file() {
    let user = bitcode("user.c", "int own(void);\nint main(void) { return own(); }\n").expect("it compiles");
    let library = shared_library("own.c", "int own(void) { return 7; }\n", "own.so").expect("it compiles");
    std::fs::copy(&library, user.with_file_name("libm.so.6")).expect("it can be copied");
    let outcome = in_directory_of(&user, "exec $1 run user.bc libm.so.6");
    assert_prints(&outcome, End::Exited(7), "");
}

/// Prints its arguments.
const ARGUMENTS: &str = "#include <stdio.h>\n\
    int main(int argc, char **argv) { for (int i = 1; i < argc; i++) puts(argv[i]); return argc; }\n";

#[test]
fn textual_ir_is_known_by_its_text() {
    let module = compile("text.c", "int main(void) { return 3; }\n", &["-S", "-emit-llvm"], "text.txt");
    assert_prints(&uruk_run(&[module.expect("it compiles").as_os_str()]), End::Exited(3), "");
}

#[test]
fn scripts_get_the_arguments_behind_them() {
    let module = compile("script.c", ARGUMENTS, &["-S", "-emit-llvm"], "script.ll").expect("it compiles");
    let text = std::fs::read_to_string(&module).expect("it can be read");
    for (name, text) in [("ir", &*text), ("source.c", ARGUMENTS)] {
        let script = format!("#!/usr/bin/env -S {} run -O0\n{text}", uruk().display());
        let script = file(name, script.as_bytes()).expect("it can be written");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        let mut command = Command::new(&script);
        command.args(["one", "-v", "--help"]);
        let outcome = run(&mut command, &Input::default(), Duration::from_secs(60)).expect("it starts");
        assert_prints(&outcome, End::Exited(4), "one\n-v\n--help\n");
    }
}

#[test]
fn a_script_with_an_error_says_where() {
    let script = file("wrong.c", b"#!/usr/bin/uruk\nint main(void) {\n  return nobody;\n}\n");
    let outcome = uruk_run(&[script.expect("it can be written").as_os_str()]);
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.end == End::Exited(1) && stderr.contains("wrong.c:3:"), "{stderr}");
}

/// A compiler that ends before it has read a script took the command with it, by a signal and without a word.
#[test]
fn a_compiler_that_reads_nothing_is_heard() {
    let text = format!("#!/usr/bin/uruk\n{}", "// More than a pipe holds.\n".repeat(10_000));
    let script = file("unread.c", text.as_bytes()).expect("it can be written");
    let compiler =
        file("clang-22", b"#!/bin/sh\necho it reads nothing >&2\nexit 1\n").expect("it can be written");
    std::fs::set_permissions(&compiler, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let mut command = Command::new(uruk());
    command.arg("run").arg(&script);
    let path = compiler.parent().expect("it lies in a directory").display().to_string();
    let input = Input { env: vec![("PATH".into(), path)], ..Input::default() };
    let outcome = run(&mut command, &input, Duration::from_secs(60)).expect("it starts");
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert!(
        outcome.end == End::Exited(1) && stderr.contains("it reads nothing"),
        "{:?}: {stderr}",
        outcome.end
    );
}

#[test]
fn a_program_may_come_from_standard_input() {
    let module = bitcode("piped.c", ARGUMENTS).expect("it compiles");
    let outcome = in_directory_of(&module, "exec $1 run - -- a b <piped.bc");
    assert_prints(&outcome, End::Exited(3), "a\nb\n");
    let outcome = in_directory_of(&module, "exec $1 run - <piped.c");
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.end == End::Exited(1) && stderr.contains("<standard input>"), "{stderr}");
}

/// `uruk hello.c` was an unrecognized subcommand.
#[test]
fn a_file_in_the_place_of_the_verb_is_run() {
    let module = bitcode("noverb.c", ARGUMENTS).expect("it compiles");
    assert_prints(&in_directory_of(&module, "exec $1 noverb.bc -- a b"), End::Exited(3), "a\nb\n");
    assert_prints(&in_directory_of(&module, "exec $1 ./noverb.bc -j1 -- a b"), End::Exited(3), "a\nb\n");
    assert_prints(&in_directory_of(&module, "exec $1 - -- a b <noverb.bc"), End::Exited(3), "a\nb\n");
    let missing = in_directory_of(&module, "exec $1 nowhere.bc");
    let stderr = String::from_utf8_lossy(&missing.stderr);
    assert!(missing.end == End::Exited(1) && stderr.contains("nowhere.bc: cannot be read"), "{stderr}");
    assert_eq!(in_directory_of(&module, "exec $1 rnu noverb.bc").end, End::Exited(2));
}

#[test]
fn a_name_may_begin_with_a_dash() {
    let module = bitcode("dash.c", ARGUMENTS).expect("it compiles");
    std::fs::copy(&module, module.with_file_name("-h.bc")).expect("it can be copied");
    let outcome = in_directory_of(&module, "exec $1 run -- -h.bc -- -x y");
    assert_prints(&outcome, End::Exited(3), "-x\ny\n");
    std::fs::copy(module.with_file_name("dash.c"), module.with_file_name("-h.c")).expect("it can be copied");
    let outcome = in_directory_of(&module, "exec $1 run -- -h.c -- -x y");
    assert_prints(&outcome, End::Exited(3), "-x\ny\n");
}

/// Relative names mean what they mean to any command.
#[test]
fn files_are_found_from_the_working_directory() {
    let [hello, helper] = hello();
    let directory = hello.parent().expect("it lies in a directory");
    let mut command = Command::new("/bin/sh");
    let line = "cd \"$1\" && exec \"$2\" run \"$3\" \"$4\"";
    command.args(["-c", line, "sh"]).arg(directory).arg(uruk()).arg(Path::new("hello.bc")).arg(&helper);
    let outcome = run(&mut command, &Input::default(), Duration::from_secs(60)).expect("it starts");
    assert_prints(&outcome, End::Exited(4), "hello\n");
}

/// A tentative definition kept its zero although an archive had a value for it. GNU ld takes such a member in, but not
/// one with a function, a weak definition or another tentative one.
#[test]
fn an_archive_gives_a_value_to_what_is_defined_tentatively_as_the_linker_has_it() {
    let members = |names: &str| -> Vec<&'static str> {
        let text = |name: &str| match name {
            "value" => "int shared = 5;",
            "constant" => "const int shared = 9;",
            "weak" => "__attribute__((weak)) int shared = 6;",
            "function" => "int shared(void) { return 7; }",
            "tentative" => "int shared; int other = 1;",
            other => panic!("{other}"),
        };
        names.split(' ').map(text).collect()
    };
    let flags = |form: &str| if form == "bc" { ["-fcommon", "-emit-llvm"] } else { ["-fcommon", "-fPIC"] };
    let make = |text: &str, form: &str| {
        compile("member.c", text, &flags(form), &format!("{form}.{form}")).expect("it compiles")
    };
    let user = "int shared; int main(void) { return shared; }";
    for names in ["value", "constant", "weak", "function", "tentative", "tentative value", "function value"] {
        let mut ends = Vec::new();
        for form in ["o", "bc"] {
            let objects: Vec<_> = members(names).iter().map(|text| make(text, form)).collect();
            let objects: Vec<_> = objects.iter().map(PathBuf::as_path).collect();
            let library = archive(&format!("lib{form}.a"), &objects).expect("it is archived");
            let user = make(user, form);
            ends.push(uruk_run(&[user.as_os_str(), library.as_os_str()]).end);
            if form == "o" {
                let native = library.with_file_name("native");
                let linked = Command::new("cc").args([&user, &library]).arg("-o").arg(&native).status();
                assert!(linked.expect("cc starts").success(), "{names}");
                let limit = Duration::from_secs(60);
                ends.push(run(&mut Command::new(&native), &Input::default(), limit).expect("it starts").end);
            }
        }
        assert!(ends.iter().all(|end| *end == ends[0]), "{names}: object, native, bitcode: {ends:?}");
    }
}

/// A library is loaded, and allocates, before the program is linked that replaces `malloc`. Natively the program's
/// functions gave out that memory too. Here they must not be handed what they do not know.
#[test]
fn what_a_library_allocated_earlier_never_comes_to_the_program_that_replaces_malloc() {
    let library = r#"
        #include <stdlib.h>
        #include <string.h>
        static char *small, *large, *aligned;
        __attribute__((constructor)) static void load(void) {
          small = strdup("loaded");
          large = memset(malloc(1 << 20), 'L', 1 << 20);
          aligned = memset(aligned_alloc(1 << 16, 1 << 18), 'A', 1 << 18);
        }
        const char *grown(void) { return strcat(small = realloc(small, 1000), " and grown"); }
        int large_grown(void) { return (large = realloc(large, 3 << 20))[(1 << 20) - 1]; }
        int aligned_grown(void) { return (aligned = realloc(aligned, 1 << 19))[(1 << 18) - 1]; }
        void give_back(void) { free(small), free(large), free(aligned); load(); free(small), free(large), free(aligned); }
    "#;
    let user = r#"
        #include <stdio.h>
        #include <string.h>
        static char pool[16 << 20];
        static unsigned long used, foreign;
        static int is_own(char *memory) { return memory >= pool && memory < pool + sizeof pool; }
        void *malloc(unsigned long size) { used = (used + 15) / 16 * 16; used += size; return pool + used - size; }
        void *calloc(unsigned long count, unsigned long size) { return malloc(count * size); }
        void *aligned_alloc(unsigned long align, unsigned long size) {
          char *memory = malloc(size + align);
          return memory + (align - (unsigned long)memory % align) % align;
        }
        void free(void *memory) { foreign += memory && !is_own(memory); }
        void *realloc(void *memory, unsigned long size) {
          void *moved = malloc(size);
          foreign += memory && !is_own(memory);
          return memory ? memmove(moved, memory, size) : moved;
        }
        const char *grown(void);
        int large_grown(void), aligned_grown(void);
        void give_back(void);
        int main(void) {
          printf("%s %c", grown(), large_grown());
          printf("%c\n", aligned_grown());
          give_back();
          printf("%lu\n", foreign);
          return 0;
        }
    "#;
    let library = shared_library("earlier.c", library, "libearlier.so").expect("it links");
    for user in [
        object("earlier_user.c", user).expect("it compiles"),
        bitcode("earlier_user.c", user).expect("it compiles"),
    ] {
        let outcome = uruk_run(&["--load".as_ref(), library.as_os_str(), user.as_os_str()]);
        assert_prints(&outcome, End::Exited(0), "loaded and grown LA\n0\n");
    }
}
