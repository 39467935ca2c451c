//! A thread beside a program, for work that no caller waits for; and moments of other threads that forks wait for.
//!
//! It blocks all signals. While it works it holds a lock of the process. A fork waits for that lock, and so does a thread that needs the
//! background thread at rest. The child of a fork has no such thread.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::time::Duration;

use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::thread::{self, Thread};
use uruk_core::sync::{Arc, Process};

use super::tls::SignalsBlocked;
use super::{forks, threads};
use crate::memory::{self, HeldOverForks as _, StaticForkLock};

/// Held by such a thread while it works. A fork takes it before all other locks of the runtime and of memory, which the thread may need.
static AT_REST: StaticForkLock<()> = StaticForkLock::new(());

/// Held for a moment by threads that look where stubs lead, or lead them elsewhere: taken after [`AT_REST`], and before all other locks.
static STUBS: StaticForkLock<()> = StaticForkLock::new(());

/// Called before each fork; gone once it says `false`.
type BeforeFork = Box<dyn Fn() -> bool + Send>;

/// The calls before each fork, while nothing of ours is locked but this.
static CALLED: StaticForkLock<Vec<BeforeFork>> = StaticForkLock::new(Vec::new());

/// Has `before` called before each fork, until it says `false`. It may wait for other threads, though not for one that forks.
///
/// # Errors
/// The system's error number if it has no room for our handlers.
pub fn call_before_forks(before: impl Fn() -> bool + Send + 'static) -> Result<(), c_int> {
    watch_forks()?;
    CALLED.lock().push(Box::new(before));
    Ok(())
}

/// Runs `look` so that no fork comes in between: it takes locks of stubs, which the child would find taken. It is short, and compiles
/// nothing.
pub(crate) fn between_forks<T>(look: impl FnOnce() -> T) -> T {
    // Where the system has no room for handlers, a child takes its chance.
    let _ = watch_forks();
    let _held = STUBS.lock();
    look()
}

/// Waits until no such thread works.
pub(crate) fn wait_for_rest() {
    drop(AT_REST.lock());
}

/// Has forks wait for such threads.
///
/// Before a fork, the handlers run first that were registered last. Others of ours took the locks of memory, and waited for a thread that
/// waited for these.
fn watch_forks() -> Result<(), c_int> {
    extern "C" fn before() {
        CALLED.lock().retain(|before| before());
        CALLED.hold();
        AT_REST.hold();
        STUBS.hold();
    }
    extern "C" fn after_in_parent() {
        // SAFETY: this thread has run `before`.
        unsafe {
            STUBS.let_go();
            AT_REST.let_go();
            CALLED.let_go();
        }
    }
    extern "C" fn after_in_child() {
        // SAFETY: this thread has run `before`, and is the only one.
        unsafe {
            STUBS.renew();
            AT_REST.renew();
            CALLED.renew();
        }
    }
    static INSTALLED: OnceLock<c_int> = OnceLock::new();
    forks::watch()?;
    memory::watch_forks()?;
    let code = *INSTALLED.get_or_init(|| {
        // SAFETY: as for the handlers of `forks`.
        unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) }
    });
    if code == 0 { Ok(()) } else { Err(code) }
}

/// The thread's next action.
#[derive(Clone, Copy, Debug)]
pub enum Next {
    /// Another step, unless it is stopped.
    Step,
    /// It sleeps until it is woken, or for so long.
    Rest(Option<Duration>),
    /// The thread ends.
    End,
}

/// One thread, which may not have been started yet.
#[derive(Debug)]
pub struct BackgroundThread {
    name: &'static str,
    stands_back: bool,
    process: Process,
    is_started: AtomicBool,
    is_stopped: AtomicBool,
    thread: OnceLock<Thread>,
}

impl BackgroundThread {
    /// A thread that has not been started. If it `stands_back`, it runs when hardly any other thread wants the processor: not for work that
    /// a caller may come to wait for.
    pub fn new(name: &'static str, stands_back: bool) -> Self {
        Self {
            name,
            stands_back,
            process: Process::current(),
            is_started: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            thread: OnceLock::new(),
        }
    }

    /// Whether this is the process that the thread is in, or will be.
    pub(crate) fn is_here(&self) -> bool {
        Process::current() == self.process
    }

    /// The thread, once it has been started.
    pub(crate) fn thread(&self) -> Option<&Thread> {
        self.thread.get()
    }

    /// Starts the thread, once, which does `step` after `step`. If the system refuses, another time.
    pub fn start(this: &Arc<Self>, step: impl FnMut() -> Next + Send + 'static) {
        // Relaxed: one of those who try wins, and nothing hangs on it.
        if this.is_started.swap(true, Ordering::Relaxed) {
            return;
        }
        let run = {
            let this = this.clone();
            move || this.run(step)
        };
        let spawn = || thread::Builder::new().name(this.name.to_owned()).spawn(run).ok();
        match watch_forks().ok().and_then(|()| spawn()) {
            // A thread that had work for it meanwhile found no thread to wake.
            Some(thread) => this.thread.get_or_init(|| thread.thread().clone()).unpark(),
            None => this.is_started.store(false, Ordering::Relaxed), // as above
        }
    }

    /// It ends after what it does now. Does not wait.
    pub fn stop(&self) {
        // ordering[background-stops]: Release. Pairs with the Acquire in `run`: what was done before the stop is seen by what ends.
        self.is_stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get().filter(|_| self.is_here()) {
            thread.unpark();
        }
    }

    fn run(&self, mut step: impl FnMut() -> Next) {
        let _signals = SignalsBlocked::now();
        if self.stands_back {
            threads::stand_back();
        }
        loop {
            let rest = AT_REST.lock();
            // ordering[background-stops]: Acquire.
            if self.is_stopped.load(Ordering::Acquire) {
                return;
            }
            match step() {
                Next::Step => {}
                Next::Rest(time) => {
                    drop(rest);
                    time.map_or_else(thread::park, thread::park_timeout);
                }
                Next::End => return,
            }
        }
    }
}
