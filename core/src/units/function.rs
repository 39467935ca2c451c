//! Units made of a function: what to promise, and what makes it.

use std::collections::HashSet;
use std::error::Error;
use std::fmt;

use crate::{
    Dependency, ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupError, LookupResult,
    LookupSet, MaterializationInterface, MaterializationResponsibility, MaterializationUnit, ResolveError,
    Resource, SymbolFlags, SymbolFlagsMap, SymbolMap, SymbolName, TrackerError, shared_error,
};

/// A unit that is a function: it is called when one of the symbols is first looked up, and says where they are.
///
/// What it answers is resolved and emitted in one step, so code and data are in place when it returns. What it fails with, the symbols
/// fail with. A unit that needs more than that implements [`MaterializationUnit`].
///
/// ```
/// use uruk_core::{ExecutionSession, ExecutorAddr, FnUnit};
///
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// let answer = session.intern("answer");
/// let unit = FnUnit::new([answer.clone()], |request| request.addresses([("answer", ExecutorAddr::new(0x1000))]));
/// main.define(Box::new(unit))?;
/// assert_eq!(session.lookup_symbol(&main.link_order(), &answer)?.address, ExecutorAddr::new(0x1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FnUnit<F> {
    name: SymbolName,
    symbols: SymbolFlagsMap,
    /// What others define.
    discarded: HashSet<SymbolName>,
    function: F,
}

impl<F, E> FnUnit<F>
where
    F: FnOnce(&mut FnRequest<'_>) -> Result<SymbolMap, E> + Send,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    /// A unit that promises `names` as functions that other dylibs may see, and calls `function` to make them.
    ///
    /// It is called as its first symbol in errors and traces; [`FnUnit::named`] says otherwise.
    ///
    /// # Panics
    /// If there are no names.
    pub fn new(names: impl IntoIterator<Item = SymbolName>, function: F) -> Self {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        Self::with_flags(names.into_iter().map(|name| (name, flags)).collect(), function)
    }

    /// A unit that promises `symbols` as the flags say.
    ///
    /// # Panics
    /// If there are no symbols.
    pub fn with_flags(symbols: SymbolFlagsMap, function: F) -> Self {
        let name = symbols.keys().next().expect("a unit promises at least one symbol").clone();
        Self { name, symbols, discarded: HashSet::new(), function }
    }

    /// Calls the unit `name` in errors, events and traces.
    #[must_use]
    pub fn named(mut self, name: SymbolName) -> Self {
        self.name = name;
        self
    }
}

impl<F, E> MaterializationUnit for FnUnit<F>
where
    F: FnOnce(&mut FnRequest<'_>) -> Result<SymbolMap, E> + Send,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new(self.symbols.clone())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let Self { symbols: _, discarded, function, name: _ } = *self;
        let mut request =
            FnRequest { responsibility: &responsibility, discarded: &discarded, dependencies: Vec::new() };
        let outcome = function(&mut request);
        let dependencies = request.dependencies;
        match outcome {
            Ok(mut addresses) => {
                addresses.retain(|name, _| !discarded.contains(name));
                // What is refused has failed the symbols, and is told to those who wait for them.
                let _ = responsibility.complete(&addresses, dependencies);
            }
            Err(error) => responsibility.fail(shared_error(error)),
        }
    }

    fn discard(&mut self, _dylib: &JitDylib, symbol: &SymbolName) {
        self.symbols.remove(symbol);
        self.discarded.insert(symbol.clone());
    }
}

impl<F> fmt::Debug for FnUnit<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnUnit")
            .field("name", &self.name)
            .field("symbols", &self.symbols)
            .finish_non_exhaustive()
    }
}

/// What the function of an [`FnUnit`] is asked for, and what it may do meanwhile.
#[derive(Debug)]
pub struct FnRequest<'a> {
    responsibility: &'a MaterializationResponsibility,
    /// What others define.
    discarded: &'a HashSet<SymbolName>,
    dependencies: Vec<Dependency>,
}

impl FnRequest<'_> {
    /// The session the symbols belong to.
    pub fn session(&self) -> &ExecutionSession {
        self.responsibility.session()
    }

    /// The dylib the symbols are defined in.
    pub fn dylib(&self) -> &JitDylib {
        self.responsibility.dylib()
    }

    /// The symbols that are wanted, with the flags they were promised with. Those that others define are not among them.
    pub fn symbols(&self) -> &SymbolFlagsMap {
        self.responsibility.symbols()
    }

    /// Looks symbols up as the dylib's code would see them, and lets the unit's symbols depend on them.
    ///
    /// # Concurrency
    /// Blocks until they are Ready. The pool replaces the worker meanwhile.
    ///
    /// # Errors
    /// Those of a lookup; [`LookupError::WouldDeadlock`] if one of the symbols needs this unit.
    pub fn lookup(
        &mut self,
        names: impl IntoIterator<Item = SymbolName>,
    ) -> Result<LookupResult, LookupError> {
        let found = self.dylib().lookup(LookupSet::required(names))?;
        self.dependencies.extend(found.dependencies());
        Ok(found)
    }

    /// Keeps `value`, memory for the code say, until the symbols are removed.
    ///
    /// # Errors
    /// [`TrackerError::Defunct`] if they are removed already; the value has been dropped then.
    pub fn keep(&self, value: impl Send + 'static) -> Result<(), TrackerError> {
        self.responsibility.add_resource(Box::new(Kept { _value: value }))
    }

    /// What the function answers: where the symbols are, with the flags they were promised with.
    ///
    /// # Errors
    /// [`ResolveError::Unexpected`] if the unit has promised no such symbol.
    pub fn addresses<'n>(
        &self,
        addresses: impl IntoIterator<Item = (&'n str, ExecutorAddr)>,
    ) -> Result<SymbolMap, ResolveError> {
        let (mut map, mut unexpected) = (SymbolMap::default(), Vec::new());
        for (name, address) in addresses {
            let name = self.session().intern(name);
            match self.symbols().get(&name) {
                Some(&flags) => drop(map.insert(name, ExecutorSymbolDef::new(address, flags))),
                None if self.discarded.contains(&name) => {}
                None => unexpected.push(name),
            }
        }
        match unexpected.is_empty() {
            true => Ok(map),
            false => {
                let unit = self.session().intern(self.responsibility.unit_name());
                Err(ResolveError::Unexpected { unit, symbols: unexpected })
            }
        }
    }
}

struct Kept<T> {
    _value: T,
}

impl<T: Send + 'static> Resource for Kept<T> {
    fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}
