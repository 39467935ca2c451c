//! The handles of dylibs.

use std::collections::HashMap;
use std::sync::LazyLock;

use uruk::core::sync::Mutex;
use uruk::core::{ExecutionSession, JitDylib};

use crate::handles::{self, Handle, Handled};

/// An `LLVMOrcJITDylibRef`.
pub(crate) struct Dylib(pub(crate) JitDylib);

impl Handled for Dylib {
    const KIND: &'static str = "LLVMOrcJITDylibRef";
}

/// A dylib has one handle, which clients compare.
static HANDLES: LazyLock<Mutex<HashMap<JitDylib, Handle>>> = LazyLock::new(Mutex::default);

/// The handle of a dylib.
pub(crate) fn handle(dylib: &JitDylib) -> Handle {
    *HANDLES.lock().entry(dylib.clone()).or_insert_with(|| handles::give(Dylib(dylib.clone())))
}

/// Ends the handles of a session's dylibs.
pub(crate) fn forget(session: &ExecutionSession) {
    let gone: Vec<_> = HANDLES.lock().extract_if(|dylib, _| dylib.session() == session).collect();
    for (_, handle) in &gone {
        drop(handles::take::<Dylib>(*handle));
    }
}
