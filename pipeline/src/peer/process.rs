//! [`PeerProcess`]: a program that was started to work for this process.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open, pidfd_send_signal,
};

use super::channel::{Channel, ChannelError};
use super::deadline::Deadline;
use super::frame::{FrameError, FrameLimits, PeerFrame};
use super::last_words::LastWords;
use super::private::keep_descriptors;
use crate::runtime::set_aside;
use crate::runtime::tls::SignalsBlocked;

/// How long a peer that has closed its channel may take to end. Then it is killed.
const END_LIMIT: Duration = Duration::from_secs(1);

/// How long to wait between two looks at a process that has no descriptor.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// A program to be started, with its arguments. It gets the environment of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerProgram {
    /// Its file, or a name that is looked for in `PATH`.
    pub path: PathBuf,
    /// Its arguments, without its own name.
    pub arguments: Vec<OsString>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessEnd {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signal(i32),
    /// Another part of this process has asked for its end first, or its ends are not kept.
    Unknown,
}

impl ProcessEnd {
    pub(crate) fn of(status: io::Result<ExitStatus>) -> Self {
        match status {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Self::Exited(code),
                (None, Some(signal)) => Self::Signal(signal),
                (None, None) => Self::Unknown,
            },
            Err(_) => Self::Unknown,
        }
    }
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "was ended by {name}"),
                None => write!(f, "was ended by signal {signal}"),
            },
            Self::Unknown => write!(f, "ended"),
        }
    }
}

/// The names of signals that programs die by.
fn signal_name(signal: i32) -> Option<&'static str> {
    let names = [
        (Signal::ILL, "SIGILL"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::SYS, "SIGSYS"),
    ];
    names.into_iter().find(|(number, _)| number.as_raw() == signal).map(|(_, name)| name)
}

/// A peer did not do what it was asked. It is gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// It ended.
    #[error("process {pid} {end}{}", Said(said))]
    Ended {
        /// Its number.
        pid: u32,
        /// How it ended.
        end: ProcessEnd,
        /// The last that it wrote to stderr.
        said: String,
    },
    /// It was ended because its time was up.
    #[error("process {pid} took more than {limit:?}, and was ended{}", Said(said))]
    Late {
        /// Its number.
        pid: u32,
        /// The time that it had.
        limit: Duration,
        /// The last that it wrote to stderr.
        said: String,
    },
    /// It was ended because it sent what makes no sense.
    #[error("process {pid} broke the protocol, and was ended: {why}{}", Said(said))]
    Lied {
        /// Its number.
        pid: u32,
        /// The defect.
        why: String,
        /// The last that it wrote to stderr.
        said: String,
    },
    /// It was ended because it announced more than is taken from it. Nothing of that was read.
    #[error("process {pid} was ended: {why}{}", Said(said))]
    TooMuch {
        /// Its number.
        pid: u32,
        /// The sizes.
        why: FrameError,
        /// The last that it wrote to stderr.
        said: String,
    },
    /// It was ended because the system let this process neither send nor receive: that is no fault of the peer.
    #[error("process {pid} cannot be reached, and was ended: {why}")]
    System {
        /// Its number.
        pid: u32,
        /// The system's message.
        why: String,
    },
}

/// The last words of a peer in a message, if there are some.
struct Said<'a>(&'a str);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "; it said: {}", self.0) }
    }
}

/// A process that this one has started. Dropping it kills and reaps it.
///
/// In a child that this process forks, dropping it does nothing to the peer.
#[derive(Debug)]
pub struct PeerProcess {
    child: Child,
    /// Names the process for as long as it is not reaped. Without it, where the system refuses it, the number does.
    descriptor: Option<OwnedFd>,
    channel: Channel,
    said: LastWords,
    started: Instant,
    /// Whether it was killed because it did not end after its channel was closed.
    went_on: bool,
    /// The process that started it.
    owner: u32,
}

