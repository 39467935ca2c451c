//! Code instance: a pair of code pointers is published, read and replaced by better code.
//!
//! ```text
//!  publisher                    another publisher        reader                       updater
//!  specptr: 0 ─▶ mine           specptr: taken           invoke? none: unset          a pair is there
//!  low bit                        ⋮                      specptr? none: invoke only   specptr: mine ─▶ better
//!  invoke                         ⋮ looks                  ⋮ looks
//!  bit 10 ────────────────────▶ goes on: read ─────────▶ invoke again, low bit: the pair
//! ```
//!
//! Proven, in every order with at most two preemptions, and with every reordering that the orderings allow: one publisher wins,
//! and a loser is told the whole pair of the winner; the pointers and the signature of an answer belong together; an answer
//! without `specptr` has an `invoke` that needs none; code is in place before any thread enters it, also code that took the
//! place of other code; of several threads that want an instance of the table one compiles, and if it gives up, another
//! compiles. A thread that waits yields, and after that loom does not show it an old value again: so waits end.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `code_instance::claims_by_store`: `specptr` is stored, not exchanged | `instances/src/code_instance.rs` | `of_two_who_publish_one_wins` |
//! | `code_instance::announces_before_invoke`: bit 10 is set ahead of `invoke` | `instances/src/code_instance.rs` | `a_pair_takes_the_place_of_an_invoke` |
//! | `code_instance::low_bit_late`: the low bit is set after bit 10 | `instances/src/code_instance.rs` | `a_pair_is_read_while_it_is_published` |
//! | `code_instance::low_bit_last`: the low bit is set with bit 10, after `invoke` | `instances/src/code_instance.rs` | `an_adapter_finds_the_code_behind_its_invoke` |
//! | `code_instance::stores_invoke_unordered`: `invoke` of a pair is stored without Release | `instances/src/code_instance.rs` | `a_pair_is_read_while_it_is_published` |
//! | `code_instance::announces_unordered`: bit 10 is set without Release | `instances/src/code_instance.rs` | `a_pair_takes_the_place_of_an_invoke` |
//! | `code_instance::reads_invoke_unordered`: `invoke` is read without Acquire | `instances/src/code_instance.rs` | `a_pair_is_read_while_it_is_published` |
//! | `code_instance::reads_flags_unordered`: a reader waits without Acquire | `instances/src/code_instance.rs` | `a_pair_takes_the_place_of_an_invoke` |
//! | `code_instance::reads_without_waiting`: a reader does not wait for bit 10 | `instances/src/code_instance.rs` | `a_pair_takes_the_place_of_an_invoke` |
//! | `code_instance::reads_invoke_once`: a reader does not read `invoke` again | `instances/src/code_instance.rs` | `a_pair_takes_the_place_of_an_invoke` |
//! | `code_instance::updates_unordered`: better code is stored without Release | `instances/src/code_instance.rs` | `better_code_is_in_place_before_it_is_entered` |
//! | `code_instance::updates_what_it_has_not_seen`: bit 10 is looked at without Acquire before better code is stored | `instances/src/code_instance.rs` | `who_updates_has_seen_the_pair` |
//! | `code_instance::reads_specptr_unordered`: `specptr` is read without Acquire, as Julia's document allows | `instances/src/code_instance.rs` | `better_code_is_in_place_before_it_is_entered` |
//! | `code_instance::reads_specptr_unordered`: the same, by an adapter | `instances/src/code_instance.rs` | `an_adapter_enters_better_code_that_is_in_place` |
//! | `code_instance::reads_specptr_first`: `specptr` is read ahead of `invoke`, as Julia's document has it | `instances/src/code_instance.rs` | `a_pair_is_read_while_it_is_published` |
//! | `code_instance::loser_does_not_wait`: a loser reads at once | `instances/src/code_instance.rs` | `of_two_who_publish_one_wins` |
//! | `code_instance::loser_waits_unordered`: a loser waits without Acquire | `instances/src/code_instance.rs` | `of_two_who_publish_one_wins` |
//! | `code_instance::stores_lone_invoke_unordered`: an `invoke` without a pair is published without Release | `instances/src/code_instance.rs` | `a_lone_invoke_beside_a_pair_stays_behind_it` |
//! | `code_instance::lone_invoke_overwrites`: an `invoke` without a pair is stored, not exchanged | `instances/src/code_instance.rs` | `a_lone_invoke_beside_a_pair_stays_behind_it` |
//! | `code_instance::looks_and_claims_in_two_steps`: the lock is let go between looking for an instance and adding one | `instances/src/table.rs` | `of_two_who_claim_one_compiles` |
//! | `code_instance::keeps_what_is_given_up`: an instance stays in the table although no thread compiles it | `instances/src/table.rs` | `what_one_gives_up_is_compiled_by_another` |
#![cfg(uruk_loom)]

use std::num::NonZeroU64;

