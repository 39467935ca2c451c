//! Checks of lookups, wherever they wait.

use rustc_hash::FxHashSet;

use crate::protocol::state::{definitions::Definitions, payload::Payload};
use crate::protocol::storage::{Id, RowId};

use super::query::{Lodging, Phase, Progress, Query};
use super::{Lookups, generator::Generator};

impl<P: Payload> Lookups<P> {
    /// Panics where lookups are not what this folder promises.
    pub(crate) fn check(&self, definitions: &Definitions<P>) {
        self.check_queries(definitions);
        self.check_suspended();
        self.check_generators(definitions);
    }

    /// I2: a lodged query waits for something, in the lists of exactly the rows that are not far enough.
    fn check_queries(&self, definitions: &Definitions<P>) {
        let (mut aliases, mut sought) = (0, 0);
        for (id, query) in self.queries.iter() {
            assert!(query.is_live(), "{id:?} has ended and is still there");
            let lodged = match &query.phase {
                Phase::Lodged(lodged) => lodged,
                Phase::Suspended(suspended) => {
                    sought += usize::from(suspended.search.alias.is_some());
                    continue;
                }
            };
            let waiting =
                lodged.entries.iter().filter(|entry| matches!(entry.progress, Progress::Waiting { .. }));
            assert_eq!(waiting.count(), lodged.outstanding, "{id:?} counts what it waits for");
            assert!(lodged.outstanding > 0, "{id:?} has everything and has not ended");
            let waits_for_one = lodged.entries.len() == 1;
            assert!(
                lodged.alias.is_none() || waits_for_one,
                "{id:?}: an alias waits for its own source alone"
            );
            aliases += usize::from(lodged.alias.is_some());
        }
        assert_eq!(self.aliases.len(), (aliases, sought), "aliases wait as long as their lookups");
        let mut listed = 0;
        for (id, row) in definitions.rows() {
            listed += row.waiting().map_or(0, |waiting| self.check_list(id, waiting.queries));
        }
        let outstanding = |query: &Query<P::Handler>| match &query.phase {
            Phase::Lodged(lodged) => lodged.outstanding,
            Phase::Suspended(_) => 0,
        };
        let waiting = self.queries.iter().map(|(_, query)| outstanding(query)).sum();
        assert_eq!(listed, waiting, "each symbol that a query waits for is in the list of its row");
    }

    fn check_list(&self, row: RowId, first: Lodging) -> usize {
        let (mut cursor, mut before, mut length) = (first, Lodging::NONE, 0);
        while !cursor.is_none() {
            let Phase::Lodged(lodged) = &self.queries.at(cursor.query).phase else {
                panic!("a suspended query is in a row's list");
            };
            let entry = &lodged.entries[cursor.entry as usize];
            assert_eq!(entry.row, row, "a row lists those who wait for it");
            let Progress::Waiting { previous, next } = entry.progress else {
                panic!("a found entry is in a list")
            };
            assert_eq!(previous, before, "a list leads back as it leads on");
            (before, cursor) = (cursor, next);
            length += 1;
        }
        length
    }

    /// I12: a generator that is free has an empty queue, but for lookups that have ended.
    fn check_generators(&self, definitions: &Definitions<P>) {
        let mut of_dylibs = FxHashSet::default();
        for (_, dylib) in definitions.dylibs() {
            of_dylibs.extend(dylib.generators.iter().map(|id| id.index()));
        }
        assert_eq!(of_dylibs.len(), self.generators.len(), "each generator is in the list of its dylib");
        for (_, Generator { occupant, queue, .. }) in self.generators.iter() {
            let waits = queue.iter().any(|query| self.queries.contains(*query));
            assert!(occupant.is_some() || !waits, "a lookup waits for a generator that is free");
        }
    }

    /// I12: a lookup that is on its way past generators is served by one, or stands in its queue, unless that was removed
    /// while it served, or serves it apart.
    fn check_suspended(&self) {
        let mut attended = FxHashSet::default();
        for (id, generator) in self.generators.iter() {
            attended.extend(
                generator
                    .occupant
                    .into_iter()
                    .chain(generator.queue.iter().copied())
                    .map(|query| (id, query)),
            );
        }
        for (id, query) in self.queries.iter() {
            let Phase::Suspended(suspended) = &query.phase else { continue };
            let at = suspended.waits_at.expect("a suspended lookup waits at some generator");
            let served =
                suspended.apart.is_some() || !self.generators.contains(at) || attended.contains(&(at, id));
            assert!(served, "{id:?} waits at {at:?}, which knows nothing of it");
        }
    }
}
