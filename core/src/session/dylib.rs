//! Dylibs: name spaces of symbols with a link order.

use std::error::Error;
use std::fmt;
use std::hash::{Hash, Hasher};

use crate::ids::DylibId;
use crate::protocol::state::definitions::dylib::RemovedDylib;
use crate::session::resource::Removed;
use crate::sync::Arc;
use crate::{
    DefineError, DefinitionGenerator, DylibError, ExecutionSession, GeneratorId, JitDylibLookupFlags,
    MaterializationUnit, RemoveError, Resource, ResourceTracker, SearchOrder, SymbolFlags, SymbolName,
};

/// A name space of symbols in a session, with an order in which its references are searched.
///
/// A handle: cloning it is cheap, and all clones are the same dylib.
///
/// # Concurrency
/// Every method may be called from any thread, task and handler, and none waits for others: reading or
/// changing the dylib takes the session's lock for a moment. Its effects are delivered before the call returns; in place they have
/// run by then, unless the thread is inside a task.
///
/// # Cost
/// Changes of a link order are linear in the order, other methods in the symbols they name, during one hold of the lock, unless
/// said otherwise.
///
/// # Examples
/// ```
/// use uruk_core::{ExecutionSession, ExecutorAddr, FnUnit, JitDylibLookupFlags, LookupRequest, LookupSet};
///
/// let session = ExecutionSession::new();
/// let (main, library) = (session.create_jit_dylib("main")?, session.create_jit_dylib("library")?);
/// main.add_to_link_order(&library, JitDylibLookupFlags::MatchExportedSymbolsOnly)?;
/// let helper = session.intern("helper");
/// let unit = FnUnit::new([helper.clone()], |request| request.addresses([("helper", ExecutorAddr::new(0x1000))]));
/// library.define(Box::new(unit))?;
/// assert!(session.lookup(LookupRequest::along(&main, LookupSet::one(helper))).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ORC: `JITDylib`.
#[doc(alias = "JITDylib")]
#[derive(Clone)]
pub struct JitDylib {
    session: ExecutionSession,
    id: DylibId,
    name: Arc<str>,
}

impl JitDylib {
    pub(crate) fn new(session: ExecutionSession, id: DylibId, name: Arc<str>) -> Self {
        Self { session, id, name }
    }

