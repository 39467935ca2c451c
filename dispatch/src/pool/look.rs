//! Looks: what of the queued tasks may start, and what the rest waits for.

use std::time::Duration;

use uruk_core::TaskPriority;
use uruk_core::sync::Arc;

use crate::sleep::Waits;

use super::Pool;

impl Pool {
    /// Whether a task is queued that no limit holds back, or none but time: somebody has to look at the clock then.
    pub(crate) fn any_startable(&self) -> bool {
        self.any_above(|| self.limits.floor_but_for_time())
    }

    /// Whether one is queued that no limit holds back.
    pub(crate) fn any_startable_now(&self) -> bool {
        self.any_above(|| self.floor())
    }

    /// What the tasks wait for that are queued and held back by no limit but time.
    pub(crate) fn waiting(&self) -> Waits {
        let by_time = self.limits.are_about_time();
        match self.any_startable() {
            true if by_time && !self.any_startable_now() => Waits::ForTime,
            true => Waits::ForSomebody,
            false => Waits::Nothing,
        }
    }

    /// For how long at most a thread may sleep that has found nothing to start: not for ever, if only time holds something back.
    pub(crate) fn patience(&self) -> Option<Duration> {
        if !self.limits.are_about_time() || !self.queues.any_waiting(TaskPriority::Idle) {
            return None;
        }
        self.limits.patience()
    }

    /// Whether a task waits of a priority that is not below the floor.
    ///
    /// The floor may change before the second look. If it rises, somebody is called in vain. If it falls, a task may be overlooked
    /// that could start now. A limit that is lifted made it fall: whoever lifted that looks or searches after it
    /// (`sleep/README.md`), and finds what was queued by now, or who queues it later finds the limit lifted. Or time did: then
    /// this look was the one before a sleep, which asks how long it may last after it, and it may not last at all.
    fn any_above(&self, floor: impl FnOnce() -> TaskPriority) -> bool {
        // Mostly nothing waits, or all may start: then the queues need not be asked twice.
        self.queues.any_waiting(TaskPriority::Idle)
            && match floor() {
                TaskPriority::Idle => true,
                floor => self.queues.any_waiting(floor),
            }
    }

    /// The lowest priority of which a task may start now.
    pub(crate) fn floor(&self) -> TaskPriority {
        self.limits.floor()
    }

    /// To be called by a thread that may have `lifted` a limit and holds no slot, so that it will not search. Says whether anybody is
    /// left to run what may start now: if not, no thread could be started, and this one must.
    #[must_use]
    pub(crate) fn look_if(self: &Arc<Self>, lifted: bool) -> bool {
        !lifted || self.follow(self.sleep.lifted(|| self.any_startable()))
    }

    /// To be called by a thread that may have `lifted` a limit and goes on with something else than a search. Those who sleep until
    /// time has passed may have to look sooner than they know. What is not about time needs nobody else: a searcher finds it. Says
    /// whether anybody is left, as above; a thread that holds a slot is, and need not ask.
    pub(crate) fn rouse_if(self: &Arc<Self>, lifted: bool) -> bool {
        if !lifted || !self.limits.are_about_time() {
            return true;
        }
        let background_waits =
            || [TaskPriority::Idle, TaskPriority::Speculative].iter().any(|&p| self.queues.any_injected(p));
        let time_alone = || self.limits.floor_but_for_time() == TaskPriority::Idle;
        self.follow(self.sleep.lifted(|| background_waits() && time_alone()))
    }

    /// What a task of this priority has to wait for.
    pub(super) fn waits_for(&self, priority: TaskPriority) -> Waits {
        if priority == TaskPriority::Demanded {
            Waits::ForSomebody
        } else if priority < self.limits.floor_but_for_time() {
            Waits::Nothing
        } else if self.limits.are_about_time() && priority < self.floor() {
            Waits::ForTime
        } else {
            Waits::ForSomebody
        }
    }
}
