//! Functions of a program that are compiled when they are first called.

use uruk_core::{
    AliasMap, AliasTarget, JitDylib, JitDylibLookupFlags, LookupKind, LookupSet, SearchOrder, SymbolFlags,
};

use crate::{Jit, JitError, Scope};

impl Jit {
    /// Defines `functions` in the main dylib: each has its address at once, and is compiled when it is first called, by the thread that
    /// calls it. Their bodies are what `bodies` defines under these names.
    ///
    /// References among the bodies find these functions first, so what one body calls in another file is lazy as well. Within a file calls
    /// go directly, and the file is compiled as a whole. A name of `bodies` that is not among `functions` is compiled with the first body
    /// that refers to it, as ever.
    ///
    /// # Concurrency
    /// Functions may be called on any thread, and on stacks of a few kilobytes. Threads that make the same first call wait for one of them.
    ///
    /// # Errors
    /// [`JitError::Lookup`] if `bodies` has no such symbol, [`JitError::NotCallable`] if one is data, [`JitError::Define`] if one is defined
    /// here already, [`JitError::Dylib`] if `bodies` was removed or belongs to another engine. A first call that fails goes where
    /// [`JitBuilder::on_lazy_failure`](crate::JitBuilder::on_lazy_failure) says.
    ///
    /// # Cost
    /// Of the first lookup: one link of stubs, about 100 bytes a function. Of a later call: a jump.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// let bodies = jit.create_dylib("bodies")?;
    /// jit.in_dylib(&bodies).add_ir_text("next.ll", "define i64 @next(i64 %x) { %y = add i64 %x, 1 ret i64 %y }")?;
    /// jit.add_lazy(&bodies, ["next"])?;
    /// // SAFETY: `next` takes and gives a 64-bit integer.
    /// let next = unsafe { jit.get::<extern "C" fn(i64) -> i64>("next") }?; // Nothing is compiled yet.
    /// assert_eq!(next(41), 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_lazy<'n>(
        &self,
        bodies: &JitDylib,
        functions: impl IntoIterator<Item = &'n str>,
    ) -> Result<(), JitError> {
        self.main().add_lazy(bodies, functions)
    }
}

impl Scope<'_> {
    /// Defines functions that are compiled when they are first called, as [`Jit::add_lazy`] does.
    ///
    /// # Errors
    /// As [`Jit::add_lazy`].
    pub fn add_lazy<'n>(
        &self,
        bodies: &JitDylib,
        functions: impl IntoIterator<Item = &'n str>,
    ) -> Result<(), JitError> {
        let session = &self.jit.session;
        let names: Vec<_> = functions.into_iter().map(|name| session.intern(name)).collect();
        let order = SearchOrder::from([(bodies.clone(), JitDylibLookupFlags::MatchAllSymbols)]);
        let flags = session.lookup_flags(LookupKind::Static, &order, LookupSet::required(names))?;
        let data = flags.iter().find(|(_, flags)| !flags.contains(SymbolFlags::CALLABLE));
        if let Some((symbol, _)) = data {
            return Err(JitError::NotCallable { symbol: symbol.as_str().into() });
        }
        let function = |(name, flags): (_, SymbolFlags)| {
            let (source, flags) =
                (Clone::clone(&name), flags & (SymbolFlags::EXPORTED | SymbolFlags::CALLABLE));
            (name, AliasTarget { source, flags })
        };
        let functions: AliasMap = flags.into_iter().map(function).collect();
        let unit = self.jit.files.lazy.lazy_reexports(bodies, functions);
        self.dylib().define_with_tracker(unit, &self.tracker())?;
        self.let_bodies_call(bodies)
    }

    /// Has references of `bodies` find the functions of this dylib ahead of their own.
    fn let_bodies_call(&self, bodies: &JitDylib) -> Result<(), JitError> {
        let mut order = SearchOrder::new();
        order.push(self.dylib().clone(), JitDylibLookupFlags::MatchAllSymbols);
        for (dylib, flags) in bodies.link_order().iter().filter(|(dylib, _)| dylib != self.dylib()) {
            order.push(dylib.clone(), *flags);
        }
        Ok(bodies.set_link_order(order)?)
    }
}