    pub(crate) fn id(&self) -> DylibId {
        self.id
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// The dylib's name, unique in its session.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The session the dylib belongs to.
    pub fn session(&self) -> &ExecutionSession {
        &self.session
    }

    /// Defines `unit`'s symbols. Nothing is materialized before one of them is looked up.
    ///
    /// A strong definition overrides a weak or common one that no lookup has searched yet; a weak or
    /// common one yields to any that exists.
    ///
    /// # Concurrency
    /// Callable from any thread, task and handler. The platform, if there is one, is asked first, without a lock.
    ///
    /// # Errors
    /// [`DefineError::Duplicate`] if a strong symbol exists, or a searched one. [`DefineError::DylibRemoved`],
    /// [`DefineError::Closed`], and [`DefineError::Platform`] if the platform objects. Nothing is defined then, and the unit has been
    /// dropped.
    ///
    /// # Cost
    /// Linear in the symbols, during one hold of the session's lock.
    ///
    /// ORC: `JITDylib::define`.
    pub fn define(&self, unit: Box<dyn MaterializationUnit>) -> Result<(), DefineError> {
        self.session.define(self, None, unit)
    }

    /// Like [`JitDylib::define`]; the symbols and their resources are removed with `tracker`.
    ///
    /// # Errors
    /// Those of [`JitDylib::define`]; [`DefineError::TrackerDefunct`], and [`DefineError::ForeignTracker`] if `tracker` is of
    /// another dylib.
    pub fn define_with_tracker(
        &self,
        unit: Box<dyn MaterializationUnit>,
        tracker: &ResourceTracker,
    ) -> Result<(), DefineError> {
        self.session.define(self, Some(tracker), unit)
    }

    /// The dylibs in which references of this one are searched. A new dylib searches itself alone.
    pub fn link_order(&self) -> SearchOrder {
        let order = self.session.transact(|state, _| state.definitions.link_order(self.id));
        order
            .into_iter()
            .map(|(id, name, flags)| (Self::new(self.session.clone(), id, name), flags))
            .collect()
    }

    /// Replaces the link order by exactly this one.
    ///
    /// The dylib itself stands where `order` names it, and nowhere if that does not: [`SearchOrder::behind`] makes an order
    /// that begins with it. A dylib that is named twice stands there twice, which is of use if its exported symbols are to be found
    /// further ahead than its others.
    ///
    /// # Errors
    /// If a dylib belongs to another session or was removed. The order is as it was then.
    ///
    /// ORC: `JITDylib::setLinkOrder`, with `LinkAgainstThisJITDylibFirst` off; there it is on unless said otherwise.
    #[doc(alias = "setLinkOrder")]
    pub fn set_link_order(&self, order: impl Into<SearchOrder>) -> Result<(), DylibError> {
        let order = order.into();
        let ids = self.session.own_order(&order).map_err(|name| DylibError::Foreign { name })?;
        self.session.transact(|state, _| state.definitions.set_link_order(self.id, ids.into_vec())).map_err(
            |removed| self.removed_error(removed, |position| order.as_slice()[position].0.name.clone()),
        )
    }

    /// Appends `dylib` to the link order unless it is there already, with any flags.
    ///
    /// # Errors
    /// If `dylib` belongs to another session or was removed.
    ///
    /// ORC: `JITDylib::addToLinkOrder`.
    #[doc(alias = "addToLinkOrder")]
    pub fn add_to_link_order(&self, dylib: &JitDylib, flags: JitDylibLookupFlags) -> Result<(), DylibError> {
        if dylib.session != self.session {
            return Err(DylibError::Foreign { name: dylib.name.clone() });
        }
        self.session
            .transact(|state, _| state.definitions.add_to_link_order(self.id, dylib.id, flags))
            .map_err(|removed| self.removed_error(removed, |_| dylib.name.clone()))
    }

    /// Moves or inserts `dylib` at the front of the link order. Nothing changes if it is there already, with any flags.
    ///
    /// # Errors
    /// If `dylib` belongs to another session or was removed.
    pub fn begin_link_order(&self, dylib: &JitDylib, flags: JitDylibLookupFlags) -> Result<(), DylibError> {
        if dylib.session != self.session {
            return Err(DylibError::Foreign { name: dylib.name.clone() });
        }
        self.session
            .transact(|state, _| state.definitions.begin_link_order(self.id, dylib.id, flags))
            .map_err(|removed| self.removed_error(removed, |_| dylib.name.clone()))
    }

    /// Puts `new` into the link order in the place of `old`, and says whether `old` was there; nothing changes if not.
    ///
    /// The order names neither twice afterwards: the first place of `old` is the one that counts, and where else `new` stood it
    /// stands no more. With `old` as `new` its flags change, and its other places go.
    ///
    /// # Errors
    /// If `old` or `new` belongs to another session, or `new` or the dylib itself was removed.
    ///
    /// ORC: `JITDylib::replaceInLinkOrder`, which leaves `new` in its other places.
    #[doc(alias = "replaceInLinkOrder")]
    pub fn replace_in_link_order(
        &self,
        old: &JitDylib,
        new: &JitDylib,
        flags: JitDylibLookupFlags,
    ) -> Result<bool, DylibError> {
        if let Some(foreign) = [old, new].into_iter().find(|dylib| dylib.session != self.session) {
            return Err(DylibError::Foreign { name: foreign.name.clone() });
        }
        self.session
            .transact(|state, _| state.definitions.replace_in_link_order(self.id, old.id, new.id, flags))
            .map_err(|removed| self.removed_error(removed, |_| new.name.clone()))
    }

    /// Takes `dylib` out of the link order wherever it stands there.
    ///
    /// ORC: `JITDylib::removeFromLinkOrder`, which takes out its first place only.
    #[doc(alias = "removeFromLinkOrder")]
    pub fn remove_from_link_order(&self, dylib: &JitDylib) {
        // The id of another session's dylib may be that of one of ours.
        if dylib.session == self.session {
            self.session.transact(|state, _| state.definitions.remove_from_link_order(self.id, dylib.id));
        }
    }

    /// Lets `generator` provide definitions this dylib lacks, after those added before it.
    ///
    /// Gives what [`JitDylib::remove_generator`] needs; nothing if the dylib was removed from its session or the
    /// session is closed.
    ///
    /// ORC: `JITDylib::addGenerator`.
    pub fn add_generator(&self, generator: Arc<dyn DefinitionGenerator>) -> Option<GeneratorId> {
        let name: Arc<str> = generator.name().into();
        let id =
            self.session.transact(|state, effects| state.add_generator(self.id, name, generator, effects))?;
        Some(GeneratorId { id, session: self.session.tag() })
    }

    /// Stops asking a generator. Lookups that wait for it fail; the one it is busy with may finish.
    ///
    /// Says whether the dylib had it.
    ///
    /// # Cost
    /// Linear in the dylib's generators and in the lookups that wait for this one.
    ///
    /// ORC: `JITDylib::removeGenerator`.
    pub fn remove_generator(&self, generator: GeneratorId) -> bool {
        // The number of another session's generator may be that of one of ours.
        generator.session == self.session.tag()
            && self.session.transact(|state, effects| state.remove_generator(self.id, generator.id, effects))
    }

    /// The tracker of everything that was defined without one.
    pub fn default_tracker(&self) -> ResourceTracker {
        let id = self.session.transact(|state, _| state.definitions.default_tracker(self.id));
        ResourceTracker::new(self.clone(), id, true)
    }

    /// A new tracker.
    ///
    /// ORC: `JITDylib::createResourceTracker`.
    pub fn create_tracker(&self) -> ResourceTracker {
        let id = self.session.transact(|state, _| state.definitions.create_tracker(self.id));
        ResourceTracker::new(self.clone(), id, false)
    }

    /// The flags of each of `names`, without materializing anything; undefined names are left out.
    ///
    /// Generators are not asked.
    ///
    /// # Cost
    /// One transaction, linear in the names.
    pub fn flags(&self, names: impl IntoIterator<Item = SymbolName>) -> Vec<(SymbolName, SymbolFlags)> {
        let names: Vec<_> = names.into_iter().collect();
        self.session.transact(|state, _| state.definitions.flags(self.id, names))
    }

    /// The name of the unit that provides `symbol` here, if it is defined, without materializing anything.
    pub fn unit_providing(&self, symbol: &SymbolName) -> Option<SymbolName> {
        self.session.transact(|state, _| state.definitions.unit_providing(self.id, symbol))
    }

    /// Removes definitions by name: all of them, or none. Symbols that wait for a removed one, which was not Ready yet, fail.
    ///
    /// With a unit's last symbol go the resources that its responsibility has registered, its code among them. The caller ensures
    /// that no thread still runs that code. The unit's initializer symbol goes with the last of the others. Resources that were added
    /// to the tracker itself stay with the tracker.
    ///
    /// # Concurrency
    /// On return the resources have been removed, by this thread and without a lock.
    ///
    /// # Errors
    /// [`RemoveError::NotFound`] if one is not defined, [`RemoveError::InUse`] if one is being materialized: remove its tracker
    /// instead. [`RemoveError::DylibRemoved`]. [`RemoveError::Resources`] joins what the resources said; symbols and resources are
    /// gone then.
    ///
    /// # Cost
    /// Linear in the names; of the resources that are taken out of a tracker, one in many moves those that stay together.
    ///
    /// ORC: `JITDylib::remove`.
    pub fn remove(&self, names: &[SymbolName]) -> Result<(), RemoveError> {
        let dylib = || self.name.clone();
        let (removed, removal) = self.session.transact_taking(
            |state, effects| state.remove_names(self.id, names, dylib, effects),
            |removed| removed.as_ref().is_ok_and(|resources| !resources.is_empty()),
            |_| {},
        );
        let resources = removed?;
        removal.map_or(Ok(()), |removal| removal.remove(self.name.clone(), resources))
    }

    /// Removes every tracker's symbols and resources, newest tracker first. The dylib stays usable.
    ///
    /// # Concurrency
    /// On return the resources have been removed, by this thread and without a lock.
    ///
    /// # Errors
    /// [`RemoveError::Resources`] joins what the resources said; symbols and resources are gone all the same.
    ///
    /// # Cost
    /// Linear in the trackers and the symbols; more than a few go in slices, between which others have the session's lock. No lookup
    /// finds any of them meanwhile.
    ///
    /// ORC: `JITDylib::clear`, which removes one tracker after another.
    pub fn clear(&self) -> Result<(), RemoveError> {
        let cleared = self.session.transact_clearing(|state, effects| state.clear(self.id, effects));
        cleared.map_or(Ok(()), |cleared| cleared.remove(self.name.clone()))
    }

    fn removed_error(&self, removed: RemovedDylib, in_order: impl FnOnce(usize) -> Arc<str>) -> DylibError {
        let name = match removed {
            RemovedDylib::Itself => self.name.clone(),
            RemovedDylib::InOrder(position) => in_order(position),
        };
        DylibError::Removed { name }
    }
}

impl ExecutionSession {
    /// Removes a dylib and does not tell the platform. Says whether it was there.
    pub(crate) fn remove_untold(
        &self,
        dylib: &JitDylib,
        remove: impl FnMut(Box<dyn Resource>) -> Removed,
    ) -> (bool, Result<(), RemoveError>) {
        let cleared = self.transact_clearing(|state, effects| state.remove_dylib(dylib.id, effects));
        (cleared.is_some(), cleared.map_or(Ok(()), |cleared| cleared.remove_by(dylib.name.clone(), remove)))
    }
}

impl PartialEq for JitDylib {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.session == other.session
    }
}

