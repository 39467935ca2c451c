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

use super::context::ThreadSafeContext;
use super::error::CompileError;
use super::ffi::{self, take_message};
use super::module::{LockedModule, ThreadSafeModule};

impl LockedModule<'_> {
    /// Copies the module into a context of its own, by way of bitcode.
    pub(super) fn to_canonical(&self) -> Result<ThreadSafeModule, CompileError> {
        let context = ThreadSafeContext::new();
        let target = context.lock();
        let copy = || {
            let mut message = ptr::null_mut();
            // SAFETY: the module is alive and held, and so is the new context; the message is taken over at once.
            let (copied, message) = unsafe {
                let copied = ffi::uruk_llvm_copy_canonical(self.raw(), target.raw(), &raw mut message);
                (copied, take_message(message))
            };
            if copied.is_null() { Err(message) } else { Ok(copied) }
        };
        let result = self.enter("copying", copy, |message| CompileError::Diagnosed {
            module: self.name().clone(),
            message,
        });
        if matches!(result, Err(CompileError::Fatal { .. })) {
            target.lose();
        }
        drop(target);
        // SAFETY: the module was made in this context a moment ago, and has no other owner.
        let copy = unsafe { ThreadSafeModule::adopt(result?, self.name().clone(), context) };
        copy.lock()?.set_identifier();
        Ok(copy)
    }
}
