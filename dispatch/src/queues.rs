//! Where tasks wait: a deque per slot for demanded tasks, an injector per priority for all others, and one for strands.
//!
//! A task of a strand (a serial queue) hands over to the next one. The next one waits in an injector from which every slot
//! takes first: its strand cannot go on without it, while any slot can take any other task. A strand that is fed for ever
//! starves no task: after [`TURNS_IN_A_ROW_MAX`] such tasks a slot takes another demanded task, if any waits.
//!
//! This is the seam that models replace: `crossbeam-deque` is invisible to loom and shuttle, so a model build puts
//! locked queues (`queues/model.rs`) behind the same names and checks parking and shutdown, not the deque.
//!
//! Nothing here blocks or counts; who may sleep, and when, is the business of `sleep.rs`.

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
use crossbeam_deque::{Injector, Stealer, Worker};
#[cfg(any(uruk_loom, uruk_shuttle))]
mod model;
#[cfg(any(uruk_loom, uruk_shuttle))]
use model::{Injector, Stealer, Worker};

use crossbeam_deque::Steal;
use uruk_core::TaskPriority;
use uruk_core::sync::weakened;

/// Every place where an item of the pool can wait, seen by all threads.
#[derive(Debug)]
pub struct Queues<T> {
    /// The tasks that strands have handed over.
    turns: Injector<T>,
    /// One per priority, indexed by [`TaskPriority`] as a number.
    injectors: [Injector<T>; PRIORITIES],
    /// One per slot; it steals from the deque in the slot's [`Local`].
    stealers: Box<[Stealer<T>]>,
}

/// The private end of one slot. Its holder holds the slot.
#[derive(Debug)]
pub struct Local<T> {
    slot: usize,
    deque: Worker<T>,
    /// Items taken from this slot's own deque since the shared queue was last looked at.
    taken: u32,
    /// Turns taken since anything else that is demanded was taken or looked for everywhere.
    turns: u32,
    /// With which of the other slots, counted from the next one on, a round of stealing starts; moves on so that each of them is the
    /// first as often as any other.
    victim: usize,
}

/// Where a search found its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In an injector.
    Injected,
    /// In the deque of another slot.
    Stolen,
    /// By a task of a strand.
    HandedOver,
}

/// How many kinds of [`TaskPriority`] there are.
pub const PRIORITIES: usize = 4;

/// Highest first, which is the order of search.
const DESCENDING: [TaskPriority; PRIORITIES] =
    [TaskPriority::Demanded, TaskPriority::Lazy, TaskPriority::Speculative, TaskPriority::Idle];

/// Own items taken in a row before the shared demanded queue gets a turn, so that a slot that feeds itself
/// cannot starve what came from outside. A prime, so that it does not fall into step with batches.
const OWN_IN_A_ROW_MAX: u32 = 61;

/// Turns that a slot takes in a row while something else that is demanded waits. So turns have most of each slot, which makes up for their
/// running one at a time, and the rest goes on at an eighth of its pace at worst.
pub const TURNS_IN_A_ROW_MAX: u32 = 7;

impl<T> Queues<T> {
    /// Creates the queues of `slots` slots and the private end of each.
    pub fn new(slots: usize) -> (Self, Vec<Local<T>>) {
        let locals: Vec<_> = (0..slots)
            // First in, first out: results arrive in the order in which they were asked for, and what
            // waits longest is what thieves take.
            .map(|slot| Local { slot, deque: Worker::new_fifo(), taken: 0, turns: 0, victim: 0 })
            .collect();
        let stealers = locals.iter().map(|local| local.deque.stealer()).collect();
        let injectors = std::array::from_fn(|_| Injector::new());
        (Self { turns: Injector::new(), injectors, stealers }, locals)
    }

    /// Adds an item for anyone to take.
    pub fn inject(&self, priority: TaskPriority, item: T) {
        self.injectors[priority as usize].push(item);
    }

    /// Adds a demanded item that a task of a strand hands over.
    pub fn hand_over(&self, item: T) {
        self.turns.push(item);
    }

    /// Looks for a demanded item outside the slot's own deque, among those of strands last: the slot comes from there, or has taken its share.
    ///
    /// Injected ones come in batches: the first is returned, the others move into the slot's own deque, where other slots can
    /// steal them.
    pub fn search_demanded(&self, local: &mut Local<T>) -> Option<(T, Origin)> {
        local.turns = 0;
        insist(|| self.injectors[TaskPriority::Demanded as usize].steal_batch_and_pop(&local.deque))
            .map(|item| (item, Origin::Injected))
            .or_else(|| self.steal(local).map(|item| (item, Origin::Stolen)))
            .or_else(|| local.take_turn(self).map(|item| (item, Origin::HandedOver)))
    }

