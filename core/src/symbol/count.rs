//! The counts of a name.
//!
//! Every model moves names about, and few are about them: a model that followed each count would be at it for ever. So models
//! follow counts only where they ask for it ([`follow_counts`]).

#[cfg(uruk_loom)]
pub use model::follow_counts;
#[cfg(any(uruk_loom, uruk_shuttle))]
pub(super) use model::{Count, Given};
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
pub(super) use real::{Count, Given};

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
mod real {
    use crate::sync::atomic::{AtomicU32, AtomicU64};

    pub(in crate::symbol) type Count = AtomicU64;

    pub(in crate::symbol) type Given = AtomicU32;
}

#[cfg(any(uruk_loom, uruk_shuttle))]
mod model {
    use std::sync::OnceLock;

    use crate::sync::Hidden;
    use crate::sync::atomic::{AtomicU64, Ordering};

    /// Not a modelled cell: it has one value from the first model of a process to the last.
    static IS_FOLLOWED: OnceLock<()> = OnceLock::new();

    /// Has the models of this process follow the counts of the names that they make from now on.
    #[cfg(uruk_loom)]
    pub fn follow_counts() {
        IS_FOLLOWED.get_or_init(|| ());
    }

    #[derive(Debug)]
    pub(in crate::symbol) enum Count {
        Followed(AtomicU64),
        Hidden(Hidden<u64>),
    }

    impl Count {
        pub(in crate::symbol) fn new(count: u64) -> Self {
            match IS_FOLLOWED.get() {
                Some(()) => Self::Followed(AtomicU64::new(count)),
                None => Self::Hidden(Hidden::new(count)),
            }
        }

        pub(in crate::symbol) fn load(&self, order: Ordering) -> u64 {
            match self {
                Self::Followed(count) => count.load(order),
                Self::Hidden(count) => count.with(|count| *count),
            }
        }

        pub(in crate::symbol) fn fetch_add(&self, more: u64, order: Ordering) -> u64 {
            match self {
                Self::Followed(count) => count.fetch_add(more, order),
                Self::Hidden(count) => count.with(|count| std::mem::replace(count, *count + more)),
            }
        }

        pub(in crate::symbol) fn fetch_sub(&self, less: u64, order: Ordering) -> u64 {
            match self {
                Self::Followed(count) => count.fetch_sub(less, order),
                Self::Hidden(count) => count.with(|count| std::mem::replace(count, *count - less)),
            }
        }

        /// An owner reads the counted memory.
        pub(in crate::symbol) fn is_read(&self) {
            if let Self::Followed(count) = self {
                // Relaxed: as unordered as any read.
                count.load(Ordering::Relaxed);
            }
        }

        /// No thread may be reading it any more.
        #[cfg(uruk_loom)]
        pub(in crate::symbol) fn end(&mut self) {
            if let Self::Followed(count) = self {
                count.with_mut(|_| ());
            }
        }
    }

    /// Written by one thread at a time, and read elsewhere as a hint: nothing to follow.
    #[derive(Debug)]
    pub(in crate::symbol) struct Given(Hidden<u32>);

    impl Given {
        pub(in crate::symbol) fn new(given: u32) -> Self {
            Self(Hidden::new(given))
        }

        pub(in crate::symbol) fn load(&self, _: Ordering) -> u32 {
            self.0.with(|given| *given)
        }

        pub(in crate::symbol) fn store(&self, value: u32, _: Ordering) {
            self.0.with(|given| *given = value);
        }
    }
}
