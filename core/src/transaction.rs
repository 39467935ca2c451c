//! Transactions as embedders make them: collected step by step, then done whole or not at all.
//!
//! ```
//! use uruk_core::{ExecutionSession, ExecutorAddr, ExecutorSymbolDef, SymbolFlags, absolute_symbols};
//!
//! let session = ExecutionSession::new();
//! let main = session.create_jit_dylib("main")?;
//! let name = session.intern("answer");
//! let at = |address| {
//!     let definition = ExecutorSymbolDef::new(ExecutorAddr::new(address), SymbolFlags::EXPORTED);
//!     absolute_symbols([(name.clone(), definition)].into_iter().collect())
//! };
//! main.define(at(1))?;
//! // At no moment is `answer` undefined.
//! session.transaction().redefine(&main, at(2)).commit()?;
//! assert_eq!(session.lookup_symbol(&main.link_order(), &name)?.address, ExecutorAddr::new(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod refused;

use std::fmt;

use crate::ids::DylibId;
use crate::protocol::removal::transaction::{Change, Refusal, RefusedChanges, RemovedResources};
use crate::session::Unit;
use crate::session::removal::RemovalTask;
use crate::session::resource::PreparedResources;
use crate::session::resource::Registered;
use crate::sync::{Arc, unique, weakened};
use crate::{
    DefineError, DylibError, ExecutionSession, JitDylib, JitDylibLookupFlags, MaterializationUnit,
    RemovalNumber, RemoveError, Resource, ResourceTracker, SearchOrder, SessionError, SymbolName, in_span,
};

pub use refused::{RefusedTransaction, TransactionError};

/// The resources of trackers that a transaction has removed, by dylib.
type RemovedInStep = Vec<RemovedResources<Registered>>;

/// Changes of a session that happen together or not at all.
///
/// Made by [`ExecutionSession::transaction`]. Each step sees what the steps before it do: removing a name and
/// then defining it redefines it. Nothing happens before [`Transaction::commit`]; dropping a transaction drops
/// its units and changes nothing.
///
/// # Concurrency
/// A list of steps until it is committed: nothing else takes a lock.
///
/// # Examples
/// ```
/// use uruk_core::{ExecutionSession, ExecutorAddr, FnUnit};
///
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// let f = session.intern("f");
/// let version = |address| {
///     Box::new(FnUnit::new([f.clone()], move |request| request.addresses([("f", ExecutorAddr::new(address))])))
/// };
/// main.define(version(0x1000))?;
/// session.transaction().remove(&main, [f.clone()]).define(&main, version(0x2000)).commit()?;
/// assert_eq!(session.lookup_symbol(&main.link_order(), &f)?.address, ExecutorAddr::new(0x2000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a transaction that is not committed changes nothing"]
pub struct Transaction {
    session: ExecutionSession,
    /// For each change, the names in its errors and the handles that must live until it is made.
    steps: Vec<TransactionStep>,
    changes: Vec<Change<Unit>>,
}

/// The companion of a change: names for errors, and handles.
struct TransactionStep {
    /// The dylib that is changed.
    dylib: JitDylib,
    /// The dylibs of a link order.
    linked: Vec<Arc<str>>,
    /// A tracker that would be released with its last handle.
    tracker: Option<ResourceTracker>,
    /// The step cannot be made in this session.
    foreign: Option<Arc<str>>,
}

impl Transaction {
    /// Defines `unit`'s symbols in `dylib`, as [`JitDylib::define`] would at this place.
    pub fn define(self, dylib: &JitDylib, unit: Box<dyn MaterializationUnit>) -> Self {
        self.add_definition(dylib, None, unit, Override::Weak)
    }

    /// Defines `unit`'s symbols in the dylib of `tracker`, to be removed with it.
    pub fn define_with_tracker(self, unit: Box<dyn MaterializationUnit>, tracker: &ResourceTracker) -> Self {
        self.add_definition(tracker.dylib(), Some(tracker), unit, Override::Weak)
    }

    /// Defines `unit`'s symbols in `dylib` in place of those it has already, weak and Ready ones alike.
    ///
    /// Symbols it does not have are defined as well. A symbol that is being materialized cannot be replaced
    /// by name: put it under a tracker, and use [`Transaction::remove_tracker`].
    pub fn redefine(self, dylib: &JitDylib, unit: Box<dyn MaterializationUnit>) -> Self {
        self.add_definition(dylib, None, unit, Override::All)
    }

