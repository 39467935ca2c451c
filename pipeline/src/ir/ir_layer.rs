//! [`IrLayer`]: takes a responsibility and a module, and hands both on in the next form.

use std::sync::Arc;

use uruk_core::MaterializationResponsibility;

use super::{CompileError, IrCache, ModuleInterface, PendingModule, ThreadSafeModule};
use crate::object::ObjectBuffer;

/// Takes modules of LLVM IR.
///
/// ORC: `IRLayer`.
#[doc(alias = "IRLayer")]
pub trait IrLayer: Send + Sync {
    /// Makes the symbols of `responsibility` from `module`.
    ///
    /// # Concurrency
    /// Called on any thread that materializes, several at a time, with no context held.
    fn emit(&self, responsibility: MaterializationResponsibility, module: ThreadSafeModule);

    /// Makes the symbols of `responsibility` from a module that may be unread yet. By default it is read and
    /// [emitted](Self::emit).
    ///
    /// # Concurrency
    /// As [`emit`](Self::emit).
    fn emit_pending(&self, responsibility: MaterializationResponsibility, pending: PendingModule) {
        match pending.prepare() {
            Ok(module) => self.emit(responsibility, module),
            Err(error) => responsibility.fail(Arc::new(error)),
        }
    }

    /// Where interfaces of modules are looked up before LLVM reads them.
    fn cache(&self) -> Option<&IrCache> {
        None
    }

    /// The interface of a file of bitcode or text, if another process is to read it. `None`: this one is.
    fn interface_apart(&self, source: &ObjectBuffer) -> Option<Result<ModuleInterface, CompileError>> {
        let _ = source;
        None
    }
}
