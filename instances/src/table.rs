//! The table of code instances: one for each method, specialization and range of worlds.
//!
//! A compiler asks it, once a compile. A call asks for the world alone: its site keeps the instance of that world.
//!
//! **Architecture Invariant:** the instances of one method and specialization have no world in common, so a world has one answer.
//!
//! **Architecture Invariant:** an instance has one [`InstanceCompile`] from its creation until that is dropped.
//!
//! **Architecture Invariant:** an instance that is valid in a world assumes nothing that had changed when that world began.
//!
//! # Why one lock
//!
//! The lock is held for one probe, by a thread that is about to compile for a thousand times as long. A map in parts lets more threads
//! in at once. `dashmap` was no faster when measured (`instances/README.md`), and no model could follow its locks.

use std::hash::Hash;

use uruk_core::sync::atomic::{AtomicU64, Ordering};
use uruk_core::sync::{Arc, Mutex, weakened};

use crate::code_instance::{CodeInstance, CodeInstanceState, unless};
use crate::pointer::CodePointer;
use crate::validity::Validity;
use crate::worlds::World;

/// Finds the instance of a method and a specialization that is valid in a world, and lets one thread compile a missing one. When a
/// definition changes, it ends the validity of instances that assumed it.
///
/// `M` and `S` are ids of the embedder's: of methods, and of anything else that code may assume. They are `Copy`, so that nothing of the
/// embedder's is dropped under the lock. Their `Eq` and `Hash` do run there, and must not come back to the table.
///
/// # Concurrency
/// Every method may be called from any thread. Each but [`world`](Self::world) takes the table's lock for one probe.
///
/// ```
/// use uruk_core::ExecutorAddr;
/// use uruk_instances::{CodeInstanceTable, CodeSignature, InstanceClaim};
///
/// let table = CodeInstanceTable::<&str, u32, ExecutorAddr>::new();
/// let before = table.world();
///
/// // The first claim compiles, and names its assumptions: `outer` contains the code of `inner`.
/// let InstanceClaim::Compile(compile) = table.claim("outer", 7, before) else { unreachable!() };
/// compile.assume("inner", 7).expect("nothing has changed");
/// let [invoke, specptr] = [0x1000, 0x2000].map(ExecutorAddr::new);
/// compile.instance().publish(invoke, specptr, CodeSignature::Specialized).expect("no other thread compiles it");
/// drop(compile);
/// assert!(matches!(table.claim("outer", 7, before), InstanceClaim::There(_)));
///
/// // `inner` is redefined: callers in older worlds keep the instance, later ones compile anew.
/// let redefinition = table.redefine(["inner"]);
/// assert_eq!(redefinition.ended[0].method, "outer");
/// assert!(table.get("outer", 7, before).is_some());
/// assert!(matches!(table.claim("outer", 7, table.world()), InstanceClaim::Compile(_)));
/// ```
///
/// Source: Julia, `min_world` and `max_world` of `jl_code_instance_t` in `src/julia.h`; `jl_method_table_insert` in `src/gf.c`.
#[derive(Debug)]
pub struct CodeInstanceTable<M, S, P> {
    validity: Mutex<Validity<M, S, P>>,
    /// The current world, for those who do not ask for more. Written under the lock.
    world: AtomicU64,
}

/// The answer to a thread that wants an instance.
#[derive(Debug)]
#[must_use = "the thread that is told to compile does, or drops the duty"]
pub enum InstanceClaim<'a, M: Copy + Eq + Hash, S: Copy + Eq + Hash, P: CodePointer> {
    /// There is one. If it is still unset, it is being compiled.
    There(Arc<CodeInstance<P>>),
    /// It is new, and this thread compiles it.
    Compile(InstanceCompile<'a, M, S, P>),
}

/// The duty to compile one instance.
///
/// If it is dropped while nothing is published, the instance leaves the table and the next thread that asks compiles. So a thread that holds
/// an instance which stays unset asks the table again.
#[derive(Debug)]
pub struct InstanceCompile<'a, M: Copy + Eq + Hash, S: Copy + Eq + Hash, P: CodePointer> {
    table: &'a CodeInstanceTable<M, S, P>,
    key: (M, S),
    world: World,
    instance: Arc<CodeInstance<P>>,
}

/// The changes of a redefinition.
#[derive(Debug)]
#[must_use = "entries that lead to what ended are led elsewhere"]
pub struct Redefinition<M, S, P> {
    /// The world that it began.
    pub world: World,
    /// The instances that are not valid any more: those of the redefined methods, and those that assumed any that ended, in no
    /// particular order.
    pub ended: Vec<EndedInstance<M, S, P>>,
}

