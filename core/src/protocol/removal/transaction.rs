//! Transaction: several changes that happen together, or not at all.
//!
//! ```text
//! plan:   each change is tried against the state as the changes before it would leave it; nothing moves
//! apply:  each change is made by the operation that makes it alone; none can be refused any more
//! ```
//!
//! Both happen in one taking of the lock, and what lookups without the lock read changes behind one
//! closing of the gate (`ready_index.rs`). The plan is an overlay over the rows: as large as the transaction,
//! for a session of any size.
//!
//! **Invariant:** operations admit every change that the plan admits. They ask the same of rows: whether one
//! exists, whether a claim holds it, and how definitions compete (`define.rs`).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::sync::weakened;
use crate::{JitDylibLookupFlags, SymbolFlags, SymbolName};

use crate::protocol::state::{Effects, Payload, ResourceLeft, Resources, SessionState};
use crate::protocol::storage::{DylibId, TrackerId};
use crate::protocol::symbols::define::{Contest, Definition, DefinitionRefusal, Rival, contest};

/// One step of a transaction.
#[derive(Debug)]
pub(crate) enum Change<U> {
    /// A unit comes into a dylib.
    Define { dylib: DylibId, tracker: Option<TrackerId>, definition: Definition, unit: U },
    /// The same, in place of any definitions of its symbols.
    Redefine { dylib: DylibId, tracker: Option<TrackerId>, definition: Definition, unit: U },
    /// Definitions go, by name.
    Remove { dylib: DylibId, names: Vec<SymbolName> },
    /// Definitions and resources go, with their tracker or the default one of their dylib.
    RemoveTracker { dylib: DylibId, tracker: Option<TrackerId> },
    /// A dylib's link order is replaced.
    SetLinkOrder { dylib: DylibId, order: Vec<(DylibId, JitDylibLookupFlags)> },
    /// A dylib's link order grows.
    AddToLinkOrder { dylib: DylibId, added: DylibId, flags: JitDylibLookupFlags },
    /// In a dylib's link order one takes the place of another.
    ReplaceInLinkOrder { dylib: DylibId, old: DylibId, new: DylibId, flags: JitDylibLookupFlags },
    /// A dylib's link order shrinks.
    RemoveFromLinkOrder { dylib: DylibId, removed: DylibId },
}

/// Why a change was refused, before it is an error for anybody.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Closed,
    DylibRemoved,
    TrackerDefunct,
    Duplicate {
        symbol: SymbolName,
        existing_unit: SymbolName,
    },
    NotFound(Vec<SymbolName>),
    InUse(Vec<SymbolName>),
    /// The dylib at this place of the link order given.
    LinkedDylibRemoved(usize),
}

impl From<DefinitionRefusal> for Refusal {
    fn from(refusal: DefinitionRefusal) -> Self {
        match refusal {
            DefinitionRefusal::Closed => Self::Closed,
            DefinitionRefusal::DylibRemoved => Self::DylibRemoved,
            DefinitionRefusal::TrackerDefunct => Self::TrackerDefunct,
            DefinitionRefusal::Duplicate { symbol, existing_unit } => {
                Self::Duplicate { symbol, existing_unit }
            }
        }
    }
}

/// The promise of the plan to the operations.
const ADMITTED: &str = "the plan has admitted it";

/// A transaction that changed nothing: which of its steps was refused, why, and all that it was made of.
#[derive(Debug)]
pub(crate) struct RefusedChanges<U> {
    pub(crate) step: usize,
    pub(crate) refusal: Refusal,
    pub(crate) changes: Vec<Change<U>>,
}

/// The resources of a tracker that a transaction removed, and the tracker's dylib; or those of symbols that it removed by name.
pub(crate) type RemovedResources<R> = (DylibId, Resources<R>);

impl<P: Payload> SessionState<P> {
    /// See [`crate::Transaction::commit`]. The resources are the caller's to remove, by tracker, newest last within
    /// each; after them those whose symbols went by name.
    pub(crate) fn commit(
        &mut self,
        changes: Vec<Change<P::Unit>>,
        effects: &mut Effects<P>,
    ) -> Result<Vec<RemovedResources<P::Resource>>, RefusedChanges<P::Unit>> {
        let mut plan = Plan::of(self);
        for (step, change) in changes.iter().enumerate() {
            if let Err(refusal) = plan.admit(change) {
                return Err(RefusedChanges { step, refusal, changes });
            }
        }
        let (mut resources, mut resources_left) = (Vec::new(), Vec::new());
        for change in changes {
            self.apply(change, &mut resources, &mut resources_left, effects);
            if weakened("transaction::opens_the_gate_between_steps") {
                self.definitions.end_change();
            }
        }
        let orphans = self.sweep(resources_left, effects);
        self.settle(effects);
        let alone = |(dylib, resource)| (dylib, Resources::from_iter([resource]));
        resources.extend(orphans.into_iter().map(alone));
        Ok(resources)
    }

