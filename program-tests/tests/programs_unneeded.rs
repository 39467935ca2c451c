//! Files that a program is given and does not need.
//!
//! All of them were compiled before `main`, as a native build does once and for all: a program that needs 3 of its 51 files
//! took as long to start as one that needs 51. A file without references is left alone now, if that does not show: what it
//! runs at start runs, and what it refers to has to be there.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::{archive, bitcode, compile, object};
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

/// Makes a file of C source.
type Make = fn(&str, &str) -> PathBuf;

const FORMS: [Make; 3] = [
    |source, text| bitcode(source, text).expect("it compiles"),
    |source, text| object(source, text).expect("it compiles"),
    |source, text| {
        let name = Path::new(source).with_extension("ll");
        compile(source, text, &["-O1", "-emit-llvm", "-S"], &name.to_string_lossy()).expect("it compiles")
    },
];

fn uruk_run(jobs: &str, files: &[&Path]) -> Outcome {
    let mut command = Command::new(uruk());
    command.args(["run", "--stats", "--jobs", jobs]).args(files.iter().map(|file| OsStr::new(*file)));
    run(&mut command, &Input::default(), Duration::from_secs(60)).expect("the command can be started")
}

fn stderr(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stderr).into_owned()
}

/// Checks what was printed, and how many units were made of how many that were begun.
#[track_caller]
fn assert_runs(files: &[&Path], stdout: &str, units: usize) {
    for jobs in ["1", "2"] {
        let outcome = uruk_run(jobs, files);
        let stderr = stderr(&outcome);
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), stdout, "{}\n{stderr}", outcome.command);
        assert_eq!(outcome.end, End::Exited(0), "{}\n{stderr}", outcome.command);
        let made = format!("materialized {units} of {units} units claimed");
        assert!(stderr.contains(&made), "not {units} units: {}\n{stderr}", outcome.command);
    }
}

const MAIN: &str =
    "int puts(const char *); int needed(void); int main(void) { puts(\"main\"); return needed(); }";
const NEEDED: &str = "int deeper(void); int needed(void) { return deeper(); }";
const DEEPER: &str = "int deeper(void) { return 0; }";

#[test]
fn a_file_that_nobody_needs_is_not_compiled() {
    for make in FORMS {
        let [main, needed, deeper] =
            [("m.c", MAIN), ("n.c", NEEDED), ("d.c", DEEPER)].map(|(n, t)| make(n, t));
        let idle = make(
            "idle.c",
            "int puts(const char *); int deeper(void); int used_by_idle; \
             int idle(void) { puts(\"idle\"); return deeper() + used_by_idle; }",
        );
        let other = make("other.c", "int idle(void); int other(void) { return idle(); }");
        assert_runs(&[&main, &needed, &deeper, &idle, &other], "main\n", 3);
    }
}

#[test]
fn what_a_file_runs_at_start_is_run_though_nobody_needs_it() {
    let starts = "int puts(const char *); int helper(void); \
                  __attribute__((constructor)) static void start(void) { if (helper()) puts(\"start\"); }";
    let ends = "int puts(const char *); __attribute__((destructor)) static void end(void) { puts(\"end\"); }";
    for make in FORMS {
        let files = [
            ("m.c", MAIN),
            ("n.c", NEEDED),
            ("d.c", DEEPER),
            ("starts.c", starts),
            ("ends.c", ends),
            ("helper.c", "int helper(void) { return 1; }"),
            ("idle.c", "int idle(void) { return 1; }"),
        ];
        let files = files.map(|(name, text)| make(name, text));
        assert_runs(&files.each_ref().map(PathBuf::as_path), "start\nmain\nend\n", 6);
    }
}

