//! [`ThreadSafeContext`]: an LLVM context behind a lock, with a diagnostic handler from its first moment.
//!
//! Holds: a context is used by one thread at a time. It is disposed of after the last module in it, or, if
//! LLVM gave up while using it, never. Who holds one is recorded, so that a thread can be refused to wait
//! for somebody who may want the same context.

use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use llvm_sys::LLVMDiagnosticSeverity::{LLVMDSError, LLVMDSWarning};
use llvm_sys::core::{
    LLVMContextCreate, LLVMContextDispose, LLVMContextSetDiagnosticHandler, LLVMGetDiagInfoDescription,
    LLVMGetDiagInfoSeverity,
};
use llvm_sys::prelude::{LLVMContextRef, LLVMDiagnosticInfoRef};
use uruk_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uruk_core::sync::{Mutex, MutexGuard};

use super::ffi::take_message;

/// An LLVM context that several threads may own and one at a time may use.
///
/// # Concurrency
/// Modules of one context are worked on one after another. Give each module a context of its own, which is
/// what reading one does by default, to work on them at the same time.
///
/// Source: ORC `ThreadSafeContext`.
#[derive(Clone)]
pub struct ThreadSafeContext(Arc<Inner>);

struct Inner {
    raw: LLVMContextRef,
    lock: Mutex<()>,
    /// The token of the thread that holds `lock`, or 0.
    holder: AtomicU64,
    /// Whether LLVM gave up while using the context.
    lost: AtomicBool,
    /// Where the diagnostic handler writes; boxed by the `Arc`, so it does not move.
    diagnostics: Mutex<Diagnostics>,
}

/// What LLVM reported since the context was taken.
#[derive(Debug, Default)]
struct Diagnostics {
    errors: Vec<String>,
    /// Errors beyond those kept.
    errors_dropped: usize,
    warnings: Vec<String>,
}

/// How many errors and warnings of one stage are kept.
const DIAGNOSTICS_MAX: usize = 16;

impl ThreadSafeContext {
    /// Creates a context nobody else uses.
    pub fn new() -> Self {
        super::target::initialize();
        // SAFETY: creating a context has no obligations; `Inner` takes the ownership.
        let raw = unsafe { LLVMContextCreate() };
        let context = Self(Arc::new(Inner {
            raw,
            lock: Mutex::new(()),
            holder: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            diagnostics: Mutex::default(),
        }));
        context.0.install_handler();
        context
    }

    /// Whether the calling thread holds any context right now. Such a thread must not wait for a symbol:
    /// whoever provides it may be waiting for the context.
    pub fn held_by_current_thread() -> bool {
        HELD.get() > 0
    }

    /// Waits for the context and takes it.
    ///
    /// # Panics
    /// If this thread has it already: it would wait for itself for ever.
    pub(super) fn lock(&self) -> ContextGuard<'_> {
        let token = thread_token();
        // Relaxed: only this thread stores this thread's token, so it reads its own store or another value.
        let holder = self.0.holder.load(Ordering::Relaxed);
        assert_ne!(
            holder, token,
            "a module is used inside the closure that uses a module of the same context"
        );
        let guard = self.0.lock.lock();
        // Relaxed: see above; other threads' values are compared with nothing.
        self.0.holder.store(token, Ordering::Relaxed);
        HELD.set(HELD.get() + 1);
        *self.0.diagnostics.lock() = Diagnostics::default();
        ContextGuard { context: &self.0, _lock: guard }
    }

    /// Whether LLVM gave up on the context. Asked while this thread has it.
    pub(super) fn is_lost(&self) -> bool {
        // Relaxed: written and read under the context's lock.
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Whether this thread has the context.
    pub(super) fn is_held_by_me(&self) -> bool {
        // Relaxed: as in `lock`.
        self.0.holder.load(Ordering::Relaxed) == thread_token()
    }
}

impl Default for ThreadSafeContext {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ThreadSafeContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ThreadSafeContext").field(&self.0.raw).finish()
    }
}

/// The context while this thread has it.
pub(super) struct ContextGuard<'a> {
    context: &'a Inner,
    _lock: MutexGuard<'a, ()>,
}

