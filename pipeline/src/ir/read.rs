//! Reading a source into a context: the results, errors and fatal errors of LLVM's readers.

use std::borrow::Cow;
use std::ptr;

use llvm_sys::core::LLVMCreateMemoryBufferWithMemoryRangeCopy;
use llvm_sys::prelude::LLVMModuleRef;

use super::context::{ContextGuard, ThreadSafeContext};
use super::error::CompileError;
use super::ffi::{self, MemoryBuffer, c_string, take_message};
use super::module::{LockedModule, ThreadSafeModule, enter};
use super::source::parse_error;
use crate::object::{ObjectBuffer, is_script};

/// Reads bitcode whole, unverified.
pub(super) fn bitcode(
    context: &ThreadSafeContext,
    source: &ObjectBuffer,
) -> Result<ThreadSafeModule, CompileError> {
    read(context, source, "reading bitcode", read_bitcode)
}

/// Reads textual IR, unverified.
pub(super) fn assembly(
    context: &ThreadSafeContext,
    source: &ObjectBuffer,
) -> Result<ThreadSafeModule, CompileError> {
    read(context, source, "reading textual IR", read_assembly)
}

/// Reads only what the symbols of a bitcode module need, and hands the module to `use_module`: function
/// bodies stay unread.
pub(super) fn with_lazy_bitcode<R>(
    source: &ObjectBuffer,
    use_module: impl FnOnce(&LockedModule<'_>) -> R,
) -> Result<R, CompileError> {
    // `module` borrows the bytes of `source` until it is dropped at the end of this function.
    let module = unread_bitcode(source)?;
    let locked = module.lock()?;
    Ok(use_module(&locked))
}

/// Reads bitcode without bodies of functions, into a context of its own. The unread bodies refer to the bytes of `source`: a caller that
/// reads more keeps them until then.
pub(super) fn unread_bitcode(source: &ObjectBuffer) -> Result<ThreadSafeModule, CompileError> {
    read(&ThreadSafeContext::try_new()?, source, "reading bitcode", read_lazy_bitcode)
}

type ReadModule = fn(&ContextGuard<'_>, &ObjectBuffer) -> Result<LLVMModuleRef, String>;

fn read(
    context: &ThreadSafeContext,
    source: &ObjectBuffer,
    stage: &'static str,
    reader: ReadModule,
) -> Result<ThreadSafeModule, CompileError> {
    let guard = context.lock();
    if guard.is_lost() {
        return Err(CompileError::ContextLost { module: source.name().clone() });
    }
    let result = enter(&guard, source.name(), stage, || reader(&guard, source))?;
    let reported = guard.take_errors(source.name());
    drop(guard);
    // SAFETY: the reader has just made the module in this context.
    let adopt = |raw| unsafe { ThreadSafeModule::adopt(raw, source.name().clone(), context.clone()) };
    match (result.map(adopt), reported) {
        (Ok(module), None) => {
            module.lock()?.set_identifier();
            Ok(module)
        }
        (Ok(_), Some(message)) => Err(parse_error(source, &message)),
        (Err(message), reported) if message.is_empty() => {
            Err(parse_error(source, reported.as_deref().unwrap_or("LLVM gives no reason")))
        }
        (Err(message), _) => Err(parse_error(source, &message)),
    }
}

fn read_bitcode(guard: &ContextGuard<'_>, source: &ObjectBuffer) -> Result<LLVMModuleRef, String> {
    let mut module = ptr::null_mut();
    if let Some(joined) = join_modules(guard, source)? {
        return Ok(joined);
    }
    // SAFETY: the context is held, and the source's bytes outlive the buffer, which ends with this call.
    let failed = unsafe {
        let buffer = MemoryBuffer::borrowing(source);
        ffi::LLVMParseBitcodeInContext2(guard.raw(), buffer.as_raw(), &raw mut module)
    };
    if failed != 0 { Err(String::new()) } else { Ok(module) }
}

/// The module refers to the bytes of `source` until it is dropped.
fn read_lazy_bitcode(guard: &ContextGuard<'_>, source: &ObjectBuffer) -> Result<LLVMModuleRef, String> {
    let mut module = ptr::null_mut();
    if let Some(joined) = join_modules(guard, source)? {
        return Ok(joined);
    }
    // SAFETY: the context is held; the callee takes over the buffer, and the users of `unread_bitcode` keep the bytes for as long as
    // anything is read.
    let failed = unsafe {
        let buffer = MemoryBuffer::borrowing(source).into_raw();
        ffi::LLVMGetBitcodeModuleInContext2(guard.raw(), buffer, &raw mut module)
    };
    if failed != 0 {
        return Err(String::new());
    }
    let bytes = source.bytes();
    // SAFETY: the module was read a moment ago from these bytes, and is held with its context.
    unsafe { ffi::uruk_llvm_read_notable(module, bytes.as_ptr().cast(), bytes.len()) };
    Ok(module)
}

/// The modules of a file that has several (`-fsplit-lto-unit`), as one.
fn join_modules(guard: &ContextGuard<'_>, source: &ObjectBuffer) -> Result<Option<LLVMModuleRef>, String> {
    let (bytes, mut message) = (source.bytes(), ptr::null_mut());
    // SAFETY: the context is held; the bytes live for the call; the message is taken over at once.
    let (module, message) = unsafe {
        let (start, size) = (bytes.as_ptr().cast(), bytes.len());
        let module = ffi::uruk_llvm_join_modules(guard.raw(), start, size, &raw mut message);
        (module, take_message(message))
    };
    if message.is_empty() { Ok(Some(module).filter(|module| !module.is_null())) } else { Err(message) }
}

fn read_assembly(guard: &ContextGuard<'_>, source: &ObjectBuffer) -> Result<LLVMModuleRef, String> {
    let mut data = Cow::from(source.bytes());
    if is_script(&data) {
        // LLVM reads it as a comment, and counts its lines and columns as the file has them.
        data.to_mut()[0] = b';';
    }
    let name = c_string(source.name());
    let (mut module, mut message) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the context is held; the text is copied into a buffer of our own, as its reader needs a NUL
    // after it; the message is taken over at once.
    let (failed, message) = unsafe {
        let raw = LLVMCreateMemoryBufferWithMemoryRangeCopy(data.as_ptr().cast(), data.len(), name.as_ptr());
        let buffer = MemoryBuffer::from_raw(raw);
        let failed =
            ffi::LLVMParseIRInContext2(guard.raw(), buffer.as_raw(), &raw mut module, &raw mut message);
        (failed, take_message(message))
    };
    if failed != 0 { Err(message) } else { Ok(module) }
}