/// The ends of a section are those of all files, and a variable without a value takes the room that the largest asks for.
#[test]
fn what_a_file_adds_by_being_there_is_there_though_nobody_needs_it() {
    let main = "int printf(const char *, ...); extern int __start_listed[], __stop_listed[]; \
                int main(void) { printf(\"%d\\n\", (int)(__stop_listed - __start_listed)); return 0; }";
    let listed = "__attribute__((used, section(\"listed\"))) static int entry = 7;";
    for make in FORMS {
        let files =
            [("m.c", main), ("one.c", listed), ("two.c", listed)].map(|(name, text)| make(name, text));
        assert_runs(&files.each_ref().map(PathBuf::as_path), "2\n", 3);
    }
    let tentative = |source: &str, text: &str| {
        compile(source, text, &["-fcommon", "-fPIC"], &format!("{source}.o")).expect("it compiles")
    };
    let small = "int printf(const char *, ...); char room[4]; extern char *last; \
                 int main(void) { printf(\"%d\\n\", (int)(last - room)); return 0; }";
    let files = [
        tentative("small.c", small),
        tentative("large.c", "char room[4096];"),
        tentative("last.c", "extern char room[]; char *last = room + 4095;"),
    ];
    let files = files.each_ref().map(PathBuf::as_path);
    // The variable is a unit of its own.
    assert_runs(&files, "4095\n", 4);
}

/// Exactly as if a function with that reference were called, and before anything of the program runs.
#[test]
fn what_is_missing_is_an_error_though_nobody_needs_the_file_that_refers_to_it() {
    let lost = "int absent(int); int lost(int x) { return absent(x) + 1; }";
    let early =
        "int puts(const char *); __attribute__((constructor)) static void start(void) { puts(\"start\"); }";
    for make in FORMS {
        let [main, calls] = [
            ("m.c", "int main(void) { return 0; }"),
            ("calls.c", "int lost(int); int main(void) { return lost(1); }"),
        ]
        .map(|(name, text)| make(name, text));
        let (lost, early) = (make("lost.c", lost), make("early.c", early));
        for jobs in ["1", "2"] {
            let unneeded = uruk_run(jobs, &[&main, &lost, &early]);
            let needed = uruk_run(jobs, &[&calls, &lost, &early]);
            for outcome in [&unneeded, &needed] {
                assert_eq!(outcome.end, End::Exited(1), "{}", outcome.command);
                assert_eq!(String::from_utf8_lossy(&outcome.stdout), "", "{}", outcome.command);
            }
            let message = stderr(&unneeded);
            assert!(message.contains("cannot link the program"), "{message}");
            let file = lost.display();
            assert!(
                message.contains(&format!(
                    "cannot link the program\n  because: undefined: `absent` (needed by `lost` at {file}: .text"
                )),
                "{message}"
            );
        }
        let weak =
            "__attribute__((weak)) int absent(int); int lost(int x) { return absent ? absent(x) : 1; }";
        assert_runs(&[&main, &make("weak.c", weak)], "", 1);
    }
}

/// A static linker takes the member, and with it what it runs at start.
#[test]
fn what_a_file_that_nobody_needs_takes_out_of_an_archive_takes_part() {
    let member = "int puts(const char *); int member(void) { return 1; } \
                  __attribute__((constructor)) static void start(void) { puts(\"start\"); }";
    let quiet = "int quiet(void) { return 1; }";
    let lost = "int absent(void); int wrong(void) { return absent(); }";
    for make in FORMS.into_iter().take(2) {
        let members =
            [("member.c", member), ("quiet.c", quiet), ("lost.c", lost)].map(|(name, text)| make(name, text));
        let library =
            archive("libidle.a", &members.each_ref().map(PathBuf::as_path)).expect("it is archived");
        let main = make("m.c", "int puts(const char *); int main(void) { puts(\"main\"); return 0; }");
        let idle =
            make("idle.c", "int member(void), quiet(void); int idle(void) { return member() + quiet(); }");
        assert_runs(&[&main, &idle, &library], "start\nmain\n", 2);
        let wrong = make("wrong.c", "int wrong(void); int calls_wrong(void) { return wrong(); }");
        let outcome = uruk_run("1", &[&main, &wrong, &library]);
        assert_eq!(outcome.end, End::Exited(1), "{}", outcome.command);
        assert!(stderr(&outcome).contains("absent"), "{}", stderr(&outcome));
    }
}

