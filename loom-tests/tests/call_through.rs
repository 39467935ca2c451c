//! Call-through: threads call a stub for the first time, while others begin to hold it and its body is removed.
//!
//! ```text
//!  caller                                        who begins to hold the stub        remover of the body
//!    slot: bound? then go there                    note: I hold                       the row is gone
//!    while the body is present: hold it            what was bound? hold that          its share of the code is let go
//!    note: bound. Who holds? they hold it too                                         who was the last unmaps it
//!    let go; slot = the body
//! ```
//!
//! The model includes the pipeline's own file, which counts the holders and frees the code. Memory is a flag here, and a
//! session a lock: `while_present` runs its closure under it, and a removal takes rows under it before it lets anything go.
//!
//! Proven, in every order with at most four preemptions (three with three threads): a caller that goes through a bound slot,
//! and holds the stub, finds the code there; once no thread holds the stub, nothing keeps the body.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `call_through::looks_before_it_notes`: who binds asks who holds under one lock, and notes what is bound under another | `pipeline/src/linking/code.rs` | `who_begins_to_hold_the_stub_meanwhile_holds_the_body` |
//! | `call_through::looks_before_it_holds`: who begins to hold asks what is bound under one lock, and notes that it holds under another | `pipeline/src/linking/code.rs` | `who_begins_to_hold_the_stub_meanwhile_holds_the_body` |
//! | `call_through::lets_go_before_it_tells`: the body is not kept until those who hold the stub keep it | `pipeline/src/linking/code.rs` | `a_body_that_is_removed_meanwhile_stays_for_who_holds_the_stub` |
//!
//! `callers_at_once_are_led_to_one_body` is in no row: that one of them makes the body is in the model of `on_caller.rs`, and each binds what
//! the others do. Here it says that binding twice keeps nothing for ever.
#![cfg(uruk_loom)]

#[expect(
    dead_code,
    unreachable_pub,
    reason = "the pipeline needs more of it than the model, and publishes some"
)]
#[path = "../../pipeline/src/linking/code.rs"]
mod code;
#[expect(dead_code, reason = "the pipeline needs more of it than the model")]
#[path = "../../pipeline/src/code_ranges.rs"]
mod code_ranges;

use code::{Code, CodeMap, CodeRemoval, HeldCode, StubTargets, Stubs};
use loom_tests::stage::model_within;
use uruk_core::ExecutorAddr;
use uruk_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};

// The items around the file in the pipeline.

mod share {
    use super::*;

    /// The memory of code. Its drop unmaps it.
    pub(super) struct LinkedCode {
        pub(super) published: executor::Published,
        pub(super) bytes: u64,
        pub(super) is_gone: Arc<AtomicBool>,
    }

    impl Drop for LinkedCode {
        fn drop(&mut self) {
            // Relaxed: a flag of the model, which stands for what the locks have to order.
            self.is_gone.store(true, Ordering::Relaxed);
        }
    }
}

mod guard {
    /// No thread is inside; the model of guards is `guard.rs`.
    #[derive(Clone, Default)]
    pub(crate) struct GuardDomain;

    impl GuardDomain {
        pub(crate) fn retire_with<T>(&self, what: T, _: u64, _: Option<uruk_core::RemovalNumber>) {
            drop(what);
        }
    }
}

mod executor {
    #[derive(Clone, Copy)]
    pub(crate) struct CodeNumber;

    pub(crate) struct Published;

    impl Published {
        #[expect(clippy::unused_self, reason = "the pipeline's has one")]
        pub(crate) fn number(&self) -> Option<CodeNumber> {
            None
        }
    }
}

mod runtime {
    pub(crate) mod call_through {
        use uruk_core::ExecutorAddr;

        #[expect(dead_code, reason = "no stub is read in the model")]
        pub(crate) trait KeepsCode {
            fn contains(&self, address: ExecutorAddr) -> bool;
        }
    }

    pub(crate) mod endings {
        use std::any::Any;
        use uruk_core::sync::Weak;

        use crate::executor::CodeNumber;

        #[expect(dead_code, reason = "nothing ends in the model")]
        pub(crate) trait CodeKeeper {
            fn hold_all(&self) -> Box<dyn Any + Send + Sync>;
        }

        pub(crate) fn kept_by<K: CodeKeeper>(_: CodeNumber, _: Weak<K>, _: usize) {}
    }
}

const PREEMPTIONS: usize = 4;
const STUB: u64 = 0x1000;
const BODY: u64 = 0x2000;

/// A stub and its body, each linked.
struct Scene {
    known: Arc<CodeMap>,
    targets: Arc<StubTargets>,
    slot: AtomicU64,
    /// Rows of the session: what the tracker of the body has of its code.
    body: Mutex<Option<Arc<Code>>>,
    body_is_gone: Arc<AtomicBool>,
    stub: Mutex<Option<Arc<Code>>>,
}

