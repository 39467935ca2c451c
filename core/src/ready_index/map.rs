//! The map behind the gate: read without locks, its values reclaimed when no reader can see them.
//!
//! Models have for each key a pointer to its value, which promises nothing beyond itself: what orders entries and gate has
//! to be in the gate, and a model sees where it is not.

use std::hash::Hash;

use rustc_hash::FxBuildHasher;

#[cfg(any(uruk_loom, uruk_shuttle))]
pub(super) use model::Map;
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
pub(super) use real::Map;

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
mod real {
    use std::cell::Cell;

    use super::*;
    use crate::ready_index::lone_guard::LoneGuard;

    /// So many values that were replaced or removed a thread gathers before it asks which readers may still see them.
    /// Asking interrupts every processor that runs a thread of ours, which removing a large tracker should not do every
    /// few dozen symbols; what is gathered costs each thread that writes some kilobytes.
    const BATCH: usize = 256;

    /// Written by one thread at a time, read by any.
    ///
    /// Each map has its own collector. One for several would free, when any of them is dropped, what readers of the others
    /// still see.
    #[derive(Debug)]
    pub(in crate::ready_index) struct Map<K: Hash + Eq + 'static, V: 'static>(
        papaya::HashMap<K, V, FxBuildHasher>,
    );

    impl<K: Hash + Eq + 'static, V: 'static> Map<K, V> {
        pub(in crate::ready_index) fn new() -> Self {
            let collector = seize::Collector::new().batch_size(BATCH);
            Self(papaya::HashMap::builder().hasher(FxBuildHasher).collector(collector).build())
        }

        #[inline]
        pub(in crate::ready_index) fn guard(&self) -> Guard<'_> {
            match LIFE.get() {
                ThreadLife::Lives => Guard::OfThread(self.0.guard()),
                life => self.rare_guard(life),
            }
        }

