//! The view of others between the slices of a removal, a failure or an emission, and the state when they are over.

use super::numbers::{Numbers, definition, exported};
use super::slices::History;
use crate::protocol::state::effects::Effects;
use crate::protocol::symbols::define::Definition;
use crate::{EventKind, FailureCause, LookupError};

/// Makes the first `count` names one unit and its responsibility.
fn materializing(history: &mut History, tracker: usize, names: u16) {
    let mut effects = Effects::default();
    history.define(tracker, names, &mut effects);
    history.look_up(names, true, &mut effects);
    history.take(effects);
}

fn remove_tracker(history: &mut History, tracker: usize) -> Effects<Numbers> {
    let mut effects = Effects::default();
    drop(history.state.remove_tracker(history.trackers[tracker], &mut effects));
    effects
}

/// A row outlived its dylib, whose name the explanation asked for.
#[test]
fn a_deadline_passes_while_the_rows_of_a_removed_dylib_go() {
    let mut history = History::new(1);
    for name in 0..3 {
        materializing(&mut history, 1, 1 << name);
    }
    let mut effects = Effects::default();
    history.state.remove_dylib(history.dylib, &mut effects);
    for query in history.queries.clone() {
        history.state.expire(query, &mut effects);
    }
    let late = |outcome: &LookupError| matches!(outcome, LookupError::DeadlineExceeded { .. });
    let explained = effects.completed.iter().filter_map(|completed| completed.outcome.as_ref().err());
    assert_eq!(explained.filter(|error| late(error)).count(), 3, "no row is gone");
}

#[test]
fn initializers_go_with_their_tracker() {
    let mut history = History::new(1);
    let mut effects = Effects::default();
    for index in 0..2 {
        let name = history.names[index].clone();
        let definition = Definition {
            initializer: Some(name.clone()),
            number: Some(index as u64),
            ..definition(&history.unit_name, exported([&name]))
        };
        let tracker = Some(history.trackers[1]);
        history.state.define(history.dylib, tracker, definition, 0, &mut effects).unwrap();
    }
    assert_eq!(history.state.definitions.initializers(history.dylib).len(), 2);
    let _removed = remove_tracker(&mut history, 1);
    assert!(history.state.has_work(), "a row is left");
    assert_eq!(history.state.definitions.initializers(history.dylib), []);
}

/// A unit that was queued before and starts between two slices asks whether it is wanted only if something was lost.
#[test]
fn a_removal_is_a_loss_before_its_first_row_goes() {
    let mut history = History::new(1);
    let mut effects = Effects::default();
    history.define(1, 0b1, &mut effects);
    // The newest goes first, and has no rows.
    let _newest = history.state.definitions.create_tracker(history.dylib);
    let before = history.state.losses().count();
    history.state.clear(history.dylib, &mut effects);
    assert_eq!(history.state.definitions.counts().rows, 1, "the row is left");
    assert!(history.state.losses().count() > before);
    history.state.settle_all(&mut effects);
    history.take(effects);
}

/// The successor was there before its predecessor was gone.
#[test]
fn what_is_removed_at_one_moment_is_removed_before_what_comes_after() {
    let mut history = History::new(1);
    let mut effects = Effects::default();
    history.define(1, 0b111, &mut effects);
    drop(history.state.remove_tracker(history.trackers[1], &mut effects));
    assert!(history.state.has_work(), "rows are left");
    history.define(2, 0b111, &mut effects);
    history.state.settle_all(&mut effects);
    let mut events = std::mem::take(&mut effects.more().events);
    events.sort_by_key(|event| event.sequence);
    let sequences: Vec<_> = events.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, Vec::from_iter(0..5), "no number is given twice, and none is left out");
    let kinds: Vec<_> = events.iter().map(|event| matches!(event.kind, EventKind::Removed { .. })).collect();
    assert_eq!(kinds, [false, true, true, true, false]);
    history.take(effects);
}

/// A definition made in a dylib while its rows go belongs to the era that has begun.
#[test]
fn a_dylib_is_cleared_before_what_comes_after() {
    let mut history = History::new(1);
    let mut effects = Effects::default();
    history.define(1, 0b11, &mut effects);
    history.define(2, 0b1100, &mut effects);
    history.state.clear(history.dylib, &mut effects);
    assert!(history.state.has_work(), "rows are left");
    let kept = history.state.definitions.create_tracker(history.dylib);
    history.trackers[1] = kept;
    history.define(1, 0b1111, &mut effects);
    history.define(0, 0b10000, &mut effects);
    history.state.clear(history.dylib, &mut effects);
    history.trackers[1] = history.state.definitions.create_tracker(history.dylib);
    history.define(1, 0b1, &mut effects);
    history.state.settle_all(&mut effects);
    history.state.check();
    assert_eq!(history.state.definitions.counts().rows, 1);
    assert!(history.state.tracker_is_defunct(kept) && !history.state.tracker_is_defunct(history.trackers[1]));
    let mut events = std::mem::take(&mut effects.more().events);
    events.sort_by_key(|event| event.sequence);
    let sequences: Vec<_> = events.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, Vec::from_iter(0..14), "no number is given twice, and none is left out");
    let removed = events.iter().map(|event| matches!(event.kind, EventKind::Removed { .. }));
    let removed: Vec<_> =
        removed.enumerate().filter_map(|(place, removed)| removed.then_some(place)).collect();
    assert_eq!(removed, [2, 3, 4, 5, 8, 9, 10, 11, 12]);
    history.take(effects);
}

