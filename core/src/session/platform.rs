//! Platforms: who is told of dylibs and of units, so that static initialisers run when they should.
//!
//! The session records initializer symbols itself: [`JitDylib::initializers`] is true at any moment. A platform is
//! told besides, before anything happens that it may object to. It looks initializers up ([`ExecutionSession::lookup_init_symbols`])
//! along [`ExecutionSession::reverse_dfs_link_order`], the order in which a dynamic linker would run them.
//!
//! **Architecture Invariant:** no hook runs under the session lock.

use crate::protocol::symbols::absolute::Addresses;
use crate::protocol::symbols::define::Definition;
use crate::sync::{Arc, unique};
use crate::{
    DefineError, DylibError, ExecutionSession, JitDylib, LookupError, LookupRequest, LookupResult, LookupSet,
    MaterializationUnit, Resource, ResourceTracker, SearchOrder, SessionError, SharedError, SymbolFlagsMap,
    SymbolName, shared_error,
};

/// Is told of the dylibs and units of a session.
///
/// # Concurrency
/// Called on any thread, on several at once, without any lock: hooks may use the session.
///
/// ORC: `Platform`.
pub trait Platform: Send + Sync {
    /// A dylib was created. Only code that knows its name can use it yet.
    ///
    /// # Errors
    /// The platform's objection to the dylib, which is removed again then.
    ///
    /// ORC: `Platform::setupJITDylib`.
    #[doc(alias = "setupJITDylib")]
    fn set_up(&self, dylib: &JitDylib) -> Result<(), SharedError> {
        let _ = dylib;
        Ok(())
    }

    /// A dylib was removed, or its session closed: its symbols and resources are gone.
    ///
    /// # Errors
    /// Any failure; it is joined to the errors of the dylib's resources.
    ///
    /// ORC: `Platform::teardownJITDylib`.
    #[doc(alias = "teardownJITDylib")]
    fn tear_down(&self, dylib: &JitDylib) -> Result<(), SharedError> {
        let _ = dylib;
        Ok(())
    }

    /// A unit is about to be defined, alone or by a transaction. Its definition may still be refused.
    ///
    /// # Errors
    /// The platform's objection to the unit, which is not defined then.
    ///
    /// ORC: `Platform::notifyAdding`.
    #[doc(alias = "notifyAdding")]
    fn unit_adding(&self, unit: &AddedUnit<'_>) -> Result<(), SharedError>;

    /// The initializer of a unit that `unit_adding` was told of, and had no objection to, is not defined any more:
    /// it was removed, with its tracker or alone, or lost against another definition, or the unit was refused.
    ///
    /// Told once for each such unit that has an initializer, after the fact; never before its `unit_adding`. A panic goes to the
    /// session's error reporter, and the other units that went with this one are told of all the same.
    ///
    /// ORC: `Platform::notifyRemoving`, which is told of trackers.
    #[doc(alias = "notifyRemoving")]
    fn unit_removed(&self, unit: UnitNumber);
}

/// Tells apart the units that platforms are told of. Later ones have greater numbers; none comes twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitNumber(pub(crate) u64);

/// A unit as a platform sees it when it is about to be defined.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AddedUnit<'a> {
    /// Its number.
    pub number: UnitNumber,
    /// Where it will be defined.
    pub dylib: &'a JitDylib,
    /// The tracker it will be removed with, if not the dylib's default tracker. A resource added to the tracker is told of the
    /// removal.
    pub tracker: Option<&'a ResourceTracker>,
    /// Its name.
    pub name: &'a SymbolName,
    /// The symbols it promises.
    pub symbols: &'a SymbolFlagsMap,
    /// The symbol that stands for its static initialisers.
    pub initializer: Option<&'a SymbolName>,
}

impl JitDylib {
    /// The symbols that stand for static initialisers of the dylib's units, in the order in which the units were
    /// defined.
    pub fn initializers(&self) -> Vec<SymbolName> {
        self.session().transact(|state, _| state.definitions.initializers(self.id()))
    }
}

