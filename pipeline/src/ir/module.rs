//! [`ThreadSafeModule`]: a module that owns a share of its context and can move between threads.
//!
//! Raw handles live here. Inkwell's types, which borrow a context, are lent to closures under the context's
//! lock and never leave them.
//!
//! Holds: the module goes before its context. A module that LLVM gave up on is leaked, and never touched again.

use std::ffi::{c_char, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use inkwell::module::Module;
use llvm_sys::analysis::LLVMVerifierFailureAction::LLVMReturnStatusAction;
use llvm_sys::core::{
    LLVMGetDataLayoutStr, LLVMGetModuleInlineAsm, LLVMGetNamedGlobal, LLVMGetTarget,
    LLVMModuleCreateWithNameInContext, LLVMPrintModuleToString, LLVMSetDataLayout, LLVMSetModuleIdentifier,
    LLVMSetModuleInlineAsm2, LLVMSetTarget,
};
use llvm_sys::prelude::LLVMModuleRef;

use super::context::{ContextGuard, ThreadSafeContext};
use super::error::CompileError;
use super::ffi::{self, MemoryBuffer, bytes, c_string, copy_text, enter_llvm, take_message};
use super::read;
use super::source::{SourceKind, parse_error};
use super::target::{CodeModel, LARGE_DATA_THRESHOLD_BYTES};
use crate::object::{CommonExtent, ObjectBuffer};

/// A module of LLVM IR, free of lifetimes.
///
/// # Concurrency
/// Every method waits for the module's context, dropping it does not. None may be called inside [`ThreadSafeModule::with_module`]
/// on a module of the same context; that is an assertion.
///
/// # Examples
/// ```
/// use uruk_pipeline::ir::ThreadSafeModule;
///
/// let module = ThreadSafeModule::build("answer", |context| {
///     let (module, builder) = (context.create_module("answer"), context.create_builder());
///     let i64 = context.i64_type();
///     let answer = module.add_function("answer", i64.fn_type(&[], false), None);
///     builder.position_at_end(context.append_basic_block(answer, "entry"));
///     builder.build_return(Some(&i64.const_int(42, false)))?;
///     Ok::<_, Box<dyn std::error::Error>>(module)
/// })?;
/// assert!(module.with_module(|module| module.get_function("answer").is_some())?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ORC: `ThreadSafeModule`.
pub struct ThreadSafeModule {
    raw: LLVMModuleRef,
    name: Arc<str>,
    is_bound_to_process: bool,
    // After `raw`: fields are dropped in order, and `drop` disposes of `raw` before any of them.
    context: ThreadSafeContext,
}

impl ThreadSafeModule {
    /// Creates an empty module in `context`; fill it with [`ThreadSafeModule::with_module`].
    pub fn new(context: &ThreadSafeContext, name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        let text = c_string(&name);
        let guard = context.lock();
        // SAFETY: the context is alive and held; the string lives for the call.
        let raw = unsafe { LLVMModuleCreateWithNameInContext(text.as_ptr(), guard.raw()) };
        drop(guard);
        Self { raw, name, is_bound_to_process: false, context: context.clone() }
    }

    /// Reads bitcode or textual IR, whichever it is, into a context of its own, and verifies it.
    ///
    /// # Errors
    /// [`CompileError::Parse`] for input that is empty, cut off, or no LLVM IR; [`CompileError::Verify`] for a module that breaks LLVM's
    /// rules; [`CompileError::Fatal`] if LLVM gives up.
    ///
    /// # Cost
    /// Everything in the module is read: 170 ms, and 90 more to verify it, for SQLite (2 MB of bitcode).
    pub fn parse(source: &ObjectBuffer) -> Result<Self, CompileError> {
        Self::parse_in(&ThreadSafeContext::try_new()?, source)
    }

    /// Like [`ThreadSafeModule::parse`], into `context`.
    ///
    /// # Errors
    /// As there, and [`CompileError::ContextLost`].
    pub fn parse_in(context: &ThreadSafeContext, source: &ObjectBuffer) -> Result<Self, CompileError> {
        let module = Self::parse_unverified_in(context, source)?;
        module.verify()?;
        Ok(module)
    }

    /// Like [`ThreadSafeModule::parse`], without the verifier: for sources that a compiler known to be right has made, and that have not
    /// changed since. Others may crash the process.
    ///
    /// # Errors
    /// As there, except for [`CompileError::Verify`].
    pub fn parse_unverified(source: &ObjectBuffer) -> Result<Self, CompileError> {
        Self::parse_unverified_in(&ThreadSafeContext::try_new()?, source)
    }

    fn parse_unverified_in(context: &ThreadSafeContext, source: &ObjectBuffer) -> Result<Self, CompileError> {
        let phase = uruk_core::phase!("ir.parse", unit = %source.name(), size_bytes = source.size_bytes());
        let _inside = uruk_core::inside(phase);
        match SourceKind::of(source)? {
            SourceKind::Bitcode => read::bitcode(context, source),
            SourceKind::Assembly => read::assembly(context, source),
        }
    }

    /// Like [`ThreadSafeModule::parse`], for bitcode only.
    ///
    /// # Errors
    /// As there.
    pub fn parse_bitcode(source: &ObjectBuffer) -> Result<Self, CompileError> {
        match SourceKind::of(source)? {
            SourceKind::Bitcode => Self::parse(source),
            SourceKind::Assembly => {
                Err(parse_error(source, "not bitcode: it does not begin with `BC` 0xC0DE"))
            }
        }
    }

    /// Like [`ThreadSafeModule::parse`], for textual IR (`.ll`) only.
    ///
    /// # Errors
    /// As there.
    pub fn parse_assembly(source: &ObjectBuffer) -> Result<Self, CompileError> {
        match SourceKind::of(source)? {
            SourceKind::Assembly => Self::parse(source),
            SourceKind::Bitcode => Err(parse_error(source, "bitcode, not textual IR")),
        }
    }

    /// The module's name in messages: most often its file.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The context the module lives in.
    pub fn context(&self) -> &ThreadSafeContext {
        &self.context
    }

    /// Lends the module to `use_module`, under its context's lock.
    ///
    /// Fatal errors of LLVM inside inkwell's calls end the process: inkwell's functions cannot unwind.
    ///
    /// # Errors
    /// [`CompileError::ContextLost`]; [`CompileError::Diagnosed`] if LLVM reported an error meanwhile.
    ///
    /// # Panics
    /// If `use_module` uses another module of the same context through its [`ThreadSafeModule`].
    #[track_caller]
    pub fn with_module<R>(
        &self,
        use_module: impl for<'ctx> FnOnce(&Module<'ctx>) -> R,
    ) -> Result<R, CompileError> {
        let module = self.lock()?;
        // SAFETY: the module is alive and ours for the closure, whose type cannot let the lifetime out;
        // `ManuallyDrop` leaves the ownership here.
        let lent = ManuallyDrop::new(unsafe { Module::new(module.raw) });
        let result = use_module(&lent);
        module.guard.restore_handler();
        match module.guard.take_errors(&self.name) {
            None => Ok(result),
            Some(message) => Err(CompileError::Diagnosed { module: self.name.clone(), message }),
        }
    }

    /// Checks LLVM's rules.
    ///
    /// # Errors
    /// [`CompileError::Verify`].
    pub fn verify(&self) -> Result<(), CompileError> {
        self.lock()?.verify()
    }

    /// Writes the module as bitcode.
    ///
    /// # Errors
    /// [`CompileError::ContextLost`], [`CompileError::Fatal`].
    pub fn to_bitcode(&self) -> Result<ObjectBuffer, CompileError> {
        self.lock()?.to_bitcode()
    }

    /// Copies the module into a context of its own, by way of bitcode.
    ///
    /// # Errors
    /// [`CompileError::ContextLost`], [`CompileError::Fatal`].
    pub fn clone_to_new_context(&self) -> Result<Self, CompileError> {
        let bitcode = self.to_bitcode()?;
        let mut copy = read::bitcode(&ThreadSafeContext::new(), &bitcode)?;
        copy.is_bound_to_process = self.is_bound_to_process;
        Ok(copy)
    }

    /// Says that the module has addresses of this process in it, as constants: no other process can use what is compiled of it, so it
    /// is neither looked up in a cache nor stored there.
    #[must_use]
    pub fn bound_to_process(mut self) -> Self {
        self.is_bound_to_process = true;
        self
    }

    /// Whether the module has addresses of this process in it.
    pub fn is_bound_to_process(&self) -> bool {
        self.is_bound_to_process
    }

    /// Takes over a module that was made in `context`.
    ///
    /// # Safety
    /// `raw` is a module of that context and has no other owner.
    pub(super) unsafe fn adopt(raw: LLVMModuleRef, name: Arc<str>, context: ThreadSafeContext) -> Self {
        Self { raw, name, is_bound_to_process: false, context }
    }

    /// Takes the context to work on the module.
    #[track_caller]
    pub(super) fn lock(&self) -> Result<LockedModule<'_>, CompileError> {
        let guard = self.context.lock();
        if guard.is_lost() {
            return Err(CompileError::ContextLost { module: self.name.clone() });
        }
        Ok(LockedModule { raw: self.raw, name: &self.name, guard })
    }
}

