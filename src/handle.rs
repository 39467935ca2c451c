//! [`Function`]: a function that can be called, and that keeps its code.
//!
//! A handle comes about in three steps. The symbol is looked up. The code at its address is held. If nothing of the session was removed
//! meanwhile, what is held is the symbol's code. Otherwise the session is asked whether the definition is still there, and what it is an
//! alias of. If it is not, all is done again with what is there now.

use std::fmt;
use std::future::Future;
use std::ops::Deref;

use uruk_core::{
    ExecutorAddr, ExecutorSymbolDef, LookupError, LookupRequest, LookupResult, LookupSet, SymbolFlags,
    SymbolName,
};
use uruk_pipeline::debug;
use uruk_pipeline::lazy::{LazyCallFailure, callee};
use uruk_pipeline::linking::HeldCode;

use crate::error::JitError;
use crate::function::FunctionPointer;
use crate::scope::Scope;

/// A function of linked code, to be called like the pointer that it is: `f(41)`.
///
/// As long as a clone of it is there, the function's code stays mapped, and all code that it refers to, directly or through other code,
/// independent of its tracker or dylib. It may be called after its tracker was removed, its name defined anew, and the [`Jit`](crate::Jit)
/// dropped; the variables of its code are then as the removal has left them. What it reaches by a pointer that it was handed
/// at run time is not kept for it, and neither is what had been removed before there was a handle.
///
/// Made by [`Scope::get`], which is where its caller promises the signature.
///
/// # Concurrency
/// `Send` and `Sync`. The last clone to go unmaps code without other keepers, on the thread that drops it: not inside that code.
///
/// # Examples
/// ```
/// # #[cfg(feature = "llvm")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let jit = uruk::Jit::builder().threads(1).build()?;
/// let query = jit.create_tracker();
/// jit.in_tracker(&query)
///     .add_ir_text("query.ll", "define i64 @next(i64 %x) { %y = add i64 %x, 1 ret i64 %y }")?;
/// // SAFETY: `next` takes and gives a 64-bit integer, and no copy of the pointer outlives `next`.
/// let next = unsafe { jit.get::<extern "C" fn(i64) -> i64>("next") }?;
/// query.remove()?;
/// assert!(jit.lookup("next").is_err());
/// assert_eq!(next(41), 42);
/// drop(next); // Here the code goes.
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "llvm"))]
/// # fn main() {}
/// ```
///
/// A handle is no way to call a function that nobody has vouched for:
/// ```compile_fail,E0133
/// # fn calls_unpromised(jit: &uruk::Jit) -> Result<(), uruk::JitError> {
/// let next = jit.get::<extern "C" fn(i64) -> i64>("next")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Function<F> {
    pointer: F,
    /// Nothing if the code is not of ours to keep.
    code: Option<HeldCode>,
}

impl<F> Deref for Function<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.pointer
    }
}

