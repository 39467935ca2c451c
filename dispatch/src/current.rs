//! Which worker the running thread is, and the slot it holds while it runs a task.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

use uruk_core::sync::Arc;

use crate::gate::Places;
use crate::limits::Charge;
use crate::metrics::Queued;
use crate::pool::Pool;
use crate::queues::Local;

/// The number N of the running thread if it is a worker, which is also in its name, `uruk-worker-N`.
///
/// Numbers are the lowest that are free: those of a pool that never blocked are below its worker count, and
/// replacements of blocked workers come after. A thread keeps its number; a later thread may get the number of
/// one that has ended.
///
/// # Concurrency
/// Takes no lock: a thread knows its own number.
pub fn current_worker() -> Option<usize> {
    with(|worker| worker.number).flatten()
}

/// A thread of a pool, as seen by code that runs on it.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) pool: Arc<Pool>,
    /// None for the event thread, which works for the pool without a number or a slot.
    pub(crate) number: Option<usize>,
    /// The slot, while it is at work. The worker's loop holds it while it searches; a task that blocks gives it away.
    slot: RefCell<Option<Local<Queued>>>,
    /// How many calls of `Pool::blocking` the thread is inside of.
    pub(crate) blocks: Cell<usize>,
    /// Whether it goes on with its task after a wait, without a slot.
    pub(crate) surplus: Cell<bool>,
    /// The running task's share of the counts in `limits.rs`.
    pub(crate) charge: Cell<Charge>,
    /// Whether the last task that it began was demanded.
    pub(crate) ran_demanded: Cell<bool>,
    /// Of tasks that have ended, while it goes on with others.
    pub(crate) places: Places,
}

impl Worker {
    /// Makes the running thread a worker of `pool`, or its event thread, until [`Worker::leave`].
    pub(crate) fn enter(pool: Arc<Pool>, number: Option<usize>) -> Rc<Self> {
        let worker = Rc::new(Self {
            pool,
            number,
            slot: RefCell::new(None),
            blocks: Cell::new(0),
            surplus: Cell::new(false),
            charge: Cell::new(Charge::NONE),
            ran_demanded: Cell::new(false),
            places: Places::default(),
        });
        CURRENT.with(|current| *current.borrow_mut() = Some(worker.clone()));
        worker
    }

    /// Whether the thread is the pool's event thread.
    pub(crate) fn is_event_thread(&self) -> bool {
        self.number.is_none()
    }

    /// Makes it an ordinary thread again: what runs from here on, destructors of thread-locals, is no task.
    pub(crate) fn leave() {
        CURRENT.with(|current| current.borrow_mut().take());
    }

    /// The thread has a slot again, or waits again, or ends.
    pub(crate) fn no_longer_surplus(&self) {
        if self.surplus.replace(false) {
            self.pool.counters.blocks_over.increment();
        }
    }

    /// Lays down the slot for the tasks that run next.
    pub(crate) fn lend(&self, slot: Local<Queued>) {
        *self.slot.borrow_mut() = Some(slot);
    }

    /// Takes the slot, if the thread holds one.
    pub(crate) fn take(&self) -> Option<Local<Queued>> {
        self.slot.borrow_mut().take()
    }

    /// Whether the thread holds a slot.
    pub(crate) fn holds_slot(&self) -> bool {
        self.slot.borrow().is_some()
    }

    /// The number of the slot, if the thread holds one.
    pub(crate) fn slot_number(&self) -> Option<usize> {
        self.slot.borrow().as_ref().map(Local::slot)
    }

    /// Takes the next task without a search, if the thread holds a slot and there is one.
    pub(crate) fn next(&self) -> Option<Queued> {
        self.slot.borrow_mut().as_mut()?.next(&self.pool.queues)
    }

    /// The slot, if the thread holds one.
    pub(crate) fn slot(&self) -> Ref<'_, Option<Local<Queued>>> {
        self.slot.borrow()
    }
}

/// The running thread as a worker of `pool`.
pub(crate) fn worker_of(pool: &Pool) -> Option<Rc<Worker>> {
    with(|worker| std::ptr::eq(&*worker.pool, pool).then(|| worker.clone())).flatten()
}

/// Gives the running thread's worker to `f`, if it is one. A thread whose locals are being destroyed is none.
fn with<R>(f: impl FnOnce(&Rc<Worker>) -> R) -> Option<R> {
    CURRENT.try_with(|current| current.borrow().as_ref().map(f)).ok().flatten()
}

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
thread_local! {
    static CURRENT: RefCell<Option<Rc<Worker>>> = const { RefCell::new(None) };
}

/// Modelled threads share one real thread, so the standard library's locals would be shared between them.
#[cfg(any(uruk_loom, uruk_shuttle))]
static CURRENT: uruk_core::sync::thread::LocalKey<RefCell<Option<Rc<Worker>>>> =
    uruk_core::sync::thread::LocalKey { init: || RefCell::new(None), _p: std::marker::PhantomData };
