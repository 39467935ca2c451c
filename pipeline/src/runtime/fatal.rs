//! The end of the process by a signal: a report is written first.
//!
//! ```text
//!   signal ─▶ end_by ─▶ frames, and the latest text ─▶ stderr ─▶ SIG_DFL ─▶ the same signal again
//! ```
//!
//! Our handler stands where a signal would end the process by its default. So the status is that of the signal, and a core file has the
//! frames of the program. The handler runs on a stack of its own, so that the report of a full stack is written too.
//!
//! The program does not see it: the handler shows itself as `SIG_DFL`, and its stack as none (`Shown`, `sigaltstack`). A signal that is
//! ignored stays ignored. `SIG_DFL` of the program's leads here again. Two things differ from a native process:
//!
//! - a handler with `SA_RESETHAND` leaves the system's default behind, and no report;
//! - a handler with `SA_ONSTACK` runs on our stack while the program has none of its own.
//!
//! A fault, or an abort, is reported with the frames of its thread ([`frames`](super::frames)), by the names that linked code has in
//! `debug/`. Names are those of the object: demangling would allocate. So would lines of sources.
//!
//! **Never** does the handler allocate or take a lock. It waits for a reader of stderr for a second, and then gives up.
//!
//! Holds: nothing is installed before [`report_at_fatal_signals`] is called. The child of a fork reports nothing.

use std::ffi::{c_char, c_int, c_void};
use std::fmt::{self, Write as _};
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use uruk_core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::frames;
use crate::arch::host;

/// The text that is written when a signal ends the process.
///
/// | `text` | next |
/// |---|---|
/// | null | [`set`](Self::set) puts a text there |
/// | a text | `set` swaps it for a newer one and frees it; the handler swaps it for null, and owns it to the end |
#[derive(Debug)]
pub struct FatalReport {
    began: Instant,
    /// A child has a copy of all this, and nothing to report.
    process: u32,
    text: AtomicPtr<String>,
    /// Whether a thread writes the report.
    is_ending: AtomicBool,
    is_withdrawn: AtomicBool,
    signals: ReportedSignals,
    frames: WriteFrames,
    /// Which stack of ours each thread has.
    stack: libc::pthread_key_t,
}

static REPORT: OnceLock<Option<FatalReport>> = OnceLock::new();

/// Stands at the end of the report's last line.
static HINT: OnceLock<String> = OnceLock::new();

/// The signals that are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedSignals {
    /// All that end a process.
    All,
    /// Those that a defect of the program leads to.
    Faults,
}

/// Writes the frames of the thread that a signal has stopped: [`frames`](super::frames) has the function. The last argument is that of the
/// handler.
pub type WriteFrames = unsafe fn(&mut dyn fmt::Write, *const c_void) -> fmt::Result;

/// Told of a fault in place of a report: the signal, and the address of the instruction in the innermost frame of the code that is asked for. Called in
/// the signal's handler.
pub type TellFault = fn(c_int, u64);

/// The function that is told, and the code that is asked for.
static TOLD: OnceLock<(TellFault, std::ops::Range<u64>)> = OnceLock::new();

/// Has `tell` told of faults and aborts, and nothing written. To be called once, before the process has threads of the program's.
///
/// Handlers that the language of this process has installed for its own reports give way: the program begins without any, as natively.
pub fn tell_faults(code: std::ops::Range<u64>, tell: TellFault) {
    if TOLD.set((tell, code)).is_ok() {
        FAULTS.into_iter().for_each(remove_handler);
        report_at_fatal_signals(ReportedSignals::Faults, frames::write_of_signal);
    }
}

/// The signals of faults and aborts.
const FAULTS: [c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];

/// How long stderr is waited for, and a thread that writes there.
const PATIENCE: Duration = Duration::from_secs(1);

/// So much fits where stderr can be written to.
const CHUNK_BYTES: usize = 512;

/// Room for handlers of the program's too: see the module.
const STACK_BYTES: usize = 256 << 10;

