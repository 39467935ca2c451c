//! Table: slots are vacated and filled again, and arrays grow, shrink and are freed, while readers are inside.
//!
//! ```text
//!  changer, each line under the lock                 reader, without it
//!    remove a: gate closes, b moves up, gate opens      gate ─ enter ─ arrays ─ slots from a name's home on ─ leave ─ gate
//!    c is Ready: the slot that b left is filled
//!    d is Ready: a larger array takes over, and
//!      slots move with each change after that
//! ```
//!
//! The model runs the real table, in arrays of four and eight slots, with names that want the same slot, behind the real gate;
//! the session around it is left out. The table's assumptions about the reclaimer of its arrays are at the head of
//! `core/src/record/shared.rs`, and modelled there.
//!
//! Proven, in every order with at most three preemptions (two with three threads): an answer has the definitions as they were
//! together at some moment of the reading, never a mixture of two (I13), and none that the reader knows to be gone; a
//! definition that does not change is found while others move; no array is freed while a reader is in it, each is freed at
//! last, after all reads of it.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `table::reads_without_fence`: the second look at the gate may come ahead of the records | `core/src/record.rs` | `a_slot_is_vacated_beneath_a_reader` |
//! | `table::fills_without_fence`: what is filled may be seen ahead of the closing by which another thread made room for it | `core/src/record/slot.rs` | `another_thread_fills_what_was_vacated` |
//! | `table::names_first`: a slot has its name before the rest of it | `core/src/record/slot.rs` | `a_slot_is_filled_with_another_name` |
//! | `table::leaves_it_in_the_older`: what is removed stays in the array that is moving | `core/src/record/array.rs` | `a_name_is_redefined_while_the_table_grows` |
//! | `table::forgets_the_older`: readers see the new array alone before all has moved | `core/src/record/table.rs` | `what_nobody_changes_is_found_while_the_table_grows` |
//! | `table::publishes_unordered`: a new array may be seen ahead of its slots | `core/src/record/shared.rs` | `what_nobody_changes_is_found_while_the_table_grows` |
//! | `table::frees_beneath_readers`: what was replaced is dropped at once | `core/src/record/shared.rs` | `an_array_is_freed_when_its_readers_have_left` |
//! | `table::enters_without_fence`: a reader may enter a replaced array, unseen by the thread that replaced it | `core/src/record/shared.rs` | `an_array_is_freed_when_its_readers_have_left` |
//! | `table::leaves_unordered`: an array may be freed ahead of its readers' reads | `core/src/record/shared.rs` | `an_array_is_freed_when_its_readers_have_left` |
//! | `table::frees_beneath_readers`: the same, where the table shrinks | `core/src/record/shared.rs` | `a_name_is_redefined_while_the_table_shrinks` |
//!
//! In no row: `names_that_were_never_there_together_are_not_told_together`. It tests the gate, whose steps are in `publish.rs`;
//! it fails without `publish::removal_keeps_the_record`.
#![cfg(uruk_loom)]

use loom_tests::stage::model_within;
use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};
use uruk_core::{RecordsReader, RecordsWriter, SymbolName, slot_of};

const PREEMPTIONS: usize = 3;

/// Records of a few names.
struct Scene<const NAMES: usize> {
    reader: RecordsReader,
    writer: Mutex<RecordsWriter>,
    names: [SymbolName; NAMES],
    /// The changer has made its changes.
    changed: AtomicBool,
}

impl<const NAMES: usize> Scene<NAMES> {
    /// Names that all want the first of four slots, the first so many of them Ready at addresses from 1 on.
    fn new(ready: usize) -> Arc<Self> {
        let (reader, writer) = RecordsReader::with_writer();
        let mut texts = (0..).map(|number| format!("n{number}")).filter(|text| slot_of(text, 4) == 0);
        let names = [(); NAMES].map(|()| reader.name(&texts.next().expect("there are enough")));
        let scene =
            Arc::new(Self { reader, writer: Mutex::new(writer), names, changed: AtomicBool::new(false) });
        for name in 0..ready {
            scene.make_ready(name, name as u64 + 1);
        }
        scene
    }

    fn make_ready(&self, name: usize, address: u64) {
        self.transact(|writer| writer.make_ready(&self.names[name], address));
    }

    fn remove(&self, name: usize) {
        self.transact(|writer| writer.remove(&self.names[name]));
    }

    fn transact(&self, change: impl FnOnce(&mut RecordsWriter)) {
        let discarded = {
            let mut writer = self.writer.lock();
            change(&mut writer);
            writer.end()
        };
        drop(discarded);
    }

    fn read<const N: usize>(&self, names: [usize; N]) -> Option<[u64; N]> {
        let told = self.reader.read(&names.map(|name| &self.names[name]));
        told.map(|told| told.try_into().expect("one for each name"))
    }

    fn room(&self) -> usize {
        self.writer.lock().room()
    }

    /// Says that something was done.
    fn tell(&self) {
        self.changed.store(true, Ordering::Release);
    }

    fn knows(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Runs `change` on a thread of its own.
    fn beside(self: &Arc<Self>, change: impl FnOnce(&Self) + Send + 'static) -> thread::JoinHandle<()> {
        let scene = self.clone();
        thread::spawn(move || change(&scene))
    }
}

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;
const E: usize = 4;
const F: usize = 5;

/// ```text
///  changer: remove a ─ b moves up ─ c into the slot that b left       reader: a? b?
/// ```
#[test]
fn a_slot_is_vacated_beneath_a_reader() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::<3>::new(2);
        let changer = scene.beside(|scene| {
            scene.remove(A);
            scene.tell();
            scene.make_ready(C, 3);
        });
        let knows = scene.knows();
        let told = scene.read([A, B]);
        assert!(told.is_none() || (told == Some([1, 2]) && !knows), "told {told:?}, knew: {knows}");
        changer.join().expect("no panic");
        assert_eq!((scene.read([B, C]), scene.read([A])), (Some([2, 3]), None));
        assert_eq!(scene.room(), 4, "the slot was filled again");
    });
}