impl PeerProcess {
    /// Starts `program` with a channel as its stdin. Its stdout goes nowhere, and the end of its stderr is kept.
    ///
    /// It is in a process group of its own: control-C in a terminal does not reach it.
    ///
    /// # Errors
    /// The system's, if the program cannot be started.
    pub fn start(program: &PeerProgram) -> io::Result<Self> {
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).process_group(0);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Self::spawn(command)
    }

    /// Starts `program` with a channel as its stdin, beside this process: it has the same stdout and stderr, and control-C reaches both.
    ///
    /// # Errors
    /// The system's, if the program cannot be started.
    pub fn start_beside(program: &PeerProgram) -> io::Result<Self> {
        let mut command = Command::new(&program.path);
        command.args(&program.arguments);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> io::Result<Self> {
        let (near, far) = UnixStream::pair()?;
        let mut child = command.stdin(OwnedFd::from(far)).spawn()?;
        let descriptor = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        let said = LastWords::of(child.stderr.take())?;
        let (channel, started, owner) = (Channel::new(near), Instant::now(), std::process::id());
        Ok(Self { child, descriptor, channel, said, started, went_on: false, owner })
    }

    /// From here on larger frames are not taken from it: it is ended when it announces one. To be called between two frames.
    pub fn take_at_most(&mut self, limits: FrameLimits) {
        self.channel.take_at_most(limits);
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// For how long it has been running.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// [`PeerError`]: the peer is gone then.
    pub fn send(
        &mut self,
        kind: u16,
        id: u32,
        (body, bulk): (&[u8], &[u8]),
        deadline: Deadline,
    ) -> Result<(), PeerError> {
        let Self { channel, said, .. } = self;
        let sent =
            channel.send_while(kind, id, body, bulk, &mut |stream, until| said.wait(stream, until, deadline));
        sent.map_err(|error| self.end(error, deadline, false))
    }

    /// Receives a frame.
    ///
    /// # Errors
    /// [`PeerError`]: the peer is gone then.
    pub fn receive(&mut self, deadline: Deadline) -> Result<PeerFrame, PeerError> {
        let Self { channel, said, .. } = self;
        let received = channel.receive_while(&mut |stream, until| said.wait(stream, until, deadline));
        received.map_err(|error| self.end(error, deadline, true))
    }

    /// A second handle of the channel. One may be for sending, the other for receiving.
    ///
    /// # Errors
    /// The system's, if there are too many descriptors.
    pub fn second_channel(&self) -> io::Result<Channel> {
        self.channel.second()
    }

    /// A descriptor that can be read from when the process has ended. `None` where the system has none.
    pub fn end_descriptor(&self) -> Option<OwnedFd> {
        self.descriptor.as_ref()?.try_clone().ok()
    }

    /// Forgets what the peer has said so far, which belongs to earlier work.
    pub fn forget_words(&mut self) {
        self.said.forget();
    }

    /// Ends the peer, which sent what makes no sense.
    pub fn lied(&mut self, why: impl Into<String>) -> PeerError {
        self.kill();
        PeerError::Lied { pid: self.pid(), why: why.into(), said: self.said.take() }
    }

    /// Ends the peer, with which there was this error.
    pub(crate) fn end(&mut self, error: ChannelError, deadline: Deadline, is_received: bool) -> PeerError {
        let pid = self.pid();
        match error {
            ChannelError::Closed => match self.reap() {
                Some(end) => PeerError::Ended { pid, end, said: self.said.take() },
                None => self.lied(format!("it closed its channel, and went on for {END_LIMIT:?}")),
            },
            ChannelError::Late => {
                self.kill();
                PeerError::Late { pid, limit: deadline.limit(), said: self.said.take() }
            }
            ChannelError::System(error) => {
                self.kill();
                PeerError::System { pid, why: error.to_string() }
            }
            ChannelError::Frame(why @ FrameError::Size { .. }) if is_received => {
                self.kill();
                PeerError::TooMuch { pid, why, said: self.said.take() }
            }
            error @ ChannelError::Frame(_) => self.lied(error.to_string()),
        }
    }

    /// How it ended, which it is about to do by itself. Nothing if it did not in time: it was killed for that, and by no other process.
    pub(crate) fn reap(&mut self) -> Option<ProcessEnd> {
        let is_gone = self.ends_by(Deadline::after(END_LIMIT));
        let end = self.kill();
        self.went_on |= !is_gone && end == ProcessEnd::Signal(Signal::KILL.as_raw());
        (!self.went_on).then_some(end)
    }

    /// Waits for its end. Whether that has come.
    fn ends_by(&mut self, deadline: Deadline) -> bool {
        while matches!(self.child.try_wait(), Ok(None)) {
            let (mut ended, wait) = match &self.descriptor {
                Some(descriptor) => (vec![PollFd::new(descriptor, PollFlags::IN)], deadline.left()),
                None => (Vec::new(), Some(LOOK_EVERY)),
            };
            let is_refused = poll(&mut ended, wait.as_ref()).is_err_and(|error| error != Errno::INTR);
            if is_refused || deadline.is_over() {
                return !matches!(self.child.try_wait(), Ok(None));
            }
        }
        true
    }

    /// Kills it, if it has not ended yet, and reaps it.
    fn kill(&mut self) -> ProcessEnd {
        // One that has ended has its end already.
        match &self.descriptor {
            Some(descriptor) => _ = pidfd_send_signal(descriptor, Signal::KILL),
            None => _ = self.child.kill(),
        }
        ProcessEnd::of(self.child.wait())
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            self.kill();
        }
    }
}

