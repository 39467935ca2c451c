//! Memory whose reads a model follows.

/// Marks memory that is read without a lock and freed by another thread: a model fails that frees it ahead of a read, or reads it
/// ahead of a write. In programs it is nothing.
#[derive(Debug)]
pub struct Followed {
    #[cfg(uruk_loom)]
    cell: loom::cell::UnsafeCell<()>,
}

#[cfg(not(uruk_loom))]
impl Followed {
    /// The memory is written now.
    #[inline(always)]
    pub const fn new() -> Self {
        Self {}
    }

    /// The memory is read now.
    #[inline(always)]
    pub const fn note(&self) {}
}

#[cfg(uruk_loom)]
impl Followed {
    /// The memory is written now.
    pub fn new() -> Self {
        Self { cell: loom::cell::UnsafeCell::new(()) }
    }

    /// The memory is read now.
    pub fn note(&self) {
        self.cell.with(|_| ());
    }

    /// The memory is freed now. Models keep it, so that a later read fails.
    pub fn end(&mut self) {
        self.cell.with_mut(|_| ());
    }
}

impl Default for Followed {
    fn default() -> Self {
        Self::new()
    }
}
