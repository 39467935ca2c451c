//! The work of one hold of the lock, however much follows from one event: how much it moves and frees, not how long it takes.

use super::numbers::{Numbers, definition, exported, search, with_main};
use crate::ids::SessionTag;
use crate::ids::{ClaimId, DylibId, QueryId, TrackerId};
use crate::protocol::slices::agenda::SLICE_STEPS;
use crate::protocol::state::SessionState;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::lookups::query::Entries;
use crate::protocol::state::lookups::query::Search;
use crate::protocol::storage::memory::Memory;
use crate::protocol::symbols::define::Definition;
use crate::{
    DependenceGroup, Dependency, ExecutorAddr, ExecutorSymbolDef, FailureCause, LookupSet, RequiredState,
    SymbolFlags, SymbolName, TaskPriority,
};

/// Many chunks of everything.
const SYMBOLS: usize = 6_000;

/// A chain of symbols, each of a unit of its own, all of which wait for the last one, which is resolved.
struct Chain {
    state: SessionState<Numbers>,
    names: Vec<SymbolName>,
    dylib: DylibId,
    tracker: TrackerId,
    query: QueryId,
    leaf: ClaimId,
    /// The memory that holds have left to free.
    left: Vec<Memory>,
}

/// Many symbols of as many units of one tracker, which say of themselves how urgent they are.
fn defined(priority: TaskPriority) -> (SessionState<Numbers>, Vec<SymbolName>, DylibId, TrackerId) {
    let (mut state, pool, dylib) = with_main(false);
    let tracker = state.definitions.create_tracker(dylib);
    let names: Vec<_> = (0..SYMBOLS).map(|index| pool.intern(&format!("s{index}"))).collect();
    for name in &names {
        let definition = Definition { priority, ..definition(&names[0], exported([name])) };
        state.define(dylib, Some(tracker), definition, 0, &mut Effects::default()).unwrap();
    }
    (state, names, dylib, tracker)
}

impl Chain {
    fn new() -> Self {
        let (mut state, names, dylib, tracker) = defined(TaskPriority::Demanded);
        let mut effects = Effects::default();
        let asked = search(dylib, LookupSet::required(names.iter().cloned()), RequiredState::Ready);
        let query =
            state.lookup(asked, 1, |_| "main".into(), &mut effects).expect("nobody has materialized them");
        let claim = state.definitions[state.definitions.find(dylib, &names[SYMBOLS - 1]).unwrap()].claim();
        let leaf = claim.expect("the lookup has claimed them all");
        let mut chain = Self { state, names, dylib, tracker, query, leaf, left: Vec::new() };
        chain.end_hold(effects);
        (0..SYMBOLS).for_each(|index| chain.emit(index));
        chain
    }

    /// Resolves a symbol and emits it, if it is not the last.
    fn emit(&mut self, index: usize) {
        let (name, state) = (&self.names[index], &mut self.state);
        let row = |name: &SymbolName| state.definitions.find(self.dylib, name).expect("it is defined");
        let claim = state.definitions[row(name)].claim().expect("it was claimed");
        let address = ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), SymbolFlags::EXPORTED);
        let addresses = [(name.clone(), address)].into_iter().collect();
        let needed = self.names.get(index + 1).map(row);
        let mut effects = Effects::default();
        state.resolve(claim, name, &exported([name]), &addresses, &mut effects).unwrap();
        if let Some(row) = needed {
            let dependencies = [Dependency { row, session: SessionTag::default() }].into_iter().collect();
            let group = DependenceGroup { symbols: vec![name.clone()], dependencies };
            state.emit(claim, name, &exported([name]), &[group], &mut effects).unwrap();
        }
        self.end_hold(effects);
    }

    /// A hold of the lock in which `operation` runs, and those for what follows from it. Each leaves all chunks that it
    /// has emptied to be freed.
    fn hold(&mut self, operation: impl FnOnce(&mut SessionState<Numbers>, &mut Effects<Numbers>)) {
        let (mut operation, mut holds) = (Some(operation), 0);
        while operation.is_some() || self.state.has_work() {
            let (chunks, left) = (self.chunks(), self.left.len());
            let mut effects = Effects::default();
            match operation.take() {
                Some(operation) => operation(&mut self.state, &mut effects),
                None => self.state.help(&mut effects),
            }
            self.end_hold(effects);
            let (gone, left) = (chunks.saturating_sub(self.chunks()), self.left.len() - left);
            assert!(gone <= left, "of {gone} chunks {left} were left to be freed");
            holds += 1;
        }
        assert!(holds > 5, "{holds} holds");
    }

    fn end_hold(&mut self, mut effects: Effects<Numbers>) {
        self.state.finish_transaction(&mut effects);
        self.left.append(&mut effects.more().memory);
    }

    /// For how many chunks there is memory.
    fn chunks(&self) -> usize {
        let state = &self.state;
        let [rows, units, claims] = state.definitions.room();
        let places = [rows, units, claims, state.lookups.room(), state.failures.room()];
        places.map(|places| places / 512).iter().sum()
    }

    fn freed<T: 'static>(&self) -> impl Iterator<Item = &T> {
        self.left.iter().filter_map(|memory| memory.downcast_ref())
    }
}

