//! Publish: the records of two names are read without the lock while both are removed and defined again.
//!
//! ```text
//!  changer, each line under the session lock        reader, without it
//!    remove x and y: gate closes, records go,         before = gate
//!      gate opens one version on                      record of x
//!    define x and y anew                              record of y
//!    emit: new records of x and y                     gate == before? answer : ask under the lock
//! ```
//!
//! Proven, in every order with at most three preemptions, and with every reordering that the orderings allow (I13): a lookup of
//! both names is told both old addresses, both new ones, or that they are missing, never one of each; a thread that knows that
//! the removal has returned is never told an old address; a thread that was told the new address is not told the old one
//! afterwards. Entries are modelled as pointers that order nothing, so the gate and its fences alone ensure all of this.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `publish::gate_stays_open`: the gate is not closed before records change | `core/src/ready_index.rs` | `names_that_change_together_are_seen_together` |
//! | `publish::version_stays`: the gate opens as it was before | `core/src/ready_index.rs` | `names_that_change_together_are_seen_together` |
//! | `publish::closes_without_fence`: records may change ahead of the closing | `core/src/ready_index.rs` | `names_that_go_together_are_seen_to_go_together` |
//! | `publish::looks_once`: a reader does not look at the gate again | `core/src/ready_index.rs` | `names_that_change_together_are_seen_together` |
//! | `publish::reads_without_fence`: the second look at the gate may come ahead of the entries | `core/src/ready_index.rs` | `names_that_go_together_are_seen_to_go_together` |
//! | `publish::opens_unordered`: the gate may be seen open ahead of the change | `core/src/ready_index.rs` | `names_that_go_together_are_seen_to_go_together` |
//! | `publish::removal_keeps_the_record`: the record of a name that goes stays | `core/src/ready_index.rs` | `nobody_who_knows_of_the_removal_is_told_an_old_address` |
//! | `publish::removal_keeps_the_record`: the same; told under the lock that it is gone, a thread then reads the record | `core/src/ready_index.rs` | `a_thread_that_was_told_the_new_address_is_not_told_the_old_one` |
#![cfg(uruk_loom)]

use loom_tests::stage::{Stage, model_within};
use uruk_core::sync::atomic::{AtomicBool, Ordering};
use uruk_core::sync::{Arc, thread};
use uruk_core::{
    ExecutorAddr, ExecutorSymbolDef, JitDylib, JitDylibLookupFlags, LookupError, LookupRequest, LookupSet,
    SearchOrder, SymbolFlags, SymbolName, absolute_symbols,
};

const PREEMPTIONS: usize = 3;

/// Defines both names at an address.
fn define(dylib: &JitDylib, names: &[SymbolName; 2], address: u64) {
    let at = ExecutorSymbolDef::new(ExecutorAddr::new(address), SymbolFlags::EXPORTED);
    let symbols = names.iter().map(|name| (name.clone(), at)).collect();
    dylib.define(absolute_symbols(symbols)).expect("the names are free");
}

/// Defines both names at an address and makes them Ready.
fn make_ready(stage: &Stage, names: &[SymbolName; 2], address: u64) {
    define(&stage.dylib, names, address);
    assert_eq!(both(stage, names), Ok([address; 2]));
}

/// Removes both names and makes them Ready at the second address, on a thread of its own.
fn change_beside(stage: &Arc<Stage>, names: &[SymbolName; 2]) -> thread::JoinHandle<()> {
    let (stage, names) = (stage.clone(), names.clone());
    thread::spawn(move || {
        stage.dylib.remove(&names).expect("nobody materializes them");
        make_ready(&stage, &names, 2);
    })
}

/// The answer to one lookup of both names; an error if they are missing.
fn both(stage: &Stage, names: &[SymbolName; 2]) -> Result<[u64; 2], ()> {
    match stage.session.lookup(LookupRequest::new(stage.order(), LookupSet::required(names.iter().cloned())))
    {
        Ok(found) => Ok([0, 1].map(|index| found[&names[index]].address.value())),
        Err(LookupError::NotFound { .. }) => Err(()),
        Err(error) => panic!("neither found nor missing: {error}"),
    }
}

/// A third name is Ready and stays: without any, the table would begin anew in another array (`table.rs`), whose ordering would
/// hide a fault of the gate.
fn stage() -> Arc<Stage> {
    let stage = Stage::new();
    let third = stage.session.intern("z");
    let at = ExecutorSymbolDef::new(ExecutorAddr::new(3), SymbolFlags::EXPORTED);
    let symbols = [(third.clone(), at)].into_iter().collect();
    stage.dylib.define(absolute_symbols(symbols)).expect("the name is free");
    assert_eq!(stage.lookup(&third).expect("it is there"), at);
    stage
}

