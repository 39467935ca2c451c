//! Runs one process to its end, or to its time-out, and tells what a shell would have seen.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::fd::AsFd as _;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::cache::{BuildError, command_line, io, target_directory};
use crate::patience;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// It was still running when its time was up.
    TimedOut,
}

/// The outcome of a process, as far as its parent can see.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The command, as one could type it.
    pub command: String,
    /// How it ended.
    pub end: End,
    /// Everything it wrote to standard output.
    pub stdout: Vec<u8>,
    /// Everything it wrote to standard error.
    pub stderr: Vec<u8>,
    /// From its start to its end.
    pub elapsed: Duration,
}

/// The input of a process.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Its standard input.
    pub stdin: Vec<u8>,
    /// Its environment beside the few variables every test program gets.
    pub env: Vec<(String, String)>,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Killed(signal) => write!(f, "killed by signal {signal}"),
            Self::TimedOut => write!(f, "still running when its time was up"),
        }
    }
}

/// Runs `command` in an empty directory of its own, with a small fixed environment and every signal at its default, killing it
/// and its children after `time_limit`, in which time that other work on the machine takes does not count.
///
/// Its output goes to files: a program that fills a pipe, or leaves a child behind that holds one open, cannot hang the
/// test.
///
/// # Errors
/// [`BuildError::Io`] if it cannot be started or its output not be kept.
pub fn run(command: &mut Command, input: &Input, time_limit: Duration) -> Result<Outcome, BuildError> {
    without_core_dumps();
    let scratch = Scratch::new()?;
    let path = |name: &str| scratch.0.join(name);
    fs::write(path("stdin"), &input.stdin).map_err(io(path("stdin").display()))?;
    let open = |name: &str| File::options().write(true).create(true).truncate(true).open(path(name));
    let stdout = open("stdout").map_err(io(path("stdout").display()))?;
    let stderr = open("stderr").map_err(io(path("stderr").display()))?;
    let stdin = File::open(path("stdin")).map_err(io(path("stdin").display()))?;
    let directory = path("work");
    fs::create_dir(&directory).map_err(io(directory.display()))?;
    command.current_dir(directory).process_group(0).stdin(stdin).stdout(stdout).stderr(stderr);
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LC_ALL", "C")
        .env("RUST_BACKTRACE", "0");
    with_default_signals(command);
    command.envs(input.env.iter().map(|(name, value)| (name, value)));

    let started = Instant::now();
    let child = command.spawn().map_err(io(command_line(command)))?;
    let end = wait(child, time_limit).map_err(io(command_line(command)))?;
    let elapsed = started.elapsed();
    let read = |name: &str| fs::read(path(name)).map_err(io(path(name).display()));
    Ok(Outcome {
        command: command_line(command),
        end,
        stdout: read("stdout")?,
        stderr: read("stderr")?,
        elapsed,
    })
}

/// Waits for `child`, and kills its process group when the time is up.
fn wait(mut child: Child, time_limit: Duration) -> std::io::Result<End> {
    let pid = Pid::from_child(&child);
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    // The descriptor becomes readable when the process has ended and waits to be reaped.
    let ended = patience::wait(process.as_fd(), pid, time_limit)?;
    if !ended {
        // Not reaped yet, so the process group's number is still its own.
        kill_process_group(pid, Signal::KILL)?;
        child.wait()?;
        return Ok(End::TimedOut);
    }
    Ok(end(child.wait()?))
}

fn end(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code),
        (None, signal) => End::Killed(signal.unwrap_or(0)),
    }
}

/// The parent of the tests may ignore signals, as `nohup` does, or block them. Both is inherited.
fn with_default_signals(command: &mut Command) {
    let to_default = || {
        for signal in 1..=libc::SIGRTMAX() {
            // SAFETY: any signal may be at its default. Some cannot be changed, or are libc's own: those are refused.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        // SAFETY: an empty set is written before it is read, and no old set is asked for.
        unsafe {
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        }
        Ok(())
    };
    // SAFETY: between `fork` and `exec` it calls only functions that are safe there, and allocates nothing.
    unsafe { command.pre_exec(to_default) };
}

/// Programs that die by a signal on purpose would leave a core file each.
fn without_core_dumps() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Core);
    limit.current = Some(0);
    // Where it is refused, core files are a nuisance, not an error.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, limit);
}

/// A directory that is removed when its run is over.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new() -> Result<Self, BuildError> {
        let parent = target_directory()?.join("program-runs");
        fs::create_dir_all(&parent).map_err(io(parent.display()))?;
        let own = std::process::id();
        for attempt in 0u64.. {
            let path = parent.join(format!("{own}-{attempt}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io(path.display())(error)),
            }
        }
        unreachable!("a directory name is free before 2^64 attempts")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A file left behind lies under target/, where `cargo clean` finds it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `nohup make test` failed: a program that says whether its signals are at their defaults said no.
    #[test]
    fn a_program_inherits_neither_ignored_nor_blocked_signals() {
        const INNER: &str = "URUK_TEST_SIGNALS_ARE_INHERITED";
        if std::env::var_os(INNER).is_some() {
            let mut command = Command::new("cat");
            let status =
                run(command.arg("/proc/self/status"), &Input::default(), Duration::from_secs(60)).unwrap();
            let status = String::from_utf8(status.stdout).unwrap();
            for name in ["SigIgn:", "SigBlk:"] {
                let set = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
                // Two signals are libc's own, which lets no program change them.
                let set = u64::from_str_radix(set.trim(), 16).unwrap() & !(0b11 << 31);
                assert_eq!(set, 0, "{status}");
            }
            return;
        }
        let mut command = Command::new("env");
        command.args(["--ignore-signal=HUP", "--ignore-signal=TERM", "--block-signal=USR1"]);
        command.arg(std::env::current_exe().unwrap()).env(INNER, "");
        command.args(["--exact", "process::tests::a_program_inherits_neither_ignored_nor_blocked_signals"]);
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
    }
}
