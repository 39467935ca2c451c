//! Dylibs known by what lies in their own session.

use std::fmt;

use crate::JitDylib;
use crate::ids::DylibId;
use crate::sync::{Arc, Weak};

use super::{ExecutionSession, Inner};

/// A [`JitDylib`] that does not keep its session: for code, units and resources that lie in that session themselves.
///
/// A handle inside its own session would keep that session alive for ever.
///
/// # Examples
/// ```
/// use uruk_core::ExecutionSession;
///
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?.downgrade();
/// assert_eq!(main.upgrade().expect("the session is there").name(), "main");
/// drop(session);
/// assert!(main.upgrade().is_none());
/// # Ok::<(), uruk_core::DylibError>(())
/// ```
#[derive(Clone)]
pub struct WeakJitDylib {
    session: Weak<Inner>,
    id: DylibId,
    name: Arc<str>,
}

impl JitDylib {
    /// The same dylib, without keeping its session.
    pub fn downgrade(&self) -> WeakJitDylib {
        let session = Arc::downgrade(&self.session().0);
        WeakJitDylib { session, id: self.id(), name: self.shared_name() }
    }
}

impl WeakJitDylib {
    /// The handle. Nothing once the last handle of the session was dropped.
    pub fn upgrade(&self) -> Option<JitDylib> {
        let session = ExecutionSession(self.session.upgrade()?);
        Some(JitDylib::new(session, self.id, self.name.clone()))
    }

    /// Whether the last handle of its session was dropped.
    pub fn is_gone(&self) -> bool {
        self.session.strong_count() == 0
    }

    /// Whether this stands for `dylib`.
    pub fn is(&self, dylib: &JitDylib) -> bool {
        self.id == dylib.id() && std::ptr::eq(self.session.as_ptr(), Arc::as_ptr(&dylib.session().0))
    }

    /// The dylib's name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for WeakJitDylib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WeakJitDylib").field(&self.name).finish()
    }
}
