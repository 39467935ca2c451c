//! Leaves: tasks that have declared never to block, and the refusal of those that do.
//!
//! A thread that runs a leaf knows so until the leaf ends. What waits on behalf of a session, and a dispatcher that is asked to
//! wait, ask here first; so the declaration can be relied on by whoever would run a leaf where nothing may block.

use std::cell::RefCell;

use crate::sync::{Arc, thread_local};
use crate::{TaskLabel, WaitError};

thread_local! {
    /// The outermost leaf that this thread runs. What runs inside of it (a handler of something that it dropped) lies on its
    /// stack, and may block no more than the leaf.
    static LEAF: RefCell<Option<TaskLabel>> = RefCell::default();
}

/// Runs `code`, as the leaf of that name if it has one.
pub(crate) fn run_if<R>(leaf: Option<TaskLabel>, code: impl FnOnce() -> R) -> R {
    match leaf {
        Some(label) => run(label, code),
        None => code(),
    }
}

fn run<R>(label: TaskLabel, code: impl FnOnce() -> R) -> R {
    let outermost = LEAF.try_with(|leaf| {
        let mut leaf = leaf.borrow_mut();
        let free = leaf.is_none();
        if free {
            *leaf = Some(label);
        }
        free
    });
    let _within = Within { outermost: outermost.unwrap_or(false) };
    code()
}

/// Refuses a wait if this thread runs a leaf. For dispatchers, before they block a thread or replace it.
///
/// # Errors
/// [`WaitError::Leaf`] names the task.
pub fn refuse_wait_in_leaf() -> Result<(), WaitError> {
    // A thread that is torn down runs no task any more.
    let task = LEAF.try_with(|leaf| leaf.borrow().as_ref().map(|label| Arc::from(&**label))).unwrap_or(None);
    task.map_or(Ok(()), |task| Err(WaitError::Leaf { task }))
}

/// Ends the leaf, also when it panics.
struct Within {
    outermost: bool,
}

impl Drop for Within {
    fn drop(&mut self) {
        if self.outermost {
            // Taken out before it is dropped: nothing of it may find the cell borrowed.
            let label = LEAF.try_with(|leaf| leaf.borrow_mut().take());
            drop(label);
        }
    }
}
