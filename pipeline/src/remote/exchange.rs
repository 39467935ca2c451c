//! [`become_executor`]: a command becomes the executor itself, and a process that it forks goes on as the host.
//!
//! ```text
//!   command ── forks ──▶ keeper ── forks ──▶ host: the command goes on, compiles and links
//!      │ executes          │ waits for it         │
//!      ▼                   ▼                      │
//!   executor ◀─────── how the host ended          │
//!      ▲                                          │
//!      └───────────── channel ────────────────────┘
//! ```
//!
//! So the program has all that the command was given: its number and its parent, the signals that are sent to it and to its group, the terminal,
//! ignored and blocked signals, descriptors. Its end is the command's end.
//!
//! The keeper is there until the program runs: the executor ends as the host has ended. Then it goes, and the program has no child that it has not
//! started. The host ends with its keeper, and from then on with the executor.

use std::ffi::{CString, OsStr, c_char, c_int};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::ptr;

use rustix::io::fcntl_getfd;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use uruk_core::sync::Arc;

use super::forward::{OWN, STOPS};
use super::messages::BROKEN;
use super::settings::{RemotePlace, RemoteProgram};
use crate::peer::{Channel, PeerProgram, set_aside};

/// The exit code of a command that could not run its program, for a reason that is not known.
const FAILURE: c_int = 1;

/// The executor, as its host knows it.
#[derive(Clone, Debug)]
pub(super) struct ExecutorAbove {
    pub(super) program: PeerProgram,
    pub(super) channel: Arc<OwnedFd>,
    pub(super) pid: u32,
    pub(super) keeper: u32,
    /// Whether the command was given a stdin.
    pub(super) has_input: bool,
}

impl PartialEq for ExecutorAbove {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.channel, &other.channel)
    }
}

impl Eq for ExecutorAbove {}

/// Executes `program`, an executor, in place of this process, and returns in a process that goes on as its host. To be called by a process that has
/// one thread, and does nothing but run a program.
///
/// Signals that a group of processes is sent do nothing to the host. A program that cannot be executed is an error when the host reaches it.
///
/// # Errors
/// The system's, in this process, if it has no room for another one or for a channel.
pub fn become_executor(program: &PeerProgram) -> io::Result<RemoteProgram> {
    let words = [program.path.as_os_str()].into_iter().chain(program.arguments.iter().map(AsRef::as_ref));
    let words: Vec<CString> =
        words.map(|word: &OsStr| CString::new(word.as_bytes())).collect::<Result<_, _>>()?;
    let (near, far) = UnixStream::pair()?;
    let (near, far) = (set_aside(near.into()), set_aside(far.into()));
    let pid = std::process::id();
    // SAFETY: the caller has one thread: no lock is held by another.
    let keeper = unsafe { libc::fork() };
    match keeper {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(far);
            host_below(near, program, pid)
        }
        keeper => {
            drop(near);
            let error = execute(&words, &far);
            let told = postcard::to_stdvec(&error.to_string()).unwrap_or_default();
            let _ = Channel::new(far).send(BROKEN, 0, &told, &[]); // A host that is gone has said why.
            end_as(ended(keeper))
        }
    }
}

/// Executes a program that has `channel` as its stdin. Gives the error if it cannot be executed.
fn execute(words: &[CString], channel: &OwnedFd) -> io::Error {
    let mut arguments: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    arguments.push(ptr::null());
    // SAFETY: the words are terminated, and so is their list.
    unsafe {
        if libc::dup2(channel.as_raw_fd(), libc::STDIN_FILENO) == libc::STDIN_FILENO {
            libc::execvp(arguments[0], arguments.as_ptr());
        }
    }
    io::Error::last_os_error()
}

/// Goes on in the host, and waits for that in this process, the keeper.
fn host_below(channel: OwnedFd, program: &PeerProgram, pid: u32) -> io::Result<RemoteProgram> {
    let keeper = std::process::id();
    end_with_parent(pid);
    // SAFETY: as in `become_executor`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            leave_signals_to_program();
            let has_input = fcntl_getfd(io::stdin()).is_ok();
            fill_streams();
            let (program, channel) = (program.clone(), Arc::new(channel));
            let above = ExecutorAbove { program, channel, pid, keeper, has_input };
            Ok(RemoteProgram::of(RemotePlace::Above(above)))
        }
        host => {
            drop(channel);
            leave_signals_to_program();
            end_as(ended(host))
        }
    }
}

