//! Random histories of the board, with threads that do as they are told, against what it promises.

use std::time::{Duration, Instant};

use uruk_core::sync::{Arc, Mutex};
use uruk_core::{SerialQueue, Task, TaskDispatcher, TaskPriority};

use crate::limits::{BoundsWanted, Charge};

use super::PATIENCE;
use super::board::{Board, Call, Orders, Watch, Who};
use crate::queues::TURNS_IN_A_ROW_MAX;

/// What a spare is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spare {
    /// On its way to look at the board.
    Looks,
    Asleep,
    Runs(Charge),
    Blocked(Charge),
}

impl Spare {
    fn runs(self) -> bool {
        matches!(self, Self::Runs(_))
    }

    fn is_blocked(self) -> bool {
        matches!(self, Self::Blocked(_))
    }
}

/// A board with threads around it that do as they are told, one step at a time.
struct World {
    board: Board,
    /// Tickets in the host's pool.
    spawned: usize,
    /// Tasks that the host's threads run, and those that are blocked there.
    on_host: Vec<Charge>,
    blocked_on_host: Vec<Charge>,
    foreign_waits: usize,
    spares: Vec<Spare>,
    /// What the board takes for the time, if that limits anything.
    now: Option<Now>,
    /// Of four starts of spares the operating system refuses so many.
    refuses: usize,
    random: u64,
}

type Now = Arc<Mutex<Instant>>;

