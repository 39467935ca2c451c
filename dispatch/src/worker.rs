//! The loop of one thread: its own queue, then a search, then sleep.
//!
//! A worker takes tasks only while it holds a slot. It lends the slot to each task it runs; a task that blocks gives
//! the slot away, and then the thread goes on only if it finds another.
//!
//! A worker that turns from demanded tasks to the background yields its processor first. The system may have put a thread that a
//! demanded task has answered onto the same processor. There it would wait for milliseconds behind a background task, for which no
//! thread waits.
//!
//! **Architecture Invariant:** tasks run one after another from this loop, never inside each other, and a panic
//! of one ends neither the loop nor the thread.

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use uruk_core::sync::{Arc, thread, weakened};
use uruk_core::{Task, TaskLabel, TaskPriority, in_span};

use crate::current::Worker;
use crate::limits::Charge;
use crate::metrics::{Queued, Tally};
use crate::pool::{Pool, Vacated, goes_first};
use crate::queues::{Local, Origin};

/// Runs tasks until the pool has closed and nothing is queued, or until this thread is one too many.
///
/// The slot counts as searching already: a thread is started in order to search.
pub(crate) fn run(pool: Arc<Pool>, number: usize, vacated: Vacated) {
    let worker = Worker::enter(pool.clone(), Some(number));
    vacated.tell();
    let mut found = search(&pool, &worker, vacated.slot);
    while let Some(task) = found {
        let lifted = run_task(&pool, &worker, task);
        found = next(&pool, &worker, lifted);
    }
    Worker::leave();
    pool.thread_ended(number);
}

/// Takes the next task: at work before, at work after. Nothing if the thread has given up its slot and must end; then it sees to a
/// limit that the task before may have `lifted`.
fn next(pool: &Arc<Pool>, worker: &Worker, lifted: bool) -> Option<Queued> {
    // A task that blocked gave the slot away. If all slots are taken meanwhile, this thread is a spare, and retires.
    if !worker.holds_slot() {
        let slot = pool.occupy_as_replacement().or_else(|| retire(pool, worker, lifted))?;
        worker.lend(slot);
    }
    worker.no_longer_surplus();
    if let Some(task) = worker.next() {
        return Some(task);
    }
    if !weakened("pool::keeps_places_while_it_searches") {
        pool.gate.give_back(&worker.places);
    }
    let slot = worker.take()?;
    if worker.ran_demanded.take() && pool.queues.only_background_waits() {
        pool.counters.of(Some(slot.slot())).count(|stripe| &stripe.yielded);
        // Before the slot counts as searching: no producer may rely on a thread that gets no processor.
        thread::yield_now();
    }
    pool.sleep.start_searching();
    search(pool, worker, slot)
}

/// The thread is one too many, and ends, with one exception: its last task has `lifted` a limit, and no other thread can be had
/// for a task that may now start. Then it takes a slot again.
fn retire(pool: &Arc<Pool>, worker: &Worker, lifted: bool) -> Option<Local<Queued>> {
    pool.gate.give_back(&worker.places);
    pool.counters.ended_threads.increment();
    worker.no_longer_surplus();
    if pool.look_if(lifted) {
        return None;
    }
    let slot = pool.occupy()?;
    pool.counters.begun_threads.increment();
    Some(slot)
}

/// Takes a task from anywhere, sleeping until there is one: searching before, at work after.
fn search(pool: &Arc<Pool>, worker: &Worker, mut slot: Local<Queued>) -> Option<Queued> {
    loop {
        let tally = pool.counters.of(Some(slot.slot()));
        if let Some(task) = look_everywhere(pool, tally, &mut slot) {
            // Whether a thread could be had does not matter: this one holds a slot, and is left in any case.
            pool.follow(pool.sleep.found(|| pool.any_startable()));
            worker.lend(slot);
            return Some(task);
        }
        if !pool.gate.is_closed() {
            let reason = || pool.any_startable() || pool.gate.is_closed();
            if pool.sleep.linger(reason) {
                continue;
            }
            if pool.sleep.sleep(reason) {
                tally.count(|stripe| &stripe.slept);
            }
            continue;
        }
        // Counted out before another thread can take the slot.
        pool.counters.ended_threads.increment();
        pool.put_back(slot);
        if !pool.sleep.stop(|| pool.any_startable()) {
            return None;
        }
        slot = pool.occupy()?;
        pool.counters.begun_threads.increment();
        pool.sleep.start_searching();
    }
}

fn look_everywhere(pool: &Pool, tally: Tally<'_>, slot: &mut Local<Queued>) -> Option<Queued> {
    // The own deque before the shared one: a slot comes with the tasks that a predecessor left in it.
    if let Some(task) = slot.next(&pool.queues) {
        return Some(task);
    }
    if let Some((task, origin)) = pool.queues.search_demanded(slot) {
        if origin == Origin::Stolen {
            tally.count(|stripe| &stripe.stolen);
        }
        return Some(task);
    }
    look_lower(pool)
}

