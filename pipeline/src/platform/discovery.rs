//! The units that a program needs, found by their definitions and references before any of them is compiled.
//!
//! ```text
//!   declared ──takes part──────────────────▶ wanted ──taken──▶ looked up
//!      │ is passive                            ▲
//!      ▼                                       │ referred to by one that is taken, or materialized
//!    latent ───────────────────────────────────┘
//!      │ never referred to
//!      ▼
//!    left out
//! ```
//!
//! References show at once what a chain of compilations would find link by link, so all needed units compile side by side. They may miss
//! some, such as weak ones: such a unit is compiled when its symbols are looked up.

use std::collections::BTreeMap;
use std::mem;

use rustc_hash::{FxHashMap, FxHashSet};
use uruk_core::SymbolName;

use super::Platform;
use crate::object::{CompiledOnCall, References};

/// A unit that no `take` has handed out yet.
#[derive(Debug)]
pub(super) struct Undiscovered {
    pub(super) symbol: SymbolName,
    pub(super) work_bytes: usize,
    pub(super) compiled_on_call: Option<CompiledOnCall>,
    pub(super) references: References,
}

/// A unit that may not be linked before the program runs.
#[derive(Debug)]
pub struct LatentUnit {
    /// Its initializer symbol.
    pub symbol: SymbolName,
    /// Symbols that it refers to and does not define.
    pub undefined: Box<[SymbolName]>,
    /// Its functions that are compiled when they are called.
    pub compiled_on_call: Option<CompiledOnCall>,
}

impl Platform {
    /// Whether there are units that share sections and are not linked: all of these have to be known before the first is linked.
    pub fn sections_are_shared(&self) -> bool {
        self.section_groups.are_declared()
    }

    /// Undefined symbols of units that were not handed out yet.
    pub fn undefined(&self) -> FxHashSet<SymbolName> {
        self.state.lock().undiscovered.undefined()
    }
}

/// The units that no `take` has handed out yet, by their place in link order.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    wanted: BTreeMap<u32, Undiscovered>,
    latent: BTreeMap<u32, Undiscovered>,
}

impl Discovery {
    pub(super) fn declare(&mut self, order: u32, unit: Undiscovered, is_passive: bool) {
        let units = if is_passive { &mut self.latent } else { &mut self.wanted };
        units.insert(order, unit);
    }

    /// Gives the unit, to be dropped where no lock is held.
    pub(super) fn withdraw(&mut self, order: u32) -> Option<Undiscovered> {
        self.wanted.remove(&order).or_else(|| self.latent.remove(&order))
    }

    /// Notes that a unit takes part. Gives its references, to be dropped where no lock is held.
    pub(super) fn want(&mut self, order: u32) -> References {
        let Some(mut unit) = self.latent.remove(&order) else { return References::default() };
        let references = mem::take(&mut unit.references);
        self.wanted.insert(order, unit);
        references
    }

    /// Takes the units that take part, and all that `entry` and these lead to.
    pub(super) fn take_needed(&mut self, entry: Option<&SymbolName>) -> BTreeMap<u32, Undiscovered> {
        let mut needed = mem::take(&mut self.wanted);
        for order in self.reached_from(entry, needed.values()) {
            needed.extend(self.latent.remove_entry(&order));
        }
        needed
    }

    /// All symbols that the units refer to, also units that are compiled when they are called.
    pub(super) fn undefined(&self) -> FxHashSet<SymbolName> {
        let units = self.wanted.values().chain(self.latent.values());
        units.flat_map(|unit| unit.references.undefined.iter().cloned()).collect()
    }

    fn reached_from<'a>(
        &'a self,
        entry: Option<&'a SymbolName>,
        units: impl Iterator<Item = &'a Undiscovered>,
    ) -> FxHashSet<u32> {
        let latent = self.latent.iter();
        let definitions =
            latent.flat_map(|(order, unit)| unit.references.defined.iter().map(|name| (name, *order)));
        let definitions: FxHashMap<&SymbolName, u32> = definitions.collect();
        let mut names: Vec<&SymbolName> = entry.into_iter().collect();
        names.extend(units.flat_map(|unit| &unit.references.undefined));
        let mut reached = FxHashSet::default();
        while let Some(name) = names.pop() {
            if let Some(order) = definitions.get(name)
                && reached.insert(*order)
            {
                names.extend(&self.latent[order].references.undefined);
            }
        }
        reached
    }

    /// Takes the units that nothing has referred to so far.
    pub(super) fn take_latent(&mut self) -> BTreeMap<u32, Undiscovered> {
        mem::take(&mut self.latent)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.latent.is_empty()
    }
}
