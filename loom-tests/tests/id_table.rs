//! Values by ids: calls find the cells of stubs without a lock, while units come and go and ids' entries are used again.
//!
//! ```text
//!  reader                                         who changes, under the lock
//!    state of the id's generation? one holder more   insert: value, state = (generation, 1)
//!    value, read                                    remove: next generation, one holder less
//!    one holder less                                collect: no holder? take the value, the entry is free
//! ```
//!
//! The model runs the pipeline's own file, with a table that grows after one entry. A freed value stays where it is, so a read that comes too
//! late is noticed. Readers get ids by a word that orders nothing, as code gets them by linked data.
//!
//! Proven, in every order with at most four preemptions (two with three threads): an id finds its own value or none; a value that was
//! found is there until its reader leaves; a removed value is freed in the end.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `id_table::counts_without_a_look`: a reader looks at the generation, and becomes a holder in a step of its own | `pipeline/src/runtime/call_through/id_table.rs` | `an_id_never_finds_the_next_value_of_its_entry` |
//! | `id_table::frees_beneath_a_reader`: a removed value is freed without a look at its holders | `pipeline/src/runtime/call_through/id_table.rs` | `a_found_value_stays_until_its_reader_leaves` |
//! | `id_table::leaves_unordered`: a value may be freed ahead of its reader's reads | `pipeline/src/runtime/call_through/id_table.rs` | `a_found_value_stays_until_its_reader_leaves` |
//! | `id_table::frees_beneath_a_reader`: the same, with two readers | `pipeline/src/runtime/call_through/id_table.rs` | `two_readers_are_both_waited_for` |
//! | `id_table::publishes_unordered`: a state may be seen ahead of its value | `pipeline/src/runtime/call_through/id_table.rs` | `a_value_is_complete_when_its_id_finds_it` |
//! | `id_table::grows_unordered`: entries may be seen ahead of their contents | `pipeline/src/runtime/call_through/id_table.rs` | `values_are_found_while_the_table_grows` |
#![cfg(uruk_loom)]

#[path = "../../pipeline/src/runtime/call_through/id_table.rs"]
mod id_table;

use id_table::{IdTable, TableChanges, TableId, TableValue};
use loom_tests::stage::model_within;
use uruk_core::sync::atomic::{AtomicU64, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};

const PREEMPTIONS: usize = 4;

/// A table of numbers.
struct Scene {
    table: IdTable<u64>,
    changes: Mutex<TableChanges>,
    /// Models keep freed values here.
    #[expect(clippy::vec_box, reason = "a value stays where its readers found it")]
    freed: Mutex<Vec<Box<TableValue<u64>>>>,
    /// An id in linked data; zero at first.
    linked: AtomicU64,
}

impl Scene {
    fn new() -> Arc<Self> {
        let (table, changes) = (IdTable::new(), Mutex::new(TableChanges::new()));
        Arc::new(Self { table, changes, freed: Mutex::default(), linked: AtomicU64::new(0) })
    }

    fn insert(&self, value: u64) -> TableId {
        self.table.insert(&mut self.changes.lock(), value)
    }

    fn remove(&self, id: TableId) {
        self.table.remove(&mut self.changes.lock(), id);
        self.collect();
    }

    fn collect(&self) {
        let mut values = self.table.collect(&mut self.changes.lock());
        values.iter_mut().for_each(|value| value.end());
        self.freed.lock().append(&mut values);
    }

    fn find(&self, id: TableId) -> Option<u64> {
        self.table.find(id).map(|found| *found)
    }

    /// Links code that names `id`.
    fn link(&self, id: TableId) {
        self.linked.store(id.number(), Ordering::Relaxed); // the point of the model
    }

    /// Finds what the linked code names, if there is some.
    fn call(&self) -> Option<u64> {
        self.find(TableId::of(self.linked.load(Ordering::Relaxed))) // as in `link`
    }
}

/// ```text
///  main: the value of id 1?                       another: remove 1 ─ insert 2, in the same entry
/// ```
#[test]
fn an_id_never_finds_the_next_value_of_its_entry() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let id = scene.insert(1);
        let other = thread::spawn({
            let scene = scene.clone();
            move || {
                scene.remove(id);
                scene.insert(2)
            }
        });
        let found = scene.find(id);
        assert!(found.is_none_or(|found| found == 1), "found {found:?}");
        let second = other.join().expect("no panic");
        assert_eq!((scene.find(id), scene.find(second)), (None, Some(2)));
    });
}

/// ```text
///  main: the value of id 1? read, leave           another: remove 1, freed now or later
/// ```
#[test]
fn a_found_value_stays_until_its_reader_leaves() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let id = scene.insert(1);
        let other = thread::spawn({
            let scene = scene.clone();
            move || scene.remove(id)
        });
        let found = scene.find(id);
        assert!(found.is_none_or(|found| found == 1), "found {found:?}");
        other.join().expect("no panic");
        scene.collect();
        assert_eq!(scene.freed.lock().len(), 1);
    });
}

/// ```text
///  main: remove 1, freed now or later             reader: id 1?             reader: id 1?
/// ```
#[test]
fn two_readers_are_both_waited_for() {
    model_within(2, || {
        let scene = Scene::new();
        let id = scene.insert(1);
        let readers = [(); 2].map(|()| {
            let scene = scene.clone();
            thread::spawn(move || scene.find(id))
        });
        scene.remove(id);
        for reader in readers {
            let found = reader.join().expect("no panic");
            assert!(found.is_none_or(|found| found == 1), "found {found:?}");
        }
        scene.collect();
        assert_eq!(scene.freed.lock().len(), 1);
    });
}

/// ```text
///  main: call what is linked                      another: remove 1 ─ insert 2, in the same entry ─ link it
/// ```
#[test]
fn a_value_is_complete_when_its_id_finds_it() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let first = scene.insert(1);
        let other = thread::spawn({
            let scene = scene.clone();
            move || {
                scene.remove(first);
                let second = scene.insert(2);
                scene.link(second);
            }
        });
        let found = scene.call();
        assert!(found.is_none_or(|found| found == 2), "found {found:?}");
        other.join().expect("no panic");
        assert_eq!(scene.call(), Some(2));
    });
}

/// ```text
///  main: call what is linked ─ id 1?              another: insert 2, for which the table grows ─ link it
/// ```
#[test]
fn values_are_found_while_the_table_grows() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let first = scene.insert(1);
        let other = thread::spawn({
            let scene = scene.clone();
            move || {
                let second = scene.insert(2);
                scene.link(second);
            }
        });
        let found = scene.call();
        assert!(found.is_none_or(|found| found == 2), "found {found:?}");
        assert_eq!(scene.find(first), Some(1));
        other.join().expect("no panic");
        assert_eq!([scene.find(first), scene.call()], [Some(1), Some(2)]);
    });
}

loom_tests::catches_its_weakenings!();
