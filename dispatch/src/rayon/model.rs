//! Random histories of the board, with threads that do as they are told, against what it promises.

use uruk_core::sync::{Arc, Mutex};
use uruk_core::{SerialQueue, Task, TaskDispatcher, TaskPriority};

use super::board::{Board, Call, Orders, Who};
use crate::queues::TURNS_IN_A_ROW_MAX;

/// What a spare is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spare {
    /// On its way to look at the board.
    Looks,
    Asleep,
    Runs,
    Blocked,
}

/// A board with threads around it that do as they are told, one step at a time.
struct World {
    board: Board,
    /// Tickets in the host's pool.
    spawned: usize,
    /// Tasks that the host's threads run, and how many of them are blocked.
    on_host: usize,
    blocked_on_host: usize,
    foreign_waits: usize,
    spares: Vec<Spare>,
    random: u64,
}

impl World {
    fn new(host_threads: usize, seed: u64) -> Self {
        Self {
            board: Board::new(host_threads),
            spawned: 0,
            on_host: 0,
            blocked_on_host: 0,
            foreign_waits: 0,
            spares: Vec::new(),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random as usize % bound
    }

    fn follow(&mut self, orders: Orders) {
        self.spawned += orders.tickets;
        match orders.call {
            Call::Nobody => {}
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
    }

    fn push(&mut self, count: usize) {
        let priorities = [TaskPriority::Idle, TaskPriority::Lazy, TaskPriority::Demanded];
        let tasks: Vec<_> = (0..count).map(|_| Task::new("test", priorities[self.below(3)], || ())).collect();
        let orders = self.board.push(tasks.into_iter());
        self.follow(orders);
    }

    fn spare_in(&mut self, state: Spare) -> Option<usize> {
        let those: Vec<_> = (0..self.spares.len()).filter(|&index| self.spares[index] == state).collect();
        if those.is_empty() { None } else { Some(those[self.below(those.len())]) }
    }

    /// What a spare does from looking to the next time it lets go of the lock.
    fn look(&mut self, index: usize) {
        self.board.arrived();
        if let Some((_, orders)) = self.board.take_for_spare() {
            self.spares[index] = Spare::Runs;
            self.follow(orders);
        } else if self.board.retires(false) {
            self.spares.remove(index);
        } else {
            self.spares[index] = Spare::Asleep;
        }
    }

    fn step(&mut self) {
        match self.below(10) {
            0 => {
                let count = 1 + self.below(4);
                self.push(count);
            }
            1 if self.spawned > 0 && self.on_host < self.board.host_threads => {
                self.spawned -= 1;
                self.on_host += usize::from(self.board.take_for_ticket().is_some());
            }
            2 if self.spawned > 0 && self.on_host > self.blocked_on_host => {
                self.spawned -= 1;
                let orders = self.board.turn_away();
                self.follow(orders);
            }
            3 if self.on_host > self.blocked_on_host => {
                self.on_host -= 1;
                let orders = self.board.ticket_ended(false);
                self.follow(orders);
            }
            4 if self.on_host > self.blocked_on_host => {
                self.blocked_on_host += 1;
                let orders = self.board.begin_wait(Who::Host);
                self.follow(orders);
            }
            5 if self.blocked_on_host > 0 => {
                self.blocked_on_host -= 1;
                let orders = self.board.end_wait(Who::Host);
                self.follow(orders);
            }
            6 => {
                let begins = self.foreign_waits == 0;
                self.foreign_waits = usize::from(begins);
                let orders = match begins {
                    true => self.board.begin_wait(Who::Foreign),
                    false => self.board.end_wait(Who::Foreign),
                };
                self.follow(orders);
            }
            7 => {
                if let Some(index) = self.spare_in(Spare::Looks) {
                    self.look(index);
                }
            }
            8 => {
                if let Some(index) = self.spare_in(Spare::Runs) {
                    let ends = self.below(2) == 0;
                    self.spares[index] = if ends { Spare::Looks } else { Spare::Blocked };
                    let orders = match ends {
                        true => self.board.spare_ended(false),
                        false => self.board.begin_wait(Who::Spare),
                    };
                    self.follow(orders);
                }
            }
            _ => {
                if let Some(index) = self.spare_in(Spare::Blocked) {
                    self.spares[index] = Spare::Runs;
                    let orders = self.board.end_wait(Who::Spare);
                    self.follow(orders);
                }
            }
        }
    }

    fn count(&self, state: Spare) -> usize {
        self.spares.iter().filter(|spare| **spare == state).count()
    }

    fn check(&self) {
        let board = &self.board;
        let (waiting, watchers) = (board.waiting(), self.count(Spare::Looks) + self.count(Spare::Asleep));
        assert_eq!((board.serving, board.idle), (self.count(Spare::Runs), watchers));
        assert_eq!((board.tickets, board.honoured), (self.spawned + self.on_host, self.on_host));
        assert_eq!(board.metrics().spares, self.spares.len());
        assert!(board.tickets <= board.host_threads);
        assert!(waiting == 0 || board.idle + board.serving > 0, "somebody looks at the clock");
        // No spare that could step in at once has to wait for the clock.
        let permitted = waiting > 0 && board.serving < board.permitted();
        assert!(!permitted || self.count(Spare::Looks) > 0, "{board:?}");
        assert!(self.count(Spare::Asleep) <= board.host_threads, "{board:?}");
    }

    /// From here on the host gives no thread, and nobody stops waiting: spares and the clock alone go on.
    fn ends_without_the_host(&mut self) {
        for _ in 0..10_000 {
            if self.board.waiting() == 0 {
                return;
            }
            if let Some(index) = self.spare_in(Spare::Runs) {
                self.spares[index] = Spare::Looks;
                let orders = self.board.spare_ended(false);
                self.follow(orders);
            } else if let Some(index) = self.spare_in(Spare::Looks) {
                self.look(index);
            } else {
                let index = self.spare_in(Spare::Asleep).expect("somebody looks at the clock");
                let taken = self.board.taken();
                self.board.look_at_clock(taken);
                self.look(index);
            }
            self.check();
        }
        panic!("tasks are left: {:?}", self.board);
    }
}

#[test]
fn whatever_happens_somebody_is_called_and_everything_is_taken() {
    for seed in 0..300 {
        let mut world = World::new(1 + seed as usize % 3, seed);
        for _ in 0..400 {
            world.step();
            world.check();
        }
        world.ends_without_the_host();
    }
}

#[test]
fn each_thread_of_the_host_has_one_ticket_at_most() {
    let mut board = Board::new(2);
    let tasks = |count| (0..count).map(|_| Task::new("test", TaskPriority::Lazy, || ()));
    assert_eq!(board.push(tasks(1)), Orders { tickets: 1, call: Call::Start });
    assert_eq!(board.push(tasks(5)), Orders { tickets: 1, call: Call::Nobody });
    assert!(board.take_for_ticket().is_some());
    assert_eq!(board.push(tasks(1)).tickets, 0);
    assert_eq!(board.ticket_ended(false).tickets, 1, "in its own place");
}

#[test]
fn a_refused_spare_leaves_the_host_unless_all_of_it_is_blocked() {
    let mut board = Board::new(1);
    let task = || std::iter::once(Task::new("test", TaskPriority::Lazy, || ()));
    assert_eq!(board.push(task()).call, Call::Start);
    assert!(board.start_failed(true), "the host's thread is left");
    assert_eq!(board.begin_wait(Who::Host).call, Call::Start);
    assert!(!board.start_failed(true));
    assert_eq!((board.metrics().spares, board.metrics().refused_threads), (0, 2));
}

#[test]
fn what_relied_on_a_refused_spare_is_not_deserted() {
    let mut board = Board::new(1);
    let task = || std::iter::once(Task::new("test", TaskPriority::Lazy, || ()));
    assert_eq!(board.begin_wait(Who::Host).call, Call::Nobody);
    assert_eq!(board.push(task()).call, Call::Start);
    assert_eq!(board.push(task()).call, Call::Nobody, "the second caller relies on the first");
    assert!(board.call_if_deserted().is_none(), "a spare is on its way");
    assert!(!board.start_failed(true));
    assert!(board.take_back().is_some(), "the first caller gets as many back as it gave");
    let orders = board.call_if_deserted().expect("one is left, and nobody for it");
    assert_eq!((orders.tickets, orders.call), (0, Call::Start));
    assert!(!board.start_failed(true));
    assert!(board.take_back().is_some());
    assert!(board.call_if_deserted().is_none());
}

/// Keeps what it is given.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<Task>>);

impl TaskDispatcher for Kept {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        self.0.lock().push(task);
        Ok(())
    }

    fn shutdown(&self) {}
}

/// A turn that one task of a serial queue has handed over to the next.
fn turn(priority: TaskPriority) -> Task {
    let (kept, queue) = (Arc::new(Kept::default()), SerialQueue::new());
    let dispatcher: Arc<dyn TaskDispatcher> = kept.clone();
    for label in ["before", "turn"] {
        queue.dispatch(&dispatcher, Task::new(label, priority, || ())).expect("it takes everything");
    }
    let take = || kept.0.lock().pop().expect("one at a time");
    take().run();
    let turn = take();
    assert!(turn.is_handed_over());
    turn
}

#[test]
fn turns_go_first_and_starve_nobody() {
    let mut board = Board::new(1);
    let other = |label| Task::new(label, TaskPriority::Demanded, || ());
    let others = [other("first"), other("second"), Task::new("lazy", TaskPriority::Lazy, || ())];
    let turns = (0..2 * TURNS_IN_A_ROW_MAX + 2).map(|_| turn(TaskPriority::Demanded));
    let _orders = board.push(others.into_iter().chain([turn(TaskPriority::Lazy)]).chain(turns));
    let mut taken = Vec::new();
    while board.waiting() > 0 {
        let task = board.take_for_ticket().expect("one waits");
        taken.push(task.label().to_owned());
        let _orders = board.ticket_ended(false);
    }
    let in_a_row = || std::iter::repeat_n("turn", TURNS_IN_A_ROW_MAX as usize);
    let expected = in_a_row().chain(["first"]).chain(in_a_row());
    let expected: Vec<_> = expected.chain(["second", "turn", "turn", "lazy", "turn"]).collect();
    assert_eq!(taken, expected);
}

#[test]
fn a_turn_can_be_taken_back() {
    let mut board = Board::new(1);
    let _orders = board.push(std::iter::once(turn(TaskPriority::Demanded)));
    assert_eq!(board.waiting(), 1);
    assert!(board.take_back().is_some() && board.take_back().is_none());
}
