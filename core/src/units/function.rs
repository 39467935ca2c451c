//! Units made of a function: what to promise, and what makes it.

use std::collections::HashSet;
use std::error::Error;
use std::fmt;

use crate::{
    Dependency, ExecutionSession, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupError, LookupRequest,
    LookupResult, LookupSet, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    ResolveError, Resource, SymbolFlags, SymbolFlagsMap, SymbolMap, SymbolName, TrackerError, shared_error,
};

/// A unit that is a function: it is called when one of the symbols is first looked up, and says where they are.
///
/// Code and data are in place when it returns. Its error fails the symbols. A unit that needs more than that implements
/// [`MaterializationUnit`].
///
/// # Examples
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
///
/// Two functions that call each other. Each says where it will be before it asks where the other is:
/// ```
/// use std::error::Error;
/// use uruk_core::{ExecutionSession, ExecutorAddr, FnUnit};
///
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// for (name, callee, address) in [("even", "odd", 0x1000), ("odd", "even", 0x2000)] {
///     let (symbol, callee) = (session.intern(name), session.intern(callee));
///     let unit = FnUnit::new([symbol], move |request| -> Result<_, Box<dyn Error + Send + Sync>> {
///         let here = request.addresses([(name, ExecutorAddr::new(address))])?; // Memory is reserved.
///         request.resolve(&here)?;
///         let _target = request.lookup([callee])?; // The code calls there, and is written now.
///         Ok(here)
///     });
///     main.define(Box::new(unit))?;
/// }
/// let even = session.lookup_symbol(&main.link_order(), &session.intern("even"))?;
/// assert_eq!(even.address, ExecutorAddr::new(0x1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FnUnit<F> {
    name: SymbolName,
    symbols: SymbolFlagsMap,
    /// Symbols that others define.
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
        let mut request = FnRequest {
            responsibility: &responsibility,
            discarded: &discarded,
            resolved: None,
            dependencies: Vec::new(),
        };
        let outcome = function(&mut request).map_err(shared_error);
        let outcome = outcome.and_then(|addresses| request.resolve(&addresses).map_err(shared_error));
        let dependencies = request.dependencies;
        match outcome {
            // A refusal has failed the symbols and the lookups that wait for them.
            Ok(()) => drop(responsibility.into_resolved().complete(dependencies)),
            Err(error) => responsibility.fail(error),
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

/// The request to the function of an [`FnUnit`], with the operations it may use meanwhile.
#[derive(Debug)]
pub struct FnRequest<'a> {
    responsibility: &'a MaterializationResponsibility,
    /// Symbols that others define.
    discarded: &'a HashSet<SymbolName>,
    /// The addresses that the session has been given.
    resolved: Option<SymbolMap>,
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

    /// Says where the symbols will be, before code and data are in place there: others that refer to them need not wait for more.
    ///
    /// A function that never calls this is taken to do so as it returns. One that has called it answers the same addresses.
    ///
    /// # Errors
    /// Those of [`notify_resolved`](MaterializationResponsibility::notify_resolved); [`ResolveError::Changed`] if other addresses were
    /// told before.
    pub fn resolve(&mut self, addresses: &SymbolMap) -> Result<(), ResolveError> {
        let mut addresses = addresses.clone();
        addresses.retain(|name, _| !self.discarded.contains(name));
        let Some(resolved) = &self.resolved else {
            self.responsibility.resolve(&addresses).map_err(|error| *error)?;
            self.resolved = Some(addresses);
            return Ok(());
        };
        let changed = |name: &&SymbolName| resolved.get(name) != addresses.get(name);
        let mut symbols: Vec<_> = resolved.keys().filter(changed).cloned().collect();
        symbols.extend(addresses.keys().filter(|name| resolved.get(name).is_none()).cloned());
        match symbols.is_empty() {
            true => Ok(()),
            false => Err(ResolveError::Changed { unit: self.unit(), symbols }),
        }
    }

    /// Where symbols are or will be, found as the dylib's code would see them. The unit's symbols depend on them.
    ///
    /// Code of this unit may call these addresses, this function may not: the code there may not run yet. Units that refer to each
    /// other [resolve](Self::resolve) first.
    ///
    /// # Concurrency
    /// Blocks until their addresses are known. The pool replaces the worker meanwhile.
    ///
    /// # Errors
    /// Those of a lookup; [`LookupError::WouldDeadlock`] if one of the symbols cannot be resolved without this unit.
    pub fn lookup(
        &mut self,
        names: impl IntoIterator<Item = SymbolName>,
    ) -> Result<LookupResult, LookupError> {
        let request = LookupRequest::new(self.dylib().link_order(), LookupSet::required(names));
        let found = self.session().lookup(request.until_resolved())?;
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

    /// The function's answer: the addresses of the symbols, with the flags they were promised with.
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
            false => Err(ResolveError::Unexpected { unit: self.unit(), symbols: unexpected }),
        }
    }

    fn unit(&self) -> SymbolName {
        self.session().intern(self.responsibility.unit_name())
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
