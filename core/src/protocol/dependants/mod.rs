//! Dependants: the symbols that need a symbol, kept after both are Ready, so that a removal can ask.
//!
//! The forest (`dependences/`) forgets an edge as soon as its target is Ready. Dylibs that ask for it keep those edges here, for as
//! long as the symbols are there.
//!
//! ```text
//!   row ─▶ first ─▶ edge ◀─▶ edge ◀─▶ edge          the dependants of one row
//!                    │        │        │
//!                    ▼        ▼        ▼
//!                emission  emission  emission ─▶ its rows, and its edges: what they need
//! ```
//!
//! An *emission* is a set of rows emitted together. An edge stands for a whole group of its rows, so that an object of a thousand
//! symbols that needs a thousand others takes a thousand edges and not a million.
//!
//! A row that goes takes its list of edges along without a look at them. They stay with their emissions, in no row's list. An emission
//! goes with its last row, and then its edges.
//!
//! Knows no symbol and no state of one: callers say which rows count (`removal/policy.rs`).
//!
//! **Invariant:** `check.rs`.

mod by_row;
#[cfg(any(test, debug_assertions))]
mod check;
mod closure;

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::protocol::storage::{DylibId, EmissionId, Id, NONE, NeedId, RowId, Slab, Takes};

use by_row::ByRow;

/// Rows that were emitted together, or a part of them.
pub(in crate::protocol) type EmittedRows = SmallVec<[RowId; 2]>;

/// The dependants of all dylibs that keep theirs.
#[derive(Debug)]
pub(crate) struct Dependants {
    dylibs: FxHashSet<DylibId>,
    rows: ByRow,
    emissions: Slab<EmissionId, Emission>,
    needs: Slab<NeedId, Need>,
}

/// Rows that were emitted together, and that need rows of dylibs that keep dependants.
#[derive(Debug)]
struct Emission {
    /// Those that are gone too: their ids are stale.
    rows: EmittedRows,
    /// How many are not gone.
    left: u32,
    /// The first of its edges.
    first: u32,
}

/// An edge: rows of an emission need a row.
#[derive(Debug)]
struct Need {
    needed: RowId,
    emission: u32,
    /// The places of the rows in their emission: from the first, to before the second.
    dependants: (u32, u32),
    /// The neighbours in the list of the needed row, if that is there.
    previous: u32,
    next: u32,
    /// The next edge of the emission.
    next_of_emission: u32,
}

/// Rows that are about to be emitted, and what all of them need.
#[derive(Debug)]
pub(in crate::protocol) struct NeedyRows<'a> {
    pub(in crate::protocol) rows: &'a [RowId],
    pub(in crate::protocol) needs: SmallVec<[RowId; 4]>,
}

impl Default for Dependants {
    fn default() -> Self {
        Self {
            dylibs: FxHashSet::default(),
            rows: ByRow::default(),
            emissions: Slab::new(),
            needs: Slab::new(),
        }
    }
}

impl Dependants {
    /// From now on the dylib keeps the dependants of its symbols.
    pub(in crate::protocol) fn keep(&mut self, dylib: DylibId) {
        self.dylibs.insert(dylib);
    }

    /// The dylib is gone.
    pub(in crate::protocol) fn keep_no_more(&mut self, dylib: DylibId) {
        self.dylibs.remove(&dylib);
    }

    /// Whether the dylib keeps its dependants.
    pub(in crate::protocol) fn keeps(&self, dylib: DylibId) -> bool {
        self.dylibs.contains(&dylib)
    }

    /// Whether any dylib does.
    #[inline]
    pub(in crate::protocol) fn are_kept(&self) -> bool {
        !self.dylibs.is_empty()
    }

