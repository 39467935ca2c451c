//! [`UnitStages`]: which units of a package are in use, beside redefinitions of code that they contain.
//!
//! ```text
//!  a unit, at its first use                             a redefinition
//!    under the lock: of which definitions are keys needed? the host gives another key from now on
//!    ask the host for these                               under the lock: reject the units with its code that are not used,
//!    under the lock: check them, mark the unit used         and take back the answers for others
//! ```
//!
//! **Holds.** Either the redefinition finds the unit used, or the unit finds the redefinition. A unit is rejected by keys that were asked for after the
//! latest answer was taken back. `loom-tests/tests/image_validate.rs` checks both, with this file.

use uruk_core::sync::{Mutex, weakened};

/// The stage of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitStage {
    /// Nothing has asked for it.
    Unused,
    /// Its image is in use.
    Used,
    /// Rejected, and told.
    Told,
    /// Rejected; its sources are there.
    FromSource,
}

/// Units that a redefinition concerns, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redefined {
    /// They were not in use, and are rejected.
    pub rejected: Vec<u32>,
    /// Their images are in use, and contain the older code.
    pub in_use: Vec<u32>,
}

/// Answers that are taken back at times.
pub trait Revocable {
    /// How many times answers were taken back.
    fn revocations(&self) -> u64;
}

/// The stages of units, and the answers about them, under one lock.
#[derive(Debug)]
pub struct UnitStages<A> {
    known: Mutex<StagedUnits<A>>,
}

#[derive(Debug)]
struct StagedUnits<A> {
    answers: A,
    stages: Vec<UnitStage>,
}

impl<A> UnitStages<A> {
    /// Nothing has asked for one of the `units`.
    pub fn new(answers: A, units: usize) -> Self {
        Self { known: Mutex::new(StagedUnits { answers, stages: vec![UnitStage::Unused; units] }) }
    }

    /// Runs `ask` on all of it. It must call nothing of a host's.
    pub fn with<R>(&self, ask: impl FnOnce(&mut A, &mut [UnitStage]) -> R) -> R {
        let StagedUnits { answers, stages } = &mut *self.known.lock();
        ask(answers, stages)
    }

    /// Has `check` decide on a unit by the `keys` of the definitions that `names` gives. The keys are asked for without the lock. If nothing is
    /// against the unit, the one given as `used` is marked so.
    ///
    /// Answers that `names` relied on may be taken back before `check` runs. Then all of it is done again. Each time another unit was rejected, so that
    /// has an end.
    ///
    /// # Errors
    /// Those of `check`.
    pub fn decide<N, K, E>(
        &self,
        used: Option<u32>,
        names: impl Fn(&mut A) -> N,
        keys: impl Fn(N) -> K,
        check: impl Fn(&mut A, &K) -> Result<(), E>,
    ) -> Result<(), E>
    where
        A: Revocable,
    {
        let mark = |stages: &mut [UnitStage]| {
            if let Some(stage) = used.and_then(|unit| stages.get_mut(unit as usize)) {
                *stage = UnitStage::Used;
            }
        };
        let is_later = weakened("image_validate::marks_after_the_check");
        let decided = loop {
            let (names, seen) = self.with(|answers, _| (names(answers), answers.revocations()));
            let keys = keys(names);
            let decided = self.with(|answers, stages| {
                if answers.revocations() != seen && !weakened("image_validate::checks_by_an_older_look") {
                    return None;
                }
                let decided = check(answers, &keys);
                if decided.is_ok() && !is_later {
                    mark(stages);
                }
                Some(decided)
            });
            if let Some(decided) = decided {
                break decided;
            }
        };
        if decided.is_ok() && is_later {
            self.with(|_, stages| mark(stages));
        }
        decided
    }

    /// Has `reject` reject those of the `closure` of a redefinition that are not in use. Those that were rejected before are not counted.
    pub fn redefine(
        &self,
        closure: impl FnOnce(&mut A) -> Vec<u32>,
        reject: impl FnOnce(&mut A, &[u32]),
    ) -> Redefined {
        self.with(|answers, stages| {
            let mut redefined = Redefined::default();
            for unit in closure(answers) {
                match stages.get(unit as usize) {
                    Some(UnitStage::Unused) => redefined.rejected.push(unit),
                    Some(UnitStage::Used) => redefined.in_use.push(unit),
                    Some(UnitStage::Told | UnitStage::FromSource) | None => {}
                }
            }
            if !weakened("image_validate::relies_on_keys_alone") {
                reject(answers, &redefined.rejected);
            }
            redefined
        })
    }
}
