//! The cache of the command: what a second start finds, what `uruk cache` says of it, and what happens where it cannot be used.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uruk_tests::process::{End, Input, Outcome, run};
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
