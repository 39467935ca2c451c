//! A module of bitcode whose functions are read when they are taken, one at a time. `functions.cpp` does the taking.

use std::ffi::{c_char, c_void};
use std::ptr;

use rustc_hash::FxHashSet;

use super::compile::IrCompiler;
use super::error::CompileError;
use super::ffi::{self, bytes, take_message};
use super::module::ThreadSafeModule;
use super::normalize::{check_unread, normalize};
use super::outline::{Outline, OutlinedValue, ValuePart};
use super::read;
use super::target::JitTargetMachineBuilder;
use crate::object::ObjectBuffer;
use crate::tiers::FunctionShape;

/// A module that was read without bodies, and the functions that have left it.
pub(super) struct Shell {
    raw: *mut c_void, // Refers to the module, and is disposed of before it.
    pub(super) module: ThreadSafeModule,
    pub(super) taken: FxHashSet<u32>,
    /// Unread bodies refer to it.
    source: ObjectBuffer,
}

// SAFETY: the shell behind `raw` is used while the module's context is held, as the module is.
unsafe impl Send for Shell {}

/// The things that a part has besides its function; `functions.cpp` has the same list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartForm {
    Alone,
    /// With copies of small functions that it calls, for the optimizer alone.
    Inlining,
    /// The same, and with copies of constants whose address no code can tell. All else that is local to the module is in an image.
    BesideImage,
}

impl Shell {
    pub(super) fn read(source: &ObjectBuffer, compiler: &IrCompiler) -> Result<Self, CompileError> {
        let phase = uruk_core::phase!("ir.shell", unit = %source.name());
        let _inside = uruk_core::inside(phase);
        let module = read::unread_bitcode(source)?;
        let locked = module.lock()?;
        normalize(&locked, compiler.target())?;
        // SAFETY: the module is alive and held, and outlives what is made of it, which goes with `Self`.
        let outline = || Ok(unsafe { ffi::uruk_llvm_shell(locked.raw(), compiler.keeps_debug_info) });
        let raw = locked.enter("outlining", outline, |message| diagnosed(source, message))?;
        drop(locked);
        Ok(Self { raw, module, taken: FxHashSet::default(), source: source.clone() })
    }

    /// # Errors
    /// Those of [`check_unread`]: a module that is to be refused is, before any of its functions runs.
    pub(super) fn outline(&self, target: &JitTargetMachineBuilder) -> Result<Outline, CompileError> {
        unsafe extern "C-unwind" fn sink(
            data: *mut c_void,
            name: *const c_char,
            size: usize,
            kind: u32,
            of: u32,
            bits: u32,
        ) {
            // SAFETY: the shim hands on the pointer it got below, and a name that lives for the call.
            let (outline, name) = unsafe { (&mut *data.cast::<Outline>(), bytes(name, size)) };
            let kind = ValuePart::of(kind).unwrap_or(ValuePart::Elsewhere);
            let name = String::from_utf8_lossy(name).into();
            outline.push(OutlinedValue { name, kind, of, bits });
        }
        let mut outline = Outline::default();
        let held = self.module.lock()?;
        check_unread(&held, &self.source, target)?;
        // SAFETY: the shell is alive and held; `sink` takes an `Outline`.
        outline.stays_whole = unsafe { ffi::uruk_llvm_outline(self.raw, sink, (&raw mut outline).cast()) };
        Ok(outline)
    }

    /// The functions that stay when unreachable ones go.
    pub(super) fn reached(&self) -> Result<Vec<u32>, CompileError> {
        unsafe extern "C-unwind" fn sink(data: *mut c_void, function: u32) {
            // SAFETY: the shim hands on the pointer it got below.
            unsafe { &mut *data.cast::<Vec<u32>>() }.push(function);
        }
        let mut reached = Vec::new();
        let reach = || {
            // SAFETY: the shell is alive and held; `sink` takes a list of numbers; the message is taken over at once.
            let message =
                unsafe { take_message(ffi::uruk_llvm_reach(self.raw, sink, (&raw mut reached).cast())) };
            if message.is_empty() { Ok(()) } else { Err(message) }
        };
        let diagnosed = |message| diagnosed(&self.source, message);
        self.module.lock()?.enter("following references", reach, diagnosed)?;
        Ok(reached)
    }