/// Has this process, a peer, end when its `parent` does, also in the middle of its work: a thread watches the parent and the channel. Without a
/// number the parent is that of this process, which has not sent it.
///
/// # Errors
/// The parent is gone already, or no thread can be started.
pub fn end_with_parent(channel: &Channel, parent: Option<u32>) -> io::Result<()> {
    let gone = || io::Error::new(io::ErrorKind::NotFound, "the process that started this one is gone");
    let numbered = |parent: u32| i32::try_from(parent).ok().and_then(Pid::from_raw);
    let parent = parent.map_or_else(getppid, numbered).ok_or_else(gone)?;
    // Where the system refuses this, the channel's end says it: unless a child of the parent has it too.
    let process = pidfd_open(parent, PidfdFlags::empty()).ok();
    if getppid() != Some(parent) {
        return Err(gone());
    }
    at_end_of(channel, process, |stream, _| {
        // Not by `exit`, which would run destructors beside the work. A child of this process may have the channel too, whose
        // other side learns of the end all the same.
        let _ = shutdown(stream, Shutdown::Both);
        _ = kill_process(getpid(), Signal::KILL);
    })
}

/// Has a thread call `end` with the channel and the `process` at its other side when the one is closed, or the other has ended.
///
/// # Errors
/// No thread can be started.
pub(crate) fn at_end_of(
    channel: &Channel,
    process: Option<OwnedFd>,
    end: impl FnOnce(BorrowedFd<'_>, Option<BorrowedFd<'_>>) + Send + 'static,
) -> io::Result<()> {
    let stream = set_aside(channel.stream().try_clone_to_owned()?);
    let process = process.map(set_aside);
    let blocked = SignalsBlocked::now(); // The thread has them blocked to its end: signals are for the threads that work.
    let watch = move || {
        let kept: Vec<_> =
            [stream.as_fd()].into_iter().chain(process.as_ref().map(|process| process.as_fd())).collect();
        keep_descriptors(&kept);
        loop {
            // The other side never closes one direction alone.
            let mut awaited = vec![PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::RDHUP)];
            awaited.extend(process.as_ref().map(|process| PollFd::new(process, PollFlags::IN)));
            match poll(&mut awaited, None) {
                Err(Errno::INTR) => {}
                _ => return end(stream.as_fd(), process.as_ref().map(|process| process.as_fd())),
            }
        }
    };
    let started = uruk_core::sync::thread::Builder::new().name("uruk parent".to_owned()).spawn(watch);
    drop(blocked);
    started.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::last_words::SAID_BYTES;

    fn shell(script: &str) -> PeerProcess {
        let arguments = ["-c", script].map(OsString::from).into();
        PeerProcess::start(&PeerProgram { path: "/bin/sh".into(), arguments }).expect("there is a shell")
    }

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(20))
    }

    #[test]
    fn an_end_is_told_with_the_last_words() {
        let mut peer = shell("echo one >&2; echo LLVM ERROR: two >&2; kill -SEGV $$");
        let error = peer.receive(soon()).expect_err("it ends");
        let PeerError::Ended { end, said, .. } = &error else { panic!("{error}") };
        assert_eq!((*end, &**said), (ProcessEnd::Signal(11), "one\nLLVM ERROR: two"));
        assert!(error.to_string().contains("was ended by SIGSEGV; it said: one"), "{error}");
        let error = shell("exit 3").receive(soon()).expect_err("it ends");
        assert!(matches!(error, PeerError::Ended { end: ProcessEnd::Exited(3), .. }), "{error}");
    }

    #[test]
    fn a_peer_that_says_much_is_heard_to_the_end() {
        let script = "i=0; while [ $i -lt 20000 ]; do echo 0123456789 >&2; i=$((i+1)); done; echo end >&2";
        let error = shell(script).receive(soon()).expect_err("it ends");
        let PeerError::Ended { end: ProcessEnd::Exited(0), said, .. } = error else { panic!("{error}") };
        assert!(said.ends_with("end") && said.len() <= SAID_BYTES, "{}", said.len());
    }

    #[test]
    fn a_peer_that_takes_too_long_is_ended() {
        let mut peer = shell("exec sleep 1000");
        let error = peer.receive(Deadline::after(Duration::from_millis(50))).expect_err("it is late");
        assert!(matches!(error, PeerError::Late { .. }), "{error}");
        assert!(error.to_string().contains("took more than 50ms"), "{error}");
    }

    #[test]
    fn a_peer_that_writes_without_end_is_late_all_the_same() {
        // To stderr; and frames without an end, whose bytes are always there.
        let endless = "printf '\\0\\0\\0\\0\\0\\0\\0\\100\\0\\0\\0\\0\\0\\0ru' >&0; exec cat /dev/zero >&0";
        for script in ["exec cat /dev/zero >&2", endless] {
            let error =
                shell(script).receive(Deadline::after(Duration::from_millis(50))).expect_err("it is late");
            assert!(matches!(error, PeerError::Late { .. }), "{script}: {error}");
        }
    }

    /// Its end is no work of another process: the work that it had is to blame.
    #[test]
    fn a_peer_that_closes_its_channel_and_goes_on_is_ended_for_that() {
        let mut peer = shell("exec <&-; echo on >&2; while true; do :; done");
        for _ in 0..2 {
            let error = peer.receive(soon()).expect_err("it is closed");
            let PeerError::Lied { why, .. } = &error else { panic!("{error}") };
            assert_eq!(why, "it closed its channel, and went on for 1s");
        }
        // The same without a descriptor of the process; and one that ends a little later.
        for (script, is_lie) in [("exec <&-; exec sleep 1000", true), ("exec <&-; sleep 0.1; exit 3", false)]
        {
            let mut peer = shell(script);
            peer.descriptor = None;
            let error = peer.receive(soon()).expect_err("it is closed");
            let is_end = matches!(error, PeerError::Ended { end: ProcessEnd::Exited(3), .. });
            assert!(is_end != is_lie && matches!(error, PeerError::Lied { .. }) == is_lie, "{error}");
        }
    }

    #[test]
    fn a_peer_that_lies_is_ended() {
        let lie = "echo earlier >&2; echo 'LLVM ERROR: this is no frame' >&0; exec sleep 1000";
        let error = shell(lie).receive(soon()).expect_err("it lies");
        let PeerError::Lied { said, .. } = &error else { panic!("{error}") };
        assert_eq!(said, "earlier");
    }

    #[test]
    fn words_of_earlier_work_are_forgotten() {
        let mut peer = shell("echo first >&2; read -r line; echo second >&2; exit 3");
        let _ = poll(&mut [PollFd::new(peer.said.stderr.as_ref().expect("a pipe"), PollFlags::IN)], None);
        peer.forget_words();
        peer.send(1, 0, (b"\n", b""), soon()).expect("it reads a line");
        let error = peer.receive(soon()).expect_err("it ends");
        let PeerError::Ended { said, .. } = &error else { panic!("{error}") };
        assert_eq!(said, "second");
    }
}
