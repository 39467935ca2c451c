//! Addresses as functions one can call.

#![expect(
    coherence_leak_check,
    reason = "a pointer that takes a reference of every lifetime is another type than one that takes a value; wasm-bindgen relies on it too"
)]

use uruk_core::ExecutorAddr;

/// Function pointer types that [`Scope::get`](crate::Scope::get) can hand out and [`Scope::define`](crate::Scope::define) can take:
/// `extern "C"` and `extern "C-unwind"` functions, safe or unsafe, of up to sixteen arguments.
///
/// Up to three arguments may each be a reference of every lifetime, as in `extern "C" fn(&Row, &mut State) -> i64`. Of more arguments the
/// first may. [`Scope::get_unchecked`](crate::Scope::get_unchecked) takes any other type that works for every lifetime.
///
/// Sealed: turning an address into a pointer is sound for these types alone, and only when the code there
/// really has that signature.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no pointer to a C function of up to sixteen arguments",
    note = "write it as `extern \"C\" fn(i64) -> i64`; a reference behind the third argument, or to an unsized value, needs `get_unchecked`"
)]
pub trait FunctionPointer: sealed::Sealed + Copy {
    /// The pointer to the code at `address`.
    ///
    /// # Safety
    /// Code of exactly this signature must be at `address`, and must stay there while the pointer is used.
    unsafe fn from_address(address: ExecutorAddr) -> Self;

    /// The address that the pointer leads to.
    fn address(self) -> ExecutorAddr;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! function_pointers {
    ([$($generic:ident)*] $($argument:ty,)*) => {
        function_pointers!(@one [$($generic)*] extern "C" fn($($argument),*) -> R);
        function_pointers!(@one [$($generic)*] unsafe extern "C" fn($($argument),*) -> R);
        function_pointers!(@one [$($generic)*] extern "C-unwind" fn($($argument),*) -> R);
        function_pointers!(@one [$($generic)*] unsafe extern "C-unwind" fn($($argument),*) -> R);
    };
    (@one [$($generic:ident)*] $pointer:ty) => {
        impl<R, $($generic),*> sealed::Sealed for $pointer {}
        impl<R, $($generic),*> FunctionPointer for $pointer {
            unsafe fn from_address(address: ExecutorAddr) -> Self {
                // SAFETY: a function pointer is an address of this size; that code of this signature is
                // there is the caller's promise.
                unsafe { std::mem::transmute::<*mut (), Self>(address.to_ptr::<()>()) }
            }

            fn address(self) -> ExecutorAddr {
                ExecutorAddr::from_ptr(self as *const ())
            }
        }
    };
}

/// Each argument by value, or by either kind of reference.
macro_rules! with_any_references {
    ([$($generic:ident)*] [$($argument:ty,)*]) => { function_pointers!([$($generic)*] $($argument,)*); };
    ([$($generic:ident)*] [$($argument:ty,)*] $next:ident $($rest:ident)*) => {
        with_any_references!([$($generic)* $next] [$($argument,)* $next,] $($rest)*);
        with_any_references!([$($generic)* $next] [$($argument,)* &$next,] $($rest)*);
        with_any_references!([$($generic)* $next] [$($argument,)* &mut $next,] $($rest)*);
    };
}

/// The first argument by value, or by either kind of reference.
macro_rules! with_a_first_reference {
    ($(($first:ident $($rest:ident)*))*) => {$(
        function_pointers!([$first $($rest)*] $first, $($rest,)*);
        function_pointers!([$first $($rest)*] &$first, $($rest,)*);
        function_pointers!([$first $($rest)*] &mut $first, $($rest,)*);
    )*};
}

with_any_references!([] []);
with_any_references!([] [] A);
with_any_references!([] [] A B);
with_any_references!([] [] A B C);
with_a_first_reference! {
    (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H)
    (A B C D E F G H I) (A B C D E F G H I J) (A B C D E F G H I J K) (A B C D E F G H I J K L)
    (A B C D E F G H I J K L M) (A B C D E F G H I J K L M N) (A B C D E F G H I J K L M N O)
    (A B C D E F G H I J K L M N O P)
}
