//! Removal of code that is held: what is removed goes at once, its code when its last handle goes.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use uruk_core::sync::{Arc, Latch, Mutex};
use uruk_core::{ExecutionSession, RemovalPolicy, RemoveError, Resource, ResourceTracker, WaitError};
use uruk_pipeline::guard::GuardDomain;
use uruk_pipeline::linking::{CodeRemoval, KeepAlive, ObjectLinkingLayer};

use crate::scope::Scope;

/// The end of a removal: ready when the code that was removed is unmapped, because no [`Function`](crate::Function) holds it any more, and
/// every thread has passed that had a [`Guard`](crate::Guard).
///
/// Dropping it changes nothing. A future, for any runtime; [`wait`](Unmapping::wait) is for those who have none.
///
/// # Examples
/// ```
/// use uruk::prelude::*;
///
/// # #[cfg(feature = "llvm")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let jit = Jit::builder().threads(1).build()?;
/// let tracker = jit.create_tracker();
/// jit.in_tracker(&tracker).add_ir_text("query.ll", "define i64 @query() { ret i64 42 }")?;
/// // SAFETY: that is the function's signature.
/// let query = unsafe { jit.get::<extern "C" fn() -> i64>("query")? };
/// let unmapping = jit.remove_tracker(&tracker)?; // The name is free now.
/// assert_eq!(query(), 42); // The code is held.
/// drop(query);
/// unmapping.wait(); // Nothing is left of it.
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "llvm"))]
/// # fn main() {}
/// ```
pub struct Unmapping {
    session: ExecutionSession,
    guards: GuardDomain,
    gone: Arc<Gone>,
}

/// Whether all code of a removal has gone.
#[derive(Default)]
struct Gone {
    latch: Latch,
    wakers: Mutex<Vec<Waker>>,
}

/// Dropped behind the last code of a removal.
struct Departure(Arc<Gone>);

impl Drop for Departure {
    fn drop(&mut self) {
        // Opened first: who comes with a waker later finds it open.
        self.0.latch.open();
        let wakers = std::mem::take(&mut *self.0.wakers.lock());
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Unmapping {
    /// Whether the code is gone.
    pub fn is_done(&self) -> bool {
        self.gone.latch.is_open()
    }

    /// Blocks until the code is gone. A thread that keeps a handle of it waits for ever.
    ///
    /// # Concurrency
    /// A wait that the session knows of: a pool lets another thread do this one's work meanwhile
    /// ([`ExecutionSession::blocking`]).
    ///
    /// # Errors
    /// If this thread may not wait, because it holds an LLVM context or runs a leaf, or has a [`Guard`](crate::Guard), which may be what
    /// holds the code back.
    pub fn wait(&self) -> Result<(), WaitError> {
        if self.is_done() {
            return Ok(());
        }
        if self.guards.is_inside() {
            return Err(WaitError::Holding { held: "a guard, for which what was removed waits".into() });
        }
        self.session.blocking(|| self.gone.latch.wait())
    }
}

impl Future for Unmapping {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.is_done() {
            return Poll::Ready(());
        }
        // Cloned without the lock: it is code of the embedder.
        let waker = context.waker().clone();
        let stale = {
            let mut wakers = self.gone.wakers.lock();
            let known = wakers.iter_mut().find(|known| known.will_wake(&waker));
            match known {
                Some(known) => Some(std::mem::replace(known, waker)),
                None => {
                    wakers.push(waker);
                    None
                }
            }
        };
        drop(stale);
        // The last holder may have gone before the waker was there.
        if self.is_done() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl fmt::Debug for Unmapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unmapping").field("is_done", &self.is_done()).finish_non_exhaustive()
    }
}

impl Scope {
    /// Removes a tracker with everything that was added with it, and says when its code is gone.
    ///
    /// When this returns, its symbols are not found any more and their names are free. Code that [`Function`](crate::Function) handles
    /// hold stays mapped until the last of them is dropped, in any way of removal. This tells when that is, to
    /// who wants to know: `jit.remove_tracker(&tracker)?.await`.
    ///
    /// Code that was linked together with that of other trackers goes with the last of those, which this does not wait for.
    ///
    /// A removal of symbols that other code needs is refused, unless the engine [keeps no dependants](crate::JitBuilder::keep_dependants). In such an engine
    /// code that others have linked against refers to what was unmapped, and must not run.
    ///
    /// # Errors
    /// As [`ResourceTracker::remove`], and [`RemoveError::Foreign`] if the tracker is another engine's. Unless it was refused, the tracker is
    /// removed then too.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// let query = jit.create_tracker();
    /// jit.in_tracker(&query).add_ir_text("query.ll", "define i64 @query() { ret i64 42 }")?;
    /// // SAFETY: `query` gives a 64-bit integer, and no copy of the pointer outlives `query`.
    /// let function = unsafe { jit.get::<extern "C" fn() -> i64>("query") }?;
    /// let thread = std::thread::spawn(move || function());
    /// jit.remove_tracker(&query)?.wait()?;
    /// // No thread is inside the code any more, so its data may go.
    /// assert_eq!(thread.join().ok(), Some(42));
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// ```
    pub fn remove_tracker(&self, tracker: &ResourceTracker) -> Result<Unmapping, RemoveError> {
        self.removing_tracker(tracker, |remove| tracker.remove_by(remove))
    }

