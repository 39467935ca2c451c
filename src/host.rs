//! Functions and data of the host, which linked code refers to; and data of linked code, which the host reads.

use std::fmt;
use std::marker::PhantomData;

use uruk_core::{ExecutorAddr, ExecutorSymbolDef, SymbolFlags, absolute_symbols};
use uruk_pipeline::linking::HeldCode;

use crate::error::JitError;
use crate::function::FunctionPointer;
use crate::scope::Scope;

/// Data of linked code, which stays mapped as long as a clone of this is there.
///
/// Made by [`Scope::get_data`]. It is an address: each access through [`as_ptr`](Self::as_ptr) is one that its author answers for.
///
/// # Concurrency
/// `Send` and `Sync`. The last clone to go unmaps data without other keepers, on the thread that drops it.
pub struct Data<T> {
    address: ExecutorAddr,
    /// Nothing if the data is not of ours to keep.
    memory: Option<HeldCode>,
    of: PhantomData<fn() -> T>,
}

impl<T> Data<T> {
    /// The address of the data, which is valid as long as this or a clone is there.
    pub fn as_ptr(&self) -> *mut T {
        self.address.to_ptr()
    }
}

impl<T> Clone for Data<T> {
    fn clone(&self) -> Self {
        Self { address: self.address, memory: self.memory.clone(), of: PhantomData }
    }
}

impl<T> fmt::Debug for Data<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Data").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Scope {
    /// Defines `name` as a function of the host, which code that is added may call.
    ///
    /// Code calls it by its declaration: `declare i64 @f(i64)` in IR is `extern "C" fn(i64) -> i64`. A function that may panic is
    /// `extern "C-unwind"`. Nothing compares the two signatures. The promise that they agree is made where the calling code is
    /// [asked for](Scope::get).
    ///
    /// Functions of the host are not found by themselves, because an executable exports none unless it is linked to. In a
    /// [tracker's](Scope::in_tracker) scope the definition goes with the tracker.
    ///
    /// # Concurrency
    /// Callable from any thread; does not block.
    ///
    /// # Errors
    /// [`JitError::Define`] if the name is defined here already, or the scope's tracker was removed.
    ///
    /// # Cost
    /// No code is made. A call from linked code costs what a call of a library does.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// extern "C" fn twice(x: i64) -> i64 {
    ///     2 * x
    /// }
    ///
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// jit.define("twice", twice as extern "C" fn(i64) -> i64)?;
    /// jit.add_ir_text("f.ll", "declare i64 @twice(i64) define i64 @f() { %x = call i64 @twice(i64 21) ret i64 %x }")?;
    /// // SAFETY: `f` gives a 64-bit integer, and calls `twice` by its signature.
    /// let f = unsafe { jit.get::<extern "C" fn() -> i64>("f") }?;
    /// assert_eq!(f(), 42);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// ```
    ///
    /// ORC: `absoluteSymbols`.
    #[doc(alias = "absoluteSymbols")]
    pub fn define<F: FunctionPointer>(&self, name: &str, function: F) -> Result<(), JitError> {
        self.define_address(name, function.address(), SymbolFlags::EXPORTED | SymbolFlags::CALLABLE)
    }

    /// Defines `name` as data of the host, which code that is added may read and write.
    ///
    /// The data has to stay where it is as long as such code may run. It should be a `static`, or an allocation that is not moved.
    ///
    /// # Concurrency
    /// As [`Scope::define`]. Accesses of linked code are accesses without synchronisation, unless they are atomic there.
    ///
    /// # Errors
    /// As [`Scope::define`].
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// static LIMIT: i64 = 42;
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// jit.define_data("limit", &LIMIT)?;
    /// jit.add_ir_text("f.ll", "@limit = external global i64 define i64 @f() { %x = load i64, ptr @limit ret i64 %x }")?;
    /// // SAFETY: `f` gives a 64-bit integer, and `limit` is one.
    /// let f = unsafe { jit.get::<extern "C" fn() -> i64>("f") }?;
    /// assert_eq!(f(), 42);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// ```
    #[doc(alias = "absoluteSymbols")]
    pub fn define_data<T>(&self, name: &str, data: *const T) -> Result<(), JitError> {
        self.define_address(name, ExecutorAddr::from_ptr(data), SymbolFlags::EXPORTED)
    }

    /// Looks up data, and gives a handle that keeps it.
    ///
    /// # Concurrency
    /// As [`Scope::get`].
    ///
    /// # Errors
    /// As [`Scope::lookup`], and [`JitError::NotData`] if the symbol is a function or a thread-local variable.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// jit.add_ir_text("version.ll", "@version = constant i32 7")?;
    /// let version = jit.get_data::<i32>("version")?;
    /// // SAFETY: `version` is a 32-bit integer, and constant.
    /// assert_eq!(unsafe { *version.as_ptr() }, 7);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// ```
    pub fn get_data<T>(&self, symbol: &str) -> Result<Data<T>, JitError> {
        let (definition, memory) = self.held(symbol)?;
        if definition.flags.intersects(SymbolFlags::CALLABLE | SymbolFlags::THREAD_LOCAL) {
            return Err(JitError::NotData { symbol: symbol.into() });
        }
        Ok(Data { address: definition.address, memory, of: PhantomData })
    }

    fn define_address(&self, name: &str, address: ExecutorAddr, flags: SymbolFlags) -> Result<(), JitError> {
        self.engine.check_here("a function or data of the host")?;
        let definition = ExecutorSymbolDef::new(address, flags);
        let unit = absolute_symbols([(self.intern(name), definition)].into_iter().collect());
        Ok(self.dylib().define_with_tracker(unit, &self.tracker())?)
    }
}
