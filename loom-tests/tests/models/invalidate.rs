//! Invalidate: a definition changes while code that assumes it is compiled, and while callers look for code.
//!
//! ```text
//!  compiles `caller`                     redefines `callee`                  calls
//!  world? claim                          the new definition is in place      world?
//!  definition of `callee` in it          the next world:                     valid in it: call
//!  assumes `callee`: changed since?        ends `callee`, and by backedges
//!  publish                                 `caller`, and who assumed that
//! ```
//!
//! Proven, in every order with at most three preemptions: an instance that is found for a world contains the definitions of
//! that world, its own and those that it assumed. That holds over any number of steps, and however late the assumption was
//! noted. A thread that sees a world sees the definitions that it began with. The assumptions of an instance that was given up
//! are taken back, and those of the next one stay.
//!
//! **Fails if** one of these steps is changed:
//!
//! | weakening | in | caught by |
//! |---|---|---|
//! | `invalidate::assumes_without_a_look`: an assumption is noted without a look whether it still holds | `instances/src/validity.rs` | `what_is_compiled_beside_a_redefinition_contains_no_older_definition` |
//! | `invalidate::looks_at_definitions_alone`: whether the definition has changed is looked at, and not whether the instance has ended whose code was read | `instances/src/validity.rs` | `code_that_contains_code_ends_with_it` |
//! | `invalidate::claims_without_a_look`: an instance is added for a world that is over, without a look whether its method has changed | `instances/src/validity.rs` | `who_was_late_to_claim_compiles_for_the_past` |
//! | `invalidate::begins_the_world_first`: the world begins, the lock is let go, and then validities end | `instances/src/table.rs` | `what_is_called_in_a_world_contains_its_definitions` |
//! | `invalidate::begins_the_world_unordered`: a world is stored without Release | `instances/src/table.rs` | `who_sees_a_world_sees_its_definitions` |
//! | `invalidate::reads_the_world_unordered`: a world is read without Acquire | `instances/src/table.rs` | `who_sees_a_world_sees_its_definitions` |
//! | `invalidate::takes_backedges_back_later`: the lock is let go between taking out an instance that was given up, and its backedges | `instances/src/table.rs` | `what_is_given_up_takes_nothing_from_the_next` |
//! | `invalidate::restores_without_saying`: code from before is published without saying what it assumes | `instances/src/restore.rs` | `what_is_restored_beside_a_redefinition_contains_no_older_definition` |
#![cfg(uruk_loom)]

use std::num::NonZeroU64;

use loom::cell::UnsafeCell;
use loom_tests::stage::model_within;
use uruk_core::sync::{Arc, thread};
use uruk_instances::{CodeInstance, CodeInstanceTable, InstanceClaim, InstanceCompile, World};

const PREEMPTIONS: usize = 3;

/// `callee` is redefined. `caller` contains its code, and `outer` that of `caller`.
const CALLEE: u32 = 1;
const CALLER: u32 = 2;
const OUTER: u32 = 3;

/// There is one specialization of each.
const ONLY: u32 = 0;

type Instance = CodeInstance<NonZeroU64>;
type Compile<'a> = InstanceCompile<'a, u32, u32, NonZeroU64>;

/// The methods, and the definition of `callee` in either world. Its code is the number of the definition that it contains.
#[derive(Default)]
struct Program {
    table: CodeInstanceTable<u32, u32, NonZeroU64>,
    definitions: [UnsafeCell<()>; 2],
}

impl Program {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The definition of `callee` in a world. It must be in place.
    fn definition(&self, world: World) -> NonZeroU64 {
        self.definitions[world.number() as usize].with(|_| ());
        NonZeroU64::MIN.saturating_add(world.number())
    }

    fn redefine(&self) {
        self.definitions[1].with_mut(|_| ());
        let redefinition = self.table.redefine([CALLEE]);
        assert_eq!(redefinition.world.number(), 1);
    }

    /// Claims the method for a world. It must be new.
    fn claim(&self, method: u32, world: World) -> Compile<'_> {
        match self.table.claim(method, ONLY, world) {
            InstanceClaim::Compile(compile) => compile,
            InstanceClaim::There(_) => panic!("nobody else compiles method {method}"),
        }
    }

    /// Compiles a method that has the code of `assumed` in it: which says so after it has read it, the worst order.
    fn compile(&self, method: u32, assumed: Option<u32>) -> Arc<Instance> {
        let compile = self.claim(method, self.table.world());
        let definition = match assumed.and_then(|assumed| self.table.get(assumed, ONLY, compile.world())) {
            Some(code) => code.invoke().expect("it was compiled before"),
            None => self.definition(compile.world()),
        };
        if let Some(assumed) = assumed {
            let _ = compile.assume(assumed, ONLY);
        }
        compile.instance().publish_invoke(definition).expect("nobody else compiles it");
        compile.instance().clone()
    }

    /// Calls the method in the current world, if it is there.
    fn call(&self, method: u32) {
        let world = self.table.world();
        if let Some(code) = self.table.get(method, ONLY, world).and_then(|instance| instance.invoke()) {
            assert_eq!(code, self.definition(world), "method {method} in world {world}");
        }
    }
}

