//! One point of a case, and the process it runs in.

use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use uruk_core::sync::{Latch, thread};

use crate::harness::Scale;

/// How long a point may take before its process is killed.
const LIMIT: Duration = Duration::from_secs(300);

/// The inputs that points measure, and their scale.
#[derive(Clone)]
pub(crate) struct Inputs {
    pub(crate) scale: Scale,
    /// The output of the peer's generator, if it was run.
    pub(crate) data: Option<PathBuf>,
    /// Modules, if not those in `data`.
    pub(crate) modules: Option<PathBuf>,
}

impl Default for Inputs {
    fn default() -> Self {
        Self { scale: Scale::Small, data: None, modules: None }
    }
}

impl Inputs {
    /// Where the modules to compile are, if they are in files.
    #[cfg(feature = "llvm")]
    pub(crate) fn modules(&self) -> Option<PathBuf> {
        let in_data = || Some(self.data.as_ref()?.join(self.scale.pick("ir_small", "ir")));
        self.modules.clone().or_else(in_data)
    }
}

/// A case at one size.
pub(crate) struct Point {
    pub(crate) case: &'static str,
    /// Points of one group have ascending `n`. Without a name: alone. A name that begins with a colon is only a label.
    pub(crate) group: &'static str,
    /// Zero, or the number of threads, where the case does not grow.
    pub(crate) n: usize,
    /// Measures, and prints the line.
    pub(crate) run: Box<dyn Fn()>,
}

impl Point {
    pub(crate) fn new(case: &'static str, group: &'static str, n: usize, run: impl Fn() + 'static) -> Self {
        Self { case, group, n, run: Box::new(run) }
    }

    /// Whether it belongs to a group.
    pub(crate) fn grows(&self) -> bool {
        !self.group.is_empty() && !self.group.starts_with(':')
    }

    /// The text that `--case` is matched against.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}/{}", self.case, self.group, self.n)
    }

    /// The beginning of a line that says why there is no figure.
    pub(crate) fn json_head(&self) -> String {
        format!("{{\"case\":\"{}\",\"group\":\"{}\",\"n\":{}", self.case, self.group, self.n)
    }
}

/// The outcome of a point.
pub(crate) struct Outcome {
    pub(crate) printed: String,
    pub(crate) error: Option<String>,
}

impl Outcome {
    /// The median duration of the timed region, as printed.
    pub(crate) fn total_millis(&self) -> Option<f64> {
        let (_, after) = self.printed.split_once("\"total_ms\":")?;
        after.split([',', '}']).next()?.parse().ok()
    }
}

/// Runs the point of that index in a process of its own.
pub(crate) fn run_in_a_process(index: usize, inputs: &Inputs) -> Outcome {
    match start(index, inputs).and_then(finish) {
        Ok(outcome) => outcome,
        Err(error) => Outcome { printed: String::new(), error: Some(error.to_string()) },
    }
}

fn start(index: usize, inputs: &Inputs) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    for (option, path) in [("--data", &inputs.data), ("--modules", &inputs.modules)] {
        if let Some(path) = path {
            command.arg(option).arg(path);
        }
    }
    command
        .args(["--point", &index.to_string(), "--scale", inputs.scale.name()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
}

/// Reads what the process prints until it ends, or ends it.
fn finish(mut child: Child) -> io::Result<Outcome> {
    let mut output = child.stdout.take().ok_or_else(|| io::Error::other("no pipe to the process"))?;
    let ended = Latch::new();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut printed = String::new();
            let read = output.read_to_string(&mut printed);
            ended.open();
            read.map(|_| printed)
        });
        let in_time = ended.wait_timeout(LIMIT);
        if !in_time {
            child.kill()?;
        }
        let status = child.wait()?;
        let printed = reader.join().map_err(|_| io::Error::other("the reader panicked"))??;
        let error = match (in_time, status.success()) {
            (false, _) => Some(format!("killed after {} s", LIMIT.as_secs())),
            (true, false) => Some(status.to_string()),
            (true, true) => None,
        };
        Ok(Outcome { printed, error })
    })
}