    /// As [`Transaction::redefine`], in the dylib of `tracker`, to be removed with it.
    pub fn redefine_with_tracker(
        self,
        unit: Box<dyn MaterializationUnit>,
        tracker: &ResourceTracker,
    ) -> Self {
        self.add_definition(tracker.dylib(), Some(tracker), unit, Override::All)
    }

    /// Removes definitions by name, as [`JitDylib::remove`] would at this place. Initializer symbols and resources of theirs go when
    /// the commit has changed everything; resources report to the session's error reporter.
    pub fn remove(self, dylib: &JitDylib, names: impl IntoIterator<Item = SymbolName>) -> Self {
        let names = names.into_iter().collect();
        self.add(dylib, Change::Remove { dylib: dylib.id(), names })
    }

    /// Removes a tracker's symbols, in any state, as [`ResourceTracker::remove`] would at this place.
    ///
    /// With a definition of the same names behind it, this redefines symbols that are being materialized: lookups
    /// that wait for them fail, later ones find the new definition. The resources are removed when the commit has
    /// changed everything; their errors go to the session's error reporter.
    pub fn remove_tracker(self, tracker: &ResourceTracker) -> Self {
        let dylib = tracker.dylib().id();
        let mut transaction =
            self.add(tracker.dylib(), Change::RemoveTracker { dylib, tracker: tracker.own_id() });
        transaction.hold(tracker);
        transaction
    }

    /// Replaces the link order of `dylib` by exactly this one, as [`JitDylib::set_link_order`] does.
    pub fn set_link_order(self, dylib: &JitDylib, order: SearchOrder) -> Self {
        let ids = self.session.own_order(&order);
        let linked: Vec<_> = order.iter().map(|(dylib, _)| dylib.shared_name()).collect();
        let foreign = ids.as_ref().err().cloned();
        let change = Change::SetLinkOrder { dylib: dylib.id(), order: ids.unwrap_or_default().into_vec() };
        self.add_linking(dylib, change, linked, foreign)
    }

    /// Appends `added` to the link order of `dylib` unless it is there already.
    pub fn add_to_link_order(self, dylib: &JitDylib, added: &JitDylib, flags: JitDylibLookupFlags) -> Self {
        let foreign = (*added.session() != self.session).then(|| added.shared_name());
        let change = Change::AddToLinkOrder { dylib: dylib.id(), added: added.id(), flags };
        self.add_linking(dylib, change, vec![added.shared_name()], foreign)
    }

    /// Puts `new` into the link order of `dylib` in the place of `old`, if that is there, as
    /// [`JitDylib::replace_in_link_order`] would at this place.
    #[doc(alias = "replaceInLinkOrder")]
    pub fn replace_in_link_order(
        self,
        dylib: &JitDylib,
        old: &JitDylib,
        new: &JitDylib,
        flags: JitDylibLookupFlags,
    ) -> Self {
        let foreign = [old, new].into_iter().find(|other| *other.session() != self.session);
        let foreign = foreign.map(JitDylib::shared_name);
        let change = Change::ReplaceInLinkOrder { dylib: dylib.id(), old: old.id(), new: new.id(), flags };
        self.add_linking(dylib, change, vec![new.shared_name()], foreign)
    }

    /// Takes `removed` out of the link order of `dylib`, if it is there.
    pub fn remove_from_link_order(self, dylib: &JitDylib, removed: &JitDylib) -> Self {
        let foreign = (*removed.session() != self.session).then(|| removed.shared_name());
        let change = Change::RemoveFromLinkOrder { dylib: dylib.id(), removed: removed.id() };
        self.add_linking(dylib, change, vec![removed.shared_name()], foreign)
    }

    /// How many steps there are.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The units that the steps would define, in their order.
    pub fn into_units(self) -> Vec<Box<dyn MaterializationUnit>> {
        let unit = |change: Change<Unit>| match change {
            Change::Define { unit, .. } | Change::Redefine { unit, .. } => Some(unit.into_inner()),
            _ => None,
        };
        self.changes.into_iter().filter_map(unit).collect()
    }