impl ContextGuard<'_> {
    pub(super) fn raw(&self) -> LLVMContextRef {
        self.context.raw
    }

    /// Whether LLVM gave up on the context. It may then be neither used nor freed.
    pub(super) fn is_lost(&self) -> bool {
        // Relaxed: written and read under the context's lock.
        self.context.lost.load(Ordering::Relaxed)
    }

    /// Records that LLVM gave up on the context.
    pub(super) fn lose(&self) {
        // Relaxed: written and read under the context's lock, and in `drop` after the last owner is gone.
        self.context.lost.store(true, Ordering::Relaxed);
    }

    /// The errors LLVM reported since the context was taken or this was last asked, one a line. Warnings go
    /// to the trace.
    pub(super) fn take_errors(&self, module: &str) -> Option<String> {
        let diagnostics = std::mem::take(&mut *self.context.diagnostics.lock());
        for warning in &diagnostics.warnings {
            tracing::warn!(module, "{warning}");
        }
        if diagnostics.errors.is_empty() {
            return None;
        }
        let mut message = diagnostics.errors.join("\n");
        if diagnostics.errors_dropped > 0 {
            message += &format!("\nand {} more errors", diagnostics.errors_dropped);
        }
        Some(message)
    }

    /// Puts the handler back: some helpers of inkwell's replace it and leave none behind.
    pub(super) fn restore_handler(&self) {
        self.context.install_handler();
    }
}

impl Drop for ContextGuard<'_> {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        // Relaxed: see `lock`. The lock itself is released after this, and orders everything else.
        self.context.holder.store(0, Ordering::Relaxed);
    }
}

impl Inner {
    fn install_handler(&self) {
        let sink: *const Mutex<Diagnostics> = &raw const self.diagnostics;
        // SAFETY: the context is alive, and `sink` lives in the same allocation, which goes after it. The
        // caller holds the context, or nobody knows of it yet.
        unsafe { LLVMContextSetDiagnosticHandler(self.raw, Some(record), sink.cast_mut().cast()) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Relaxed: the last owner is here, and dropping an `Arc` orders it after the others.
        if !self.lost.load(Ordering::Relaxed) {
            // SAFETY: modules own a share of the context, so none is left; nor is any other user.
            unsafe { LLVMContextDispose(self.raw) }
        }
    }
}

extern "C" fn record(info: LLVMDiagnosticInfoRef, sink: *mut c_void) {
    // SAFETY: LLVM passes a diagnostic that lives for the call and the sink `install_handler` gave it; the
    // description is a string of the kind `take_message` takes.
    let (severity, sink, message) = unsafe {
        let severity = LLVMGetDiagInfoSeverity(info);
        if severity != LLVMDSError && severity != LLVMDSWarning {
            return; // Remarks and notes are many, and nobody asked for them.
        }
        (severity, &*sink.cast::<Mutex<Diagnostics>>(), take_message(LLVMGetDiagInfoDescription(info)))
    };
    let mut diagnostics = sink.lock();
    let diagnostics = &mut *diagnostics;
    if severity == LLVMDSError {
        if diagnostics.errors.len() < DIAGNOSTICS_MAX {
            diagnostics.errors.push(message);
        } else {
            diagnostics.errors_dropped += 1;
        }
    } else if diagnostics.warnings.len() < DIAGNOSTICS_MAX {
        diagnostics.warnings.push(message);
    }
}

thread_local! {
    /// How many contexts this thread holds.
    static HELD: Cell<usize> = const { Cell::new(0) };
    static TOKEN: Cell<u64> = const { Cell::new(0) };
}

/// A number no other thread has, and never 0.
fn thread_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let token = TOKEN.get();
    if token != 0 {
        return token;
    }
    // Relaxed: the numbers only have to differ.
    let token = NEXT.fetch_add(1, Ordering::Relaxed);
    TOKEN.set(token);
    token
}

// SAFETY: LLVM lets any thread use a context as long as one does at a time: every use goes through `lock`,
// and `drop` has the only reference left.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holding_a_context_is_seen_by_the_thread_that_does() {
        let (first, second) = (ThreadSafeContext::new(), ThreadSafeContext::new());
        assert!(!ThreadSafeContext::held_by_current_thread());
        let outer = first.lock();
        let inner = second.lock();
        assert!(ThreadSafeContext::held_by_current_thread());
        assert!(first.is_held_by_me());
        drop(inner);
        assert!(!second.is_held_by_me());
        assert!(ThreadSafeContext::held_by_current_thread());
        let elsewhere = uruk_core::sync::thread::scope(|scope| {
            scope.spawn(ThreadSafeContext::held_by_current_thread).join().expect("no panic")
        });
        assert!(!elsewhere);
        drop(outer);
        assert!(!ThreadSafeContext::held_by_current_thread());
    }

    #[test]
    #[should_panic(expected = "same context")]
    fn taking_a_context_twice_on_one_thread_is_refused() {
        let context = ThreadSafeContext::new();
        let _guard = context.lock();
        let _again = context.lock();
    }
}
