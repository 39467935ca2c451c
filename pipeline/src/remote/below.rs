//! The host of an executor that was the command ([`exchange`](super::exchange)), as the executor knows it.
//!
//! | `stage` | the host ends |
//! |---|---|
//! | [`LINKS`] | the executor ends as the host has ended, which its keeper tells |
//! | [`RUNS`] | the program is ended: it would wait for its compiler |
//! | [`ENDS`] | the executor goes on with its own end, for which it has waited |

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open};
use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicU8, Ordering};

use super::exchange::{dismiss, end_as, ended};
use super::messages::{ENDED, ProcessEndThere};
use super::replies::Replies;
use crate::peer::{Channel, Deadline, ProcessEnd, at_end_of, set_aside};
use crate::runtime::exit::{ExitError, on_exit};

/// How long a thread with a fault waits for the report of that.
const REPORT_LIMIT: Duration = Duration::from_secs(10);

const LINKS: u8 = 0;
const RUNS: u8 = 1;
const ENDS: u8 = 2;

struct HostBelow {
    channel: OwnedFd,
    /// Names the process for as long as it runs. Where the system refuses that, the end of the channel tells its end.
    process: Option<OwnedFd>,
    keeper: i32,
    stage: AtomicU8,
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
    let process = numbered(host).and_then(|host| pidfd_open(host, PidfdFlags::empty()).ok()).map(set_aside);
    let watched = process.as_ref().and_then(|process| process.try_clone().ok());
    let keeper = numbered(keeper).map_or(0, Pid::as_raw_pid);
    let channel_too = set_aside(channel.stream().try_clone_to_owned()?);
    let (stage, owner) = (AtomicU8::new(LINKS), std::process::id());
    let host = HOST.get_or_init(|| HostBelow { channel: channel_too, process, keeper, stage, owner });
    // Relaxed: each stage is set before the message that has the host do what this thread sees.
    at_end_of(channel, watched, move |_| match host.stage.load(Ordering::Relaxed) {
        LINKS => end_as(ended(host.keeper)),
        RUNS => _ = kill_process(getpid(), Signal::KILL),
        _ => {}
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
                host.wait_for_end(Deadline::never());
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
        host.wait_for_end(Deadline::after(REPORT_LIMIT));
    }
}

impl HostBelow {
    fn wait_for_end(&self, deadline: Deadline) {
        let ended: (BorrowedFd<'_>, _) = match &self.process {
            Some(process) => (process.as_fd(), PollFlags::IN),
            None => (self.channel.as_fd(), PollFlags::RDHUP),
        };
        let mut ended = [PollFd::from_borrowed_fd(ended.0, ended.1)];
        while let Err(Errno::INTR) = poll(&mut ended, deadline.left().as_ref()) {}
    }
}
