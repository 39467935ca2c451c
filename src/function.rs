//! Addresses as functions one can call.

use uruk_core::ExecutorAddr;

/// Function pointer types that [`crate::Jit::function`] can hand out: `extern "C"` functions, safe or
/// unsafe, of up to eight arguments.
///
/// Sealed: turning an address into a pointer is sound for these types alone, and only when the code there
/// really has that signature.
pub trait FunctionPointer: sealed::Sealed + Copy {
    /// The pointer to the code at `address`.
    ///
    /// # Safety
    /// Code of exactly this signature must be at `address`, and must stay there while the pointer is used.
    unsafe fn from_address(address: ExecutorAddr) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! function_pointers {
    ($(($($argument:ident)*))*) => {$(
        function_pointers!(@one extern "C" fn($($argument),*) -> R, $($argument)*);
        function_pointers!(@one unsafe extern "C" fn($($argument),*) -> R, $($argument)*);
    )*};
    (@one $pointer:ty, $($argument:ident)*) => {
        impl<R, $($argument),*> sealed::Sealed for $pointer {}
        impl<R, $($argument),*> FunctionPointer for $pointer {
            unsafe fn from_address(address: ExecutorAddr) -> Self {
                // SAFETY: a function pointer is an address of this size; that code of this signature is
                // there is the caller's promise.
                unsafe { std::mem::transmute::<*mut (), Self>(address.to_ptr::<()>()) }
            }
        }
    };
}

function_pointers! { () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) }
