//! `uruk run --record` and `uruk trace`: what was compiled, on whose behalf, and what held it up; also after the program was killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use uruk_tests::inputs::bitcode;
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

const MAIN: &str = "
    #include <signal.h>
    int helper(int);
    int main(int argc, char **argv) { return argc > 1 ? raise(SIGKILL) : helper(3); }";
const HELPER: &str = "int helper(int value) { return value; }";

/// A file that goes at the end.
struct Recording(PathBuf);

impl Recording {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("uruk-recording-{}-{name}", std::process::id())))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn command(arguments: &[&str], files: &[&Path], behind: &[&str]) -> Outcome {
    let mut command = Command::new(uruk());
    command.args(arguments).args(files).args(behind);
    run(&mut command, &Input::default(), Duration::from_secs(600)).expect("it can be started")
}

fn record(to: &Recording, arguments: &[&str]) -> Outcome {
    let files = [bitcode("main.c", MAIN), bitcode("helper.c", HELPER)].map(|file| file.expect("it compiles"));
    command(&["run", "-O0", "--record"], &[&to.0, &files[0], &files[1]], arguments)
}

fn trace(arguments: &[&str], of: &Recording) -> String {
    let outcome = command(&[&["trace"], arguments].concat(), &[&of.0], &[]);
    let errors = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(errors, "", "{}", outcome.command);
    String::from_utf8(outcome.stdout).expect("it prints text")
}

#[test]
fn a_recording_says_what_held_a_program_up_that_was_killed() {
    let recording = Recording::new("killed");
    record(&recording, &["--", "die"]);
    let notes: Vec<Value> = trace(&["dump", "--format", "json"], &recording)
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is an object"))
        .collect();
    let has = |kind: &str, name: &str| {
        notes
            .iter()
            .any(|note| note["kind"] == kind && note["name"].as_str().is_some_and(|of| of.contains(name)))
    };
    for (kind, name) in [
        ("Claimed", "main.bc"),
        ("Claimed", "helper.bc"),
        ("Ready", "main"),
        ("PhaseBegun", "ir.codegen"),
        ("Bytes", "linked code"),
    ] {
        assert!(has(kind, name), "{kind} {name}: {notes:#?}");
    }
    let resident = notes.iter().filter(|note| note["kind"] == "Bytes").map(|note| note["b"].as_u64());
    assert!(resident.clone().is_sorted() && resident.max() > Some(Some(0)), "nothing is removed: {notes:#?}");
    let times: Vec<_> = notes.iter().map(|note| note["time_ns"].as_u64()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(trace(&["dump"], &recording).contains("Completed"));
    let path = trace(&["path"], &recording);
    assert!(path.starts_with("the lookup of `") && path.contains(".bc works"), "{path}");
    let units = trace(&["units"], &recording);
    assert!(
        units.contains("main.bc: ") && units.contains("helper.bc: ") && units.contains("ir.codegen"),
        "{units}"
    );
}

/// The same tables come when the program ends, without a file.
#[test]
fn statistics_by_unit_and_of_the_slowest_lookup_are_printed_at_the_end() {
    let files = [bitcode("main.c", MAIN), bitcode("helper.c", HELPER)].map(|file| file.expect("it compiles"));
    for (option, wanted) in [("--stats=units", "helper.bc: "), ("--stats=path", ".bc works")] {
        let outcome = command(&["run", "-O0", option], &[&files[0], &files[1]], &[]);
        let errors = String::from_utf8_lossy(&outcome.stderr);
        assert!(errors.contains(wanted), "{option}: {errors}");
    }
    let refused = command(&["run", "--stats=colours"], &[&files[0]], &[]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("stages, units, path"));
}

/// The object of `--stats=json`: the last line that begins as one.
fn figures(outcome: &Outcome) -> Value {
    let errors = String::from_utf8_lossy(&outcome.stderr);
    let line = errors.lines().rfind(|line| line.starts_with('{'));
    serde_json::from_str(line.unwrap_or_else(|| panic!("no object: {errors}"))).expect("it is JSON")
}

/// Programs read it: keys stay. `src/README.md` lists them.
#[test]
fn statistics_are_an_object_however_the_program_ends() {
    let files = [bitcode("main.c", MAIN), bitcode("helper.c", HELPER)].map(|file| file.expect("it compiles"));
    let stop =
        bitcode("stop.c", "int raise(int); int main(void) { return raise(15); }").expect("it compiles");
    let ends = command(&["run", "-O1", "--stats=json"], &[&files[0], &files[1]], &[]);
    let stopped = command(&["run", "-O1", "--stats=json"], &[&stop], &[]);
    assert_eq!(ends.end, End::Exited(3));
    assert_eq!(stopped.end, End::Killed(15));
    for (outcome, units) in [(&ends, 2), (&stopped, 1)] {
        let figures = figures(outcome);
        let keys: Vec<_> = figures.as_object().expect("it is an object").keys().map(String::as_str).collect();
        let known = [
            "ahead",
            "cache",
            "image",
            "lost_notes",
            "memory",
            "passes",
            "since_start_ns",
            "stages",
            "symbols",
            "tiers",
            "units",
            "whole_modules",
        ];
        assert_eq!(keys, known);
        assert_eq!(figures["units"], serde_json::json!({ "claimed": units, "emitted": units }));
        assert_eq!((&figures["symbols"]["failed"], &figures["lost_notes"]), (&0.into(), &0.into()));
        let stages = figures["stages"].as_array().expect("it is a list");
        let codegen = stages.iter().find(|stage| stage["name"] == "ir.codegen").expect("code was generated");
        assert_eq!((&codegen["count"], &codegen["is_wait"]), (&units.into(), &false.into()));
        assert!(codegen["own_ns"].as_u64() <= codegen["total_ns"].as_u64(), "{codegen}");
        let wait = stages.iter().find(|stage| stage["name"] == "session.lookup").expect("the command waited");
        assert_eq!(wait["is_wait"], true);
        let passes = figures["passes"].as_array().expect("it is a list");
        assert!(
            passes.iter().any(|pass| pass["stage"] != "" && pass["runs"].as_u64() > Some(0)),
            "{passes:?}"
        );
    }
    assert!(figures(&ends)["memory"]["peak_bytes"].as_u64() > Some(0));
    assert_eq!(figures(&stopped)["memory"], Value::Null);
}

#[test]
fn a_recording_replaces_an_older_one_and_nothing_else() {
    let recording = Recording::new("replaced");
    record(&recording, &[]);
    record(&recording, &[]);
    assert!(trace(&["units"], &recording).contains("main.bc"));
    fs::write(&recording.0, "a diary").unwrap();
    let refused = record(&recording, &[]);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(errors.contains("is no recording, so it is left as it is"), "{errors}");
    assert_eq!(fs::read(&recording.0).unwrap(), b"a diary");
    let unread = command(&["trace", "dump"], &[&recording.0], &[]);
    let errors = String::from_utf8_lossy(&unread.stderr);
    assert!(errors.contains("cannot be read as a recording"), "{errors}");
}