impl Eq for JitDylib {}

impl Hash for JitDylib {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl fmt::Debug for JitDylib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JitDylib").field(&self.name).finish()
    }
}

impl ExecutionSession {
    /// Creates a dylib that searches itself. The session's platform, if there is one, sets it up.
    ///
    /// # Concurrency
    /// Callable from any thread. Takes the session's lock for a moment; the platform is asked after it, by this thread.
    ///
    /// # Errors
    /// If the session has one of that name, or is closed, or if the platform objects.
    ///
    /// ORC: `ExecutionSession::createJITDylib`.
    pub fn create_jit_dylib(&self, name: &str) -> Result<JitDylib, DylibError> {
        let dylib = self.create_bare_jit_dylib(name)?;
        self.set_up(&dylib)?;
        Ok(dylib)
    }

    /// As [`create_jit_dylib`](Self::create_jit_dylib); the dylib records the dependants of its symbols. So
    /// [`ResourceTracker::remove`] does not remove symbols that others need, and [`ResourceTracker::remove_with`] may remove
    /// the dependants too.
    ///
    /// Only removals of trackers look at dependants. Removals by name, transactions, and a dylib that is cleared or removed leave
    /// dependants as they are.
    ///
    /// # Errors
    /// As [`create_jit_dylib`](Self::create_jit_dylib).
    ///
    /// # Cost
    /// About 100 bytes for a unit of one symbol that needs one of the dylib, and 40 for each further one that it needs; a few steps for
    /// each at the emission and at the removal. A unit that needs nothing costs nothing.
    pub fn create_jit_dylib_keeping_dependants(&self, name: &str) -> Result<JitDylib, DylibError> {
        let name: Arc<str> = name.into();
        let id = self.transact(|state, _| state.create_dylib_keeping_dependants(name.clone()))?;
        let dylib = JitDylib::new(self.clone(), id, name);
        self.set_up(&dylib)?;
        Ok(dylib)
    }

