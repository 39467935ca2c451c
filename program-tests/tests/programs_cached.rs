//! The cache of the command: what a second start finds, what `uruk cache` says of it, and what happens where it cannot be used.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use uruk_tests::forms::Form;
use uruk_tests::inputs::bitcode;
use uruk_tests::matrix::{Compiles, Variant};
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::program::{Program, names_in};
use uruk_tests::uruk::uruk;

/// A directory of this test, gone at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("uruk-cached-{}-{test}", std::process::id()));
        fs::create_dir(&path).expect("there is room for a directory");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn finish(command: &mut Command) -> Outcome {
    run(command, &Input::default(), Duration::from_secs(120)).expect("the command can be started")
}

/// `uruk cache VERB --cache DIR`: its output and how it ended.
fn cache(directory: &Path, words: &[&str]) -> (String, String, End) {
    let mut command = Command::new(uruk());
    command.arg("cache").args(words).arg("--cache").arg(directory).env_remove("URUK_CACHE");
    let outcome = finish(&mut command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&outcome.stdout), text(&outcome.stderr), outcome.end)
}

const PROGRAM: &str = r#"
    #include <stdio.h>
    #include <string.h>
    int main(int argc, char **argv) {
      char line[4096];
      FILE *maps = fopen("/proc/self/maps", "r");
      while (fgets(line, sizeof line, maps)) if (strstr(line, "libLLVM")) return puts("with LLVM") < 0;
      return puts("without LLVM") < 0;
    }
"#;

/// `uruk run --cache DIR` with these words behind it.
fn start(directory: &Path, words: &[&OsStr]) -> Command {
    let mut command = Command::new(uruk());
    command.arg("run").arg("--cache").arg(directory).args(words).env_remove("URUK_CACHE");
    command
}

