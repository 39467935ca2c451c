//! Endings: the functions that code has registered run once, newest first, while all of the code is there, on any thread.
//!
//! ```text
//!  one who ends everything                       one who drops the last share of the code
//!    lock: begin: note what there is               (no thread can hold it any more)
//!    lock: take the newest, hold its code          lock: begin with what is left of it
//!    run it                                        lock: take ─ run ─ ...
//!    lock: take the next, hold its code            lock: forget the code
//!    let go of the one before                      the memory goes
//! ```
//!
//! The model runs the pipeline's own file. Code is a number here, and its memory a flag.
//!
//! Proven, in every order with at most four preemptions: each function runs once; none runs when its code is gone; a function
//! registered by a running one has run when the same end is over; nothing is left in the table when the code is gone.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `endings::keeps_no_code`: the code of a running function is not kept | `pipeline/src/runtime/endings/table.rs` | `code_goes_while_another_ends_everything` |
//! | `endings::leaves_what_runs`: a function that is taken stays in the table while it runs | `pipeline/src/runtime/endings/table.rs` | `code_goes_while_another_ends_everything` |
//! | `endings::joins_no_runner`: a function registered meanwhile joins no end that is on its way | `pipeline/src/runtime/endings/table.rs` | `what_runs_may_register_more` |
//!
//! The first needs an order of two threads: the code goes between the moment when its function is taken and the one when that runs.
#![cfg(uruk_loom)]

#[expect(dead_code, reason = "the pipeline needs more of it than the model")]
#[path = "../../pipeline/src/code_ranges.rs"]
mod code_ranges;
#[expect(dead_code, reason = "the pipeline needs more of it than the model")]
#[path = "../../pipeline/src/runtime/endings/owners.rs"]
mod owners;
#[expect(dead_code, reason = "the pipeline needs more of it than the model")]
#[path = "../../pipeline/src/runtime/endings/table.rs"]
mod table;

use std::any::Any;
use std::ops::Range;

use loom_tests::stage::model;
use owners::CodeKeeper;
use table::{EndScope, ExitEntry, ExitKey, ExitTable, run_all};
use uruk_core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use uruk_core::sync::{Arc, Mutex, thread};

// The items around the two files in the pipeline.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CodeNumber(u64);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Home;

pub(crate) struct CodeExtent {
    home: Home,
    ranges: Arc<[Range<u64>]>,
}

/// Which function is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExitCall(usize);

pub(crate) mod executor {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct ArrayFunction;
}

const FUNCTIONS: usize = 2;

struct Scene {
    table: Mutex<ExitTable>,
    is_gone: AtomicBool,
    /// How often each function has run.
    ran: [AtomicUsize; FUNCTIONS],
}

/// Code, which ends when it is dropped.
struct Code {
    scene: Arc<Scene>,
    number: CodeNumber,
}

impl CodeKeeper for Code {
    fn hold_all(&self) -> Box<dyn Any + Send + Sync> {
        Box::new(())
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        self.scene.end(EndScope::Last(self.number));
        let (owner, lost) = self.scene.table.lock().remove_code(self.number);
        assert!(owner.is_some() && lost == 0, "{lost} functions were lost");
        // Relaxed: who may still run would be told by the table.
        self.scene.is_gone.store(true, Ordering::Relaxed);
    }
}

impl Scene {
    /// Code that one holder has, and the first functions of it.
    fn new(functions: usize) -> (Arc<Self>, Arc<Code>) {
        let scene = Self {
            table: Mutex::new(ExitTable::new()),
            is_gone: AtomicBool::new(false),
            ran: Default::default(),
        };
        let scene = Arc::new(scene);
        let number = scene
            .table
            .lock()
            .add_code(CodeExtent { home: Home, ranges: std::iter::once(0x1000..0x2000).collect() });
        let code = Arc::new(Code { scene: scene.clone(), number });
        let keeper: std::sync::Weak<Code> = Arc::downgrade(&code);
        let keeper: std::sync::Weak<dyn CodeKeeper> = keeper;
        if let Some(owner) = scene.table.lock().owner_mut(number) {
            (owner.code, owner.shares) = (Some(keeper), 1);
        }
        (0..functions).for_each(|function| scene.register(number, function));
        (scene, code)
    }

    fn register(&self, code: CodeNumber, function: usize) {
        let mut table = self.table.lock();
        let place = table.next_number();
        table.add(ExitKey::Handler { place }, ExitEntry { call: ExitCall(function), owners: vec![code] });
    }

    fn end(&self, scope: EndScope) {
        self.end_with(scope, |_| ());
    }

    fn end_with(&self, scope: EndScope, also: impl Fn(usize)) {
        run_all(
            || self.table.lock(),
            scope,
            |ExitCall(function)| {
                assert!(!self.is_gone.load(Ordering::Relaxed), "function {function} runs without its code");
                also(function);
                self.ran[function].fetch_add(1, Ordering::Relaxed);
            },
        );
    }

    fn assert_ran(&self, functions: usize) {
        let ran: Vec<_> = self.ran.iter().take(functions).map(|ran| ran.load(Ordering::Relaxed)).collect();
        assert_eq!(ran, vec![1; functions]);
    }
}

/// ```text
///  main: end everything                       another: the last share of the code goes
/// ```
#[test]
fn code_goes_while_another_ends_everything() {
    model(|| {
        let (scene, code) = Scene::new(2);
        let dropper = thread::spawn(move || drop(code));
        scene.end(EndScope::Everything);
        dropper.join().expect("no panic");
        scene.assert_ran(2);
        assert!(scene.is_gone.load(Ordering::Relaxed));
    });
}

/// ```text
///  main: deinitialise the dylib, whose one function registers another                  another: end everything
/// ```
#[test]
fn what_runs_may_register_more() {
    model(|| {
        let (scene, code) = Scene::new(1);
        let ended = {
            let scene = scene.clone();
            let number = code.number;
            move |scope| {
                scene.end_with(scope, |function| {
                    if function == 0 {
                        scene.register(number, 1);
                    }
                });
            }
        };
        let other = thread::spawn({
            let ended = ended.clone();
            move || ended(EndScope::Everything)
        });
        ended(EndScope::Homes(vec![Home]));
        other.join().expect("no panic");
        scene.assert_ran(2);
        drop(code);
    });
}

loom_tests::catches_its_weakenings!();
