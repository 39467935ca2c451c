//! The boundary to LLVM: how calls go in, how LLVM's own ways of giving up come out, and the shim's functions.
//!
//! LLVM reports most errors as values, but not these three kinds: fatal errors, failed allocations, and C++ exceptions of the standard
//! library. [`enter_llvm`] turns each into a [`FatalError`]. The first two reach a handler of ours, which unwinds through LLVM's frames to
//! [`enter_llvm`]. That runs no destructor of LLVM's, so the values that the call worked on are lost: they must be leaked and never used
//! again.
//!
//! Outside [`enter_llvm`] the handlers do nothing, and LLVM ends the process as it always does.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::panic::{self, AssertUnwindSafe};
use std::slice;
use std::sync::OnceLock;

use llvm_sys::error_handling::{LLVMFatalErrorHandler, LLVMInstallFatalErrorHandler};
use llvm_sys::prelude::{LLVMBool, LLVMContextRef, LLVMMemoryBufferRef, LLVMModuleRef, LLVMValueRef};
use llvm_sys::target_machine::LLVMTargetMachineRef;

use super::progress::CountFunctions;
use crate::object::ObjectBuffer;

/// LLVM gave up in the middle of something. The values that it worked on are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FatalError(pub(super) String);

/// Runs `body`, which calls into LLVM, and catches LLVM's giving up. Panics of `body`'s own go on as panics.
pub(super) fn enter_llvm<R>(body: impl FnOnce() -> R) -> Result<R, FatalError> {
    install_handlers();
    let mut call = CallInLlvm { body: Some(body), result: None };
    let mut reason = [0; REASON_BYTES];
    let inside = InLlvm::enter();
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| run_guarded(&mut call, &mut reason)));
    drop(inside);
    match outcome {
        Ok(true) => call.result.ok_or_else(|| FatalError("LLVM returned without an answer".to_owned())),
        Ok(false) => {
            let reason = CStr::from_bytes_until_nul(&reason).unwrap_or_default();
            Err(FatalError(format!("C++ exception: {}", reason.to_string_lossy())))
        }
        Err(payload) => Err(fatal_error_or_resume(payload)),
    }
}

/// How much of a C++ exception's message is kept.
const REASON_BYTES: usize = 256;

struct CallInLlvm<F, R> {
    body: Option<F>,
    result: Option<R>,
}

fn run_guarded<F: FnOnce() -> R, R>(call: &mut CallInLlvm<F, R>, reason: &mut [u8; REASON_BYTES]) -> bool {
    unsafe extern "C-unwind" fn run<F: FnOnce() -> R, R>(data: *mut c_void) {
        // SAFETY: `uruk_llvm_guard` hands on the pointer it got below, to a `CallInLlvm` that outlives the call and has no other user meanwhile.
        let call = unsafe { &mut *data.cast::<CallInLlvm<F, R>>() };
        call.result = call.body.take().map(|body| body());
    }
    // SAFETY: `run` is instantiated for the type `call` has; the reason buffer has the size that is passed.
    unsafe { uruk_llvm_guard(run::<F, R>, (&raw mut *call).cast(), reason.as_mut_ptr().cast(), REASON_BYTES) }
}

fn fatal_error_or_resume(payload: Box<dyn Any + Send>) -> FatalError {
    match payload.downcast::<FatalError>() {
        Ok(error) => *error,
        Err(panic) => panic::resume_unwind(panic),
    }
}

thread_local! {
    /// How many `enter_llvm` frames this thread has.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

struct InLlvm(());

impl InLlvm {
    fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }
}

impl Drop for InLlvm {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

fn install_handlers() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // SAFETY: only the unwinding ABI differs between the two types, and LLVM calls the handler through
        // frames that carry unwind tables and no cleanups. A second installation, by another user of LLVM
        // in this process, replaces ours, and LLVM aborts again as it does by default.
        unsafe {
            let handler: extern "C-unwind" fn(*const c_char) = give_up;
            let handler =
                std::mem::transmute::<extern "C-unwind" fn(*const c_char), LLVMFatalErrorHandler>(handler);
            LLVMInstallFatalErrorHandler(handler);
            uruk_llvm_install_bad_alloc_handler(give_up_allocating);
        }
    });
}

