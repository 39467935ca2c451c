//! The memory of resources: asked by tracker and by dylib.

use crate::sync::Arc;

/// Says how much memory a [`Resource`](crate::Resource) holds: asked for as long as a tracker has the resource, and perhaps for a moment after.
///
/// # Concurrency
/// Asked by any thread, without any lock.
pub trait ResourceMemory: Send + Sync {
    /// Bytes that the resource holds now. Memory of several resources is counted for one of them.
    fn bytes(&self) -> u64;
}

/// How much memory the resources of a tracker or a dylib hold. See
/// [`ResourceTracker::memory_usage`](crate::ResourceTracker::memory_usage).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldMemory {
    /// Of all resources together.
    pub bytes: u64,
    /// Resources that have some. An object that was linked is one.
    pub resources: usize,
}

impl HeldMemory {
    /// The memory of several resources together. To be called without a lock: it asks them.
    pub(super) fn of(memories: Vec<Arc<dyn ResourceMemory>>) -> Self {
        let mut held = Self::default();
        for memory in memories {
            let bytes = memory.bytes();
            held.bytes += bytes;
            held.resources += usize::from(bytes > 0);
        }
        held
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use std::error::Error;

    use crate::sync::Arc;
    use crate::sync::atomic::{AtomicU64, Ordering};
    use crate::{ExecutionSession, Resource, ResourceMemory};

    /// Memory that grows and shrinks.
    #[derive(Clone, Default)]
    struct Heap(Arc<AtomicU64>);

    impl ResourceMemory for Heap {
        fn bytes(&self) -> u64 {
            self.0.load(Ordering::Relaxed) // the test has one thread
        }
    }

    impl Resource for Heap {
        fn memory(&self) -> Option<Arc<dyn ResourceMemory>> {
            Some(Arc::new(self.clone()))
        }

        fn remove(self: Box<Self>) -> Result<(), Box<dyn Error + Send + Sync>> {
            Ok(())
        }
    }

    #[test]
    fn memory_counts_where_its_resource_is() {
        let session = ExecutionSession::new();
        let dylib = session.create_jit_dylib("main").unwrap();
        let (first, second) = (dylib.create_tracker(), dylib.create_tracker());
        let heaps = [(); 3].map(|()| Heap::default());
        let set = |heap: usize, bytes| heaps[heap].0.store(bytes, Ordering::Relaxed);
        let trackers = [&first, &first, &second];
        for (tracker, heap) in trackers.into_iter().zip(&heaps) {
            tracker.add_resource(Box::new(heap.clone())).unwrap();
        }
        let bytes =
            || [first.memory_usage(), second.memory_usage(), dylib.memory_usage()].map(|held| held.bytes);
        set(0, 3);
        set(2, 20);
        assert_eq!(bytes(), [3, 20, 23]);
        assert_eq!(dylib.memory_usage().resources, 2, "one has nothing yet");
        set(1, 4);
        assert_eq!(bytes(), [7, 20, 27]);
        first.transfer_to(&second).unwrap();
        assert_eq!(bytes(), [0, 27, 27]);
        second.remove().unwrap();
        assert_eq!(bytes(), [0; 3]);

        dylib.default_tracker().add_resource(Box::new(heaps[2].clone())).unwrap();
        assert_eq!(bytes(), [0, 0, 20]);
        session.remove_jit_dylib(&dylib).unwrap();
        assert_eq!(bytes(), [0; 3]);
    }
}