/// Has the system kill this process when its parent ends, which is `parent` unless that has ended already.
fn end_with_parent(parent: u32) {
    let is_set = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    if is_set && getppid().map(|parent| parent.as_raw_pid() as u32) != Some(parent) {
        end_by(libc::SIGKILL);
    }
}

/// The executor has answered, and is one: the host ends with its keeper, which ends with that. To be called on the thread that has become the host.
pub(super) fn end_with_keeper(keeper: u32) {
    end_with_parent(keeper);
}

/// A host does not end with its keeper any more: the program runs. To be called on the same thread.
pub(super) fn outlive_keeper() {
    let _ = set_parent_process_death_signal(None); // It was set by the same call.
}

/// The executor is about to run the program, and needs no keeper. Its signal of that is not the program's.
pub(super) fn dismiss(keeper: c_int) {
    // SAFETY: the keeper is a child of this process, so its number is its own until it is reaped. Sets are written before they are read.
    unsafe {
        libc::kill(keeper, libc::SIGKILL);
        ended(keeper);
        let (mut child, mut pending): (libc::sigset_t, libc::sigset_t) = (mem::zeroed(), mem::zeroed());
        libc::sigemptyset(&raw mut child);
        libc::sigaddset(&raw mut child, libc::SIGCHLD);
        if libc::sigpending(&raw mut pending) == 0
            && libc::sigismember(&raw const pending, libc::SIGCHLD) == 1
        {
            let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&raw const child, ptr::null_mut(), &raw const at_once);
        }
    }
}

/// How a child of this process ends, which is waited for: a status of `waitpid`.
pub(super) fn ended(child: c_int) -> c_int {
    let mut status = FAILURE << 8;
    loop {
        // SAFETY: the status can be written.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        // A parent that ignores the ends of its children is not told of them.
        if waited != -1 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return status;
        }
    }
}

/// Ends this process as another one has ended.
pub(super) fn end_as(status: c_int) -> ! {
    if libc::WIFSIGNALED(status) {
        end_by(libc::WTERMSIG(status))
    }
    // SAFETY: no handler of the program's is to run: it has not begun.
    unsafe { libc::_exit(libc::WEXITSTATUS(status)) }
}

/// Ends this process by a signal, without a core of its own.
fn end_by(signal: c_int) -> ! {
    /// The exit code of a shell for a program that a signal has ended.
    const BY_SIGNAL: c_int = 128;
    // SAFETY: limits, actions and sets are written before they are read. The signal ends the process, or else the last call does.
    unsafe {
        let mut core: libc::rlimit = mem::zeroed();
        libc::getrlimit(libc::RLIMIT_CORE, &raw mut core);
        core.rlim_cur = 0;
        libc::setrlimit(libc::RLIMIT_CORE, &raw const core);
        libc::signal(signal, libc::SIG_DFL);
        let mut this: libc::sigset_t = mem::zeroed();
        libc::sigaddset(&raw mut this, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const this, ptr::null_mut());
        libc::raise(signal);
        libc::_exit(BY_SIGNAL + signal)
    }
}

/// Signals of a terminal, and of those who send one to a whole group, come to this process too. The program alone decides what they do. Programs that are
/// started here have the default actions.
fn leave_signals_to_program() {
    extern "C" fn nothing(_: c_int) {}
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| !OWN.contains(signal)) {
        // SAFETY: actions are written before they are read, zeroed is the default, and the handler does nothing. Signals that cannot be had are refused.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            let is_known = libc::sigaction(signal, ptr::null(), &raw mut action) == 0;
            if is_known && action.sa_sigaction == libc::SIG_DFL {
                // One that is stopped would have the program wait for what it compiles.
                let is_stop = STOPS.contains(&signal);
                action.sa_sigaction =
                    if is_stop { libc::SIG_IGN } else { nothing as extern "C" fn(c_int) as usize };
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &raw const action, ptr::null_mut());
            }
        }
    }
}

/// Closes stdin, which was the channel and has another number now: the program was given none.
pub(super) fn close_stdin() {
    // SAFETY: no part of this process has it.
    unsafe { libc::close(libc::STDIN_FILENO) };
}

/// Has closed streams lead nowhere: files of the host would take their numbers, and its messages go there.
fn fill_streams() {
    // SAFETY: the path is terminated, and a descriptor that is open is looked at alone.
    unsafe {
        for stream in [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO] {
            // It takes the lowest number that is free: that of the stream.
            if libc::fcntl(stream, libc::F_GETFD) == -1 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            }
        }
    }
}
