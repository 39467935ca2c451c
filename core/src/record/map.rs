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

    /// So many values that were replaced or removed a thread gathers before it asks which readers may still see them.
    /// Asking interrupts every processor that runs a thread of ours, which removing a large tracker should not do every
    /// few dozen symbols; what is gathered costs each thread that writes some kilobytes.
    const BATCH: usize = 256;

    /// Written by one thread at a time, read by any.
    ///
    /// Each map has its own collector. One for several would free, when any of them is dropped, what readers of the others
    /// still see.
    #[derive(Debug)]
    pub(in crate::record) struct Map<K: Hash + Eq + 'static, V: 'static>(
        papaya::HashMap<K, V, FxBuildHasher>,
    );

    impl<K: Hash + Eq + 'static, V: 'static> Map<K, V> {
        pub(in crate::record) fn new() -> Self {
            Self::with_batch(BATCH)
        }

        /// A map whose values are freed when so many were replaced or removed.
        pub(in crate::record) fn with_batch(batch: usize) -> Self {
            let collector = seize::Collector::new().batch_size(batch);
            Self(papaya::HashMap::builder().hasher(FxBuildHasher).collector(collector).build())
        }

        pub(in crate::record) fn guard(&self) -> papaya::LocalGuard<'_> {
            self.0.guard()
        }

        pub(in crate::record) fn get<'g>(&self, key: &K, guard: &'g papaya::LocalGuard<'_>) -> Option<&'g V> {
            self.0.get(key, guard)
        }

        /// For the one thread that writes.
        pub(in crate::record) fn current<'g>(
            &self,
            key: &K,
            guard: &'g papaya::LocalGuard<'_>,
        ) -> Option<&'g V> {
            self.0.get(key, guard)
        }

        /// Says whether the key had no value.
        pub(in crate::record) fn insert(&self, key: K, value: V) -> bool {
            self.0.pin().insert(key, value).is_none()
        }

        /// Says whether the key had a value.
        pub(in crate::record) fn remove(&self, key: &K) -> bool {
            self.0.pin().remove(key).is_some()
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
    pub(in crate::record) struct Map<K, V> {
        /// For each key, where in `values` its value is, or [`NOTHING`]. All are there from the beginning: whatever made one
        /// later would have to be ordered before its first reader.
        places: Vec<AtomicUsize>,
        memory: Hidden<MapMemory<K, V>>,
    }

    #[derive(Debug)]
    struct MapMemory<K, V> {
        /// Which of the places a key has, and what is in it.
        keys: HashMap<K, (usize, usize), FxBuildHasher>,
        /// Kept until the map goes, as if some reader might still see each of them.
        values: Vec<Arc<V>>,
    }

    const NOTHING: usize = usize::MAX;

    /// So many keys a model may have.
    const PLACES: usize = if cfg!(uruk_loom) { 6 } else { 64 };

    /// Keeps what was read through it, as a list.
    #[derive(Debug)]
    pub(in crate::record) struct Guard<V>(OnceCell<Box<KeptValue<V>>>);

    #[derive(Debug)]
    struct KeptValue<V> {
        value: Arc<V>,
        next: Guard<V>,
    }

    impl<K: Hash + Eq + Clone, V> Map<K, V> {
        pub(in crate::record) fn new() -> Self {
            let places = (0..PLACES).map(|_| AtomicUsize::new(NOTHING)).collect();
            Self { places, memory: Hidden::new(MapMemory { keys: HashMap::default(), values: Vec::new() }) }
        }

        pub(in crate::record) fn guard(&self) -> Guard<V> {
            Guard(OnceCell::new())
        }

        pub(in crate::record) fn get<'g>(&self, key: &K, guard: &'g Guard<V>) -> Option<&'g V> {
            let place = self.memory.with(|memory| memory.place(key).0);
            // Relaxed: see the module.
            self.keep(self.places[place].load(Ordering::Relaxed), guard)
        }

        /// For the one thread that writes. Not a modelled access: of all accesses before a store, loom tries orders with the
        /// last one alone, which shall be some reader's.
        pub(in crate::record) fn current<'g>(&self, key: &K, guard: &'g Guard<V>) -> Option<&'g V> {
            self.keep(self.memory.with(|memory| memory.place(key).1), guard)
        }

        pub(in crate::record) fn insert(&self, key: K, value: V) -> bool {
            let index = self.memory.with(|memory| {
                memory.values.push(Arc::new(value));
                memory.values.len() - 1
            });
            self.store(&key, index) == NOTHING
        }

        pub(in crate::record) fn remove(&self, key: &K) -> bool {
            self.store(key, NOTHING) != NOTHING
        }

        /// Gives what was there before.
        fn store(&self, key: &K, index: usize) -> usize {
            let (place, before) = self.memory.with(|memory| {
                let (place, current) = memory.place(key);
                (*place, std::mem::replace(current, index))
            });
            // Relaxed: see the module.
            self.places[place].store(index, Ordering::Relaxed);
            before
        }

        fn keep<'g>(&self, index: usize, guard: &'g Guard<V>) -> Option<&'g V> {
            let value = self.memory.with(|memory| memory.values.get(index).cloned())?;
            Some(guard.keep(value))
        }
    }

    impl<K: Hash + Eq + Clone, V> MapMemory<K, V> {
        fn place(&mut self, key: &K) -> &mut (usize, usize) {
            let next = self.keys.len();
            assert!(next < PLACES || self.keys.contains_key(key), "a model has few names and dylibs");
            self.keys.entry(key.clone()).or_insert((next, NOTHING))
        }
    }

    impl<V> Guard<V> {
        fn keep(&self, value: Arc<V>) -> &V {
            let mut end = self;
            while let Some(kept) = end.0.get() {
                end = &kept.next;
            }
            &end.0.get_or_init(|| Box::new(KeptValue { value, next: Self(OnceCell::new()) })).value
        }
    }
}
