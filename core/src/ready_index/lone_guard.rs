//! A guard for threads that end, which touches none of their variables.
//!
//! Destructors of a thread's variables look symbols up too. The thread's value of `seize` may be destroyed before they run. Its owned
//! guards need nothing of the thread except a number, which `papaya` asks for in order to spread a counter. This one answers zero.

use seize::{Collector, Guard, OwnedGuard};

pub(super) struct LoneGuard<'a>(OwnedGuard<'a>);

impl<'a> LoneGuard<'a> {
    pub(super) fn new(guard: OwnedGuard<'a>) -> Self {
        Self(guard)
    }
}

impl Guard for LoneGuard<'_> {
    fn refresh(&mut self) {
        self.0.refresh();
    }

    fn flush(&self) {
        self.0.flush();
    }

    fn collector(&self) -> &Collector {
        self.0.collector()
    }

    fn thread_id(&self) -> usize {
        0
    }

    unsafe fn defer_retire<T>(&self, ptr: *mut T, reclaim: unsafe fn(*mut T, &Collector)) {
        // SAFETY: passed on to the caller.
        unsafe { self.0.defer_retire(ptr, reclaim) }
    }
}