    /// Takes the oldest injected item of one priority.
    ///
    /// One at a time: a batch of background items in a slot's own deque would hide from the search order, and run before a
    /// demanded item that comes later.
    pub fn take_injected(&self, priority: TaskPriority) -> Option<T> {
        insist(|| self.injectors[priority as usize].steal())
    }

    /// Takes any item at all. For a pool that has no thread left to run it.
    pub fn take_any(&self) -> Option<T> {
        let turn = insist(|| self.turns.steal());
        let shared = turn.or_else(|| DESCENDING.iter().find_map(|&priority| self.take_injected(priority)));
        shared.or_else(|| self.stealers.iter().find_map(|stealer| insist(|| stealer.steal())))
    }

    /// Whether an item of at least the priority `floor` was waiting anywhere at some moment during the call.
    pub fn any_waiting(&self, floor: TaskPriority) -> bool {
        self.injectors[floor as usize..].iter().any(|injector| !injector.is_empty())
            || self.stealers.iter().any(|stealer| !stealer.is_empty()) && !weakened("pool::overlooks_deques")
            || !self.turns.is_empty() && !weakened("pool::overlooks_turns")
    }

    /// Whether items in the background wait in the shared queues, and nothing there that is more urgent.
    pub fn only_background_waits(&self) -> bool {
        let [idle, speculative, urgent @ ..] = &self.injectors;
        !(idle.is_empty() && speculative.is_empty()) && urgent.iter().all(Injector::is_empty)
    }

    /// Whether an item of this priority lies in the shared queue.
    pub fn any_injected(&self, priority: TaskPriority) -> bool {
        !self.injectors[priority as usize].is_empty()
    }

    fn steal(&self, local: &mut Local<T>) -> Option<T> {
        let slots = self.stealers.len();
        let others = slots - 1;
        let start = local.victim;
        local.victim = (start + 1) % others.max(1);
        (0..others)
            .map(|step| (local.slot + 1 + (start + step) % others) % slots)
            .find_map(|victim| insist(|| self.stealers[victim].steal()))
    }
}

impl<T> Local<T> {
    /// Which slot this is.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Adds a demanded item to the slot's own deque.
    pub fn push(&self, item: T) {
        self.deque.push(item);
    }

    /// Takes the next item without a search: a turn that was handed over, the slot's oldest own one, or now and then a shared one.
    pub fn next(&mut self, queues: &Queues<T>) -> Option<T> {
        if let Some(turn) = self.take_turn(queues) {
            return Some(turn);
        }
        self.taken += 1;
        if self.taken >= OWN_IN_A_ROW_MAX {
            self.taken = 0;
            // A single item: a batch would be invisible while it moves, and this slot does not count as searching.
            if let Some(item) = queues.take_injected(TaskPriority::Demanded) {
                self.turns = 0;
                return Some(item);
            }
        }
        let item = self.deque.pop();
        if item.is_some() {
            self.turns = 0;
        }
        item
    }

    /// Takes a turn, unless something else has to come first.
    fn take_turn(&mut self, queues: &Queues<T>) -> Option<T> {
        if self.turns >= TURNS_IN_A_ROW_MAX || queues.turns.is_empty() {
            return None;
        }
        let turn = insist(|| queues.turns.steal())?;
        self.turns += 1;
        Some(turn)
    }
}

