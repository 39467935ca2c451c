//! The map behind the gate: read without locks, its values reclaimed when no reader can see them.
//!
//! Models run a locked one instead, because they check the gate and not somebody else's map.

use std::hash::Hash;

use rustc_hash::FxBuildHasher;

#[cfg(uruk_loom)]
pub(super) use model::Map;
#[cfg(not(uruk_loom))]
pub(super) use real::Map;

#[cfg(not(uruk_loom))]
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

        pub(in crate::record) fn reserve(&self, additional: usize) {
            self.0.pin().reserve(additional);
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

#[cfg(uruk_loom)]
mod model {
    use std::collections::HashMap;

    use super::*;
    use crate::sync::{Mutex, MutexGuard};

    #[derive(Debug)]
    pub(in crate::record) struct Map<K, V>(Mutex<HashMap<K, V, FxBuildHasher>>);

    impl<K: Hash + Eq, V> Map<K, V> {
        pub(in crate::record) fn new() -> Self {
            Self(Mutex::new(HashMap::default()))
        }

        pub(in crate::record) fn guard(&self) -> MutexGuard<'_, HashMap<K, V, FxBuildHasher>> {
            self.0.lock()
        }

        pub(in crate::record) fn get<'g>(
            &self,
            key: &K,
            guard: &'g MutexGuard<'_, HashMap<K, V, FxBuildHasher>>,
        ) -> Option<&'g V> {
            guard.get(key)
        }

        pub(in crate::record) fn insert(&self, key: K, value: V) {
            self.0.lock().insert(key, value);
        }

        pub(in crate::record) fn remove(&self, key: &K) {
            self.0.lock().remove(key);
        }

        pub(in crate::record) fn reserve(&self, additional: usize) {
            self.0.lock().reserve(additional);
        }

        pub(in crate::record) fn values(&self) -> Vec<V>
        where
            V: Copy,
        {
            self.0.lock().values().copied().collect()
        }

        pub(in crate::record) fn len(&self) -> usize {
            self.0.lock().len()
        }
    }
}
