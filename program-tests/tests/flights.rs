//! The flight recorder of `uruk run`: it is always on, a kill leaves its file behind, and a good end does not.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::inputs::bitcode;
use uruk_tests::process::{End, Input, Outcome, run};
use uruk_tests::uruk::uruk;

/// Prints its number, and ends as its argument says.
const PROGRAM: &str = "
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        printf(\"%d\\n\", getpid());
        fflush(stdout);
        if (!strcmp(argv[1], \"kill\")) raise(SIGKILL);
        if (!strcmp(argv[1], \"term\")) raise(SIGTERM);
        if (!strcmp(argv[1], \"fault\")) *(volatile int *)8 = 1;
        if (!strcmp(argv[1], \"fork\")) {
            if (fork() == 0) exit(0);
            wait(NULL);
            raise(SIGKILL);
        }
        return atoi(argv[1]);
    }";

/// A directory for the files of processes, which goes at the end.
struct Runtime(PathBuf);

impl Runtime {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("uruk-flights-{}-{name}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&path).expect("it is a new directory");
        Self(path)
    }

    fn command(&self, command: &mut Command) -> Outcome {
        let env = vec![("XDG_RUNTIME_DIR".to_owned(), self.0.to_str().expect("it is text").to_owned())];
        let input = Input { env, ..Input::default() };
        run(command, &input, Duration::from_secs(600)).expect("it can be started")
    }

    /// Runs the program, which ends in that way.
    fn program(&self, options: &[&str], way: &str) -> Outcome {
        let file = bitcode("flies.c", PROGRAM).expect("it compiles");
        self.command(Command::new(uruk()).args(["run", "-O0"]).args(options).arg(file).args(["--", way]))
    }

    fn uruk(&self, verb: &[&str], recording: &str) -> String {
        let outcome = self.command(Command::new(uruk()).args(verb).arg(recording));
        let errors = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!((outcome.end, errors.as_ref()), (End::Exited(0), ""), "{}", outcome.command);
        String::from_utf8(outcome.stdout).expect("it prints text")
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join("uruk")).into_iter().flatten();
        entries.map(|entry| entry.expect("it can be read").path()).collect()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The number that the program printed.
fn process(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stdout).trim().to_owned()
}

#[test]
fn a_killed_program_left_its_last_notes_under_its_number() {
    let runtime = Runtime::new("killed");
    let outcome = runtime.program(&[], "kill");
    assert_eq!(outcome.end, End::Killed(9));
    let (process, file) = (process(&outcome), &runtime.files()[0]);
    assert_eq!(file.file_name().unwrap().to_str().unwrap(), format!("{process}.uflight"));
    let by_process = runtime.uruk(&["trace", "dump"], &process);
    for said in ["Completed", "flies.bc", "ir.codegen"] {
        assert!(by_process.contains(said), "{said}: {by_process}");
    }
    for other in [file.to_str().unwrap(), "last"] {
        assert_eq!(runtime.uruk(&["trace", "dump"], other), by_process, "{other}");
    }
    assert!(runtime.uruk(&["trace", "units"], &process).contains("flies.bc: "));
    assert!(runtime.uruk(&["trace", "path"], &process).starts_with("the lookup of `"));
    assert!(runtime.uruk(&["top", "--once"], &process).contains(&format!("process {process}")));
    let mode = fs::metadata(file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Another process compiles, for the one that was the command.
#[test]
fn the_notes_of_a_host_are_found_by_the_number_of_its_program() {
    let runtime = Runtime::new("above");
    let outcome = runtime.program(&["--executor"], "kill");
    assert_eq!(outcome.end, End::Killed(9));
    let by_process = runtime.uruk(&["trace", "dump"], &process(&outcome));
    assert!(by_process.contains("ir.codegen"), "{by_process}");
}

/// By a fault, and by a signal that asks for the end.
#[test]
fn the_report_of_a_signal_says_where_to_read_on() {
    let runtime = Runtime::new("faults");
    for (option, way, signal) in
        [("--backtrace", "fault", 11), ("--stats", "fault", 11), ("--stats", "term", 15)]
    {
        let outcome = runtime.program(&[option], way);
        assert_eq!(outcome.end, End::Killed(signal));
        let errors = String::from_utf8_lossy(&outcome.stderr).into_owned();
        let process = process(&outcome);
        let (_, file) = errors
            .trim_end()
            .rsplit_once("; to see what happened until then: uruk trace dump ")
            .expect(&errors);
        assert!(Path::new(file).is_absolute() && file.ends_with(&format!("{process}.uflight")), "{errors}");
        assert!(runtime.uruk(&["trace", "dump"], file).contains("Completed"), "{option} {way}");
        assert_eq!(runtime.program(&[option], "0").end, End::Exited(0));
        assert_eq!(runtime.files(), [PathBuf::from(file)], "a good end leaves no file");
        fs::remove_file(file).unwrap();
    }
    // It names no file that is not there.
    let errors = runtime.program(&["--backtrace", "--no-flight-recorder"], "fault").stderr;
    let errors = String::from_utf8_lossy(&errors);
    assert!(errors.contains("ended by signal 11") && !errors.contains("uruk trace"), "{errors}");
}

#[test]
fn a_program_that_ends_by_exit_leaves_no_file() {
    let runtime = Runtime::new("exits");
    for way in ["0", "3"] {
        assert_eq!(runtime.program(&[], way).end, End::Exited(way.parse().unwrap()));
        assert_eq!(runtime.files(), [] as [PathBuf; 0], "{way}");
    }
    // One that cannot be made to run leaves none either.
    let refused = runtime.program(&["--entry", "nowhere"], "0");
    assert_eq!((refused.end, runtime.files().len()), (End::Exited(1), 0));
}

/// A child runs the same exit handlers.
#[test]
fn the_end_of_a_forked_child_removes_nothing() {
    let runtime = Runtime::new("forks");
    let outcome = runtime.program(&[], "fork");
    assert_eq!((outcome.end, runtime.files().len()), (End::Killed(9), 1));
}

#[test]
fn a_switch_turns_it_off() {
    let runtime = Runtime::new("off");
    let outcome = runtime.program(&["--no-flight-recorder"], "kill");
    assert_eq!((outcome.end, runtime.files().len()), (End::Killed(9), 0));
    let file = bitcode("flies.c", PROGRAM).expect("it compiles");
    let mut command = Command::new("env");
    command.arg("URUK_FLIGHT_RECORDER=0").arg(Command::new(uruk()).get_program());
    let outcome = runtime.command(command.args(["run", "-O0"]).arg(file).args(["--", "kill"]));
    assert_eq!((outcome.end, runtime.files().len()), (End::Killed(9), 0));
    // Tables at the end come from memory.
    let outcome = runtime.program(&["--no-flight-recorder", "--stats=units"], "0");
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("flies.bc: "));
    let refused = runtime.command(Command::new(uruk()).args(["trace", "dump", &process(&outcome)]));
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.end == End::Exited(1) && errors.contains("has left no recording"), "{errors}");
}

/// A directory that others may have made, or can write to, is left alone: the program runs, and nothing is said.
#[test]
fn hostile_directories_get_no_file() {
    let runtime = Runtime::new("hostile");
    let directory = runtime.0.join("uruk");
    let own = |path: &Path, mode| fs::DirBuilder::new().mode(mode).create(path).expect("it is new");
    let elsewhere = runtime.0.join("elsewhere");
    own(&elsewhere, 0o700);
    let is_left_alone = |kind: &str| {
        let outcome = runtime.program(&[], "kill");
        assert_eq!((outcome.end, String::from_utf8_lossy(&outcome.stderr).as_ref()), (End::Killed(9), ""));
        assert_eq!(runtime.files(), [] as [PathBuf; 0], "{kind}");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "{kind}");
    };
    symlink(&elsewhere, &directory).expect("nothing is there");
    is_left_alone("a symbolic link");
    fs::remove_file(&directory).unwrap();
    own(&directory, 0o700);
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o750)).unwrap();
    is_left_alone("readable by the group");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(&runtime.0, fs::Permissions::from_mode(0o777)).unwrap();
    is_left_alone("others can put another in its place");
    fs::remove_dir(&directory).unwrap();
    fs::write(&directory, "a diary").unwrap();
    is_left_alone("a file");
    assert_eq!(fs::read(&directory).unwrap(), b"a diary");
}

/// The system would end it by SIGXFSZ.
#[test]
fn a_program_whose_files_are_limited_runs_without_one() {
    let runtime = Runtime::new("limited");
    let file = bitcode("flies.c", PROGRAM).expect("it compiles");
    for (option, said) in
        [("-O0", ""), ("-v", "warning: there is no flight recorder\n  because: the process may not")]
    {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 8000; exec \"$@\"", "sh"]).arg(Command::new(uruk()).get_program());
        let outcome = runtime.command(command.args(["run", option]).arg(&file).args(["--", "7"]));
        let errors = String::from_utf8_lossy(&outcome.stderr);
        assert_eq!((outcome.end, runtime.files().len()), (End::Exited(7), 0), "{errors}");
        assert!(errors.starts_with(said) && (option == "-v" || errors.is_empty()), "{errors}");
    }
}