/// Repeats a steal that lost a race. Ends because the winner of each race took an item.
fn insist<T>(mut steal: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match steal() {
            Steal::Success(item) => return Some(item),
            Steal::Empty => return None,
            Steal::Retry => uruk_core::sync::hint::spin_loop(),
        }
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_told_by_priority() {
        let (queues, mut locals) = Queues::new(1);
        queues.inject(TaskPriority::Speculative, "speculative");
        assert!(queues.any_waiting(TaskPriority::Idle) && queues.any_waiting(TaskPriority::Speculative));
        assert!(!queues.any_waiting(TaskPriority::Lazy));
        assert!(queues.any_injected(TaskPriority::Speculative) && !queues.any_injected(TaskPriority::Idle));
        assert_eq!(queues.search_demanded(&mut locals[0]), None);
        locals[0].push("own");
        assert!(queues.any_waiting(TaskPriority::Demanded));
        assert_eq!(queues.take_injected(TaskPriority::Speculative), Some("speculative"));
    }

    #[test]
    fn the_background_waits_alone_where_nothing_more_urgent_is_shared() {
        let (queues, _locals) = Queues::new(1);
        assert!(!queues.only_background_waits());
        queues.inject(TaskPriority::Idle, "idle");
        assert!(queues.only_background_waits());
        queues.inject(TaskPriority::Lazy, "lazy");
        assert!(!queues.only_background_waits());
        assert_eq!(queues.take_injected(TaskPriority::Lazy), Some("lazy"));
        queues.inject(TaskPriority::Demanded, "demanded");
        assert!(!queues.only_background_waits());
    }

    #[test]
    fn a_slot_is_robbed_in_the_order_in_which_it_was_fed() {
        let (queues, mut locals) = Queues::new(3);
        locals[0].push(1);
        locals[0].push(2);
        assert_eq!(queues.search_demanded(&mut locals[2]), Some((1, Origin::Stolen)));
        assert_eq!(queues.search_demanded(&mut locals[1]), Some((2, Origin::Stolen)));
        assert!(!queues.any_waiting(TaskPriority::Idle));
    }

    /// Each of the others has something at any time, so the first one that is tried is robbed.
    #[test]
    fn each_neighbour_is_robbed_as_often_as_any_other() {
        const ROUNDS: usize = 30;
        for slots in 2..=5 {
            let (queues, mut locals) = Queues::new(slots);
            for thief in 0..slots {
                let mut robbed = vec![0; slots];
                for _ in 0..ROUNDS * (slots - 1) {
                    locals
                        .iter()
                        .filter(|local| local.slot != thief)
                        .for_each(|local| local.push(local.slot));
                    let (victim, _) = queues.search_demanded(&mut locals[thief]).expect("there is something");
                    robbed[victim] += 1;
                }
                robbed[thief] += ROUNDS;
                assert_eq!(robbed, vec![ROUNDS; slots], "{thief} of {slots}");
                while queues.take_any().is_some() {}
            }
        }
    }

    #[test]
    fn a_slot_alone_steals_from_nobody() {
        let (queues, mut locals) = Queues::<()>::new(1);
        assert_eq!(queues.search_demanded(&mut locals[0]), None);
    }

    #[test]
    fn a_slot_that_feeds_itself_still_looks_at_what_came_from_outside() {
        let (queues, mut locals) = Queues::new(1);
        queues.inject(TaskPriority::Demanded, "outside");
        let local = &mut locals[0];
        let mut own_before = 0;
        loop {
            local.push("own");
            match local.next(&queues) {
                Some("outside") => break,
                item => assert_eq!(item, Some("own")),
            }
            own_before += 1;
        }
        assert!(own_before < OWN_IN_A_ROW_MAX);
    }

    #[test]
    fn a_turn_goes_before_what_was_queued_earlier() {
        let (queues, mut locals) = Queues::new(2);
        locals[0].push("own");
        queues.inject(TaskPriority::Demanded, "outside");
        queues.hand_over("turn");
        assert_eq!(locals[0].next(&queues), Some("turn"));
        queues.hand_over("turn");
        assert_eq!(locals[1].next(&queues), Some("turn"));
        assert_eq!(locals[0].next(&queues), Some("own"));
        assert_eq!(locals[0].next(&queues), None);
    }

    #[test]
    fn a_turn_that_waits_is_demanded() {
        let (queues, _locals) = Queues::new(1);
        queues.hand_over("turn");
        assert!(queues.any_waiting(TaskPriority::Demanded));
        assert_eq!(queues.take_any(), Some("turn"));
        assert!(!queues.any_waiting(TaskPriority::Idle));
    }

    /// How many turns a slot takes before it gives something else, while strands always have more.
    fn turns_before(other: &str, queues: &Queues<&'static str>, local: &mut Local<&'static str>) -> u32 {
        for before in 0.. {
            queues.hand_over("turn");
            let item = local.next(queues).or_else(|| queues.search_demanded(local).map(|(item, _)| item));
            if item == Some(other) {
                return before;
            }
            assert_eq!(item, Some("turn"));
        }
        unreachable!("u32 is large")
    }

    #[test]
    fn turns_starve_neither_own_items_nor_shared_ones_nor_those_of_a_neighbour() {
        let (queues, mut locals) = Queues::new(2);
        locals[0].push("own");
        locals[1].push("neighbour's");
        queues.inject(TaskPriority::Demanded, "shared");
        for other in ["own", "shared", "neighbour's"] {
            assert_eq!(turns_before(other, &queues, &mut locals[0]), TURNS_IN_A_ROW_MAX);
        }
    }

    #[test]
    fn turns_go_on_if_nothing_else_waits() {
        let (queues, mut locals) = Queues::new(1);
        for _ in 0..=2 * TURNS_IN_A_ROW_MAX {
            queues.hand_over("turn");
            let local = &mut locals[0];
            let item = local.next(&queues).or_else(|| queues.search_demanded(local).map(|(item, _)| item));
            assert_eq!(item, Some("turn"));
        }
    }

    #[test]
    fn anything_left_can_be_taken_back() {
        let (queues, locals) = Queues::new(2);
        locals[1].push("own");
        queues.inject(TaskPriority::Idle, "idle");
        queues.hand_over("turn");
        let mut taken: Vec<_> = std::iter::from_fn(|| queues.take_any()).collect();
        taken.sort_unstable();
        assert_eq!(taken, ["idle", "own", "turn"]);
    }
}
