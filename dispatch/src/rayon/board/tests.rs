//! The board, one change after another: its orders, and the thread that gets each task.

use uruk_core::sync::{Arc, Mutex};
use uruk_core::{SerialQueue, Task, TaskDispatcher, TaskPriority};

use crate::limits::BoundsWanted;
use crate::queues::TURNS_IN_A_ROW_MAX;
use crate::rayon::model::{board, unlimited};

use super::{Call, Orders, Who};

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
    assert!(board.start_failed(true), "the host's thread is left");
    assert_eq!(board.begin_wait(Who::Host, None).call, Call::Start);
    assert!(!board.start_failed(true));
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
    assert!(!board.start_failed(true));
    assert!(board.take_back().is_some(), "the first caller gets as many back as it gave");
    let orders = board.call_if_deserted().expect("one is left, and nobody for it");
    assert_eq!((orders.tickets, orders.call), (0, Call::Start));
    assert!(!board.start_failed(true));
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

/// Each ticket that was turned away permits a spare until the host takes something itself: then it moves, and needs none. Nor does
/// it when nothing is left that such a ticket could have missed.
#[test]
fn tickets_that_were_turned_away_permit_spares_until_the_host_moves_or_nothing_waits() {
    let tasks = |count| (0..count).map(|_| Task::new("test", TaskPriority::Lazy, || ()));
    for by_spares in [false, true] {
        let mut board = board(4, unlimited());
        assert_eq!(board.push(tasks(2)).tickets, 2);
        let (_orders, _call) = (board.turn_away(), board.turn_away());
        assert_eq!(board.permitted(), 2);
        if by_spares {
            while board.take_for_spare().is_some() {}
        } else {
            let _taken = board.take_for_ticket().expect("two are queued");
        }
        assert_eq!((board.permitted(), board.waiting()), (0, usize::from(!by_spares)));
    }
}
