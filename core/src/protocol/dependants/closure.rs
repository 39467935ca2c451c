//! Closure: all that needs some rows, directly or through others.

use rustc_hash::FxHashSet;

use crate::protocol::storage::{NONE, RowId};

use super::{Dependants, EmittedRows};

/// An emission whose dependants are being visited; `NONE` for the rows that were asked about.
struct Visit {
    emission: u32,
    /// The next of its rows.
    next: usize,
    /// The next edge to the row before.
    edge: u32,
}

impl Dependants {
    /// The emissions that need one of `rows`, directly or through others, each behind those that need it. Those that need each other
    /// come in some order. An edge counts if a row that it stands for `stands`.
    ///
    /// # Cost
    /// Linear in the rows of what it gives, in the edges to them, and in the rows that these stand for.
    pub(in crate::protocol) fn closure(
        &self,
        rows: &[RowId],
        stands: impl Fn(RowId) -> bool,
    ) -> Vec<EmittedRows> {
        let (mut seen, mut closure) = (FxHashSet::default(), Vec::new());
        let begin = |emission| Visit { emission, next: 0, edge: NONE };
        let mut path = vec![begin(NONE)];
        while let Some(visit) = path.last_mut() {
            if let Some(edge) = self.edge(visit.edge) {
                visit.edge = edge.next;
                let counts = || self.dependants(edge).iter().any(|&row| stands(row));
                if !seen.contains(&edge.emission) && counts() {
                    seen.insert(edge.emission);
                    path.push(begin(edge.emission));
                }
                continue;
            }
            let own = match visit.emission {
                NONE => rows,
                emission => &self.emissions.at(emission).rows,
            };
            if let Some(&row) = own.get(visit.next) {
                visit.next += 1;
                visit.edge = self.rows.first_of(row);
            } else {
                closure.extend((visit.emission != NONE).then(|| own.into()));
                path.pop();
            }
        }
        closure
    }
}
