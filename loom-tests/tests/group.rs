//! Groups: several functions are led elsewhere at one moment, while threads call them, for the first time too.
//!
//! ```text
//!  caller                                        who redirects f and g
//!    root, its table, its word: a body, or         under the group's lock: copy the table; for f, then g,
//!      a first call                                  under its lock: next generation, word of the copy;
//!    first call: generation, find, and under         root = the copy
//!      both locks, if it is the same: word = body
//! ```
//!
//! Cells and group are the pipeline's own files. Bodies are numbers: 1 is the first one of each function, and 2 the next.
//!
//! Proven, in every order with at most three preemptions: who has reached the new body of one function reaches the new one of the other, be
//! they called before, and be the new bodies there; a redirection that has returned has taken effect; and a body that is bound meanwhile
//! is not forgotten. Code that was found in vain goes without the group's lock.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `group::looks_while_it_switches`: a first call does not ask whether a switch is under way | `pipeline/src/lazy/group.rs` | `a_first_call_finds_nothing_newer_than_others_reach` |
//! | `group::publishes_before_it_writes`: the copy is published before it is written | `pipeline/src/lazy/group.rs` | `who_has_reached_a_new_body_reaches_no_older_one` |
//! | `group::lets_go_while_it_looks`: a first call lets go of a body that it does not bind before it is told so | `pipeline/src/lazy/cell.rs` | `a_first_call_finds_nothing_newer_than_others_reach` |
#![cfg(uruk_loom)]

#[expect(dead_code, reason = "nothing is promoted here; `promote.rs` does that")]
#[path = "../../pipeline/src/lazy/cell.rs"]
mod cell;
#[path = "../../pipeline/src/lazy/group.rs"]
mod group;

use cell::{Cell, JumpWord};
use group::{GroupTable, Root, StubGroup};
use loom_tests::stage::model_within;
use uruk_core::ExecutorAddr;
use uruk_core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};

const PREEMPTIONS: usize = 3;

/// Where a word leads before anybody calls.
const UNBOUND: u64 = 0;

/// The word that the stubs load: which of the tables.
struct Tables {
    root: AtomicUsize,
    tables: Mutex<Vec<GroupTable>>,
}

impl Tables {
    fn now(&self) -> GroupTable {
        let now = self.root.load(Ordering::Acquire);
        self.tables.lock()[now].clone()
    }
}

impl Root for Tables {
    fn read(&self) -> Vec<u64> {
        self.now().iter().map(|word| word.load(Ordering::Relaxed)).collect() // under the group's lock
    }

    fn publish(&self, table: &GroupTable) {
        let mut tables = self.tables.lock();
        tables.push(table.clone());
        self.root.store(tables.len() - 1, Ordering::Release);
    }
}

/// One stub.
#[derive(Clone)]
struct Word {
    tables: Arc<Tables>,
    group: Arc<StubGroup>,
    number: usize,
    /// Whether its caller has the group's lock.
    looks: Arc<AtomicBool>,
}

/// Keeps a body for a caller.
struct Held(Arc<AtomicBool>);

impl Drop for Held {
    fn drop(&mut self) {
        assert!(!self.0.load(Ordering::Relaxed), "code goes under the lock"); // the caller's own
    }
}

impl JumpWord for Word {
    fn load(&self) -> u64 {
        self.tables.now()[self.number].load(Ordering::Relaxed) // as the processor does
    }

    fn store(&self, address: u64) {
        self.tables.now()[self.number].store(address, Ordering::Relaxed); // under the group's lock
    }

    fn store_counted(&self, address: u64, _calls: u32) {
        self.store(address);
    }

    fn while_settled<T>(&self, look: impl FnOnce() -> T) -> T {
        self.group.while_settled(|| {
            self.looks.store(true, Ordering::Relaxed); // as in `Held`
            let seen = look();
            self.looks.store(false, Ordering::Relaxed); // as in `Held`
            seen
        })
    }
}

/// Functions f and g of one group.
struct Scene {
    words: [Word; 2],
    cells: [Cell<u64, Word>; 2],
}

const F: usize = 0;
const G: usize = 1;

impl Scene {
    fn new() -> Arc<Self> {
        let first: GroupTable = [AtomicU64::new(UNBOUND), AtomicU64::new(UNBOUND)].into_iter().collect();
        let tables = Arc::new(Tables { root: AtomicUsize::new(0), tables: Mutex::new(vec![first]) });
        let group = Arc::<StubGroup>::default();
        let word =
            |number| Word { tables: tables.clone(), group: group.clone(), number, looks: Arc::default() };
        let words = [F, G].map(word);
        Arc::new(Self { words, cells: [Cell::new(1), Cell::new(1)] })
    }

    fn call(&self, function: usize) -> u64 {
        let word = Word { looks: Arc::default(), ..self.words[function].clone() };
        match word.load() {
            UNBOUND => {
                let find = |&body: &u64| Ok::<_, ()>((ExecutorAddr::new(body), Held(word.looks.clone())));
                let bound = self.cells[function].bind(&word, find, |_, held| held, |_| None);
                bound.expect("a body is there").value()
            }
            body => body,
        }
    }

    fn redirect_both(&self, is_ready: bool) {
        let Word { tables, group, .. } = &self.words[F];
        group.switch(&**tables, |table| {
            for (number, cell) in self.cells.iter().enumerate() {
                let ready = is_ready.then(|| ExecutorAddr::new(2));
                let store = |_: &Word, address| table[number].store(address, Ordering::Relaxed); // published later
                let (_before, ()) = cell.redirect(2, ready, |_| (), store);
            }
        });
    }

    /// Calls both in this `order`, while they are redirected; before that those that `were_called`.
    fn call_beside_a_switch(were_called: &'static [usize], order: [usize; 2], is_ready: bool) {
        model_within(PREEMPTIONS, move || {
            let scene = Scene::new();
            were_called.iter().for_each(|&function| assert_eq!(scene.call(function), 1));
            let caller = thread::spawn({
                let scene = scene.clone();
                move || {
                    let [first, then] = order.map(|function| scene.call(function));
                    assert!(then >= first, "{then} after {first}");
                }
            });
            scene.redirect_both(is_ready);
            assert_eq!((scene.call(G), scene.call(F)), (2, 2));
            caller.join().expect("no panic");
            assert_eq!(scene.words.each_ref().map(Word::load), [2, 2], "both are bound");
        });
    }
}

/// ```text
///  main, after calls of both: redirect both       another: call f, call g; or the other way round
/// ```
#[test]
fn who_has_reached_a_new_body_reaches_no_older_one() {
    for order in [[F, G], [G, F]] {
        for is_ready in [false, true] {
            Scene::call_beside_a_switch(&[F, G], order, is_ready);
        }
    }
}

/// ```text
///  main, after a call of one, or none: redirect both      another: call g, call f
/// ```
#[test]
fn a_first_call_finds_nothing_newer_than_others_reach() {
    for were_called in [&[][..], &[F], &[G]] {
        for is_ready in [false, true] {
            Scene::call_beside_a_switch(were_called, [G, F], is_ready);
        }
    }
}

loom_tests::catches_its_weakenings!();
