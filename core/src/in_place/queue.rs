//! A thread's queue: tasks in the order in which they were dispatched, some of them not made yet.

use std::collections::VecDeque;

use crate::Task;

use super::Running;
use super::tasks::{Counted, CountedMany};

/// A task on its way to run.
pub(super) struct Queued {
    pub(super) task: Task,
    /// Counts the task in at its dispatcher; none for what the thread deferred by itself.
    pub(super) counted: Option<Counted>,
}

impl Queued {
    pub(super) fn running(&self) -> Running {
        let from = self.counted.as_ref().map_or(std::ptr::null(), Counted::dispatcher);
        Running { from, closes: false }
    }
}

/// Tasks that are made one by one, when their turn comes.
pub(super) struct Many {
    tasks: Box<dyn Iterator<Item = Task>>,
    /// Counts as many as there are tasks.
    counted: CountedMany,
}

impl Many {
    pub(super) fn new(tasks: Box<dyn Iterator<Item = Task>>, counted: CountedMany) -> Self {
        Self { tasks, counted }
    }
}

impl Iterator for Many {
    type Item = Queued;

    #[inline]
    fn next(&mut self) -> Option<Queued> {
        let counted = Some(self.counted.next()?);
        Some(Queued { task: self.tasks.next()?, counted })
    }
}

enum Lot {
    One(Queued),
    /// If none is left it is the first of the queue, which has let go of all others.
    Many(Many),
}

#[derive(Default)]
pub(super) struct Queue(VecDeque<Lot>);

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        match self.0.len() {
            0 => true,
            1 => self.is_spent(),
            _ => false,
        }
    }

    /// Whether the next task comes after something that has made its last one.
    fn is_spent(&self) -> bool {
        matches!(self.0.front(), Some(Lot::Many(many)) if many.counted.left() == 0)
    }

    pub(super) fn push(&mut self, queued: Queued) {
        self.0.push_back(Lot::One(queued));
    }

    pub(super) fn push_many(&mut self, many: Many) {
        self.0.push_back(Lot::Many(many));
    }

    /// The next task; none as well if something has to be let go first: see [`Queue::take_spent`].
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Queued> {
        match self.0.front_mut()? {
            Lot::Many(many) => many.next(),
            Lot::One(_) => self.pop_one(),
        }
    }

    #[inline(never)]
    fn pop_one(&mut self) -> Option<Queued> {
        match self.0.pop_front()? {
            Lot::One(queued) => Some(queued),
            Lot::Many(mut many) => many.next(),
        }
    }

    /// What has made its last task, to be dropped where nothing is borrowed: it may hold the last handle of a session.
    #[cold]
    pub(super) fn take_spent(&mut self) -> Option<impl Sized + use<>> {
        if self.is_spent() { self.0.pop_front() } else { None }
    }
}
