//! The host of an executor that was the command ([`exchange`](super::exchange)), as the executor knows it.
//!
//! | `stage` | the host ends |
//! |---|---|
//! | [`LINKS`] | the executor ends as the host has ended, which its keeper tells |
//! | [`RUNS`] | the program is ended: it would wait for its compiler |
//! | [`ENDS`] | the executor goes on with its own end, for which it has waited |

use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open};
use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use super::exchange::{dismiss, end_as, ended};
use super::messages::{ENDED, ProcessEndThere};
use super::replies::Replies;
use super::supervised::wait_for_process;
use crate::peer::{Channel, ProcessEnd, at_end_of};
use crate::runtime::exit::{ExitError, on_exit};

/// How long a thread with a fault waits for the report of that.
const REPORT_LIMIT: Duration = Duration::from_secs(10);

/// A thread that waits looks so often.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

const LINKS: u8 = 0;
const RUNS: u8 = 1;
const ENDS: u8 = 2;

struct HostBelow {
    keeper: i32,
    stage: AtomicU8,
    /// Whether it has ended.
    is_gone: AtomicBool,
    /// A child of the program has a copy of all this, and no host.
    owner: u32,
}

static HOST: OnceLock<HostBelow> = OnceLock::new();

/// Has this process end with its host, as the table says.
///
/// # Errors
/// No thread can be started, or there are too many descriptors.
pub(super) fn end_with_host(channel: &Channel, host: u32, keeper: u32) -> io::Result<()> {
    let numbered = |number: u32| i32::try_from(number).ok().and_then(Pid::from_raw);
    let process = numbered(host).and_then(|host| pidfd_open(host, PidfdFlags::empty()).ok());
    let keeper = numbered(keeper).map_or(0, Pid::as_raw_pid);
    let (stage, is_gone, owner) = (AtomicU8::new(LINKS), AtomicBool::new(false), std::process::id());
    let host = HOST.get_or_init(|| HostBelow { keeper, stage, is_gone, owner });
    // Relaxed: each stage is set before the message that has the host do what this thread sees.
    at_end_of(channel, process, move |_, process| match host.stage.load(Ordering::Relaxed) {
        LINKS => end_as(ended(host.keeper)),
        RUNS => _ = kill_process(getpid(), Signal::KILL),
        // Relaxed: a flag alone.
        _ => {
            process.into_iter().for_each(wait_for_process);
            host.is_gone.store(true, Ordering::Relaxed);
        }
    })
}

/// The program is about to run. At its `exit`, behind its own handlers, the host is told, and does what it has to do at the end.
///
/// # Errors
/// [`ExitError`] if the C library refuses the handler.
pub(super) fn program_begins(replies: &Arc<Replies>) -> Result<(), ExitError> {
    let Some(host) = HOST.get() else { return Ok(()) };
    // Relaxed: as above.
    host.stage.store(RUNS, Ordering::Relaxed);
    dismiss(host.keeper);
    let replies = replies.clone();
    on_exit(move |code| {
        if std::process::id() == host.owner {
            // Relaxed: as above.
            host.stage.store(ENDS, Ordering::Relaxed);
            if replies.send(ENDED, 0, &ProcessEndThere::from(ProcessEnd::Exited(code))) {
                host.wait_for_end(None);
            }
        }
    })
}

/// A fault ends this process: its host, which is about to be told, may end before. May be called in a handler of signals.
pub(super) fn is_ending() {
    if let Some(host) = HOST.get() {
        // Relaxed: as above.
        host.stage.store(ENDS, Ordering::Relaxed);
    }
}

/// Waits until the host has reported the fault that it was told of. May be called in a handler of signals.
pub(super) fn wait_for_report() {
    if let Some(host) = HOST.get() {
        host.wait_for_end(Some(REPORT_LIMIT));
    }
}

impl HostBelow {
    /// By the thread that watches: descriptors of this one may be the program's. May be called in a handler of signals.
    fn wait_for_end(&self, limit: Option<Duration>) {
        let until = limit.map(|limit| Instant::now() + limit);
        // Relaxed: as above.
        while !self.is_gone.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
            let _ = poll(&mut [], Some(&LOOK_EVERY)); // An interruption makes it shorter.
        }
    }
}
