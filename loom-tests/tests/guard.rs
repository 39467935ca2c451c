//! Guards: threads run what is published, while others replace it and free it once no thread is inside.
//!
//! ```text
//!  reader                                        remover
//!    enter                                         publish another body
//!    which body is published? run it               retire the one before
//!    checkpoint, or leave
//! ```
//!
//! The protocol is the pipeline's own file. A body is a number with a flag that says whether it is gone. The barriers, of which the
//! pipeline has one that costs readers nothing, are fences here: the kernel gives the same order.
//!
//! Proven, in every order with at most four preemptions (three with three threads): a thread inside runs no code that is gone;
//! once no thread is inside, no removal waits.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `guard::enters_without_a_barrier`: a thread that has entered reads the published body before others see that it is inside | `pipeline/src/guard/slots.rs` | `who_is_inside_runs_nothing_that_is_gone` |
//! | `guard::leaves_relaxed`: the work of a thread inside is not over for a thread that sees that it has left | `pipeline/src/guard/slots.rs` | `what_was_done_inside_is_over_when_it_goes` |
//! | `guard::does_not_look_again`: a thread that retires a body notes that it waits, and leaves the rest to threads inside | `pipeline/src/guard/slots.rs` | `when_nobody_is_inside_nothing_waits` |
//! | `guard::takes_another_batch_for_this`: a removed body waits for the threads that were inside at an earlier removal | `pipeline/src/guard/slots.rs` | `what_is_removed_together_waits_for_all_who_may_run_it` |
#![cfg(uruk_loom)]

#[expect(dead_code, reason = "names of threads are for messages")]
#[path = "../../pipeline/src/guard/slots.rs"]
mod slots;

use loom::cell::UnsafeCell;
use loom_tests::stage::model_within;
use slots::{GuardReader, ReaderSlots};
use uruk_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uruk_core::sync::{Arc, thread};

mod barrier {
    use uruk_core::sync::atomic::{Ordering, fence};

    pub(super) fn light() {
        fence(Ordering::SeqCst);
    }

    pub(super) fn heavy() {
        fence(Ordering::SeqCst);
    }
}

const PREEMPTIONS: usize = 4;

/// Dropped when a body goes.
struct Body {
    scene: Arc<Bodies>,
    number: usize,
}

struct Bodies {
    published: AtomicU64,
    is_gone: [AtomicBool; 2],
}

impl Drop for Body {
    fn drop(&mut self) {
        self.scene.is_gone[self.number].store(true, Ordering::Relaxed); // what the protocol has to order
    }
}

struct Scene {
    slots: ReaderSlots<Body, u64>,
    bodies: Arc<Bodies>,
}

impl Scene {
    fn new() -> Arc<Self> {
        let is_gone = std::array::from_fn(|_| AtomicBool::new(false));
        let bodies = Arc::new(Bodies { published: AtomicU64::new(0), is_gone });
        Arc::new(Self { slots: ReaderSlots::new(), bodies })
    }

    fn register(&self) -> GuardReader {
        self.slots.register("a thread".into())
    }

    /// Runs what is published.
    fn run(&self) {
        let body = self.bodies.published.load(Ordering::Relaxed) as usize;
        assert!(!self.bodies.is_gone[body].load(Ordering::Relaxed), "it runs what is gone");
    }

    fn replace(&self) {
        self.bodies.published.store(1, Ordering::Relaxed);
        self.slots.retire(Body { scene: self.bodies.clone(), number: 0 }, None, |body| body);
    }
}

/// ```text
///  main: replace the body                        another: enter ─ run ─ checkpoint ─ run ─ leave
/// ```
#[test]
fn who_is_inside_runs_nothing_that_is_gone() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let reader = scene.register();
        let reader = thread::spawn({
            let scene = scene.clone();
            move || {
                scene.slots.enter(&reader);
                scene.run();
                scene.slots.checkpoint(&reader);
                scene.run();
                scene.slots.leave(&reader);
            }
        });
        scene.replace();
        reader.join().expect("no panic");
    });
}

