//! Dylibs: name spaces, their link orders and generators.

use rustc_hash::FxHashSet;

use crate::protocol::state::payload::Payload;
use crate::protocol::storage::{DylibId, GeneratorId, Id, NONE, Takes, TrackerId};
use crate::sync::{Arc, weakened};
use crate::{JitDylibLookupFlags, SymbolFlags, SymbolName};

use super::Definitions;

/// A name space.
#[derive(Debug)]
pub(crate) struct Dylib {
    pub(crate) name: Arc<str>,
    /// Its place in the order of creation.
    pub(crate) created: u64,
    /// Where references are searched. Never names a removed dylib.
    pub(crate) link_order: Vec<(DylibId, JitDylibLookupFlags)>,
    pub(crate) generators: Vec<GeneratorId>,
    pub(crate) default_tracker: TrackerId,
    /// The newest tracker of a list through the trackers.
    pub(crate) newest_tracker: u32,
    /// How often it has been cleared: trackers of other eras than this one are being removed (`removing.rs`).
    pub(crate) era: u32,
    /// How many rows it has that are not being removed; counted only for observers.
    pub(crate) rows: u64,
}

impl<P: Payload> Definitions<P> {
    /// A new dylib with a default tracker. None if there is one of that name.
    pub(in crate::protocol) fn create_dylib(&mut self, name: Arc<str>) -> Option<DylibId> {
        if self.dylib_names.contains_key(&name) {
            return None;
        }
        // The dylib and its default tracker name each other: the tracker comes second.
        let dylib = self.dylibs.insert(Dylib {
            name: name.clone(),
            created: self.dylibs_created,
            link_order: Vec::new(),
            generators: Vec::new(),
            default_tracker: TrackerId::new(NONE, 0),
            newest_tracker: NONE,
            era: 0,
            rows: 0,
        });
        self.dylibs_created += 1;
        let tracker = self.create_tracker_in(dylib);
        let row = &mut self.dylibs[dylib];
        row.default_tracker = tracker;
        row.link_order.push((dylib, JitDylibLookupFlags::MatchAllSymbols));
        self.dylib_names.insert(name, dylib);
        self.ready_index.add_dylib(dylib);
        Some(dylib)
    }

    /// The dylib of that name.
    pub(crate) fn dylib_by_name(&self, name: &str) -> Option<(DylibId, Arc<str>)> {
        let id = *self.dylib_names.get(name)?;
        Some((id, self.dylibs[id].name.clone()))
    }

    /// The link order, with the names that handles need. Empty for a removed dylib.
    pub(crate) fn link_order(&self, dylib: DylibId) -> Vec<(DylibId, Arc<str>, JitDylibLookupFlags)> {
        let Some(dylib) = self.dylibs.get(dylib) else { return Vec::new() };
        dylib.link_order.iter().map(|&(id, flags)| (id, self.dylibs[id].name.clone(), flags)).collect()
    }

    /// See [`crate::ExecutionSession::link_order_changes`].
    pub(crate) fn link_order_changes(&self) -> u64 {
        self.ready_index.link_order_changes()
    }

    /// Replaces the link order. `names` names the dylibs of `order` where this state no longer can.
    pub(crate) fn set_link_order(
        &mut self,
        dylib: DylibId,
        order: Vec<(DylibId, JitDylibLookupFlags)>,
    ) -> Result<(), RemovedDylib> {
        if let Some(position) = order.iter().position(|(id, _)| !self.dylibs.contains(*id)) {
            return Err(RemovedDylib::InOrder(position));
        }
        let row = self.dylibs.get_mut(dylib).ok_or(RemovedDylib::Itself)?;
        if !weakened("shadow::keeps_the_link_order") {
            row.link_order = order;
            self.ready_index.count_link_order_change();
        }
        Ok(())
    }

    /// Appends to the link order what is not there already.
    pub(crate) fn add_to_link_order(
        &mut self,
        dylib: DylibId,
        added: DylibId,
        flags: JitDylibLookupFlags,
    ) -> Result<(), RemovedDylib> {
        if !self.dylibs.contains(added) {
            return Err(RemovedDylib::InOrder(0));
        }
        let order = &mut self.dylibs.get_mut(dylib).ok_or(RemovedDylib::Itself)?.link_order;
        if !order.iter().any(|(id, _)| *id == added) {
            order.push((added, flags));
            self.ready_index.count_link_order_change();
        }
        Ok(())
    }

    /// Has the link order begin with `first`, which stands nowhere else then.
    pub(crate) fn begin_link_order(
        &mut self,
        dylib: DylibId,
        first: DylibId,
        flags: JitDylibLookupFlags,
    ) -> Result<(), RemovedDylib> {
        if !self.dylibs.contains(first) {
            return Err(RemovedDylib::InOrder(0));
        }
        let order = &mut self.dylibs.get_mut(dylib).ok_or(RemovedDylib::Itself)?.link_order;
        if order.first().is_none_or(|(id, _)| *id != first) {
            order.retain(|(id, _)| *id != first);
            order.insert(0, (first, flags));
            self.ready_index.count_link_order_change();
        }
        Ok(())
    }

