//! A dispatcher with one lock: what a host's pool is to tasks that lie on a board.
//!
//! `RayonTaskDispatcher` keeps its tasks on a board of which each thread takes the most urgent, and a spare steps in for each
//! thread that is blocked. Rayon's own threads are no scheduler's to order; here all of them are of one kind.

use std::cell::Cell;
use std::collections::VecDeque;

use uruk_core::sync::{Arc, Condvar, Latch, Mutex, thread, thread_local};
use uruk_core::{Task, TaskDispatcher, WaitError, refuse_wait_in_leaf};

/// Runs tasks on threads of its own, the most urgent first.
#[derive(Debug)]
pub(crate) struct BoardTaskDispatcher(Arc<Board>);

#[derive(Debug)]
struct Board {
    workers: usize,
    state: Mutex<State>,
    changed: Condvar,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct State {
    /// By priority.
    tasks: [VecDeque<Task>; 4],
    /// Threads that are not blocked.
    unblocked: usize,
    is_closed: bool,
}

thread_local! {
    static IS_OURS: Cell<bool> = Cell::new(false);
}

impl BoardTaskDispatcher {
    pub(crate) fn new(workers: usize) -> Self {
        let (state, changed, threads) = (Mutex::default(), Condvar::new(), Mutex::default());
        let board = Arc::new(Board { workers, state, changed, threads });
        (0..workers).for_each(|_| board.start());
        Self(board)
    }
}

impl Board {
    fn start(self: &Arc<Self>) {
        self.state.lock().unblocked += 1;
        let board = self.clone();
        let thread = thread::spawn(move || {
            IS_OURS.with(|is_ours| is_ours.set(true));
            while let Some(task) = board.next() {
                task.run();
            }
        });
        self.threads.lock().push(thread);
    }

    /// The most urgent task; none for a thread that is one too many, or when all is over.
    fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if state.unblocked <= self.workers
                && let Some(task) = state.tasks.iter_mut().rev().find_map(VecDeque::pop_front)
            {
                return Some(task);
            }
            if state.unblocked > self.workers || state.is_closed {
                state.unblocked -= 1;
                return None;
            }
            state = self.changed.wait(state);
        }
    }
}

impl TaskDispatcher for BoardTaskDispatcher {
    fn dispatch(&self, task: Task) -> Result<(), Task> {
        let mut state = self.0.state.lock();
        if state.is_closed {
            return Err(task);
        }
        state.tasks[task.priority() as usize].push_back(task);
        self.0.changed.notify_one();
        Ok(())
    }

    fn wait(&self, latch: &Latch) -> Result<(), WaitError> {
        match latch.is_open() {
            true => Ok(()),
            false => self.blocking(&mut || latch.wait()),
        }
    }

    fn blocking(&self, block: &mut dyn FnMut()) -> Result<(), WaitError> {
        refuse_wait_in_leaf()?;
        let is_ours = IS_OURS.with(Cell::get);
        if is_ours {
            self.0.state.lock().unblocked -= 1;
            self.0.start();
        }
        block();
        self.0.state.lock().unblocked += usize::from(is_ours);
        Ok(())
    }

    fn shutdown(&self) {
        self.0.state.lock().is_closed = true;
        self.0.changed.notify_all();
        loop {
            // A thread may start another before it ends.
            let thread = self.0.threads.lock().pop();
            let Some(thread) = thread else { return };
            thread.join().expect("no panic");
        }
    }
}
