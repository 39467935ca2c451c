//! The boundary to C: how a call comes in, how its outcome goes out, and what arguments are read through.
//!
//! Each exported function is written in [`interface!`], which makes four things hold for all of them:
//!
//! - A panic does not leave: it is an error like others.
//! - An error of a function that returns `LLVMErrorRef` is that. Another function says it on stderr, as ORC's session does, and
//!   returns null.
//! - Callbacks that became due run before the function returns, with nothing of ours on the stack that would have to be dropped
//!   ([`crate::callbacks`]).
//! - Work of a callback that was left by `longjmp` is failed before anything else is done.
//!
//! **Safety.** The caller of an exported function owes what LLVM's headers ask of it: a pointer is null or points to what its type says, for
//! as long as the call lasts, and an array has the length that is passed with it. Handles are not part of that: they are numbers to us
//! and are never read through. [`Text`], [`Array`] and [`Out`] can be made by such a caller alone, which is why their methods are
//! safe.

use std::any::Any;
use std::ffi::{CStr, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use llvm_sys::error::LLVMErrorRef;

use crate::callbacks;
use crate::errors::Problem;
use crate::handles::Handle;

/// Defines functions of the interface. A body is a block of type `Result<_, Problem>`.
macro_rules! interface {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            $crate::boundary::enter(stringify!($name), || $body)
        }
    )*};
}

/// Runs the body of a function of the interface; see the module's head.
pub(crate) fn enter<R: Outcome>(function: &str, body: impl FnOnce() -> Result<R::Value, Problem>) -> R {
    let here = 0_u8;
    let depth = callbacks::begin((&raw const here).addr());
    let outcome = catch(function, body);
    callbacks::run_all(depth);
    callbacks::end(depth);
    outcome
}

/// Runs a body; see the module's head for panics and errors.
pub(crate) fn catch<R: Outcome>(function: &str, body: impl FnOnce() -> Result<R::Value, Problem>) -> R {
    let problem = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return R::of(value),
        Ok(Err(problem)) => problem,
        Err(payload) => Problem::new(format_args!("a defect of liburuk_orc: {}", text_of_panic(&*payload))),
    };
    R::failed(Problem::new(format_args!("{function}: {problem}")))
}

fn text_of_panic(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

/// A type that a function of the interface returns.
pub(crate) trait Outcome: Sized {
    /// The type of a success, inside.
    type Value;

    fn of(value: Self::Value) -> Self;
    fn failed(problem: Problem) -> Self;
}

impl Outcome for LLVMErrorRef {
    type Value = ();

    fn of((): ()) -> Self {
        std::ptr::null_mut()
    }

    fn failed(problem: Problem) -> Self {
        problem.into_llvm()
    }
}

/// Types that cannot say that something failed.
macro_rules! mute {
    ($($type:ty: $nothing:expr;)*) => {$(
        impl Outcome for $type {
            type Value = Self;

            fn of(value: Self) -> Self {
                value
            }

            fn failed(problem: Problem) -> Self {
                problem.report();
                $nothing
            }
        }
    )*};
}

mute! {
    (): ();
    Handle: Handle::NULL;
    c_char: 0;
    *const c_char: std::ptr::null();
    *mut c_char: std::ptr::null_mut();
    *mut Handle: std::ptr::null_mut();
    c_int: 1;
    *mut crate::symbols::FlagsMapPair: std::ptr::null_mut();
    llvm_sys::transforms::pass_builder::LLVMPassBuilderOptionsRef: std::ptr::null_mut();
}

/// A string of the client's, or null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// A string of ours, for a function that does not keep it.
    pub(crate) fn of(text: &CStr) -> Self {
        Self(text.as_ptr())
    }

    /// The string, which must be there and be UTF-8.
    pub(crate) fn get<'call>(self) -> Result<&'call str, Problem> {
        if self.0.is_null() {
            return Err(Problem::new("a string is null"));
        }
        // SAFETY: the client's string lives for the call; see the module's head.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_str()?)
    }
}

/// An array of the client's, or null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Array<T>(*const T);

impl<T> Array<T> {
    pub(crate) fn of<'call>(self, len: usize) -> Result<&'call [T], Problem> {
        match (len, self.0.is_null()) {
            (0, _) => Ok(&[]),
            (_, true) => Err(Problem::new(format_args!("an array of {len} elements is null"))),
            // SAFETY: the client's array has so many elements and lives for the call; see the module's head.
            (_, false) => Ok(unsafe { std::slice::from_raw_parts(self.0, len) }),
        }
    }
}

/// Where the client wants a result, or null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the result, if it is wanted.
    pub(crate) fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the client's place can be written to; see the module's head. It may be uninitialised, so nothing is dropped.
            unsafe { self.0.write(value) };
        }
    }
}

/// A truth of C's.
pub(crate) fn is_true(value: c_int) -> bool {
    value != 0
}

/// A copy of `items` that C gives back to [`free_array`].
pub(crate) fn into_array<T: Copy>(items: &[T]) -> Result<*mut T, Problem> {
    // SAFETY: the memory is as large as `items`, and aligned for everything.
    unsafe {
        let place = libc::malloc(size_of_val(items).max(1)).cast::<T>();
        if place.is_null() {
            return Err(Problem::new("there is no memory"));
        }
        place.copy_from_nonoverlapping(items.as_ptr(), items.len());
        Ok(place)
    }
}

/// Frees what [`into_array`] has made. Takes null.
pub(crate) fn free_array<T>(array: *mut T) {
    // SAFETY: the client gives back what it got, once; see the module's head.
    unsafe { libc::free(array.cast()) };
}
