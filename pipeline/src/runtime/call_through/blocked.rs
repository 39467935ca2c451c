//! [`BlockedSignals`]: signals and cancellation wait while the engine works for a thread of the program.
//!
//! Signals without a handler do not wait, real-time signals excepted: where the system ends or stops the process by default, it does so at once, as
//! natively.
//!
//! | thread that begins | thread that installs a handler |
//! |---|---|
//! | counts itself in `INSIDE` | sets the signal in `HANDLED` |
//! | reads `HANDLED`: those signals wait too | reads `INSIDE`: waits for those that may not have seen it |
//!
//! Each of two such threads sees the other, so no handler runs on a thread that has let its signal through.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::time::{Duration, Instant};

use uruk_core::sync::atomic::{AtomicU64, Ordering};

use crate::runtime::fatal::Shown as _;

/// `PTHREAD_CANCEL_DISABLE` of the GNU C library.
const CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Signals that have a handler, and being cancelled, until this is dropped: a handler that makes a first call itself would find the engine's locks taken beneath it.
pub(crate) struct BlockedSignals {
    signals: libc::sigset_t,
    cancellation: c_int,
}

/// The process, and how many of its threads are in such a section: a child of a fork begins with none.
static INSIDE: AtomicU64 = AtomicU64::new(0);

/// Bits of signals for which the program has installed handlers.
static HANDLED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// How many sections this thread is in, one within another.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A handler waits at most so long for other threads. One of them may wait for this thread.
const PATIENCE: Duration = Duration::from_secs(1);

/// A thread that waits looks so often.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl BlockedSignals {
    pub(crate) fn begin() -> Self {
        if DEPTH.replace(DEPTH.get() + 1) == 0 {
            count(1);
        }
        // ordering[signal-handled]: SeqCst, as all accesses to both. This thread is counted before it looks.
        let handled = HANDLED.load(Ordering::SeqCst);
        // SAFETY: both sets are written before they are read; blocking signals on this thread has no other obligation.
        unsafe {
            let (mut waits, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut waits);
            let ends_at_once = |signal: &c_int| handled & bit(*signal) == 0 && !has_handler(*signal);
            for signal in FAULTS.into_iter().chain(ENDS.into_iter().filter(ends_at_once)) {
                libc::sigdelset(&raw mut waits, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const waits, &raw mut before);
            let mut cancellation = 0;
            pthread_setcancelstate(CANCEL_DISABLE, &raw mut cancellation);
            Self { signals: before, cancellation }
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: both were written by `begin`.
        unsafe {
            pthread_setcancelstate(self.cancellation, ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.signals, ptr::null_mut());
        }
        if DEPTH.replace(DEPTH.get() - 1) == 1 {
            count(-1);
        }
    }
}

/// Faults of the thread itself are not blocked: the process would end without a word.
const FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

/// Signals by which the system ends or stops a process by default. Each costs a system call at each first call. So real-time signals are not
/// among them, and wait: hardly any process is sent one for which it has no handler.
const ENDS: [c_int; 18] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGSTKFLT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
];

fn bit(signal: c_int) -> u64 {
    u32::try_from(signal - 1).ok().and_then(|signal| 1_u64.checked_shl(signal)).unwrap_or(0)
}

/// Whether a function of the program handles a signal. Ours ends the process in the place of the default.
fn has_handler(signal: c_int) -> bool {
    // SAFETY: the action is filled before it is read.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let is_known = libc::sigaction(signal, ptr::null(), &raw mut action) == 0;
        is_known && ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.shown().sa_sigaction)
    }
}

/// Adds to the number of threads inside. Gives it.
fn count(change: i64) -> u64 {
    let process = u64::from(std::process::id()) << 32;
    // ordering[signal-inside]: SeqCst, as all accesses to both words.
    let mut now = INSIDE.load(Ordering::SeqCst);
    loop {
        let before = if now >> 32 << 32 == process { now - process } else { 0 };
        let after = before.saturating_add_signed(change);
        // ordering[signal-inside]: SeqCst. A thread is counted before it looks which signals are handled.
        match INSIDE.compare_exchange(now, process + after, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return after,
            Err(other) => now = other,
        }
    }
}

/// The program is about to install a handler for `signal`. From here on threads that begin have it wait; those that are inside are waited for.
pub(crate) fn handler_comes(signal: c_int) {
    // ordering[signal-handled]: SeqCst. It is set before this thread looks who is inside.
    if HANDLED.fetch_or(bit(signal), Ordering::SeqCst) & bit(signal) != 0 {
        return;
    }
    let (until, own) = (Instant::now() + PATIENCE, u64::from(DEPTH.get() > 0));
    while count(0) > own && Instant::now() < until {
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// The program has no handler for `signal` any more.
pub(crate) fn handler_goes(signal: c_int) {
    // ordering[signal-handled]: SeqCst, as all accesses to both words.
    HANDLED.fetch_and(!bit(signal), Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn handle(_: c_int) {}

    fn set(signal: c_int, handler: libc::sighandler_t) {
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(signal, handler) };
    }

    #[test]
    fn signals_with_handlers_wait_and_others_and_faults_do_not() {
        let is_blocked = |signal| {
            // SAFETY: the set is written before it is read.
            unsafe {
                let mut now = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut now);
                libc::sigismember(&raw const now, signal) == 1
            }
        };
        set(libc::SIGUSR1, handle as extern "C" fn(c_int) as libc::sighandler_t);
        handler_comes(libc::SIGUSR2);
        let blocked = BlockedSignals::begin();
        let signals = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGTERM, libc::SIGTSTP, libc::SIGSEGV];
        assert_eq!(signals.map(is_blocked), [true, true, false, false, false]);
        drop(blocked);
        assert!(!is_blocked(libc::SIGUSR1));
        handler_goes(libc::SIGUSR2);
        set(libc::SIGUSR1, libc::SIG_DFL);
        let blocked = BlockedSignals::begin();
        assert!(!is_blocked(libc::SIGUSR1) && !is_blocked(libc::SIGUSR2));
        drop(blocked);
    }

    /// It is inside, and has let the signal through: it leaves only when the other thread has begun to wait.
    #[test]
    fn a_handler_waits_for_threads_inside_and_not_for_its_own() {
        use uruk_core::sync::thread;
        let signal = libc::SIGRTMAX();
        let own = BlockedSignals::begin();
        let (inside, is_inside) = std::sync::mpsc::channel();
        let other = thread::spawn(move || {
            let blocked = BlockedSignals::begin();
            inside.send(()).expect("it is waited for");
            while HANDLED.load(Ordering::SeqCst) & bit(signal) == 0 {
                thread::yield_now();
            }
            drop(blocked);
        });
        is_inside.recv().expect("it begins");
        handler_comes(signal);
        other.join().expect("no panic");
        handler_goes(signal);
        drop(own);
    }
}
