//! [`ThreadSafeContext`]: an LLVM context behind a lock, with a diagnostic handler from its first moment.
//!
//! Holds: a context is used by one thread at a time. It is disposed of after the last module in it, or, if LLVM gave up while using it,
//! never. Each holder is recorded, with the place where it took the context. So a thread can be refused to wait for another thread that may
//! want the same context.
//!
//! Tasks do not meet at the lock: those that compile modules of one context run one after another, by the context's
//! [queue](ThreadSafeContext::serial_queue). Other users take the lock for a moment: a module's symbols are read when it is defined, an
//! embedder looks at a module. Dropping a module waits for no lock: a module of a busy context is left to the lock's holder.
//!
//! ```text
//!  drop of a module: put it among the abandoned ─ try the lock ─┬─ got it: dispose of the abandoned ─ unlock ─ look again
//!                                                               └─ not: the holder disposes of them when it is done
//!  holder:           … ─ dispose of the abandoned ─ unlock ─ look again: some, and the lock is free? take it, dispose
//! ```
//!
//! None is forgotten: a thread that fails to get the lock has put its module there before, and the holder looks again after it has released
//! the lock.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::sync::Arc;

use llvm_sys::LLVMDiagnosticSeverity::{LLVMDSError, LLVMDSWarning};
use llvm_sys::core::{
    LLVMContextCreate, LLVMContextDispose, LLVMContextSetDiagnosticHandler, LLVMDisposeModule,
    LLVMGetDiagInfoDescription, LLVMGetDiagInfoSeverity,
};
use llvm_sys::prelude::{LLVMContextRef, LLVMDiagnosticInfoRef, LLVMModuleRef};
use uruk_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uruk_core::sync::{Mutex, MutexGuard};
use uruk_core::{HeldResource, SerialQueue};

use super::error::CompileError;
use super::ffi::take_message;

/// An LLVM context that several threads may own and one at a time may use.
///
/// # Concurrency
/// Modules of one context are worked on one after another, without a thread that waits: units of them are tasks of the context's
/// [queue](Self::serial_queue). To work on modules at the same time, give each a context of its own; reading a module does so by default.
///
/// # Examples
/// ```
/// use uruk_pipeline::ir::{ThreadSafeContext, ThreadSafeModule};
///
/// // Two modules of one context are compiled one after another.
/// let context = ThreadSafeContext::new();
/// let modules = ["first", "second"].map(|name| ThreadSafeModule::new(&context, name));
/// std::thread::spawn(move || drop(modules)).join().unwrap();
/// ```
///
/// ORC: `ThreadSafeContext`.
#[derive(Clone)]
pub struct ThreadSafeContext(Arc<SharedContext>);

struct SharedContext {
    raw: LLVMContextRef,
    lock: Mutex<()>,
    /// Where tasks that will use the context wait.
    queue: SerialQueue,
    /// Modules without owner, to be disposed of by the present or next holder of `lock`.
    abandoned: Mutex<Vec<Abandoned>>,
    /// How often `lock` was not free.
    contentions: AtomicU64,
    /// The token of the thread that holds `lock`, or 0.
    holder: AtomicU64,
    /// Whether LLVM gave up while using the context.
    lost: AtomicBool,
    /// Where the diagnostic handler writes; boxed by the `Arc`, so it does not move.
    diagnostics: Mutex<Diagnostics>,
}

