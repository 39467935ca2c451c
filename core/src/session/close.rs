//! Closing a session: work drains or is cancelled, then everything that is left fails.

use crate::sync::{Arc, Latch, thread, weakened};
use crate::{CloseError, Deadline, JitDylib, RemovalNumber, RemoveError, SharedError, Shutdown, WaitError};

use super::drain::{Left, Wait};
use super::{ExecutionSession, frame};

impl ExecutionSession {
    /// Closes the session: lets the work in progress finish, then fails what is left and removes all
    /// resources, newest dylib and newest tracker first.
    ///
    /// From the first moment lookups and definitions are refused, except those that the work in progress
    /// itself makes. When nothing moves any more, queries that still wait (for a parked responsibility, say)
    /// end with [`LookupError::Closed`](crate::LookupError::Closed). Closing a closed session does nothing.
    ///
    /// # Concurrency
    /// Callable from any thread and from any task; from a task it waits for the other tasks only. A second call waits
    /// for the first, unless it comes from a task of this session, which the first waits for; when it returns the
    /// session is closed, and the dispatcher may still be on its way to its end, which the first call alone waits for.
    /// Tasks that wait in a close, of any session, are not waited for; nor is a lookup's thread, but for what it has
    /// claimed. Tasks of [serial queues](crate::SerialQueue) on this thread's stack leave them, for what waits behind.
    /// Every lookup that was accepted before the close is answered as if there were none. It ends with
    /// [`LookupError::Closed`](crate::LookupError::Closed) if no thread works on its symbols, or if the session is
    /// [cancelled](Shutdown::Cancel).
    ///
    /// # Errors
    /// [`CloseError::Wait`] on a thread that may not wait, whether there is work or not: it runs a [leaf](crate::Task::leaf), or holds
    /// what a unit may need, as [`refuse_waits_while`](crate::ExecutionSessionBuilder::refuse_waits_while) says. Nothing has happened
    /// then. [`CloseError::Resources`] joins what the resources said; the session is closed all the same.
    ///
    /// ORC: `ExecutionSession::endSession`.
    #[doc(alias = "endSession")]
    pub fn close(&self) -> Result<(), CloseError> {
        self.close_with(Shutdown::Drain)
    }

    /// Closes the session, as [`ExecutionSession::close`] does, with a choice of what becomes of its work.
    ///
    /// [`Shutdown::Cancel`] also hurries a close that drains on another thread.
    ///
    /// # Concurrency
    /// As [`ExecutionSession::close`].
    ///
    /// # Errors
    /// As [`ExecutionSession::close`].
    pub fn close_with(&self, shutdown: Shutdown) -> Result<(), CloseError> {
        self.close_before(shutdown, None)
    }

    /// Closes the session, as [`ExecutionSession::close_with`] does, and waits until `deadline` at most.
    ///
    /// When the time is over, work that has not started is [cancelled](Shutdown::Cancel), and the call returns. Units that run then go on. When
    /// they have ended, a thread that this call has started removes all resources. Another close waits for that.
    ///
    /// # Concurrency
    /// As [`ExecutionSession::close`]. In place the deadline is looked at between tasks: a unit that has begun is not interrupted. Nor
    /// is a resource that is being removed.
    ///
    /// # Errors
    /// As [`ExecutionSession::close`]; [`CloseError::TimedOut`] if tasks still run at the deadline. The session's error reporter alone hears of
    /// resources that refuse to go after that.
    pub fn close_until(&self, shutdown: Shutdown, deadline: Deadline) -> Result<(), CloseError> {
        self.close_before(shutdown, Some(deadline))
    }

    /// Whether the session is closed: nothing of it runs, and its resources are removed. It is not yet while a close waits for work.
    ///
    /// # Cost
    /// One load.
    pub fn is_closed(&self) -> bool {
        self.0.drain.closed.is_open()
    }

    fn close_before(&self, shutdown: Shutdown, deadline: Option<Deadline>) -> Result<(), CloseError> {
        // Before anything moves; a session that is closed has nothing to wait for.
        if !self.0.drain.closed.is_open()
            && let Some(refusal) = self.refuses_waits()
        {
            return Err(CloseError::Wait(refusal));
        }
        crate::task::serial_queue::strand::leave_all();
        let first = self.transact(|state, _| state.start_closing(shutdown));
        if shutdown == Shutdown::Cancel {
            self.end_queries();
        }
        if !first {
            if frame::depth_of(self) == 0 && !weakened("close::second_call_does_not_wait") {
                let _waits = frame::waits(self, Wait::Close);
                // Failing to wait only means returning before the other call does.
                if let Ok(false) = self.wait_before(&self.0.drain.closed, deadline) {
                    self.cancel();
                    return Err(CloseError::TimedOut);
                }
            }
            return Ok(());
        }
        if deadline.is_some() && !self.drain(deadline) {
            self.cancel();
            // Tasks in this thread's queue, which only it can end.
            self.run_ready();
            self.finish_on_another_thread();
            return Err(CloseError::TimedOut);
        }
        let sources = self.finish();
        if sources.is_empty() { Ok(()) } else { Err(CloseError::Resources { sources }) }
    }