impl<F: FunctionPointer> Function<F> {
    /// Calls the function through `call`, unless it is a [lazy](Scope::add_lazy) one that is not there yet and cannot be had: then it is not
    /// called, and the failure is the answer. A plain call goes on where
    /// [`JitBuilder::on_lazy_failure`](crate::JitBuilder::on_lazy_failure) says, or ends the process.
    ///
    /// The pointer that `call` is given leads past the function's stub. It is good as long as the handle is, as the handle's own is, and
    /// stays with the function's present body.
    ///
    /// Only this function is asked for. Lazy functions that it calls itself fail as they always do: in the middle of compiled code, which
    /// may have no unwind tables, there is no way back to here. A host that wants these failures too looks their names up first. So does a
    /// call that was counted to be compiled better, and is overtaken by [`Scope::redefine_lazily`].
    ///
    /// # Concurrency
    /// As a call. A function that is not there yet is compiled on this thread, as by its first call.
    ///
    /// # Errors
    /// [`LazyCallFailure`]. The next call tries again.
    ///
    /// # Cost
    /// A lock that is the handle's own, and a look at the stub.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// let bodies = jit.create_dylib("bodies")?;
    /// bodies.add_ir_text(
    ///     "f.ll",
    ///     "declare i64 @absent(i64) define i64 @f(i64 %x) { %y = call i64 @absent(i64 %x) ret i64 %y }",
    /// )?;
    /// jit.add_lazy(&bodies, ["f"])?;
    /// // SAFETY: that is the function's signature.
    /// let f = unsafe { jit.get::<extern "C" fn(i64) -> i64>("f") }?;
    /// let failure = f.try_call(|f| f(41)).unwrap_err();
    /// assert_eq!(failure.function.as_str(), "f");
    ///
    /// jit.add_ir_text("absent.ll", "define i64 @absent(i64 %x) { %y = add i64 %x, 1 ret i64 %y }")?;
    /// assert_eq!(f.try_call(|f| f(41)).unwrap(), 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_call<R>(&self, call: impl FnOnce(F) -> R) -> Result<R, LazyCallFailure> {
        let address = self.pointer.address();
        let callee = self.code.as_ref().map_or(Ok(address), |code| callee(address, code))?;
        // SAFETY: a stub jumps there, so the code is of the stub's signature, which is the promise of who made the handle. The handle holds
        // what its stubs lead to from before they do.
        Ok(call(unsafe { F::from_address(callee) }))
    }
}

impl<F> fmt::Debug for Function<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("holds_code", &self.code.is_some()).finish_non_exhaustive()
    }
}

impl Scope {
    /// Looks up a function and hands it out as a pointer of type `F`, which keeps nothing: [`Scope::get`] gives a handle that does.
    ///
    /// Initialisers of the function's dylib may not have run: its static objects are not constructed before [`Scope::initialize`], which
    /// [`JitBuilder::initialize_on_lookup`](crate::JitBuilder::initialize_on_lookup) makes lookups do by themselves.
    ///
    /// # Safety
    /// The function must have the signature `F` says, and the pointer must not be used after the code is
    /// gone: when the `Jit` is dropped, or the function's tracker removed.
    ///
    /// # Errors
    /// As [`Scope::lookup`], and [`JitError::NotCallable`] if the symbol is data.
    pub unsafe fn function<F: FunctionPointer>(&self, symbol: &str) -> Result<F, JitError> {
        self.engine.check_here(POINTERS)?;
        let found = self.lookup(symbol)?;
        check_callable(symbol, found)?;
        // SAFETY: the symbol is Ready, so its code is complete and executable; signature and lifetime are
        // the caller's promise.
        Ok(unsafe { F::from_address(found.address) })
    }

    /// Looks up a function and gives a handle of it, which keeps its code.
    ///
    /// `F` is the type of a pointer to a C function; [`FunctionPointer`] says which there are. A function that only some arguments
    /// are sound for is best asked for as `unsafe extern "C" fn`, so that each call says why it is.
    ///
    /// # Safety
    /// Nobody can check what a symbol's signature is. Who calls this promises that
    /// - the function has the signature, and the ABI, that `F` says;
    /// - if `F` is not an `unsafe fn`, calling it is sound with every argument of these types, on every thread, until the last clone of
    ///   the handle is gone. That includes that it does not use what was removed without a handle on it, nor host data that is gone;
    /// - no copy of the pointer, `*function`, is called when the handle and its clones are gone.
    ///
    /// A lifetime in `F` is one that the caller chose: `extern "C" fn(&'static str)` takes no other. The function may keep what it is
    /// handed for as long as its type says, and no longer.
    ///
    /// # Concurrency
    /// As [`Scope::lookup`]. If others remove the function meanwhile, this finds what is there afterwards, or that nothing is.
    ///
    /// # Errors
    /// As [`Scope::lookup`], and [`JitError::NotCallable`] if the symbol is data. [`LookupError::AliasOfRemoved`] if it is an alias whose
    /// source was removed: there is nothing to keep.
    ///
    /// # Cost
    /// A lookup, and a step for each piece of code that is held. The first handle of a function since code came or went looks for these by
    /// their addresses: a step for each reference. So does every handle that leads to stubs. If the symbol was not Ready, the session's lock for a moment. A call through
    /// the handle costs what a call through the pointer does. Code that was not linked here, such as the process's, is not held.
    pub unsafe fn get<F: FunctionPointer>(&self, symbol: &str) -> Result<Function<F>, JitError> {
        let (address, code) = self.held_function(symbol)?;
        // SAFETY: the symbol was Ready when its code was held, so that is complete and executable, and stays; the signature is the
        // caller's promise.
        Ok(Function { pointer: unsafe { F::from_address(address) }, code })
    }

