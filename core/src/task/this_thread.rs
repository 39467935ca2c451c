//! A thread's record of the tasks on its stack, in one thread-local value.
//!
//! Code of the embedder nests on a thread: a task runs a unit, which blocks in a lookup, which runs another task. Each thing that
//! nests has one guard. The guard writes to the record when it is made, and takes that back when it is dropped, also in a panic.
//!
//! | what nests | guard | part of the record |
//! |---|---|---|
//! | a loop over the thread's tasks | `in_place::Level`, `HeldBack`, `SeparateQueue` | `tasks` |
//! | a task of a strand; a task outside of it | `InStrand`, `Outside` (`task/serial_queue/strand.rs`) | `strands` |
//! | a leaf | [`InLeaf`] | `leaf` |
//! | a call of the embedder's code on behalf of a session | [`EmbeddersCall`] | `calls` |
//!
//! Sessions keep a record of their own (`session/here.rs`), of which nothing here knows.
//!
//! **Architecture Invariant:** a part is a type with private fields, and the file that declares it keeps its rules. The record is borrowed
//! for a moment, in which no code of the embedder runs and nothing of the embedder is dropped.
//!
//! The record is destroyed when the thread ends. From then on [`with`] gives `None`: other thread-local destructors of that thread find
//! no queue and no strand. Each caller says what it does then.

use std::cell::RefCell;

use crate::sync::{Arc, thread_local};
use crate::task::in_place::ThreadTasks;
use crate::task::serial_queue::Strands;
use crate::{TaskLabel, WaitError};

/// The record of one thread.
#[derive(Default)]
pub(crate) struct ThisThread {
    /// Tasks that this thread runs itself.
    pub(crate) tasks: ThreadTasks,
    /// The strands whose tasks lie on the stack.
    pub(crate) strands: Strands,
    /// The outermost leaf. Code inside of it lies on its stack, and may block no more than the leaf.
    leaf: Option<TaskLabel>,
    /// How many calls of the embedder's code lie on the stack, on behalf of any session.
    calls: usize,
}

thread_local! {
    static THIS_THREAD: RefCell<ThisThread> = RefCell::default();
}

/// Borrows this thread's record. `None` once the record is destroyed, because the thread ends.
///
/// `operation` runs no code of the embedder, and does not ask for the record itself.
#[inline]
pub(crate) fn with<R>(operation: impl FnOnce(&mut ThisThread) -> R) -> Option<R> {
    THIS_THREAD.try_with(|thread| operation(&mut thread.borrow_mut())).ok()
}

/// Whether this thread is inside a call of the embedder's code, on behalf of any session.
pub(crate) fn is_inside_call() -> bool {
    with(|thread| thread.calls > 0).unwrap_or(false)
}

/// A call of the embedder's code on this thread, on behalf of a session.
pub(crate) struct EmbeddersCall(());

impl EmbeddersCall {
    #[inline]
    pub(crate) fn enter() -> Self {
        with(|thread| thread.calls += 1);
        Self(())
    }
}

impl Drop for EmbeddersCall {
    #[inline]
    fn drop(&mut self) {
        with(|thread| thread.calls -= 1);
    }
}

/// Runs `code`, as the leaf of that name if it has one.
pub(crate) fn run_in_leaf<R>(leaf: Option<TaskLabel>, code: impl FnOnce() -> R) -> R {
    let _leaf = leaf.map(InLeaf::enter);
    code()
}

/// Refuses a wait if this thread runs a leaf: a task that has declared never to block. For dispatchers, before they block a thread or
/// replace it.
///
/// # Errors
/// [`WaitError::Leaf`] names the task.
pub fn refuse_wait_in_leaf() -> Result<(), WaitError> {
    // A thread that ends runs no task any more.
    let task = with(|thread| thread.leaf.as_ref().map(|label| Arc::from(label.as_str()))).flatten();
    task.map_or(Ok(()), |task| Err(WaitError::Leaf { task }))
}

/// A leaf on this thread's stack.
struct InLeaf {
    is_outermost: bool,
}

impl InLeaf {
    fn enter(label: TaskLabel) -> Self {
        let mut label = Some(label);
        let enters = |thread: &mut ThisThread| {
            let is_outermost = thread.leaf.is_none();
            if is_outermost {
                thread.leaf = label.take();
            }
            is_outermost
        };
        Self { is_outermost: with(enters).unwrap_or(false) }
    }
}

impl Drop for InLeaf {
    fn drop(&mut self) {
        if self.is_outermost {
            // Dropped here, where the record is not borrowed.
            let _label = with(|thread| thread.leaf.take());
        }
    }
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use super::*;
    use crate::sync::thread;

    fn is_refused() -> bool {
        refuse_wait_in_leaf().is_err()
    }

    #[test]
    fn a_leaf_inside_a_leaf_ends_nothing() {
        run_in_leaf(Some("outer".into()), || {
            run_in_leaf(Some("inner".into()), || {});
            assert_eq!(refuse_wait_in_leaf(), Err(WaitError::Leaf { task: "outer".into() }));
        });
        assert!(!is_refused());
    }

    #[test]
    fn guards_take_back_what_they_wrote_when_a_panic_passes() {
        let unwound = std::panic::catch_unwind(|| {
            let _call = EmbeddersCall::enter();
            run_in_leaf(Some("leaf".into()), || {
                assert!(is_refused() && is_inside_call());
                panic!("on purpose");
            });
        });
        assert!(unwound.is_err() && !is_refused() && !is_inside_call());
    }

    /// Asks for the record when its own thread-local value goes.
    struct AsksAtTheEnd(std::sync::mpsc::Sender<bool>);

    impl Drop for AsksAtTheEnd {
        fn drop(&mut self) {
            let runs = run_in_leaf(Some("late".into()), || with(|_| ()).is_none() && !is_refused());
            self.0.send(runs).expect("the test listens");
        }
    }

    std::thread_local! {
        static FIRST: RefCell<Option<AsksAtTheEnd>> = const { RefCell::new(None) };
    }

    #[test]
    fn a_thread_that_ends_has_no_record_and_runs_code_all_the_same() {
        let (tells, told) = std::sync::mpsc::channel();
        let ends = thread::spawn(move || {
            // Values that were made first go last.
            FIRST.with(|first| *first.borrow_mut() = Some(AsksAtTheEnd(tells)));
            assert!(with(|_| ()).is_some());
        });
        ends.join().expect("nothing panics");
        assert_eq!(told.recv(), Ok(true));
    }
}