fn beside<T: 'static>(
    program: &Arc<Program>,
    run: impl FnOnce(&Program) -> T + 'static,
) -> thread::JoinHandle<T> {
    let program = program.clone();
    thread::spawn(move || run(&program))
}

#[test]
fn what_is_compiled_beside_a_redefinition_contains_no_older_definition() {
    model_within(PREEMPTIONS, || {
        let program = Program::new();
        let redefiner = beside(&program, Program::redefine);
        program.compile(CALLER, Some(CALLEE));
        redefiner.join().expect("no panic");
        program.call(CALLER);
    });
}

/// The code from before contains the first definition of `callee`.
#[test]
fn what_is_restored_beside_a_redefinition_contains_no_older_definition() {
    model_within(PREEMPTIONS, || {
        let program = Program::new();
        let redefiner = beside(&program, Program::redefine);
        let world = program.table.world();
        let before = NonZeroU64::MIN;
        let claim = program.table.claim_or_restore(CALLER, ONLY, world, |compile| {
            let holds = |world| program.definition(world) == before;
            let publish =
                |instance: &Instance| instance.publish_invoke(before).expect("nobody else compiles it");
            let _ = compile.restore(&[(CALLEE, ONLY)], holds, publish);
        });
        if let InstanceClaim::Compile(compile) = claim {
            let definition = program.definition(world);
            let _ = compile.assume(CALLEE, ONLY);
            compile.instance().publish_invoke(definition).expect("nobody else compiles it");
        }
        redefiner.join().expect("no panic");
        program.call(CALLER);
    });
}

/// ```text
///  outer: reads the code of `caller` ─ assumes `caller`         redefiner: ends `caller`
/// ```
#[test]
fn code_that_contains_code_ends_with_it() {
    model_within(PREEMPTIONS, || {
        let program = Program::new();
        program.compile(CALLER, Some(CALLEE));
        let redefiner = beside(&program, Program::redefine);
        program.compile(OUTER, Some(CALLER));
        redefiner.join().expect("no panic");
        program.call(CALLER);
        program.call(OUTER);
    });
}

#[test]
fn who_was_late_to_claim_compiles_for_the_past() {
    model_within(PREEMPTIONS, || {
        let program = Program::new();
        let redefiner = beside(&program, Program::redefine);
        program.compile(CALLEE, None);
        redefiner.join().expect("no panic");
        program.call(CALLEE);
    });
}

/// ```text
///  compiled before        redefiner: ends it, begins a world       caller: world ─ call
/// ```
#[test]
fn what_is_called_in_a_world_contains_its_definitions() {
    model_within(PREEMPTIONS, || {
        let program = Program::new();
        program.compile(CALLER, Some(CALLEE));
        let redefiner = beside(&program, Program::redefine);
        program.call(CALLER);
        program.call(CALLER);
        redefiner.join().expect("no panic");
        assert!(program.table.get(CALLER, ONLY, program.table.world()).is_none(), "it has ended");
    });
}

#[test]
fn who_sees_a_world_sees_its_definitions() {
    model_within(PREEMPTIONS, || {
        let program = Program::new();
        let redefiner = beside(&program, Program::redefine);
        program.definition(program.table.world());
        redefiner.join().expect("no panic");
        program.definition(program.table.world());
    });
}

/// ```text
///  gives up: claim ─ assume ─ drop        next: claim ─ assume ─ publish        then: redefine
/// ```
#[test]
fn what_is_given_up_takes_nothing_from_the_next() {
    model_within(PREEMPTIONS, || {
        let program = Program::new();
        let given_up = beside(&program, |program| {
            if let InstanceClaim::Compile(compile) = program.table.claim(CALLER, ONLY, World::FIRST) {
                compile.assume(CALLEE, ONLY).expect("nothing has changed");
            }
        });
        if let InstanceClaim::Compile(compile) = program.table.claim(CALLER, ONLY, World::FIRST) {
            compile.assume(CALLEE, ONLY).expect("nothing has changed");
            let code = program.definition(compile.world());
            compile.instance().publish_invoke(code).expect("nobody else compiles it");
        }
        given_up.join().expect("no panic");
        program.redefine();
        program.call(CALLER);
    });
}

loom_tests::catches_its_weakenings!();
