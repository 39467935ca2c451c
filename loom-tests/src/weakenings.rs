//! Weakenings: each step that a model's head says it cannot do without is left out, and the model must fail.
//!
//! A step is left out where it stands, by `uruk_core::sync::weakened("model::what_is_left_out")`, in runs of a model
//! whose environment names it; nothing is built for it. The table *Fails if* of a model has a row for each:
//!
//! ```text
//! //! | `model::what_is_left_out`: what that means | where | `the_test_that_fails` |
//! ```
//!
//! **Architecture Invariant:** a weakening is caught by the test that promises it, by a panic of that test: neither a
//! build that fails, nor a crash, nor a limit of loom's counts.

use std::io::{Error, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long a weakened model may explore before it counts as blind.
const EXPLORATION_MAX: Duration = Duration::from_secs(180);

/// How long it may take to end after it has panicked. The code that unwinds then finds every lock of the model gone, and
/// sometimes does not end.
const UNWINDING_MAX: Duration = Duration::from_secs(5);

/// The text by which a panic is recognised. No model panics on purpose.
const PANICKED: &str = "panicked at";

/// Panics of loom that say only that a model is too large, or not deterministic.
const LIMITS: [&str; 3] = ["exceeded maximum number of branches", "internal error", "not match the expected"];

/// Makes the model file where it stands test its own table.
#[macro_export]
macro_rules! catches_its_weakenings {
    () => {
        #[test]
        fn every_weakening_is_caught() {
            let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../", file!());
            $crate::weakenings::demand_caught(module_path!(), file);
        }
    };
}

/// A row of a table *Fails if*.
struct Weakening<'a> {
    step: &'a str,
    test: &'a str,
}

/// Leaves out each step that the model in `file` names, and demands that the test named beside it fails. `module` is the model's path,
/// which begins with its crate.
///
/// Runs the calling test binary again for each step, so that each run leaves out one step alone.
///
/// # Panics
/// With each step whose absence no test notices, or if the file cannot be read.
pub fn demand_caught(module: &str, file: &str) {
    if std::env::var_os("URUK_WEAKEN").is_some() {
        // A developer runs the whole file to look at one weakening.
        return;
    }
    let model = module.rsplit("::").next().expect("a path has a last part");
    let tests = module.split_once("::").map(|(_, tests)| format!("{tests}::")).unwrap_or_default();
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let weakenings: Vec<Weakening<'_>> = rows(model, &text).collect();
    assert!(!weakenings.is_empty(), "no row of a table begins with a step of {model}");
    let missed: Vec<String> =
        weakenings.iter().filter_map(|weakening| run(weakening, &tests).err()).collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// The rows of the tables whose first cell begins with a step of `model`.
fn rows<'a>(model: &str, text: &'a str) -> impl Iterator<Item = Weakening<'a>> {
    let prefix = format!("//! | `{model}::");
    text.lines().filter(move |line| line.starts_with(&prefix)).map(|line| {
        let cells: Vec<&str> = line.trim_end_matches(['|', ' ']).split('|').collect();
        let quoted = |cell: &'a str| cell.split('`').nth(1).unwrap_or_else(|| panic!("no name in: {line}"));
        Weakening { step: quoted(cells[1]), test: quoted(cells[cells.len() - 1]) }
    })
}

/// Runs one test, whose name begins with `module`, without one step. An error says why that shows nothing.
fn run(Weakening { step, test }: &Weakening<'_>, module: &str) -> Result<(), String> {
    let test = &*format!("{module}{test}");
    let binary = std::env::current_exe().expect("the running test");
    // Not captured: a model that finds a lost wake-up may panic inside its panic, and captured output is lost then.
    let child = Command::new(binary)
        .args(["--exact", test, "--nocapture"])
        .env("URUK_WEAKEN", step)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the running test can be run again");
    let Ended { status, listed, told } = end(child).expect("what was started can be waited for");
    let why = if !listed.contains("running 1 test\n") {
        "there is no such test"
    } else if status.success() {
        "it does not notice"
    } else if let Some(limit) = LIMITS.iter().find(|limit| told.contains(**limit)) {
        limit
    } else if !told.contains(&format!("thread '{test}'")) || !told.contains(PANICKED) {
        "it ended without a panic of its own, or did not end"
    } else {
        return Ok(());
    };
    Err(format!("{test} without {step}: {why} ({status})\n{listed}{told}"))
}

/// The outcome of a process.
struct Ended {
    status: ExitStatus,
    listed: String,
    told: String,
}

/// Reads what a process says until it ends, or has had its time.
fn end(mut child: Child) -> Result<Ended, Error> {
    let (say, hear) = mpsc::channel();
    let outputs: [Box<dyn Read + Send>; 2] = [
        Box::new(child.stdout.take().expect("it was asked for")),
        Box::new(child.stderr.take().expect("it was asked for")),
    ];
    let readers = outputs.map(|output| {
        let say = say.clone();
        thread::spawn(move || read(output, &say))
    });
    let (mut until, mut open) = (Instant::now() + EXPLORATION_MAX, readers.len());
    while open > 0 {
        match hear.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Said::Panicked) => until = until.min(Instant::now() + UNWINDING_MAX),
            Ok(Said::All) => open -= 1,
            Err(_) => {
                child.kill()?;
                break;
            }
        }
    }
    let [listed, told] = readers.map(|reader| reader.join().expect("reading does not panic"));
    Ok(Ended { status: child.wait()?, listed: listed?, told: told? })
}

/// The news of an output.
enum Said {
    Panicked,
    /// There is no more of it.
    All,
}

/// Reads all of an output, and says when it tells of a panic. The receiver is gone if the other output has not ended in time.
fn read(mut output: impl Read, say: &mpsc::Sender<Said>) -> Result<String, Error> {
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    let read = loop {
        match output.read(&mut piece) {
            Ok(0) => break Ok(()),
            Ok(count) => text.extend_from_slice(&piece[..count]),
            Err(error) => break Err(error),
        }
        if text.windows(PANICKED.len()).any(|window| window == PANICKED.as_bytes()) {
            let _ = say.send(Said::Panicked);
        }
    };
    let _ = say.send(Said::All);
    read.map(|()| String::from_utf8_lossy(&text).into_owned())
}