/// LLVM's messages since the context was taken.
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
    /// Creates a context that no other module or host uses.
    ///
    /// # Panics
    /// If LLVM is loaded when it is first needed (feature `lazy-llvm`), this is the first need, and it cannot be loaded.
    #[track_caller]
    pub fn new() -> Self {
        Self::try_new().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same.
    ///
    /// # Errors
    /// [`CompileError::Library`].
    pub(super) fn try_new() -> Result<Self, CompileError> {
        super::target::initialize()?;
        // SAFETY: creating a context has no obligations; `SharedContext` takes the ownership.
        let raw = unsafe { LLVMContextCreate() };
        let context = Self(Arc::new(SharedContext {
            raw,
            lock: Mutex::new(()),
            queue: SerialQueue::new(),
            abandoned: Mutex::default(),
            contentions: AtomicU64::new(0),
            holder: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            diagnostics: Mutex::default(),
        }));
        context.0.install_handler();
        Ok(context)
    }

    /// Whether the calling thread holds any context right now. Such a thread must not wait for a symbol: the thread that provides it may be
    /// waiting for the context.
    pub fn held_by_current_thread() -> bool {
        HELD.with(|held| !held.borrow().is_empty())
    }

    /// The context that the calling thread took last and still holds, and where it took it; for
    /// [`ExecutionSessionBuilder::refuse_waits_while`](uruk_core::ExecutionSessionBuilder::refuse_waits_while).
    pub fn held_resource() -> Option<HeldResource> {
        let taken_at = HELD.with(|held| held.borrow().last().map(|(_, place)| *place))?;
        Some(HeldResource { what: "an LLVM context", taken_at: Some(taken_at) })
    }

    /// Whether another module, or a host, has the context too.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// The queue of the tasks that use the context, in which they wait on no thread.
    ///
    /// A unit that uses modules of the context names it as its
    /// [`serial_queue`](uruk_core::MaterializationUnit::serial_queue), and may leave it once the object is there.
    pub fn serial_queue(&self) -> &SerialQueue {
        &self.0.queue
    }

    /// How often a thread had to wait for the context since it was made: not at all while everybody who works on its modules
    /// does so from its queue.
    pub fn contentions(&self) -> u64 {
        // Relaxed: a count for people.
        self.0.contentions.load(Ordering::Relaxed)
    }

    /// Waits for the context and takes it.
    ///
    /// # Panics
    /// If this thread has it already: it would wait for itself for ever.
    #[track_caller]
    pub(super) fn lock(&self) -> ContextGuard<'_> {
        let token = thread_token();
        // Relaxed: only this thread stores this thread's token, so it reads its own store or another value.
        let holder = self.0.holder.load(Ordering::Relaxed);
        assert_ne!(
            holder, token,
            "a module is used inside the closure that uses a module of the same context"
        );
        let guard = self.0.lock.try_lock().unwrap_or_else(|| {
            // Relaxed: a count for people.
            self.0.contentions.fetch_add(1, Ordering::Relaxed);
            self.0.lock.lock()
        });
        // Relaxed: see above; other threads' values are compared with nothing.
        self.0.holder.store(token, Ordering::Relaxed);
        let taken = (Arc::as_ptr(&self.0).addr(), Location::caller());
        HELD.with(|held| held.borrow_mut().push(taken));
        *self.0.diagnostics.lock() = Diagnostics::default();
        ContextGuard { context: &self.0, lock: Some(guard) }
    }

    /// Disposes of a module now if the context is free, or this thread has it. Otherwise the lock's holder disposes of it.
    pub(super) fn abandon(&self, module: LLVMModuleRef) {
        self.0.abandoned.lock().push(Abandoned(module));
        // This thread's own guard, further out, does it at its end.
        if !self.is_held_by_me() {
            self.0.dispose_if_free();
        }
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
    context: &'a SharedContext,
    /// Taken when it is dropped.
    lock: Option<MutexGuard<'a, ()>>,
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
            tracing::warn!(module, warning, "LLVM warns");
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
        let this = std::ptr::from_ref(self.context).addr();
        HELD.with(|held| {
            let mut held = held.borrow_mut();
            if let Some(taken) = held.iter().rposition(|(context, _)| *context == this) {
                held.remove(taken);
            }
            if held.is_empty() {
                *held = Vec::new(); // See `HELD`.
            }
        });
        self.context.dispose_of_abandoned();
        // Relaxed: see `lock`. The lock itself is released after this, and orders everything else.
        self.context.holder.store(0, Ordering::Relaxed);
        drop(self.lock.take());
        self.context.dispose_if_free();
    }
}

impl SharedContext {
    /// Takes the context and disposes of abandoned modules, as long as there are some and the lock is free.
    fn dispose_if_free(&self) {
        while !self.abandoned.lock().is_empty() {
            let Some(_lock) = self.lock.try_lock() else { return };
            self.dispose_of_abandoned();
        }
    }

    /// Disposes of abandoned modules. To be called while the context is held, or by its last owner.
    fn dispose_of_abandoned(&self) {
        let abandoned = std::mem::take(&mut *self.abandoned.lock());
        // Relaxed: written and read under the context's lock. LLVM's leftovers are not touched again.
        if self.lost.load(Ordering::Relaxed) {
            return;
        }
        for Abandoned(module) in abandoned {
            // SAFETY: its owner has given the module up, no other reference to it exists, and the context is alive and ours.
            unsafe { LLVMDisposeModule(module) }
        }
    }

    fn install_handler(&self) {
        let sink: *const Mutex<Diagnostics> = &raw const self.diagnostics;
        // SAFETY: the context is alive, and `sink` lives in the same allocation, which goes after it. The caller holds the context, or is
        // the only one that knows it.
        unsafe { LLVMContextSetDiagnosticHandler(self.raw, Some(record), sink.cast_mut().cast()) }
    }
}

impl Drop for SharedContext {
    fn drop(&mut self) {
        self.dispose_of_abandoned();
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
    /// The contexts this thread holds, by address, and where it took them. Never destroyed, because destructors of other variables may look
    /// symbols up, and compile. The release of the last context frees the list.
    static HELD: ManuallyDrop<RefCell<Vec<(usize, &'static Location<'static>)>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
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

/// A module without an owner.
struct Abandoned(LLVMModuleRef);

// SAFETY: it is only disposed of, by a thread that holds its context.
unsafe impl Send for Abandoned {}
// SAFETY: LLVM lets any thread use a context as long as one does at a time: every use goes through `lock`,
// and `drop` has the only reference left.
unsafe impl Send for SharedContext {}
// SAFETY: as above.
unsafe impl Sync for SharedContext {}

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