    /// Facts that decide how a function is compiled first. It must not be taken yet.
    pub(super) fn shape(&self, function: u32) -> Result<FunctionShape, CompileError> {
        let locked = self.module.lock()?;
        let mut shape = FunctionShape::default();
        let read = || {
            let (instructions, depth) = (&raw mut shape.instructions, &raw mut shape.loop_depth);
            let tight = &raw mut shape.tight_loop_depth;
            // SAFETY: the shell is alive and held; all three can be written; the message is taken over at once.
            let message = unsafe {
                take_message(ffi::uruk_llvm_function_shape(self.raw, function, instructions, depth, tight))
            };
            if message.is_empty() { Ok(()) } else { Err(message) }
        };
        locked.enter("reading a function", read, |message| diagnosed(&self.source, message))?;
        drop(locked);
        Ok(shape)
    }

    /// A module of one function, of this form.
    ///
    /// # Errors
    /// [`CompileError::Diagnosed`] if it cannot be read; beside an image, if it takes the address of a function that is local to the module.
    pub(super) fn take(
        &mut self,
        function: u32,
        name: &str,
        form: PartForm,
    ) -> Result<ThreadSafeModule, CompileError> {
        self.taken.insert(function);
        let phase = uruk_core::phase!("ir.take", unit = name);
        let _inside = uruk_core::inside(phase);
        let locked = self.module.lock()?;
        let take = || {
            let mut message = ptr::null_mut();
            // SAFETY: the shell is alive and held; the name lives for the call; the message is taken over at once.
            unsafe {
                let (text, size) = (name.as_ptr().cast(), name.len());
                let raw = ffi::uruk_llvm_take_function(
                    self.raw,
                    function,
                    form as u32,
                    text,
                    size,
                    &raw mut message,
                );
                let message = take_message(message);
                if raw.is_null() { Err(message) } else { Ok(raw) }
            }
        };
        let raw = locked.enter("taking a function", take, |message| diagnosed(&self.source, message))?;
        drop(locked);
        // SAFETY: the module was made in this context a moment ago, and has no other owner.
        Ok(unsafe { ThreadSafeModule::adopt(raw, name.into(), self.module.context().clone()) })
    }

    /// The module of the variables.
    pub(super) fn into_data(self) -> Result<ThreadSafeModule, CompileError> {
        let locked = self.module.lock()?;
        let keep = || {
            // SAFETY: the shell is alive and held; the message is taken over at once.
            let message = unsafe { take_message(ffi::uruk_llvm_keep_data(self.raw)) };
            if message.is_empty() { Ok(()) } else { Err(message) }
        };
        locked.enter("keeping data", keep, |message| diagnosed(&self.source, message))?;
        drop(locked);
        Ok(self.into_module())
    }

    fn into_module(self) -> ThreadSafeModule {
        let shell = std::mem::ManuallyDrop::new(self);
        // SAFETY: each field is taken out once, and the shell is not dropped.
        unsafe {
            ffi::uruk_llvm_dispose_shell(shell.raw);
            drop((ptr::read(&raw const shell.taken), ptr::read(&raw const shell.source)));
            ptr::read(&raw const shell.module)
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // SAFETY: `read` has made it, and no other code disposes of it. It has tables of its own and touches nothing of LLVM's.
        unsafe { ffi::uruk_llvm_dispose_shell(self.raw) }
    }
}

fn diagnosed(source: &ObjectBuffer, message: String) -> CompileError {
    CompileError::Diagnosed { module: source.name().clone(), message: read::blamed(source, message) }
}