/// The last claim of a chunk was freed with it, and the allocator gave back all that was free beside it, under the lock.
#[test]
fn what_a_failure_of_many_empties_is_not_freed_under_the_lock() {
    let mut chain = Chain::new();
    let leaf = chain.leaf;
    chain.hold(|state, effects| state.fail(leaf, FailureCause::Abandoned, effects));
    let tracker = chain.tracker;
    chain.hold(|state, effects| drop(state.remove_tracker(tracker, effects)));
    assert_eq!(chain.state.definitions.counts().rows, 0);
}

/// The table of those that had been removed was moved in one piece whenever it was full.
#[test]
fn rows_removed_while_they_fail_do_not_move_those_before() {
    let mut chain = Chain::new();
    let tracker = chain.tracker;
    let mut effects = Effects::default();
    drop(chain.state.remove_tracker(tracker, &mut effects));
    let (mut most, mut largest) = (0, 0);
    while chain.state.has_work() {
        chain.state.help(&mut effects);
        most = most.max(chain.state.failures.len().1);
        largest = largest.max(chain.state.failures.largest_table());
    }
    assert!(most > SYMBOLS / 2, "{most} rows were removed while a failure spread");
    assert!(largest <= 1_024, "a table of {largest}");
}

/// A lookup of many symbols was freed with the last of them.
#[test]
fn the_list_of_a_lookup_of_many_is_not_freed_under_the_lock() {
    let mut chain = Chain::new();
    let query = chain.query;
    chain.hold(|state, effects| assert!(state.withdraw(query, effects)));
    let lists = chain.freed::<Entries>().filter(|entries| entries.capacity() >= SYMBOLS);
    assert_eq!(lists.count(), 1);
}

/// Each of them was being removed by itself, and its resources were taken from it, in the hold that cleared the dylib.
#[test]
fn a_dylib_is_cleared_without_a_walk_over_its_trackers() {
    let (mut state, _, dylib) = with_main(false);
    let trackers: Vec<_> = (0..SYMBOLS).map(|_| state.definitions.create_tracker(dylib)).collect();
    let mut effects = Effects::default();
    for (&tracker, resource) in trackers.iter().zip(0..) {
        state.add_resource(tracker, resource, &mut effects).unwrap();
    }
    let clearing = state.clear(dylib, &mut effects).expect("it is there");
    assert!(trackers.iter().all(|&tracker| state.tracker_is_defunct(tracker)), "all went at one moment");
    let untouched = |state: &SessionState<Numbers>| {
        state.definitions.trackers().filter(|tracker| !tracker.resources.is_empty()).count()
    };
    let mut left = SYMBOLS;
    while state.has_work() {
        let before = std::mem::replace(&mut left, untouched(&state));
        assert!(before - left <= SLICE_STEPS, "{} trackers in one hold", before - left);
        assert!(state.definitions.take_cleared(clearing).is_none(), "some are left");
        state.help(&mut effects);
    }
    state.check();
    let resources = state.definitions.take_cleared(clearing).expect("all are gone").into_resources();
    assert!(resources.into_iter().eq(0..SYMBOLS as u32), "newest last");
}

/// The list of them was moved in one piece whenever it was full, and never became smaller.
#[test]
fn what_becomes_more_urgent_is_listed_in_pieces() {
    let (mut state, names, dylib, _) = defined(TaskPriority::Idle);
    for priority in [None, Some(TaskPriority::Demanded)] {
        let mut effects = Effects::default();
        let all = LookupSet::required(names.iter().cloned());
        let search = Search { priority, ..search(dylib, all, RequiredState::Ready) };
        state.lookup(search, 1, |_| "main".into(), &mut effects).expect("it waits");
        // The first claims them as they are: nothing rises. It gives the memory of waiting units away.
        assert_eq!(state.has_rises(), priority.is_some());
        let mut left = Vec::new();
        loop {
            state.finish_transaction(&mut effects);
            left.append(&mut effects.more().memory);
            if !state.has_work() {
                break;
            }
            state.settle(&mut effects);
        }
        assert!(left.len() >= SYMBOLS / 512, "{} pieces", left.len());
    }
}
