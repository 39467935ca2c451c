//! The table of code instances: one for each method, specialization and range of worlds.
//!
//! A compiler asks it, once a compile. A call never does: its site keeps the instance.
//!
//! **Architecture Invariant:** the instances of one method and specialization have no world in common, so a world has one answer.
//!
//! **Architecture Invariant:** an instance has one [`InstanceCompile`] from its creation until that is dropped.
//!
//! # Why one lock
//!
//! The lock is held for one probe, by somebody who is about to compile for a thousand times as long. A map in parts lets more threads in
//! at once. `dashmap` was no faster when measured (`core/src/code_instance/README.md`), and no model could follow its locks.

use std::collections::HashMap;
use std::hash::Hash;

use crate::sync::{Arc, Mutex, MutexGuard, weakened};

use super::{CodeInstance, CodeInstanceState, CodePointer, World, Worlds};

/// Finds the instance of a method and a specialization that is valid in a world, and lets one thread compile what is missing.
///
/// `M` and `S` are ids of the embedder's. They are `Copy`, so that nothing of the embedder's is dropped under the lock. Their `Eq` and
/// `Hash` do run there, and must not come back to the table.
///
/// # Concurrency
/// Every method may be called from any thread. Each takes the table's lock for one probe.
///
/// ```
/// use uruk_core::{CodeInstanceTable, CodeSignature, ExecutorAddr, InstanceClaim, World, Worlds};
///
/// let table = CodeInstanceTable::<u32, u32, ExecutorAddr>::new();
/// let (method, specialization, world) = (1, 7, World::new(10));
///
/// // The first who asks compiles.
/// let InstanceClaim::Compile(compile) = table.claim(method, specialization, Worlds::since(world)) else { unreachable!() };
/// let [invoke, specptr] = [0x1000, 0x2000].map(ExecutorAddr::new);
/// compile.instance().publish(invoke, specptr, CodeSignature::Specialized).expect("nobody else compiles it");
/// drop(compile);
/// assert!(matches!(table.claim(method, specialization, Worlds::since(world)), InstanceClaim::There(_)));
///
/// // A callee is redefined: callers in older worlds keep the instance, later ones compile anew.
/// let redefined = World::new(12);
/// assert!(table.invalidate(method, specialization, redefined).is_some());
/// assert!(table.get(method, specialization, World::new(11)).is_some());
/// assert!(table.get(method, specialization, redefined).is_none());
/// ```
///
/// Source: Julia, `min_world` and `max_world` of `jl_code_instance_t` in `src/julia.h`.
#[derive(Debug)]
pub struct CodeInstanceTable<M, S, P> {
    entries: Mutex<InstancesByKey<M, S, P>>,
}

/// The instances of each method and specialization, by their first worlds.
type InstancesByKey<M, S, P> = HashMap<(M, S), Vec<ValidInstance<P>>>;

#[derive(Debug)]
struct ValidInstance<P> {
    worlds: Worlds,
    instance: Arc<CodeInstance<P>>,
}

/// What a thread is told that wants an instance.
#[derive(Debug)]
#[must_use = "who is told to compile does, or lets somebody else"]
pub enum InstanceClaim<'a, M: Copy + Eq + Hash, S: Copy + Eq + Hash, P: CodePointer> {
    /// There is one. If it is still unset, somebody compiles it.
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
    instance: Arc<CodeInstance<P>>,
}

impl<M: Copy + Eq + Hash, S: Copy + Eq + Hash, P: CodePointer> CodeInstanceTable<M, S, P> {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self { entries: Mutex::new(HashMap::new()) }
    }

    /// The instance that is valid in `world`, if there is one. It may be unset still.
    pub fn get(&self, method: M, specialization: S, world: World) -> Option<Arc<CodeInstance<P>>> {
        valid_in(&self.entries.lock(), (method, specialization), world)
    }

    /// The instance that is valid in the first of `worlds`, or else a new one, which the caller compiles.
    ///
    /// A new one is valid in `worlds`, as far as no other begins among them.
    pub fn claim(&self, method: M, specialization: S, worlds: Worlds) -> InstanceClaim<'_, M, S, P> {
        let key = (method, specialization);
        let mut entries = self.entries.lock();
        if let Some(there) = valid_in(&entries, key, worlds.from()) {
            return InstanceClaim::There(there);
        }
        if weakened("code_instance::looks_and_claims_in_two_steps") {
            drop(entries);
            entries = self.entries.lock();
        }
        InstanceClaim::Compile(self.insert(entries, key, worlds))
    }

    fn insert(
        &self,
        mut entries: MutexGuard<'_, InstancesByKey<M, S, P>>,
        key: (M, S),
        mut worlds: Worlds,
    ) -> InstanceCompile<'_, M, S, P> {
        let instances = entries.entry(key).or_default();
        let at = instances.partition_point(|valid| valid.worlds.from() < worlds.from());
        if let Some(later) = instances.get(at) {
            worlds.end_at(later.worlds.from());
        }
        let instance = Arc::new(CodeInstance::new());
        instances.insert(at, ValidInstance { worlds, instance: instance.clone() });
        InstanceCompile { table: self, key, instance }
    }

    /// Ends the validity of the instance that would still be valid in `world` and began before it: something that it took for granted
    /// is different from `world` on. Gives that instance.
    ///
    /// An instance that begins in `world` knows what is different, and stays. Who runs the old code goes on.
    pub fn invalidate(&self, method: M, specialization: S, world: World) -> Option<Arc<CodeInstance<P>>> {
        let mut entries = self.entries.lock();
        let mut instances = entries.get_mut(&(method, specialization))?.iter_mut();
        instances.find_map(|valid| valid.worlds.end_at(world).then(|| valid.instance.clone()))
    }

    /// Takes out the instances whose validity has ended by `world`. Nobody asks for older worlds any more.
    pub fn forget(&self, method: M, specialization: S, world: World) -> Vec<Arc<CodeInstance<P>>> {
        let has_ended = |worlds: Worlds| worlds.until().is_some_and(|until| until <= world);
        self.take_out((method, specialization), |valid| has_ended(valid.worlds))
    }

    /// Takes out some instances of a key, and the key with the last of them.
    fn take_out(&self, key: (M, S), goes: impl Fn(&ValidInstance<P>) -> bool) -> Vec<Arc<CodeInstance<P>>> {
        let mut entries = self.entries.lock();
        let Some(instances) = entries.get_mut(&key) else { return Vec::new() };
        let gone = instances.extract_if(.., |valid| goes(valid)).map(|valid| valid.instance).collect();
        if instances.is_empty() {
            entries.remove(&key);
        }
        gone
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
}

