//! Functions of a program that are compiled when they are first called, and that can be given other bodies.

use uruk_core::{
    AliasMap, AliasTarget, JitDylib, JitDylibLookupFlags, LookupRequest, LookupSet, MaterializationUnit,
    SearchOrder, SymbolFlags, SymbolFlagsMap, SymbolName,
};
use uruk_pipeline::lazy::LazyCallThroughManager;

use crate::error::JitError;
use crate::scope::Scope;

/// A function and the symbol that is its body: `"f"` has a body of its own name, `("f", "f$2")` has `f$2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LazyName<'n> {
    /// The called functions.
    pub function: &'n str,
    /// The bodies that run then, in another dylib.
    pub body: &'n str,
}

impl<'n> From<&'n str> for LazyName<'n> {
    fn from(function: &'n str) -> Self {
        Self { function, body: function }
    }
}

impl<'n> From<(&'n str, &'n str)> for LazyName<'n> {
    fn from((function, body): (&'n str, &'n str)) -> Self {
        Self { function, body }
    }
}

impl Scope {
    /// Defines `functions` in the scope's dylib: each has its address at once, and is compiled when it is first called, by the thread that
    /// calls it. Their bodies are what `bodies` defines, under these names or [others](LazyName).
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
    /// [`JitBuilder::on_lazy_failure`](crate::JitBuilder::on_lazy_failure) says; [`Function::try_call`](crate::Function::try_call) answers the failure.
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
    /// bodies.add_ir_text("next.ll", "define i64 @next(i64 %x) { %y = add i64 %x, 1 ret i64 %y }")?;
    /// jit.add_lazy(&bodies, ["next"])?;
    /// // SAFETY: `next` takes and gives a 64-bit integer.
    /// let next = unsafe { jit.get::<extern "C" fn(i64) -> i64>("next") }?; // Nothing is compiled yet.
    /// assert_eq!(next(41), 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_lazy<'n, N: Into<LazyName<'n>>>(
        &self,
        bodies: &Scope,
        functions: impl IntoIterator<Item = N>,
    ) -> Result<(), JitError> {
        self.add_stubs(bodies, functions, LazyCallThroughManager::lazy_reexports)
    }

    /// The same for functions that are redefined together: [`redefine`](Self::redefine) switches those of a group at one moment. A thread that
    /// has reached the new body of one reaches no older body of another that was redefined with it. A body that runs is not replaced: it
    /// may call new bodies of the others.
    ///
    /// # Errors
    /// As [`add_lazy`](Self::add_lazy).
    ///
    /// # Cost
    /// A call is a load more than a jump, which was lost in the noise where it was measured (`cargo bench --bench redefine`). Each redefinition of several functions takes eight bytes for each function of
    /// the group, which stay until the functions are removed: a thread may be about to read them.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// let bodies = jit.create_dylib("bodies")?;
    /// let program = "define i32 @pack.1() { ret i32 1 } define i32 @unpack.1() { ret i32 1 }
    ///                define i32 @pack.2() { ret i32 2 } define i32 @unpack.2() { ret i32 2 }";
    /// bodies.add_ir_text("formats.ll", program)?;
    /// jit.add_lazy_group(&bodies, [("pack", "pack.1"), ("unpack", "unpack.1")])?;
    /// // SAFETY: all bodies have this signature.
    /// let [pack, unpack] = ["pack", "unpack"].map(|name| unsafe { jit.get::<extern "C" fn() -> i32>(name) });
    /// let (pack, unpack) = (pack?, unpack?);
    /// assert_eq!((pack(), unpack()), (1, 1));
    /// jit.redefine(&bodies, [("pack", "pack.2"), ("unpack", "unpack.2")])?;
    /// assert_eq!((pack(), unpack()), (2, 2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_lazy_group<'n, N: Into<LazyName<'n>>>(
        &self,
        bodies: &Scope,
        functions: impl IntoIterator<Item = N>,
    ) -> Result<(), JitError> {
        self.add_stubs(bodies, functions, LazyCallThroughManager::lazy_group)
    }

    /// Gives lazy functions of the scope's dylib other bodies, of `bodies`, which are compiled before anything changes. Calls that begin when
    /// this has returned reach the new bodies; calls that run go on in the old ones. The functions' addresses stay, and handles of them
    /// lead to the new bodies too.
    ///
    /// All of `functions` are redefined or, on an error, none. References of `bodies` are found among the lazy functions first, as
    /// [`add_lazy`](Self::add_lazy) says; that stays if a body cannot be compiled, and changes on no other error. Each is switched at a moment of its own: a call that runs meanwhile may find some of
    /// them switched. Those of one [group](Self::add_lazy_group) are switched at one moment.
    ///
    /// A function has a new body in one of three ways. *Replace*, which is this: later calls reach the new body. *Shadow*: remove it
    /// and add it anew, so that what is linked later reaches the new one, and what was linked before stays with the old; a removal that others object to is
    /// [forced](Self::remove_tracker_leaving_dependants). *Reject*: a
    /// function that was not added as a lazy one is called directly, and stays as it is.
    ///
    /// Functions of one file may be inlined into each other when it is compiled. A function that is to be redefined has its body in a file of its own.
    ///
    /// # Concurrency
    /// May be called while others call the functions, look them up, redefine them and remove bodies. No wait for an older body fails for
    /// it: the wait goes on to the new one.
    ///
    /// The old bodies are there until they are removed, and held beyond that by handles of the functions. So a handle that is kept over
    /// many redefinitions holds a body for each of them: take a new one now and then.
    ///
    /// # Errors
    /// [`JitError::NotLazy`] if a function is not a lazy one, [`JitError::Lookup`] if a body is missing or cannot be compiled,
    /// [`JitError::NotCallable`] if it is data.
    ///
    /// # Cost
    /// Two lookups and a store for each function.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// let bodies = jit.create_dylib("bodies")?;
    /// let first = bodies.create_tracker();
    /// jit.in_tracker(&first).add_ir_text("1.ll", "define i64 @answer.1() { ret i64 41 }")?;
    /// jit.add_lazy(&bodies, [("answer", "answer.1")])?;
    /// // SAFETY: all bodies of `answer` give a 64-bit integer.
    /// let answer = unsafe { jit.get::<extern "C" fn() -> i64>("answer") }?;
    /// assert_eq!(answer(), 41);
    ///
    /// bodies.add_ir_text("2.ll", "define i64 @answer.2() { ret i64 42 }")?;
    /// jit.redefine(&bodies, [("answer", "answer.2")])?;
    /// assert_eq!(answer(), 42);
    /// first.remove()?; // No thread calls it any more.
    /// # Ok(())
    /// # }
    /// ```
    pub fn redefine<'n, N: Into<LazyName<'n>>>(
        &self,
        bodies: &Scope,
        functions: impl IntoIterator<Item = N>,
    ) -> Result<(), JitError> {
        let functions = self.redefinitions(functions);
        if !self.is_first_for(bodies.dylib()) {
            self.engine.files.linking.lazy.check_lazy(self.dylib(), functions.keys())?;
            self.flags_of_bodies(bodies.dylib(), functions.values().map(|function| &function.source))?;
        }
        self.let_bodies_call(bodies.dylib())?;
        let names: Vec<_> = functions.keys().cloned().collect();
        self.engine.files.linking.lazy.redirect(self.dylib(), bodies.dylib(), functions)?;
        // They are redefined by now: what begins to use an older body meanwhile counts as earlier.
        self.engine.redefinitions.note(self.dylib(), &names);
        Ok(())
    }

    /// As [`Scope::redefine`], without compiling anything: the next call of each function does.
    ///
    /// # Errors
    /// [`JitError::NotLazy`] if a function is not a lazy one. That a body is missing or cannot be compiled is told when it is called, as
    /// [`JitBuilder::on_lazy_failure`](crate::JitBuilder::on_lazy_failure) says.
    pub fn redefine_lazily<'n, N: Into<LazyName<'n>>>(
        &self,
        bodies: &Scope,
        functions: impl IntoIterator<Item = N>,
    ) -> Result<(), JitError> {
        let functions = self.redefinitions(functions);
        if !self.is_first_for(bodies.dylib()) {
            self.engine.files.linking.lazy.check_lazy(self.dylib(), functions.keys())?;
        }
        self.let_bodies_call(bodies.dylib())?;
        let names: Vec<_> = functions.keys().cloned().collect();
        self.engine.files.linking.lazy.redirect_lazily(self.dylib(), bodies.dylib(), functions)?;
        // They are redefined by now: what begins to use an older body meanwhile counts as earlier.
        self.engine.redefinitions.note(self.dylib(), &names);
        Ok(())
    }

    fn add_stubs<'n, N: Into<LazyName<'n>>>(
        &self,
        bodies: &Scope,
        functions: impl IntoIterator<Item = N>,
        stubs: fn(&LazyCallThroughManager, &JitDylib, AliasMap) -> Box<dyn MaterializationUnit>,
    ) -> Result<(), JitError> {
        let names: Vec<_> = functions.into_iter().map(|name| self.interned(name.into())).collect();
        let flags = self.flags_of_bodies(bodies.dylib(), names.iter().map(|(_, body)| body))?;
        let flags_of = |body: &SymbolName| {
            let flags = flags.get(body).copied().unwrap_or_default();
            (flags & SymbolFlags::EXPORTED) | SymbolFlags::CALLABLE
        };
        let functions = alias_map(names, flags_of);
        let unit = stubs(&self.engine.files.linking.lazy, bodies.dylib(), functions);
        self.dylib().define_with_tracker(unit, &self.tracker())?;
        self.let_bodies_call(bodies.dylib())
    }

    fn redefinitions<'n, N: Into<LazyName<'n>>>(&self, functions: impl IntoIterator<Item = N>) -> AliasMap {
        let names = functions.into_iter().map(|name| self.interned(name.into()));
        alias_map(names, |_| SymbolFlags::CALLABLE)
    }

    fn interned(&self, name: LazyName<'_>) -> (SymbolName, SymbolName) {
        let session = &self.engine.session;
        (session.intern(name.function), session.intern(name.body))
    }

    /// The flags of functions of `bodies`.
    fn flags_of_bodies<'b>(
        &self,
        bodies: &JitDylib,
        names: impl Iterator<Item = &'b SymbolName>,
    ) -> Result<SymbolFlagsMap, JitError> {
        let order = SearchOrder::from([(bodies.clone(), JitDylibLookupFlags::MatchAllSymbols)]);
        let wanted = LookupSet::required(names.cloned());
        let flags = self.engine.session.lookup_flags(LookupRequest::new(&order, wanted))?;
        match flags.iter().find(|(_, flags)| !flags.contains(SymbolFlags::CALLABLE)) {
            Some((symbol, _)) => Err(JitError::NotCallable { symbol: symbol.as_str().into() }),
            None => Ok(flags),
        }
    }

    /// Whether references of `bodies` find the functions of this dylib ahead of their own.
    fn is_first_for(&self, bodies: &JitDylib) -> bool {
        bodies.link_order().iter().next().is_some_and(|(first, _)| first == self.dylib())
    }

    /// Has them find these first. Never taken back: another thread may have found it so, and have bodies linked by it.
    fn let_bodies_call(&self, bodies: &JitDylib) -> Result<(), JitError> {
        Ok(bodies.begin_link_order(self.dylib(), JitDylibLookupFlags::MatchAllSymbols)?)
    }
}

fn alias_map(
    functions: impl IntoIterator<Item = (SymbolName, SymbolName)>,
    flags: impl Fn(&SymbolName) -> SymbolFlags,
) -> AliasMap {
    let alias = |(function, source): (SymbolName, SymbolName)| {
        let flags = flags(&source);
        (function, AliasTarget { source, flags })
    };
    functions.into_iter().map(alias).collect()
}
