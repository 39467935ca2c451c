//! Threads that start without the host's signals.
//!
//! A thread inherits the signal mask of the thread that starts it, so a handler of the host could run on a worker. Handlers of servers
//! expect the thread that they were installed by: they jump to a point on its stack, or allocate where it alone allocates.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Runs `start`. Threads that it starts have all signals blocked but those that a fault of the thread itself raises, and the ticks of
/// profilers. The calling thread has its own mask again on return.
pub(crate) fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    let mut blocked = SigSet::all();
    for own in OWN {
        blocked.remove(own);
    }
    // The two calls fail for a bad first argument alone.
    let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let started = start();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    started
}

/// The kernel ends the process if a fault is blocked when it is raised, although it has a handler.
const OWN: [Signal; 8] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGSYS,
    Signal::SIGABRT,
    Signal::SIGPROF,
];

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_starts_with_faults_alone_and_its_parent_keeps_its_mask() {
        let before = SigSet::thread_get_mask().expect("a mask");
        let mask = || SigSet::thread_get_mask().expect("a mask");
        let inside = without_signals(|| uruk_core::sync::thread::spawn(mask)).join().expect("no panic");
        for signal in Signal::iterator().filter(|signal| !matches!(signal, Signal::SIGKILL | Signal::SIGSTOP))
        {
            assert_eq!(inside.contains(signal), !OWN.contains(&signal), "{signal}");
        }
        assert_eq!(mask(), before);
    }
}
