//! Responsibilities.
//!
//! Ours have two types for two steps, and resolve all symbols at once; C has one type, and may resolve some at a time. So addresses are
//! gathered until the last has come.
//!
//! A responsibility lies here detached, so that any thread may go on with it.

use std::fmt;

use uruk::core::sync::{Arc, Mutex};
use uruk::core::{
    DependenceGroup, Detached, JitDylib, JitDylibLookupFlags, LookupRequest, LookupSet,
    MaterializationResponsibility, MaterializationUnit, ResolvedResponsibility, SharedError, SymbolFlags,
    SymbolFlagsMap, SymbolMap,
};

use crate::boundary::Array;
use crate::callbacks;
use crate::dylib::Dylib;
use crate::errors::Problem;
use crate::handles::{self, Handle, Handled};
use crate::names::Lent;
use crate::symbols;

/// An `LLVMOrcMaterializationResponsibilityRef`.
pub(crate) struct Responsibility {
    duty: Mutex<Duty>,
    dylib: JitDylib,
    /// Names that C has seen: they stay until the responsibility is disposed of.
    lent: Mutex<Lent>,
}

/// Why a unit has failed that the client has failed.
#[derive(Debug)]
pub(crate) struct FailedByClient;

impl fmt::Display for FailedByClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client has failed the unit")
    }
}

impl std::error::Error for FailedByClient {}

struct Duty {
    step: Step,
    /// The addresses that were given so far.
    addresses: SymbolMap,
}

enum Step {
    Compiling(Detached<MaterializationResponsibility>),
    Resolved(Detached<ResolvedResponsibility>),
    /// It has been emitted, has failed, was handed on, or a call is at work on it.
    Over,
}

impl Handled for Responsibility {
    const KIND: &'static str = "LLVMOrcMaterializationResponsibilityRef";
}

impl Responsibility {
    pub(crate) fn give(responsibility: MaterializationResponsibility) -> Handle {
        let dylib = responsibility.dylib().clone();
        let step = Step::Compiling(responsibility.detach());
        let duty = Mutex::new(Duty { step, addresses: SymbolMap::default() });
        handles::give(Self { duty, dylib, lent: Mutex::default() })
    }

    /// Ends the handle. None if nothing is left to do.
    pub(crate) fn take_unfinished(handle: Handle) -> Result<Option<MaterializationResponsibility>, Problem> {
        let responsibility = handles::take::<Self>(handle)?;
        Ok(match responsibility.take().step {
            Step::Compiling(responsibility) => Some(responsibility.attach()),
            Step::Resolved(_) | Step::Over => None,
        })
    }

    /// Takes the duty out: code of the embedder runs without a lock.
    fn take(&self) -> Duty {
        let mut duty = self.duty.lock();
        Duty {
            step: std::mem::replace(&mut duty.step, Step::Over),
            addresses: std::mem::take(&mut duty.addresses),
        }
    }

    /// Puts back what was taken. A duty that was over when it was taken may be another call's by now.
    fn put(&self, step: Step, addresses: SymbolMap) {
        if matches!(step, Step::Over) {
            return;
        }
        let over = std::mem::replace(&mut *self.duty.lock(), Duty { step, addresses });
        drop(over);
    }

    /// Lets `change` have a duty that is not resolved, and puts it back.
    pub(crate) fn compiling<R>(
        &self,
        change: impl FnOnce(&mut MaterializationResponsibility) -> Result<R, Problem>,
    ) -> Result<R, Problem> {
        let Duty { step, addresses } = self.take();
        match step {
            Step::Compiling(responsibility) => {
                let mut responsibility = responsibility.attach();
                let changed = change(&mut responsibility);
                self.put(Step::Compiling(responsibility.detach()), addresses);
                changed
            }
            step => {
                self.put(step, addresses);
                Err(Problem::new("the responsibility has been resolved, or is over"))
            }
        }
    }

    /// Lets `look` see a duty that is not resolved. Another thread may look at the same time, so it is looked at under the lock.
    pub(crate) fn look<R>(
        &self,
        look: impl FnOnce(&MaterializationResponsibility) -> R,
    ) -> Result<R, Problem> {
        let mut duty = self.duty.lock();
        match std::mem::replace(&mut duty.step, Step::Over) {
            Step::Compiling(responsibility) => {
                let responsibility = responsibility.attach();
                let seen = look(&responsibility);
                duty.step = Step::Compiling(responsibility.detach());
                Ok(seen)
            }
            step => {
                duty.step = step;
                Err(Problem::new("the responsibility has been resolved, or is over"))
            }
        }
    }

    /// The symbols; none if it is over.
    pub(crate) fn symbols(&self) -> SymbolFlagsMap {
        let mut duty = self.duty.lock();
        let (step, symbols) = match std::mem::replace(&mut duty.step, Step::Over) {
            Step::Compiling(responsibility) => {
                let responsibility = responsibility.attach();
                let symbols = responsibility.symbols().clone();
                (Step::Compiling(responsibility.detach()), symbols)
            }
            Step::Resolved(responsibility) => {
                let responsibility = responsibility.attach();
                let symbols = responsibility.symbols().clone();
                (Step::Resolved(responsibility.detach()), symbols)
            }
            Step::Over => (Step::Over, SymbolFlagsMap::default()),
        };
        duty.step = step;
        symbols
    }

