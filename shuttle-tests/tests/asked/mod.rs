//! Units that know how urgently they were asked for, and see that nothing more urgent is left behind.

use std::collections::BTreeSet;

use uruk_core::sync::{Arc, Latch, Mutex};
use uruk_core::{
    DependenceGroup, Dependency, Detached, ExecutorAddr, ExecutorSymbolDef, JitDylib, LookupError,
    LookupRequest, LookupResult, LookupSet, MaterializationInterface, MaterializationResponsibility,
    MaterializationUnit, SearchOrder, SerialQueue, SymbolFlags, SymbolMap, SymbolName, TaskPriority,
};

/// The facts about the units, which are the numbers of their symbols.
pub(crate) struct Facts {
    pub(crate) names: Vec<SymbolName>,
    /// The last two need nothing that is told here.
    pub(crate) needs: Vec<Vec<usize>>,
    /// Their own priorities.
    pub(crate) own: Vec<TaskPriority>,
    /// Those that go with the tracker.
    pub(crate) doomed: BTreeSet<usize>,
    /// Those of which tasks wait for each other.
    pub(crate) in_queue: BTreeSet<usize>,
    pub(crate) addresses: Vec<u64>,
    pub(crate) ahead_max: Option<usize>,
    pub(crate) progress: Mutex<Progress>,
    /// The responsibilities of the two units of the pair, each until it is used.
    pub(crate) parked: [(Mutex<Option<Detached<MaterializationResponsibility>>>, Latch); 2],
}

#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) started: Vec<bool>,
    /// Something may have come to need it after the start.
    pub(crate) is_needed: Vec<bool>,
    /// Whether it is known what was needed at the start.
    pub(crate) is_noted: bool,
    /// How urgent each was at the start, if anybody still asked: by lookups that were kept, and by all that there had been.
    pub(crate) at_least: Vec<Option<TaskPriority>>,
    pub(crate) at_most: Vec<Option<TaskPriority>>,
    pub(crate) is_removed: bool,
    /// A unit that no lookup asks for any more may be cut short.
    pub(crate) is_closing: bool,
}

impl Facts {
    pub(crate) fn symbols(&self, units: &[usize]) -> LookupSet {
        LookupSet::required(units.iter().map(|&unit| self.names[unit].clone()))
    }

    /// The same for a lookup that is made after the start.
    pub(crate) fn needs_now(&self, units: &[usize]) -> LookupSet {
        let mut progress = self.progress.lock();
        units.iter().for_each(|&unit| progress.is_needed[unit] = true);
        // Through what is emitted no unit says so.
        progress.is_needed[self.names.len() - 1] |= units.contains(&(self.names.len() - 2));
        drop(progress);
        self.symbols(units)
    }

    pub(crate) fn parked_of(
        &self,
        index: usize,
    ) -> &(Mutex<Option<Detached<MaterializationResponsibility>>>, Latch) {
        &self.parked[self.names.len() - 1 - index]
    }

    /// A unit starts.
    fn start(&self, index: usize) {
        let mut progress = self.progress.lock();
        assert!(!std::mem::replace(&mut progress.started[index], true), "s{index} starts twice");
        if progress.is_needed[index] {
            return;
        }
        let Some(urgency) = progress.at_most[index] else {
            return assert!(!progress.is_noted, "s{index} starts, and nobody needs it");
        };
        let Some(ahead_max) = self.ahead_max else { return };
        let is_ahead = |unit: &usize| !progress.started[*unit] && progress.at_least[*unit] > Some(urgency);
        let ahead: Vec<_> = (0..self.names.len()).filter(is_ahead).collect();
        assert!(ahead.len() <= ahead_max, "s{index} starts as {urgency:?} before {ahead:?}");
    }

    /// Whether one of these units, or of all they need, goes with the tracker.
    pub(crate) fn may_be_removed(&self, units: &[usize]) -> bool {
        let mut reached: BTreeSet<usize> = units.iter().copied().collect();
        for (unit, needs) in self.needs.iter().enumerate() {
            if reached.contains(&unit) {
                reached.extend(needs);
            }
        }
        !reached.is_disjoint(&self.doomed)
    }

    /// An answer does not depend on the order of events, and only a removal is a reason for an error.
    pub(crate) fn check(&self, wanted: &[usize], found: &Result<LookupResult, LookupError>) {
        match found {
            Ok(found) => wanted.iter().for_each(|&unit| {
                assert_eq!(found[&self.names[unit]].address.value(), self.addresses[unit]);
            }),
            Err(error) => {
                let progress = self.progress.lock();
                let removed = progress.is_removed && self.may_be_removed(wanted);
                assert!(removed || progress.is_closing, "a lookup of {wanted:?} failed: {error}");
            }
        }
    }

    /// Resolves and emits a unit's symbol; what was removed meanwhile is not.
    pub(crate) fn emit(
        &self,
        index: usize,
        responsibility: MaterializationResponsibility,
        dependencies: Vec<Dependency>,
    ) {
        let at = ExecutorSymbolDef::new(ExecutorAddr::new(self.addresses[index]), SymbolFlags::EXPORTED);
        let addresses: SymbolMap = [(self.names[index].clone(), at)].into_iter().collect();
        let group = DependenceGroup { symbols: vec![self.names[index].clone()], dependencies };
        let Ok(resolved) = responsibility.notify_resolved(&addresses) else { return };
        let _ = resolved.notify_emitted(vec![group]);
    }
}

/// The way of a unit with its responsibility.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Blocks,
    Links,
    Parks,
}

pub(crate) struct Unit {
    pub(crate) facts: Arc<Facts>,
    pub(crate) index: usize,
    pub(crate) way: Way,
    pub(crate) queue: Option<SerialQueue>,
}

impl MaterializationUnit for Unit {
    fn name(&self) -> &str {
        self.facts.names[self.index].as_str()
    }

    fn interface(&self) -> MaterializationInterface {
        let symbol = (self.facts.names[self.index].clone(), SymbolFlags::EXPORTED);
        MaterializationInterface::new([symbol].into_iter().collect())
    }

    fn priority(&self) -> TaskPriority {
        self.facts.own[self.index]
    }

    fn serial_queue(&self) -> Option<SerialQueue> {
        self.queue.clone()
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let Self { facts, index, way, .. } = *self;
        if let Way::Parks = way {
            let (parked, is_there) = facts.parked_of(index);
            *parked.lock() = Some(responsibility.detach());
            return is_there.open();
        }
        facts.start(index);
        let (session, order) = (responsibility.session().clone(), SearchOrder::of(responsibility.dylib()));
        let needs = facts.needs_now(&facts.needs[index]);
        match way {
            Way::Parks | Way::Blocks => {
                let found = session.lookup(LookupRequest::new(&order, needs));
                facts.check(&facts.needs[index], &found);
                if let Ok(found) = found {
                    facts.emit(index, responsibility, found.dependencies());
                }
            }
            Way::Links => {
                let responsibility = responsibility.detach();
                session.lookup_async(LookupRequest::new(order, needs).until_resolved(), move |found| {
                    let responsibility = responsibility.attach();
                    facts.check(&facts.needs[index], &found);
                    if let Ok(found) = found {
                        facts.emit(index, responsibility, found.dependencies());
                    }
                });
            }
        }
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}
