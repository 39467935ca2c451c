//! Lookups: the queries that have not ended, and the generators and aliases they wait for.
//!
//! ```text
//!   query ─ lodged ────▶ entries ◀─▶ the lists of rows        query.rs
//!     └──── suspended ─▶ generator ◀─ in its queue            generator.rs
//!   alias ─▶ its lookup, or its source                        alias.rs
//! ```
//!
//! Everybody may read. All functions that change a query are here, and each keeps the drawing above true.
//!
//! | what | is changed by |
//! |---|---|
//! | queries that come and go | `begin`; `complete`, `take_out`, `unlodge` |
//! | how far a query is | `set_phase`, `lodge`, `find` |
//! | how urgent it is | `rise` |
//! | generators and who waits at them | `add_generator`, `remove_generator`; `take_walker`, `arrive`, `suspend`; `leave_generator`, `next_in_queue`, `set_apart`, `come_back` |
//! | aliases | `add_alias`, `seek_no_more` |
//!
//! **Invariant:** `check.rs`.

pub(in crate::protocol) mod alias;
#[cfg(any(test, debug_assertions))]
mod check;
pub(crate) mod end;
pub(in crate::protocol) mod generator;
pub(crate) mod query;

use std::fmt;
use std::ops::Index;

use crate::protocol::state::payload::Payload;
use crate::protocol::state::rising::RisingPriority;
use crate::protocol::storage::{GeneratorId, QueryId, Slab, Takes};

use alias::AliasEdges;
use generator::Generator;
use query::{Asker, Entries, Phase, Query};

/// The lookups that are not answered yet.
pub(crate) struct Lookups<P: Payload> {
    queries: Slab<QueryId, Query<P::Handler>>,
    generators: Slab<GeneratorId, Generator<P::Generator>>,
    aliases: AliasEdges,
    /// How often there was reason to think that generators find more than before.
    pub(crate) generators_changed: u64,
}

/// A query that has found everything.
pub(crate) struct Answered<H> {
    pub(crate) handler: H,
    pub(crate) asker: Option<Asker>,
    pub(crate) entries: Entries,
}

/// A query that ends without an answer.
pub(crate) struct TakenOut<H> {
    pub(crate) handler: H,
    /// How many symbols it asked for.
    pub(crate) symbols: usize,
    /// Its entries are still to leave the lists of their rows: [`Lookups::unlodge`].
    pub(crate) is_lodged: bool,
}

impl<P: Payload> Lookups<P> {
    pub(super) fn new() -> Self {
        let (queries, generators, aliases) = (Slab::new(), Slab::new(), AliasEdges::default());
        Self { queries, generators, aliases, generators_changed: 0 }
    }

    /// The query, if it is there. It may have ended, and its entries still be in the lists of rows.
    #[inline]
    pub(crate) fn query(&self, query: QueryId) -> Option<&Query<P::Handler>> {
        self.queries.get(query)
    }

    /// The query, unless it has ended.
    pub(crate) fn live(&self, query: QueryId) -> Option<&Query<P::Handler>> {
        self.queries.get(query).filter(|query| query.is_live())
    }

    /// All queries that are there.
    pub(crate) fn queries(&self) -> impl Iterator<Item = (QueryId, &Query<P::Handler>)> {
        self.queries.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.queries.len()
    }

    /// Where a walk by [`Self::id_at`] over the queries of this moment ends.
    pub(crate) fn end(&self) -> u32 {
        self.queries.end()
    }

    /// The id of the query in this place.
    pub(crate) fn id_at(&self, index: u32) -> Option<QueryId> {
        self.queries.id_at(index)
    }

    pub(crate) fn generator(&self, generator: GeneratorId) -> Option<&Generator<P::Generator>> {
        self.generators.get(generator)
    }

    /// A query begins, suspended or about to be lodged.
    #[inline]
    pub(crate) fn begin(&mut self, query: Query<P::Handler>) -> QueryId {
        let alias = match &query.phase {
            Phase::Suspended(suspended) => suspended.search.alias,
            Phase::Lodged(_) => None,
        };
        let query = self.queries.insert(query);
        self.aliases.seek(alias, query);
        query
    }

    /// The query has come to another phase. One that is Lodged is still to be put into the lists of its rows, or ended.
    pub(crate) fn set_phase(&mut self, query: QueryId, phase: Phase) {
        if let Some(query) = self.queries.get_mut(query) {
            query.phase = phase;
        }
    }

    /// A query that has not ended rises. Says whether it was lower.
    pub(crate) fn rise(&mut self, query: QueryId, to: RisingPriority) -> bool {
        let query = self.queries.get_mut(query).filter(|query| query.is_live());
        query.and_then(|query| query.priority.as_mut()).is_some_and(|priority| priority.rise(to))
    }

    /// Ends a lodged query that has found everything.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        query: QueryId,
        memory: &mut impl Takes,
    ) -> Option<Answered<P::Handler>> {
        let asker = self.queries.get(query).and_then(Query::asker);
        let Query { handler: Some(handler), phase: Phase::Lodged(lodged), .. } =
            self.queries.remove(query, memory)?
        else {
            return None;
        };
        self.aliases.forget(lodged.alias);
        Some(Answered { handler, asker, entries: lodged.entries })
    }

    /// Ends a query without an answer, unless it has ended.
    pub(crate) fn take_out(&mut self, id: QueryId, memory: &mut impl Takes) -> Option<TakenOut<P::Handler>> {
        let query = self.queries.get_mut(id)?;
        let handler = query.handler.take()?;
        Some(match &mut query.phase {
            Phase::Suspended(suspended) => {
                let (symbols, alias) = (suspended.search.symbols.len(), suspended.search.alias);
                self.seek_no_more(alias);
                self.queries.discard(id, memory);
                TakenOut { handler, symbols, is_lodged: false }
            }
            Phase::Lodged(lodged) => {
                lodged.ended = true;
                self.aliases.forget(lodged.alias);
                TakenOut { handler, symbols: lodged.entries.len(), is_lodged: true }
            }
        })
    }
}

/// For ids that must be live: a stale one is a bug in the protocol.
impl<P: Payload> Index<GeneratorId> for Lookups<P> {
    type Output = Generator<P::Generator>;

    fn index(&self, generator: GeneratorId) -> &Generator<P::Generator> {
        &self.generators[generator]
    }
}

impl<P: Payload> fmt::Debug for Lookups<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups").field("queries", &self.queries).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod parts {
    //! For tests alone.
    use super::*;

    impl<P: Payload> Lookups<P> {
        /// To break queries.
        pub(crate) fn queries_mut(&mut self) -> &mut Slab<QueryId, Query<P::Handler>> {
            &mut self.queries
        }

        /// To break generators.
        pub(crate) fn break_generator(&mut self, generator: GeneratorId, occupant: Option<QueryId>) {
            self.generators[generator].occupant = occupant;
        }

        /// The same with their queues.
        pub(crate) fn forget_queue(&mut self, generator: GeneratorId) {
            self.generators[generator].queue.clear();
        }

        /// How many aliases wait for a source that is known; how many lookups they wait for.
        pub(crate) fn aliases(&self) -> (usize, usize) {
            self.aliases.len()
        }

        /// How many generators there are.
        pub(crate) fn generators(&self) -> usize {
            self.generators.len()
        }

        /// How many queries there is room for.
        pub(crate) fn room(&self) -> usize {
            self.queries.capacity()
        }
    }
}
