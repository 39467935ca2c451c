//! Thread-local storage in every model, by every compiler, on threads from before and after the link, against the native
//! twin.
//!
//! Objects as compilers make them by default, for executables, were refused if they had a thread-local variable, or if they
//! used `std::call_once`, which reaches one of the C++ library's.
//!
//! | model | flags | relocations |
//! |---|---|---|
//! | default | none: an executable's | local-exec TPOFF32; initial-exec GOTTPOFF for what another file defines |
//! | local-exec | `-ftls-model=local-exec` | TPOFF32 |
//! | initial-exec | `-fPIC -ftls-model=initial-exec` | GOTTPOFF |
//! | local-dynamic | `-fPIC -ftls-model=local-dynamic` | TLSLD, DTPOFF32 |
//! | general-dynamic | `-fPIC -ftls-model=global-dynamic` | TLSGD |
//! | descriptors | `-fPIC -mtls-dialect=gnu2` | GOTPC32_TLSDESC, TLSDESC_CALL |
//!
//! rustc has no flag for the model; it follows from the relocation model.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::cache::{BuildError, CacheKey, run_tool};
use uruk_tests::forms::rust_std;
use uruk_tests::inputs::{archive, shared_library};
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::program::programs_directory;
use uruk_tests::uruk::uruk;

const MODELS: [(&str, &[&str]); 6] = [
    ("default", &[]),
    ("local-exec", &["-ftls-model=local-exec"]),
    ("initial-exec", &["-fPIC", "-ftls-model=initial-exec"]),
    ("local-dynamic", &["-fPIC", "-ftls-model=local-dynamic"]),
    ("general-dynamic", &["-fPIC", "-ftls-model=global-dynamic"]),
    ("descriptors", &["-fPIC", "-mtls-dialect=gnu2"]),
];

/// How the file that does not define the variable reaches it.
const NEIGHBOURS: [&[&str]; 3] = [&[], &["-fPIC"], &["-fPIC", "-mtls-dialect=gnu2"]];

/// Makes `output` of `source` in a directory that the cache keeps.
fn make(tool: &str, flags: &[&str], source: &Path, output: &str) -> Result<PathBuf, BuildError> {
    let mut key = CacheKey::new(tool)?;
    key.file(source)?.text(output);
    flags.iter().for_each(|flag| _ = key.text(flag));
    let made = key.get_or_make(|directory| {
        run_tool(Command::new(tool).args(flags).arg(source).arg("-o").arg(directory.join(output)))
    })?;
    Ok(made.join(output))
}

fn source(name: &str) -> PathBuf {
    programs_directory().join("thread_local_models").join(name)
}

/// Compiles one of the C++ files.
fn object(tool: &str, flags: &[&str], name: &str) -> Result<PathBuf, BuildError> {
    make(tool, &[flags, &["-std=c++17", "-c"]].concat(), &source(name), &format!("{name}.o"))
}

/// Runs `main` with everything else in an archive, of which the program links what it looks up, on threads that have run for a
/// while; and its native twin, which has all of it from the start.
fn check(what: &str, main: &Path, late: &[&Path]) -> Result<(), BuildError> {
    let std = rust_std()?;
    let mut key = CacheKey::new("g++")?;
    key.text(&main.display().to_string()).text("native");
    late.iter().for_each(|object| _ = key.text(&object.display().to_string()));
    let native = key.get_or_make(|directory| {
        let mut link = Command::new("g++");
        link.arg(main).args(late).arg(&std).args(["-rdynamic", "-pthread", "-ldl"]);
        let libraries = std.parent().unwrap_or(Path::new("/"));
        run_tool(
            link.arg(format!("-Wl,-rpath,{}", libraries.display())).arg("-o").arg(directory.join("native")),
        )
    })?;
    let native = run(&mut Command::new(native.join("native")), &Input::default(), Duration::from_secs(60))?;
    assert_eq!(native.end, End::Exited(0), "{what}: {native:?}");
    let library = archive("liblate.a", late)?;
    let outcome = uruk_run(&["--load".as_ref(), &std, main, &library]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&outcome.stdout), text(&native.stdout), "{what}: {outcome:?}");
    assert_eq!(outcome.end, End::Exited(0), "{what}: {outcome:?}");
    Ok(())
}

fn uruk_run(arguments: &[&Path]) -> Outcome {
    let mut command = Command::new(uruk());
    command.arg("run").args(arguments);
    run(&mut command, &Input::default(), Duration::from_secs(60)).expect("the command can be started")
}

fn check_compiler(tool: &str) {
    let main = object(tool, &["-O1"], "main.cpp").expect("it compiles");
    let mut combinations = 0;
    for (model, flags) in MODELS {
        for level in ["-O0", "-O2"] {
            let variables = object(tool, &[flags, &[level]].concat(), "variables.cpp").expect("it compiles");
            let other = NEIGHBOURS[combinations % NEIGHBOURS.len()];
            let neighbour = object(tool, &[other, &[level]].concat(), "neighbour.cpp").expect("it compiles");
            let what = format!("{tool} {model} {level}, and {other:?}");
            check(&what, &main, &[&variables, &neighbour]).expect("the tools run");
            combinations += 1;
        }
    }
}

#[test]
fn every_model_of_gcc() {
    check_compiler("g++");
}

#[test]
fn every_model_of_clang() {
    check_compiler("clang++-22");
}

