//! [`CopyRoom`]: variables of the executor's libraries that move near to its code.
//!
//! Code that was compiled for executables reads variables of libraries directly. The memory for code may lie too far from a library for that, by
//! chance of where the system has put both. So the first lookup of such a variable moves it to a room right behind that memory, also if it was
//! near. In one process low addresses do the same for code that needs them (`linking/low.rs`).

use std::cell::Cell;
use std::ops::Range;

use uruk_core::ExecutorAddr;

use crate::memory::MemoryHere;
use crate::runtime::process::moved_variable;

/// The part of the room that is free. It belongs to the thread that takes messages.
#[derive(Debug)]
pub(super) struct CopyRoom {
    free: Cell<(u64, u64)>,
}

impl CopyRoom {
    /// All of the room of `memory`.
    pub(super) fn of(memory: &dyn MemoryHere) -> Self {
        let Range { start, end } = memory.copies();
        Self { free: Cell::new((start, end)) }
    }

    /// Where a variable is that linked code reads directly. `None` if it cannot move: it stays where it is, and is reached if it is near.
    pub(super) fn near(&self, variable: ExecutorAddr) -> Option<ExecutorAddr> {
        moved_variable(variable, true, |bytes, align| Some((self.take(bytes as u64, align as u64)?, None)))
    }

    fn take(&self, bytes: u64, align: u64) -> Option<ExecutorAddr> {
        let (start, end) = self.free.get();
        let start = start.checked_next_multiple_of(align)?;
        let next = start.checked_add(bytes).filter(|next| *next <= end)?;
        self.free.set((next, end));
        Some(ExecutorAddr::new(start))
    }
}
