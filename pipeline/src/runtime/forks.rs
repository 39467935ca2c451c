//! Locks of the runtime that are held over a fork.
//!
//! When a thread forks, other threads may hold locks. The child has no such threads: it would wait for ever as soon as its program starts a
//! thread, touches a thread-local variable for the first time, or asks `dladdr`.
//!
//! Linked code's own handlers run before ours take the locks and after they let them go: [`exit`](super::exit) asks for
//! ours before it notes the program's.

use std::ffi::c_int;
use std::sync::OnceLock;

use super::endings::TABLE;
use super::image::PUBLISHED;
use super::process::entries::ENTRIES;
use super::process::overrides::PROGRAM_SYMBOLS;
use super::tls::distance::KNOWN;
use super::tls::library::DESCRIPTORS;
use super::tls::registry::REGISTRY;
use super::tls::reserve;
use super::unwind;
use crate::memory::HeldOverForks;

/// No thread takes one of them while holding another, so any order will do. Locks of a thread that compiles and links have handlers of
/// their own: [`background`](super::background).
fn held() -> [&'static dyn HeldOverForks; 9] {
    let (index, functions) = (unwind::held_over_forks(), unwind::functions::held_over_forks());
    [&REGISTRY, &PUBLISHED, &ENTRIES, &KNOWN, &DESCRIPTORS, &PROGRAM_SYMBOLS, &TABLE, index, functions]
}

/// Has forks find the locks of the runtime at rest.
///
/// # Errors
/// The system's error number if it has no room for our handlers.
pub(crate) fn watch() -> Result<(), c_int> {
    static INSTALLED: OnceLock<c_int> = OnceLock::new();
    let code = *INSTALLED.get_or_init(|| {
        // SAFETY: the handlers take no arguments, do not unwind, and are there as long as this library is: the C library
        // forgets them when it is unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) }
    });
    if code == 0 { Ok(()) } else { Err(code) }
}

extern "C" fn before() {
    reserve::before_fork();
    held().iter().for_each(|held| held.hold());
}

extern "C" fn after_in_parent() {
    // SAFETY: this thread has run `before`.
    unsafe {
        held().iter().for_each(|held| held.let_go());
        reserve::after_fork_in_parent();
    }
}

extern "C" fn after_in_child() {
    // SAFETY: this thread has run `before`, and is the only one.
    unsafe {
        held().iter().for_each(|held| held.renew());
        reserve::after_fork_in_child();
    }
}

#[cfg(test)]
mod tests {
    use super::super::process::{KnownEntry, overrides};
    use super::super::tls::{self, TlsIndex, distance};
    use super::super::{endings, unwind};
    use uruk_core::ExecutorAddr;
    use uruk_core::sync::atomic::{AtomicBool, Ordering};
    use uruk_core::sync::{Latch, thread};

    fn use_the_locks() {
        let module = tls::register_module(8, 8, 8).expect("a slot is free");
        let entry = KnownEntry::new(ExecutorAddr::new(0x1000)).expect("room for handlers");
        drop((module, entry));
        tls::library_variable_descriptor(TlsIndex { module: 1, offset: 8 });
        // One by one, as everybody takes them.
        drop(overrides::PROGRAM_SYMBOLS.lock());
        drop(endings::TABLE.lock());
        drop(distance::KNOWN.lock());
        unwind::use_the_lock();
        unwind::functions::note(ExecutorAddr::new(0x1000), ExecutorAddr::new(0x2000));
        crate::lazy::use_the_locks();
    }

    /// Another thread is nearly always in the middle of one of the locks. The child waited for it for ever.
    #[test]
    fn children_find_the_locks_at_rest() {
        const FORKS: usize = 200;
        const CHILD_SECONDS_MAX: u32 = 60;
        let (started, done) = (Latch::new(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                use_the_locks();
                started.open();
                while !done.load(Ordering::Relaxed) {
                    use_the_locks(); // Relaxed: nothing but the end hangs on it.
                }
            });
            started.wait();
            let mut statuses = Vec::new();
            for _ in 0..FORKS {
                // SAFETY: the child uses what is tested here, and ends without the parent's handlers.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: concerns this process alone.
                    unsafe { libc::alarm(CHILD_SECONDS_MAX) };
                    use_the_locks();
                    // SAFETY: ends this process.
                    unsafe { libc::_exit(0) };
                }
                let mut status = -1;
                // SAFETY: waits for the child that was just made.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                statuses.push(status);
                if status != 0 {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed); // Relaxed: as above.
            assert_eq!(statuses, [0; FORKS], "a child hung");
        });
    }
}
