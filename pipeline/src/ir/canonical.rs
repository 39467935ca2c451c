//! Canonical copies of modules: their bitcode depends on the module alone, and not on what else lived in its context.
//!
//! | what a context keeps for all its modules | so |
//! |---|---|
//! | names of structures: a second `%struct.S` becomes `%struct.S.0` | structures lose their names |
//! | kinds of metadata, which bitcode lists and numbers as the context has them | only those that are used, numbered by name |
//! | tags of operand bundles | reading takes over those that are used |
//! | scopes of synchronization beyond LLVM's own | they stay: a context that has some makes other bitcode. x86-64 has none |
//!
//! `canonical.cpp` makes the copy.

use std::ptr;
use std::sync::Arc;

use llvm_sys::prelude::LLVMModuleRef;

use super::context::ThreadSafeContext;
use super::error::CompileError;
use super::ffi::{self, take_message};
use super::module::{LockedModule, ThreadSafeModule, enter};

impl LockedModule<'_> {
    /// Copies the module into a context of its own, by way of bitcode.
    pub(super) fn to_canonical(&self) -> Result<ThreadSafeModule, CompileError> {
        // SAFETY: the module is alive and held.
        let copy = || Ok(unsafe { ThreadSafeModule::copy_canonical(self.raw(), self.name()) });
        let copy = self.enter("copying", copy, |message| CompileError::Diagnosed {
            module: self.name().clone(),
            message,
        })?;
        if matches!(copy, Err(CompileError::Fatal { .. })) {
            self.lose();
        }
        copy
    }
}

impl ThreadSafeModule {
    /// Copies a module into a context of its own, by way of bitcode.
    ///
    /// # Safety
    /// The module is alive, and no other thread uses its context meanwhile.
    pub(super) unsafe fn copy_canonical(raw: LLVMModuleRef, name: &Arc<str>) -> Result<Self, CompileError> {
        let context = ThreadSafeContext::try_new()?;
        let target = context.lock();
        let copy = || {
            let mut message = ptr::null_mut();
            // SAFETY: the module is alive as the caller says, the new context is held, and the message is taken over at once.
            unsafe {
                let copied = ffi::uruk_llvm_copy_canonical(raw, target.raw(), &raw mut message);
                (copied, take_message(message))
            }
        };
        let (copied, message) = enter(&target, name, "copying", copy)?;
        if copied.is_null() {
            return Err(CompileError::Diagnosed { module: name.clone(), message });
        }
        drop(target);
        // SAFETY: the module was made in this context a moment ago, and has no other owner.
        let copy = unsafe { Self::adopt(copied, name.clone(), context) };
        copy.lock()?.set_identifier();
        Ok(copy)
    }
}
