//! Locks of the runtime that are held over a fork.
//!
//! When a thread forks, other threads may hold locks. The child has no such threads: it would wait for ever as soon as its program starts a
//! thread, touches a thread-local variable for the first time, or asks `dladdr`.
//!
//! ```text
//!   before         GATE, then each known lock in the order of LockOrder
//!   after, parent  each of them is unlocked, the last one first; GATE
//!   after, child   each of them is made anew, the last one first; GATE
//! ```
//! A [`RuntimeLock`] is known to forks before it is taken for the first time, so this file need not know the owners. `GATE` is held while a
//! lock becomes known. So a fork releases exactly the locks that it has taken, and two forks come one after the other.
//!
//! Linked code's own handlers run before ours take the locks and after they let them go: [`exit`](super::exit) asks for
//! ours before it notes the program's.

use std::ffi::c_int;
use std::ptr;
use std::sync::OnceLock;

use uruk_core::sync::MutexGuard;

use crate::memory::{HeldOverForks, StaticForkLock};

/// The order in which a fork takes the locks. No thread takes one of them while holding another, but for the last two. So any order of the
/// others will do. Locks of a thread that compiles and links have handlers of their own: [`background`](super::background).
#[derive(Clone, Copy, Debug)]
pub(super) enum LockOrder {
    TlsReserve,
    TlsModules,
    ProgramImage,
    LowEntries,
    TlsDistances,
    TlsDescriptors,
    ProgramSymbols,
    ExitHandlers,
    UnwindIndex,
    Stubs,
    StubCells,
    /// Debuggers and profilers, under whose lock that of the names is taken.
    CodeWatchers,
    CodeNames,
}

impl LockOrder {
    const COUNT: usize = Self::CodeNames as usize + 1;
}

/// The locks that are known, by their order. Set once each, while [`GATE`] is held.
static KNOWN: [OnceLock<&'static dyn HeldOverForks>; LockOrder::COUNT] =
    [const { OnceLock::new() }; LockOrder::COUNT];

/// Held while a lock becomes known, and over a whole fork, where it is the first.
static GATE: StaticForkLock<()> = StaticForkLock::new(());

/// A lock of the process's, which a fork finds at rest once [`watch`] has succeeded.
pub(super) struct RuntimeLock<T: Send + 'static> {
    order: LockOrder,
    lock: StaticForkLock<T>,
    in_child: fn(&mut T),
}

impl<T: Send> RuntimeLock<T> {
    /// Creates an unlocked lock.
    pub(super) const fn new(order: LockOrder, value: T) -> Self {
        Self::with_change(order, value, |_| ())
    }

    /// The same; `in_child` changes the value in the child of each fork.
    pub(super) const fn with_change(order: LockOrder, value: T, in_child: fn(&mut T)) -> Self {
        Self { order, lock: StaticForkLock::new(value), in_child }
    }

    /// Waits for the lock.
    pub(super) fn lock(&'static self) -> MutexGuard<'static, T> {
        hold_over_forks(self.order, self);
        self.lock.lock()
    }
}

impl<T: Send> HeldOverForks for RuntimeLock<T> {
    fn hold(&'static self) {
        self.lock.hold();
    }

    unsafe fn let_go(&'static self) {
        // SAFETY: passed on to the caller.
        unsafe { self.lock.let_go() };
    }

    unsafe fn renew(&'static self) {
        // SAFETY: passed on to the caller.
        unsafe { self.lock.renew_with(self.in_child) };
    }
}

/// Has forks take `lock`, from now on. Called before each use of the lock that may be the first.
///
/// # Cost
/// A load, but for the first call.
pub(super) fn hold_over_forks(order: LockOrder, lock: &'static dyn HeldOverForks) {
    let known = &KNOWN[order as usize];
    if known.get().is_some() {
        return;
    }
    // Not `get_or_init`: a fork that comes while another thread is in there leaves it unfinished in the child. No fork comes here.
    let _gate = GATE.lock();
    let is_first = known.set(lock).is_ok();
    debug_assert!(
        is_first || known.get().is_some_and(|other| ptr::addr_eq(*other, lock)),
        "two locks are called {order:?}"
    );
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

fn known() -> impl DoubleEndedIterator<Item = &'static dyn HeldOverForks> {
    KNOWN.iter().filter_map(|known| known.get().copied())
}

extern "C" fn before() {
    GATE.hold();
    known().for_each(HeldOverForks::hold);
}

extern "C" fn after_in_parent() {
    // SAFETY: this thread has run `before`, and no lock has become known since.
    unsafe {
        known().rev().for_each(|lock| lock.let_go());
        GATE.let_go();
    }
}

extern "C" fn after_in_child() {
    // SAFETY: as above, and this thread is the only one.
    unsafe {
        known().rev().for_each(|lock| lock.renew());
        GATE.renew();
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