/// Both names are Ready at the first address.
fn both_ready() -> (Arc<Stage>, [SymbolName; 2]) {
    let stage = stage();
    let names = names(&stage);
    make_ready(&stage, &names, 1);
    (stage, names)
}

fn names(stage: &Stage) -> [SymbolName; 2] {
    ["x", "y"].map(|name| stage.session.intern(name))
}

#[test]
fn names_that_change_together_are_seen_together() {
    model_within(PREEMPTIONS, || {
        let (stage, names) = both_ready();
        let changer = change_beside(&stage, &names);
        let told = both(&stage, &names);
        assert!([Ok([1; 2]), Ok([2; 2]), Err(())].contains(&told), "told {told:?}");
        changer.join().expect("no panic");
        assert_eq!(both(&stage, &names), Ok([2; 2]));
    });
}

/// ```text
///  remover: remove x and y from `main`, one transaction      reader: record of x ─ record of y
///           what `second` has is in the records already                  along `main`, `second`
/// ```
#[test]
fn names_that_go_together_are_seen_to_go_together() {
    model_within(PREEMPTIONS, || {
        let stage = Stage::new();
        let names = names(&stage);
        let second = stage.session.create_jit_dylib("second").expect("it is new");
        let all = JitDylibLookupFlags::MatchAllSymbols;
        let order: SearchOrder = [(stage.dylib.clone(), all), (second.clone(), all)].into();
        define(&second, &names, 2);
        // With a third definition of each name there are several before and after: one record takes another's place.
        let third = stage.session.create_jit_dylib("third").expect("it is new");
        define(&third, &names, 3);
        let both = {
            let (stage, names) = (stage.clone(), names.clone());
            move |order: &SearchOrder| {
                let set = LookupSet::required(names.iter().cloned());
                let found = stage
                    .session
                    .lookup(LookupRequest::new(order, set))
                    .expect("they are in the second at least");
                [0, 1].map(|index| found[&names[index]].address.value())
            }
        };
        assert_eq!(both(&SearchOrder::from([(second, all)])), [2; 2]);
        make_ready(&stage, &names, 1);
        // The order finds out that nothing generates, once.
        assert_eq!(both(&order), [1; 2]);
        let remover = thread::spawn({
            let (stage, names) = (stage.clone(), names.clone());
            move || stage.dylib.remove(&names).expect("nobody materializes them")
        });
        let told = both(&order);
        assert!([[1; 2], [2; 2]].contains(&told), "told {told:?}");
        remover.join().expect("no panic");
        assert_eq!(both(&order), [2; 2]);
    });
}

/// ```text
///  remover: remove x ─ tell that it has returned       reader: told? ─ look x up
/// ```
#[test]
fn nobody_who_knows_of_the_removal_is_told_an_old_address() {
    model_within(PREEMPTIONS, || {
        let (stage, names) = both_ready();
        let returned = Arc::new(AtomicBool::new(false));
        let remover = thread::spawn({
            let (stage, names, returned) = (stage.clone(), names.clone(), returned.clone());
            move || {
                stage.dylib.remove(&names[..1]).expect("nobody materializes it");
                returned.store(true, Ordering::Release);
            }
        });
        let knows = returned.load(Ordering::Acquire);
        match stage.lookup(&names[0]) {
            Ok(found) => assert!(!knows, "{found:?} is told after its removal"),
            Err(LookupError::NotFound { .. }) => {}
            Err(error) => panic!("neither found nor missing: {error}"),
        }
        remover.join().expect("no panic");
        assert!(stage.lookup(&names[0]).is_err());
        assert!(stage.lookup(&names[1]).is_ok(), "its neighbour is still there");
    });
}

#[test]
fn a_thread_that_was_told_the_new_address_is_not_told_the_old_one() {
    model_within(PREEMPTIONS, || {
        let (stage, names) = both_ready();
        let changer = change_beside(&stage, &names);
        // In the order in which they are true.
        let rank = |told: Result<ExecutorSymbolDef, LookupError>| match told {
            Ok(found) if found.address.value() == 1 => 1,
            Err(LookupError::NotFound { .. }) => 2,
            Ok(_) => 3,
            Err(error) => panic!("neither found nor missing: {error}"),
        };
        let first = rank(stage.lookup(&names[0]));
        let second = rank(stage.lookup(&names[0]));
        assert!(first <= second, "told {first}, then {second}");
        changer.join().expect("no panic");
    });
}

loom_tests::catches_its_weakenings!();
