//! Define: units come into a dylib, and definitions compete.
//!
//! | existing \ new | strong | weak or common |
//! |---|---|---|
//! | none | defined | defined |
//! | weak or common, `NeverSearched` | new one wins, the old unit discards | existing one stays, the new unit discards |
//! | weak or common, any later state | duplicate | existing one stays |
//! | strong | duplicate | existing one stays |
//! | any, `Failed` | new one takes its place | the same |
//!
//! A failed symbol can be defined again: that is another definition, which is started once like any other. Resources that its unit
//! has left are dropped with the last of its symbols.
//!
//! A definition of many symbols is accepted whole or not at all.

use uruk_recorder::Kind;

use crate::protocol::state::definitions::row::Row;
use crate::protocol::state::{
    Effects, Leftover, Payload, PendingUnit, RisingPriority, RowNotice, RowState, SessionState,
};
use crate::protocol::storage::{ClaimId, DylibId, RowId, TrackerId};
use crate::sync::{Arc, weakened};
use crate::{DefineError, DylibError, EventKind, SymbolFlags, SymbolFlagsMap, SymbolName};

pub(crate) use crate::protocol::state::pending::Definition;

/// Why a definition is refused, before it is an error for anybody.
pub(crate) enum DefinitionRefusal {
    Closed,
    DylibRemoved,
    TrackerDefunct,
    Duplicate { symbol: SymbolName, existing_unit: SymbolName },
}

/// The result of the competition for an accepted definition.
#[derive(Default)]
pub(crate) struct Competition {
    /// Weak definitions that yield to new ones, and failed ones.
    pub(crate) overridden: Vec<RowId>,
    /// New weak definitions that yield to existing ones.
    pub(crate) yielding: Vec<SymbolName>,
}

/// How a new definition of a name fares against the one that exists.
pub(crate) enum Contest {
    /// It stays away.
    Yields,
    /// It takes the other's place.
    Overrides,
    /// There is no place for both.
    Duplicate,
}

/// Where the definition stands that exists, as far as that matters to a new one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rival {
    NeverSearched,
    Failed,
    Otherwise,
}

impl Rival {
    pub(crate) fn of(row: &Row) -> Self {
        match row.state {
            RowState::NeverSearched { .. } => Self::NeverSearched,
            RowState::Failed { .. } => Self::Failed,
            _ => Self::Otherwise,
        }
    }
}

/// The table at the head of this file, where something exists.
pub(crate) fn contest(new: SymbolFlags, existing: SymbolFlags, rival: Rival) -> Contest {
    if rival == Rival::Failed {
        Contest::Overrides
    } else if new.is_weak_or_common() {
        Contest::Yields
    } else if existing.is_weak_or_common() && rival == Rival::NeverSearched {
        Contest::Overrides
    } else {
        Contest::Duplicate
    }
}