    /// Makes a change that the plan has admitted.
    fn apply(
        &mut self,
        change: Change<P::Unit>,
        resources: &mut Vec<RemovedResources<P::Resource>>,
        resources_left: &mut Vec<ResourceLeft>,
        effects: &mut Effects<P>,
    ) {
        match change {
            Change::Define { dylib, tracker, definition, unit } => {
                self.define(dylib, tracker, definition, unit, effects).expect(ADMITTED);
            }
            Change::Redefine { dylib, tracker, definition, unit } => {
                let names = definition.symbols.keys();
                let names: Vec<_> =
                    names.filter(|name| self.definitions.find(dylib, name).is_some()).cloned().collect();
                self.remove_planned(dylib, &names, resources_left, effects);
                self.define(dylib, tracker, definition, unit, effects).expect(ADMITTED);
            }
            Change::Remove { dylib, names } => self.remove_planned(dylib, &names, resources_left, effects),
            Change::RemoveTracker { dylib, tracker } => {
                let tracker = tracker.unwrap_or_else(|| self.definitions.default_tracker(dylib));
                if self.definitions.tracker_lives(tracker) {
                    resources.push((dylib, self.remove_tracker(tracker, effects)));
                }
            }
            Change::SetLinkOrder { dylib, order } => {
                self.definitions.set_link_order(dylib, order).expect(ADMITTED);
            }
            Change::AddToLinkOrder { dylib, added, flags } => {
                self.definitions.add_to_link_order(dylib, added, flags).expect(ADMITTED);
            }
            Change::ReplaceInLinkOrder { dylib, old, new, flags } => {
                self.definitions.replace_in_link_order(dylib, old, new, flags).expect(ADMITTED);
            }
            Change::RemoveFromLinkOrder { dylib, removed } => {
                self.definitions.remove_from_link_order(dylib, removed)
            }
        }
    }

    fn remove_planned(
        &mut self,
        dylib: DylibId,
        names: &[SymbolName],
        resources_left: &mut Vec<ResourceLeft>,
        effects: &mut Effects<P>,
    ) {
        let name = self.definitions[dylib].name.clone();
        self.remove_rows_named(dylib, names, || name, resources_left, effects).expect(ADMITTED);
        self.settle(effects);
    }
}

/// The state as the steps so far would leave it.
struct Plan<'s, P: Payload> {
    state: &'s SessionState<P>,
    /// The planned definition of each name that a step has touched; none where its definition goes.
    names: FxHashMap<(DylibId, SymbolName), Option<Planned>>,
    /// The names whose definitions steps have put into each tracker, also those removed by later steps.
    planned_in: FxHashMap<TrackerId, Vec<(DylibId, SymbolName)>>,
    /// Trackers whose rows go, with all that no step has touched.
    emptied: FxHashSet<TrackerId>,
    /// Those of them that go as well.
    defunct: FxHashSet<TrackerId>,
}

/// A definition that a step makes.
struct Planned {
    flags: SymbolFlags,
    unit: SymbolName,
    tracker: TrackerId,
}

/// A definition as competitors see it.
struct Existing {
    flags: SymbolFlags,
    unit: SymbolName,
    rival: Rival,
    claimed: bool,
}

impl<'s, P: Payload> Plan<'s, P> {
    fn of(state: &'s SessionState<P>) -> Self {
        let (names, planned_in) = (FxHashMap::default(), FxHashMap::default());
        Self { state, names, planned_in, emptied: FxHashSet::default(), defunct: FxHashSet::default() }
    }

    /// Tries one change, and notes what it would do.
    fn admit<U>(&mut self, change: &Change<U>) -> Result<(), Refusal> {
        match change {
            Change::Define { dylib, tracker, definition, .. } => {
                let tracker = self.tracker_for(*dylib, *tracker, definition)?;
                self.define(*dylib, tracker, definition)
            }
            Change::Redefine { dylib, tracker, definition, .. } => {
                let tracker = self.tracker_for(*dylib, *tracker, definition)?;
                self.remove(*dylib, definition.symbols.keys(), Missing::Skipped)?;
                self.define(*dylib, tracker, definition)
            }
            Change::Remove { dylib, names } => {
                self.must_have(*dylib)?;
                self.remove(*dylib, names.iter(), Missing::Refused)
            }
            Change::RemoveTracker { dylib, tracker } => {
                self.remove_tracker(
                    tracker.unwrap_or_else(|| self.state.definitions.default_tracker(*dylib)),
                );
                Ok(())
            }
            Change::SetLinkOrder { dylib, order } => {
                self.must_have(*dylib)?;
                match order.iter().position(|(id, _)| !self.state.definitions.has_dylib(*id)) {
                    Some(position) => Err(Refusal::LinkedDylibRemoved(position)),
                    None => Ok(()),
                }
            }
            Change::AddToLinkOrder { dylib, added, .. }
            | Change::ReplaceInLinkOrder { dylib, new: added, .. } => {
                self.must_have(*dylib)?;
                match self.state.definitions.has_dylib(*added) {
                    true => Ok(()),
                    false => Err(Refusal::LinkedDylibRemoved(0)),
                }
            }
            Change::RemoveFromLinkOrder { .. } => Ok(()),
        }
    }

