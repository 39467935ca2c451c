//! Lookups, along the link order of a dylib.

use std::future::Future;

use uruk_core::{ExecutorSymbolDef, LookupError, LookupRequest, LookupSet};

use crate::{Jit, JitError, Scope};

impl Scope<'_> {
    /// Looks up `symbol` along the link order of the scope's dylib, as [`Jit::lookup`] does.
    ///
    /// # Errors
    /// As [`Jit::lookup`].
    pub fn lookup(&self, symbol: &str) -> Result<ExecutorSymbolDef, JitError> {
        let (session, dylib) = (&self.jit.session, self.dylib());
        let found = match self.jit.ready.find(session, dylib, symbol) {
            Some(ready) => ready,
            None => session.lookup_symbol(&dylib.link_order(), &session.intern(symbol))?,
        };
        self.jit.initialize_on_lookup(dylib)?;
        Ok(found)
    }

    /// Looks up `symbol` without blocking, as [`Jit::lookup_async`] does.
    pub fn lookup_async(
        &self,
        symbol: &str,
    ) -> impl Future<Output = Result<ExecutorSymbolDef, JitError>> + Send + use<> {
        let session = &self.jit.session;
        let symbol = session.intern(symbol);
        let (dylib, starter) = (self.dylib().clone(), self.jit.starter());
        let request = LookupRequest::new(dylib.link_order(), LookupSet::required([symbol.clone()]));
        let answer = session.lookup_future(request);
        async move {
            let found = answer.await?.get(&symbol).ok_or(LookupError::Closed)?;
            starter.start_on_lookup(&dylib)?;
            Ok(found)
        }
    }
}

impl Jit {
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
    /// costs an [`intern`](Jit::intern) more.
    pub fn lookup(&self, symbol: &str) -> Result<ExecutorSymbolDef, JitError> {
        self.main().lookup(symbol)
    }

    /// Looks up `symbol` without blocking for what is compiled. The lookup has begun when this returns, and is withdrawn if the future
    /// is dropped.
    ///
    /// # Concurrency
    /// With [`JitBuilder::initialize_on_lookup`](crate::JitBuilder::initialize_on_lookup) initialisers run inside the poll that ends the
    /// future. That poll waits, like [`Jit::initialize`], if another thread is at it.
    ///
    /// Needs no particular runtime. The engine may be dropped before the answer, which is an error then. Without compile threads what
    /// the symbol needs is compiled before this returns.
    ///
    /// # Errors
    /// Those of [`Jit::lookup`].
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
        self.main().lookup_async(symbol)
    }
}
