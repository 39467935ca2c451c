//! The loop of one thread: its own queue, then a search, then sleep.
//!
//! A worker takes tasks only while it holds a slot. It lends the slot to each task it runs; a task that blocks gives
//! the slot away, and then the thread goes on only if it finds another.
//!
//! **Architecture Invariant:** tasks run one after another from this loop, never inside each other, and a panic
//! of one ends neither the loop nor the thread.

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use uruk_core::Task;
use uruk_core::sync::Arc;

use crate::current::Worker;
use crate::metrics::Stripe;
use crate::pool::{Pool, Vacated};
use crate::queues::{Local, Origin};

/// Runs tasks until the pool has closed and nothing is queued, or until this thread is one too many.
///
/// The slot counts as searching already: a thread is started because somebody has to search.
pub(crate) fn run(pool: Arc<Pool>, number: usize, vacated: Vacated) {
    let worker = Worker::enter(pool.clone(), number);
    vacated.tell();
    let mut found = search(&pool, vacated.slot);
    while let Some((task, slot)) = found {
        let stripe = pool.counters.slot(slot.slot());
        worker.lend(slot);
        run_task(&pool, stripe, task);
        // A task that blocked gave the slot away. If all slots are taken meanwhile, this thread is a spare, and retires.
        let held = worker.take().or_else(|| pool.occupy_as_replacement());
        found = held.and_then(|slot| next(&pool, slot));
    }
    Worker::leave();
    pool.thread_ended(number);
}

/// Takes the next task: at work before, at work after. Nothing if the thread has given up its slot and must end.
fn next(pool: &Arc<Pool>, mut slot: Local<Task>) -> Option<(Task, Local<Task>)> {
    match slot.next(&pool.queues) {
        Some(task) => Some((task, slot)),
        None => {
            pool.sleep.start_searching();
            search(pool, slot)
        }
    }
}

/// Takes a task from anywhere, sleeping until there is one: searching before, at work after.
fn search(pool: &Arc<Pool>, mut slot: Local<Task>) -> Option<(Task, Local<Task>)> {
    loop {
        if let Some(task) = look_everywhere(pool, &mut slot) {
            pool.follow(pool.sleep.found(|| pool.queues.any_waiting()));
            return Some((task, slot));
        }
        if !pool.gate.is_closed() {
            let stripe = pool.counters.slot(slot.slot());
            if pool.sleep.sleep(|| pool.queues.any_waiting() || pool.gate.is_closed()) {
                stripe.slept.increment();
            }
            continue;
        }
        pool.put_back(slot);
        if !pool.sleep.stop(|| pool.queues.any_waiting()) {
            return None;
        }
        slot = pool.occupy()?;
        pool.sleep.start_searching();
    }
}

fn look_everywhere(pool: &Pool, slot: &mut Local<Task>) -> Option<Task> {
    // The own deque first: a slot comes with what a predecessor left in it.
    if let Some(task) = slot.next(&pool.queues) {
        return Some(task);
    }
    let (task, origin) = pool.queues.search(slot)?;
    if origin == Origin::Stolen {
        pool.counters.slot(slot.slot()).stolen.increment();
    }
    Some(task)
}

fn run_task(pool: &Pool, stripe: &Stripe, task: Task) {
    stripe.started[task.priority() as usize].increment();
    let label = task.keep_label();
    let traced = || {
        // Subscribers are code of the embedder as well.
        let span = tracing::debug_span!("dispatch.run", task = task.label(), priority = ?task.priority());
        span.in_scope(|| task.run());
    };
    if let Err(message) = catch(traced) {
        stripe.panicked.increment();
        let tell = || {
            tracing::error!(
                task = &*label,
                message,
                "a task panicked; what it owned has failed, the pool goes on"
            );
        };
        // Who panics over that cannot be told of it.
        let _ = catch(tell);
    }
    stripe.finished.increment();
    pool.gate.leave();
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