    /// As [`Scope::get`], for any type of pointer, such as one that takes references of every lifetime.
    ///
    /// # Safety
    /// As [`Scope::get`]; and `F` must be a function pointer.
    ///
    /// # Errors
    /// As [`Scope::get`].
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// jit.add_ir_text("first.ll", "define i64 @first(ptr %row) { %x = load i64, ptr %row ret i64 %x }")?;
    /// // SAFETY: `first` reads the first of two integers and keeps nothing of them.
    /// let first = unsafe { jit.get_unchecked::<extern "C" fn(&[i64; 2]) -> i64>("first") }?;
    /// assert_eq!(first(&[42, 1]), 42);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// ```
    pub unsafe fn get_unchecked<F: Copy>(&self, symbol: &str) -> Result<Function<F>, JitError> {
        const { assert!(size_of::<F>() == size_of::<*const ()>(), "a function pointer is asked for") };
        let (address, code) = self.held_function(symbol)?;
        let address = address.to_ptr::<()>();
        // SAFETY: both are of this size, as was asserted; that `F` is the type of a pointer to what is there is the caller's promise.
        let pointer = unsafe { std::mem::transmute_copy::<*mut (), F>(&address) };
        Ok(Function { pointer, code })
    }

    /// Looks up a function if it is Ready, and gives a handle of it. `None` if it is not: nothing is compiled, and nothing is waited for.
    ///
    /// For runtimes that go on by other means, such as an interpreter, until code is there. `None` says nothing of what may come: the
    /// symbol may be unknown, failed or in the making, or found by a definition generator alone.
    ///
    /// # Safety
    /// As [`Scope::get`].
    ///
    /// # Concurrency
    /// Callable from any thread; takes no lock of the session. If others remove symbols meanwhile, it looks again.
    ///
    /// # Errors
    /// [`JitError::NotCallable`] if the symbol is data.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// type Answer = extern "C" fn() -> i64;
    /// jit.add_ir_text("f.ll", "define i64 @f() { ret i64 42 }")?;
    /// // SAFETY: that is the function's signature.
    /// assert!(unsafe { jit.try_get::<Answer>("f") }?.is_none());
    /// jit.lookup("f")?;
    /// // SAFETY: as above.
    /// let f = unsafe { jit.try_get::<Answer>("f") }?.expect("it is Ready");
    /// assert_eq!(f(), 42);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// ```
    pub unsafe fn try_get<F: FunctionPointer>(&self, symbol: &str) -> Result<Option<Function<F>>, JitError> {
        self.engine.check_here(POINTERS)?;
        // Again if something was removed meanwhile, which need not have been this.
        while self.engine.ready.find(self.session(), self.dylib(), symbol).is_some() {
            if let Some((definition, code)) = self.held_ready(symbol) {
                check_callable(symbol, definition)?;
                self.initialize_on_lookup()?;
                // SAFETY: as in `get`.
                return Ok(Some(Function { pointer: unsafe { F::from_address(definition.address) }, code }));
            }
        }
        Ok(None)
    }