    /// Removes a tracker as [`Scope::remove_tracker`] does, with a choice of what becomes of code that refers to its symbols. The code of all
    /// that goes is waited for.
    ///
    /// # Errors
    /// As [`ResourceTracker::remove_with`]. Unless it was refused, the tracker is removed then too.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use uruk::{Jit, RemovalPolicy};
    /// let jit = Jit::builder().threads(1).build()?;
    /// let (table, query) = (jit.create_tracker(), jit.create_tracker());
    /// jit.in_tracker(&table).add_ir_text("table.ll", "define i64 @rows() { ret i64 42 }")?;
    /// jit.in_tracker(&query).add_ir_text(
    ///     "query.ll",
    ///     "declare i64 @rows()
    ///      define i64 @query() { %rows = call i64 @rows() ret i64 %rows }",
    /// )?;
    /// jit.lookup("query")?;
    /// let refused = jit.remove_tracker(&table).unwrap_err();
    /// assert!(refused.to_string().contains("needed by `query`"));
    /// jit.remove_tracker_with(&table, RemovalPolicy::Cascade)?.wait()?;
    /// assert!(jit.lookup("query").is_err());
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// ```
    pub fn remove_tracker_with(
        &self,
        tracker: &ResourceTracker,
        policy: RemovalPolicy,
    ) -> Result<Unmapping, RemoveError> {
        self.removing_tracker(tracker, |remove| tracker.remove_with_by(policy, remove))
    }

    /// Removes a tracker as [`Scope::remove_tracker`] does, even if code refers to its symbols: that code stays, and refers to nothing.
    ///
    /// # Safety
    /// Code that refers to the tracker's symbols, directly or through other code, does not run from now on, unless a
    /// [`Function`](crate::Function) keeps what it refers to. A removal that is refused says which code that is.
    ///
    /// # Errors
    /// [`RemoveError::Resources`], as [`ResourceTracker::remove`]. The tracker is removed then too.
    pub unsafe fn remove_tracker_leaving_dependants(
        &self,
        tracker: &ResourceTracker,
    ) -> Result<Unmapping, RemoveError> {
        self.removing_tracker(tracker, |remove| tracker.remove_leaving_dependants_by(remove))
    }

    /// Removes a tracker as [`Scope::remove_tracker`] does, and unmaps its code at once, even if it is held.
    ///
    /// # Safety
    /// - Nobody runs the code, and no [`Function`](crate::Function) of it is called or redefined from now on, nor of code that refers to it. Such
    ///   handles may still be dropped.
    /// - No thread that is still to end has `thread_local` objects of it whose destructors are to run, nor of code that refers to it. They
    ///   keep their code only as handles do ([`Scope::initialize`]): each would run where there is nothing any more.
    ///
    /// Handlers of `atexit` and destructors of static objects run before the code goes, as in every removal.
    ///
    /// # Errors
    /// As [`ResourceTracker::remove`].
    pub unsafe fn remove_tracker_now(&self, tracker: &ResourceTracker) -> Result<(), RemoveError> {
        self.own(tracker)?;
        tracker.remove_by(|resource| ObjectLinkingLayer::remove_resource(resource, CodeRemoval::AtOnce))
    }

    fn removing_tracker(
        &self,
        tracker: &ResourceTracker,
        operation: impl FnOnce(&mut dyn FnMut(Box<dyn Resource>) -> Removed) -> Result<(), RemoveError>,
    ) -> Result<Unmapping, RemoveError> {
        self.own(tracker)?;
        self.removing(operation)
    }

    /// The guards of another engine's threads are not known here.
    fn own(&self, tracker: &ResourceTracker) -> Result<(), RemoveError> {
        match *tracker.dylib().session() == self.engine.session {
            true => Ok(()),
            false => Err(RemoveError::Foreign { dylib: tracker.dylib().name().into() }),
        }
    }

    pub(crate) fn removing(
        &self,
        operation: impl FnOnce(&mut dyn FnMut(Box<dyn Resource>) -> Removed) -> Result<(), RemoveError>,
    ) -> Result<Unmapping, RemoveError> {
        let gone = Arc::new(Gone::default());
        let departure: KeepAlive = Arc::new(Departure(gone.clone()));
        let removal = CodeRemoval::WhenReleased(&departure);
        operation(&mut |resource| ObjectLinkingLayer::remove_resource(resource, removal))?;
        let guards = self.object_layer().guards().clone();
        Ok(Unmapping { session: self.engine.session.clone(), guards, gone })
    }
}

/// The result of removing a resource.
pub(crate) type Removed = Result<(), Box<dyn Error + Send + Sync>>;
