//! Which instance is valid in which worlds, and what it assumed: the state behind the lock of the [table](crate::CodeInstanceTable).
//!
//! ```text
//!   caller ── assumes ──▶ callee        what the compile of the caller says
//!   caller ◀─ assumed by ─ callee       the backedge, by which a redefinition finds the caller
//! ```
//!
//! **Architecture Invariant:** backedges lead to keys whose open instance assumed what they come from. An instance is open while its validity
//! has no end. A key has at most one, the last.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use uruk_core::sync::{Arc, weakened};

use crate::code_instance::CodeInstance;
use crate::pointer::CodePointer;
use crate::table::EndedInstance;
use crate::worlds::{World, Worlds};

/// A method and a specialization.
pub(crate) type Key<M, S> = (M, S);

#[derive(Debug)]
pub(crate) struct Validity<M, S, P> {
    /// The current one.
    world: World,
    /// Changes before this world may be forgotten.
    oldest: World,
    methods: HashMap<M, Method<M, S, P>>,
}

#[derive(Debug)]
struct Method<M, S, P> {
    /// The world that began when its definition changed, if that is remembered.
    changed: Option<World>,
    specializations: HashMap<S, Specialization<M, S, P>>,
}

#[derive(Debug)]
struct Specialization<M, S, P> {
    /// By their first worlds.
    instances: Vec<ValidInstance<M, S, P>>,
    assumed_by: HashSet<Key<M, S>>,
}

#[derive(Debug)]
struct ValidInstance<M, S, P> {
    worlds: Worlds,
    instance: Arc<CodeInstance<P>>,
    /// The keys that have a backedge to it.
    assumes: HashSet<Key<M, S>>,
}

impl<M: Copy + Eq + Hash, S: Copy + Eq + Hash, P: CodePointer> Validity<M, S, P> {
    pub(crate) fn new() -> Self {
        Self { world: World::FIRST, oldest: World::FIRST, methods: HashMap::new() }
    }

    pub(crate) fn valid_in(&self, key: Key<M, S>, world: World) -> Option<Arc<CodeInstance<P>>> {
        self.find_valid(key, world).map(|valid| valid.instance.clone())
    }

    /// Adds an instance, where none is valid in `world`: from that on, as long as neither another instance begins nor the definition changes.
    pub(crate) fn add(&mut self, key: Key<M, S>, world: World) -> Arc<CodeInstance<P>> {
        assert!(world <= self.world, "world {world} has not begun: the current one is {}", self.world);
        let mut worlds = Worlds::since(world);
        if let Some(until) = self.change_after(key, world)
            && !weakened("invalidate::claims_without_a_look")
        {
            worlds.end_at(until);
        }
        let instances = &mut self.specialization(key).instances;
        let at = instances.partition_point(|valid| valid.worlds.from() < world);
        if let Some(later) = instances.get(at) {
            worlds.end_at(later.worlds.from());
        }
        let instance = Arc::new(CodeInstance::new());
        instances.insert(at, ValidInstance { worlds, instance: instance.clone(), assumes: HashSet::new() });
        instance
    }

    /// Notes that an instance, which was added in `world`, assumes `callee`. Gives the end of its validity, if that has come.
    pub(crate) fn assume(
        &mut self,
        caller: Key<M, S>,
        world: World,
        instance: &Arc<CodeInstance<P>>,
        callee: Key<M, S>,
    ) -> Option<World> {
        if let Some(until) = self.change_after(callee, world)
            && !weakened("invalidate::assumes_without_a_look")
        {
            self.end_if(caller, until, |valid| Arc::ptr_eq(&valid.instance, instance));
        }
        // Forgotten instances have ended too.
        let mut instances = self.find_mut(caller).into_iter().flat_map(|caller| &mut caller.instances);
        let Some(valid) = instances.find(|valid| Arc::ptr_eq(&valid.instance, instance)) else {
            return Some(world.next());
        };
        if let Some(until) = valid.worlds.until() {
            return Some(until);
        }
        valid.assumes.insert(callee);
        self.specialization(callee).assumed_by.insert(caller);
        None
    }

    /// The first world after `world` in which `key` may be something else than in that one.
    ///
    /// Code that holds the instance's code ends with that instance. Code that holds the definition alone ends where that changed; of several
    /// changes only the last is known, so there it ends at once.
    fn change_after(&self, key: Key<M, S>, world: World) -> Option<World> {
        if let Some(valid) = self.find_valid(key, world)
            && !weakened("invalidate::looks_at_definitions_alone")
        {
            return valid.worlds.until();
        }
        let changed = self.methods.get(&key.0).and_then(|method| method.changed).unwrap_or(self.oldest);
        (changed.max(self.oldest) > world).then(|| world.next())
    }

    /// Begins the next world.
    pub(crate) fn begin_world(&mut self) -> World {
        self.world = self.world.next();
        self.world
    }

    /// Ends, where the current world begins, the validity of the instances of `methods` and of what assumed them, and so on. Gives those.
    pub(crate) fn redefine(&mut self, methods: &[M]) -> Vec<EndedInstance<M, S, P>> {
        let mut keys = Vec::new();
        for method in methods {
            let known = self.methods.entry(*method).or_default();
            known.changed = Some(self.world);
            keys.extend(known.specializations.keys().map(|specialization| (*method, *specialization)));
        }
        let mut ended = Vec::new();
        while let Some(key) = keys.pop() {
            let Some(specialization) = self.find_mut(key) else { continue };
            keys.extend(specialization.assumed_by.drain());
            let (method, specialization) = key;
            let instance = self.end_if(key, self.world, |_| true);
            ended.extend(instance.map(|instance| EndedInstance { method, specialization, instance }));
            self.forget_if_empty(key);
        }
        ended
    }

