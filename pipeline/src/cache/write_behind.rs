//! [`WriteBehind`]: writes entries on a thread of its own, so that no compiling thread waits for a disk.
//!
//! ```text
//!  push ─▶ room in the queue, and a thread: queued ─▶ the thread takes a batch ─▶ written
//!      ├─▶ no thread any more: queued ─▶ much is queued, or a flush ─▶ written by that caller
//!      └─▶ no room: written by the caller of `push`
//! ```
//!
//! **Architecture Invariant:** an entry that was pushed before a flush is written, or has failed, when the flush returns. After `retire`
//! there is no thread, and there will be none: the host may be about to run code that forks.

use std::collections::VecDeque;
use std::{fmt, mem};

use uruk_core::sync::thread::{self, JoinHandle};
use uruk_core::sync::{Arc, Condvar, Mutex, Process, weakened};

/// How many bytes wait at most.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// How many bytes wait at most for a flush, once there is no thread.
const LATE_BYTES_MAX: usize = 256 << 10;

/// How much is written at once at most, unless it is one job.
const BATCH_JOBS_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 4 << 20;

/// A write. Only its size is known here.
pub(super) trait Job: Send + 'static {
    fn size_bytes(&self) -> usize;
}

/// A queue with one thread behind it, which is started when there is something to write.
pub(super) struct WriteBehind<J: Job> {
    shared: Arc<SharedWrites<J>>,
    home: WritersHome,
}

/// The process in which a value was made. The child of a fork has none of its threads, and their locks stay locked there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WritersHome {
    /// Forks are not reported here, unless there is a memory manager.
    id: u32,
    /// The system gives an id again when its process is gone.
    line: Process,
}

impl WritersHome {
    /// The process that asks.
    pub(super) fn here() -> Self {
        Self { id: std::process::id(), line: Process::current() }
    }

    /// Some other one.
    #[cfg(all(test, not(uruk_loom)))]
    pub(super) fn of_another() -> Self {
        Self { id: 0, line: Process::current() }
    }
}

struct SharedWrites<J: Job> {
    write: Box<dyn Fn(Vec<J>) + Send + Sync>,
    queue: Mutex<WriteQueue<J>>,
    /// Something is queued, or nothing will be.
    work: Condvar,
    /// Nothing is queued or being written.
    idle: Condvar,
}

struct WriteQueue<J> {
    jobs: VecDeque<J>,
    bytes: usize,
    is_writing: bool,
    writer: WriterThread,
}

enum WriterThread {
    NotStarted,
    Runs(JoinHandle<()>),
    /// It takes nothing any more, and may be writing.
    Retiring,
    /// There is no thread. The caller of `flush` writes.
    Retired,
}

impl<J: Job> WriteBehind<J> {
    pub(super) fn new(write: impl Fn(Vec<J>) + Send + Sync + 'static) -> Self {
        let queue = WriteQueue {
            jobs: VecDeque::new(),
            bytes: 0,
            is_writing: false,
            writer: WriterThread::NotStarted,
        };
        let shared = SharedWrites {
            write: Box::new(write),
            queue: Mutex::new(queue),
            work: Condvar::new(),
            idle: Condvar::new(),
        };
        Self { shared: Arc::new(shared), home: WritersHome::here() }
    }

    /// Writes a job soon; at once, if the queue is full. If there is no thread to do it, many are written together.
    pub(super) fn push(&self, job: J) {
        if let Some(job) = self.queue(job) {
            (self.shared.write)(vec![job]);
        }
    }

    /// Waits until everything that was pushed before has been written; writes it here if there is no thread.
    pub(super) fn flush(&self) {
        if self.is_elsewhere() {
            return;
        }
        let mut queue = self.shared.queue.lock();
        loop {
            let writes = queue.is_writing && !weakened("write_behind::flushes_what_was_taken");
            if queue.jobs.is_empty() && !writes {
                return;
            }
            if matches!(queue.writer, WriterThread::Retired) && !queue.is_writing {
                let jobs = queue.take_batch();
                queue.is_writing = !weakened("write_behind::flushes_beside_another");
                drop(queue);
                self.shared.write_batch(jobs);
                queue = self.shared.queue.lock();
            } else {
                queue = self.shared.idle.wait(queue);
            }
        }
    }