impl Scene {
    fn new() -> Arc<Self> {
        let (known, targets) = (Arc::new(CodeMap::default()), Arc::new(StubTargets::default()));
        let link = |address, targets: Option<Arc<StubTargets>>| {
            let is_gone = Arc::new(AtomicBool::new(false));
            let memory =
                share::LinkedCode { published: executor::Published, bytes: 0x100, is_gone: is_gone.clone() };
            let ranges = std::iter::once(address..address + 0x100).collect();
            let stubs = targets.map(|targets| Stubs { targets, cells: Arc::new(()) });
            (Code::new(memory, ranges, Box::default(), stubs, &known), is_gone)
        };
        let (stub, _) = link(STUB, Some(targets.clone()));
        let (body, body_is_gone) = link(BODY, None);
        let (slot, body, stub) = (AtomicU64::new(0), Mutex::new(Some(body)), Mutex::new(Some(stub)));
        Arc::new(Self { known, targets, slot, body, body_is_gone, stub })
    }

    fn hold_stub(&self) -> HeldCode {
        self.known.hold(ExecutorAddr::new(STUB)).expect("the stub is there")
    }

    /// Calls the stub, as one who holds it. Says whether there is a body.
    fn call(&self) -> bool {
        // Relaxed: the processor loads the word as it jumps; the code was written before anybody could find it.
        if self.slot.load(Ordering::Relaxed) == 0 && !self.first_call() {
            return false;
        }
        assert!(!self.body_is_gone.load(Ordering::Relaxed), "the slot leads to nothing");
        true
    }

    /// As `pipeline/src/lazy.rs` has it: look the body up, hold it while it is present, bind.
    fn first_call(&self) -> bool {
        let body = ExecutorAddr::new(BODY);
        let row = self.body.lock();
        let held = row.is_some().then(|| self.known.hold(body));
        drop(row);
        let Some(held) = held else { return false };
        drop(self.targets.lead_on_to(0, body, held));
        self.slot.store(BODY, Ordering::Relaxed);
        true
    }

    fn remove_body(&self) {
        remove(&self.body);
        // Counts that loom does not see decide which thread drops the code last. So loom has to see that this drop comes before
        // or after others' looks.
        drop(self.known.hold(ExecutorAddr::new(BODY)));
    }
}

fn remove(row: &Mutex<Option<Arc<Code>>>) {
    let code = row.lock().take();
    code.into_iter().for_each(|code| code.let_go(CodeRemoval::WhenReleased(&(Arc::new(()) as _))));
}

/// ```text
///  main: hold the stub                           another, who holds it: call
///  main: remove the body ─ call, if it is bound
/// ```
#[test]
fn who_begins_to_hold_the_stub_meanwhile_holds_the_body() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let caller = thread::spawn({
            let scene = scene.clone();
            let held = scene.hold_stub();
            move || {
                assert!(scene.call());
                drop(held);
            }
        });
        let held = scene.hold_stub();
        caller.join().expect("no panic");
        scene.remove_body();
        assert!(scene.call(), "the other has bound it");
        drop(held);
        assert!(scene.body_is_gone.load(Ordering::Relaxed), "somebody keeps the body");
    });
}

/// ```text
///  main, who holds the stub: call ─ call         another: remove the body
/// ```
#[test]
fn a_body_that_is_removed_meanwhile_stays_for_who_holds_the_stub() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let held = scene.hold_stub();
        let remover = thread::spawn({
            let scene = scene.clone();
            move || scene.remove_body()
        });
        let is_bound = scene.call();
        remover.join().expect("no panic");
        assert_eq!(scene.call(), is_bound);
        drop(held);
        assert!(scene.body_is_gone.load(Ordering::Relaxed), "somebody keeps the body");
    });
}

/// ```text
///  main, who holds the stub: call                another, the same                another: remove the body
/// ```
#[test]
fn callers_at_once_are_led_to_one_body() {
    model_within(PREEMPTIONS - 1, || {
        let scene = Scene::new();
        let held = scene.hold_stub();
        let caller = thread::spawn({
            let (scene, held) = (scene.clone(), scene.hold_stub());
            move || {
                scene.call();
                drop(held);
            }
        });
        let remover = thread::spawn({
            let scene = scene.clone();
            move || scene.remove_body()
        });
        scene.call();
        caller.join().expect("no panic");
        remover.join().expect("no panic");
        drop(held);
        assert!(scene.body_is_gone.load(Ordering::Relaxed), "somebody keeps the body");
        remove(&scene.stub);
        assert!(scene.known.hold(ExecutorAddr::new(STUB)).is_none());
    });
}

loom_tests::catches_its_weakenings!();
