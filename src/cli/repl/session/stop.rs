//! Stopping an expression that runs: from outside, or because the stack is nearly full.
//!
//! Code of the program looks at a limit before each call and each time a loop repeats, as `uruk_kaleidoscope::lower` makes it. A frame
//! below the limit comes here, and returns. So do the frames above it, one by one. Nothing is ever stopped inside of a function of the
//! host or of the process, or while a function is compiled: code of the program goes on behind it, and looks at the limit then.

use uruk::core::sync::atomic::{AtomicUsize, Ordering};
use uruk::core::sync::{Arc, Mutex};
use uruk_kaleidoscope::Definition;

/// Below this lies every frame: what runs is stopped.
pub(super) const EVERYTHING: usize = usize::MAX;

/// State that code of a program and its session share.
#[derive(Debug)]
pub(super) struct Stop {
    /// No frame of the program may lie below this address.
    pub(super) limit: Arc<AtomicUsize>,
    /// Where the expression was stopped first.
    first: Mutex<Option<Place>>,
}

/// Where an expression was stopped, and why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) is_stack_full: bool,
    definition: usize,
    /// From a byte of the definition's source to one behind it.
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Stop {
    /// Nothing is stopped, and the stack has no end.
    pub(super) fn new() -> Self {
        Self { limit: Arc::new(AtomicUsize::new(0)), first: Mutex::new(None) }
    }

    /// Where the expression was stopped that has run, if it was.
    pub(super) fn take(&self) -> Option<Place> {
        self.first.lock().take()
    }

    /// Sets the limit for what runs next.
    pub(super) fn set_limit(&self, limit: usize) {
        // Relaxed: a number that says all; nothing else is published with it.
        self.limit.store(limit, Ordering::Relaxed);
    }
}

impl Place {
    /// Whether it lies in this definition.
    pub(super) fn is_in(&self, definition: &Arc<Definition>) -> bool {
        Arc::as_ptr(definition).addr() == self.definition
    }
}

/// Called by a frame that lies below the limit.
pub(super) extern "C" fn stopped(stop: &Stop, definition: usize, place: u64) {
    // Relaxed: as in `set_limit`. From here on every frame is stopped.
    let is_stack_full = stop.limit.swap(EVERYTHING, Ordering::Relaxed) != EVERYTHING;
    let (start, end) = ((place >> 32) as usize, (place & u64::from(u32::MAX)) as usize);
    stop.first.lock().get_or_insert(Place { is_stack_full, definition, start, end });
}