impl<P: Payload> SessionState<P> {
    /// See [`crate::JitDylib::define`]. A unit that is refused leaves through `effects`.
    pub(crate) fn define(
        &mut self,
        dylib: DylibId,
        tracker: Option<TrackerId>,
        mut definition: Definition,
        unit: P::Unit,
        effects: &mut Effects<P>,
    ) -> Result<(), DefineError> {
        let symbols = flags_of(&definition.symbols);
        let (tracker, competition) = match self.admit(dylib, tracker, symbols, definition.by_task) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                effects.leave(Leftover::RefusedUnit(unit));
                return Err(self.refusal_error(refusal, dylib, definition.unit_name));
            }
        };
        self.make_room(competition.overridden, effects);
        for name in &competition.yielding {
            definition.symbols.remove(name);
        }
        let discarded = competition.yielding;
        if definition.symbols.is_empty() {
            if let Some(number) = definition.number {
                effects.more().initializers_gone.push(number);
            }
            let dylib_name = self.definitions[dylib].name.clone();
            effects.leave(Leftover::Unit { unit, dylib, dylib_name, discarded });
            return Ok(());
        }
        self.observe_definition(dylib, &definition.unit_name, definition.symbols.keys(), effects);
        let (number, home) = (definition.number, (dylib, self.definitions[dylib].name.clone()));
        let unit = PendingUnit::of(definition, unit, home, discarded);
        let initializer = unit.initializer().cloned();
        self.definitions.define(tracker, unit, effects);
        if let Some(number) = number {
            self.definitions.note_initializer(dylib, number, initializer.as_ref(), effects);
        }
        Ok(())
    }

    /// See [`crate::MaterializationResponsibility::define_materializing`].
    pub(crate) fn define_materializing(
        &mut self,
        claim: ClaimId,
        unit_name: &SymbolName,
        mut symbols: SymbolFlagsMap,
        effects: &mut Effects<P>,
    ) -> Result<SymbolFlagsMap, DefineError> {
        let live = self
            .definitions
            .live_claim(claim)
            .and_then(|live| Some((self.definitions.dylib_of_claim(live)?, live.tracker())));
        let Some((dylib, tracker)) = live else {
            let dylib = "(removed)".into();
            return Err(DefineError::TrackerDefunct { unit: unit_name.clone(), dylib });
        };
        // A claim that has symbols has a live tracker; one without may have outlived its own, and its dylib.
        let competition = match self.tracker_is_defunct(tracker) {
            true => Err(DefinitionRefusal::TrackerDefunct),
            false => self.compete(dylib, flags_of(&symbols)),
        };
        let competition =
            competition.map_err(|refusal| self.refusal_error(refusal, dylib, unit_name.clone()))?;
        self.make_room(competition.overridden, effects);
        for name in &competition.yielding {
            symbols.remove(name);
        }
        self.definitions.define_claimed(claim, unit_name, &symbols, effects);
        self.observe_definition(dylib, unit_name, symbols.keys(), effects);
        Ok(symbols)
    }

    /// See [`crate::MaterializationResponsibility::replace`]. A unit that is refused leaves through
    /// `effects`.
    pub(crate) fn replace(
        &mut self,
        claim: ClaimId,
        covered: &SymbolFlagsMap,
        definition: Definition,
        unit: P::Unit,
        effects: &mut Effects<P>,
    ) -> Result<(), DefineError> {
        let Some(dylib) =
            self.definitions.live_claim(claim).and_then(|live| self.definitions.dylib_of_claim(live))
        else {
            effects.leave(Leftover::RefusedUnit(unit));
            return Err(DefineError::TrackerDefunct {
                unit: definition.unit_name,
                dylib: "(removed)".into(),
            });
        };
        let uncovered = difference(&definition.symbols, covered);
        if !uncovered.is_empty() {
            effects.leave(Leftover::RefusedUnit(unit));
            return Err(DefineError::NotCovered { unit: definition.unit_name, symbols: uncovered });
        }
        // The rows and the records of their names say what was promised first; who takes over keeps the promise.
        if let Some((symbol, given, promised)) = changed_flags(&definition.symbols, covered) {
            effects.leave(Leftover::RefusedUnit(unit));
            return Err(DefineError::Flags { unit: definition.unit_name, symbol, promised, given });
        }
        if covered.is_empty() {
            // A unit that waits in no row would never be found again.
            self.definitions.end_claim(claim, effects);
            effects.leave(Leftover::RefusedUnit(unit));
            return Ok(());
        }
        let priority = definition.priority;
        let rows = self.definitions.rows_of_claim(claim);
        self.definitions.rename_unit(claim, &definition.unit_name, priority);
        let demanded = rows.iter().any(|&row| self.is_demanded(row));
        let home = (dylib, self.definitions[dylib].name.clone());
        let waiting = PendingUnit::of(definition, unit, home, Vec::new());
        if demanded {
            // The rows have waiters: they stay as they are, and the new unit takes over their claim.
            if self.definitions[claim].is_wanted_as_it_says {
                self.raise(rows[0], RisingPriority::at(priority));
            }
            self.hand_over(claim, waiting, effects);
        } else {
            self.give_back(claim, waiting, effects);
        }
        Ok(())
    }

    /// Definitions go whose places others take.
    pub(crate) fn make_room(&mut self, overridden: Vec<RowId>, effects: &mut Effects<P>) {
        let orphans = self.definitions.orphans();
        for row in overridden {
            self.remove_row(row, RowNotice::Discarded, effects);
        }
        for (_, resource) in self.definitions.take_orphans_from(orphans) {
            effects.leave(Leftover::Resource(resource));
        }
    }

    /// Where a definition of `symbols` would go and what it would do to others, without changing anything.
    pub(crate) fn admit<'a>(
        &self,
        dylib: DylibId,
        tracker: Option<TrackerId>,
        symbols: impl Iterator<Item = (&'a SymbolName, SymbolFlags)>,
        by_task: bool,
    ) -> Result<(TrackerId, Competition), DefinitionRefusal> {
        let tracker = self.tracker_for(dylib, tracker, by_task)?;
        Ok((tracker, self.compete(dylib, symbols)?))
    }

    /// The tracker that a definition goes to.
    pub(crate) fn tracker_for(
        &self,
        dylib: DylibId,
        tracker: Option<TrackerId>,
        by_task: bool,
    ) -> Result<TrackerId, DefinitionRefusal> {
        if !self.admits(by_task) && !weakened("close::admits_definitions") {
            return Err(DefinitionRefusal::Closed);
        }
        let row = self.definitions.dylib(dylib).ok_or(DefinitionRefusal::DylibRemoved)?;
        let tracker = tracker.unwrap_or(row.default_tracker);
        match self.definitions.tracker_lives(tracker) {
            true => Ok(tracker),
            false => Err(DefinitionRefusal::TrackerDefunct),
        }
    }

    /// Decides each symbol by the table at the head of this file, without changing anything.
    fn compete<'a>(
        &self,
        dylib: DylibId,
        symbols: impl Iterator<Item = (&'a SymbolName, SymbolFlags)>,
    ) -> Result<Competition, DefinitionRefusal> {
        let mut competition = Competition::default();
        for (name, flags) in symbols {
            let Some(existing) = self.definitions.find(dylib, name) else { continue };
            let row = &self.definitions[existing];
            match contest(flags, row.flags, Rival::of(row)) {
                Contest::Yields => competition.yielding.push(name.clone()),
                Contest::Overrides => competition.overridden.push(existing),
                Contest::Duplicate => {
                    let (symbol, existing_unit) = (name.clone(), row.unit_name.clone());
                    return Err(DefinitionRefusal::Duplicate { symbol, existing_unit });
                }
            }
        }
        Ok(competition)
    }

    pub(crate) fn refusal_error(
        &self,
        refusal: DefinitionRefusal,
        dylib: DylibId,
        unit: SymbolName,
    ) -> DefineError {
        let dylib =
            self.definitions.dylib(dylib).map_or_else(|| "(removed)".into(), |dylib| dylib.name.clone());
        match refusal {
            DefinitionRefusal::Closed => DefineError::Closed { unit },
            DefinitionRefusal::DylibRemoved => DefineError::DylibRemoved { unit, dylib },
            DefinitionRefusal::TrackerDefunct => DefineError::TrackerDefunct { unit, dylib },
            DefinitionRefusal::Duplicate { symbol, existing_unit } => {
                DefineError::Duplicate { symbol, dylib, unit, existing_unit }
            }
        }
    }

    pub(crate) fn observe_definition<'a>(
        &mut self,
        dylib: DylibId,
        unit: &SymbolName,
        symbols: impl Iterator<Item = &'a SymbolName>,
        effects: &mut Effects<P>,
    ) {
        self.noted.with(Kind::Defined, dylib, || symbols.size_hint().0 as u64, Some(unit));
        if self.events.is_observed() {
            let dylib = self.definitions[dylib].name.clone();
            let (unit, symbols) = (unit.clone(), symbols.cloned().collect());
            self.observe(effects, || EventKind::Defined { dylib, unit, symbols });
        }
    }

    /// See [`crate::ExecutionSession::create_jit_dylib`].
    pub(crate) fn create_dylib(&mut self, name: Arc<str>) -> Result<DylibId, DylibError> {
        if !self.is_open() {
            return Err(DylibError::Closed);
        }
        let text = uruk_recorder::is_on().then(|| name.clone());
        let dylib = self.definitions.create_dylib(name.clone()).ok_or(DylibError::Duplicate { name })?;
        if let Some(text) = text {
            self.noted.dylib(dylib, &text);
        }
        Ok(dylib)
    }

    /// See [`crate::ExecutionSession::create_jit_dylib_keeping_dependants`].
    pub(crate) fn create_dylib_keeping_dependants(&mut self, name: Arc<str>) -> Result<DylibId, DylibError> {
        let dylib = self.create_dylib(name)?;
        self.dependants.keep(dylib);
        Ok(dylib)
    }
}

/// Each symbol with its flags.
fn flags_of(symbols: &SymbolFlagsMap) -> impl Iterator<Item = (&SymbolName, SymbolFlags)> {
    symbols.iter().map(|(name, flags)| (name, *flags))
}

/// A symbol of `new` that has other flags in `old`, with the flags of both. A definition that won against others need
/// not be weak any more.
fn changed_flags(
    new: &SymbolFlagsMap,
    old: &SymbolFlagsMap,
) -> Option<(SymbolName, SymbolFlags, SymbolFlags)> {
    new.iter().find_map(|(name, &given)| {
        let promised = *old.get(name)?;
        let differs = given.without_weak_and_common() != promised.without_weak_and_common();
        differs.then(|| (name.clone(), given, promised))
    })
}

/// The names that are in one map only.
fn difference(one: &SymbolFlagsMap, other: &SymbolFlagsMap) -> Vec<SymbolName> {
    let only_in = |one: &SymbolFlagsMap, other: &SymbolFlagsMap| -> Vec<SymbolName> {
        one.keys().filter(|name| !other.contains_key(name)).cloned().collect()
    };
    let mut names = only_in(one, other);
    names.extend(only_in(other, one));
    names
}
