//! A board with threads around it that follow its orders: the parts of a history, and the next step of each.

use uruk_core::{Task, TaskPriority};

use crate::limits::{BoundsWanted, Charge};
use crate::rayon::board::{Board, Call, Orders, Watch, Who};

use super::board;

/// The state of a spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spare {
    /// On its way to look at the board.
    Looks,
    Asleep,
    Runs(Charge),
    Blocked(Charge),
}

impl Spare {
    pub(super) fn runs(self) -> bool {
        matches!(self, Self::Runs(_))
    }

    pub(super) fn is_blocked(self) -> bool {
        matches!(self, Self::Blocked(_))
    }
}

/// A board with threads around it that do as they are told, one step at a time.
pub(super) struct World {
    pub(super) board: Board,
    /// Tickets in the host's pool.
    pub(super) spawned: usize,
    /// Tasks that the host's threads run, and those that are blocked there.
    pub(super) on_host: Vec<Charge>,
    pub(super) blocked_on_host: Vec<Charge>,
    pub(super) foreign_waits: usize,
    pub(super) spares: Vec<Spare>,
    /// Of four starts of spares the operating system refuses so many.
    pub(super) refuses: usize,
    random: u64,
}

impl World {
    pub(super) fn new(host_threads: usize, bounds: BoundsWanted, seed: u64) -> Self {
        Self {
            board: board(host_threads, bounds),
            spawned: 0,
            on_host: Vec::new(),
            blocked_on_host: Vec::new(),
            foreign_waits: 0,
            spares: Vec::new(),
            refuses: 0,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random as usize % bound
    }

    /// Says whether anybody is left who could run what is queued.
    pub(super) fn follow(&mut self, orders: Orders) -> bool {
        self.spawned += orders.tickets;
        match orders.call {
            Call::Nobody => {}
            Call::Start if self.below(4) < self.refuses => {
                return self.board.start_failed(true);
            }
            Call::Wake => {
                if let Some(asleep) = self.spares.iter_mut().find(|spare| **spare == Spare::Asleep) {
                    *asleep = Spare::Looks;
                }
            }
            Call::Start => {
                self.spares.push(Spare::Looks);
                let unblocked = self.board.idle + self.board.serving;
                assert!(unblocked <= self.board.permitted().max(1), "one too many: {:?}", self.board);
            }
        }
        true
    }

    pub(super) fn push(&mut self, count: usize) {
        let priorities = [TaskPriority::Idle, TaskPriority::Lazy, TaskPriority::Demanded];
        let task = |_| Task::new("test", priorities[self.below(3)], || ());
        let tasks: Vec<_> = (0..count).map(task).collect();
        let orders = self.board.push(tasks.into_iter());
        if !self.follow(orders) {
            // As many as there were, whosoever.
            for _ in 0..count {
                drop(self.board.take_back());
            }
        }
    }

    pub(super) fn spare_in(&mut self, state: impl Fn(Spare) -> bool) -> Option<usize> {
        let those: Vec<_> = (0..self.spares.len()).filter(|&index| state(self.spares[index])).collect();
        if those.is_empty() { None } else { Some(those[self.below(those.len())]) }
    }

    /// The steps of a spare from its look to the next release of the lock, in the order of `Shared::serve`.
    pub(super) fn look(&mut self, index: usize) {
        self.board.arrived();
        let quiet = self.below(4) == 0;
        if self.board.retires(quiet) {
            self.spares.remove(index);
        } else if let Some((_, charge, orders)) = self.board.take_for_spare() {
            self.spares[index] = Spare::Runs(charge);
            self.follow(orders);
        } else {
            self.spares[index] = Spare::Asleep;
        }
    }

    /// Idle spares have waited for as long as they do; says whether there are any.
    pub(super) fn time_passes(&mut self) -> bool {
        let asleep: Vec<_> =
            (0..self.spares.len()).filter(|&spare| self.spares[spare] == Spare::Asleep).collect();
        let mut watches: Vec<_> = asleep.iter().map(|_| Watch::default()).collect();
        watches.iter_mut().for_each(|watch| self.board.begin_watch(watch));
        for (&index, watch) in asleep.iter().zip(&mut watches) {
            let orders = self.board.look_at_clock(watch);
            self.follow(orders);
            self.board.arrived();
            self.spares[index] = Spare::Looks;
        }
        !asleep.is_empty()
    }

    /// Any of the tasks that run on the host's threads.
    pub(super) fn take_from_host(&mut self) -> Charge {
        let index = self.below(self.on_host.len());
        self.on_host.swap_remove(index)
    }

    /// The wait of the last that is blocked there is over, or was refused.
    pub(super) fn end_wait_on_host(&mut self) {
        let charge = self.blocked_on_host.pop().expect("one is blocked");
        self.on_host.push(charge);
        let orders = self.board.end_wait(Who::Host, Some(charge));
        self.follow(orders);
    }

    pub(super) fn end_wait_of_spare(&mut self, index: usize, charge: Charge) {
        self.spares[index] = Spare::Runs(charge);
        let orders = self.board.end_wait(Who::Spare, Some(charge));
        self.follow(orders);
    }

    pub(super) fn tasks_on_host(&self) -> usize {
        self.on_host.len() + self.blocked_on_host.len()
    }

    pub(super) fn count(&self, state: impl Fn(Spare) -> bool) -> usize {
        self.spares.iter().filter(|spare| state(**spare)).count()
    }
}