/// The signals that do not end a process by their default, and the one that nothing can be done about.
const HARMLESS: [c_int; 9] = [
    libc::SIGKILL,
    libc::SIGSTOP,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGCONT,
    libc::SIGCHLD,
    libc::SIGURG,
    libc::SIGWINCH,
];

/// Has the process write a report when a signal ends it. To be called once, before the process has threads of the program's.
///
/// Of a fault the report has what `frames` writes, whichever `signals` are asked for.
///
/// `None` where the system lacks room, and for the first process of a system: its signals do nothing by default.
pub fn report_at_fatal_signals(
    signals: ReportedSignals,
    frames: WriteFrames,
) -> Option<&'static FatalReport> {
    let new = || {
        let mut stack = 0;
        // SAFETY: the key can be written; `give_back_stack` takes what `give_stack` stores.
        let is_refused = unsafe { libc::pthread_key_create(&raw mut stack, Some(give_back_stack)) } != 0;
        if is_refused || std::process::id() == 1 {
            return None;
        }
        let (began, process, text) = (Instant::now(), std::process::id(), AtomicPtr::new(ptr::null_mut()));
        let (is_ending, is_withdrawn) = (AtomicBool::new(false), AtomicBool::new(false));
        Some(FatalReport { began, process, text, is_ending, is_withdrawn, signals, frames, stack })
    };
    let report = REPORT.get_or_init(new).as_ref()?;
    give_stack();
    (1..=libc::SIGRTMAX()).for_each(stand_in_for_default);
    Some(report)
}

/// Has the last line of the report end with `hint`, if there is a report: it says where to read on. The first hint stays.
pub fn set_hint(hint: String) {
    // The first stays.
    drop(HINT.set(hint));
}

fn installed() -> Option<&'static FatalReport> {
    REPORT.get()?.as_ref()
}

impl FatalReport {
    /// Sets what is written, in place of what was set before.
    pub fn set(&self, text: String) {
        self.swap(Box::into_raw(Box::new(text)));
    }

    /// Has nothing written from here on: it has been said.
    pub fn withdraw(&self) {
        // Relaxed: a signal that comes at this moment may find either.
        self.is_withdrawn.store(true, Ordering::Relaxed);
    }

    fn swap(&self, text: *mut String) {
        // ordering[fatal-report]: AcqRel. Pairs with itself: the thread that takes a text sees all of it.
        let before = self.text.swap(text, Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: `set` made the box, and one swap has taken it out.
            drop(unsafe { Box::from_raw(before) });
        }
    }

    /// The same as [`write`](Self::write), on this thread's stack of ours: the program's may have room for a small handler alone, as Rust's has.
    ///
    /// # Safety
    /// As there.
    unsafe fn write_on_our_stack(&self, signal: c_int, context: *const c_void) {
        type Work<'report> = (&'report FatalReport, c_int, *const c_void);
        extern "C" fn run(work: *mut c_void) {
            // SAFETY: the pointer that is handed over below, and the caller's obligation.
            unsafe {
                let (report, signal, context) = *work.cast::<Work<'_>>();
                report.write(signal, context);
            }
        }
        let mut work: Work<'_> = (self, signal, context);
        // SAFETY: the key is ours. The stack is this thread's, and nothing is on it while the handler runs elsewhere.
        unsafe {
            let ours = libc::pthread_getspecific(self.stack).addr();
            let is_here = (ours..ours.saturating_add(STACK_BYTES)).contains(&(&raw const work).addr());
            if ours == 0 || is_here {
                return self.write(signal, context);
            }
            host::call_on(run, (&raw mut work).cast(), ours + STACK_BYTES);
        }
    }

    /// Writes the report to stderr.
    ///
    /// # Safety
    /// `context` is the third argument of the handler.
    unsafe fn write(&self, signal: c_int, context: *const c_void) {
        if let Some((tell, code)) = TOLD.get() {
            // SAFETY: the caller's obligation.
            return tell(signal, unsafe {
                frames::find_of_signal(context, |address| code.contains(&address))
            });
        }
        // ordering[fatal-report]: AcqRel. Pairs with itself, as in `swap`.
        let text = self.text.swap(ptr::null_mut(), Ordering::AcqRel);
        // Relaxed: as in `withdraw`.
        if self.is_withdrawn.load(Ordering::Relaxed) {
            return;
        }
        let mut stderr = Stderr { until: Instant::now() + PATIENCE };
        // SAFETY: the text was taken, and is never freed: this process ends.
        let text = unsafe { text.as_ref() }.map_or("", String::as_str);
        let hint = HINT.get().map_or("", String::as_str);
        if FAULTS.contains(&signal) {
            // The rest is lost where stderr takes no more.
            // SAFETY: the caller's obligation.
            _ = writeln!(stderr).and_then(|()| unsafe { (self.frames)(&mut stderr, context) });
        }
        _ = writeln!(stderr, "\n{text}{}", LastLine { signal, after: self.began.elapsed(), hint });
    }
}

