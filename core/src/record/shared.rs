//! One value that is replaced while others read it, and dropped when none of them can see it any more.
//!
//! Programs use an entry of a `papaya` map. Models use this instead, with the properties that the table relies on:
//!
//! 1. A reader of a value sees all earlier writes of its writer.
//! 2. A value is dropped only when all readers have left that may have entered before it was replaced.
//! 3. All their reads of it come before the drop.
//!
//! ```text
//!   reader                                  writer
//!     enter: readers += 1                     current = new value
//!     fence(SeqCst)                           fence(SeqCst)
//!     value = current                         nobody inside? drop what was replaced
//!     leave: readers -= 1; the last one
//!       drops what was replaced
//! ```
//!
//! `seize`, which reclaims what `papaya` replaces, does the same with a list for each reader instead of a count, and with a
//! fence that the writer makes for everybody instead of the readers'.

#[cfg(any(uruk_loom, uruk_shuttle))]
pub(super) use model::Shared;
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
pub(super) use real::Shared;

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
mod real {
    use crate::record::map::Map;

    /// A map with one entry: a pointer that is replaced while others follow it. The old value is dropped when no reader is left.
    #[derive(Debug)]
    pub(in crate::record) struct Shared<V: 'static>(Map<(), V>);

    impl<V: 'static> Shared<V> {
        pub(in crate::record) fn new() -> Self {
            Self(Map::with_batch(1))
        }

        /// Lets `look` look at the value, if there is one.
        #[inline]
        pub(in crate::record) fn read<R>(&self, look: impl FnOnce(&V) -> R) -> Option<R> {
            let guard = self.0.guard();
            self.0.get(&(), &guard).map(look)
        }

        /// For the one thread that writes.
        pub(in crate::record) fn replace(&self, value: V) {
            self.0.insert((), value);
        }
    }
}

#[cfg(any(uruk_loom, uruk_shuttle))]
mod model {
    use crate::sync::atomic::{AtomicUsize, Ordering, fence};
    use crate::sync::{Arc, Hidden, weakened};

    #[derive(Debug)]
    pub(in crate::record) struct Shared<V> {
        /// How many values there were; the last of them is the current one.
        current: AtomicUsize,
        /// How many readers are inside.
        readers: AtomicUsize,
        values: Hidden<Values<V>>,
    }

    #[derive(Debug)]
    struct Values<V> {
        /// None where a value was dropped.
        all: Vec<Option<Arc<V>>>,
        /// So many of them no reader comes to any more.
        replaced: usize,
    }

    impl<V> Shared<V> {
        pub(in crate::record) fn new() -> Self {
            let values = Hidden::new(Values { all: Vec::new(), replaced: 0 });
            Self { current: AtomicUsize::new(0), readers: AtomicUsize::new(0), values }
        }

        pub(in crate::record) fn read<R>(&self, look: impl FnOnce(&V) -> R) -> Option<R> {
            // Before the first value nothing can be dropped beneath anybody; most models end there, in fewer steps.
            // Relaxed: nothing is read on its strength.
            if self.values.with(|values| values.all.is_empty()) && self.current.load(Ordering::Relaxed) == 0 {
                return None;
            }
            // Relaxed: the fence below orders it.
            self.readers.fetch_add(1, Ordering::Relaxed);
            // ordering[arrays-entered]: fence SeqCst. Pairs with the one in `replace`; the writer sees this reader, or this
            // reader sees what the writer has put there.
            if !weakened("table::enters_without_fence") {
                fence(Ordering::SeqCst);
            }
            // ordering[arrays-published]: Acquire. Pairs with the Release in `replace`.
            let current = self.current.load(Ordering::Acquire);
            let value = self.values.with(|values| Some(values.all[current.checked_sub(1)?].clone()));
            let told = value.map(|value| look(&value.expect("nothing is dropped that a reader comes to")));
            // ordering[arrays-left]: Release. Pairs with the Acquire fence in `drop_replaced`.
            let release =
                if weakened("table::leaves_unordered") { Ordering::Relaxed } else { Ordering::Release };
            if self.readers.fetch_sub(1, release) == 1 {
                self.drop_replaced();
            }
            told
        }

        pub(in crate::record) fn replace(&self, value: V) {
            let count = self.values.with(|values| {
                values.all.push(Some(Arc::new(value)));
                values.all.len()
            });
            // ordering[arrays-published]: Release. Pairs with the Acquire in `read`.
            let release =
                if weakened("table::publishes_unordered") { Ordering::Relaxed } else { Ordering::Release };
            self.current.store(count, release);
            // ordering[arrays-entered]: fence SeqCst. Pairs with the one in `read`.
            fence(Ordering::SeqCst);
            self.values.with(|values| values.replaced = count - 1);
            // Relaxed: the fence above orders it.
            if self.readers.load(Ordering::Relaxed) == 0 || weakened("table::frees_beneath_readers") {
                self.drop_replaced();
            }
        }

        /// Drops replaced values. No reader is inside that may see any of them.
        fn drop_replaced(&self) {
            let replaced: Vec<Arc<V>> = self.values.with(|values| {
                let Values { all, replaced } = values;
                all[..*replaced].iter_mut().filter_map(Option::take).collect()
            });
            // No fence that programs do not have either: it would hide that a reader forgot its own.
            if replaced.is_empty() {
                return;
            }
            // ordering[arrays-left]: Acquire fence. Pairs with the Release in `read`; what readers have read comes before.
            fence(Ordering::Acquire);
            for value in replaced {
                drop(Arc::into_inner(value).expect("nobody reads what is dropped"));
            }
        }
    }

    impl<V> Drop for Shared<V> {
        fn drop(&mut self) {
            // ordering[arrays-left]: Acquire. Pairs with the Release in `read`: in programs who drops it has it alone.
            self.readers.fetch_add(0, Ordering::Acquire);
            let values = self.values.with(|values| std::mem::take(&mut values.all));
            drop(values);
        }
    }
}