fn texts(outcome: &Outcome) -> [String; 2] {
    [&outcome.stdout, &outcome.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

#[test]
fn a_second_start_finds_everything_and_needs_no_llvm() {
    let scratch = Scratch::new("second");
    let directory = scratch.path("cache");
    let file = bitcode("cached.c", PROGRAM).expect("it compiles");
    let run = |words: &[&str]| {
        let words: Vec<&OsStr> = words.iter().map(OsStr::new).chain([file.as_os_str()]).collect();
        texts(&finish(&mut start(&directory, &words)))
    };
    let [out, error] = run(&["--stats"]);
    assert_eq!(out, "with LLVM\n", "{error}");
    let miss = format!("cache hits: 0/1 (0 %)\n  {}: no object: not stored\n", file.display());
    assert!(error.contains(&miss), "{error}");
    let [out, error] = run(&["--stats"]);
    assert_eq!(out, "without LLVM\n", "{error}");
    assert!(error.contains("cache hits: 1/1 (100 %)\nstage "), "{error}");
    assert_eq!(run(&["--cache-mode=require-hit"]), ["without LLVM\n", ""]);
    // Another level is another object, and nothing is compiled or stored where that is not wanted.
    let [out, error] = run(&["--cache-mode=require-hit", "-O1"]);
    assert_eq!(out, "");
    let what = format!("{}: the cache has no object of it: not stored", file.display());
    assert!(error.contains(&what) && error.contains("--cache-mode read-write"), "{error}");
    assert!(!error.contains("CacheMode"), "the command has options: {error}");
    assert_eq!(run(&["--cache-mode=read-only", "-O1"])[0], "with LLVM\n");
    let (out, _, end) = cache(&directory, &["stats"]);
    assert_eq!(end, End::Exited(0));
    assert!(out.starts_with(&format!("{}: 2 entries, ", directory.display())), "{out}");
    let (out, _, end) = cache(&directory, &["verify"]);
    assert_eq!(end, End::Exited(0));
    assert!(out.starts_with(&format!("{}: 2 entries as written, ", directory.display())), "{out}");
    let (out, _, end) = cache(&directory, &["gc", "--max-size", "0"]);
    assert_eq!(end, End::Exited(0));
    assert!(out.contains("removed 1 generation, ") && out.contains("left 0 entries"), "{out}");
    assert_eq!(run(&[])[0], "with LLVM\n");
    assert_eq!(cache(&directory, &["clear"]).2, End::Exited(0));
    assert_eq!(run(&[])[0], "with LLVM\n");
}

#[test]
fn a_mode_without_a_cache_is_refused() {
    let mut command = Command::new(uruk());
    command.args(["run", "--cache-mode", "require-hit", "a.bc"]).env_remove("URUK_CACHE");
    let outcome = finish(&mut command);
    assert_eq!(outcome.end, End::Exited(2), "wrong usage");
    assert!(texts(&outcome)[1].contains("none is named: --cache DIR"), "{:?}", texts(&outcome));
}

#[test]
fn a_damaged_entry_is_found_and_is_compiled_again() {
    let scratch = Scratch::new("damaged");
    let directory = scratch.path("cache");
    let file = bitcode("cached.c", PROGRAM).expect("it compiles");
    let run = || texts(&finish(&mut start(&directory, &["--stats".as_ref(), file.as_os_str()])));
    assert_eq!(run()[0], "with LLVM\n");
    for entry in fs::read_dir(&directory).expect("it is ours") {
        let path = entry.expect("it is ours").path();
        if path.extension() == Some("data".as_ref()) {
            let mut bytes = fs::read(&path).expect("it is ours");
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(&path, bytes).expect("it is ours");
        }
    }
    let (out, _, end) = cache(&directory, &["verify"]);
    assert_eq!(end, End::Exited(1), "{out}");
    assert!(out.contains("damaged: entry at byte ") && out.contains("its checksum is wrong"), "{out}");
    let [out, error] = run();
    assert_eq!(out, "with LLVM\n");
    assert!(error.contains("no object: the stored entry is damaged: its checksum is wrong"), "{error}");
    assert_eq!(run()[0], "without LLVM\n");
}

#[test]
fn a_full_disk_is_a_line_under_v_and_no_end() {
    let file = bitcode("cached.c", PROGRAM).expect("it compiles");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c"]);
    let script = "mount -t tmpfs -o size=4k,mode=700 none \"$1\" && shift && exec \"$@\"";
    let scratch = Scratch::new("full");
    let directory = scratch.path("cache");
    fs::create_dir(&directory).expect("a directory of ours");
    command.args([script, "sh"]).arg(&directory);
    if finish(
        Command::new("unshare")
            .args(["--mount", "--map-root-user", "sh", "-c", script, "sh"])
            .arg(&directory)
            .arg("true"),
    )
    .end != End::Exited(0)
    {
        // Nothing is left to say without a reader.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: a small disk needs `unshare --mount --map-root-user`, which is refused here"
        );
        return;
    }
    command.arg(uruk()).args(["run", "-v", "--cache"]).arg(&directory).arg(&file);
    let outcome = finish(&mut command);
    let [out, error] = texts(&outcome);
    assert_eq!((&*out, outcome.end), ("with LLVM\n", End::Exited(0)), "{error}");
    assert!(error.contains("could not be stored in ") && error.contains("No space left"), "{error}");
}

/// Commands that are killed after each line that they say of themselves: before, while and after they store what they compile.
fn kill_starts(rounds: usize) {
    let scratch = Scratch::new(&format!("kills-{rounds}"));
    let directory = scratch.path("cache");
    let file = bitcode("cached.c", PROGRAM).expect("it compiles");
    for round in 0..rounds {
        let level = format!("-O{}", round % 4);
        let mut starts = [0, 1].map(|_| {
            let mut command = start(&directory, &["-v".as_ref(), level.as_ref(), file.as_os_str()]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command can be started")
        });
        for (number, child) in starts.iter_mut().enumerate() {
            let lines = BufReader::new(child.stderr.take().expect("it is a pipe")).lines();
            // The end of its output is as good a moment as another.
            let _ = lines.take((round / 4 + number) % 9).last();
            child.kill().expect("it is a child of this process");
        }
        starts.iter_mut().for_each(|child| drop(child.wait()));
    }
    let (out, error, end) = cache(&directory, &["verify"]);
    assert_eq!(end, End::Exited(0), "{out}{error}");
    let run = || texts(&finish(&mut start(&directory, &[file.as_os_str()])));
    run();
    assert_eq!(run(), ["without LLVM\n", ""]);
}

#[test]
fn killed_commands_leave_a_cache_that_is_as_written() {
    kill_starts(16);
}

#[test]
#[ignore = "takes minutes"]
fn stress_five_hundred_rounds_of_two_killed_commands() {
    kill_starts(500);
}

/// All programs of a language, one after another in one cache.
fn start_all_twice(language: &str, compiles: Compiles) {
    let scratch = Scratch::new(&format!("{language}-{compiles:?}"));
    let variant = Variant { form: Form::BitcodeO2, level: 2, jobs: 2, compiles };
    for name in names_in(language).expect("the programs are there") {
        let program = Program::load(&name).expect("the program is there");
        if program.variants().contains(&Variant { jobs: 1, compiles: Compiles::Whole, ..variant }) {
            program.check_cached(variant, &scratch.path("cache"));
        }
    }
    let (out, error, end) = cache(&scratch.path("cache"), &["verify"]);
    assert_eq!(end, End::Exited(0), "{out}{error}");
}

/// A program may close every descriptor that it did not open, and have files of its own under these numbers, while functions are compiled.
#[test]
fn what_a_program_opens_in_place_of_the_caches_files_is_left_alone() {
    let text = r#"
        #include <fcntl.h>
        #include <stdio.h>
        #include <unistd.h>
        static int later(int x) { return x * 3; }
        int main(int argc, char **argv) {
          for (int fd = 3; argc > 1 && fd < 1024; fd++) close(fd);
          for (int fd = 3; argc > 1 && fd < 64; fd++)
            if (open(argv[1], O_CREAT | O_RDWR, 0600) != fd) return 2;
          int (*volatile call)(int) = later;
          return printf("%d\n", call(14)) < 0;
        }
    "#;
    let scratch = Scratch::new("descriptors");
    let (directory, own) = (scratch.path("cache"), scratch.path("own"));
    let file = bitcode("closes_all.c", text).expect("clang is there");
    let options = ["--lazy".as_ref(), "--stats".as_ref(), file.as_os_str()];
    let program = |arguments: &[&OsStr]| finish(&mut start(&directory, &[&options[..], arguments].concat()));
    let first = program(&["--".as_ref(), own.as_os_str()]);
    assert_eq!(texts(&first)[0], "42\n", "{:?}", texts(&first));
    assert_eq!(fs::metadata(&own).expect("the program has made it").len(), 0, "it wrote nothing there");
    let (out, error, end) = cache(&directory, &["verify"]);
    assert_eq!(end, End::Exited(0), "{out}{error}");
    let second = texts(&program(&[]));
    assert!(second[0] == "42\n" && second[1].contains("parts and functions: 2/2 (100 %)"), "{second:?}");
}

#[test]
fn all_programs_in_c_start_from_what_was_stored() {
    start_all_twice("c", Compiles::Whole);
}

#[test]
fn all_programs_in_cxx_start_from_what_was_stored() {
    start_all_twice("cxx", Compiles::Whole);
}

/// Some end in the middle, or in a child, and have stored nothing of what was compiled last.
#[test]
fn all_programs_in_cxx_start_from_functions_that_were_stored() {
    start_all_twice("cxx", Compiles::Lazy);
}

#[test]
fn a_cache_that_is_not_there_is_said_to_be_missing_and_not_made() {
    let scratch = Scratch::new("missing");
    let directory = scratch.path("cache");
    for verb in ["stats", "verify", "gc", "clear"] {
        let (out, error, end) = cache(&directory, &[verb]);
        assert_eq!((&*out, end), ("", End::Exited(1)), "{error}");
        assert!(error.contains("there is no cache in") && error.contains("uruk run --cache"), "{error}");
        assert!(!directory.exists());
    }
    let nameless = finish(Command::new(uruk()).args(["cache", "stats"]).env_remove("URUK_CACHE"));
    assert_eq!(nameless.end, End::Exited(1));
    assert!(String::from_utf8_lossy(&nameless.stderr).contains("URUK_CACHE=DIR"));
}

/// The program did not run.
#[test]
fn a_program_runs_without_a_cache_that_cannot_be_used() {
    let scratch = Scratch::new("unusable");
    let place = scratch.path("cache");
    fs::write(&place, "a file").expect("temporary file");
    let file = bitcode("cached.c", PROGRAM).expect("it compiles");
    let told = |words: &[&str]| {
        let words: Vec<&OsStr> = words.iter().map(OsStr::new).chain([file.as_os_str()]).collect();
        finish(&mut start(&place, &words))
    };
    let outcome = told(&[]);
    let [out, error] = texts(&outcome);
    assert_eq!(out, "with LLVM\n", "{error}");
    let expected = format!(
        "warning: the program runs without a cache\n  because: the cache directory {}",
        place.display()
    );
    assert!(error.starts_with(&expected) && error.contains("Not a directory"), "{error}");
    let required = told(&["--cache-mode=require-hit"]);
    assert_eq!(required.end, End::Exited(1));
    assert!(texts(&required)[1].starts_with("error: the cache directory"), "{:?}", texts(&required));
}

#[test]
fn wrong_limits_are_wrong_usage() {
    let scratch = Scratch::new("limits");
    for (option, value) in [("--max-size", "1.5G"), ("--max-age", "30")] {
        let (_, error, end) = cache(&scratch.path("cache"), &["gc", option, value]);
        assert_eq!(end, End::Exited(2), "{error}");
        assert!(error.contains(&format!("`{value}` is no")) && error.contains("such as"), "{error}");
    }
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let scratch = Scratch::new("open");
    let directory = scratch.path("cache");
    fs::create_dir(&directory).expect("a directory of ours");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("a directory of ours");
    let (_, error, end) = cache(&directory, &["stats"]);
    assert_eq!(end, End::Exited(1));
    assert!(
        error.contains("others may write to the cache directory") && error.contains("chmod 700"),
        "{error}"
    );
}
