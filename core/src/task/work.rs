//! The work of a task: a unit, or anything else.

use std::ops::{Deref, DerefMut};

use crate::sync::Arc;
use crate::task::serial_queue::TurnTicket;
use crate::{TaskDispatcher, TaskLabel};

use super::unit::{ClaimOfSession, UnitTask};

/// The work of a task. It makes its label itself, and only when asked.
pub(crate) trait Work: Send {
    fn label(&self) -> &str;
    /// See [`Task::keep_label`].
    fn keep_label(&self) -> TaskLabel;
    /// The dispatcher that runs this work, if it is known.
    fn dispatcher(&self) -> Option<Arc<dyn TaskDispatcher>> {
        None
    }
    /// Whether it marks a leaf itself, more closely than from its beginning to its end.
    fn marks_leaf(&self) -> bool {
        false
    }
    /// Does it. Called once.
    fn run(&mut self);
    /// The task begins to wait for its turn in a serial queue, or does so no more. Called under the queue's lock.
    fn waits_for_turn(&self, _waits: bool) {}
    /// See [`Task::leaves_queue`].
    fn leaves_queue(&self) -> bool {
        true
    }
    /// See [`Task::waits_since_us`].
    fn waits_since_us(&self) -> Option<u32> {
        None
    }
    /// The task is the turn of another, which waits in a [`SerialQueue`].
    fn as_turn(&mut self) -> Option<&mut TurnTicket> {
        None
    }
    /// See [`Task::claim`].
    fn claim(&self) -> Option<ClaimOfSession> {
        None
    }
}

/// The forms of a task's work.
pub(crate) enum TaskWork {
    Unit(UnitTask),
    Other(Box<dyn Work>),
}

impl From<UnitTask> for TaskWork {
    fn from(unit: UnitTask) -> Self {
        Self::Unit(unit)
    }
}

impl<W: Work + 'static> From<Box<W>> for TaskWork {
    fn from(work: Box<W>) -> Self {
        Self::Other(work)
    }
}

impl Deref for TaskWork {
    type Target = dyn Work;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Unit(unit) => unit,
            Self::Other(work) => &**work,
        }
    }
}

impl DerefMut for TaskWork {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Unit(unit) => unit,
            Self::Other(work) => &mut **work,
        }
    }
}

/// A closure and what to call it.
pub(super) struct Labelled<F> {
    label: TaskLabel,
    /// Taken when it runs.
    run: Option<F>,
}

impl<F: FnOnce() + Send> Labelled<F> {
    pub(super) fn new(label: TaskLabel, run: F) -> Self {
        Self { label, run: Some(run) }
    }
}

impl<F: FnOnce() + Send> Work for Labelled<F> {
    fn label(&self) -> &str {
        self.label.as_str()
    }

    fn keep_label(&self) -> TaskLabel {
        self.label.clone()
    }

    fn run(&mut self) {
        self.run.take().into_iter().for_each(|run| run());
    }
}
