//! A unit of a package that is used for the first time, beside a redefinition of code that it contains.
//!
//! ```text
//!  a unit, at its first use                             a redefinition
//!    read the key of the definition                       the key is another one from now on
//!    under the lock: is it the right one, and is the      under the lock: reject the unit,
//!      unit not rejected? Then it is used                   or find that it is used
//! ```
//!
//! The stages of units are the pipeline's own file. The answers are one word here: whether the unit was rejected.
//!
//! Proven, in every order: a unit that is used is named by a redefinition that came too late for it, and a unit that a redefinition has not found
//! used is not used afterwards.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `image_validate::marks_after_the_check`: the unit is checked under the lock, and marked used after that | `pipeline/src/image/stages.rs` | `the_redefinition_finds_the_unit_used_or_the_unit_finds_the_redefinition` |
//! | `image_validate::relies_on_keys_alone`: a redefinition rejects nothing, since the unit will find another key | `pipeline/src/image/stages.rs` | `the_redefinition_finds_the_unit_used_or_the_unit_finds_the_redefinition` |
#![cfg(uruk_loom)]

#[expect(dead_code, unreachable_pub, reason = "it is public in the pipeline, which has more stages")]
#[path = "../../pipeline/src/image/stages.rs"]
mod stages;

use loom_tests::stage::model_within;
use stages::{UnitStage, UnitStages};
use uruk_core::sync::atomic::{AtomicU32, Ordering};
use uruk_core::sync::{Arc, thread};

const PREEMPTIONS: usize = 4;

/// The key that the unit was compiled with, and the later one.
const KEYS: [u32; 2] = [1, 2];

/// One unit, which contains code of one definition of the host.
struct Scene {
    /// Whether each unit was rejected.
    units: UnitStages<bool>,
    key: AtomicU32,
}

impl Scene {
    fn new() -> Arc<Self> {
        Arc::new(Self { units: UnitStages::new(false, 1), key: AtomicU32::new(KEYS[0]) })
    }

    /// Says whether the unit's image is used.
    fn first_use(&self) -> bool {
        // Relaxed: the host's keys are behind a lock of its own; here the order of the two threads' steps is all that matters.
        let key = self.key.load(Ordering::Relaxed);
        let check = |is_rejected: &mut bool| if *is_rejected || key != KEYS[0] { Err(()) } else { Ok(()) };
        self.units.begin_use(0, check).is_ok()
    }

    /// Says whether the unit was found in use.
    fn redefine(&self) -> bool {
        // Relaxed: as above.
        self.key.store(KEYS[1], Ordering::Relaxed);
        let reject = |is_rejected: &mut bool, units: &[u32]| *is_rejected |= !units.is_empty();
        self.units.redefine(|_| vec![0], reject).in_use == [0]
    }
}

/// ```text
///  main: redefine                                       another: use the unit
/// ```
#[test]
fn the_redefinition_finds_the_unit_used_or_the_unit_finds_the_redefinition() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new();
        let user = thread::spawn({
            let scene = scene.clone();
            move || scene.first_use()
        });
        let was_in_use = scene.redefine();
        let is_used = user.join().expect("no panic");
        assert_eq!(is_used, was_in_use);
        let stage = scene.units.with(|_, stages| stages[0]);
        assert_eq!(stage == UnitStage::Used, is_used);
    });
}

loom_tests::catches_its_weakenings!();