    /// Ends all queries; units that have not started never do.
    fn cancel(&self) {
        self.transact(|state, _| state.start_closing(Shutdown::Cancel));
        self.end_queries();
    }

    fn finish_on_another_thread(&self) {
        let session = self.clone();
        let finish = move || drop(session.finish());
        if !weakened("close::leaves_the_rest_to_nobody")
            && thread::Builder::new().name("uruk-close".into()).spawn(finish).is_err()
        {
            // Late is better than never.
            self.finish();
        }
    }

    /// The close from the drain to the end; gives what resources had to say.
    fn finish(&self) -> Vec<SharedError> {
        self.drain(None);
        let sources = self.end();
        // Removals of others that had taken their resources out before there was an end.
        if !weakened("close::overtakes_removals") {
            self.drain(None);
        }
        // Before the dispatcher ends: a task that waits here may be another session's, and the dispatcher as well.
        self.0.drain.closed.open();
        let _waits = frame::waits(self, Wait::Close);
        self.0.dispatcher.shutdown();
        sources
    }

    /// Waits until nothing of the session moves, and ends lookups that no thread will answer. Says whether it came so far in
    /// time.
    fn drain(&self, deadline: Option<Deadline>) -> bool {
        loop {
            let idle = self.0.drain.start_round();
            if deadline.is_none() {
                self.run_ready();
            }
            let left = {
                let _waits = frame::waits(self, Wait::Close);
                match self.wait_before(&idle, deadline) {
                    Ok(true) => self.0.drain.end_round(),
                    Ok(false) => return false,
                    // A wait that is refused, for its depth or because no thread could be had, leaves the rest to fail with everything else.
                    Err(_) => Left::Nothing,
                }
            };
            match left {
                Left::Nothing => return true,
                Left::InLookups if !weakened("close::round_ends_no_queries") => self.end_queries(),
                Left::InLookups | Left::Moving => {}
            }
        }
    }

    /// Waits until the latch is open or the time is over; says whether it is open.
    fn wait_before(&self, latch: &Latch, deadline: Option<Deadline>) -> Result<bool, WaitError> {
        let Some(deadline) = deadline else { return self.wait_for(latch).map(|()| true) };
        frame::fail_dropped();
        let is_over = || self.is_over(Some(deadline));
        crate::task::in_place::run_while(|| !latch.is_open() && !is_over())?;
        if is_over() {
            return Ok(latch.is_open());
        }
        self.run_ready();
        self.0.dispatcher.wait_until(latch, &|| self.left_until(deadline))
    }

    /// Ends everything that is left; gives what resources had to say.
    fn end(&self) -> Vec<SharedError> {
        let dylibs = self.transact(|state, _| state.end());
        if !weakened("close::forgets_the_queries") {
            self.end_queries();
        }
        let number = RemovalNumber::next();
        // All of them are told before the first goes. Always as a task: a resource, or the platform, that closes the session must
        // not wait for this very call.
        let prepare = |(dylib, name)| {
            let cleared = self.transact_clearing(|state, effects| state.end_dylib(dylib, effects))?;
            Some((JitDylib::new(self.clone(), dylib, Arc::clone(&name)), name, cleared.prepare(number)))
        };
        let prepared: Vec<_> = dylibs.into_iter().filter_map(prepare).collect();
        let mut sources = Vec::new();
        for (handle, name, prepared) in prepared {
            if let Err(RemoveError::Resources { sources: more, .. }) = prepared.remove(name) {
                sources.extend(more);
            }
            if let Ok(Err(source)) = frame::run(self, || self.tear_down(&handle)) {
                sources.push(source);
            }
        }
        self.transact(|state, effects| state.note_closed(effects));
        sources
    }

    /// Ends every query that there is, some at a time. Those that tasks make meanwhile may go on.
    fn end_queries(&self) {
        let end = self.transact(|state, _| state.queries_end());
        let mut next = Some(0);
        while let Some(first) = next {
            next = self.transact(|state, effects| state.end_some_queries(first, end, effects));
        }
    }

    /// Whether this thread runs a task of the session, whose lookups and definitions are served while the
    /// session drains.
    pub(crate) fn in_task(&self) -> bool {
        frame::depth_of(self) > 0
    }
}
