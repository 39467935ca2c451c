//! Lookups, along the link order of a dylib.

use std::future::Future;

use uruk_core::{ExecutorSymbolDef, LookupError, LookupRequest, LookupSet};
use uruk_pipeline::debug;

use crate::error::{JitError, Unexported};
use crate::executable;
use crate::scope::Scope;

impl Scope {
    /// Looks up `symbol`, compiling and linking what it needs.
    ///
    /// # Concurrency
    /// Callable from any thread; blocks until the symbol is Ready. Without compile threads all of it happens on this one.
    ///
    /// # Errors
    /// [`JitError::Lookup`], which names what is missing or failed, and why. An alias whose source was removed is
    /// [`LookupError::AliasOfRemoved`].
    ///
    /// # Cost
    /// For a symbol that is Ready, no lock and no reference count. The row `lookup_ready_by_text` of the benches (`benches/README.md`)
    /// compares it with a kept name and order. Each thread remembers some thousands of the names that it asks for. Any other name
    /// costs an [`intern`](Scope::intern) more.
    pub fn lookup(&self, symbol: &str) -> Result<ExecutorSymbolDef, JitError> {
        let (session, dylib) = (&self.engine.session, self.dylib());
        let found = match self.engine.ready.find(session, dylib, symbol) {
            Some(ready) => ready,
            None => {
                let found = session.lookup_symbol(&self.order(), &session.intern(symbol));
                let found = found.map_err(|error| self.told(error))?;
                debug::settle();
                found
            }
        };
        self.initialize_on_lookup()?;
        Ok(found)
    }

    /// Looks up `symbol` without blocking for what is compiled. The lookup has begun when this returns, and is withdrawn if the future
    /// is dropped.
    ///
    /// # Concurrency
    /// With [`JitBuilder::initialize_on_lookup`](crate::JitBuilder::initialize_on_lookup) initialisers run inside the poll that ends the
    /// future. That poll waits, like [`Scope::initialize`], if another thread is at it.
    ///
    /// Needs no particular runtime. The engine may be dropped before the answer, which is an error then. Without compile threads what
    /// the symbol needs is compiled before this returns.
    ///
    /// # Errors
    /// Those of [`Scope::lookup`].
    ///
    /// # Examples
    /// ```
    /// # async fn answer(jit: &uruk::Jit) -> Result<(), uruk::JitError> {
    /// let (first, second) = (jit.lookup_async("first"), jit.lookup_async("second"));
    /// // Both are being compiled.
    /// println!("{} {}", first.await?.address, second.await?.address);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lookup_async(
        &self,
        symbol: &str,
    ) -> impl Future<Output = Result<ExecutorSymbolDef, JitError>> + Send + use<> {
        let session = &self.engine.session;
        let symbol = session.intern(symbol);
        let scope = self.clone();
        let request = LookupRequest::new(self.order(), LookupSet::required([symbol.clone()]));
        let answer = session.lookup_future(request);
        async move {
            let found = answer.await.map_err(|error| scope.told(error))?;
            let found = found.get(&symbol).ok_or(LookupError::Closed)?;
            debug::settle();
            scope.initialize_on_lookup()?;
            Ok(found)
        }
    }
    /// Has symbols that failed, and all that they failed through, made once more when they are looked up: after memory was short, for one.
    ///
    /// A symbol that failed for the want of another needs no such call. When a definition of that has been added, a library loaded or a
    /// dylib linked to, the next lookup makes it once more.
    ///
    /// The bytes of objects, bitcode and text stay for that until their symbols are Ready. These can only be added again:
    ///
    /// - modules that were built in a context which others use too, and units of one's own that have no [spare](uruk_core::MaterializationUnit::spare);
    /// - files that share sections with others, by which each is linked with all of them.
    ///
    /// # Concurrency
    /// Callable from any thread; never blocks. If several threads retry a symbol, it is made once.
    ///
    /// # Errors
    /// [`JitError::Retry`] names the symbols that can only be added again. The others are made once more all the same.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// jit.add_ir_text("f.ll", "declare i64 @late() define i64 @f() { %x = call i64 @late() ret i64 %x }")?;
    /// assert!(jit.lookup("f").is_err());
    /// jit.add_ir_text("late.ll", "define i64 @late() { ret i64 42 }")?;
    /// assert!(jit.lookup("f").is_ok());
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// ```
    pub fn retry(&self, symbols: &[&str]) -> Result<(), JitError> {
        let names: Vec<_> = symbols.iter().map(|symbol| self.intern(symbol)).collect();
        Ok(self.session().retry(&self.order(), &names)?)
    }

    /// The error of a lookup, which says how a failed symbol can be made once more, and which missing symbols the executable keeps to itself.
    /// A program that has the process for itself is told nothing of that: it ends with the error.
    pub(crate) fn told(&self, error: LookupError) -> JitError {
        if self.engine.files.platform.is_of_process() {
            return JitError::Lookup(error);
        }
        let missing = error.missing_symbols();
        let symbols = if missing.is_empty() { Vec::new() } else { executable::defined_of(missing) };
        match (symbols.is_empty(), error.with_remedy()) {
            (true, error) => JitError::Lookup(error),
            (false, source) => JitError::Unexported(Box::new(Unexported { symbols, source })),
        }
    }
}
