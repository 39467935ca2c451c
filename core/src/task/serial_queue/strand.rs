//! The strands that a thread is in: what it knows of the tasks of serial queues that run on it.
//!
//! A task of a serial queue is *in the strand* from its start until it ends or leaves. It leaves once, by itself
//! ([`SerialQueue::leave`]) or because its thread closes a session, which waits for the tasks behind it. Then the next task starts.

use crate::sync::weakened;
use crate::task::this_thread;

use super::{HandedOver, SerialQueue, SerialQueueId};

/// The strands of the tasks on a thread's stack, outermost first.
#[derive(Default)]
pub(crate) struct Strands {
    /// None for a task that runs above another and is in no strand, or in that of the next entry.
    tasks: Vec<Option<InStrand>>,
    /// Called for each strand that is left, with the place of its task. None until it is set.
    hears: Option<fn(usize, SerialQueueId)>,
}

/// A task of a serial queue on this thread's stack.
pub(super) struct InStrand {
    queue: SerialQueue,
    /// The next task, handed over when this one left.
    left: Option<HandedOver>,
}

/// Borrows this thread's strands. None while the thread ends: then no task can leave its strand before its end.
fn with_tasks<R>(operation: impl FnOnce(&mut Vec<Option<InStrand>>) -> R) -> Option<R> {
    this_thread::with(|thread| operation(&mut thread.strands.tasks))
}

/// How many places of strands this thread has on its stack. A task that begins from now on has a later place.
#[inline]
pub(crate) fn places() -> usize {
    with_tasks(|tasks| tasks.len()).unwrap_or(0)
}

/// Gives the strands that tasks of this thread are in, from that place on.
pub(crate) fn for_each_from(place: usize, mut gives: impl FnMut(SerialQueueId)) {
    with_tasks(|tasks| {
        let in_strands = tasks.iter().skip(place).flatten().filter(|task| task.left.is_none());
        in_strands.for_each(|task| gives(task.queue.0.id));
    });
}

/// Has `hears` called on this thread from now on when a task leaves its strand, before the next one starts.
pub(crate) fn tell_of_leaving(hears: fn(usize, SerialQueueId)) {
    this_thread::with(|thread| thread.strands.hears = Some(hears));
}

/// All tasks on this thread's stack leave their strands: the thread is going to wait for what waits behind them.
pub(crate) fn leave_all() {
    for place in 0..with_tasks(|tasks| tasks.len()).unwrap_or(0) {
        InStrand::leave(place, None);
    }
}

impl InStrand {
    /// A task of the queue begins; gives its place among the strands of the thread.
    pub(super) fn enter(queue: &SerialQueue) -> Option<usize> {
        let task = Self { queue: queue.clone(), left: None };
        with_tasks(|tasks| {
            tasks.push(Some(task));
            tasks.len() - 1
        })
    }

    /// The task that runs on this thread leaves its strand, if that is `queue`. Says whether.
    pub(super) fn leave_innermost(queue: &SerialQueue) -> bool {
        let innermost = with_tasks(|tasks| tasks.len().checked_sub(1)).flatten();
        innermost.is_some_and(|place| Self::leave(place, Some(queue)))
    }

    /// The task at `place` leaves its strand, if it is in one; only that of `queue`, if a queue is given. Says whether.
    fn leave(place: usize, queue: Option<&SerialQueue>) -> bool {
        let leaves = this_thread::with(|thread| {
            let Strands { tasks, hears } = &mut thread.strands;
            let task = tasks.get_mut(place)?.as_mut()?;
            let is_meant = task.left.is_none() && queue.is_none_or(|queue| *queue == task.queue);
            is_meant.then(|| {
                task.left = Some(HandedOver::default());
                (task.queue.clone(), *hears)
            })
        });
        let Some((queue, hears)) = leaves.flatten() else { return false };
        // Before the next task starts: it may block.
        hears.into_iter().for_each(|hears| hears(place, queue.0.id));
        let handed_over = queue.hand_over();
        // The rest of the next task's start comes after the rest of this task.
        let of = |tasks: &mut Vec<Option<Self>>| {
            let task = tasks.get_mut(place).and_then(Option::as_mut);
            task.and_then(|task| task.left.replace(handed_over))
        };
        let _default = with_tasks(of);
        true
    }

    /// The task ends. It hands over, unless it has left.
    pub(super) fn exit(place: Option<usize>, queue: &SerialQueue) -> HandedOver {
        let task = place.and_then(|place| with_tasks(|tasks| tasks.drain(place..).next().flatten()));
        match task.flatten() {
            Some(Self { left: Some(handed_over), .. })
                if !weakened("serial_queue::forgets_that_it_was_left") =>
            {
                handed_over
            }
            _ => queue.hand_over(),
        }
    }
}

/// A task begins on this thread, perhaps above another: until the guard is dropped it is in no strand but its own.
pub(crate) struct Outside {
    is_marked: bool,
}

impl Outside {
    pub(crate) fn enter() -> Self {
        let marks = |tasks: &mut Vec<Option<InStrand>>| {
            let is_above = !tasks.is_empty();
            if is_above {
                tasks.push(None);
            }
            is_above
        };
        Self { is_marked: with_tasks(marks).unwrap_or(false) }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if self.is_marked {
            // A marker: there is nothing in it to be dropped.
            let _marker = with_tasks(Vec::pop);
        }
    }
}