    /// Ends the open instance of a key, if it is that one, and takes its backedges back.
    fn end_if(
        &mut self,
        key: Key<M, S>,
        until: World,
        is_it: impl Fn(&ValidInstance<M, S, P>) -> bool,
    ) -> Option<Arc<CodeInstance<P>>> {
        let last = self.find_mut(key)?.instances.last_mut()?;
        if last.worlds.until().is_some() || !is_it(last) || !last.worlds.end_at(until) {
            return None;
        }
        let (instance, assumes) = (last.instance.clone(), std::mem::take(&mut last.assumes));
        self.take_backedges(key, assumes);
        Some(instance)
    }

    /// Takes out an instance that is not being compiled any more. Its backedges are to be [taken back](Self::take_backedges) at
    /// once.
    pub(crate) fn take_out(&mut self, key: Key<M, S>, instance: &Arc<CodeInstance<P>>) -> HashSet<Key<M, S>> {
        let Some(Specialization { instances, .. }) = self.find_mut(key) else { return HashSet::new() };
        let at = instances.iter().position(|valid| Arc::ptr_eq(&valid.instance, instance));
        let gone = at.map(|at| instances.remove(at));
        self.forget_if_empty(key);
        gone.map(|valid| valid.assumes).unwrap_or_default()
    }

    /// Takes what an instance assumes. Its backedges are to be [taken back](Self::take_backedges) at once.
    pub(crate) fn take_assumptions(
        &mut self,
        key: Key<M, S>,
        instance: &Arc<CodeInstance<P>>,
    ) -> HashSet<Key<M, S>> {
        let mut instances = self.find_mut(key).into_iter().flat_map(|of_key| &mut of_key.instances);
        let valid = instances.find(|valid| Arc::ptr_eq(&valid.instance, instance));
        valid.map(|valid| std::mem::take(&mut valid.assumes)).unwrap_or_default()
    }

    pub(crate) fn take_backedges(&mut self, caller: Key<M, S>, assumed: HashSet<Key<M, S>>) {
        for callee in assumed {
            if let Some(callee) = self.find_mut(callee) {
                callee.assumed_by.remove(&caller);
            }
            self.forget_if_empty(callee);
        }
    }

    /// Forgets the instances that ended before `oldest` began or with that, and what changed by then.
    pub(crate) fn forget(&mut self, oldest: World) -> Vec<Arc<CodeInstance<P>>> {
        assert!(oldest <= self.world, "world {oldest} has not begun: the current one is {}", self.world);
        self.oldest = self.oldest.max(oldest);
        let has_ended = |worlds: Worlds| worlds.until().is_some_and(|until| until <= oldest);
        let mut gone = Vec::new();
        for method in self.methods.values_mut() {
            method.changed.take_if(|changed| *changed <= oldest);
            for specialization in method.specializations.values_mut() {
                let instances = specialization.instances.extract_if(.., |valid| has_ended(valid.worlds));
                gone.extend(instances.map(|valid| valid.instance));
            }
            method.specializations.retain(|_, specialization| !specialization.is_empty());
        }
        self.methods.retain(|_, method| !method.is_empty());
        gone
    }

    fn forget_if_empty(&mut self, (method, specialization): Key<M, S>) {
        let Some(of_method) = self.methods.get_mut(&method) else { return };
        if of_method.specializations.get(&specialization).is_some_and(Specialization::is_empty) {
            of_method.specializations.remove(&specialization);
        }
        if of_method.is_empty() {
            self.methods.remove(&method);
        }
    }

    fn find_valid(
        &self,
        (method, specialization): Key<M, S>,
        world: World,
    ) -> Option<&ValidInstance<M, S, P>> {
        let specialization = self.methods.get(&method)?.specializations.get(&specialization)?;
        specialization.instances.iter().find(|valid| valid.worlds.contains(world))
    }

    fn find_mut(&mut self, (method, specialization): Key<M, S>) -> Option<&mut Specialization<M, S, P>> {
        self.methods.get_mut(&method)?.specializations.get_mut(&specialization)
    }

    fn specialization(&mut self, (method, specialization): Key<M, S>) -> &mut Specialization<M, S, P> {
        self.methods.entry(method).or_default().specializations.entry(specialization).or_default()
    }

    #[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
    pub(crate) fn is_empty(&self) -> bool {
        self.methods.is_empty()
    }
}

impl<M, S, P> Method<M, S, P> {
    fn is_empty(&self) -> bool {
        self.changed.is_none() && self.specializations.is_empty()
    }
}

impl<M, S, P> Specialization<M, S, P> {
    fn is_empty(&self) -> bool {
        self.instances.is_empty() && self.assumed_by.is_empty()
    }
}

impl<M, S, P> Default for Method<M, S, P> {
    fn default() -> Self {
        Self { changed: None, specializations: HashMap::new() }
    }
}

impl<M, S, P> Default for Specialization<M, S, P> {
    fn default() -> Self {
        Self { instances: Vec::new(), assumed_by: HashSet::new() }
    }
}
