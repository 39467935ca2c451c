//! Tests that need a process of their own: they count on what the whole process has registered, mapped or exported.

use std::process::Command;

/// Set where this process runs one test alone.
const ALONE: &str = "URUK_TEST_ALONE";

/// Runs the test `name` of this binary in a new process, unless this process is that one already. Returns whether it has. `limits` are
/// commands of a shell that come before it.
///
/// # Panics
/// The test fails there. Its output is in the message.
pub(crate) fn ran_alone(name: &str, limits: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return false;
    }
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{limits} exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().expect("this test"));
    let arguments = ["--exact", name, "--include-ignored", "--test-threads=1", "--nocapture"];
    let output = command.args(arguments).env(ALONE, "").output();
    let output = output.expect("this test starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}{errors}", output.status);
    true
}

/// At the head of a test: the rest of its body runs in a process of its own, under limits perhaps.
macro_rules! alone {
    () => {
        alone!("");
    };
    ($limits:literal) => {
        fn here() {}
        let path = std::any::type_name_of_val(&here);
        let name = path.strip_suffix("::here").and_then(|path| path.split_once("::")).expect("in a crate").1;
        if $crate::alone::ran_alone(name, $limits) {
            return;
        }
    };
}
