//! The crate's door to atomics: the standard library's, or loom's in a build for models.
//!
//! `uruk_core::sync` is the door of the crates above, which this one does not know.

#[cfg(uruk_loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(uruk_loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Whether this run of a model leaves out `step`, which the environment's `URUK_WEAKEN` names.
#[cfg(uruk_loom)]
pub(crate) fn weakened(step: &str) -> bool {
    use std::sync::OnceLock;
    static LEFT_OUT: OnceLock<Option<String>> = OnceLock::new();
    LEFT_OUT.get_or_init(|| std::env::var("URUK_WEAKEN").ok()).as_deref() == Some(step)
}

/// Never: steps are left out in models alone.
#[cfg(not(uruk_loom))]
#[inline(always)]
pub(crate) const fn weakened(_step: &str) -> bool {
    false
}

/// Whether the process records.
#[cfg(not(uruk_loom))]
pub(crate) mod switch {
    use std::sync::atomic::{AtomicBool, Ordering};

    static ON: AtomicBool = AtomicBool::new(false);

    #[inline(always)]
    pub(crate) fn is_on() -> bool {
        // Relaxed: a note more or less. The area behind it is asked for by its own cell.
        ON.load(Ordering::Relaxed)
    }

    pub(crate) fn turn(on: bool) {
        // Relaxed: as above.
        ON.store(on, Ordering::Relaxed);
    }
}

/// It does not: models of the crates above have no recording.
#[cfg(uruk_loom)]
pub(crate) mod switch {
    #[inline(always)]
    pub(crate) const fn is_on() -> bool {
        false
    }

    pub(crate) const fn turn(_on: bool) {}
}

/// The details that readers have asked for. Models of the crates above have none.
pub(crate) mod details {
    use std::sync::atomic::{AtomicU32, Ordering};

    static WANTED: AtomicU32 = AtomicU32::new(0);

    pub(crate) fn add(details: u32) {
        // Relaxed: a note more or less.
        WANTED.fetch_or(details, Ordering::Relaxed);
    }

    pub(crate) fn all() -> u32 {
        // Relaxed: as above.
        WANTED.load(Ordering::Relaxed)
    }
}
