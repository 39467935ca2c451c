//! Functions that are called under a guard instead of by a handle.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

pub use uruk_pipeline::guard::{Guard, PendingReclaim};

use crate::error::JitError;
use crate::function::FunctionPointer;
use crate::scope::Scope;

/// A function of linked code, to be called like the pointer that it is, until the guard is dropped or passes a checkpoint.
///
/// Made by [`Scope::get_guarded`], which is where its caller promises the signature. Copying it costs nothing: nothing is counted.
#[derive(Clone, Copy)]
pub struct GuardedFunction<'g, F> {
    pointer: F,
    guard: PhantomData<&'g Guard>,
}

impl<F> Deref for GuardedFunction<'_, F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.pointer
    }
}

impl<F> fmt::Debug for GuardedFunction<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedFunction").finish_non_exhaustive()
    }
}

impl Scope {
    /// Says that this thread runs linked code. What is removed from now on stays mapped until the thread has dropped the guard or passed a
    /// [checkpoint](Guard::checkpoint).
    ///
    /// For threads of a runtime that call many functions, which others redefine and remove: a [`Function`](crate::Function) keeps what it
    /// may reach, at a price for each handle, and keeps every body that its function ever had. A guard keeps what may be running, for the
    /// price of a store. A thread that never passes holds back everything that is removed: [`Scope::pending_reclaim`] names it.
    ///
    /// # Concurrency
    /// Does not block. Guards nest.
    ///
    /// # Cost
    /// A thread-local variable and a store. Removals pay, once a thread has entered: a system call of 1 to 2 microseconds for all that is removed together, and another one if
    /// that has to wait.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// let query = jit.create_tracker();
    /// jit.in_tracker(&query).add_ir_text("query.ll", "define i64 @query() { ret i64 42 }")?;
    /// let mut guard = jit.enter();
    /// // SAFETY: that is the function's signature.
    /// let run = unsafe { jit.get_guarded::<extern "C" fn() -> i64>(&guard, "query")? };
    /// let removal = jit.remove_tracker(&query)?;
    /// assert_eq!((run(), removal.is_done()), (42, false));
    /// guard.checkpoint(); // `run` cannot be called any more.
    /// assert!(removal.is_done());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A function that was found before a checkpoint is not called after it:
    /// ```compile_fail,E0502
    /// # fn calls_what_may_be_gone(jit: &uruk::Jit) -> Result<(), uruk::JitError> {
    /// let mut guard = jit.enter();
    /// // SAFETY: that is the function's signature.
    /// let run = unsafe { jit.get_guarded::<extern "C" fn() -> i64>(&guard, "query")? };
    /// guard.checkpoint();
    /// run();
    /// # Ok(())
    /// # }
    /// ```
    pub fn enter(&self) -> Guard {
        self.object_layer().guards().enter()
    }

    /// Removed code that is still mapped because threads are inside, and those threads.
    ///
    /// Code that handles keep is not counted.
    pub fn pending_reclaim(&self) -> PendingReclaim {
        self.object_layer().guards().pending_reclaim()
    }

    /// Looks up a function, to be called while `guard` is there.
    ///
    /// # Safety
    /// As [`Scope::get`], for as long as the guard stands: the function has the signature, and does not use what was removed before the guard
    /// was made. No copy of the pointer is called when the guard has been dropped or has passed a checkpoint.
    ///
    /// # Errors
    /// As [`Scope::lookup`], and [`JitError::NotCallable`] if the symbol is data.
    ///
    /// # Panics
    /// If the guard is another engine's.
    ///
    /// # Cost
    /// A lookup.
    pub unsafe fn get_guarded<'g, F: FunctionPointer>(
        &self,
        guard: &'g Guard,
        symbol: &str,
    ) -> Result<GuardedFunction<'g, F>, JitError> {
        assert!(guard.is_of(self.object_layer().guards()), "the guard is another engine's");
        // SAFETY: what is found now goes when the guard has passed; the rest is the caller's promise.
        let pointer = unsafe { self.function(symbol)? };
        Ok(GuardedFunction { pointer, guard: PhantomData })
    }
}