impl World {
    fn new(host_threads: usize, mut bounds: BoundsWanted, seed: u64) -> Self {
        let now = bounds.background_percent_max.map(|_| Now::new(Mutex::new(Instant::now())));
        if let Some(clock) = now.clone() {
            bounds.clock = Arc::new(move || *clock.lock());
        }
        Self {
            now,
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

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random as usize % bound
    }

    /// Says whether anybody is left who could run what is queued.
    fn follow(&mut self, orders: Orders) -> bool {
        self.spawned += orders.tickets;
        match orders.call {
            Call::Nobody => {}
            Call::Start if self.below(4) < self.refuses => {
                let (somebody_left, tickets) = self.board.start_failed(true);
                self.spawned += tickets;
                return somebody_left;
            }
            Call::Wake => {
                if let Some(asleep) = self.spares.iter_mut().find(|spare| **spare == Spare::Asleep) {
                    *asleep = Spare::Looks;
                }
            }
            Call::Start => {
                self.spares.push(Spare::Looks);
                let unblocked = self.board.idle + self.board.serving;
                let looks_at_clock = self.now.is_some() && self.board.idle == 1;
                let permitted = unblocked <= self.board.permitted().max(1) || looks_at_clock;
                assert!(permitted, "one too many: {:?}", self.board);
            }
        }
        true
    }

    fn push(&mut self, count: usize) {
        let priorities = [TaskPriority::Idle, TaskPriority::Lazy, TaskPriority::Demanded];
        let task = |_| {
            let task = Task::new("test", priorities[self.below(3)], || ());
            task.holding_bytes(self.below(2) << 10)
        };
        let tasks: Vec<_> = (0..count).map(task).collect();
        let orders = self.board.push(tasks.into_iter());
        if !self.follow(orders) {
            // As many as there were, whosoever.
            for _ in 0..count {
                drop(self.board.take_back());
            }
        }
    }

    fn spare_in(&mut self, state: impl Fn(Spare) -> bool) -> Option<usize> {
        let those: Vec<_> = (0..self.spares.len()).filter(|&index| state(self.spares[index])).collect();
        if those.is_empty() { None } else { Some(those[self.below(those.len())]) }
    }

    /// What a spare does from looking to the next time it lets go of the lock, in the order of `Shared::serve`.
    fn look(&mut self, index: usize) {
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

    /// So much time passes, in which spares wait that nobody calls; says whether there are any.
    fn passes(&mut self, time: Duration) -> bool {
        let asleep: Vec<_> =
            (0..self.spares.len()).filter(|&spare| self.spares[spare] == Spare::Asleep).collect();
        let mut watches: Vec<_> = asleep.iter().map(|_| Watch::default()).collect();
        let mut waits = time;
        for watch in &mut watches {
            waits = waits.min(self.board.begin_watch(watch));
        }
        if let Some(now) = &self.now {
            *now.lock() += waits;
        }
        for (&index, watch) in asleep.iter().zip(&mut watches) {
            let orders = self.board.look_at_clock(watch);
            self.follow(orders);
            self.board.arrived();
            self.spares[index] = Spare::Looks;
        }
        !asleep.is_empty()
    }

    fn step(&mut self) {
        match self.below(if self.now.is_some() { 11 } else { 10 }) {
            10 => {
                let time = Duration::from_millis(self.below(40) as u64);
                self.passes(time);
            }
            0 => {
                let count = 1 + self.below(4);
                self.push(count);
            }
            1 if self.spawned > 0 && self.tasks_on_host() < self.board.host_threads => {
                self.spawned -= 1;
                self.on_host.extend(self.board.take_for_ticket().map(|(_, charge)| charge));
            }
            2 if self.spawned > 0 && !self.on_host.is_empty() => {
                self.spawned -= 1;
                let orders = self.board.turn_away();
                self.follow(orders);
            }
            3 if !self.on_host.is_empty() => {
                let charge = self.take_from_host();
                let orders = self.board.ticket_ended(charge, false);
                self.follow(orders);
            }
            4 if !self.on_host.is_empty() => {
                let charge = self.take_from_host();
                self.blocked_on_host.push(charge);
                let orders = self.board.begin_wait(Who::Host, Some(charge));
                if !self.follow(orders) {
                    self.end_wait_on_host();
                }
            }
            5 if !self.blocked_on_host.is_empty() => {
                let index = self.below(self.blocked_on_host.len());
                let last = self.blocked_on_host.len() - 1;
                self.blocked_on_host.swap(index, last);
                self.end_wait_on_host();
            }
            6 => {
                let begins = self.foreign_waits == 0;
                self.foreign_waits = usize::from(begins);
                let orders = match begins {
                    true => self.board.begin_wait(Who::Foreign, None),
                    false => self.board.end_wait(Who::Foreign, None),
                };
                self.follow(orders);
            }
            7 => {
                if let Some(index) = self.spare_in(|spare| spare == Spare::Looks) {
                    self.look(index);
                }
            }
            8 => {
                if let Some(index) = self.spare_in(Spare::runs)
                    && let Spare::Runs(charge) = self.spares[index]
                {
                    let ends = self.below(2) == 0;
                    self.spares[index] = if ends { Spare::Looks } else { Spare::Blocked(charge) };
                    let orders = match ends {
                        true => self.board.spare_ended(charge, false),
                        false => self.board.begin_wait(Who::Spare, Some(charge)),
                    };
                    if !self.follow(orders) && !ends {
                        self.end_wait_of_spare(index, charge);
                    }
                }
            }
            _ => {
                if let Some(index) = self.spare_in(Spare::is_blocked)
                    && let Spare::Blocked(charge) = self.spares[index]
                {
                    self.end_wait_of_spare(index, charge);
                }
            }
        }
    }

    /// Any of the tasks that run on the host's threads.
    fn take_from_host(&mut self) -> Charge {
        let index = self.below(self.on_host.len());
        self.on_host.swap_remove(index)
    }

    /// The wait of the last that is blocked there is over, or was refused.
    fn end_wait_on_host(&mut self) {
        let charge = self.blocked_on_host.pop().expect("one is blocked");
        self.on_host.push(charge);
        let orders = self.board.end_wait(Who::Host, Some(charge));
        self.follow(orders);
    }

    fn end_wait_of_spare(&mut self, index: usize, charge: Charge) {
        self.spares[index] = Spare::Runs(charge);
        let orders = self.board.end_wait(Who::Spare, Some(charge));
        self.follow(orders);
    }

    fn tasks_on_host(&self) -> usize {
        self.on_host.len() + self.blocked_on_host.len()
    }

    fn count(&self, state: impl Fn(Spare) -> bool) -> usize {
        self.spares.iter().filter(|spare| state(**spare)).count()
    }

    fn check(&mut self) {
        assert!(self.board.call_if_deserted().is_none(), "nobody is left for it: {:?}", self.board);
        let board = &self.board;
        let (looking, asleep) =
            (self.count(|spare| spare == Spare::Looks), self.count(|spare| spare == Spare::Asleep));
        let (waiting, on_host) = (board.startable(), self.tasks_on_host());
        assert_eq!((board.serving, board.idle), (self.count(Spare::runs), looking + asleep));
        assert_eq!((board.tickets, board.honoured), (self.spawned + on_host, on_host));
        assert_eq!(board.counters().read().spares, self.spares.len());
        assert!(board.tickets <= board.host_threads);
        assert!(asleep <= board.host_threads, "{board:?}");
        if self.refuses > 0 {
            // Then the host's threads come to it, once they do not wait.
            let attended = looking + board.serving + self.spawned + self.on_host.len() > 0;
            assert!(attended || waiting == 0, "{board:?}");
            assert!(attended || board.idle > 0 || board.startable_in_time() == 0, "{board:?}");
            return;
        }
        let in_time = board.startable_in_time();
        assert!(in_time == 0 || board.idle + board.serving > 0, "somebody looks at the clock");
        let at_work = self.on_host.len() + board.serving;
        let held_by_time = in_time > waiting && at_work == 0;
        assert!(!held_by_time || board.idle > 0, "somebody is free to: {board:?}");
        // No spare that could step in at once has to wait for the clock.
        let permitted = waiting > 0 && board.serving < board.permitted();
        assert!(!permitted || looking > 0, "{board:?}");
        // Nothing is held back for ever: a limit is held by what runs, and ends.
        assert!(at_work > 0 || in_time > 0 || board.waiting() == 0, "{board:?}");
    }

    /// From here on no spare can be had, nothing else comes, and whoever waits stops waiting.
    fn ends_without_spares(&mut self) {
        self.refuses = 4;
        for _ in 0..10_000 {
            if self.board.waiting() == 0 {
                return;
            }
            if let Some(index) = self.spare_in(|spare| spare == Spare::Looks) {
                self.look(index);
            } else if !self.blocked_on_host.is_empty() {
                self.end_wait_on_host();
            } else if let Some(charge) = self.on_host.pop() {
                let orders = self.board.ticket_ended(charge, false);
                self.follow(orders);
            } else if let Some(index) = self.spare_in(|spare| spare.runs() || spare.is_blocked()) {
                let (Spare::Runs(charge) | Spare::Blocked(charge)) = self.spares[index] else { continue };
                if self.spares[index].is_blocked() {
                    self.end_wait_of_spare(index, charge);
                }
                self.spares[index] = Spare::Looks;
                let orders = self.board.spare_ended(charge, false);
                self.follow(orders);
            } else if self.spawned > 0 {
                self.spawned -= 1;
                self.on_host.extend(self.board.take_for_ticket().map(|(_, charge)| charge));
            } else {
                assert!(self.passes(PATIENCE), "nobody comes to it: {:?}", self.board);
            }
            self.check();
        }
        panic!("tasks are left: {:?}", self.board);
    }

    /// From here on the host gives no thread, and nobody stops waiting: what runs ends, spares and the clock alone go on.
    fn ends_without_the_host(&mut self) {
        for _ in 0..10_000 {
            if self.board.waiting() == 0 {
                return;
            }
            if let Some(charge) = self.on_host.pop() {
                let orders = self.board.ticket_ended(charge, false);
                self.follow(orders);
            } else if let Some(index) = self.spare_in(Spare::runs)
                && let Spare::Runs(charge) = self.spares[index]
            {
                self.spares[index] = Spare::Looks;
                let orders = self.board.spare_ended(charge, false);
                self.follow(orders);
            } else if let Some(index) = self.spare_in(|spare| spare == Spare::Looks) {
                self.look(index);
            } else {
                assert!(self.passes(PATIENCE), "somebody looks at the clock");
            }
            self.check();
        }
        panic!("tasks are left: {:?}", self.board);
    }
}

fn board(host_threads: usize, bounds: BoundsWanted) -> Board {
    Board::new(host_threads, Arc::new(bounds.of(host_threads)))
}

fn unlimited() -> BoundsWanted {
    BoundsWanted { background_workers_max: Some(usize::MAX), ..BoundsWanted::default() }
}

#[test]
fn whatever_happens_somebody_is_called_and_everything_is_taken() {
    let bounds = [
        unlimited(),
        BoundsWanted::default(),
        BoundsWanted { memory_bytes_max: 1, background_workers_max: Some(2), ..BoundsWanted::default() },
        BoundsWanted { background_percent_max: Some(30), ..unlimited() },
    ];
    for seed in 0..400 {
        let mut world = World::new(1 + seed as usize % 3, bounds[(seed / 3) as usize % 4].clone(), seed);
        for _ in 0..400 {
            world.step();
            world.check();
        }
        world.ends_without_the_host();
    }
}

#[test]
fn whatever_is_refused_the_host_comes_to_what_no_spare_does() {
    let bounds = [
        unlimited(),
        BoundsWanted { memory_bytes_max: 1, background_workers_max: Some(2), ..BoundsWanted::default() },
        BoundsWanted { background_percent_max: Some(30), ..unlimited() },
    ];
    for seed in 0..400 {
        let mut world = World::new(1 + seed as usize % 3, bounds[(seed / 3) as usize % 3].clone(), seed);
        for step in 0..400 {
            // Now and then it refuses more; or all of them, always.
            if step % 50 == 0 {
                world.refuses = if seed % 2 == 0 { 4 } else { 1 + world.below(4) };
            }
            world.step();
            world.check();
        }
        world.ends_without_spares();
    }
}

#[test]
fn each_thread_of_the_host_has_one_ticket_at_most() {
    let mut board = board(2, unlimited());
    let tasks = |count| (0..count).map(|_| Task::new("test", TaskPriority::Lazy, || ()));
    assert_eq!(board.push(tasks(1)), Orders { tickets: 1, call: Call::Start });
    assert_eq!(board.push(tasks(5)), Orders { tickets: 1, call: Call::Nobody });
    let (_, charge) = board.take_for_ticket().expect("six are queued");
    assert_eq!(board.push(tasks(1)).tickets, 0);
    assert_eq!(board.ticket_ended(charge, false).tickets, 1, "in its own place");
}

#[test]
fn a_refused_spare_leaves_the_host_unless_all_of_it_is_blocked() {
    let mut board = board(1, unlimited());
    let task = || std::iter::once(Task::new("test", TaskPriority::Lazy, || ()));
    assert_eq!(board.push(task()).call, Call::Start);
    assert_eq!(board.start_failed(true), (true, 0), "the host's thread is left");
    assert_eq!(board.begin_wait(Who::Host, None).call, Call::Start);
    assert_eq!(board.start_failed(true), (false, 0));
    assert_eq!((board.counters().read().spares, board.counters().read().refused_threads), (0, 2));
}

#[test]
fn what_relied_on_a_refused_spare_is_not_deserted() {
    let mut board = board(1, unlimited());
    let task = || std::iter::once(Task::new("test", TaskPriority::Lazy, || ()));
    assert_eq!(board.begin_wait(Who::Host, None).call, Call::Nobody);
    assert_eq!(board.push(task()).call, Call::Start);
    assert_eq!(board.push(task()).call, Call::Nobody, "the second caller relies on the first");
    assert!(board.call_if_deserted().is_none(), "a spare is on its way");
    assert_eq!(board.start_failed(true), (false, 0));
    assert!(board.take_back().is_some(), "the first caller gets as many back as it gave");
    let orders = board.call_if_deserted().expect("one is left, and nobody for it");
    assert_eq!((orders.tickets, orders.call), (0, Call::Start));
    assert_eq!(board.start_failed(true), (false, 0));
    assert!(board.take_back().is_some());
    assert!(board.call_if_deserted().is_none());
}

#[test]
fn what_a_limit_holds_back_calls_nobody_until_it_is_lifted() {
    let mut board = board(3, BoundsWanted { background_workers_max: Some(1), ..BoundsWanted::default() });
    let task = |priority| std::iter::once(Task::new("test", priority, || ()));
    assert_eq!(board.push(task(TaskPriority::Idle)).tickets, 1);
    let (_, first) = board.take_for_ticket().expect("nothing else runs");
    assert_eq!(board.push(task(TaskPriority::Speculative)).tickets, 0);
    assert_eq!(board.push(task(TaskPriority::Lazy)).tickets, 1);
    assert_eq!(board.take_for_ticket().expect("it passes").0.priority(), TaskPriority::Lazy);
    assert_eq!(board.begin_wait(Who::Host, Some(first)).tickets, 1, "a blocked task takes no place");
    assert_eq!(board.take_for_ticket().expect("its place").0.priority(), TaskPriority::Speculative);
}

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

/// Takes a task that a ticket runs for 10 ms; half of that is left to be paid, which takes 10 ms more.
fn spend(board: &mut Board, passes: impl Fn(u64)) {
    let (_, charge) = board.take_for_ticket().expect("nothing was spent");
    passes(10);
    assert_eq!(board.ticket_ended(charge, false), Orders { tickets: 0, call: Call::Nobody });
}

#[test]
fn a_spare_looks_at_the_clock_and_the_host_gets_what_time_has_held_back() {
    let (mut board, passes) = quarter_of_two();
    assert_eq!(board.push(idle()), Orders { tickets: 1, call: Call::Start });
    board.arrived();
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
    assert_eq!(board.push(idle()), Orders { tickets: 1, call: Call::Start });
    board.arrived();
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
    assert_eq!(board.push(idle()), Orders { tickets: 1, call: Call::Start });
    board.arrived();
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
    assert_eq!(board.push(idle()), Orders { tickets: 1, call: Call::Start });
    board.arrived();
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
    let mut board = board(1, unlimited());
    let other = |label| Task::new(label, TaskPriority::Demanded, || ());
    let others = [other("first"), other("second"), Task::new("lazy", TaskPriority::Lazy, || ())];
    let turns = (0..2 * TURNS_IN_A_ROW_MAX + 2).map(|_| turn(TaskPriority::Demanded));
    let _orders = board.push(others.into_iter().chain([turn(TaskPriority::Lazy)]).chain(turns));
    let mut taken = Vec::new();
    while board.waiting() > 0 {
        let (task, charge) = board.take_for_ticket().expect("one waits");
        taken.push(task.label().to_owned());
        let _orders = board.ticket_ended(charge, false);
    }
    let in_a_row = || std::iter::repeat_n("turn", TURNS_IN_A_ROW_MAX as usize);
    let expected = in_a_row().chain(["first"]).chain(in_a_row());
    let expected: Vec<_> = expected.chain(["second", "turn", "turn", "lazy", "turn"]).collect();
    assert_eq!(taken, expected);
}

#[test]
fn a_turn_can_be_taken_back() {
    let mut board = board(1, unlimited());
    let _orders = board.push(std::iter::once(turn(TaskPriority::Demanded)));
    assert_eq!(board.waiting(), 1);
    assert!(board.take_back().is_some() && board.take_back().is_none());
}
