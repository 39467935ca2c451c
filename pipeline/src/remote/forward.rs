//! Signals of a host go on to the program of an executor that is no child of it, as if they had been sent to the program.
//!
//! ```text
//!   signal ─▶ handler: its siginfo into a pipe ─▶ "uruk signals" ─▶ Signal ─▶ "uruk link": queues it for the executor's own process
//! ```
//!
//! Signals that are ignored stay so: the program was not sent them either. Where a signal stops the command, the command stops itself: it cannot
//! know that the program does.

use std::ffi::{c_int, c_void};
use std::io::{self, Read as _};
use std::mem;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr;
use std::sync::OnceLock;

use rustix::process::{Signal, getpid, kill_process};

use crate::peer::set_aside;
use crate::runtime::tls::SignalsBlocked;

/// The size of a `siginfo_t`, which is the same on all architectures of the system.
pub(super) const SIGNAL_BYTES: usize = size_of::<libc::siginfo_t>();

/// Where the handler writes.
static PIPE: OnceLock<OwnedFd> = OnceLock::new();

/// Faults, of this process itself; and the signals that no process can handle, or that tell of its own children and descriptors.
pub(super) const OWN: [c_int; 11] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGABRT,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGCHLD,
    libc::SIGPIPE,
];

/// Signals that stop a process by their default.
pub(super) const STOPS: [c_int; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// Has `send` called with each signal that comes from now on and is not ignored, on a thread of its own. For a process that only waits for a program.
///
/// # Errors
/// The system refuses a pipe or a thread.
pub(super) fn forward_signals(send: impl Fn([u8; SIGNAL_BYTES]) + Send + 'static) -> io::Result<()> {
    let (mut read, write) = io::pipe()?;
    let write = set_aside(write.into());
    if PIPE.set(write).is_err() {
        return Ok(());
    }
    let forward = move || {
        let mut signal = [0; SIGNAL_BYTES];
        while read.read_exact(&mut signal).is_ok() {
            send(signal);
            if STOPS.contains(&number(&signal)) {
                let _ = kill_process(getpid(), Signal::STOP); // Never refused.
            }
        }
    };
    let blocked = SignalsBlocked::now(); // The thread has them blocked to its end.
    uruk_core::sync::thread::Builder::new().name("uruk signals".to_owned()).spawn(forward)?;
    drop(blocked);
    (1..=libc::SIGRTMAX()).filter(|signal| !OWN.contains(signal)).for_each(handle);
    Ok(())
}

/// Has a signal handled that is not ignored.
fn handle(signal: c_int) {
    // SAFETY: the action is filled before it is read. Signals that cannot be had are refused.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        let is_known = libc::sigaction(signal, ptr::null(), &raw mut action) == 0;
        if is_known && action.sa_sigaction != libc::SIG_IGN {
            action.sa_sigaction = note as extern "C" fn(c_int, *const c_void, *mut c_void) as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

extern "C" fn note(_: c_int, info: *const c_void, _: *mut c_void) {
    if let Some(pipe) = PIPE.get() {
        // SAFETY: the system passes a whole `siginfo_t`, and all of this may be done in a handler. A pipe takes so few bytes at once.
        unsafe {
            let error = *libc::__errno_location();
            libc::write(pipe.as_raw_fd(), info, SIGNAL_BYTES);
            *libc::__errno_location() = error;
        }
    }
}

/// Sends this process a signal that has come to its host.
pub(super) fn raise_here(signal: &[u8; SIGNAL_BYTES]) {
    let info = ptr::from_ref(signal).cast::<c_void>();
    // SAFETY: it is as long as a `siginfo_t`, of plain numbers.
    unsafe {
        // The system lets a process say what another one has queued. Only the system and `kill` say the rest.
        if libc::syscall(libc::SYS_rt_sigqueueinfo, libc::getpid(), number(signal), info) != 0 {
            libc::kill(libc::getpid(), number(signal));
        }
    }
}

fn number(signal: &[u8; SIGNAL_BYTES]) -> c_int {
    c_int::from_ne_bytes([signal[0], signal[1], signal[2], signal[3]])
}
