//! [`BlockedSignals`]: signals and cancellation wait while the engine works for a thread of the program.

use std::ffi::c_int;
use std::ptr;

/// `PTHREAD_CANCEL_DISABLE` of the GNU C library.
const CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Signals that come later, and being cancelled, until this is dropped: a handler that makes a first call itself would find the engine's locks taken beneath it.
pub(crate) struct BlockedSignals {
    signals: libc::sigset_t,
    cancellation: c_int,
}

impl BlockedSignals {
    pub(crate) fn begin() -> Self {
        // SAFETY: both sets are written before they are read; blocking signals on this thread has no other obligation.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            // Faults of the thread itself are not blocked: the process would end without a word.
            for fault in
                [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT]
            {
                libc::sigdelset(&raw mut all, fault);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_wait_and_faults_do_not() {
        let is_blocked = |signal| {
            // SAFETY: the set is written before it is read.
            unsafe {
                let mut now = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut now);
                libc::sigismember(&raw const now, signal) == 1
            }
        };
        let blocked = BlockedSignals::begin();
        assert_eq!([libc::SIGUSR1, libc::SIGALRM, libc::SIGSEGV].map(is_blocked), [true, true, false]);
        drop(blocked);
        assert!(!is_blocked(libc::SIGUSR1));
    }
}
