//! Programs whose compilers bring a runtime that asks a lot of the linker: clang's counters for profiles, and D. A compiler that is not
//! installed is passed over with a word on stderr.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::compile;
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

const MODES: [&[&str]; 4] = [&[], &["--lazy"], &["--lazy=module"], &["--tiered"]];

fn outcome(command: &mut Command) -> Outcome {
    outcome_with(command, &[])
}

fn outcome_with(command: &mut Command, environment: &[(&str, &str)]) -> Outcome {
    let env = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    run(command, &Input { env, ..Input::default() }, Duration::from_secs(60)).expect("it can be started")
}

#[expect(clippy::print_stderr, reason = "who reads the test's output learns what was not tested")]
fn passed_over(what: &str) {
    eprintln!("passed over: {what} is not installed");
}

/// The archive that clang links for profiles.
fn profile_runtime() -> Option<PathBuf> {
    let output = Command::new("clang-22").arg("-print-resource-dir").output().ok()?;
    let directory = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
    Some(directory.join("lib/linux/libclang_rt.profile-x86_64.a")).filter(|archive| archive.is_file())
}

const COUNTED: &str = r#"
    #include <stdio.h>
    static __attribute__((noinline)) int often(int x) { return x + 1; }
    __attribute__((noinline)) int never(int x) { return x + 2; }
    int main(int argc, char **argv) { int x = argc > 5 ? never(argc) : 0; while (x < 7) x = often(x); printf("%d\n", x); return 0; }
"#;

/// The counts of `often`, `never` and `main` in the profile that a run of `arguments` writes.
fn counts(arguments: &[&OsStr]) -> Vec<String> {
    let profile = std::env::temp_dir().join(format!("uruk-profile-{}", std::process::id()));
    let [raw, merged] = ["raw", "data"].map(|extension| profile.with_extension(extension));
    let ran = outcome_with(
        Command::new(uruk()).arg("run").args(arguments),
        &[("LLVM_PROFILE_FILE", &raw.to_string_lossy())],
    );
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((&*ran.stdout, ran.end), (&b"7\n"[..], End::Exited(0)), "{}\n{stderr}", ran.command);
    let tool = |arguments: &[&OsStr]| {
        let output =
            Command::new("llvm-profdata-22").args(arguments).output().expect("LLVM's tools are there");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}\n{text}", ran.command);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    tool(&["merge".as_ref(), "-o".as_ref(), merged.as_ref(), raw.as_ref()]);
    let shown = tool(&["show".as_ref(), "--all-functions".as_ref(), "--counts".as_ref(), merged.as_ref()]);
    [raw, merged].iter().for_each(|file| std::fs::remove_file(file).expect("it was written"));
    let mut counts: Vec<String> = Vec::new();
    let mut name = String::new();
    for line in shown.lines().map(str::trim) {
        if let Some(function) = line.strip_suffix(':').filter(|_| line != "Counters:") {
            name = function.rsplit([':', ';']).next().unwrap_or_default().to_owned();
        } else if let Some(count) = line.strip_prefix("Function count: ") {
            counts.push(format!("{name} {count}"));
        }
    }
    counts.sort();
    counts
}

/// Nothing refers to the runtime that writes the profile: compilers have the linker ask for it. None was written, without a word.
#[test]
fn a_program_that_counts_writes_its_profile() {
    let Some(runtime) = profile_runtime() else { return passed_over("libclang-rt-22-dev") };
    let flags = ["-O1", "-fprofile-instr-generate"];
    let object = compile("counted.c", COUNTED, &flags, "counted.o").expect("it compiles");
    let bitcode = compile("counted.c", COUNTED, &[&flags[..], &["-emit-llvm"]].concat(), "counted.bc")
        .expect("it compiles");
    for file in [&object, &bitcode] {
        for mode in MODES {
            let mut arguments: Vec<&OsStr> = mode.iter().map(OsStr::new).collect();
            arguments.push(file.as_ref());
            assert_eq!(counts(&arguments), ["main 1", "never 0", "often 7"], "{arguments:?}");
            arguments.push(runtime.as_ref());
            assert_eq!(counts(&arguments), ["main 1", "never 0", "often 7"], "{arguments:?}");
        }
        let arguments = ["--executor".as_ref(), file.as_os_str()];
        assert_eq!(counts(&arguments), ["main 1", "never 0", "often 7"], "{arguments:?}");
        for form in [&[][..], &["--package"]] {
            let image = std::env::temp_dir().join(format!("uruk-counted-{}.uim", std::process::id()));
            let built = outcome(
                Command::new(uruk()).args(["image", "build"]).args(form).arg("-o").arg(&image).arg(file),
            );
            assert_eq!(built.end, End::Exited(0), "{}", String::from_utf8_lossy(&built.stderr));
            assert_eq!(counts(&[image.as_ref()]), ["main 1", "never 0", "often 7"], "{form:?} of {file:?}");
            std::fs::remove_file(&image).expect("it was built");
        }
    }
}