/// Takes a lazy task, or a background one if the limits let it start.
fn look_lower(pool: &Pool) -> Option<Queued> {
    if !pool.queues.any_waiting(TaskPriority::Idle) {
        return None;
    }
    if let Some(task) = pool.queues.take_injected(TaskPriority::Lazy) {
        return Some(task);
    }
    if !pool.limits.reserve() {
        return None;
    }
    let task = pool.queues.take_injected(TaskPriority::Speculative);
    let task = task.or_else(|| pool.queues.take_injected(TaskPriority::Idle));
    if task.is_none() {
        pool.limits.unreserve();
    }
    task
}

/// Says whether another task may be able to start because this one has ended.
fn run_task(pool: &Pool, worker: &Worker, queued: Queued) -> bool {
    let waited_us = pool.stopwatch.waited_us(&queued);
    let task = queued.task;
    let charge = pool.limits.start(&task);
    let priority = charge.priority as usize;
    worker.charge.set(charge);
    worker.ran_demanded.set(charge.priority == TaskPriority::Demanded);
    let tally = pool.counters.of(worker.slot_number());
    tally.count(|stripe| &stripe.started[priority]);
    if goes_first(&task) {
        tally.count(|stripe| &stripe.turns);
    }
    if let Some(waited_us) = waited_us {
        tally.count_wait(charge.priority, waited_us);
    }
    let panicked = run_traced(task);
    // It may have lost its slot, or have another.
    let tally = pool.counters.of(worker.slot_number());
    if panicked {
        tally.count(|stripe| &stripe.panicked);
    }
    tally.count(|stripe| &stripe.finished[priority]);
    worker.charge.set(Charge::NONE);
    let lifted = pool.limits.stop(charge);
    worker.places.keep();
    lifted
}

/// Runs a task inside its span, and tells of its panic; says whether there was one.
pub(crate) fn run_traced(task: Task) -> bool {
    // Lent, not moved: a task is large, and each closure on the way would move it again.
    let (mut task, mut label, mut ended) = (Some(task), None, Ok(()));
    let traced = || {
        let Some(task) = task.take() else { return };
        // Subscribers are code of the embedder as well. Mostly there is none.
        label = tracing::enabled!(tracing::Level::ERROR).then(|| task.keep_label());
        let phase = uruk_core::phase!("dispatch.run", task = task.label(), priority = ?task.priority());
        // Caught inside: it is the task's panic that is told of, should a subscriber panic over the span as well.
        in_span(phase, || ended = catch(|| task.run()));
    };
    let told = catch(traced);
    let Err(message) = ended.and(told) else { return false };
    tell(|| {
        tracing::error!(
            task = label.as_ref().map(TaskLabel::as_str),
            message,
            "a task panicked; what it owned has failed, the dispatcher goes on"
        );
    });
    true
}

/// Emits an event. Subscribers are code of the embedder; the panic of one is caught and cannot be reported to it.
pub(crate) fn tell(event: impl FnOnce()) {
    let _ = catch(event);
}

/// Runs user code; turns its panic into the panic's message.
#[cfg(not(any(uruk_loom, uruk_shuttle)))]
pub(crate) fn catch(code: impl FnOnce()) -> Result<(), String> {
    // Unwind safety: what the code shared with others is its own affair; nothing of ours is reachable from it.
    let Err(payload) = catch_unwind(AssertUnwindSafe(code)) else { return Ok(()) };
    let message = message_of(&*payload);
    // The payload is a user's value, so its drop may panic too, with another payload; that one is leaked rather
    // than dropped, or this could go on for ever.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        Box::leak(second);
    }
    Err(message)
}

/// In a model a panic is the model's finding, so it is let through.
#[cfg(any(uruk_loom, uruk_shuttle))]
pub(crate) fn catch(code: impl FnOnce()) -> Result<(), String> {
    code();
    Ok(())
}

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic whose payload is not text").to_owned()
}

#[cfg(all(test, not(any(uruk_loom, uruk_shuttle))))]
mod tests {
    use std::io;

    use super::*;
    use crate::limits::BoundsWanted;
    use crate::metrics::Stopwatch;
    use crate::threads::{Permits, Threads};

    /// ```text
    ///  this thread:  its task blocked, so the slot went; goes on, ends, and lifts a limit ─ one too many, would end
    ///  the other:                                        │ took the slot, blocked as well: vacant
    /// ```
    #[test]
    fn a_thread_without_a_slot_stays_if_no_other_can_be_had_for_what_its_task_held_back() {
        let refuses = || Err(io::ErrorKind::WouldBlock.into());
        let threads = Threads::new("test".to_owned(), 1 << 20, Permits(Some(Arc::new(refuses))));
        let pool = Arc::new(Pool::new(1, threads, BoundsWanted::default().of(1), Stopwatch::new(None)));
        let worker = Worker::enter(pool.clone(), Some(0));
        assert!(retire(&pool, &worker, true).is_none(), "nothing is queued");
        let task = Task::new("test", TaskPriority::Demanded, || ());
        pool.queues.inject(TaskPriority::Demanded, Queued::new(task, pool.stopwatch.now()));
        assert!(retire(&pool, &worker, false).is_none(), "its task held nothing back");
        assert!(retire(&pool, &worker, true).is_some(), "nobody else would run it");
        Worker::leave();
    }
}