impl Drop for ThreadSafeModule {
    fn drop(&mut self) {
        self.context.abandon(self.raw);
    }
}

impl fmt::Debug for ThreadSafeModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadSafeModule").field("name", &self.name).finish_non_exhaustive()
    }
}

// SAFETY: the module is used and disposed of only while its context is held, by any thread.
unsafe impl Send for ThreadSafeModule {}
// SAFETY: as above: a shared reference gives access only through the lock.
unsafe impl Sync for ThreadSafeModule {}

/// A module while `ThreadSafeModule::lock` holds its context. Methods may be called in any order.
pub(super) struct LockedModule<'a> {
    raw: LLVMModuleRef,
    name: &'a Arc<str>,
    guard: ContextGuard<'a>,
}

impl LockedModule<'_> {
    pub(super) fn raw(&self) -> LLVMModuleRef {
        self.raw
    }

    pub(super) fn name(&self) -> &Arc<str> {
        self.name
    }

    /// Runs `body` on the module. If LLVM reports errors meanwhile, the result is `to_error` of them, even if `body` succeeds.
    pub(super) fn enter<R>(
        &self,
        stage: &'static str,
        body: impl FnOnce() -> Result<R, String>,
        to_error: impl FnOnce(String) -> CompileError,
    ) -> Result<R, CompileError> {
        let result = enter(&self.guard, self.name, stage, body)?;
        match (result, self.guard.take_errors(self.name)) {
            (Ok(result), None) => Ok(result),
            (Err(message), None) | (Ok(_), Some(message)) => Err(to_error(message)),
            (Err(message), Some(reported)) if message.is_empty() => Err(to_error(reported)),
            (Err(message), Some(reported)) => Err(to_error(format!("{message}\n{reported}"))),
        }
    }

    /// Says that LLVM gave up on the module, and on all else in its context.
    pub(super) fn lose(&self) {
        self.guard.lose();
    }

    /// Gives the module the name of its source, which LLVM's own messages then use.
    pub(super) fn set_identifier(&self) {
        // SAFETY: the module is alive and held; LLVM copies the text.
        unsafe { LLVMSetModuleIdentifier(self.raw, self.name.as_ptr().cast(), self.name.len()) }
    }

    pub(super) fn verify(&self) -> Result<(), CompileError> {
        let check = || {
            let mut message = ptr::null_mut();
            // SAFETY: the module is alive and held; the message is taken over at once.
            let (broken, message) = unsafe {
                let broken = ffi::LLVMVerifyModule(self.raw, LLVMReturnStatusAction, &raw mut message);
                (broken != 0, take_message(message))
            };
            if broken { Err(message) } else { Ok(()) }
        };
        self.enter("verification", check, |message| CompileError::Verify {
            module: self.name.clone(),
            message,
        })
    }

    pub(super) fn to_bitcode(&self) -> Result<ObjectBuffer, CompileError> {
        let write = || {
            // SAFETY: the module is alive and held; the buffer is new and ours.
            Ok(unsafe { MemoryBuffer::from_raw(ffi::LLVMWriteBitcodeToMemoryBuffer(self.raw)) })
        };
        let buffer = self.enter("writing bitcode", write, |message| CompileError::Diagnosed {
            module: self.name.clone(),
            message,
        })?;
        Ok(ObjectBuffer::new(self.name.clone(), buffer))
    }

    /// The module as LLVM prints it.
    pub(super) fn to_text(&self) -> Result<String, CompileError> {
        // SAFETY: the module is alive and held; the text is taken over at once.
        let print = || Ok(unsafe { take_message(LLVMPrintModuleToString(self.raw)) });
        self.enter("printing", print, |message| CompileError::Diagnosed {
            module: self.name.clone(),
            message,
        })
    }

    /// See `normalize.rs`.
    pub(super) fn clear_static_assumptions(&self) {
        // SAFETY: the module is alive and held.
        unsafe { ffi::uruk_llvm_normalize(self.raw) }
    }

    /// Hands each definition that others can see and each reference, or each definition there is with `locals`, to `each`, with
    /// its `symbol_bits`, and its extent where it is tentative; answers the `module_bits`.
    pub(super) fn symbols(&self, locals: bool, mut each: impl FnMut(&str, u32, CommonExtent)) -> u32 {
        unsafe extern "C-unwind" fn sink<F: FnMut(&str, u32, CommonExtent)>(
            data: *mut c_void,
            name: *const c_char,
            size: usize,
            bits: u32,
            size_bytes: u64,
            align: u64,
        ) {
            // SAFETY: the shim hands on the pointer it got below and a name that lives for the call.
            let (each, name) = unsafe { (&mut *data.cast::<F>(), bytes(name, size)) };
            // LLVM allows any bytes in a name; a name that is no text cannot be asked for.
            if let Ok(name) = std::str::from_utf8(name) {
                each(name, bits, CommonExtent { size_bytes, align });
            }
        }
        fn start<F: FnMut(&str, u32, CommonExtent)>(raw: LLVMModuleRef, locals: bool, each: &mut F) -> u32 {
            // SAFETY: `sink` is instantiated for the type of `each`; the module is alive and held.
            unsafe { ffi::uruk_llvm_symbols(raw, locals, sink::<F>, (&raw mut *each).cast()) }
        }
        start(self.raw, locals, &mut each)
    }

    /// Makes the linkonce definition `name` weak.
    pub(super) fn keep(&self, name: &str) {
        // SAFETY: the module is alive and held; the shim does not keep the name.
        unsafe { ffi::uruk_llvm_keep(self.raw, name.as_ptr().cast(), name.len()) }
    }

    /// Gives up the definition `name`; answers whether there was one.
    pub(super) fn discard(&self, name: &str) -> bool {
        // SAFETY: the module is alive and held; the shim does not keep the name.
        unsafe { ffi::uruk_llvm_discard(self.raw, name.as_ptr().cast(), name.len()) }
    }

    /// The code model the module was compiled for, and from how many bytes on data is large.
    pub(super) fn code_model(&self) -> Option<(CodeModel, u64)> {
        let mut large_data_threshold = LARGE_DATA_THRESHOLD_BYTES;
        // SAFETY: the module is alive and held; the shim writes the number before it returns.
        let model = unsafe { ffi::uruk_llvm_code_model(self.raw, &raw mut large_data_threshold) };
        Some((CodeModel::from_llvm(model)?, large_data_threshold))
    }

    pub(super) fn triple(&self) -> String {
        // SAFETY: the module is alive and held, and the string with it; null does not come.
        unsafe { copy_text(LLVMGetTarget(self.raw)) }
    }

    /// Whether it names values that must stay in the program without a reference.
    pub(super) fn has_retained(&self) -> bool {
        // SAFETY: the module is alive and held.
        unsafe { !LLVMGetNamedGlobal(self.raw, c"llvm.used".as_ptr()).is_null() }
    }

    pub(super) fn set_triple(&self, triple: &str) {
        let triple = c_string(triple);
        // SAFETY: the module is alive and held; LLVM copies the string.
        unsafe { LLVMSetTarget(self.raw, triple.as_ptr()) }
    }

    pub(super) fn data_layout(&self) -> String {
        // SAFETY: the module is alive and held, and the string with it; null does not come.
        unsafe { copy_text(LLVMGetDataLayoutStr(self.raw)) }
    }

    /// Sets the data layout to one that LLVM made itself.
    pub(super) fn set_data_layout(&self, layout: &str) {
        let layout = c_string(layout);
        // SAFETY: the module is alive and held; LLVM copies the string.
        unsafe { LLVMSetDataLayout(self.raw, layout.as_ptr()) }
    }

    /// Module-level assembly, empty where there is none.
    pub(super) fn inline_assembly(&self) -> Vec<u8> {
        let mut size = 0;
        // SAFETY: the module is alive and held, and the text with it until it is copied.
        unsafe { bytes(LLVMGetModuleInlineAsm(self.raw, &raw mut size), size).to_vec() }
    }

    pub(super) fn set_inline_assembly(&self, text: &[u8]) {
        // SAFETY: the module is alive and held; LLVM copies the text.
        unsafe { LLVMSetModuleInlineAsm2(self.raw, text.as_ptr().cast(), text.len()) }
    }
}

/// Calls into LLVM under the context's lock. A module that LLVM gives up on is lost.
pub(super) fn enter<R>(
    guard: &ContextGuard<'_>,
    module: &Arc<str>,
    stage: &'static str,
    body: impl FnOnce() -> R,
) -> Result<R, CompileError> {
    enter_llvm(body).map_err(|fatal| {
        guard.lose();
        CompileError::Fatal { module: module.clone(), stage, message: fatal.0 }
    })
}
