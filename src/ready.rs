//! Lookups of Ready symbols by text: what a text and a dylib stand for is remembered.
//!
//! The session answers for a name and an order of dylibs. Making these of a text and a dylib costs more than the answer: a name that
//! threads share is counted, and a link order lies behind the session's lock.
//!
//! | what is kept | where | until |
//! |---|---|---|
//! | names that were found Ready | with each thread, by text | another name needs the place |
//! | the link order of a dylib | with the engine | some link order of the session changes |
//! | that the main dylib stands first in its link order | with the engine | some link order of the session changes |
//!
//! Most symbols are the main dylib's own. Nothing can come before them where that dylib stands first, so its whole order is not asked
//! for.
//!
//! None of the three can give a wrong answer:
//!
//! - A text has one name in the pool of its engine for as long as anybody holds that name, and the table holds it. Names carry the number of
//!   their engine, so that a name of another engine is not taken for one of this.
//! - The engine counts the changes of its link orders. An order that was read when the count was *n* is right as long as the count is *n*.
//! - Whether the main dylib stands first is read and kept in the same way.

use std::cell::RefCell;
use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;
use uruk_core::sync::atomic::{AtomicU64, Ordering};
use uruk_core::{
    ExecutionSession, ExecutorSymbolDef, JitDylib, JitDylibLookupFlags, SearchOrder, SymbolName,
};

/// The engine's memory for lookups of symbols that are Ready.
pub(crate) struct Ready {
    /// Tells its names from those of other engines.
    number: u64,
    main: JitDylib,
    /// The main dylib alone.
    alone: SearchOrder,
    /// The count of changes, and one more, at which the main dylib stood first in its link order.
    stood_first: AtomicU64,
    orders: papaya::HashMap<JitDylib, Order, FxBuildHasher>,
}

/// A link order, and how often link orders had changed when it was read, or less.
struct Order {
    changes: u64,
    order: SearchOrder,
}

/// An engine that searches so many dylibs forgets all of their orders now and then: some of the dylibs may be gone.
const ORDERS_MAX: usize = 256;

impl Ready {
    pub(crate) fn new(main: &JitDylib) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers only have to differ.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let orders = papaya::HashMap::builder().hasher(FxBuildHasher).build();
        let (main, alone) = (main.clone(), SearchOrder::of(main));
        Self { number, main, alone, stood_first: AtomicU64::new(0), orders }
    }

    /// The definition of `symbol` along the link order of `dylib`, if it is Ready and no lock is needed to know it.
    pub(crate) fn find(
        &self,
        session: &ExecutionSession,
        dylib: &JitDylib,
        symbol: &str,
    ) -> Option<ExecutorSymbolDef> {
        let changes = session.link_order_changes();
        // Relaxed: one word holds a fact and the count at which it was true.
        if self.stood_first.load(Ordering::Relaxed) == changes + 1
            && *dylib == self.main
            && let Some(own) = self.find_along(session, &self.alone, symbol)
        {
            return Some(own);
        }
        self.find_along_link_order(session, dylib, changes, symbol)
    }

    fn find_along_link_order(
        &self,
        session: &ExecutionSession,
        dylib: &JitDylib,
        changes: u64,
        symbol: &str,
    ) -> Option<ExecutorSymbolDef> {
        let guard = self.orders.guard();
        let known = self.orders.get(dylib, &guard).filter(|known| known.changes == changes);
        let read;
        let order = match known {
            Some(known) => &known.order,
            None => {
                read = dylib.link_order();
                self.remember(dylib, Order { changes, order: read.clone() }, &guard);
                &read
            }
        };
        self.find_along(session, order, symbol)
    }

    #[inline]
    fn find_along(
        &self,
        session: &ExecutionSession,
        order: &SearchOrder,
        symbol: &str,
    ) -> Option<ExecutorSymbolDef> {
        let by_thread = NAMES.try_with(|names| names.borrow_mut().find(self.number, session, order, symbol));
        // A thread that ends remembers nothing any more.
        by_thread.unwrap_or_else(|_| session.ready_symbol(order, &session.intern(symbol)))
    }

    #[cold]
    fn remember(&self, dylib: &JitDylib, order: Order, guard: &papaya::LocalGuard<'_>) {
        let first = (self.main.clone(), JitDylibLookupFlags::MatchAllSymbols);
        if *dylib == self.main && order.order.as_slice().first() == Some(&first) {
            // Relaxed: see `find`.
            self.stood_first.store(order.changes + 1, Ordering::Relaxed);
        }
        if self.orders.len() >= ORDERS_MAX {
            self.orders.clear(guard);
        }
        self.orders.insert(dylib.clone(), order, guard);
    }
}

thread_local! {
    static NAMES: RefCell<Names> = const { RefCell::new(Names { places: Vec::new(), displaced: 0 }) };
}

/// The names that a thread has found Ready: a table in which each has one place.
///
/// There is no gain in names that were chosen to have one place: they cost what a name costs that is not remembered.
struct Names {
    places: Vec<Option<Name>>,
    /// How many names have lost their places since the table last grew.
    displaced: usize,
}

struct Name {
    engine: u64,
    name: SymbolName,
}

const PLACES_MIN: usize = 64;
/// 64 KiB.
const PLACES_MAX: usize = 4096;

impl Names {
    fn find(
        &mut self,
        engine: u64,
        session: &ExecutionSession,
        order: &SearchOrder,
        symbol: &str,
    ) -> Option<ExecutorSymbolDef> {
        if let Some(Some(known)) = self.places.get(self.place_of(symbol))
            && known.engine == engine
            && known.name.as_str() == symbol
        {
            return session.ready_symbol(order, &known.name);
        }
        let name = session.intern(symbol);
        let found = session.ready_symbol(order, &name)?;
        self.keep(Name { engine, name });
        Some(found)
    }

    fn place_of(&self, symbol: &str) -> usize {
        FxBuildHasher.hash_one(symbol) as usize & self.places.len().wrapping_sub(1)
    }

    fn keep(&mut self, name: Name) {
        if self.displaced >= self.places.len() / 2 && self.places.len() < PLACES_MAX {
            let places = (self.places.len() * 4).max(PLACES_MIN);
            let before = std::mem::take(&mut self.places);
            self.places.resize_with(places, || None);
            self.displaced = 0;
            for name in before.into_iter().flatten() {
                let place = self.place_of(name.name.as_str());
                self.places[place] = Some(name);
            }
        }
        let place = self.place_of(name.name.as_str());
        self.displaced += usize::from(self.places[place].replace(name).is_some());
    }
}