use loom::cell::UnsafeCell;
use loom_tests::stage::model_within;
use uruk_core::sync::atomic::{AtomicUsize, Ordering};
use uruk_core::sync::{Arc, thread};
use uruk_instances::{
    CodeInstance, CodeInstanceState, CodeInstanceTable, CodeSignature, InstanceClaim, World,
};

const PREEMPTIONS: usize = 2;

/// Pieces of code, each by its number.
const LONE: u64 = 1;
const INVOKE: [u64; 2] = [2, 3];
const SPECPTR: [u64; 2] = [4, 5];
const BETTER: u64 = 6;

/// The signatures of the two pairs.
const SIGNATURE: [CodeSignature; 2] = [CodeSignature::Specialized, CodeSignature::Boxed];

type State = CodeInstanceState<NonZeroU64>;

/// An instance, and the memory of the code to which it leads.
#[derive(Default)]
struct Method {
    instance: CodeInstance<NonZeroU64>,
    code: [UnsafeCell<()>; BETTER as usize + 1],
}

impl Method {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Writes a piece of code.
    fn compile(&self, code: u64) -> NonZeroU64 {
        self.code[code as usize].with_mut(|_| ());
        NonZeroU64::new(code).expect("pieces are counted from one")
    }

    /// Runs a piece of code, which no thread may be writing.
    fn enter(&self, code: NonZeroU64) {
        self.code[code.get() as usize].with(|_| ());
    }

    fn publish_lone(&self) -> Result<(), State> {
        let lone = self.compile(LONE);
        self.instance.publish_invoke(lone)
    }

    /// Compiles and publishes one of the two pairs.
    fn publish(&self, pair: usize) -> Result<(), State> {
        let (invoke, specptr) = (self.compile(INVOKE[pair]), self.compile(SPECPTR[pair]));
        self.instance.publish(invoke, specptr, SIGNATURE[pair])
    }

    fn update(&self) {
        let better = self.compile(BETTER);
        self.instance.update(better).expect("there is a pair");
    }

    /// Reads the instance, enters all that it leads to, and gives the pair that was read. With `better` code in the place of that of the pair.
    fn read(&self) -> Option<usize> {
        let state = self.instance.read();
        self.check(state)
    }

    fn check(&self, state: State) -> Option<usize> {
        let (invoke, specptr, signature) = match state {
            CodeInstanceState::Unset => return None,
            CodeInstanceState::InvokeOnly { invoke } => {
                assert_eq!(invoke.get(), LONE, "it relies on a `specptr` that the answer lacks");
                self.enter(invoke);
                return None;
            }
            CodeInstanceState::Boxed { invoke, specptr } => (invoke, specptr, CodeSignature::Boxed),
            CodeInstanceState::Specialized { invoke, specptr } => {
                (invoke, specptr, CodeSignature::Specialized)
            }
        };
        let pair = INVOKE.iter().position(|known| *known == invoke.get());
        let pair = pair.unwrap_or_else(|| panic!("`invoke` of no pair in {state:?}"));
        assert!([SPECPTR[pair], BETTER].contains(&specptr.get()), "halves of two pairs: {state:?}");
        assert_eq!(signature, SIGNATURE[pair], "the signature of another pair: {state:?}");
        self.enter(invoke);
        self.enter(specptr);
        Some(pair)
    }

    /// Calls by the boxed convention, as code does that is compiled once for all callees.
    fn call(&self) {
        let Some(invoke) = self.instance.invoke() else { return };
        self.enter(invoke);
        let Some(pair) = INVOKE.iter().position(|known| *known == invoke.get()) else { return };
        // The entered code is the adapter of a pair.
        let (specptr, signature) =
            self.instance.behind_invoke().expect("`invoke` of a pair has its `specptr`");
        assert_eq!(signature, SIGNATURE[pair]);
        self.enter(specptr);
    }
}

/// Runs something with the method on a thread of its own.
fn beside<T: 'static>(
    method: &Arc<Method>,
    run: impl FnOnce(&Method) -> T + 'static,
) -> thread::JoinHandle<T> {
    let method = method.clone();
    thread::spawn(move || run(&method))
}

/// ```text
///  first: publish ─ told       second: publish ─ told       reader: read
/// ```
#[test]
fn of_two_who_publish_one_wins() {
    model_within(PREEMPTIONS, || {
        let method = Method::new();
        let publisher =
            |pair| beside(&method, move |method| method.publish(pair).map_err(|there| method.check(there)));
        let publishers = [publisher(0), publisher(1)];
        let read = method.read();
        let told = publishers.map(|publisher| publisher.join().expect("no panic"));
        let winner = match told {
            [Ok(()), Err(there)] => (there, 0),
            [Err(there), Ok(())] => (there, 1),
            _ => panic!("one wins: {told:?}"),
        };
        assert_eq!(winner.0, Some(winner.1), "the loser is told the pair that won");
        assert!(read.is_none_or(|pair| pair == winner.1));
        assert_eq!(method.read(), Some(winner.1));
    });
}