extern "C-unwind" fn give_up(reason: *const c_char) {
    if DEPTH.get() > 0 {
        // SAFETY: LLVM passes a string that ends in NUL and lives for the call.
        let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned();
        panic::resume_unwind(Box::new(FatalError(reason)));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "LLVM goes on into undefined behaviour if this handler returns, and aborts itself where there is none"
)]
extern "C-unwind" fn give_up_allocating(_data: *mut c_void, reason: *const c_char, _diagnose: bool) {
    give_up(reason);
    // Outside `enter_llvm` there is nowhere to go.
    std::process::abort();
}

/// Takes over a string of LLVM's that `LLVMDisposeMessage` frees. Empty for null.
///
/// # Safety
/// `message` is null or such a string, and is not used afterwards.
pub(super) unsafe fn take_message(message: *mut c_char) -> String {
    if message.is_null() {
        return String::new();
    }
    // SAFETY: the caller's obligation.
    unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().trim_end().to_owned();
        llvm_sys::core::LLVMDisposeMessage(message);
        text
    }
}

/// `text` up to its first NUL, as C sees it.
pub(super) fn c_string(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

/// # Safety
/// `start` is null or points to `size` readable bytes that live as long as the result is used.
pub(super) unsafe fn bytes<'a>(start: *const c_char, size: usize) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: the caller's obligation.
    unsafe { slice::from_raw_parts(start.cast(), size) }
}