/// An instance whose validity ended.
#[derive(Debug)]
pub struct EndedInstance<M, S, P> {
    /// Its method.
    pub method: M,
    /// Its specialization.
    pub specialization: S,
    /// The instance. If it is unset, it is still being compiled.
    pub instance: Arc<CodeInstance<P>>,
}

/// Something that an instance was to assume has changed since the world for which it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what it assumes has changed: it is not valid in world {until}")]
pub struct ValidityEnded {
    /// The first world in which the instance is not valid.
    pub until: World,
}

impl<M: Copy + Eq + Hash, S: Copy + Eq + Hash, P: CodePointer> CodeInstanceTable<M, S, P> {
    /// Creates an empty table, in the first world.
    pub fn new() -> Self {
        Self { validity: Mutex::new(Validity::new()), world: AtomicU64::new(World::FIRST.number()) }
    }

    /// The current world. A thread that sees it also sees all definitions made before it began.
    ///
    /// A call site keeps an instance and the world in which it got it. While the world is the same, the instance is valid.
    ///
    /// # Cost
    /// One load.
    #[inline]
    #[doc(alias = "jl_get_world_counter")]
    pub fn world(&self) -> World {
        // ordering[world-begins]: Acquire. Pairs with the Release in `redefine`: the definitions of that world are seen. Model:
        // loom-tests/tests/models/invalidate.rs.
        World::new(
            self.world.load(unless(weakened("invalidate::reads_the_world_unordered"), Ordering::Acquire)),
        )
    }

    /// The instance that is valid in `world`, if there is one. It may be unset still.
    pub fn get(&self, method: M, specialization: S, world: World) -> Option<Arc<CodeInstance<P>>> {
        self.validity.lock().valid_in((method, specialization), world)
    }

    /// The instance that is valid in `world`, or else a new one, which the caller compiles: from the definitions of that world.
    ///
    /// A new one is valid from `world` on. Its validity has ended already if the method was redefined since, or if another instance begins later.
    ///
    /// # Panics
    /// If `world` has not begun.
    pub fn claim(&self, method: M, specialization: S, world: World) -> InstanceClaim<'_, M, S, P> {
        let key = (method, specialization);
        let mut validity = self.validity.lock();
        if let Some(there) = validity.valid_in(key, world) {
            return InstanceClaim::There(there);
        }
        if weakened("code_instance::looks_and_claims_in_two_steps") {
            drop(validity);
            validity = self.validity.lock();
        }
        let instance = validity.add(key, world);
        InstanceClaim::Compile(InstanceCompile { table: self, key, world, instance })
    }

    /// Says that the definitions of `methods` are different from now on: begins the next world, and ends the validity of their instances, of
    /// those that [assumed](InstanceCompile::assume) them, of those that assumed these, and so on.
    ///
    /// The new definitions are in place before this is called: any thread that sees the new world may read them. A compile for the new
    /// world never gets an instance that assumed an older definition, however late it said so. Threads in old code go on.
    ///
    /// # Cost
    /// Holds the lock for about 0.2 µs for each instance that ends and each of its assumptions.
    #[doc(alias = "jl_method_table_insert")]
    pub fn redefine(&self, methods: impl IntoIterator<Item = M>) -> Redefinition<M, S, P> {
        let methods: Vec<M> = methods.into_iter().collect(); // without the lock: it is the embedder's code
        let mut validity = self.validity.lock();
        let world = validity.begin_world();
        let announce = || {
            // ordering[world-begins]: Release. Pairs with the Acquire in `world`: the new definitions are seen.
            let release = unless(weakened("invalidate::begins_the_world_unordered"), Ordering::Release);
            self.world.store(world.number(), release);
        };
        if weakened("invalidate::begins_the_world_first") {
            announce();
            drop(validity);
            validity = self.validity.lock();
        }
        let ended = validity.redefine(&methods);
        announce();
        Redefinition { world, ended }
    }

    /// Takes out the instances whose validity has ended by `oldest`, the oldest world for which anybody will ask. Gives them.
    ///
    /// A later claim for an older world compiles for that world alone.
    ///
    /// # Panics
    /// If `oldest` has not begun.
    ///
    /// # Cost
    /// Goes through the whole table.
    pub fn forget(&self, oldest: World) -> Vec<Arc<CodeInstance<P>>> {
        self.validity.lock().forget(oldest)
    }
}

