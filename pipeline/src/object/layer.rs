//! [`ObjectLayer`]: takes a responsibility and an object, and makes the symbols of the one from the other.
//!
//! ```text
//! IrLayer ── ThreadSafeModule ──▶ IrLayer ── … ──▶ ObjectLayer ── ObjectBuffer ──▶ the linker
//! ```
//!
//! A layer owns its input: it hands the responsibility on, or fails it with the reason. It never waits for a symbol, because others may be
//! waiting for symbols that it makes.

use uruk_core::MaterializationResponsibility;

use super::ObjectBuffer;
use crate::arch::Architecture;

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
    /// Called on any thread that materializes, several at a time, with no LLVM context held.
    fn emit(&self, responsibility: MaterializationResponsibility, object: ObjectBuffer);

    /// The architecture of the objects that it takes. The default is that of this process.
    fn architecture(&self) -> Architecture {
        Architecture::HOST
    }

    /// Announces an object that the layer may be given later, before its symbols can be looked up: the places of other objects may depend
    /// on its references. The default does nothing.
    fn announce(&self, object: &ObjectBuffer) {
        let _ = object;
    }
}
