//! Layers: each takes a responsibility and a form of code, and hands both on in the next form.
//!
//! ```text
//! IrLayer ── ThreadSafeModule ──▶ IrLayer ── … ──▶ ObjectLayer ── ObjectBuffer ──▶ the linker
//! ```
//!
//! A layer owns what it was given: it hands the responsibility on, or fails it with the reason. It never
//! waits for a symbol: layers run while somebody may be waiting for what they make.

#[cfg(feature = "llvm")]
use std::sync::Arc;

use uruk_core::MaterializationResponsibility;

#[cfg(feature = "llvm")]
use crate::ir::{IrCache, PendingModule, ThreadSafeModule};
use crate::object::ObjectBuffer;

/// Takes modules of LLVM IR.
///
/// ORC: `IRLayer`.
#[cfg(feature = "llvm")]
#[doc(alias = "IRLayer")]
pub trait IrLayer: Send + Sync {
    /// Makes the symbols of `responsibility` from `module`.
    ///
    /// # Concurrency
    /// Called on whatever thread materializes, several at a time, with no context held.
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
}

/// Takes relocatable objects.
///
/// ORC: `ObjectLayer`.
pub trait ObjectLayer: Send + Sync {
    /// Makes the symbols of `responsibility` from `object`.
    ///
    /// An exported definition that the responsibility does not cover has lost against another of its name:
    /// references to it go there. A hidden one that its dylib has nowhere else is the object's own.
    ///
    /// # Concurrency
    /// Called on whatever thread materializes, several at a time, with no LLVM context held.
    fn emit(&self, responsibility: MaterializationResponsibility, object: ObjectBuffer);

    /// Tells the layer of an object that it may be given later, before anybody can ask for its symbols: where
    /// others are placed may depend on what this one refers to. The default does not care.
    fn announce(&self, object: &ObjectBuffer) {
        let _ = object;
    }
}