impl ExecutionSession {
    /// Looks up symbols of several dylibs at once, each in its own dylib, hidden ones included.
    ///
    /// # Concurrency
    /// Blocks as [`ExecutionSession::lookup`] does, until all are Ready.
    ///
    /// # Errors
    /// As [`ExecutionSession::lookup`], of the first dylib that has one. The other lookups are withdrawn then.
    ///
    /// ORC: `Platform::lookupInitSymbols`.
    #[doc(alias = "lookupInitSymbols")]
    pub fn lookup_init_symbols(
        &self,
        symbols: impl IntoIterator<Item = (JitDylib, LookupSet)>,
    ) -> Result<Vec<(JitDylib, LookupResult)>, LookupError> {
        let symbols: Vec<_> = symbols.into_iter().collect();
        // Every lookup is on its way before the first is waited for, and withdrawn if that fails.
        let start = |(dylib, symbols): &(JitDylib, LookupSet)| {
            self.lookup_future(LookupRequest::new(SearchOrder::of(dylib), symbols.clone()))
        };
        let _started: Vec<_> = symbols.iter().map(start).collect();
        symbols
            .into_iter()
            .map(|(dylib, symbols)| {
                let found = self.lookup(LookupRequest::new(SearchOrder::of(&dylib), symbols))?;
                Ok((dylib, found))
            })
            .collect()
    }

    pub(crate) fn set_up(&self, dylib: &JitDylib) -> Result<(), DylibError> {
        let Some(platform) = self.platform() else { return Ok(()) };
        asked(|| platform.set_up(dylib)).map_err(|source| {
            // Only the platform can have put resources there, and it has just reported its error.
            let _ = self.remove_untold(dylib, Resource::remove);
            DylibError::Platform { name: dylib.shared_name(), source }
        })
    }

    pub(crate) fn tear_down(&self, dylib: &JitDylib) -> Result<(), SharedError> {
        self.platform().map_or(Ok(()), |platform| asked(|| platform.tear_down(dylib)))
    }

    pub(crate) fn define_on_platform(
        &self,
        platform: &Arc<dyn Platform>,
        dylib: &JitDylib,
        tracker: Option<&ResourceTracker>,
        unit: Box<dyn MaterializationUnit>,
    ) -> Result<(), DefineError> {
        let (mut definition, unit) = self.describe(unit);
        self.announce(platform, dylib, tracker, &mut definition)?;
        let number = definition.number;
        let defined = self.transact(|state, effects| {
            let tracker = tracker.map(|tracker| tracker.id_in(state));
            state.define(dylib.id(), tracker, definition, unit, effects)
        });
        if defined.is_err() {
            self.take_back(number);
        }
        defined
    }

    /// Tells the platform of a unit that is about to be defined, and gives the unit its number.
    pub(crate) fn announce(
        &self,
        platform: &Arc<dyn Platform>,
        dylib: &JitDylib,
        tracker: Option<&ResourceTracker>,
        definition: &mut Definition,
    ) -> Result<(), DefineError> {
        let number = unique();
        let Definition { unit_name: name, symbols, initializer, .. } = &*definition;
        let initializer = initializer.as_ref();
        tell(
            platform,
            &AddedUnit { number: UnitNumber(number), dylib, tracker, name, symbols, initializer },
        )?;
        definition.number = initializer.is_some().then_some(number);
        Ok(())
    }

    /// Tells the platform of a unit of nothing but addresses. Without an initializer there is nothing to take back.
    pub(crate) fn announce_addresses(
        &self,
        platform: &Arc<dyn Platform>,
        dylib: &JitDylib,
        tracker: Option<&ResourceTracker>,
        addresses: &Addresses,
    ) -> Result<(), DefineError> {
        let symbols = addresses.symbols.iter().map(|(name, definition)| (name.clone(), definition.flags));
        let (symbols, name, number) = (&symbols.collect(), &addresses.unit_name, UnitNumber(unique()));
        tell(platform, &AddedUnit { number, dylib, tracker, name, symbols, initializer: None })
    }

    /// Tells the platform that a unit it was told of has not been defined after all.
    pub(crate) fn take_back(&self, number: Option<u64>) {
        if let (Some(platform), Some(number)) = (self.platform(), number)
            && let Err(message) = crate::panics::guard(|| platform.unit_removed(UnitNumber(number)))
        {
            self.report(SessionError::Panicked { place: "the session's platform", message });
        }
    }
}

/// Tells a platform of a unit that is about to be defined.
fn tell(platform: &Arc<dyn Platform>, unit: &AddedUnit<'_>) -> Result<(), DefineError> {
    asked(|| platform.unit_adding(unit)).map_err(|source| DefineError::Platform {
        unit: unit.name.clone(),
        dylib: unit.dylib.shared_name(),
        source,
    })
}

/// The answer of a hook; a panic is an objection.
fn asked(hook: impl FnOnce() -> Result<(), SharedError>) -> Result<(), SharedError> {
    crate::panics::guard(hook)
        .unwrap_or_else(|message| Err(shared_error(format!("the platform panicked: {message}"))))
}