    /// Makes all the changes, or none.
    ///
    /// On return every lookup that begins finds all of them; none ever finds some. A lookup for several symbols is
    /// answered from before or from after the whole transaction. That a redefined name is undefined, no lookup
    /// can see.
    ///
    /// # Concurrency
    /// Callable from any thread. One taking of the session lock; code of the embedder (units that lost
    /// their symbols, resources of removed trackers) runs after it.
    ///
    /// # Errors
    /// The first step that was refused, and why. Nothing has changed then, weak definitions, trackers and link
    /// orders included, and everything is given back.
    ///
    /// # Cost
    /// That of the changes, and one entry of a map for each symbol they name.
    pub fn commit(mut self) -> Result<(), RefusedTransaction> {
        if let Some(error) = self.foreign_step() {
            return Err(RefusedTransaction { transaction: self, error });
        }
        let by_task = self.session.in_task();
        for change in &mut self.changes {
            if let Change::Define { definition, .. } | Change::Redefine { definition, .. } = change {
                definition.by_task = by_task;
            }
        }
        let phase = crate::in_span::phase!("session.commit", steps = self.steps.len());
        in_span(phase, || self.commit_described())
    }

    fn commit_described(mut self) -> Result<(), RefusedTransaction> {
        if let Err(error) = self.announce() {
            return Err(RefusedTransaction { transaction: self, error });
        }
        let changes = std::mem::take(&mut self.changes);
        match self.commit_at_once(changes) {
            Ok(removals) => {
                for (resources, removal) in removals {
                    if let Some(removal) = removal {
                        removal.run(|| self.remove_all(resources));
                    }
                }
                Ok(())
            }
            Err(RefusedChanges { step, refusal, changes }) => {
                let error = self.refusal_error(step, refusal, &changes[step]);
                self.changes = changes;
                self.take_back();
                Err(RefusedTransaction { transaction: self, error })
            }
        }
    }

    /// Tells the platform of every unit and gives each its number; if the platform objects to one, takes all back.
    fn announce(&mut self) -> Result<(), TransactionError> {
        let mut refused = None;
        for (step, change) in self.changes.iter_mut().enumerate() {
            let (Change::Define { definition, .. } | Change::Redefine { definition, .. }) = change else {
                continue;
            };
            let TransactionStep { dylib, tracker, .. } = &self.steps[step];
            match self.session.platform() {
                None => definition.number = definition.initializer.is_some().then(unique),
                Some(platform) => {
                    if let Err(source) = self.session.announce(platform, dylib, tracker.as_ref(), definition)
                    {
                        refused = Some(TransactionError::Define { step, source });
                        break;
                    }
                }
            }
        }
        match refused {
            None => Ok(()),
            Some(error) => {
                self.take_back();
                Err(error)
            }
        }
    }

    /// Tells the platform of every unit it was told of that it has not been defined.
    fn take_back(&mut self) {
        for change in &mut self.changes {
            if let Change::Define { definition, .. } | Change::Redefine { definition, .. } = change {
                self.session.take_back(definition.number.take());
            }
        }
    }

    fn remove_all(&self, removed: RemovedInStep) {
        let number = RemovalNumber::next();
        // All of them are told before the first goes.
        let prepared: Vec<_> = removed
            .into_iter()
            .map(|(dylib, resources)| (dylib, PreparedResources::new(resources.into_vec(), number)))
            .collect();
        for (dylib, resources) in prepared {
            if let Err(error) = resources.remove_by(self.name_of(dylib), Resource::remove) {
                self.session.report(SessionError::Remove(error));
            }
        }
    }

    /// Gives what was removed and the task of its removal.
    fn commit_at_once(
        &self,
        changes: Vec<Change<Unit>>,
    ) -> Result<Vec<(RemovedInStep, Option<RemovalTask>)>, RefusedChanges<Unit>> {
        let commit = |changes| {
            let (removed, removal) = self.session.transact_removal(
                |state, effects| state.commit(changes, effects),
                |removed| removed.as_ref().is_ok_and(|removed| removed.iter().any(|(_, it)| !it.is_empty())),
            );
            removed.map(|removed| (removed, removal))
        };
        if weakened("transaction::commits_step_by_step") {
            return changes.into_iter().map(|change| commit(vec![change])).collect();
        }
        Ok(vec![commit(changes)?])
    }