impl<M: Copy + Eq + Hash, S: Copy + Eq + Hash, P: CodePointer> Default for CodeInstanceTable<M, S, P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Copy + Eq + Hash, S: Copy + Eq + Hash, P: CodePointer> InstanceCompile<'_, M, S, P> {
    /// The instance, to be published.
    pub fn instance(&self) -> &Arc<CodeInstance<P>> {
        &self.instance
    }

    /// The world for whose definitions it is compiled.
    pub fn world(&self) -> World {
        self.world
    }

    /// The method and the specialization.
    pub fn key(&self) -> (M, S) {
        self.key
    }

    /// Says all of it, under one lock.
    pub(crate) fn say(&self, assumptions: &[(M, S)]) -> Result<(), ValidityEnded> {
        let mut validity = self.table.validity.lock();
        let mut said =
            assumptions.iter().map(|callee| validity.assume(self.key, self.world, &self.instance, *callee));
        said.find_map(|until| until).map_or(Ok(()), |until| Err(ValidityEnded { until }))
    }

    /// Takes back what was said.
    pub(crate) fn take_back(&self) {
        let mut validity = self.table.validity.lock();
        let assumed = validity.take_assumptions(self.key, &self.instance);
        validity.take_backedges(self.key, assumed);
    }

    /// Says that the code takes `method`, as it is in this compile's [`world`](Self::world), for granted: has its code inlined, or knows what
    /// it returns. That ends with the next definition of `method`, and with the validity of that instance of it which is valid in the world.
    ///
    /// It is said before the instance is published, and before or after the definition is read.
    ///
    /// # Errors
    /// It has ended already. The instance is valid for callers in older worlds, but not in the current one.
    #[doc(alias = "jl_method_instance_add_backedge")]
    pub fn assume(&self, method: M, specialization: S) -> Result<(), ValidityEnded> {
        let mut validity = self.table.validity.lock();
        let until = validity.assume(self.key, self.world, &self.instance, (method, specialization));
        until.map_or(Ok(()), |until| Err(ValidityEnded { until }))
    }
}