    /// Notes what is emitted together: groups that need something, and `all` rows. Nothing if there is no edge.
    ///
    /// # Cost
    /// Linear in the rows, and in what the groups name.
    pub(in crate::protocol) fn note(&mut self, groups: &[NeedyRows<'_>], all: &[RowId]) {
        if groups.iter().all(|group| group.rows.is_empty() || group.needs.is_empty()) {
            return;
        }
        let mut rows = EmittedRows::with_capacity(all.len());
        let id = self.emissions.insert(Emission { rows: EmittedRows::new(), left: 0, first: NONE });
        for group in groups.iter().filter(|group| !group.rows.is_empty()) {
            let from = place(rows.len());
            for &row in group.rows {
                self.rows.at_mut(row).emission = id.index();
                rows.push(row);
            }
            let dependants = (from, place(rows.len()));
            group.needs.iter().for_each(|&needed| self.add(id.index(), needed, dependants));
        }
        for &row in all {
            let entry = self.rows.at_mut(row);
            if entry.emission == NONE {
                entry.emission = id.index();
                rows.push(row);
            }
        }
        let emission = &mut self.emissions[id];
        emission.left = place(rows.len());
        emission.rows = rows;
    }

    /// A row is gone.
    ///
    /// # Cost
    /// Constant; for the last row of an emission, linear in what that needs.
    #[inline]
    pub(in crate::protocol) fn forget(&mut self, row: RowId, memory: &mut impl Takes) {
        if !self.rows.is_empty() {
            self.forget_noted(row, memory);
        }
    }

    /// The direct dependants of the row, once for each edge.
    pub(in crate::protocol) fn of(&self, row: RowId) -> impl Iterator<Item = RowId> {
        let edges = std::iter::successors(self.edge(self.rows.first_of(row)), |edge| self.edge(edge.next));
        edges.flat_map(|edge| self.dependants(edge).iter().copied())
    }

    /// Whether nothing is noted.
    #[cfg(all(test, not(uruk_loom)))]
    pub(in crate::protocol) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.emissions.len() == 0 && self.needs.len() == 0
    }

    /// How many bytes there are for rows, for emissions and for edges.
    #[cfg(all(test, not(uruk_loom)))]
    pub(in crate::protocol) fn bytes(&self) -> [usize; 3] {
        [self.rows.bytes(), self.emissions.bytes(), self.needs.bytes()]
    }

    #[inline(never)]
    fn forget_noted(&mut self, row: RowId, memory: &mut impl Takes) {
        let Some(entry) = self.rows.take(row, memory) else { return };
        if entry.emission == NONE {
            return;
        }
        let emission = self.emissions.at_mut(entry.emission);
        emission.left -= 1;
        if emission.left > 0 {
            return;
        }
        let mut edge = emission.first;
        while edge != NONE {
            self.unlink(edge);
            let next = self.needs.at(edge).next_of_emission;
            discard(&mut self.needs, edge, memory);
            edge = next;
        }
        discard(&mut self.emissions, entry.emission, memory);
    }

    fn add(&mut self, emission: u32, needed: RowId, dependants: (u32, u32)) {
        let next = self.rows.first_of(needed);
        let next_of_emission = self.emissions.at(emission).first;
        let need = Need { needed, emission, dependants, previous: NONE, next, next_of_emission };
        let edge = self.needs.insert(need).index();
        if next != NONE {
            self.needs.at_mut(next).previous = edge;
        }
        self.rows.at_mut(needed).first = edge;
        self.emissions.at_mut(emission).first = edge;
    }

    /// Takes an edge out of the list of the row that it leads to. That list went with the row, if that is gone.
    fn unlink(&mut self, edge: u32) {
        let &Need { needed, previous, next, .. } = self.needs.at(edge);
        if !self.rows.knows(needed) {
            return;
        }
        if next != NONE {
            self.needs.at_mut(next).previous = previous;
        }
        match previous {
            NONE => self.rows.at_mut(needed).first = next,
            previous => self.needs.at_mut(previous).next = next,
        }
    }

    fn edge(&self, edge: u32) -> Option<&Need> {
        (edge != NONE).then(|| self.needs.at(edge))
    }

    /// The rows that an edge stands for; some may be gone.
    fn dependants(&self, edge: &Need) -> &[RowId] {
        let (from, to) = edge.dependants;
        &self.emissions.at(edge.emission).rows[from as usize..to as usize]
    }
}

fn place(place: usize) -> u32 {
    u32::try_from(place).expect("an emission has fewer than four billion symbols")
}

fn discard<I: Id, T: Send + 'static>(slab: &mut Slab<I, T>, index: u32, memory: &mut impl Takes) {
    if let Some(id) = slab.id_at(index) {
        slab.discard(id, memory);
    }
}