    fn must_have(&self, dylib: DylibId) -> Result<(), Refusal> {
        match self.state.definitions.has_dylib(dylib) {
            true => Ok(()),
            false => Err(Refusal::DylibRemoved),
        }
    }

    fn tracker_for(
        &self,
        dylib: DylibId,
        tracker: Option<TrackerId>,
        definition: &Definition,
    ) -> Result<TrackerId, Refusal> {
        let tracker = self.state.tracker_for(dylib, tracker, definition.by_task)?;
        match self.defunct.contains(&tracker) {
            true => Err(Refusal::TrackerDefunct),
            false => Ok(tracker),
        }
    }

    fn define(&mut self, dylib: DylibId, tracker: TrackerId, definition: &Definition) -> Result<(), Refusal> {
        let mut won = Vec::with_capacity(definition.symbols.len());
        for (name, &flags) in &definition.symbols {
            if let Some(existing) = self.existing(dylib, name) {
                match contest(flags, existing.flags, existing.rival) {
                    Contest::Yields => continue,
                    Contest::Overrides => {}
                    Contest::Duplicate => {
                        let (symbol, existing_unit) = (name.clone(), existing.unit);
                        return Err(Refusal::Duplicate { symbol, existing_unit });
                    }
                }
            }
            won.push((name.clone(), flags));
        }
        for (name, flags) in won {
            self.planned_in.entry(tracker).or_default().push((dylib, name.clone()));
            let planned = Planned { flags, unit: definition.unit_name.clone(), tracker };
            self.names.insert((dylib, name), Some(planned));
        }
        Ok(())
    }

    fn remove<'n>(
        &mut self,
        dylib: DylibId,
        names: impl Iterator<Item = &'n SymbolName> + Clone,
        if_missing: Missing,
    ) -> Result<(), Refusal> {
        let (mut missing, mut in_use) = (Vec::new(), Vec::new());
        for name in names.clone() {
            match self.existing(dylib, name) {
                None => missing.push(name.clone()),
                Some(existing) if existing.claimed => in_use.push(name.clone()),
                Some(_) => {}
            }
        }
        if if_missing == Missing::Refused && !missing.is_empty() {
            return Err(Refusal::NotFound(missing));
        }
        if !in_use.is_empty() {
            return Err(Refusal::InUse(in_use));
        }
        self.names.extend(names.map(|name| ((dylib, name.clone()), None)));
        Ok(())
    }

    /// Removing a tracker that is defunct already does nothing.
    ///
    /// # Cost
    /// That of what the transaction has put into it.
    fn remove_tracker(&mut self, tracker: TrackerId) {
        if self.defunct.contains(&tracker) || !self.state.definitions.tracker_lives(tracker) {
            return;
        }
        for key in self.planned_in.remove(&tracker).unwrap_or_default() {
            if let Some(planned) = self.names.get_mut(&key) {
                planned.take_if(|planned| planned.tracker == tracker);
            }
        }
        self.emptied.insert(tracker);
        let dylib = self.state.definitions[tracker].dylib;
        if self.state.definitions[dylib].default_tracker != tracker {
            self.defunct.insert(tracker);
        }
    }

    fn existing(&self, dylib: DylibId, name: &SymbolName) -> Option<Existing> {
        if let Some(planned) = self.names.get(&(dylib, name.clone())) {
            let Planned { flags, unit, .. } = planned.as_ref()?;
            let (flags, unit) = (*flags, unit.clone());
            return Some(Existing { flags, unit, rival: Rival::NeverSearched, claimed: false });
        }
        let row = &self.state.definitions[self.state.definitions.find(dylib, name)?];
        if self.emptied.contains(&row.tracker) {
            return None;
        }
        let (flags, unit) = (row.flags, row.unit_name.clone());
        Some(Existing { flags, unit, rival: Rival::of(row), claimed: row.claim().is_some() })
    }
}

/// The treatment of undefined names in a removal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Refused,
    Skipped,
}
