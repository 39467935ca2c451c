//! Starts, numbers, retires and joins the pool's threads.

use std::sync::OnceLock;
use std::{fmt, io};

use uruk_core::WaitError;
use uruk_core::sync::thread::{self, JoinHandle};
use uruk_core::sync::{Arc, Mutex, Process};

use crate::signals::without_signals;

/// Every thread of a pool that has not been joined or let go.
#[derive(Debug)]
pub(crate) struct Threads {
    name_prefix: String,
    stack_size_bytes: usize,
    permits: Permits,
    book: Mutex<Book>,
    /// The process that the threads are in, once there was one.
    home: OnceLock<Process>,
}

/// A function that may refuse the start of a thread, for tests, in the place of the operating system.
#[derive(Clone, Default)]
pub(crate) struct Permits(pub(crate) Option<Asked>);

pub(crate) type Asked = Arc<dyn Fn() -> io::Result<()> + Send + Sync>;

#[derive(Debug, Default)]
struct Book {
    /// By number.
    seats: Vec<Seat>,
    /// Threads whose number has gone to another before they were joined, which are at their very end; and those that never
    /// had one.
    unnumbered: Vec<JoinHandle<()>>,
    /// All threads have been joined: no other will start.
    over: bool,
}

/// Why no thread was started.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// All have been joined, so nothing is queued, nor will be. The caller was asked to start a thread, but another has run its
    /// tasks since.
    Over,
    /// The operating system's error.
    Refused(io::Error),
}

#[derive(Debug)]
enum Seat {
    Live(JoinHandle<()>),
    /// The thread has run its last line of ours.
    Ended(JoinHandle<()>),
    /// Another thread holds the handle, in order to join.
    Joining,
}

impl Threads {
    pub(crate) fn new(name_prefix: String, stack_size_bytes: usize, permits: Permits) -> Self {
        let (book, home) = (Mutex::new(Book::default()), OnceLock::new());
        Self { name_prefix, stack_size_bytes, permits, book, home }
    }

    /// Whether all threads that were started are in this process.
    ///
    /// # Errors
    /// [`WaitError::Forked`].
    pub(crate) fn are_here(&self) -> Result<(), WaitError> {
        let are_here = self.home.get().is_none_or(|home| *home == Process::current());
        if are_here { Ok(()) } else { Err(WaitError::Forked) }
    }

    /// Notes that there are threads in this process.
    pub(crate) fn settle_here(&self) {
        self.home.get_or_init(Process::current);
    }

    /// Starts a thread that runs `body` with its number.
    ///
    /// # Errors
    /// [`NotStarted`]; `body` is dropped.
    pub(crate) fn start(&self, body: impl FnOnce(usize) + Send + 'static) -> Result<(), NotStarted> {
        self.enter(|book| {
            let number = book.free_number();
            let handle = self.spawn(format_args!("{number}"), move || body(number))?;
            book.seat(number, handle);
            Ok(())
        })
    }

    /// Starts a thread that is no worker and has no number, whose name ends in `role`.
    ///
    /// # Errors
    /// As [`Threads::start`].
    pub(crate) fn start_apart(
        &self,
        role: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), NotStarted> {
        self.enter(|book| {
            let handle = self.spawn(format_args!("{role}"), body)?;
            book.unnumbered.push(handle);
            Ok(())
        })
    }

    /// Lets `start` start a thread under the lock, so that it cannot end before it has been entered in the book.
    fn enter(&self, start: impl FnOnce(&mut Book) -> Result<(), NotStarted>) -> Result<(), NotStarted> {
        self.permits.0.as_ref().map_or(Ok(()), |asked| asked()).map_err(NotStarted::Refused)?;
        let mut book = self.book.lock();
        if book.over { Err(NotStarted::Over) } else { start(&mut book) }
    }

    fn spawn(
        &self,
        suffix: fmt::Arguments<'_>,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<JoinHandle<()>, NotStarted> {
        self.settle_here();
        let name = format!("{}-{suffix}", self.name_prefix);
        let builder = thread::Builder::new().name(name).stack_size(self.stack_size_bytes);
        without_signals(|| builder.spawn(body)).map_err(NotStarted::Refused)
    }

    /// Called by the thread with this number as the last thing it does.
    pub(crate) fn ended(&self, number: usize) {
        let mut book = self.book.lock();
        let seat = &mut book.seats[number];
        if let Seat::Live(handle) = std::mem::replace(seat, Seat::Joining) {
            *seat = Seat::Ended(handle);
        }
    }

    /// Waits until every thread has ended, except the calling one. No task may be left, nor come: none is started any more.
    ///
    /// Threads that another caller joins already are not waited for.
    pub(crate) fn join_all(&self) {
        let handles: Vec<_> = {
            let mut book = self.book.lock();
            book.over = true;
            let seated = book.seats.iter_mut().map(|seat| std::mem::replace(seat, Seat::Joining));
            let mut handles: Vec<_> = seated.filter_map(Seat::into_handle).collect();
            handles.append(&mut book.unnumbered);
            handles
        };
        let this = thread::current().id();
        for handle in handles {
            // A thread-local of a worker may own the last handle of the pool, and then this is that worker.
            if handle.thread().id() != this {
                // A worker survives the panics of its tasks, so it ends in one only by a defect of ours, which its
                // panic message has reported; the others are still to be joined.
                drop(handle.join());
            }
        }
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits").finish_non_exhaustive()
    }
}

impl Book {
    fn free_number(&self) -> usize {
        let free = self.seats.iter().position(|seat| matches!(seat, Seat::Ended(_)));
        free.unwrap_or(self.seats.len())
    }

    fn seat(&mut self, number: usize, handle: JoinHandle<()>) {
        if number == self.seats.len() {
            self.seats.push(Seat::Live(handle));
            return;
        }
        let predecessor = std::mem::replace(&mut self.seats[number], Seat::Live(handle));
        self.unnumbered.extend(predecessor.into_handle());
        self.unnumbered.retain(|handle| !has_ended(handle));
    }
}

impl Seat {
    fn into_handle(self) -> Option<JoinHandle<()>> {
        match self {
            Self::Live(handle) | Self::Ended(handle) => Some(handle),
            Self::Joining => None,
        }
    }
}

#[cfg(not(any(uruk_loom, uruk_shuttle)))]
fn has_ended(handle: &JoinHandle<()>) -> bool {
    handle.is_finished()
}

/// A model's threads are few; all of them are joined in the end.
#[cfg(any(uruk_loom, uruk_shuttle))]
fn has_ended(_handle: &JoinHandle<()>) -> bool {
    false
}
