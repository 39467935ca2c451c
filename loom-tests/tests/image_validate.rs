//! A unit of a package that is used for the first time, beside a redefinition of code that it contains.
//!
//! ```text
//!  a unit, at its first use                             a redefinition
//!    under the lock: is the key needed?                   the key is another one from now on
//!    read the key of the definition                       under the lock: reject the unit,
//!    under the lock: is it the right one, and is the        or find that it is used
//!      unit not rejected? Then it is used
//! ```
//!
//! The stages of units are the pipeline's own file. The answers are a few words here.
//!
//! Proven, in every order: a unit that is used is named by a redefinition that came too late for it, and a unit that a redefinition has not found
//! used is not used afterwards. A redefinition that concerns another unit rejects no unit that is right.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `image_validate::marks_after_the_check`: the unit is checked under the lock, and marked used after that | `pipeline/src/image/stages.rs` | `the_redefinition_finds_the_unit_used_or_the_unit_finds_the_redefinition` |
//! | `image_validate::checks_by_an_older_look`: answers that were taken back since the look are not noticed | `pipeline/src/image/stages.rs` | `a_unit_is_not_rejected_for_a_key_that_was_not_asked_for` |
//! | `image_validate::relies_on_keys_alone`: a redefinition rejects nothing, since the unit will find another key | `pipeline/src/image/stages.rs` | `the_redefinition_finds_the_unit_used_or_the_unit_finds_the_redefinition` |
#![cfg(uruk_loom)]

#[expect(dead_code, unreachable_pub, reason = "it is public in the pipeline, which has more stages")]
#[path = "../../pipeline/src/image/stages.rs"]
mod stages;

use loom_tests::stage::model_within;
use stages::{Revocable, UnitStage, UnitStages};
use uruk_core::sync::atomic::{AtomicU32, Ordering};
use uruk_core::sync::{Arc, thread};

const PREEMPTIONS: usize = 4;

/// The key that the unit was compiled with, and the later one.
const KEYS: [u32; 2] = [1, 2];

/// The unit that is used, the one whose code it contains, and another one.
const UNITS: [u32; 3] = [0, 1, 2];

/// The first unit contains code of the second, and that one contains code of a definition of the host.
struct Scene {
    units: UnitStages<Answers>,
    key: AtomicU32,
}

/// The answers for the units.
struct Answers {
    rejected: [bool; 3],
    /// Whether the second unit was found to be valid. The host is not asked about its definition then.
    is_valid: bool,
    revocations: u64,
}

impl Revocable for Answers {
    fn revocations(&self) -> u64 {
        self.revocations
    }
}

impl Scene {
    fn new(is_valid: bool) -> Arc<Self> {
        let answers = Answers { rejected: [false; 3], is_valid, revocations: 0 };
        Arc::new(Self { units: UnitStages::new(answers, UNITS.len()), key: AtomicU32::new(KEYS[0]) })
    }

    /// Says whether the unit's image is used.
    fn first_use(&self) -> bool {
        let is_asked_for = |answers: &mut Answers| !answers.is_valid;
        // Relaxed: the host's keys are behind a lock of its own; here the order of the two threads' steps is all that matters.
        let key = |is_asked_for: bool| is_asked_for.then(|| self.key.load(Ordering::Relaxed));
        let check = |answers: &mut Answers, key: &Option<u32>| {
            answers.rejected[0] |= !answers.is_valid && *key != Some(KEYS[0]);
            answers.is_valid |= !answers.rejected[0];
            if answers.rejected[0] { Err(()) } else { Ok(()) }
        };
        self.units.decide(Some(UNITS[0]), is_asked_for, key, check).is_ok()
    }

    /// The key of the host's definition is another one. Says whether the unit was found in use.
    fn redefine(&self) -> bool {
        // Relaxed: as above.
        self.key.store(KEYS[1], Ordering::Relaxed);
        self.reject(UNITS[0])
    }

    /// Says whether the unit was found in use.
    fn reject(&self, unit: u32) -> bool {
        let reject = |answers: &mut Answers, units: &[u32]| {
            units.iter().for_each(|unit| answers.rejected[*unit as usize] = true);
            answers.is_valid = false;
            answers.revocations += 1;
        };
        self.units.redefine(|_| vec![unit], reject).in_use == [unit]
    }
}

/// ```text
///  main: redefine                                       another: use the unit
/// ```
#[test]
fn the_redefinition_finds_the_unit_used_or_the_unit_finds_the_redefinition() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new(false);
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

/// ```text
///  main: reject another unit, take back the answers     another: use the unit
/// ```
#[test]
fn a_unit_is_not_rejected_for_a_key_that_was_not_asked_for() {
    model_within(PREEMPTIONS, || {
        let scene = Scene::new(true);
        let user = thread::spawn({
            let scene = scene.clone();
            move || scene.first_use()
        });
        assert!(!scene.reject(UNITS[2]));
        assert!(user.join().expect("no panic"), "the host's key is the one that the unit was compiled with");
    });
}

loom_tests::catches_its_weakenings!();
