//! Errors: ours on their way out, as errors of libLLVM's own, and the client's on their way in.

use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::io::{self, Write as _};

use llvm_sys::core::LLVMCreateMessage;
use llvm_sys::error::{LLVMCreateStringError, LLVMDisposeErrorMessage, LLVMErrorRef, LLVMGetErrorMessage};
use uruk::core::{SharedError, WithCauses, shared_error};

/// Why a function of the interface did not do what it was asked for: the text of an `LLVMErrorRef`.
pub(crate) struct Problem(String);

impl Problem {
    pub(crate) fn new(text: impl fmt::Display) -> Self {
        Self(text.to_string())
    }

    /// The same as an error that the client disposes of.
    pub(crate) fn into_llvm(self) -> LLVMErrorRef {
        let text = CString::new(self.0.replace('\0', "?")).unwrap_or_default();
        // SAFETY: LLVM copies the string, which ends in NUL.
        unsafe { LLVMCreateStringError(text.as_ptr()) }
    }

    /// The same as a message that the client disposes of.
    pub(crate) fn into_message(self) -> *mut c_char {
        let text = CString::new(self.0.replace('\0', "?")).unwrap_or_default();
        // SAFETY: LLVM copies the string, which ends in NUL.
        unsafe { LLVMCreateMessage(text.as_ptr()) }
    }

    /// Tells it where ORC tells errors that no caller hears of.
    pub(crate) fn report(&self) {
        // ORC's session does so too, and the function that failed has no other way to say it. Without stderr it is lost.
        let _ = writeln!(io::stderr(), "JIT session error: {}", self.0);
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error + 'static> From<E> for Problem {
    fn from(error: E) -> Self {
        Self(WithCauses(&error).to_string())
    }
}

/// An error of the client's, which is taken over.
#[repr(transparent)]
pub(crate) struct ClientError(LLVMErrorRef);

impl ClientError {
    /// Success.
    pub(crate) const NONE: Self = Self(std::ptr::null_mut());

    /// libLLVM's, which is null for success.
    pub(crate) fn new(error: LLVMErrorRef) -> Self {
        Self(error)
    }

    /// Success is no error.
    pub(crate) fn into_result(self) -> Result<(), SharedError> {
        if self.0.is_null() {
            return Ok(());
        }
        // SAFETY: an error is consumed when its message is taken, and this value is gone; the message is read before it is disposed of.
        let text = unsafe {
            let message = LLVMGetErrorMessage(self.0);
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            LLVMDisposeErrorMessage(message);
            text
        };
        Err(shared_error(text))
    }
}
