//! Addresses as functions one can call.

use uruk_core::ExecutorAddr;

/// Function pointer types that [`Scope::get`](crate::Scope::get) can hand out: `extern "C"` and `extern "C-unwind"` functions, safe or
/// unsafe, of up to sixteen arguments.
///
/// A type that works for every lifetime, as `extern "C" fn(&Row) -> i64` does, is none of them:
/// [`Scope::get_unchecked`](crate::Scope::get_unchecked) takes it.
///
/// Sealed: turning an address into a pointer is sound for these types alone, and only when the code there
/// really has that signature.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no pointer to a C function of up to sixteen arguments",
    note = "write it as `extern \"C\" fn(i64) -> i64`; arguments that are references need `get_unchecked`"
)]
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
        function_pointers!(@one extern "C-unwind" fn($($argument),*) -> R, $($argument)*);
        function_pointers!(@one unsafe extern "C-unwind" fn($($argument),*) -> R, $($argument)*);
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

function_pointers! {
    () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H)
    (A B C D E F G H I) (A B C D E F G H I J) (A B C D E F G H I J K) (A B C D E F G H I J K L)
    (A B C D E F G H I J K L M) (A B C D E F G H I J K L M N) (A B C D E F G H I J K L M N O)
    (A B C D E F G H I J K L M N O P)
}