#[test]
fn a_pair_is_read_while_it_is_published() {
    model_within(PREEMPTIONS, || {
        let method = Method::new();
        let publisher = beside(&method, |method| method.publish(0));
        let first = method.read();
        let second = method.read();
        assert!(first.is_none() || second.is_some(), "a pair does not go away");
        assert_eq!(publisher.join().expect("no panic"), Ok(()));
        assert_eq!(method.read(), Some(0));
    });
}

#[test]
fn a_pair_takes_the_place_of_an_invoke() {
    model_within(PREEMPTIONS, || {
        let method = Method::new();
        assert_eq!(method.publish_lone(), Ok(()));
        let publisher = beside(&method, |method| method.publish(0));
        method.read();
        assert_eq!(publisher.join().expect("no panic"), Ok(()));
        assert_eq!(method.read(), Some(0));
    });
}

#[test]
fn better_code_is_in_place_before_it_is_entered() {
    model_within(PREEMPTIONS, || {
        let method = Method::new();
        assert_eq!(method.publish(0), Ok(()));
        let updater = beside(&method, Method::update);
        assert_eq!(method.read(), Some(0));
        updater.join().expect("no panic");
        assert_eq!(method.read(), Some(0));
    });
}

#[test]
fn who_updates_has_seen_the_pair() {
    model_within(PREEMPTIONS, || {
        let method = Method::new();
        let publisher = beside(&method, |method| method.publish(0));
        let better = method.compile(BETTER);
        match method.instance.update(better) {
            Ok(()) => assert_eq!(method.read(), Some(0)),
            Err(there) => drop(method.check(there)),
        }
        assert_eq!(publisher.join().expect("no panic"), Ok(()));
        assert_eq!(method.read(), Some(0));
    });
}

#[test]
fn an_adapter_finds_the_code_behind_its_invoke() {
    model_within(PREEMPTIONS, || {
        let method = Method::new();
        let publisher = beside(&method, |method| method.publish(0));
        method.call();
        assert_eq!(publisher.join().expect("no panic"), Ok(()));
        method.call();
    });
}

#[test]
fn an_adapter_enters_better_code_that_is_in_place() {
    model_within(PREEMPTIONS, || {
        let method = Method::new();
        assert_eq!(method.publish(0), Ok(()));
        let updater = beside(&method, Method::update);
        method.call();
        updater.join().expect("no panic");
        method.call();
    });
}

/// ```text
///  first: publish an invoke       second: publish a pair       reader: call ─ read
/// ```
#[test]
fn a_lone_invoke_beside_a_pair_stays_behind_it() {
    model_within(PREEMPTIONS, || {
        let method = Method::new();
        let first = beside(&method, |method| method.publish_lone().map_err(|there| method.check(there)));
        let second = beside(&method, |method| method.publish(1));
        method.call();
        method.read();
        // Told that something can be called, and perhaps not yet that it is a pair.
        let _ = first.join().expect("no panic");
        assert_eq!(second.join().expect("no panic"), Ok(()));
        assert_eq!(method.read(), Some(1));
    });
}

/// A table, and how often the one instance was compiled.
#[derive(Default)]
struct Methods {
    table: CodeInstanceTable<u32, u32, NonZeroU64>,
    compiled: AtomicUsize,
}

impl Methods {
    /// Claims the one instance, and compiles it or gives it up.
    fn claim(&self, compiles: bool) -> Option<Arc<CodeInstance<NonZeroU64>>> {
        match self.table.claim(1, 1, World::FIRST) {
            InstanceClaim::There(there) => Some(there),
            InstanceClaim::Compile(compile) if compiles => {
                // Relaxed: read by the thread that has joined this one.
                self.compiled.fetch_add(1, Ordering::Relaxed);
                compile.instance().publish_invoke(NonZeroU64::MIN).expect("nobody else compiles");
                Some(compile.instance().clone())
            }
            InstanceClaim::Compile(_) => None,
        }
    }
}

#[test]
fn of_two_who_claim_one_compiles() {
    model_within(PREEMPTIONS, || {
        let methods = Arc::new(Methods::default());
        let other = thread::spawn({
            let methods = methods.clone();
            move || methods.claim(true)
        });
        let here = methods.claim(true).expect("it is there, or compiled");
        let there = other.join().expect("no panic").expect("it is there, or compiled");
        assert!(Arc::ptr_eq(&here, &there), "a world has one answer");
        assert_eq!(methods.compiled.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn what_one_gives_up_is_compiled_by_another() {
    model_within(PREEMPTIONS, || {
        let methods = Arc::new(Methods::default());
        let other = thread::spawn({
            let methods = methods.clone();
            move || methods.claim(false)
        });
        let mut found = methods.claim(true).expect("it is there, or compiled");
        other.join().expect("no panic");
        if found.invoke().is_none() {
            found = methods.claim(true).expect("it was given up");
        }
        assert_eq!(found.invoke(), Some(NonZeroU64::MIN));
        assert_eq!(methods.compiled.load(Ordering::Relaxed), 1);
    });
}

loom_tests::catches_its_weakenings!();