    pub(crate) fn resolve(&self, more: &SymbolMap) -> Result<(), Problem> {
        let Duty { step, mut addresses } = self.take();
        let Step::Compiling(responsibility) = step else {
            self.put(step, addresses);
            return Err(Problem::new("the responsibility has been resolved, or is over"));
        };
        addresses.extend(more.iter().map(|(name, definition)| (name.clone(), *definition)));
        let responsibility = responsibility.attach();
        let stranger = addresses.keys().find(|name| !responsibility.symbols().contains_key(name)).cloned();
        if let Some(stranger) = stranger {
            addresses.retain(|name, _| !more.contains_key(name));
            self.put(Step::Compiling(responsibility.detach()), addresses);
            return Err(Problem::new(format_args!("the responsibility does not cover `{stranger}`")));
        }
        if !is_complete(responsibility.symbols(), &addresses) {
            self.put(Step::Compiling(responsibility.detach()), addresses);
            return Ok(());
        }
        match responsibility.notify_resolved(&addresses) {
            Ok(resolved) => self.put(Step::Resolved(resolved.detach()), SymbolMap::default()),
            Err(refused) => {
                addresses.retain(|name, _| !more.contains_key(name));
                self.put(Step::Compiling(refused.responsibility.detach()), addresses);
                return Err(refused.error.into());
            }
        }
        Ok(())
    }

    pub(crate) fn emit(&self, groups: &[CDependenceGroup]) -> Result<(), Problem> {
        let groups: Vec<_> = symbols::all(groups.iter().map(CDependenceGroup::take))?;
        if matches!(self.duty.lock().step, Step::Compiling(_)) {
            // Nothing of it needs an address.
            self.resolve(&SymbolMap::default())?;
        }
        let Duty { step, addresses } = self.take();
        let Step::Resolved(resolved) = step else {
            self.put(step, addresses);
            return Err(Problem::new("not all symbols have addresses, or the responsibility is over"));
        };
        let resolved = resolved.attach();
        let groups = match groups.into_iter().map(|group| group.with_tokens(&resolved)).collect() {
            Ok(groups) => groups,
            Err(problem) => {
                self.put(Step::Resolved(resolved.detach()), addresses);
                return Err(problem);
            }
        };
        resolved.notify_emitted(groups).map_err(|refused| {
            self.put(Step::Resolved(refused.responsibility.detach()), addresses);
            refused.error.into()
        })
    }

    /// Puts the symbols back as `unit`.
    pub(crate) fn replace(&self, unit: Box<dyn MaterializationUnit>) -> Result<(), Problem> {
        let Duty { step, addresses } = self.take();
        let Step::Compiling(duty) = step else {
            self.put(step, addresses);
            return Err(Problem::new("the responsibility has been resolved, or is over"));
        };
        duty.attach().replace(unit).map_err(|refused| {
            self.put(Step::Compiling(refused.responsibility.detach()), addresses);
            refused.error.into()
        })
    }

    pub(crate) fn dylib(&self) -> &JitDylib {
        &self.dylib
    }

    pub(crate) fn lent(&self) -> &Mutex<Lent> {
        &self.lent
    }

    pub(crate) fn fail(&self) {
        let why: SharedError = Arc::new(FailedByClient);
        match self.take().step {
            Step::Compiling(responsibility) => responsibility.fail(why),
            Step::Resolved(responsibility) => responsibility.fail(why),
            Step::Over => {}
        }
    }
}

fn is_complete(symbols: &SymbolFlagsMap, addresses: &SymbolMap) -> bool {
    symbols.iter().all(|(name, flags)| {
        flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY) || addresses.contains_key(name)
    })
}

/// `LLVMOrcCSymbolsList`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CSymbolsList {
    symbols: Array<Handle>,
    len: usize,
}

/// `LLVMOrcCDependenceMapPair`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CDependenceMapPair {
    dylib: Handle,
    names: CSymbolsList,
}

/// `LLVMOrcCSymbolDependenceGroup`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CDependenceGroup {
    symbols: CSymbolsList,
    dependencies: Array<CDependenceMapPair>,
    len: usize,
}

/// Symbols, and what they need of each dylib.
struct NamedGroup {
    symbols: Vec<uruk::core::SymbolName>,
    needs: Vec<(Arc<Dylib>, Vec<uruk::core::SymbolName>)>,
}

impl CDependenceGroup {
    /// The group with its names, all of which are released.
    fn take(&self) -> Result<NamedGroup, Problem> {
        let need = |pair: &CDependenceMapPair| {
            let names = symbols::take_names(pair.names.symbols.of(pair.names.len)?)?;
            Ok((handles::get::<Dylib>(pair.dylib)?, names))
        };
        let needs = self.dependencies.of(self.len).and_then(|needs| symbols::all(needs.iter().map(need)));
        let symbols = symbols::take_names(self.symbols.symbols.of(self.symbols.len)?)?;
        Ok(NamedGroup { symbols, needs: needs? })
    }
}

impl NamedGroup {
    /// Names become tokens: those of the unit's own symbols by itself, others by a lookup, which waits until they have addresses.
    fn with_tokens(self, resolved: &ResolvedResponsibility) -> Result<DependenceGroup, Problem> {
        let mut dependencies = Vec::new();
        for (dylib, names) in self.needs {
            let mut others = Vec::new();
            for name in names {
                let own = (*resolved.dylib() == dylib.0).then(|| resolved.dependency(&name)).flatten();
                match own {
                    Some(own) => dependencies.push(own),
                    None => others.push(name),
                }
            }
            if !others.is_empty() {
                let order = vec![(dylib.0.clone(), JitDylibLookupFlags::MatchAllSymbols)];
                let request = LookupRequest::new(order, LookupSet::required(others)).until_resolved();
                dependencies.extend(callbacks::look_up(resolved.session(), request)?.dependencies());
            }
        }
        Ok(DependenceGroup { symbols: self.symbols, dependencies })
    }
}