        #[cold]
        fn rare_guard(&self, life: ThreadLife) -> Guard<'_> {
            if life == ThreadLife::Ending {
                return Guard::Alone(LoneGuard::new(self.0.owned_guard()));
            }
            // First what the guards have of the thread, then what says that the thread ends: that is destroyed ahead of it.
            let guard = self.0.guard();
            if TELLS_END.try_with(|_| ()).is_ok() {
                LIFE.set(ThreadLife::Lives);
            }
            Guard::OfThread(guard)
        }

        #[inline]
        pub(in crate::ready_index) fn get<'g>(&self, key: &K, guard: &'g Guard<'_>) -> Option<&'g V> {
            match guard {
                Guard::OfThread(guard) => self.0.get(key, guard),
                Guard::Alone(guard) => self.0.get(key, guard),
            }
        }

        /// For the one thread that writes.
        pub(in crate::ready_index) fn current<'g>(&self, key: &K, guard: &'g Guard<'_>) -> Option<&'g V> {
            self.get(key, guard)
        }

        /// Says whether the key had no value.
        pub(in crate::ready_index) fn insert(&self, key: K, value: V) -> bool {
            match self.guard() {
                Guard::OfThread(guard) => self.0.insert(key, value, &guard).is_none(),
                Guard::Alone(guard) => self.0.insert(key, value, &guard).is_none(),
            }
        }

        /// Makes room for so many more keys at once.
        pub(in crate::ready_index) fn reserve(&self, further: usize) {
            match self.guard() {
                Guard::OfThread(guard) => self.0.reserve(further, &guard),
                Guard::Alone(guard) => self.0.reserve(further, &guard),
            }
        }

        /// Says whether the key had a value.
        pub(in crate::ready_index) fn remove(&self, key: &K) -> bool {
            match self.guard() {
                Guard::OfThread(guard) => self.0.remove(key, &guard).is_some(),
                Guard::Alone(guard) => self.0.remove(key, &guard).is_some(),
            }
        }
    }

    /// Keeps what is read through it.
    pub(in crate::ready_index) enum Guard<'a> {
        OfThread(papaya::LocalGuard<'a>),
        /// For destructors of a thread's variables: what guards of the thread need is destroyed then, perhaps before them. It costs a lock.
        Alone(LoneGuard<'a>),
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum ThreadLife {
        New,
        Lives,
        Ending,
    }

    struct TellsEnd;

    impl Drop for TellsEnd {
        fn drop(&mut self) {
            LIFE.set(ThreadLife::Ending);
        }
    }

    thread_local! {
        static LIFE: Cell<ThreadLife> = const { Cell::new(ThreadLife::New) };
        static TELLS_END: TellsEnd = const { TellsEnd };
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
    pub(in crate::ready_index) struct Map<K, V> {
        /// For each key, where in `values` its value is, or [`NOTHING`]. All are there from the beginning: one made later
        /// would have to be ordered before its first reader.
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
    pub(in crate::ready_index) struct Guard<V>(OnceCell<Box<KeptValue<V>>>);

    #[derive(Debug)]
    struct KeptValue<V> {
        value: Arc<V>,
        next: Guard<V>,
    }

    impl<K: Hash + Eq + Clone, V> Map<K, V> {
        pub(in crate::ready_index) fn new() -> Self {
            let places = (0..PLACES).map(|_| AtomicUsize::new(NOTHING)).collect();
            Self { places, memory: Hidden::new(MapMemory { keys: HashMap::default(), values: Vec::new() }) }
        }

        pub(in crate::ready_index) fn guard(&self) -> Guard<V> {
            Guard(OnceCell::new())
        }

        pub(in crate::ready_index) fn get<'g>(&self, key: &K, guard: &'g Guard<V>) -> Option<&'g V> {
            let place = self.memory.with(|memory| memory.place(key).0);
            // Relaxed: see the module.
            self.keep(self.places[place].load(Ordering::Relaxed), guard)
        }

        /// For the one thread that writes. Not a modelled access: of all accesses before a store, loom tries orders with the
        /// last one alone, which shall be some reader's.
        pub(in crate::ready_index) fn current<'g>(&self, key: &K, guard: &'g Guard<V>) -> Option<&'g V> {
            self.keep(self.memory.with(|memory| memory.place(key).1), guard)
        }

        pub(in crate::ready_index) fn insert(&self, key: K, value: V) -> bool {
            let index = self.memory.with(|memory| {
                memory.values.push(Arc::new(value));
                memory.values.len() - 1
            });
            self.store(&key, index) == NOTHING
        }

        pub(in crate::ready_index) fn reserve(&self, _further: usize) {}

        pub(in crate::ready_index) fn remove(&self, key: &K) -> bool {
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

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::sync::Arc;
    use crate::sync::atomic::{AtomicUsize, Ordering};

    /// Lookups panicked there: what the guards have of a thread was destroyed ahead of what the program had registered first.
    #[test]
    fn destructors_of_a_thread_read_and_write() {
        struct Last(RefCell<Option<Arc<Map<u32, usize>>>>, Arc<AtomicUsize>);
        impl Drop for Last {
            fn drop(&mut self) {
                let map = self.0.take().expect("the thread has set it");
                let before = map.get(&1, &map.guard()).copied().unwrap_or(0);
                assert!(map.insert(2, before + 1) && map.remove(&1));
                let after = map.get(&2, &map.guard()).copied().unwrap_or(0);
                self.1.store(after, Ordering::Relaxed); // Relaxed: read when the thread has been joined.
            }
        }
        thread_local! {
            static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
        }
        for uses_it_before in [false, true] {
            let (map, read) = (Arc::new(Map::new()), Arc::new(AtomicUsize::new(0)));
            map.insert(1, 41);
            let (of_thread, told) = (map.clone(), read.clone());
            let thread = std::thread::spawn(move || {
                LAST.with(|last| {
                    *last.borrow_mut() = Some(Last(RefCell::new(Some(of_thread.clone())), told))
                });
                assert!(!uses_it_before || of_thread.get(&1, &of_thread.guard()) == Some(&41));
            });
            thread.join().expect("no panic");
            assert_eq!(read.load(Ordering::Relaxed), 42);
            assert_eq!(map.get(&2, &map.guard()), Some(&42));
        }
    }
}