/// The last line: which signal came, and when.
struct LastLine<'hint> {
    signal: c_int,
    after: Duration,
    hint: &'hint str,
}

impl fmt::Display for LastLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { signal, after, hint } = self;
        write!(f, "ended by signal {signal}")?;
        // SAFETY: answers a terminated string that stays, or null. It allocates nothing.
        let name = unsafe { sigabbrev_np(*signal).as_ref().map(|name| std::ffi::CStr::from_ptr(name)) };
        if let Some(name) = name.and_then(|name| name.to_str().ok()) {
            write!(f, " (SIG{name})")?;
        }
        write!(f, ", {}.{:03} s after start", after.as_secs(), after.subsec_millis())?;
        // SAFETY: plain numbers, which the call fills.
        let usage = unsafe {
            let mut usage: libc::rusage = mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
            usage
        };
        let tenths = usage.ru_maxrss * 10 / 1024;
        write!(f, "; resident: {}.{} MiB at most", tenths / 10, tenths % 10)?;
        if hint.is_empty() { Ok(()) } else { write!(f, "; {hint}") }
    }
}

/// Standard error, without a lock or a buffer, for so long.
struct Stderr {
    until: Instant,
}

impl fmt::Write for Stderr {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let left = self.until.saturating_duration_since(Instant::now()).as_millis() as c_int;
            let mut ready = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
            // SAFETY: one entry, which can be written; the bytes can be read.
            let written = unsafe {
                if libc::poll(&raw mut ready, 1, left) != 1 {
                    return Err(fmt::Error);
                }
                libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len().min(CHUNK_BYTES))
            };
            rest = usize::try_from(written).ok().and_then(|written| rest.get(written..)).ok_or(fmt::Error)?;
        }
        Ok(())
    }
}

/// The handler.
extern "C" fn end_by(signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: all of it may be done in a handler, and the sets and actions live in this frame. A thread that was interrupted goes on with the
    // mask that it had, under which the signal comes again.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let by_default: libc::sigaction = mem::zeroed();
        if let Some(report) = installed().filter(|report| report.process == libc::getpid() as u32) {
            // Relaxed: one of the threads that are interrupted writes, and nothing else hangs on it.
            if report.is_ending.swap(true, Ordering::Relaxed) {
                // The other thread ends the process.
                libc::poll(ptr::null_mut(), 0, 2 * PATIENCE.as_millis() as c_int);
            } else {
                // That stderr has no reader is not what ends the process.
                let mut ignored = by_default;
                ignored.sa_sigaction = libc::SIG_IGN;
                libc::sigaction(libc::SIGPIPE, &raw const ignored, ptr::null_mut());
                report.write_on_our_stack(signal, context);
            }
        }
        libc::sigaction(signal, &raw const by_default, ptr::null_mut());
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
    }
}

fn handler() -> libc::sighandler_t {
    end_by as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as libc::sighandler_t
}

/// Puts the system's default where a function handles the signal. One that is ignored stays ignored.
fn remove_handler(signal: c_int) {
    // SAFETY: the action is filled before it is read, and zeroed is the default. Signals that cannot be had are refused.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        let is_known = libc::sigaction(signal, ptr::null(), &raw mut action) == 0;
        if is_known && ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) {
            let by_default: libc::sigaction = mem::zeroed();
            libc::sigaction(signal, &raw const by_default, ptr::null_mut());
        }
    }
}

