//! Functions that get other bodies while they are called.

use std::any::Any;

use uruk_core::sync::Arc;
use uruk_core::sync::atomic::Ordering;
use uruk_core::{
    AliasMap, AliasTarget, ExecutorAddr, JitDylib, JitDylibLookupFlags, LookupError, LookupRequest,
    LookupSet, SearchOrder, SymbolName,
};

use super::LazyCallThroughManager;
use super::function::{BodyName, FindError, FoundBody, LazyFunction, find};
use super::group::{GroupTable, Root};
use crate::executor::StubLead;
use crate::linking::HeldCode;
use crate::runtime::background::between_forks;
use crate::runtime::call_through::{Cells, NamedCells, RootAddr, StubThere, note_body, stub_at};

/// Why a function could not be given another body.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RedirectError {
    /// The function, or its new body, was not found or could not be made.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The symbol is data.
    #[error("`{function}` is not a function")]
    NotCallable {
        /// The function, or its body.
        function: SymbolName,
    },
    /// The function has no stub: its callers call its code directly.
    #[error("`{function}` was not defined as a lazy function, so its callers cannot be led elsewhere")]
    NotLazy {
        /// The function.
        function: SymbolName,
    },
}

/// A function of a stub, found and held.
struct Stub {
    address: ExecutorAddr,
    cells: Cells,
    number: usize,
    /// If it is of a group, and of this process.
    root: Option<RootAddr>,
    /// If it is of another process.
    there: Option<StubThere>,
    /// Keeps the stub, and its slot with it.
    _held: Option<HeldCode>,
}

impl Stub {
    fn function(&self) -> Option<&LazyFunction> {
        let cell: &dyn Any = &**self.cells.get(self.number)?;
        cell.downcast_ref()
    }
}

/// The number of a function among those of its unit, where the code of stubs cannot be read.
fn number_of_name(cells: &Cells, function: &SymbolName) -> Option<usize> {
    let first: &dyn Any = &**cells.first()?;
    let (unit, _) = first.downcast_ref::<LazyFunction>()?.known();
    unit.functions.iter().position(|known| known.names.contains(function))
}

/// A stub, and where it is led.
struct Redirection {
    stub: Stub,
    body: BodyName,
    ready: Option<FoundBody>,
}

impl Redirection {
    /// Does it; in the `table` that a group is about to have, if there is one. Gives what is dropped later.
    fn make(&mut self, table: Option<&GroupTable>) -> impl Sized + use<> {
        let ready = self.ready.take();
        self.stub.function().map(|function| function.redirect(self.body.clone(), ready, table))
    }
}

/// Leads functions elsewhere whose stubs are of one unit. Gives what is dropped later.
fn redirect_unit(redirections: &mut [Redirection]) -> impl Sized + use<> {
    let first = redirections.first().map(|first| &first.stub);
    let group =
        first.and_then(|first| Some((first.function()?.group()?.clone(), first.root, first.cells.len())));
    let there = redirections.iter().filter_map(|it| Some((it.stub.number, it.stub.there.clone()?))).collect();
    between_forks(|| match group {
        Some((group, root, len)) if redirections.len() > 1 => {
            let lead = |table: &GroupTable| {
                redirections.iter_mut().map(|it| it.make(Some(table))).collect::<Vec<_>>()
            };
            match root {
                Some(root) => group.switch(&GroupRoot { root, len }, lead),
                None => group.switch(&RootThere { stubs: there, len }, lead),
            }
        }
        Some((group, ..)) => {
            group.while_settled(|| redirections.iter_mut().map(|it| it.make(None)).collect())
        }
        None => redirections.iter_mut().map(|it| it.make(None)).collect(),
    })
}

/// The root of a group of so many stubs.
struct GroupRoot {
    root: RootAddr,
    len: usize,
}

impl Root for GroupRoot {
    fn read(&self) -> Vec<u64> {
        self.root.read(self.len)
    }

    fn publish(&self, table: &GroupTable) {
        self.root.publish(table);
    }
}

/// The same where another process has the table: it is told which entries change.
struct RootThere {
    /// Those that are led elsewhere, by their numbers.
    stubs: Vec<(usize, StubThere)>,
    len: usize,
}

/// An entry that stays as it is. No code lies there.
const UNCHANGED: u64 = u64::MAX;

impl Root for RootThere {
    fn read(&self) -> Vec<u64> {
        vec![UNCHANGED; self.len]
    }

    fn publish(&self, table: &GroupTable) {
        let entry = |number: usize| table[number].load(Ordering::Relaxed); // written by this thread
        let changed = self.stubs.iter().filter(|(number, _)| entry(*number) != UNCHANGED);
        let leads: Vec<_> = changed
            .map(|(number, stub)| StubLead { stub: stub.stub, target: StubThere::target(entry(*number)) })
            .collect();
        if let Some((_, first)) = self.stubs.first().filter(|_| !leads.is_empty()) {
            first.stubs.lead(&leads);
        }
    }
}