/// A weak definition was being compiled when the member came that has a strong one, and stayed; or the member was refused.
#[test]
fn a_weak_definition_yields_to_that_of_a_member_which_is_needed_for_another() {
    let main = r#"
        int printf(const char *, ...);
        __attribute__((weak, noinline)) int both(void) { return 1; }
        __attribute__((weak)) int variable = 1;
        int other(void), through(void), *address(void);
        int main(void) {
            printf("%d %d %d ", both(), other(), through());
            printf("%d %d\n", variable, address() == &variable);
            return 0;
        }
    "#;
    // One member brings the next.
    let members = [
        ("other.c", "int both(void), deeper(void); int other(void) { return deeper() + both(); }"),
        ("deeper.c", "int both(void) { return 2; } int deeper(void) { return 10; }"),
        (
            "through.c",
            "int variable = 3; int both(void); int through(void) { return both(); } int *address(void) { return &variable; }",
        ),
        ("unneeded.c", "int both(void) { return 4; }"),
    ];
    for make in FORMS {
        for make_member in FORMS.into_iter().take(2) {
            let made = members.map(|(name, text)| make_member(name, text));
            let library =
                archive("libboth.a", &made.each_ref().map(PathBuf::as_path)).expect("it is archived");
            let main = make("m.c", main);
            for mode in [&[][..], &["--lazy"], &["--lazy=module"]] {
                let mut command = Command::new(uruk());
                command.arg("run").args(mode).args([&main, &library]);
                let outcome =
                    run(&mut command, &Input::default(), Duration::from_secs(60)).expect("it starts");
                let stdout = String::from_utf8_lossy(&outcome.stdout);
                assert_eq!(stdout, "2 12 2 3 1\n", "{}\n{}", outcome.command, stderr(&outcome));
            }
        }
    }
    let objects = members.map(|(name, text)| object(name, text).expect("it compiles"));
    let library = archive("libboth.a", &objects.each_ref().map(PathBuf::as_path)).expect("it is archived");
    let native = std::env::temp_dir().join(format!("uruk-weak-{}", std::process::id()));
    let main = object("m.c", main).expect("it compiles");
    for linker in ["bfd", "lld"] {
        let mut link = Command::new("clang-22");
        link.arg(format!("-fuse-ld={linker}")).arg("-o").arg(&native).args([&main, &library]);
        assert!(link.status().is_ok_and(|linked| linked.success()), "{linker}");
        let natively = run(&mut Command::new(&native), &Input::default(), Duration::from_secs(60));
        std::fs::remove_file(&native).expect("it was made above");
        assert_eq!(natively.expect("it starts").stdout, b"2 12 2 3 1\n", "{linker}");
    }
}

/// Code that is not position-independent reads a variable of a library below 2 GiB, where it can stand before the start alone.
#[test]
fn what_dlsym_asks_for_is_compiled_then() {
    let main = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        int main(void) {
          puts("main");
          int (*late)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "late");
          return late ? late(20) : 1;
        }
    "#;
    let late = r#"
        #include <stdio.h>
        int helper(int);
        int late(int x) { return fprintf(stdout, "late %d\n", helper(x)) - 8; }
    "#;
    let helper = "int helper(int x) { return 2 * x + 2; }";
    let fixed: Make = |source, text| {
        let name = Path::new(source).with_extension("o");
        compile(source, text, &["-O1", "-fno-pic"], &name.to_string_lossy()).expect("it compiles")
    };
    for make in FORMS.into_iter().chain([fixed]) {
        let files = [("m.c", main), ("late.c", late), ("helper.c", helper), ("idle.c", DEEPER)];
        let files = files.map(|(name, text)| make(name, text));
        assert_runs(&files.each_ref().map(PathBuf::as_path), "main\nlate 42\n", 3);
    }
}
