//! How long a spare waits before it looks at the clock, and what it concludes from that.

use std::time::Duration;

use crate::rayon::PATIENCE;

use super::{Board, Orders};

/// What an idle spare knows of the time in which it waits.
#[derive(Debug, Default)]
pub(in crate::rayon) struct Watch {
    /// How long it has had nothing to do.
    pub(in crate::rayon) quiet: Duration,
    /// How long tasks have been there and none was taken.
    untaken: Duration,
    /// How many had been taken when it last began to wait, and how long it meant to wait then.
    taken: u64,
    patience: Duration,
    /// What might start was held back by time alone.
    held_by_time: bool,
}

impl Board {
    /// An idle spare begins to wait. Gives how long at most: what time alone holds back shall not lie for longer than that.
    pub(in crate::rayon) fn begin_watch(&self, watch: &mut Watch) -> Duration {
        watch.held_by_time = self.startable() == 0 && self.startable_in_time() > 0;
        watch.patience = match self.startable_in_time() > self.startable() {
            true => self.limits.patience().map_or(PATIENCE, |left| left.min(PATIENCE)),
            false => PATIENCE,
        };
        watch.taken = self.taken();
        watch.patience
    }

    /// It was not called meanwhile.
    pub(in crate::rayon) fn look_at_clock(&mut self, watch: &mut Watch) -> Orders {
        watch.quiet += watch.patience;
        if self.startable() == 0 || self.taken() != watch.taken {
            watch.untaken = Duration::ZERO;
        } else if !watch.held_by_time {
            watch.untaken += watch.patience;
        }
        // What has become startable by now is the host's first.
        self.stalled |= watch.untaken >= PATIENCE;
        self.orders()
    }

    /// Whether somebody looks at the clock, if anything is queued. One that serves does not before its task ends: that is good enough
    /// for what may start now, since others are called for it too.
    pub(super) fn is_watched(&self, startable: usize) -> bool {
        self.idle > 0 || {
            let held_by_time = self.startable_in_time() > startable;
            !held_by_time && (self.serving > 0 || startable == 0)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use uruk_core::sync::{Arc, Mutex};
    use uruk_core::{Task, TaskPriority};

    use crate::limits::BoundsWanted;
    use crate::rayon::board::{Call, Who};
    use crate::rayon::model::{Now, board, unlimited};

    use super::*;

    /// A board whose background has a quarter of two threads, by a clock that says what it is told.
    fn quarter_of_two() -> (Board, impl Fn(u64)) {
        let now = Now::new(Mutex::new(Instant::now()));
        let clock = now.clone();
        let bounds = BoundsWanted { clock: Arc::new(move || *clock.lock()), ..unlimited() };
        let bounds = BoundsWanted { background_percent_max: Some(25), ..bounds };
        (board(2, bounds), move |ms| *now.lock() += Duration::from_millis(ms))
    }

    fn idle() -> impl Iterator<Item = Task> {
        std::iter::once(Task::new("test", TaskPriority::Idle, || ()))
    }

    /// Pushes a task, for which a spare is started; a ticket runs it for 10 ms, half of which is left to be paid: that takes 10 ms more.
    fn spend(board: &mut Board, passes: impl Fn(u64)) {
        assert_eq!(board.push(idle()), Orders { tickets: 1, call: Call::Start });
        board.arrived();
        let (_, charge) = board.take_for_ticket().expect("nothing was spent");
        passes(10);
        assert_eq!(board.ticket_ended(charge, false), Orders { tickets: 0, call: Call::Nobody });
    }

    #[test]
    fn a_spare_looks_at_the_clock_and_the_host_gets_what_time_has_held_back() {
        let (mut board, passes) = quarter_of_two();
        spend(&mut board, &passes);
        assert!(board.retires(true), "nothing is left to look at the clock for");
        assert_eq!(board.push(idle()), Orders { tickets: 0, call: Call::Start });
        board.arrived();
        let mut watch = Watch::default();
        assert_eq!(board.begin_watch(&mut watch), Duration::from_millis(10), "no longer than it takes");
        passes(9);
        assert_eq!(board.look_at_clock(&mut watch), Orders { tickets: 0, call: Call::Nobody });
        assert!(!board.is_permitted() && !board.retires(true));
        assert_eq!(board.begin_watch(&mut watch), Duration::from_millis(1));
        passes(1);
        assert_eq!(board.look_at_clock(&mut watch), Orders { tickets: 1, call: Call::Nobody });
        assert!(!board.is_permitted(), "the host has not had its time");
        assert_eq!(board.begin_watch(&mut watch), PATIENCE);
        passes(20);
        assert_eq!(board.look_at_clock(&mut watch), Orders { tickets: 0, call: Call::Wake });
        assert!(board.take_for_spare().is_some(), "it has not come to its ticket");
    }

    /// However often a spare looks at the clock for the one, the host is found stalled over the other.
    #[test]
    fn what_time_holds_back_hides_no_stalled_host() {
        let (mut board, passes) = quarter_of_two();
        spend(&mut board, &passes);
        let both = idle().chain([Task::new("test", TaskPriority::Demanded, || ())]);
        assert_eq!(board.push(both), Orders { tickets: 1, call: Call::Nobody });
        let mut watch = Watch::default();
        for ms in [10, 20] {
            assert!(!board.is_permitted());
            assert_eq!(board.begin_watch(&mut watch), Duration::from_millis(ms));
            passes(ms);
            let _tickets = board.look_at_clock(&mut watch);
        }
        assert!(board.is_permitted());
    }

    /// A spare that serves may do so for long.
    #[test]
    fn a_second_spare_looks_at_the_clock_while_one_serves() {
        let (mut board, passes) = quarter_of_two();
        assert_eq!(board.begin_wait(Who::Foreign, None).call, Call::Nobody);
        spend(&mut board, &passes);
        let demanded = std::iter::once(Task::new("test", TaskPriority::Demanded, || ()));
        assert_eq!(board.push(demanded), Orders { tickets: 1, call: Call::Wake });
        assert!(board.take_for_spare().is_some());
        assert_eq!(board.push(idle()), Orders { tickets: 0, call: Call::Start });
    }

    /// Nobody would look at the clock for it.
    #[test]
    fn time_holds_nothing_back_where_no_spare_can_be_had() {
        let (mut board, passes) = quarter_of_two();
        spend(&mut board, &passes);
        assert!(board.retires(true));
        assert_eq!(board.push(idle()), Orders { tickets: 0, call: Call::Start });
        assert_eq!(board.start_failed(true), (true, 1));
        let (_, charge) = board.take_for_ticket().expect("time holds nothing back");
        assert_eq!(board.push(idle()), Orders { tickets: 1, call: Call::Start }, "it is tried again");
        board.arrived();
        assert!(board.take_for_ticket().is_none(), "time does again");
        assert_eq!(board.ticket_ended(charge, false), Orders { tickets: 0, call: Call::Nobody });
    }
}