    /// Ends the thread, and writes what it has left.
    pub(super) fn retire(&self) {
        if self.is_elsewhere() {
            return;
        }
        let mut queue = self.shared.queue.lock();
        let writer = mem::replace(&mut queue.writer, WriterThread::Retiring);
        drop(queue);
        if !weakened("write_behind::retires_unheard") {
            self.shared.work.notify_all();
        }
        if let WriterThread::Runs(thread) = writer {
            // It has caught the panics of its writes.
            let _ = thread.join();
        }
        self.shared.queue.lock().writer = WriterThread::Retired;
        self.shared.idle.notify_all();
        if !weakened("write_behind::leaves_what_is_queued") {
            self.flush();
        }
    }

    /// Queues a job, or gives it back.
    fn queue(&self, job: J) -> Option<J> {
        if self.is_elsewhere() {
            return Some(job);
        }
        let mut queue = self.shared.queue.lock();
        if queue.bytes + job.size_bytes() > QUEUE_BYTES_MAX {
            return Some(job);
        }
        queue.bytes += job.size_bytes();
        queue.jobs.push_back(job);
        let (has_thread, is_much) = (self.has_thread(&mut queue), queue.bytes > LATE_BYTES_MAX);
        drop(queue);
        if has_thread {
            self.shared.work.notify_one();
        } else if is_much {
            self.flush();
        }
        None
    }

    /// Starts the thread if there is none.
    fn has_thread(&self, queue: &mut WriteQueue<J>) -> bool {
        if matches!(queue.writer, WriterThread::NotStarted) {
            let shared = self.shared.clone();
            let started = thread::Builder::new().name("uruk-cache".to_owned()).spawn(move || shared.run());
            // A system that refuses a thread now may refuse the next as well: from here on each caller of `push` writes.
            queue.writer = started.map_or(WriterThread::Retired, WriterThread::Runs);
        }
        matches!(queue.writer, WriterThread::Runs(_))
    }

    /// Whether this is the child of a fork: the thread and the queued writes are the parent's.
    fn is_elsewhere(&self) -> bool {
        self.home != WritersHome::here()
    }
}

impl<J: Job> SharedWrites<J> {
    fn run(&self) {
        while let Some(jobs) = self.next() {
            self.write_batch(jobs);
        }
    }

    /// Writes what was taken.
    fn write_batch(&self, jobs: Vec<J>) {
        // A host that watches the events of a write may panic; that must not stop the next write.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.write)(jobs)));
        self.queue.lock().is_writing = false;
        self.idle.notify_all();
    }

    /// Waits for jobs; none once it is to end.
    fn next(&self) -> Option<Vec<J>> {
        let mut queue = self.queue.lock();
        loop {
            let ends = !matches!(queue.writer, WriterThread::Runs(_));
            // Another thread may have completed the retirement.
            if ends
                && !(weakened("write_behind::ends_while_it_retires")
                    && matches!(queue.writer, WriterThread::Retired))
            {
                return None;
            }
            if !queue.jobs.is_empty() {
                return Some(queue.take_batch());
            }
            queue = self.work.wait(queue);
        }
    }
}

impl<J: Job> WriteQueue<J> {
    /// Takes one batch of writes. No other thread writes.
    fn take_batch(&mut self) -> Vec<J> {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        while jobs.len() < BATCH_JOBS_MAX
            && bytes < BATCH_BYTES_MAX
            && let Some(job) = self.jobs.pop_front()
        {
            bytes += job.size_bytes();
            jobs.push(job);
        }
        self.bytes -= bytes;
        self.is_writing = true;
        jobs
    }
}

impl<J: Job> Drop for WriteBehind<J> {
    fn drop(&mut self) {
        self.retire();
    }
}

impl<J: Job> fmt::Debug for WriteBehind<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queued = (!self.is_elsewhere()).then(|| self.shared.queue.lock().jobs.len());
        f.debug_struct("WriteBehind").field("queued", &queued).finish_non_exhaustive()
    }
}