/// Puts the handler where a signal would end the process, if reports are wanted.
pub(super) fn stand_in_for_default(signal: c_int) {
    let Some(report) = installed() else { return };
    if HARMLESS.contains(&signal) || (report.signals == ReportedSignals::Faults && !FAULTS.contains(&signal))
    {
        return;
    }
    // SAFETY: the action is filled before it is read. The handler may interrupt anything. Signals that cannot be had are refused.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        let is_known = libc::sigaction(signal, ptr::null(), &raw mut action) == 0;
        if is_known && action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = handler();
            // Only with SA_SIGINFO does the system of AArch64 say what was stopped.
            action.sa_flags |= libc::SA_ONSTACK | libc::SA_SIGINFO;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

/// A handler, or an action, as the program sees it.
pub(super) trait Shown {
    /// The same without ours.
    fn shown(self) -> Self;
}

impl Shown for libc::sighandler_t {
    fn shown(self) -> Self {
        if self == handler() { libc::SIG_DFL } else { self }
    }
}

impl Shown for libc::sigaction {
    fn shown(self) -> Self {
        if self.sa_sigaction != handler() {
            return self;
        }
        const SA_RESTORER: c_int = 0x0400_0000;
        let sa_flags = self.sa_flags & !(libc::SA_ONSTACK | libc::SA_SIGINFO | SA_RESTORER);
        Self { sa_sigaction: libc::SIG_DFL, sa_flags, sa_restorer: None, ..self }
    }
}

/// Gives this thread a stack for the handler, if reports are wanted and it has none. It goes with the thread.
pub(super) fn give_stack() {
    let Some(report) = installed() else { return };
    // SAFETY: a new mapping is this thread's alone. The calls have no other obligation.
    unsafe {
        if !libc::pthread_getspecific(report.stack).is_null() {
            return;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        let stack =
            libc::mmap(ptr::null_mut(), STACK_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if stack == libc::MAP_FAILED {
            return;
        }
        if libc::pthread_setspecific(report.stack, stack) == 0 {
            use_stack(stack);
        } else {
            libc::munmap(stack, STACK_BYTES);
        }
    }
}

/// # Safety
/// `stack` is one of ours.
unsafe fn use_stack(stack: *mut c_void) {
    let stack = libc::stack_t { ss_sp: stack, ss_flags: 0, ss_size: STACK_BYTES };
    // SAFETY: the caller's obligation. Where the system refuses, the report of a full stack is missing.
    unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
}

/// The thread ends.
extern "C" fn give_back_stack(stack: *mut c_void) {
    // SAFETY: `give_stack` mapped it for this thread, and no handler of ours returns there.
    unsafe {
        let mut used: libc::stack_t = mem::zeroed();
        libc::sigaltstack(ptr::null(), &raw mut used);
        if used.ss_sp == stack {
            let none = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            libc::sigaltstack(&raw const none, ptr::null_mut());
        }
        libc::munmap(stack, STACK_BYTES);
    }
}

/// `sigaltstack` for linked code: without a stack of its own it has ours, which it does not see.
///
/// # Safety
/// As for the C library's function.
pub(super) unsafe extern "C" fn sigaltstack(new: *const libc::stack_t, before: *mut libc::stack_t) -> c_int {
    // SAFETY: the caller's obligation, passed on. Both may be the same.
    unsafe {
        let is_given_up = new.as_ref().is_some_and(|new| new.ss_flags & libc::SS_DISABLE != 0);
        let result = libc::sigaltstack(new, before);
        let ours = installed().map_or(ptr::null_mut(), |report| libc::pthread_getspecific(report.stack));
        if result != 0 || ours.is_null() {
            return result;
        }
        if let Some(before) = before.as_mut().filter(|before| before.ss_sp == ours) {
            *before = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        }
        if is_given_up {
            use_stack(ours);
        }
        result
    }
}

/// Whether reports are wanted.
pub(super) fn is_reporting() -> bool {
    installed().is_some()
}

unsafe extern "C" {
    fn sigabbrev_np(signal: c_int) -> *const c_char;
}