/// # Safety
/// `text` points to a live string that ends in NUL.
pub(super) unsafe fn copy_text(text: *const c_char) -> String {
    // SAFETY: the caller's obligation.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A memory buffer of LLVM's, owned.
pub(super) struct MemoryBuffer(LLVMMemoryBufferRef);

impl MemoryBuffer {
    /// Takes over `raw`.
    ///
    /// # Safety
    /// `raw` is a live buffer that no other code frees.
    pub(super) unsafe fn from_raw(raw: LLVMMemoryBufferRef) -> Self {
        Self(raw)
    }

    /// A buffer over the bytes of `source`, which are not copied.
    ///
    /// # Safety
    /// The source outlives the buffer.
    pub(super) unsafe fn borrowing(source: &ObjectBuffer) -> Self {
        let (data, name) = (source.bytes(), c_string(source.name()));
        // SAFETY: the range is readable for as long as the caller says; no NUL is required after it.
        unsafe {
            Self(llvm_sys::core::LLVMCreateMemoryBufferWithMemoryRange(
                data.as_ptr().cast(),
                data.len(),
                name.as_ptr(),
                0,
            ))
        }
    }

    pub(super) fn as_raw(&self) -> LLVMMemoryBufferRef {
        self.0
    }

    /// Gives the buffer to a callee that frees it.
    pub(super) fn into_raw(self) -> LLVMMemoryBufferRef {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl AsRef<[u8]> for MemoryBuffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the buffer lives as long as `self`, and its contents do not move or change.
        unsafe {
            let start = llvm_sys::core::LLVMGetBufferStart(self.0).cast::<u8>();
            if start.is_null() {
                return &[];
            }
            slice::from_raw_parts(start, llvm_sys::core::LLVMGetBufferSize(self.0))
        }
    }
}

impl Drop for MemoryBuffer {
    fn drop(&mut self) {
        // SAFETY: `from_raw` took the ownership.
        unsafe { llvm_sys::core::LLVMDisposeMemoryBuffer(self.0) }
    }
}

// SAFETY: the buffer is memory with a destructor; it refers to no context.
unsafe impl Send for MemoryBuffer {}
// SAFETY: as above; it is only read.
unsafe impl Sync for MemoryBuffer {}

/// Facts about one symbol, from `uruk_llvm_symbols`; the shim has the same list.
pub(super) mod symbol_bits {
    pub(crate) const EXPORTED: u32 = 1;
    pub(crate) const WEAK: u32 = 2;
    pub(crate) const COMMON: u32 = 4;
    pub(crate) const CALLABLE: u32 = 8;
    pub(crate) const THREAD_LOCAL: u32 = 16;
    pub(crate) const LINKONCE: u32 = 32;
    pub(crate) const LOCAL: u32 = 64;
    pub(crate) const UNDEFINED: u32 = 128;
    /// A function that must not be compiled twice: addresses of its blocks outlive its calls.
    pub(crate) const ONCE: u32 = 256;
    /// A variable that is never written.
    pub(crate) const NEVER_WRITTEN: u32 = 512;
}

/// Facts about a module, from `uruk_llvm_symbols`; the shim has the same list.
pub(super) mod module_bits {
    pub(crate) const INITIALIZERS: u32 = 1;
    pub(crate) const FINALIZERS: u32 = 2;
    pub(crate) const SHARES_SECTIONS: u32 = 4;
    pub(crate) const THREAD_LOCALS: u32 = 8;
    pub(crate) const CODE_SHARES_SECTIONS: u32 = 16;
}

// The shim (the C++ files of this folder), and those functions of LLVM's out of which a fatal error may unwind: `llvm-sys`
// declares them as functions that cannot.
unsafe extern "C-unwind" {
    fn uruk_llvm_guard(
        body: unsafe extern "C-unwind" fn(*mut c_void),
        data: *mut c_void,
        reason: *mut c_char,
        reason_size: usize,
    ) -> bool;
    fn uruk_llvm_install_bad_alloc_handler(handler: extern "C-unwind" fn(*mut c_void, *const c_char, bool));
    pub(super) fn uruk_llvm_configure_target_machine(
        machine: LLVMTargetMachineRef,
        function_sections: bool,
        data_sections: bool,
        large_data_threshold: u64,
    );
    pub(super) fn uruk_llvm_initialize_aarch64();
    pub(super) fn uruk_llvm_machine_level(machine: LLVMTargetMachineRef) -> c_uint;
    pub(super) fn uruk_llvm_code_model(module: LLVMModuleRef, large_data_threshold: *mut u64) -> c_int;
    pub(super) fn uruk_llvm_instructions(module: LLVMModuleRef) -> u64;
    pub(super) fn uruk_llvm_normalize(module: LLVMModuleRef);
    pub(super) fn uruk_llvm_foreign_producer(
        bytes: *const c_char,
        size: usize,
        is_newer: *mut bool,
    ) -> *mut c_char;
    pub(super) fn uruk_llvm_declares_type_tests(module: LLVMModuleRef) -> bool;
    pub(super) fn uruk_llvm_lower_type_tests(module: LLVMModuleRef) -> *mut c_char;
    pub(super) fn uruk_llvm_symbols(
        module: LLVMModuleRef,
        locals: bool,
        sink: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, usize, u32, u64, u64),
        data: *mut c_void,
    ) -> u32;
    pub(super) fn uruk_llvm_keep(module: LLVMModuleRef, name: *const c_char, size: usize);
    pub(super) fn uruk_llvm_discard(module: LLVMModuleRef, name: *const c_char, size: usize) -> bool;
    pub(super) fn uruk_llvm_divide(
        module: LLVMModuleRef,
        parts: u32,
        by_name: bool,
        sink: unsafe extern "C-unwind" fn(*mut c_void, *const u32, usize, *const u32, usize),
        data: *mut c_void,
    ) -> u32;
    pub(super) fn uruk_llvm_read_part(
        context: LLVMContextRef,
        bitcode: LLVMMemoryBufferRef,
        part_of: *const u32,
        values: usize,
        imports: *const u32,
        imported: usize,
        part: u32,
        message: *mut *mut c_char,
    ) -> LLVMModuleRef;
    pub(super) fn uruk_llvm_read_shape(
        module: LLVMModuleRef,
        form: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, usize),
        defined: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, usize, usize),
        address: unsafe extern "C-unwind" fn(*mut c_void, u64),
        data: *mut c_void,
    ) -> *mut c_char;
    pub(super) fn uruk_llvm_take_shape(
        module: LLVMModuleRef,
        form: *const c_char,
        size: usize,
    ) -> *mut c_char;
    pub(super) fn uruk_llvm_publish_all(module: LLVMModuleRef) -> bool;
    pub(super) fn uruk_llvm_make_version(
        module: LLVMModuleRef,
        base: *const c_char,
        target: *const c_char,
        cpu: *const c_char,
        features: *const c_char,
        base_bits: u32,
        target_bits: u32,
    );
    pub(super) fn uruk_llvm_retarget(module: LLVMModuleRef, cpu: *const c_char, features: *const c_char);
    pub(super) fn uruk_llvm_level(
        module: LLVMModuleRef,
        sink: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, usize),
        data: *mut c_void,
    );
    pub(super) fn uruk_llvm_comment(module: LLVMModuleRef, text: *const c_char);
    pub(super) fn uruk_llvm_wide_signature(module: LLVMModuleRef) -> *mut c_char;
    pub(super) fn uruk_llvm_processor(
        cpu: *const c_char,
        features: *const c_char,
        sink: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, usize),
        data: *mut c_void,
    ) -> bool;
    pub(super) fn uruk_llvm_shell(module: LLVMModuleRef, keeps_debug_info: bool) -> *mut c_void;
    pub(super) fn uruk_llvm_dispose_shell(shell: *mut c_void);
    pub(super) fn uruk_llvm_outline(
        shell: *mut c_void,
        sink: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, usize, u32, u32, u32),
        data: *mut c_void,
    ) -> bool;
    pub(super) fn uruk_llvm_read_notable(module: LLVMModuleRef, bytes: *const c_char, size: usize);
    pub(super) fn uruk_llvm_join_modules(
        context: LLVMContextRef,
        bytes: *const c_char,
        size: usize,
        message: *mut *mut c_char,
    ) -> LLVMModuleRef;
    pub(super) fn uruk_llvm_take_function(
        shell: *mut c_void,
        number: u32,
        form: u32,
        name: *const c_char,
        size: usize,
        message: *mut *mut c_char,
    ) -> LLVMModuleRef;
    pub(super) fn uruk_llvm_function_shape(
        shell: *mut c_void,
        number: u32,
        instructions: *mut u32,
        loop_depth: *mut u32,
        tight_loop_depth: *mut u32,
    ) -> *mut c_char;
    pub(super) fn uruk_llvm_keep_data(shell: *mut c_void) -> *mut c_char;
    pub(super) fn uruk_llvm_reach(
        shell: *mut c_void,
        sink: unsafe extern "C-unwind" fn(*mut c_void, u32),
        data: *mut c_void,
    ) -> *mut c_char;
    pub(super) fn uruk_llvm_pipeline_text(
        machine: LLVMTargetMachineRef,
        level: u32,
        points: u32,
        cut: *mut usize,
    ) -> *mut c_char;
    pub(super) fn uruk_llvm_run_pipeline(
        module: LLVMModuleRef,
        machine: LLVMTargetMachineRef,
        text: *const c_char,
        size: usize,
        inliner_threshold: i32,
        host: unsafe extern "C" fn(*mut c_void, u32, LLVMValueRef) -> bool,
        data: *mut c_void,
        hear: Option<unsafe extern "C" fn(*mut c_void, u32, *const c_char, usize, u64, u64)>,
        count: Option<CountFunctions>,
    ) -> *mut c_char;
    pub(super) fn uruk_llvm_emitter_is_used_up_by(module: LLVMModuleRef) -> bool;
    pub(super) fn uruk_llvm_emitter_create(machine: LLVMTargetMachineRef) -> *mut c_void;
    pub(super) fn uruk_llvm_emitter_dispose(emitter: *mut c_void);
    pub(super) fn uruk_llvm_emitter_run(
        emitter: *mut c_void,
        module: LLVMModuleRef,
        count: Option<CountFunctions>,
        data: *mut c_void,
    ) -> LLVMMemoryBufferRef;
    pub(super) fn uruk_llvm_take_attached(
        module: LLVMModuleRef,
        name: *const c_char,
        size: usize,
        hear: unsafe extern "C" fn(*mut c_void, *const c_char, usize),
        data: *mut c_void,
    );
    pub(super) fn uruk_llvm_copy_canonical(
        module: LLVMModuleRef,
        into: LLVMContextRef,
        message: *mut *mut c_char,
    ) -> LLVMModuleRef;

    pub(super) fn LLVMParseBitcodeInContext2(
        context: LLVMContextRef,
        buffer: LLVMMemoryBufferRef,
        module: *mut LLVMModuleRef,
    ) -> LLVMBool;
    pub(super) fn LLVMGetBitcodeModuleInContext2(
        context: LLVMContextRef,
        buffer: LLVMMemoryBufferRef,
        module: *mut LLVMModuleRef,
    ) -> LLVMBool;
    pub(super) fn LLVMParseIRInContext2(
        context: LLVMContextRef,
        buffer: LLVMMemoryBufferRef,
        module: *mut LLVMModuleRef,
        message: *mut *mut c_char,
    ) -> LLVMBool;
    pub(super) fn LLVMVerifyModule(
        module: LLVMModuleRef,
        action: llvm_sys::analysis::LLVMVerifierFailureAction,
        message: *mut *mut c_char,
    ) -> LLVMBool;
    pub(super) fn LLVMTargetMachineEmitToMemoryBuffer(
        machine: LLVMTargetMachineRef,
        module: LLVMModuleRef,
        kind: llvm_sys::target_machine::LLVMCodeGenFileType,
        message: *mut *mut c_char,
        buffer: *mut LLVMMemoryBufferRef,
    ) -> LLVMBool;
    pub(super) fn LLVMWriteBitcodeToMemoryBuffer(module: LLVMModuleRef) -> LLVMMemoryBufferRef;
}