/// A claim that had no row left when the removal of its tracker began was never removed.
#[test]
fn a_claim_that_has_delegated_everything_ends_while_its_tracker_goes() {
    let mut history = History::new(1);
    materializing(&mut history, 1, 0b111);
    let (claimed, _) = history.claims.remove(0);
    let names: Vec<_> = claimed.pending.symbols.keys().cloned().collect();
    history.state.definitions.delegate(claimed.claim, &names).unwrap();
    let mut effects = remove_tracker(&mut history, 1);
    assert!(history.state.has_work(), "rows are left");
    history.state.fail(claimed.claim, FailureCause::Abandoned, &mut effects);
    history.state.settle_all(&mut effects);
    history.take(effects);
    assert_eq!(history.state.definitions.counts().claims, 0);
}

/// How many entries of a claim's list are walked over while its symbols are delegated one by one.
fn walked_over_in_delegations(count: usize) -> usize {
    let mut history = History::new(1);
    let (mut effects, pool) = (Effects::default(), crate::SymbolStringPool::new());
    let further = (1..count).map(|number| pool.intern(&format!("further {number}")));
    let names: Vec<_> = std::iter::once(history.names[0].clone()).chain(further).collect();
    let definition = definition(&history.unit_name, exported(&names));
    history.state.define(history.dylib, None, definition, 0, &mut effects).unwrap();
    history.look_up(1, true, &mut effects);
    history.take(effects);
    let claim = history.claims.remove(0).0.claim;
    let mut walked_over = 0;
    for name in &names {
        let before = history.state.definitions[claim].rows().len();
        history.state.definitions.delegate(claim, std::slice::from_ref(name)).expect("nothing was removed");
        // The list is walked over when what has left it is cleared away.
        walked_over += if history.state.definitions[claim].rows().len() < before { before } else { 0 };
    }
    walked_over
}

#[test]
fn delegating_symbol_by_symbol_walks_over_each_twice_at_the_most() {
    for count in [10, 100, 1_000] {
        let walked_over = walked_over_in_delegations(count);
        assert!((count..=2 * count).contains(&walked_over), "{count}: {walked_over}");
    }
}

/// It was said to be removed, and what depended on it became Ready all the same.
#[test]
fn what_the_forest_has_found_ready_was_ready_when_it_is_removed() {
    let mut history = History::new(1);
    // One unit of two symbols, which depend on a third.
    materializing(&mut history, 0, 0b10000);
    materializing(&mut history, 0, 0b00011);
    history.resolve(0, &mut Effects::default());
    history.resolve(0, &mut Effects::default());
    let mut effects = Effects::default();
    history.emit(1, 0b1_0001_0000, &mut effects);
    history.state.settle_all(&mut effects);
    history.emit(0, 0, &mut effects);
    let found = |history: &History| {
        let rows = history.names[..2]
            .iter()
            .map(|name| history.state.definitions.find(history.dylib, name).unwrap());
        rows.filter(|&row| history.state.is_ready_unknowingly(row)).count()
    };
    while found(&history) == 0 {
        assert!(history.state.has_work(), "nobody was found Ready without knowing it");
        history.state.help(&mut effects);
    }
    let names = history.names[..2].to_vec();
    history.state.remove_names(history.dylib, &names, || "main".into(), &mut effects).unwrap();
    history.state.settle_all(&mut effects);
    assert_eq!(effects.completed.len(), 2);
    assert!(effects.completed.iter().all(|completed| completed.outcome.is_ok()), "{:?}", effects.completed);
    history.take(effects);
}

/// All of it was let go in one hold of the lock.
#[test]
fn what_removed_rows_had_to_say_goes_in_slices_too() {
    let mut history = History::new(1);
    materializing(&mut history, 0, 1 << 8 | 1 << 9);
    let mut effects = Effects::default();
    for name in 0..8 {
        materializing(&mut history, 1, 1 << name);
    }
    for _ in 0..9 {
        history.resolve(0, &mut effects);
    }
    for _ in 0..8 {
        // A dependency is a bit that is set here and four places higher.
        history.emit(1, 1 << 8 | 1 << 12, &mut effects);
    }
    history.state.settle_all(&mut effects);
    let (root, _) = history.claims.remove(0);
    history.state.fail(root.claim, FailureCause::Abandoned, &mut effects);
    drop(history.state.remove_tracker(history.trackers[1], &mut effects));
    let mut most = 0;
    while history.state.has_work() {
        let before = history.state.failures.len().1;
        most = most.max(before);
        history.state.help(&mut effects);
        assert!(history.state.failures.len().1 + 2 > before, "more than one step in a slice");
    }
    assert!(most > 3, "rows were removed while the failure spread");
    history.take(effects);
}
