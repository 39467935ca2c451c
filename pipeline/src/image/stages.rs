//! [`UnitStages`]: which units of a package are in use, beside redefinitions of code that they contain.
//!
//! ```text
//!  a unit, at its first use                             a redefinition
//!    ask the host for keys of definitions                 the host gives another key from now on
//!    under the lock: check them, mark the unit used       under the lock: reject the units with its code that are not used
//! ```
//!
//! **Holds.** Either the redefinition finds the unit used, or the unit finds the redefinition. `loom-tests/tests/image_validate.rs` checks it,
//! with this file.

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

    /// Marks a unit used, if `check` has nothing against it.
    ///
    /// # Errors
    /// Those of `check`.
    pub fn begin_use<E>(&self, unit: usize, check: impl FnOnce(&mut A) -> Result<(), E>) -> Result<(), E> {
        let mark = |stages: &mut [UnitStage]| {
            if let Some(stage) = stages.get_mut(unit) {
                *stage = UnitStage::Used;
            }
        };
        let is_later = weakened("image_validate::marks_after_the_check");
        self.with(|answers, stages| {
            check(answers)?;
            if !is_later {
                mark(stages);
            }
            Ok(())
        })?;
        if is_later {
            self.with(|_, stages| mark(stages));
        }
        Ok(())
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
