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
use crate::object::{FileKind, ObjectBuffer, is_script};

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

/// LLVM's `message` about a file or a function of it, with the LLVM that made the file if it was another one. Of a newer one the message
/// means nothing.
pub(super) fn blamed(source: &ObjectBuffer, message: String) -> String {
    if FileKind::of(source.bytes()) != FileKind::Bitcode {
        return message;
    }
    let (bytes, mut is_newer) = (source.bytes(), false);
    // SAFETY: the bytes live for the call, the flag can be written, and the text is taken over at once.
    let producer = unsafe {
        let (start, size) = (bytes.as_ptr().cast(), bytes.len());
        take_message(ffi::uruk_llvm_foreign_producer(start, size, &raw mut is_newer))
    };
    match (producer.is_empty(), is_newer) {
        (true, _) => message,
        (false, true) => {
            format!("{producer}, which reads no newer bitcode; compile it with that version or an older one")
        }
        (false, false) => format!("{message} ({producer})"),
    }
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
        (Ok(_), Some(message)) => Err(parse_error(source, &blamed(source, message))),
        (Err(message), reported) => {
            let own = (!message.is_empty()).then_some(message).or(reported);
            let message = own.unwrap_or_else(|| "LLVM gives no reason".to_owned());
            Err(parse_error(source, &blamed(source, message)))
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Six bits for each letter, as bitcode has the name of its producer.
    fn bits_of(name: &str) -> Vec<bool> {
        const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";
        let numbers = name.chars().map(|letter| LETTERS.find(letter).expect("it has six bits"));
        numbers.flat_map(|number| (0..6).map(move |bit| number >> bit & 1 == 1)).collect()
    }

    /// Bitcode of which half is missing, made by `producer`.
    fn damaged_by(producer: &str) -> ObjectBuffer {
        const OURS: &str = "LLVM22.1.8";
        assert_eq!(producer.len(), OURS.len());
        let text =
            ObjectBuffer::new("a.ll", "define i32 @f(i32 %x) { %y = add i32 %x, 1 ret i32 %y }".as_bytes());
        let module = ThreadSafeModule::parse(&text).expect("it is IR");
        let bitcode = module.to_bitcode().expect("it can be written");
        let mut bytes = bitcode.bytes().to_vec();
        let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (at % 8) & 1 == 1;
        let (ours, theirs) = (bits_of(OURS), bits_of(producer));
        let found = (0..bytes.len() * 8 - ours.len())
            .find(|start| (0..ours.len()).all(|i| bit(&bytes, start + i) == ours[i]));
        let start = found.expect("bitcode names its producer");
        for (i, is_set) in theirs.iter().enumerate() {
            let at = start + i;
            bytes[at / 8] = bytes[at / 8] & !(1 << (at % 8)) | u8::from(*is_set) << (at % 8);
        }
        bytes.truncate(bytes.len() / 2);
        ObjectBuffer::new("a.bc", bytes)
    }

    #[test]
    fn bitcode_of_another_llvm_names_it_in_the_error() {
        let error = |producer| {
            let source = damaged_by(producer);
            let whole =
                bitcode(&ThreadSafeContext::try_new().expect("LLVM"), &source).expect_err("it is damaged");
            let unread = unread_bitcode(&source).expect_err("it is damaged");
            assert_eq!(whole, unread);
            whole.to_string()
        };
        let newer = error("LLVM24.0.1");
        assert!(
            newer.contains("made by LLVM 24.0.1; this is 22.1.8, which reads no newer bitcode"),
            "{newer}"
        );
        let older = error("LLVM21.1.8");
        assert!(older.contains("(made by LLVM 21.1.8; this is 22.1.8)"), "{older}");
        let others = error("APPLE_1_16");
        assert!(others.contains("(made by APPLE_1_16; this is 22.1.8)"), "{others}");
        assert!(!error("LLVM22.1.8").contains("made by"));
    }
}
