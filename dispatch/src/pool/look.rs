//! Looks: which of the queued tasks may start.

use uruk_core::TaskPriority;
use uruk_core::sync::Arc;

use super::Pool;

impl Pool {
    /// Whether a task is queued that no limit holds back.
    ///
    /// The floor may change before the second look. If it rises, a thread is called in vain. If it falls, a task may be
    /// overlooked that could start now. A lifted limit made it fall, and the thread that lifted it looks or searches afterwards
    /// (`sleep/README.md`): it finds the tasks queued by now, and a producer that queues later finds the limit lifted.
    pub(crate) fn any_startable(&self) -> bool {
        // Mostly nothing waits, or all may start: then the queues need not be asked twice.
        self.queues.any_waiting(TaskPriority::Idle)
            && match self.limits.floor() {
                TaskPriority::Idle => true,
                floor => self.queues.any_waiting(floor),
            }
    }

    /// To be called by a thread that may have `lifted` a limit and holds no slot, so that it will not search. Says whether a thread
    /// is left to run what may start now: if not, no thread could be started, and this one must.
    #[must_use]
    pub(crate) fn look_if(self: &Arc<Self>, lifted: bool) -> bool {
        !lifted || self.follow(self.sleep.lifted(|| self.any_startable()))
    }

    /// Whether a task of this priority may start now.
    pub(super) fn may_start(&self, priority: TaskPriority) -> bool {
        priority == TaskPriority::Demanded || priority >= self.limits.floor()
    }
}