impl LazyCallThroughManager {
    /// Gives functions of `dylib` that were defined by [`lazy_reexports`](Self::lazy_reexports) other bodies: functions of `bodies`, compiled
    /// before anything changes. Calls that begin when this has returned reach the new bodies; those that run go on in the old ones. Stubs,
    /// and so the functions' addresses, stay as they are.
    ///
    /// All is done or, on an error, nothing.
    ///
    /// # Concurrency
    /// May be called while other threads call the functions, look them up, lead them elsewhere and remove their bodies: none of these fails
    /// because of it. A first call that still waits for an older body goes to the new one. Functions are switched one by one, so a call may
    /// find some of them switched; the functions of one [group](Self::lazy_group) are switched at one moment. Two threads that redirect
    /// several functions do it one after the other.
    ///
    /// The old bodies stay until their trackers are removed, and beyond that as long as they are held.
    ///
    /// # Errors
    /// See [`RedirectError`].
    ///
    /// # Cost
    /// For each function two lookups, of the stub and of the body, and a store.
    ///
    /// ORC: `RedirectableSymbolManager::redirect`.
    #[doc(alias = "RedirectableSymbolManager")]
    pub fn redirect(
        &self,
        dylib: &JitDylib,
        bodies: &JitDylib,
        functions: AliasMap,
    ) -> Result<(), RedirectError> {
        let session = dylib.session();
        let all = LookupSet::required(functions.values().map(|function| function.source.clone()));
        session.lookup(LookupRequest::new(
            SearchOrder::from([(bodies.clone(), JitDylibLookupFlags::MatchAllSymbols)]),
            all,
        ))?;
        let bodies = |AliasTarget { source, .. }: AliasTarget| {
            let ready = self.find(bodies, &source)?;
            Ok((BodyName { dylib: bodies.downgrade(), name: source }, Some(ready)))
        };
        self.redirect_all(dylib, functions, bodies)
    }

    /// The same without compiling anything: the next call of each function does.
    ///
    /// # Errors
    /// [`RedirectError::Lookup`] and [`RedirectError::NotLazy`] for a function. That its new body is missing or broken is told to
    /// [the handler of failed calls](Self::on_failure).
    pub fn redirect_lazily(
        &self,
        dylib: &JitDylib,
        bodies: &JitDylib,
        functions: AliasMap,
    ) -> Result<(), RedirectError> {
        let bodies =
            |function: AliasTarget| Ok((BodyName { dylib: bodies.downgrade(), name: function.source }, None));
        self.redirect_all(dylib, functions, bodies)
    }

    /// Looks whether [`redirect`](Self::redirect) can lead these `functions` of `dylib` elsewhere, and compiles none of their bodies.
    ///
    /// # Errors
    /// Those of [`redirect`](Self::redirect) for a function.
    pub fn check_lazy<'f>(
        &self,
        dylib: &JitDylib,
        functions: impl IntoIterator<Item = &'f SymbolName>,
    ) -> Result<(), RedirectError> {
        functions.into_iter().try_for_each(|function| self.stub(dylib, function).map(drop))
    }

    fn redirect_all(
        &self,
        dylib: &JitDylib,
        functions: AliasMap,
        mut body: impl FnMut(AliasTarget) -> Result<(BodyName, Option<FoundBody>), RedirectError>,
    ) -> Result<(), RedirectError> {
        let found = |(function, target)| {
            let (stub, (body, ready)) = (self.stub(dylib, &function)?, body(target)?);
            Ok(Redirection { stub, body, ready })
        };
        let mut found: Vec<_> = functions.into_iter().map(found).collect::<Result<_, RedirectError>>()?;
        // Nothing fails from here on. Before the switch: who is called behind it may ask which function it is.
        for Redirection { stub, ready, .. } in &found {
            if let (Some((body, _)), None) = (ready, &stub.there) {
                note_body(*body, stub.address);
            }
        }
        found.sort_by_key(|redirection| redirection.stub.cells.as_ptr().addr());
        let one_at_a_time = self.redirections.lock();
        // Those of one unit of stubs, which are a group or none of them is.
        let of_units = found.chunk_by_mut(|one, next| Arc::ptr_eq(&one.stub.cells, &next.stub.cells));
        let before: Vec<_> = of_units.map(redirect_unit).collect();
        drop(one_at_a_time);
        if let Some(there) = found.first().and_then(|first| first.stub.there.as_ref()) {
            there.stubs.settle();
        }
        drop((before, found)); // without a lock: code may go with it
        Ok(())
    }

    fn stub(&self, dylib: &JitDylib, function: &SymbolName) -> Result<Stub, RedirectError> {
        let not_lazy = || RedirectError::NotLazy { function: function.clone() };
        let (address, held) = self.find(dylib, function)?;
        let cells = self.layer.cells_at(address).and_then(|cells| cells.downcast::<NamedCells>().ok());
        let cells = Cells::clone(&**cells.ok_or_else(not_lazy)?);
        let there = self.layer.executor.stubs_there().map(|stubs| StubThere { stubs, stub: address });
        let (number, root) = if there.is_some() {
            (number_of_name(&cells, function).ok_or_else(not_lazy)?, None)
        } else {
            let stub = held.as_ref().and_then(|held| stub_at(address, held));
            let (number, root) = stub.ok_or_else(not_lazy)?;
            (number as usize, root)
        };
        Ok(Stub { address, cells, number, root, there, _held: held })
    }

    fn find(&self, dylib: &JitDylib, name: &SymbolName) -> Result<FoundBody, RedirectError> {
        let look_up = |request: LookupRequest| {
            dylib.session().lookup(LookupRequest::new(&request.order, request.symbols))
        };
        find(|address| self.layer.hold(address), dylib, name, look_up).map_err(|error| match error {
            FindError::Lookup(error) => error.into(),
            FindError::NotCallable => RedirectError::NotCallable { function: name.clone() },
        })
    }
}
