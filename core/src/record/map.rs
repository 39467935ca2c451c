//! The map behind the gate: read without locks, its values reclaimed when no reader can see them.
//!
//! Models have for each key a pointer to its value, which promises nothing beyond itself: what orders records and gate has
//! to be in the gate, and a model sees where it is not.

use std::hash::Hash;

use rustc_hash::FxBuildHasher;

#[cfg(any(uruk_loom, uruk_shuttle))]
pub(super) use model::Map;
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
pub(super) use real::Map;

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
mod real {
    use super::*;

    /// Written by one thread at a time, read by any.
    #[derive(Debug)]
    pub(in crate::record) struct Map<K: Hash + Eq + 'static, V: 'static>(
        papaya::HashMap<K, V, FxBuildHasher>,
    );

    impl<K: Hash + Eq + 'static, V: 'static> Map<K, V> {
        pub(in crate::record) fn new() -> Self {
            Self(papaya::HashMap::with_hasher(FxBuildHasher))
        }

        pub(in crate::record) fn guard(&self) -> papaya::LocalGuard<'_> {
            self.0.guard()
        }

        pub(in crate::record) fn get<'g>(&self, key: &K, guard: &'g papaya::LocalGuard<'_>) -> Option<&'g V> {
            self.0.get(key, guard)
        }

        pub(in crate::record) fn insert(&self, key: K, value: V) {
            self.0.pin().insert(key, value);
        }

        pub(in crate::record) fn remove(&self, key: &K) {
            self.0.pin().remove(key);
        }

        pub(in crate::record) fn values(&self) -> Vec<V>
        where
            V: Copy,
        {
            self.0.pin().values().copied().collect()
        }

        pub(in crate::record) fn len(&self) -> usize {
            self.0.len()
        }
    }
}

#[cfg(any(uruk_loom, uruk_shuttle))]
mod model {
    use std::cell::OnceCell;
    use std::collections::HashMap;

    use super::*;
    use crate::sync::atomic::{AtomicUsize, Ordering};
    use crate::sync::{Arc, Hidden};

    #[derive(Debug)]
    pub(in crate::record) struct Map<K, V>(Hidden<Memory<K, V>>);

    #[derive(Debug)]
    struct Memory<K, V> {
        /// By key, where in `values` its value is, or [`NOTHING`].
        places: HashMap<K, Arc<AtomicUsize>, FxBuildHasher>,
        /// Kept until the map goes, as if some reader might still see each of them.
        values: Vec<Arc<V>>,
    }

    const NOTHING: usize = usize::MAX;

    /// Keeps what was read through it, as a list.
    #[derive(Debug)]
    pub(in crate::record) struct Guard<V>(OnceCell<Box<Kept<V>>>);

    #[derive(Debug)]
    struct Kept<V> {
        value: Arc<V>,
        next: Guard<V>,
    }

    impl<K: Hash + Eq + Clone, V> Map<K, V> {
        pub(in crate::record) fn new() -> Self {
            Self(Hidden::new(Memory { places: HashMap::default(), values: Vec::new() }))
        }

        pub(in crate::record) fn guard(&self) -> Guard<V> {
            Guard(OnceCell::new())
        }

        pub(in crate::record) fn get<'g>(&self, key: &K, guard: &'g Guard<V>) -> Option<&'g V> {
            // Relaxed: see the module.
            let index = self.place(key).load(Ordering::Relaxed);
            let value = self.0.with(|memory| memory.values.get(index).cloned())?;
            Some(guard.keep(value))
        }

        pub(in crate::record) fn insert(&self, key: K, value: V) {
            let index = self.0.with(|memory| {
                memory.values.push(Arc::new(value));
                memory.values.len() - 1
            });
            // Relaxed: see the module.
            self.place(&key).store(index, Ordering::Relaxed);
        }

        pub(in crate::record) fn remove(&self, key: &K) {
            // Relaxed: see the module.
            self.place(key).store(NOTHING, Ordering::Relaxed);
        }

        pub(in crate::record) fn values(&self) -> Vec<V>
        where
            V: Copy,
        {
            let places: Vec<_> = self.0.with(|memory| memory.places.values().cloned().collect());
            // Relaxed: see the module.
            let indices: Vec<_> = places.iter().map(|place| place.load(Ordering::Relaxed)).collect();
            self.0.with(|memory| {
                indices.iter().filter_map(|&index| Some(**memory.values.get(index)?)).collect()
            })
        }

        pub(in crate::record) fn len(&self) -> usize {
            let places: Vec<_> = self.0.with(|memory| memory.places.values().cloned().collect());
            // Relaxed: see the module.
            places.iter().filter(|place| place.load(Ordering::Relaxed) != NOTHING).count()
        }

        fn place(&self, key: &K) -> Arc<AtomicUsize> {
            self.0.with(|memory| {
                let nothing = || Arc::new(AtomicUsize::new(NOTHING));
                memory.places.entry(key.clone()).or_insert_with(nothing).clone()
            })
        }
    }

    impl<V> Guard<V> {
        fn keep(&self, value: Arc<V>) -> &V {
            let mut end = self;
            while let Some(kept) = end.0.get() {
                end = &kept.next;
            }
            &end.0.get_or_init(|| Box::new(Kept { value, next: Self(OnceCell::new()) })).value
        }
    }
}