    /// Creates an empty dylib that searches itself, without telling the platform.
    ///
    /// # Concurrency
    /// Callable from any thread. Takes the session's lock for a moment.
    ///
    /// # Errors
    /// If the session has one of that name, or is closed.
    ///
    /// ORC: `ExecutionSession::createBareJITDylib`.
    pub fn create_bare_jit_dylib(&self, name: &str) -> Result<JitDylib, DylibError> {
        let name: Arc<str> = name.into();
        let id = self.transact(|state, _| state.create_dylib(name.clone()))?;
        Ok(JitDylib::new(self.clone(), id, name))
    }

    /// The dylib of that name.
    pub fn jit_dylib(&self, name: &str) -> Option<JitDylib> {
        let (id, name) = self.transact(|state, _| state.definitions.dylib_by_name(name))?;
        Some(JitDylib::new(self.clone(), id, name))
    }

    /// Removes a dylib: its symbols, its resources, its generators; then the platform tears it down. Others that link
    /// against it fail to search it from now on.
    ///
    /// # Concurrency
    /// As [`JitDylib::clear`]; the platform is told by this thread too.
    ///
    /// # Cost
    /// That of [`JitDylib::clear`], and linear in the session's suspended lookups and in the link orders of all dylibs.
    ///
    /// # Errors
    /// [`RemoveError::Resources`] joins what the resources said. [`RemoveError::Foreign`] if the dylib belongs to
    /// another session.
    ///
    /// ORC: `ExecutionSession::removeJITDylib`.
    pub fn remove_jit_dylib(&self, dylib: &JitDylib) -> Result<(), RemoveError> {
        self.remove_jit_dylib_by(dylib, Resource::remove)
    }

    /// As [`remove_jit_dylib`](Self::remove_jit_dylib), with `remove` in the place of [`Resource::remove`], as in
    /// [`ResourceTracker::remove_by`].
    ///
    /// # Errors
    /// As [`remove_jit_dylib`](Self::remove_jit_dylib).
    pub fn remove_jit_dylib_by(
        &self,
        dylib: &JitDylib,
        remove: impl FnMut(Box<dyn Resource>) -> Result<(), Box<dyn Error + Send + Sync>>,
    ) -> Result<(), RemoveError> {
        if dylib.session != *self {
            return Err(RemoveError::Foreign { dylib: dylib.name.clone() });
        }
        let (was_there, removed) = self.remove_untold(dylib, remove);
        if !was_there {
            return removed;
        }
        match (removed, self.tear_down(dylib)) {
            (removed, Ok(())) => removed,
            (Err(RemoveError::Resources { dylib, mut sources }), Err(source)) => {
                sources.push(source);
                Err(RemoveError::Resources { dylib, sources })
            }
            (_, Err(source)) => {
                Err(RemoveError::Resources { dylib: dylib.name.clone(), sources: vec![source] })
            }
        }
    }
}