impl<M: Copy + Eq + Hash, S: Copy + Eq + Hash, P: CodePointer> Drop for InstanceCompile<'_, M, S, P> {
    fn drop(&mut self) {
        let is_given_up = matches!(self.instance.read(), CodeInstanceState::Unset);
        if !is_given_up || weakened("code_instance::keeps_what_is_given_up") {
            return;
        }
        let mut validity = self.table.validity.lock();
        let assumed = validity.take_out(self.key, &self.instance);
        if weakened("invalidate::takes_backedges_back_later") {
            drop(validity);
            validity = self.table.validity.lock();
        }
        validity.take_backedges(self.key, assumed);
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;
    use uruk_core::ExecutorAddr;

    type Table = CodeInstanceTable<&'static str, u32, ExecutorAddr>;
    type Instance = Arc<CodeInstance<ExecutorAddr>>;

    /// Claims an instance and publishes it, and what it was told of its assumptions.
    fn compiled(
        table: &Table,
        method: &'static str,
        world: World,
        assumes: &[&'static str],
    ) -> (Instance, Vec<Result<(), ValidityEnded>>) {
        let InstanceClaim::Compile(compile) = table.claim(method, 1, world) else {
            panic!("it is there: {method} in world {world}")
        };
        let told = assumes.iter().map(|callee| compile.assume(callee, 1)).collect();
        compile.instance().publish_invoke(ExecutorAddr::new(0x1000)).unwrap();
        (compile.instance().clone(), told)
    }

    fn found(table: &Table, method: &'static str, world: World, instance: Option<&Instance>) {
        let found = table.get(method, 1, world);
        assert_eq!(found.as_ref().map(Arc::as_ptr), instance.map(Arc::as_ptr), "{method} in world {world}");
    }

    fn names(redefinition: &Redefinition<&'static str, u32, ExecutorAddr>) -> Vec<&'static str> {
        let mut names: Vec<_> = redefinition.ended.iter().map(|ended| ended.method).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_world_has_one_answer() {
        let table = Table::new();
        let first = table.world();
        let (old, _) = compiled(&table, "f", first, &[]);
        let second = table.redefine(["f"]).world;
        let third = table.redefine(["g"]).world;
        assert_eq!((table.world(), third), (third, second.next()));
        let (new, _) = compiled(&table, "f", third, &[]);
        found(&table, "f", first, Some(&old));
        found(&table, "f", second, None);
        found(&table, "f", third, Some(&new));
        // A claim in the past ends where a later instance begins.
        let (between, _) = compiled(&table, "f", second, &[]);
        found(&table, "f", second, Some(&between));
        found(&table, "f", third, Some(&new));
        assert!(table.get("f", 2, third).is_none() && table.get("g", 1, third).is_none());
    }

    #[test]
    fn a_redefinition_ends_what_assumed_the_method_and_those_that_assumed_that() {
        let table = Table::new();
        let first = table.world();
        let (inner, _) = compiled(&table, "inner", first, &[]);
        let (middle, told) = compiled(&table, "middle", first, &["inner"]);
        assert_eq!(told, [Ok(())]);
        // It has the code of `middle` in it, and does not say what came with that.
        let (outer, _) = compiled(&table, "outer", first, &["middle", "outer"]);
        let (other, _) = compiled(&table, "other", first, &["middle of something else"]);
        let redefinition = table.redefine(["inner"]);
        assert_eq!(names(&redefinition), ["inner", "middle", "outer"]);
        for (method, old) in [("inner", &inner), ("middle", &middle), ("outer", &outer)] {
            found(&table, method, first, Some(old));
            found(&table, method, redefinition.world, None);
        }
        found(&table, "other", redefinition.world, Some(&other));
        assert!(table.redefine(["inner"]).ended.is_empty(), "they have ended");
    }

    #[test]
    fn what_ended_assumes_nothing_any_more() {
        let table = Table::new();
        let (_, told) = compiled(&table, "caller", table.world(), &["f", "g"]);
        assert_eq!(told, [Ok(()), Ok(())]);
        assert_eq!(names(&table.redefine(["f"])), ["caller"]);
        let (new, _) = compiled(&table, "caller", table.world(), &["f"]);
        assert!(table.redefine(["g"]).ended.is_empty(), "the new one does not assume `g`");
        found(&table, "caller", table.world(), Some(&new));
    }

    #[test]
    fn several_methods_change_in_one_world() {
        let table = Table::new();
        let first = table.world();
        compiled(&table, "caller", first, &["f", "g"]);
        let redefinition = table.redefine(["f", "g"]);
        assert_eq!((names(&redefinition), redefinition.world), (vec!["caller"], first.next()));
    }

    #[test]
    fn who_compiles_for_a_world_that_is_over_is_told_and_valid_there_alone() {
        let table = Table::new();
        let first = table.world();
        let second = table.redefine(["f"]).world;
        let ended = Err(ValidityEnded { until: second });
        // The definition changed before it said that it assumes it.
        let (caller, told) = compiled(&table, "caller", first, &["g", "f", "g"]);
        assert_eq!(told, [Ok(()), ended, ended]);
        found(&table, "caller", first, Some(&caller));
        found(&table, "caller", second, None);
        assert!(table.redefine(["g"]).ended.is_empty(), "it has ended, and nothing leads to it");
        // Its own definition changed.
        let (f, told) = compiled(&table, "f", first, &["g"]);
        assert_eq!(told, [ended]);
        found(&table, "f", first, Some(&f));
        found(&table, "f", second, None);
    }

    /// The code of a callee is valid for less long than its definition: it contains other code.
    #[test]
    fn an_assumption_ends_with_the_instance_that_was_assumed() {
        let table = Table::new();
        let first = table.world();
        compiled(&table, "middle", first, &["inner"]);
        let InstanceClaim::Compile(outer) = table.claim("outer", 1, first) else { panic!("it is new") };
        // Here the code of `middle` is read.
        let second = table.redefine(["inner"]).world;
        assert_eq!(outer.assume("middle", 1), Err(ValidityEnded { until: second }));
    }

    #[test]
    fn what_is_given_up_is_compiled_by_the_next() {
        let table = Table::new();
        let InstanceClaim::Compile(first) = table.claim("f", 1, table.world()) else { panic!("it is new") };
        assert!(matches!(table.claim("f", 1, table.world()), InstanceClaim::There(_)), "one compiles");
        assert_eq!(first.assume("g", 1), Ok(()));
        drop(first);
        assert!(table.validity.lock().is_empty(), "nothing is left of it");
        assert!(matches!(table.claim("f", 1, table.world()), InstanceClaim::Compile(_)));
    }

    #[test]
    fn what_has_ended_is_forgotten() {
        let table = Table::new();
        let first = table.world();
        let (old, _) = compiled(&table, "f", first, &["g"]);
        assert!(table.forget(first).is_empty(), "it has no end");
        let second = table.redefine(["g"]).world;
        assert!(table.forget(first).is_empty(), "callers in the first world may ask");
        let gone = table.forget(second);
        assert!(gone.len() == 1 && Arc::ptr_eq(&gone[0], &old));
        assert!(table.validity.lock().is_empty());
        // The changes since then are no longer known.
        let (late, told) = compiled(&table, "f", first, &["g"]);
        assert_eq!(told, [Err(ValidityEnded { until: second })]);
        found(&table, "f", first, Some(&late));
        found(&table, "f", second, None);
    }

    #[test]
    #[should_panic(expected = "world 7 has not begun")]
    fn no_thread_compiles_for_the_future() {
        let _ = Table::new().claim("f", 1, World::new(7));
    }
}
