//! [`Scope`]: where files go and where symbols are looked up.

use uruk_core::{JitDylib, ResourceTracker};

use crate::{Jit, OwnedTracker};

/// A dylib of a [`Jit`], or a tracker in one: everything that the `Jit` does for its main dylib, done there.
///
/// A pair of references, made for the moment by [`Jit::in_dylib`] or [`Jit::in_tracker`].
///
/// # Examples
/// ```
/// # fn main() -> Result<(), uruk::JitError> {
/// # let jit = uruk::Jit::builder().threads(1).build()?;
/// let (host, plugin) = (jit.create_dylib("host")?, jit.create_dylib("plugin")?);
/// jit.in_dylib(&plugin).link_to(&host)?;
/// # #[cfg(feature = "llvm")] {
/// jit.in_dylib(&host).add_ir_text("host.ll", "define i64 @limit() { ret i64 42 }")?;
/// jit.in_dylib(&plugin).add_ir_text(
///     "plugin.ll",
///     "declare i64 @limit()
///      define i64 @run() { %limit = call i64 @limit() ret i64 %limit }",
/// )?;
/// // SAFETY: the function has this signature.
/// let run = unsafe { jit.in_dylib(&plugin).get::<extern "C" fn() -> i64>("run") }?;
/// assert_eq!(run(), 42);
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    pub(crate) jit: &'a Jit,
    place: Place<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    Dylib(&'a JitDylib),
    Tracker(&'a ResourceTracker),
}

impl<'a> Scope<'a> {
    pub(crate) fn of_main(jit: &'a Jit) -> Self {
        Self { jit, place: Place::Dylib(&jit.main) }
    }

    /// # Panics
    /// If the dylib is another engine's: files would go there, and be linked by the layers of this one.
    pub(crate) fn of_dylib(jit: &'a Jit, dylib: &'a JitDylib) -> Self {
        assert!(*dylib.session() == jit.session, "dylib `{}` is another engine's", dylib.name());
        Self { jit, place: Place::Dylib(dylib) }
    }

    /// # Panics
    /// If the tracker is another engine's.
    pub(crate) fn of_tracker(jit: &'a Jit, tracker: &'a ResourceTracker) -> Self {
        let dylib = tracker.dylib();
        assert!(*dylib.session() == jit.session, "a tracker of dylib `{}` is another engine's", dylib.name());
        Self { jit, place: Place::Tracker(tracker) }
    }

    /// Where definitions go, and whose link order lookups follow.
    pub fn dylib(&self) -> &'a JitDylib {
        match self.place {
            Place::Dylib(dylib) => dylib,
            Place::Tracker(tracker) => tracker.dylib(),
        }
    }

    /// A new tracker of the scope's dylib, which removes what was added with it when it is dropped.
    pub fn create_tracker(&self) -> OwnedTracker {
        OwnedTracker::new(self.dylib().create_tracker())
    }

    /// Whose everything becomes that is added here.
    pub(crate) fn tracker(&self) -> ResourceTracker {
        match self.place {
            Place::Dylib(dylib) => dylib.default_tracker(),
            Place::Tracker(tracker) => tracker.clone(),
        }
    }

    /// Whether what is added here goes with a tracker.
    pub(crate) fn is_of_tracker(&self) -> bool {
        matches!(self.place, Place::Tracker(_))
    }
}