/// ```text
///  main: replace the body                        another: enter ─ leave           another: the same
///  main, when they have ended: is it gone?
/// ```
#[test]
fn when_nobody_is_inside_nothing_waits() {
    model_within(PREEMPTIONS - 1, || {
        let scene = Scene::new();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (scene, reader) = (scene.clone(), scene.register());
                thread::spawn(move || {
                    scene.slots.enter(&reader);
                    scene.slots.leave(&reader);
                })
            })
            .collect();
        scene.replace();
        for reader in readers {
            reader.join().expect("no panic");
        }
        assert_eq!(scene.slots.pending(|_| 0).0, 0, "something waits for nobody");
        assert!(scene.bodies.is_gone[0].load(Ordering::Relaxed));
    });
}

/// ```text
///  main: remove two bodies, then one more        another: enter ─ run ─ leave ─ enter ─ run ─ leave
/// ```
#[test]
fn what_is_removed_together_waits_for_all_who_may_run_it() {
    model_within(PREEMPTIONS - 1, || {
        let is_gone: Arc<[AtomicBool; 3]> = Arc::new(std::array::from_fn(|_| AtomicBool::new(false)));
        let is_published: Arc<[AtomicBool; 3]> = Arc::new(std::array::from_fn(|_| AtomicBool::new(true)));
        let slots = Arc::new(ReaderSlots::<_, u64>::new());
        let reader = slots.register("a thread".into());
        let reader = thread::spawn({
            let (slots, is_gone, is_published) = (slots.clone(), is_gone.clone(), is_published.clone());
            move || {
                for body in [1, 2] {
                    slots.enter(&reader);
                    if is_published[body].load(Ordering::Relaxed) {
                        assert!(!is_gone[body].load(Ordering::Relaxed), "it runs what is gone");
                    }
                    slots.leave(&reader);
                }
            }
        });
        let retire = |batch, body| {
            let goes = Goes(is_gone.clone(), body);
            slots.retire(goes, Some(batch), |goes| goes);
        };
        // Relaxed: the protocol has to order it.
        [0, 1].iter().for_each(|body: &usize| is_published[*body].store(false, Ordering::Relaxed));
        retire(1, 0);
        retire(1, 1);
        is_published[2].store(false, Ordering::Relaxed);
        retire(2, 2);
        reader.join().expect("no panic");
        assert_eq!(slots.pending(|_| 0).0, 0, "something waits for nobody");
        assert!(is_gone.iter().all(|gone| gone.load(Ordering::Relaxed)));
    });
}

/// Tells when a body goes.
struct Goes(Arc<[AtomicBool; 3]>, usize);

impl Drop for Goes {
    fn drop(&mut self) {
        self.0[self.1].store(true, Ordering::Relaxed); // what the protocol has to order
    }
}

/// A variable of the code that goes, written by a thread inside.
struct Variable(UnsafeCell<u64>);

// SAFETY: loom checks each access; the model tests just that.
unsafe impl Send for Variable {}
// SAFETY: as above.
unsafe impl Sync for Variable {}

/// Frees the memory of a variable.
struct Frees(Arc<Variable>);

impl Drop for Frees {
    fn drop(&mut self) {
        // SAFETY: loom says when another thread's access is not over.
        self.0.0.with_mut(|value| unsafe { *value = 1 });
    }
}

/// ```text
///  main: retire the variable                     another: enter ─ write it, if it is still published ─ leave
/// ```
#[test]
fn what_was_done_inside_is_over_when_it_goes() {
    model_within(PREEMPTIONS, || {
        let (slots, published) = (Arc::new(ReaderSlots::<_, u64>::new()), Arc::new(AtomicBool::new(true)));
        let variable = Arc::new(Variable(UnsafeCell::new(0)));
        let reader = slots.register("a thread".into());
        let reader = thread::spawn({
            let (slots, published, variable) = (slots.clone(), published.clone(), variable.clone());
            move || {
                slots.enter(&reader);
                if published.load(Ordering::Relaxed) {
                    // SAFETY: as above.
                    variable.0.with_mut(|value| unsafe { *value = 2 });
                }
                slots.leave(&reader);
            }
        });
        published.store(false, Ordering::Relaxed);
        slots.retire(Frees(variable), None, |variable| variable);
        reader.join().expect("no panic");
        assert_eq!(slots.pending(|_| 0).0, 0);
    });
}

loom_tests::catches_its_weakenings!();