/// ```text
///  changer: remove a ─ b moves up ─ c into the slot that b left       reader: b? c?
/// ```
#[test]
fn a_slot_is_filled_with_another_name() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::<3>::new(2);
        let changer = scene.beside(|scene| {
            scene.remove(A);
            scene.make_ready(C, 3);
            scene.tell();
        });
        let knows = scene.knows();
        let told = scene.read([B, C]);
        assert!(told == Some([2, 3]) || (told.is_none() && !knows), "told {told:?}, knew: {knows}");
        changer.join().expect("no panic");
        assert_eq!(scene.read([B, C]), Some([2, 3]));
        assert_eq!(scene.room(), 4, "the slot was filled again");
    });
}

/// ```text
///  changer: a goes before c comes       reader: c? a?
/// ```
#[test]
fn names_that_were_never_there_together_are_not_told_together() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::<3>::new(2);
        let changer = scene.beside(|scene| {
            scene.remove(A);
            scene.make_ready(C, 3);
        });
        assert_eq!(scene.read([C, A]), None);
        changer.join().expect("no panic");
    });
}

/// ```text
///  one thread: remove b ─▶ another: c into its slot       reader: b?
/// ```
#[test]
fn another_thread_fills_what_was_vacated() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::<3>::new(2);
        let changer = thread::spawn({
            let scene = scene.clone();
            move || {
                scene.beside(|scene| scene.remove(B)).join().expect("no panic");
                scene.make_ready(C, 3);
            }
        });
        let told = scene.read([B]);
        assert!([Some([2]), None].contains(&told), "told {told:?}");
        changer.join().expect("no panic");
        assert_eq!((scene.read([A, C]), scene.read([B])), (Some([1, 3]), None));
        assert_eq!(scene.room(), 4, "the slot was filled again");
    });
}

/// ```text
///  changer: d: eight slots ─ e: two slots move ─ f: two slots move, the old array goes       reader: a? c?
/// ```
#[test]
fn what_nobody_changes_is_found_while_the_table_grows() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::<6>::new(3);
        assert_eq!(scene.room(), 4);
        let changer = scene.beside(|scene| {
            scene.make_ready(D, 4);
            assert_eq!(scene.room(), 8 + 4);
            scene.make_ready(E, 5);
            scene.make_ready(F, 6);
            assert_eq!(scene.room(), 8);
        });
        assert_eq!(scene.read([A, C]), Some([1, 3]), "the gate was never closed");
        changer.join().expect("no panic");
        assert_eq!(scene.read([A, B, C, D, E, F]), Some([1, 2, 3, 4, 5, 6]));
    });
}

/// ```text
///  changer: d: eight slots ─ remove a, which has not moved ─ tell ─ a anew       reader: told? ─ a? b?
/// ```
#[test]
fn a_name_is_redefined_while_the_table_grows() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::<4>::new(3);
        let changer = scene.beside(|scene| {
            scene.make_ready(D, 4);
            scene.remove(A);
            scene.tell();
            scene.make_ready(A, 9);
        });
        let knows = scene.knows();
        match scene.read([A, B]) {
            None | Some([9, 2]) => {}
            Some([1, 2]) => assert!(!knows, "told of what was removed"),
            told => panic!("told {told:?}"),
        }
        changer.join().expect("no panic");
        assert_eq!(scene.read([A, B, C, D]), Some([9, 2, 3, 4]));
        assert_eq!(scene.room(), 8, "all has moved");
    });
}

/// ```text
///  changer: remove b: four slots for eight ─ tell ─ b anew ─ c: the old array goes       reader: told? ─ a? b?
/// ```
#[test]
fn a_name_is_redefined_while_the_table_shrinks() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::<6>::new(6);
        [C, D, E, F].into_iter().for_each(|name| scene.remove(name));
        assert_eq!(scene.room(), 8);
        let changer = scene.beside(|scene| {
            scene.remove(B);
            assert_eq!(scene.room(), 4 + 8);
            scene.tell();
            scene.make_ready(B, 9);
        });
        let knows = scene.knows();
        match scene.read([A, B]) {
            None | Some([1, 9]) => {}
            Some([1, 2]) => assert!(!knows, "told of what was removed"),
            told => panic!("told {told:?}"),
        }
        changer.join().expect("no panic");
        assert_eq!(scene.read([A, B]), Some([1, 9]));
    });
}

/// ```text
///  changer: remove a, the last name: no array ─ b: an array ─ tell       readers: a?        told? ─ b?
/// ```
#[test]
fn an_array_is_freed_when_its_readers_have_left() {
    model_within(PREEMPTIONS - 1, || {
        let scene = Scene::<2>::new(1);
        let changer = scene.beside(|scene| {
            scene.remove(A);
            assert_eq!(scene.room(), 0);
            scene.make_ready(B, 2);
            scene.tell();
        });
        let other = scene.beside(|scene| {
            let knows = scene.knows();
            let told = scene.read([B]);
            assert!(told == Some([2]) || (told.is_none() && !knows), "told {told:?}, knew: {knows}");
        });
        let told = scene.read([A]);
        assert!([Some([1]), None].contains(&told), "told {told:?}");
        changer.join().expect("no panic");
        other.join().expect("no panic");
        assert_eq!((scene.read([A]), scene.read([B])), (None, Some([2])));
    });
}

loom_tests::catches_its_weakenings!();
