//! The tasks and waits of this crate on the running thread's stack.

use std::cell::RefCell;

use super::Shared;
use crate::limits::Charge;

use super::board::Who;

/// An entry beneath the running code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beneath {
    /// A task: the kind of thread that runs it, and its charge.
    Task(Who, Charge),
    /// A wait.
    Wait,
}

thread_local! {
    /// Innermost last, each with the dispatcher it belongs to, which is compared and never looked at.
    static STACK: RefCell<Vec<(*const Shared, Beneath)>> = const { RefCell::new(Vec::new()) };
}

/// A place on the stack, until it is dropped.
pub(super) struct Entry {
    entered: bool,
}

impl Entry {
    pub(super) fn enter(of: &Shared, what: Beneath) -> Self {
        let entry = (std::ptr::from_ref(of), what);
        // While the thread is torn down no ticket comes to it, so the entry would never be read.
        Self { entered: STACK.try_with(|stack| stack.borrow_mut().push(entry)).is_ok() }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.entered {
            let _ = STACK.try_with(|stack| stack.borrow_mut().pop());
        }
    }
}

/// Whether a task or a wait of any dispatcher lies on the stack.
pub(super) fn is_occupied() -> bool {
    STACK.try_with(|stack| !stack.borrow().is_empty()).unwrap_or(false)
}

/// The innermost entry that belongs to `of`.
pub(super) fn innermost(of: &Shared) -> Option<Beneath> {
    find(of, |_| true)
}

/// Whether a task of `of` lies on the stack.
pub(super) fn is_inside_task_of(of: &Shared) -> bool {
    find(of, |what| matches!(what, Beneath::Task(..))).is_some()
}

fn find(of: &Shared, wanted: impl Fn(Beneath) -> bool) -> Option<Beneath> {
    let find = |stack: &RefCell<Vec<(*const Shared, Beneath)>>| {
        let stack = stack.borrow();
        let found = stack.iter().rev().find(|(owner, what)| std::ptr::eq(*owner, of) && wanted(*what));
        found.map(|(_, what)| *what)
    };
    STACK.try_with(find).ok().flatten()
}