#[test]
fn a_program_that_counts_says_what_is_missing() {
    let flags = ["-O1", "-fprofile-instr-generate"];
    let object = compile("counted.c", COUNTED, &flags, "counted.o").expect("it compiles");
    let ran = outcome_with(Command::new(uruk()).arg("run").arg(object), &[("PATH", "/nowhere")]);
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((&*ran.stdout, ran.end), (&b"7\n"[..], End::Exited(0)), "{stderr}");
    assert!(stderr.contains("__llvm_profile_runtime") && stderr.contains("libclang-rt-22-dev"), "{stderr}");
}

/// D's runtime looks for the object that a program's address is in, and gave up.
#[test]
fn a_program_in_d_runs() {
    let libraries = ["libgdruntime.so.3", "libgphobos.so.3"]
        .map(|name| Path::new("/usr/lib/x86_64-linux-gnu").join(name));
    let text = r#"
        import core.stdc.stdio; import core.memory;
        class Node { Node next; int value; this(Node next, int value) { this.next = next; this.value = value; } }
        Node kept; int[string] counts;
        int main() {
          foreach (i; 0 .. 10_000) { auto lost = new Node(null, i); if (i % 1000 == 0) kept = new Node(kept, i); }
          counts["x"] = 4;
          GC.collect();
          int sum; for (auto node = kept; node !is null; node = node.next) sum += node.value;
          try { throw new Exception("thrown"); } catch (Exception error) { printf("%.*s %d %d\n", cast(int) error.msg.length, error.msg.ptr, sum, counts["x"]); }
          return 6;
        }
    "#;
    let directory = std::env::temp_dir().join(format!("uruk-d-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
    let (source, object) = (directory.join("main.d"), directory.join("main.o"));
    std::fs::write(&source, text).expect("the temporary directory is writable");
    let compiled = Command::new("gdc-12").args(["-O1", "-c", "-o"]).args([&object, &source]).status();
    let is_there =
        compiled.is_ok_and(|status| status.success()) && libraries.iter().all(|library| library.is_file());
    if is_there {
        for mode in MODES {
            let loaded = libraries.iter().flat_map(|library| [OsStr::new("--load"), library.as_os_str()]);
            let ran = outcome(Command::new(uruk()).arg("run").args(mode).args(loaded).arg(&object));
            let stderr = String::from_utf8_lossy(&ran.stderr);
            assert_eq!(
                (&*ran.stdout, ran.end),
                (&b"thrown 45000 4\n"[..], End::Exited(6)),
                "{}\n{stderr}",
                ran.command
            );
        }
    } else {
        passed_over("gdc-12");
    }
    std::fs::remove_dir_all(&directory).expect("it was made above");
}

/// `-u` brings a member of an archive that nothing refers to; what nothing defines is passed over, as linkers do.
#[test]
fn a_symbol_is_linked_because_it_is_asked_for() {
    let member = r#"
        int puts(const char *);
        int wanted; __attribute__((constructor)) static void begin(void) { puts("the member is here"); }
    "#;
    let member = compile("member.c", member, &["-O1"], "member.o").expect("it compiles");
    let archive = uruk_tests::inputs::archive("libmember.a", &[&member]).expect("it is archived");
    let program = "int puts(const char *); int main(void) { puts(\"main\"); return 0; }";
    let program = compile("asks.c", program, &["-O1", "-emit-llvm"], "asks.bc").expect("it compiles");
    for mode in MODES {
        for (options, expected) in [
            (&[][..], "main\n"),
            (&["-u", "wanted"], "the member is here\nmain\n"),
            (&["--undefined", "wanted", "-u", "nowhere"], "the member is here\nmain\n"),
        ] {
            let ran =
                outcome(Command::new(uruk()).arg("run").args(mode).args(options).args([&program, &archive]));
            let (stdout, stderr) =
                (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
            assert_eq!((&*stdout, ran.end), (expected, End::Exited(0)), "{}\n{stderr}", ran.command);
        }
    }
}