    /// Puts `new` where `old` stands first in the link order; says whether it stands there. Both stand nowhere else then.
    pub(crate) fn replace_in_link_order(
        &mut self,
        dylib: DylibId,
        old: DylibId,
        new: DylibId,
        flags: JitDylibLookupFlags,
    ) -> Result<bool, RemovedDylib> {
        if !self.dylibs.contains(new) {
            return Err(RemovedDylib::InOrder(0));
        }
        let order = &mut self.dylibs.get_mut(dylib).ok_or(RemovedDylib::Itself)?.link_order;
        let Some(place) = order.iter().position(|(id, _)| *id == old) else { return Ok(false) };
        order[place] = (new, flags);
        let mut position = 0..;
        order.retain(|(id, _)| position.next() == Some(place) || (*id != old && *id != new));
        self.ready_index.count_link_order_change();
        Ok(true)
    }

    /// Takes a dylib out of the link order of another.
    pub(crate) fn remove_from_link_order(&mut self, dylib: DylibId, removed: DylibId) {
        if let Some(dylib) = self.dylibs.get_mut(dylib) {
            dylib.link_order.retain(|(id, _)| *id != removed);
            self.ready_index.count_link_order_change();
        }
    }

    /// See [`crate::ExecutionSession::dfs_link_order`]. An error is the position of a root that was removed.
    pub(crate) fn dfs_link_order(&self, roots: &[DylibId]) -> Result<Vec<(DylibId, Arc<str>)>, usize> {
        if let Some(position) = roots.iter().position(|&root| !self.has_dylib(root)) {
            return Err(position);
        }
        let (mut order, mut visited) = (Vec::new(), FxHashSet::default());
        // The next to be visited is the last; a dylib may stand in it several times.
        let mut ahead: Vec<_> = roots.iter().rev().copied().collect();
        while let Some(id) = ahead.pop() {
            if visited.insert(id) {
                let dylib = &self[id];
                order.push((id, dylib.name.clone()));
                let unseen = dylib.link_order.iter().rev().map(|(next, _)| *next);
                ahead.extend(unseen.filter(|next| !visited.contains(next)));
            }
        }
        Ok(order)
    }

    /// The flags of each of `names`, without searching it.
    pub(crate) fn flags(&self, dylib: DylibId, names: Vec<SymbolName>) -> Vec<(SymbolName, SymbolFlags)> {
        let flags = |name: SymbolName| {
            let row = self.find(dylib, &name)?;
            Some((name, self.rows[row].flags))
        };
        names.into_iter().filter_map(flags).collect()
    }

    /// See [`crate::JitDylib::unit_providing`].
    pub(crate) fn unit_providing(&self, dylib: DylibId, name: &SymbolName) -> Option<SymbolName> {
        Some(self.rows[self.find(dylib, name)?].unit_name.clone())
    }

    /// Takes a dylib out that was cleared: only its default tracker is left, and empty. No link order names it any more.
    pub(in crate::protocol) fn delete_dylib(&mut self, dylib: DylibId, memory: &mut impl Takes) {
        self.delete_tracker(self.dylibs[dylib].default_tracker, memory);
        self.ready_index.remove_dylib(dylib);
        if let Some(removed) = self.dylibs.remove(dylib, memory) {
            self.dylib_names.remove(&removed.name);
        }
        let others: Vec<_> = self.dylibs.iter().map(|(id, _)| id).collect();
        for other in others {
            self.remove_from_link_order(other, dylib);
        }
    }

    /// The dylib generates. Nothing if it was removed.
    pub(in crate::protocol) fn add_generator(&mut self, dylib: DylibId, generator: GeneratorId) {
        if let Some(row) = self.dylibs.get_mut(dylib) {
            row.generators.push(generator);
            self.ready_index.set_generates(dylib, true);
        }
    }

    /// A generator of the dylib goes.
    pub(in crate::protocol) fn remove_generator(&mut self, dylib: DylibId, generator: GeneratorId) {
        let generators = &mut self.dylibs[dylib].generators;
        generators.retain(|id| *id != generator);
        self.ready_index.set_generates(dylib, !generators.is_empty());
    }

    /// All generators of the dylib go. Gives them.
    pub(in crate::protocol) fn take_generators(&mut self, dylib: DylibId) -> Vec<GeneratorId> {
        self.ready_index.set_generates(dylib, false);
        std::mem::take(&mut self.dylibs[dylib].generators)
    }

    /// The dylib's trackers, newest first.
    pub(super) fn trackers_of(&self, dylib: &Dylib) -> impl Iterator<Item = TrackerId> {
        let newest = self.trackers.id_at(dylib.newest_tracker);
        std::iter::successors(newest, |&id| self.trackers.id_at(self.trackers[id].links.next))
    }
}

/// Which dylib of an operation is no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemovedDylib {
    /// The one operated on.
    Itself,
    /// The one at this position of the order given.
    InOrder(usize),
}
