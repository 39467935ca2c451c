//! Section: what a thread knows of the tasks of serial queues that run on it.
//!
//! Holds: a section belongs to its thread, and to the task that it was entered for; it is left by that task or, if the
//! thread is going to wait for whatever waits behind it, by the close of a session. It is left once.

use std::cell::RefCell;

use crate::session::holding::Hold;
use crate::sync::{thread_local, weakened};

use super::{HandedOver, SerialQueue};

/// What the thread that runs a task of a queue knows of it.
pub(super) struct Section {
    queue: SerialQueue,
    /// Its place in the list of what this thread alone can end.
    hold: Option<Hold>,
    /// What became of the next task when this one left.
    left: Option<HandedOver>,
}

thread_local! {
    /// The sections of the tasks on this thread's stack, outermost first; none for a task that began above one and is in no
    /// section, or in the next.
    static SECTIONS: RefCell<Vec<Option<Section>>> = RefCell::default();
}

/// Borrows this thread's sections for a moment, in which no code of the embedder runs. None while the thread is being torn
/// down: then no section can be left before its end.
fn with_sections<R>(operation: impl FnOnce(&mut Vec<Option<Section>>) -> R) -> Option<R> {
    SECTIONS.try_with(|sections| operation(&mut sections.borrow_mut())).ok()
}

/// Leaves the sections of all tasks on this thread's stack: it is going to wait for what waits behind them.
pub(crate) fn leave_all() {
    for place in 0..with_sections(|sections| sections.len()).unwrap_or(0) {
        Section::leave(place, None);
    }
}

impl Section {
    /// A task of the queue begins; gives the place of its section.
    pub(super) fn enter(queue: &SerialQueue) -> Option<usize> {
        let section = Self { queue: queue.clone(), hold: Hold::take_section(queue.0.id), left: None };
        with_sections(|sections| {
            sections.push(Some(section));
            sections.len() - 1
        })
    }

    /// Leaves the section of the task that runs on this thread, if that is one of `queue`. Says whether.
    pub(super) fn leave_innermost(queue: &SerialQueue) -> bool {
        let innermost = with_sections(|sections| sections.len().checked_sub(1)).flatten();
        innermost.is_some_and(|place| Self::leave(place, Some(queue)))
    }

    /// Leaves the section at `place`, if there is one, of `queue` if that is said. Says whether.
    fn leave(place: usize, queue: Option<&SerialQueue>) -> bool {
        let leaves = with_sections(|sections| {
            let section = sections.get_mut(place)?.as_mut()?;
            let is_meant = section.left.is_none() && queue.is_none_or(|queue| *queue == section.queue);
            is_meant.then(|| {
                section.left = Some(HandedOver::default());
                (section.queue.clone(), section.hold.take())
            })
        });
        let Some((queue, hold)) = leaves.flatten() else { return false };
        // Before the next task has the turn: that may block in it.
        hold.into_iter().for_each(|hold| hold.pass_on());
        let handed_over = queue.hand_over();
        // The rest of it comes after the rest of this task.
        let of = |sections: &mut Vec<Option<Self>>| {
            let section = sections.get_mut(place).and_then(Option::as_mut);
            section.and_then(|section| section.left.replace(handed_over))
        };
        let _default = with_sections(of);
        true
    }

    /// Hands over, unless that was done.
    pub(super) fn exit(place: Option<usize>, queue: &SerialQueue) -> HandedOver {
        let section =
            place.and_then(|place| with_sections(|sections| sections.drain(place..).next().flatten()));
        match section.flatten() {
            Some(Self { left: Some(handed_over), .. })
                if !weakened("serial_queue::forgets_that_it_was_left") =>
            {
                handed_over
            }
            section => {
                section.and_then(|section| section.hold).into_iter().for_each(Hold::give_back);
                queue.hand_over()
            }
        }
    }
}

/// A task begins on this thread, perhaps above another: until the guard is dropped it is in no section but its own.
pub(crate) struct Outside(bool);

impl Outside {
    pub(crate) fn enter() -> Self {
        let marks = |sections: &mut Vec<Option<Section>>| {
            let above = !sections.is_empty();
            if above {
                sections.push(None);
            }
            above
        };
        Self(with_sections(marks).unwrap_or(false))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if self.0 {
            // A marker: there is nothing in it to be dropped.
            let _marker = with_sections(Vec::pop);
        }
    }
}
