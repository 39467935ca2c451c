//! Restore: an instance gets code that was compiled before, in another process. The table neither knows where the code is nor how it is found.
//!
//! ```text
//!   claim_or_restore: new ─▶ say what the code assumes ─▶ has none of that changed? ─▶ are the definitions those that it was compiled with?
//!                              │ backedges                  │ no                          │ no          │ yes
//!                              └──────── taken back ◀───────┴─────────────────────────────┘             └▶ publish
//! ```

use std::hash::Hash;

use uruk_core::sync::weakened;

use crate::code_instance::{CodeInstance, CodeInstanceState};
use crate::pointer::CodePointer;
use crate::table::{CodeInstanceTable, InstanceClaim, InstanceCompile, ValidityEnded};
use crate::worlds::World;

/// Why code that was compiled before is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotRestored {
    /// Something that it assumes has changed since the world for which it was claimed.
    #[error(transparent)]
    Ended(#[from] ValidityEnded),
    /// A definition is not the one that it was compiled with.
    #[error("a definition that it assumes is another one here")]
    Other,
}

impl<M: Copy + Eq + Hash, S: Copy + Eq + Hash, P: CodePointer> CodeInstanceTable<M, S, P> {
    /// As [`claim`](Self::claim), and hands a new instance to `restore` before the caller is told to compile: it may have code that was
    /// compiled before, and [restores](InstanceCompile::restore) the instance with that.
    ///
    /// `restore` runs without the lock, on the thread that would compile. Others that want the instance meanwhile find it unset.
    ///
    /// # Panics
    /// If `world` has not begun.
    pub fn claim_or_restore(
        &self,
        method: M,
        specialization: S,
        world: World,
        restore: impl FnOnce(&InstanceCompile<'_, M, S, P>),
    ) -> InstanceClaim<'_, M, S, P> {
        let claim = self.claim(method, specialization, world);
        let InstanceClaim::Compile(compile) = &claim else { return claim };
        restore(compile);
        match compile.instance().read() {
            CodeInstanceState::Unset => claim,
            _ => InstanceClaim::There(compile.instance().clone()),
        }
    }
}

impl<M: Copy + Eq + Hash, S: Copy + Eq + Hash, P: CodePointer> InstanceCompile<'_, M, S, P> {
    /// Publishes code that was compiled before, if it is right here: says that it takes `assumptions` for granted, as
    /// [`assume`](Self::assume) does; then has `holds` look whether each is, in this compile's world, the definition that the code was compiled with;
    /// and then has `publish` publish it.
    ///
    /// If it returns an error, nothing is assumed any more, and the code is compiled as if there had never been other code. A definition that
    /// changes later ends the instance as any other.
    ///
    /// # Errors
    /// [`NotRestored`]: a definition is another one, or has changed since the instance was claimed.
    ///
    /// # Cost
    /// Takes the table's lock once, and once more if it fails. `holds` and `publish` run without it.
    pub fn restore(
        &self,
        assumptions: &[(M, S)],
        holds: impl FnOnce(World) -> bool,
        publish: impl FnOnce(&CodeInstance<P>),
    ) -> Result<(), NotRestored> {
        let said =
            if weakened("invalidate::restores_without_saying") { Ok(()) } else { self.say(assumptions) };
        let outcome = match said {
            Ok(()) if holds(self.world()) => Ok(()),
            Ok(()) => Err(NotRestored::Other),
            Err(ended) => Err(ended.into()),
        };
        match outcome {
            Ok(()) => publish(self.instance()),
            Err(_) => self.take_back(),
        }
        outcome
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;
    use uruk_core::ExecutorAddr;
    use uruk_core::sync::Arc;

    type Table = CodeInstanceTable<&'static str, u32, ExecutorAddr>;

    const CODE: ExecutorAddr = ExecutorAddr::new(0x1000);

    /// Claims `f`, which has code from before that assumes some methods, and says whether that is used.
    fn restored(table: &Table, assumes: &[(&'static str, u32)], holds: bool) -> Result<(), NotRestored> {
        let mut outcome = None;
        let publish =
            |instance: &CodeInstance<ExecutorAddr>| instance.publish_invoke(CODE).expect("it is new");
        let claim = table.claim_or_restore("f", 1, table.world(), |compile| {
            outcome = Some(compile.restore(assumes, |_| holds, publish));
        });
        let outcome = outcome.expect("it is new");
        assert_eq!(matches!(claim, InstanceClaim::There(_)), outcome.is_ok());
        if let InstanceClaim::Compile(compile) = claim {
            compile.instance().publish_invoke(ExecutorAddr::new(0x2000)).expect("it is unset");
        }
        outcome
    }

    #[test]
    fn restored_code_is_found_and_ends_with_what_it_assumes() {
        let table = Table::new();
        let world = table.world();
        assert_eq!(restored(&table, &[("g", 1), ("h", 2)], true), Ok(()));
        let InstanceClaim::There(found) = table.claim_or_restore("f", 1, world, |_| panic!("it is there"))
        else {
            panic!("it was restored")
        };
        assert_eq!(found.invoke(), Some(CODE));
        let redefinition = table.redefine(["h"]);
        assert!(redefinition.ended.len() == 1 && Arc::ptr_eq(&redefinition.ended[0].instance, &found));
        assert!(table.get("f", 1, world).is_some() && table.get("f", 1, redefinition.world).is_none());
    }

    #[test]
    fn rejected_code_leaves_no_assumption() {
        let table = Table::new();
        assert_eq!(restored(&table, &[("g", 1)], false), Err(NotRestored::Other));
        let found = table.get("f", 1, table.world()).expect("it was compiled");
        assert_eq!(found.invoke(), Some(ExecutorAddr::new(0x2000)));
        assert!(table.redefine(["g"]).ended.is_empty(), "its new code does not assume `g`");
    }

    #[test]
    fn code_is_not_restored_for_a_world_that_is_over() {
        let table = Table::new();
        let first = table.world();
        let second = table.redefine(["g"]).world;
        let InstanceClaim::Compile(compile) = table.claim("f", 1, first) else { panic!("it is new") };
        let outcome = compile.restore(&[("g", 1)], |_| panic!("it has changed"), |_| panic!("it has ended"));
        assert_eq!(outcome, Err(NotRestored::Ended(ValidityEnded { until: second })));
    }
}