impl<M: Copy + Eq + Hash, S: Copy + Eq + Hash, P: CodePointer> Drop for InstanceCompile<'_, M, S, P> {
    fn drop(&mut self) {
        let is_given_up = matches!(self.instance.read(), CodeInstanceState::Unset);
        if is_given_up && !weakened("code_instance::keeps_what_is_given_up") {
            self.table.take_out(self.key, |valid| Arc::ptr_eq(&valid.instance, &self.instance));
        }
    }
}

fn valid_in<M: Eq + Hash, S: Eq + Hash, P>(
    entries: &InstancesByKey<M, S, P>,
    key: (M, S),
    world: World,
) -> Option<Arc<CodeInstance<P>>> {
    let mut instances = entries.get(&key)?.iter();
    instances.find(|valid| valid.worlds.contains(world)).map(|valid| valid.instance.clone())
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;
    use crate::ExecutorAddr;

    type Table = CodeInstanceTable<u32, u32, ExecutorAddr>;

    /// Claims an instance of the one method and publishes it.
    fn compiled(table: &Table, worlds: Worlds) -> Arc<CodeInstance<ExecutorAddr>> {
        let InstanceClaim::Compile(compile) = table.claim(1, 1, worlds) else {
            panic!("it is there: {worlds:?}")
        };
        compile.instance().publish_invoke(ExecutorAddr::new(0x1000)).unwrap();
        compile.instance().clone()
    }

    fn found(table: &Table, world: u64, instance: Option<&Arc<CodeInstance<ExecutorAddr>>>) {
        let found = table.get(1, 1, World::new(world));
        assert_eq!(found.as_ref().map(Arc::as_ptr), instance.map(Arc::as_ptr), "in world {world}");
    }

    #[test]
    fn a_world_has_one_answer() {
        let table = Table::new();
        let [third, fifth, seventh] = [3, 5, 7].map(World::new);
        let old = compiled(&table, Worlds::since(third));
        assert!(Arc::ptr_eq(&table.invalidate(1, 1, fifth).unwrap(), &old));
        let new = compiled(&table, Worlds::since(seventh));
        found(&table, 2, None);
        found(&table, 4, Some(&old));
        found(&table, 6, None);
        found(&table, 9, Some(&new));
        // A claim in the past ends where a later instance begins.
        let between = compiled(&table, Worlds::since(fifth));
        found(&table, 6, Some(&between));
        found(&table, 7, Some(&new));
        assert!(table.get(1, 2, seventh).is_none() && table.get(2, 1, seventh).is_none());
    }

    #[test]
    fn an_instance_of_the_new_world_survives_the_redefinition_that_began_it() {
        let table = Table::new();
        let fifth = World::new(5);
        let new = compiled(&table, Worlds::since(fifth));
        assert!(table.invalidate(1, 1, fifth).is_none());
        found(&table, 5, Some(&new));
    }

    #[test]
    fn what_is_given_up_is_compiled_by_the_next() {
        let table = Table::new();
        let worlds = Worlds::since(World::new(1));
        let InstanceClaim::Compile(first) = table.claim(1, 1, worlds) else { panic!("the table is empty") };
        assert!(matches!(table.claim(1, 1, worlds), InstanceClaim::There(_)), "one compiles");
        drop(first);
        assert!(matches!(table.claim(1, 1, worlds), InstanceClaim::Compile(_)));
        assert!(table.entries.lock().is_empty(), "nothing is left of it");
    }

    #[test]
    fn what_has_ended_is_forgotten() {
        let table = Table::new();
        let [third, fifth] = [3, 5].map(World::new);
        let old = compiled(&table, Worlds::since(third));
        assert!(table.forget(1, 1, fifth).is_empty(), "it has no end");
        table.invalidate(1, 1, fifth);
        assert!(table.forget(1, 1, World::new(4)).is_empty(), "callers in world 4 may ask");
        let gone = table.forget(1, 1, fifth);
        assert!(gone.len() == 1 && Arc::ptr_eq(&gone[0], &old));
        assert!(table.entries.lock().is_empty());
    }
}