#[cfg(test)]
mod tests {
    use super::*;

    // Declared once more, as a function that may unwind.
    unsafe extern "C-unwind" {
        fn LLVMSetModuleInlineAsm2(module: LLVMModuleRef, text: *const c_char, size: usize);
    }

    #[test]
    fn a_cxx_exception_out_of_llvm_is_an_error() {
        // SAFETY: the text is longer than any string can be, which is refused before it is read. Module and
        // context are disposed of after their last use.
        let error = unsafe {
            let context = llvm_sys::core::LLVMContextCreate();
            let module = llvm_sys::core::LLVMModuleCreateWithNameInContext(c"m".as_ptr(), context);
            let error = enter_llvm(|| LLVMSetModuleInlineAsm2(module, c"".as_ptr(), usize::MAX));
            llvm_sys::core::LLVMDisposeModule(module);
            llvm_sys::core::LLVMContextDispose(context);
            error
        };
        let FatalError(message) = error.expect_err("no such string");
        assert!(message.starts_with("C++ exception: "), "{message}");
    }

    #[test]
    fn a_failed_allocation_is_an_error() {
        let give_up = || give_up_allocating(std::ptr::null_mut(), c"out of everything".as_ptr(), true);
        assert_eq!(enter_llvm(give_up), Err(FatalError("out of everything".to_owned())));
    }

    #[test]
    fn a_panic_inside_goes_on_as_a_panic() {
        let panic = panic::catch_unwind(|| enter_llvm(|| panic::resume_unwind(Box::new(7))));
        assert_eq!(panic.err().and_then(|payload| payload.downcast::<i32>().ok()), Some(Box::new(7)));
        assert_eq!(DEPTH.get(), 0);
        assert_eq!(enter_llvm(|| 3), Ok(3));
    }
}