#[test]
fn every_model_of_rustc() {
    let main = object("g++", &["-O1"], "main.cpp").expect("it compiles");
    for model in ["default", "pic", "pie"] {
        for level in ["opt-level=0", "opt-level=2"] {
            let common = ["--edition", "2024", "--crate-type", "lib", "--emit=obj", "-C", "prefer-dynamic"];
            let relocations = format!("relocation-model={model}");
            let model_flags = ["-C", relocations.as_str()];
            let model_flags = if model == "default" { &[][..] } else { &model_flags[..] };
            let flags = [&common[..], &["-C", level, "-C", "codegen-units=1"], model_flags].concat();
            let variables =
                make("rustc", &flags, &source("variables.rs"), "variables.o").expect("it compiles");
            check(&format!("rustc {model} {level}"), &main, &[&variables]).expect("the tools run");
        }
    }
}

/// The code that the C++ library builds on `std::call_once`, as g++ compiles it by default: in an executable's way.
#[test]
fn futures_promises_and_call_once_of_default_objects() {
    let program = programs_directory().join("cxx/asynchronous.cpp");
    for tool in ["g++", "clang++-22"] {
        for level in ["-O0", "-O2"] {
            let flags = ["-std=c++20", level, "-pthread"];
            let object = make(tool, &[&flags[..], &["-c"]].concat(), &program, "asynchronous.o");
            let native = make(tool, &flags, &program, "asynchronous").expect("it links");
            let native =
                run(&mut Command::new(native), &Input::default(), Duration::from_secs(60)).expect("runs");
            let outcome = uruk_run(&[&object.expect("it compiles")]);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(
                (outcome.end, text(&outcome.stdout)),
                (native.end, text(&native.stdout)),
                "{tool} {level}"
            );
        }
    }
}

/// More than there is room for has no fixed distance: the error says which variable, whose, in which model, and how to
/// compile it.
#[test]
fn what_has_no_room_is_refused_with_advice() {
    let text = "__thread char large[40000]; int main(void) { return large[39999]; }\n";
    let outcome = uruk_run(&[&compile_c("large.c", text, &[])]);
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.end, End::Exited(1), "{outcome:?}");
    for word in ["`large`", "large.c.o", "local-exec", "32768", "-fPIC", "-ftls-model=global-dynamic"] {
        assert!(stderr.contains(word), "no `{word}`: {stderr}");
    }
    for flags in [&["-fPIC"][..], &["-fPIC", "-mtls-dialect=gnu2"], &["-fPIC", "-ftls-model=initial-exec"]] {
        assert_eq!(uruk_run(&[&compile_c("large.c", text, flags)]).end, End::Exited(0), "{flags:?}");
    }
}

/// Libraries come after the process has started, and natively before it.
#[test]
fn variables_of_a_library_are_found_in_an_executables_way() {
    let library = shared_library("later.c", "__thread int later = 3;\n", "liblater.so").expect("it links");
    let user = "extern __thread int later; int main(void) { return later++ + later - 7; }\n";
    for flags in [&["-O0"][..], &["-O2"], &["-fPIC"], &["-fPIC", "-mtls-dialect=gnu2"]] {
        let outcome = uruk_run(&[&compile_c("user.c", user, flags), &library]);
        assert_eq!(outcome.end, End::Exited(0), "{flags:?}: {outcome:?}");
    }
}

/// Fortran's thread-private common blocks: tentative definitions of one variable for each thread, in several files, of which each may
/// ask for another size. A variable of all threads was made of them.
#[test]
fn tentative_variables_of_threads_are_one_for_each_thread() {
    let main = r#"
        #include <pthread.h>
        #include <stdio.h>
        asm(".tls_common blk, 4, 4");
        extern __thread int blk;
        int *other(int add);
        static void *second(void *first) {
          int zero = blk == 0 && *other(2) == 2;
          return &blk != first && zero && blk == 2 ? 0 : first;
        }
        int main(void) {
          pthread_t thread;
          void *failed;
          blk += 3;
          int *place = other(4);
          if (pthread_create(&thread, 0, second, &blk) || pthread_join(thread, &failed)) return 1;
          printf("%d %d %d\n", blk, place == &blk, failed == 0);
          return 0;
        }
    "#;
    let other = r#"
        asm(".tls_common blk, 16, 64");
        extern __thread int blk[4];
        int *other(int add) { blk[3] = 1; blk[0] += add; return (unsigned long)blk % 64 ? 0 : blk; }
    "#;
    let defined = "__thread int blk[16] __attribute__((aligned(64))) = {10};";
    let defined = compile_c("blk.c", defined, &["-O1", "-fPIC"]);
    for (model, flags) in MODELS {
        let [main, other] = [("commons.c", main), ("other.c", other)]
            .map(|(name, text)| compile_c(name, text, &[flags, &["-O1"]].concat()));
        for mode in ["-O2", "--lazy", "--lazy=module"] {
            let program = [Path::new(mode), &main, &other];
            let outcome = uruk_run(&program);
            assert_eq!(String::from_utf8_lossy(&outcome.stdout), "7 1 1\n", "{model} {mode}: {outcome:?}");
            // A definition with a value is the variable.
            let outcome = uruk_run(&[&program[..], &[&defined]].concat());
            assert_eq!(String::from_utf8_lossy(&outcome.stdout), "17 1 0\n", "{model} {mode}: {outcome:?}");
        }
    }
}

fn compile_c(name: &str, text: &str, flags: &[&str]) -> PathBuf {
    let file = uruk_tests::inputs::file(name, text.as_bytes()).expect("it can be written");
    make("gcc", &[flags, &["-c"]].concat(), &file, &format!("{name}.o")).expect("it compiles")
}
