//! [`Scope`]: where files go and where symbols are looked up.

use std::fmt;

use uruk_core::sync::Arc;
use uruk_core::{
    DylibError, ExecutionSession, JitDylib, OwnedTracker, ResourceTracker, SearchOrder, SymbolName,
};
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::IrCompileLayer;
use uruk_pipeline::linking::ObjectLinkingLayer;

use crate::engine::Engine;

/// A dylib of an engine, or a tracker in one: files are added there, and lookups follow its link order.
///
/// Made by [`Jit::create_dylib`], [`Scope::in_dylib`] and [`Scope::in_tracker`]. A [`Jit`] is the scope of its main dylib, and has all of
/// these methods.
///
/// A scope is a counted handle. It may be cloned, returned, stored, and sent to other threads. Dropping it removes nothing, and neither does
/// dropping the last one: code goes when its [tracker](Self::remove_tracker) or [dylib](crate::Jit::remove_dylib) is removed, or with the [`Jit`].
///
/// A scope does not keep the engine running. When the [`Jit`] has been dropped or [shut down](crate::Jit::shutdown), the methods of scopes that are
/// left end with [`LookupError::Closed`], [`DefineError::Closed`] or [`DylibError::Closed`]. Such a scope holds the engine's own memory, for
/// example its address range for code. Drop it when it is of no more use.
///
/// [`Jit`]: crate::Jit
/// [`Jit::create_dylib`]: crate::Jit::create_dylib
/// [`LookupError::Closed`]: uruk_core::LookupError::Closed
/// [`DefineError::Closed`]: uruk_core::DefineError::Closed
///
/// # Concurrency
/// Every method may be called from any thread, also while the engine ends.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), uruk::JitError> {
/// # let jit = uruk::Jit::builder().threads(1).build()?;
/// let (host, plugin) = (jit.create_dylib("host")?, jit.create_dylib("plugin")?);
/// plugin.link_to(&host)?;
/// # #[cfg(feature = "llvm")] {
/// host.add_ir_text("host.ll", "define i64 @limit() { ret i64 42 }")?;
/// plugin.add_ir_text(
///     "plugin.ll",
///     "declare i64 @limit()
///      define i64 @run() { %limit = call i64 @limit() ret i64 %limit }",
/// )?;
/// // SAFETY: the function has this signature.
/// let run = unsafe { plugin.get::<extern "C" fn() -> i64>("run") }?;
/// assert_eq!(run(), 42);
/// # }
/// # Ok(())
/// # }
/// ```
///
/// ORC: `JITDylib`, with the methods of `LLJIT` that take one.
#[derive(Clone)]
#[doc(alias = "JITDylib")]
pub struct Scope {
    pub(crate) engine: Arc<Engine>,
    place: ScopePlace,
}

#[derive(Clone)]
enum ScopePlace {
    Dylib(JitDylib),
    Tracker(ResourceTracker),
}

impl Scope {
    pub(crate) fn new(engine: Arc<Engine>, dylib: JitDylib) -> Self {
        Self { engine, place: ScopePlace::Dylib(dylib) }
    }

    /// The scope of another dylib of the engine: one that [`session`](Self::session) has made, or that a generator is asked for.
    ///
    /// # Panics
    /// If the dylib is another engine's: files would go there, and be linked by the layers of this one.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), uruk::JitError> {
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// let bare = jit.in_dylib(&jit.session().create_jit_dylib("bare")?);
    /// assert!(bare.lookup("getpid").is_err()); // It is linked to nothing.
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn in_dylib(&self, dylib: &JitDylib) -> Self {
        self.assert_own(dylib);
        Self { engine: self.engine.clone(), place: ScopePlace::Dylib(dylib.clone()) }
    }

    /// The scope of `tracker`: added files belong to it, and go with it. Lookups follow the link order of the tracker's dylib.
    ///
    /// # Panics
    /// If the tracker is another engine's.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// let query = jit.create_tracker();
    /// # #[cfg(feature = "llvm")]
    /// jit.in_tracker(&query).add_ir_text("query.ll", "define i64 @query() { ret i64 42 }")?;
    /// # #[cfg(feature = "llvm")]
    /// jit.lookup("query")?;
    /// query.remove()?;
    /// assert!(jit.lookup("query").is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn in_tracker(&self, tracker: &ResourceTracker) -> Self {
        self.assert_own(tracker.dylib());
        Self { engine: self.engine.clone(), place: ScopePlace::Tracker(tracker.clone()) }
    }

    /// The dylib that definitions go to, and whose link order lookups follow.
    pub fn dylib(&self) -> &JitDylib {
        match &self.place {
            ScopePlace::Dylib(dylib) => dylib,
            ScopePlace::Tracker(tracker) => tracker.dylib(),
        }
    }

    /// A new tracker of the scope's dylib, which removes what was added with it when it is dropped.
    #[doc(alias = "createResourceTracker")]
    pub fn create_tracker(&self) -> OwnedTracker {
        OwnedTracker::new(self.dylib().create_tracker())
    }

    /// The session, for everything that has no method here.
    #[doc(alias = "getExecutionSession")]
    pub fn session(&self) -> &ExecutionSession {
        &self.engine.session
    }

    /// Interns a name.
    pub fn intern(&self, name: &str) -> SymbolName {
        self.session().intern(name)
    }

    /// Compiles modules of LLVM IR: what units of one's own hand their modules to.
    #[cfg(feature = "llvm")]
    #[doc(alias = "getIRCompileLayer")]
    pub fn ir_layer(&self) -> &Arc<IrCompileLayer> {
        &self.engine.files.modules.layer
    }

    /// Links objects: what units of one's own hand their objects to.
    #[doc(alias = "getObjLinkingLayer")]
    pub fn object_layer(&self) -> &Arc<ObjectLinkingLayer> {
        &self.engine.files.linking.layer
    }

    /// The link order of the dylib, for a lookup. A dylib that was removed stands in it alone, so that the lookup says so.
    pub(crate) fn order(&self) -> SearchOrder {
        let (dylib, order) = (self.dylib(), self.dylib().link_order());
        let is_removed = || self.session().jit_dylib(dylib.name()).as_ref() != Some(dylib);
        if order.is_empty() && is_removed() { SearchOrder::of(dylib) } else { order }
    }

    /// # Errors
    /// [`DylibError::Closed`] if the engine has ended: for methods that would change something of it without being refused.
    pub(crate) fn check_open(&self) -> Result<(), DylibError> {
        if self.session().is_closed() { Err(DylibError::Closed) } else { Ok(()) }
    }

    /// The tracker that owns everything that is added here.
    pub(crate) fn tracker(&self) -> ResourceTracker {
        match &self.place {
            ScopePlace::Dylib(dylib) => dylib.default_tracker(),
            ScopePlace::Tracker(tracker) => tracker.clone(),
        }
    }

    /// Whether added files go with a tracker.
    pub(crate) fn is_of_tracker(&self) -> bool {
        matches!(self.place, ScopePlace::Tracker(_))
    }

    fn assert_own(&self, dylib: &JitDylib) {
        assert!(*dylib.session() == self.engine.session, "dylib `{}` is another engine's", dylib.name());
    }
}

impl fmt::Debug for Scope {
    /// A few lines, independent of the engine's contents: hosts put it into their own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("dylib", &self.dylib().name())
            .field("is_of_tracker", &self.is_of_tracker())
            .finish_non_exhaustive()
    }
}