    /// As [`Scope::get`], without blocking for what is compiled. The lookup has begun when this returns, and is withdrawn if the future is
    /// dropped.
    ///
    /// # Concurrency
    /// With [`JitBuilder::initialize_on_lookup`](crate::JitBuilder::initialize_on_lookup) initialisers run inside the poll that ends the
    /// future. That poll waits, like [`Scope::initialize`], if another thread is at it.
    ///
    /// # Safety
    /// As [`Scope::get`].
    ///
    /// # Errors
    /// As [`Scope::get`].
    pub unsafe fn get_async<F: FunctionPointer>(
        &self,
        symbol: &str,
    ) -> impl Future<Output = Result<Function<F>, JitError>> + use<F> {
        let (scope, symbol) = (self.clone(), self.intern(symbol));
        let ask = |scope: &Self, symbol: &SymbolName| {
            let request = LookupRequest::new(scope.order(), required(symbol));
            scope.session().lookup_future(request)
        };
        let mut answer = ask(&scope, &symbol);
        async move {
            loop {
                let found = answer.await.map_err(|error| scope.told(error))?;
                // SAFETY: the caller's promise.
                if let Some(function) = unsafe { scope.function_of(&symbol, &found) }? {
                    return Ok(function);
                }
                answer = ask(&scope, &symbol);
            }
        }
    }

    /// The address of a function, and the handle that keeps its code.
    fn held_function(&self, symbol: &str) -> Result<(ExecutorAddr, Option<HeldCode>), JitError> {
        let (definition, code) = self.held(symbol)?;
        check_callable(symbol, definition)?;
        Ok((definition.address, code))
    }

    /// A definition, and the handle that keeps what is there.
    pub(crate) fn held(&self, symbol: &str) -> Result<Held, JitError> {
        self.engine.check_here(POINTERS)?;
        if let Some(held) = self.held_ready(symbol) {
            self.initialize_on_lookup()?;
            return Ok(held);
        }
        let symbol = self.intern(symbol);
        loop {
            let found = self.session().lookup(LookupRequest::new(self.order(), required(&symbol)));
            let found = found.map_err(|error| self.told(error))?;
            if let Some(held) = self.hold(&symbol, &found)? {
                self.initialize_on_lookup()?;
                return Ok(held);
            }
        }
    }

    /// The same for a symbol that is Ready, without the session's lock.
    ///
    /// A symbol is removed before its code goes. So if nothing was removed from before the lookup until the code was held, then that is the
    /// symbol's.
    fn held_ready(&self, symbol: &str) -> Option<Held> {
        self.session().while_unchanged(|| {
            let definition = self.engine.ready.find(self.session(), self.dylib(), symbol)?;
            Some((definition, self.object_layer().hold(definition.address)))
        })?
    }

    /// The handle of a function that was found. `None` if it was removed meanwhile.
    ///
    /// # Safety
    /// As [`Scope::get`].
    pub(crate) unsafe fn function_of<F: FunctionPointer>(
        &self,
        symbol: &SymbolName,
        found: &LookupResult,
    ) -> Result<Option<Function<F>>, JitError> {
        self.engine.check_here(POINTERS)?;
        let Some((definition, code)) = self.hold(symbol, found)? else { return Ok(None) };
        check_callable(symbol.as_str(), definition)?;
        self.initialize_on_lookup()?;
        // SAFETY: as in `get`.
        Ok(Some(Function { pointer: unsafe { F::from_address(definition.address) }, code }))
    }

    /// Holds what lies at a definition that was found. `None` if it was removed meanwhile.
    fn hold(&self, symbol: &SymbolName, found: &LookupResult) -> Result<Option<Held>, JitError> {
        let found = found.get(symbol).zip(found.dependency(symbol));
        let (definition, token) = found.ok_or(LookupError::Closed)?;
        debug::settle();
        let hold = || (definition, self.object_layer().hold(definition.address));
        Ok(self.session().while_present(token, hold)?)
    }
}

/// Nothing of linked code can be reached by these where another process runs it.
const POINTERS: &str = "a pointer to a function or data";

fn check_callable(symbol: &str, definition: ExecutorSymbolDef) -> Result<(), JitError> {
    match definition.flags.contains(SymbolFlags::CALLABLE) {
        true => Ok(()),
        false => Err(JitError::NotCallable { symbol: symbol.into() }),
    }
}

/// A definition, and the handle that keeps what is there: none if it is the process's.
type Held = (ExecutorSymbolDef, Option<HeldCode>);

fn required(symbol: &SymbolName) -> LookupSet {
    LookupSet::required([symbol.clone()])
}