    fn add_definition(
        mut self,
        dylib: &JitDylib,
        tracker: Option<&ResourceTracker>,
        unit: Box<dyn MaterializationUnit>,
        overrides: Override,
    ) -> Self {
        let (definition, unit) = self.session.describe(unit);
        let (id, tracker_id) = (dylib.id(), tracker.and_then(ResourceTracker::own_id));
        let change = match overrides {
            Override::Weak => Change::Define { dylib: id, tracker: tracker_id, definition, unit },
            Override::All => Change::Redefine { dylib: id, tracker: tracker_id, definition, unit },
        };
        self = self.add(dylib, change);
        if let Some(tracker) = tracker {
            self.hold(tracker);
        }
        self
    }

    fn add_linking(
        self,
        dylib: &JitDylib,
        change: Change<Unit>,
        linked: Vec<Arc<str>>,
        foreign: Option<Arc<str>>,
    ) -> Self {
        let mut transaction = self.add(dylib, change);
        if let Some(step) = transaction.steps.last_mut() {
            step.linked = linked;
            step.foreign = step.foreign.take().or(foreign);
        }
        transaction
    }

    fn add(mut self, dylib: &JitDylib, change: Change<Unit>) -> Self {
        let foreign = (*dylib.session() != self.session).then(|| dylib.shared_name());
        self.steps.push(TransactionStep { dylib: dylib.clone(), linked: Vec::new(), tracker: None, foreign });
        self.changes.push(change);
        self
    }

    fn hold(&mut self, tracker: &ResourceTracker) {
        if let Some(step) = self.steps.last_mut() {
            step.tracker = Some(tracker.clone());
        }
    }

    /// Ids of another session may be those of our own dylibs: such a step never reaches the state.
    fn foreign_step(&self) -> Option<TransactionError> {
        let named = |step: &TransactionStep| step.foreign.clone();
        let (step, dylib) =
            self.steps.iter().enumerate().find_map(|(index, step)| Some((index, named(step)?)))?;
        Some(TransactionError::Foreign { step, dylib })
    }

    fn name_of(&self, dylib: DylibId) -> Arc<str> {
        let step = self.steps.iter().find(|step| step.dylib.id() == dylib);
        step.map_or_else(|| "(unknown)".into(), |step| step.dylib.shared_name())
    }

    fn refusal_error(&self, step: usize, refusal: Refusal, change: &Change<Unit>) -> TransactionError {
        let TransactionStep { dylib, linked, .. } = &self.steps[step];
        let dylib = dylib.shared_name();
        let unit = match change {
            Change::Define { definition, .. } | Change::Redefine { definition, .. } => {
                Some(definition.unit_name.clone())
            }
            _ => None,
        };
        let define = |source| TransactionError::Define { step, source };
        let remove = |source| TransactionError::Remove { step, source };
        match (refusal, unit) {
            (Refusal::Closed, Some(unit)) => define(DefineError::Closed { unit }),
            (Refusal::DylibRemoved, Some(unit)) => define(DefineError::DylibRemoved { unit, dylib }),
            (Refusal::TrackerDefunct, Some(unit)) => define(DefineError::TrackerDefunct { unit, dylib }),
            (Refusal::Duplicate { symbol, existing_unit }, Some(unit)) => {
                define(DefineError::Duplicate { symbol, dylib, unit, existing_unit })
            }
            (Refusal::NotFound(symbols), _) => remove(RemoveError::NotFound { dylib, symbols }),
            (Refusal::InUse(symbols), _) => remove(RemoveError::InUse { dylib, symbols }),
            (Refusal::LinkedDylibRemoved(position), _) => {
                let name = linked.get(position).cloned().unwrap_or(dylib);
                TransactionError::LinkOrder { step, source: DylibError::Removed { name } }
            }
            (Refusal::DylibRemoved, None) if matches!(change, Change::Remove { .. }) => {
                remove(RemoveError::DylibRemoved { dylib })
            }
            (_, None) => TransactionError::LinkOrder { step, source: DylibError::Removed { name: dylib } },
        }
    }
}

/// Which definitions a new one may take the place of.
#[derive(Clone, Copy)]
enum Override {
    /// Weak ones that no lookup has searched.
    Weak,
    /// All.
    All,
}

impl ExecutionSession {
    /// An empty transaction.
    pub fn transaction(&self) -> Transaction {
        Transaction { session: self.clone(), steps: Vec::new(), changes: Vec::new() }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dylibs = self.steps.iter().map(|step| step.dylib.name());
        f.debug_struct("Transaction").field("steps", &dylibs.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}
