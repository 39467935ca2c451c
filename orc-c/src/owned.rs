//! Values of LLVM's that the client hands over: each is disposed of when it is dropped.
//!
//! All are pointers of libLLVM's, which the client has made with the same libLLVM. **Safety.** A function of the interface that takes one owns
//! it from there on ([`crate::boundary`]).

use std::ffi::CStr;
use std::mem::ManuallyDrop;

use llvm_sys::bit_writer::LLVMWriteBitcodeToMemoryBuffer;
use llvm_sys::core::{
    LLVMContextDispose, LLVMCreateMemoryBufferWithMemoryRangeCopy, LLVMDisposeMemoryBuffer,
    LLVMDisposeModule, LLVMGetBufferSize, LLVMGetBufferStart, LLVMGetDataLayoutStr, LLVMGetModuleIdentifier,
    LLVMModuleCreateWithNameInContext,
};
use llvm_sys::prelude::{LLVMContextRef, LLVMMemoryBufferRef, LLVMModuleRef};
use uruk::inkwell;
use uruk::pipeline::object::ObjectBuffer;

use crate::errors::Problem;

/// A buffer of bytes.
#[repr(transparent)]
pub(crate) struct MemoryBuffer(LLVMMemoryBufferRef);

// SAFETY: the buffer has one owner, and its bytes do not change.
unsafe impl Send for MemoryBuffer {}
// SAFETY: as above.
unsafe impl Sync for MemoryBuffer {}

impl MemoryBuffer {
    /// A copy of `bytes`.
    pub(crate) fn copy_of(bytes: &[u8]) -> Self {
        // SAFETY: LLVM copies so many bytes, and the name.
        Self(unsafe {
            LLVMCreateMemoryBufferWithMemoryRangeCopy(bytes.as_ptr().cast(), bytes.len(), c"object".as_ptr())
        })
    }

    /// The client's, which may be null.
    pub(crate) fn get(&self) -> Result<&[u8], Problem> {
        if self.0.is_null() {
            return Err(Problem::new("LLVMMemoryBufferRef is null"));
        }
        Ok(self.as_ref())
    }

    /// Lends it as the client knows it. The client may put another in its place, or none.
    pub(crate) fn lend<R>(&mut self, call: impl FnOnce(*mut LLVMMemoryBufferRef) -> R) -> R {
        call(&raw mut self.0)
    }

    /// Lets `read` have the bytes of the client's buffer at `place`, which keeps it.
    pub(crate) fn read<R>(
        place: *mut LLVMMemoryBufferRef,
        read: impl FnOnce(&[u8]) -> Result<R, Problem>,
    ) -> Result<R, Problem> {
        if place.is_null() {
            return Err(Problem::new("there is no LLVMMemoryBufferRef"));
        }
        // SAFETY: the client's place can be read.
        let buffer = ManuallyDrop::new(Self(unsafe { *place }));
        read(buffer.get()?)
    }

    /// The same bytes for the linker.
    pub(crate) fn into_object(self) -> Result<ObjectBuffer, Problem> {
        self.get()?;
        Ok(ObjectBuffer::new("object", self))
    }
}

impl AsRef<[u8]> for MemoryBuffer {
    fn as_ref(&self) -> &[u8] {
        if self.0.is_null() {
            return &[];
        }
        // SAFETY: the buffer is alive, and so are its bytes.
        unsafe { std::slice::from_raw_parts(LLVMGetBufferStart(self.0).cast(), LLVMGetBufferSize(self.0)) }
    }
}

impl Drop for MemoryBuffer {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: it is ours, see the module's head.
            unsafe { LLVMDisposeMemoryBuffer(self.0) };
        }
    }
}

/// A context.
#[repr(transparent)]
pub(crate) struct Context(LLVMContextRef);

// SAFETY: it is only held, and disposed of by the last who holds it. The client may use it meanwhile, as with ORC.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn new() -> Self {
        // SAFETY: it has no obligations.
        Self(unsafe { llvm_sys::core::LLVMContextCreate() })
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: it is ours, see the module's head. Modules that were wrapped with it have been dropped.
            unsafe { LLVMContextDispose(self.0) };
        }
    }
}

/// A module, of a context that its holder knows.
#[repr(transparent)]
pub(crate) struct Module(LLVMModuleRef);

// SAFETY: one thread at a time has it: a client that hands one over uses it no more.
unsafe impl Send for Module {}
// SAFETY: all that reads it is asked for by the client, which locks its context as with ORC.
unsafe impl Sync for Module {}

impl Module {
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// As the client knows it.
    pub(crate) fn raw(&self) -> LLVMModuleRef {
        self.0
    }

    /// How it lays out data; empty if it does not say.
    pub(crate) fn data_layout(&self) -> String {
        // SAFETY: the module is alive and ours, and so is its text, which ends with a zero byte.
        unsafe { CStr::from_ptr(LLVMGetDataLayoutStr(self.0)).to_string_lossy().into_owned() }
    }

    fn name(&self) -> String {
        let mut len = 0;
        // SAFETY: the module is alive and ours; the name is copied.
        let name = unsafe { CStr::from_ptr(LLVMGetModuleIdentifier(self.0, &raw mut len)) }.to_string_lossy();
        if name.is_empty() { "module".to_owned() } else { name.into_owned() }
    }

    /// A module without contents, which ends before its context.
    pub(crate) fn nothing_in(context: &Context) -> Self {
        // SAFETY: the context is alive, and LLVM copies the name.
        Self(unsafe { LLVMModuleCreateWithNameInContext(c"nothing".as_ptr(), context.0) })
    }

    /// Lends the module with its name.
    pub(crate) fn lend<R>(&self, use_module: impl FnOnce(&str, &inkwell::module::Module<'_>) -> R) -> R {
        lend(self.0, |module| use_module(&self.name(), module))
    }

    /// The module as bitcode, named as it is.
    pub(crate) fn to_bitcode(&self) -> ObjectBuffer {
        // SAFETY: the module is alive and ours, and the buffer is new.
        ObjectBuffer::new(self.name(), MemoryBuffer(unsafe { LLVMWriteBitcodeToMemoryBuffer(self.0) }))
    }
}

/// Lends a module that the client, or one of our owners, has.
pub(crate) fn lend<R>(
    module: LLVMModuleRef,
    use_module: impl FnOnce(&inkwell::module::Module<'_>) -> R,
) -> R {
    // SAFETY: the module is alive during the call, after which it is still its owner's: `ManuallyDrop` leaves it.
    let module = ManuallyDrop::new(unsafe { inkwell::module::Module::new(module) });
    use_module(&module)
}

impl Drop for Module {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: it is ours, see the module's head, and its context is alive: its holder drops that later.
            unsafe { LLVMDisposeModule(self.0) };
        }
    }
}
