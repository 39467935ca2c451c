//! Blocked lookups: the thread waits for what is not there yet.

use std::fmt;

use uruk_recorder::{Entry, Kind};

use crate::ids::{Id, QueryId};
use crate::in_span::{Watched, inside};
use crate::protocol::state::Search;
use crate::sync::{Arc, Latch, weakened};
use crate::task::in_place::SeparateQueue;
use crate::{Deadline, LookupError, SearchOrder, WaitError};

use super::answers::{Asked, WaiterId};
use super::drain::Wait;
use super::holding::Blocking;
use super::query::{Completion, Outcome};
use super::{ExecutionSession, Locked, frame, holding};

impl ExecutionSession {
    /// Lodges a search and waits for its answer. `here`: the units that it claims run on this thread.
    pub(super) fn wait_for_answer(
        &self,
        order: &SearchOrder,
        mut search: Search,
        deadline: Option<Deadline>,
        here: bool,
    ) -> Outcome {
        let phase = crate::in_span::phase!(
            "session.lookup",
            session = self.0.tag.noted(),
            query = tracing::field::Empty,
            symbols = search.symbols.len(),
        );
        // An answer is large: in a closure it would be moved once more.
        let inside = inside(phase);
        search.refusal = self.refuses_waits();
        // Without a look at what there is: a thread that does not exist here may hold the lock.
        if let Some(WaitError::Forked) = search.refusal {
            return Err(LookupError::Wait(WaitError::Forked));
        }
        let wait_span = Watched::new(crate::in_span::phase!(
            "lookup.wait",
            session = self.0.tag.noted(),
            query = tracing::field::Empty,
            of = %WaitedNames(&search),
        ));
        let runs_here = here.then(crate::task::in_place::run_here);
        // Deferred tasks stay in this thread's queue until the guard drops.
        let _runs = deadline.map(|_| RunsReady);
        let queue = self.lies_above_another_frame().then(crate::task::in_place::separate_queue);
        let asked = Asked::new();
        let (blocking, holdings) = holding::about_to_block(self).unzip();
        // In place nothing runs before the wait, which looks at the clock.
        let held_back = deadline.map(|_| crate::task::in_place::hold_back());
        let mut waiter =
            Waiter { session: self, number: asked.waiter(), query: None, stage: WaitStage::AtNothing };
        let mut units = None;
        self.lodge(order, search, Completion::Blocked(asked.waiter()), |query, state, effects| {
            units = runs_here.as_ref().and_then(|_| self.keep_for_this_thread(effects));
            (waiter.query, waiter.stage) = (query, WaitStage::HasAsked);
            if let (Some(query), Some(mut holdings)) = (query, holdings) {
                holdings.ends_by_itself = deadline.is_some();
                holding::tell(query, holdings, state, effects);
            }
        });
        inside.record_id("query", waiter.query);
        units.into_iter().for_each(crate::task::in_place::queue_here);
        drop(held_back);
        match asked.answer() {
            // In place this thread has mostly run what it asks for.
            Ok(outcome) => {
                waiter.stage = WaitStage::AtNothing;
                drop((blocking, queue));
                outcome
            }
            Err(asked) => self.wait_for_others(asked, waiter, wait_span, deadline, (blocking, queue)),
        }
    }

    /// Whether what this thread runs while it waits lies above code of the embedder that may be waited for.
    #[inline]
    fn lies_above_another_frame(&self) -> bool {
        let runs_tasks = self.0.dispatcher.in_place().is_some() || crate::task::in_place::runs_here();
        runs_tasks && crate::task::this_thread::is_inside_call()
    }

    /// Waits for an answer that this thread has not given itself, running what only it can run meanwhile.
    #[inline(never)]
    fn wait_for_others(
        &self,
        asked: Asked,
        mut waiter: Waiter<'_>,
        wait_span: Watched,
        deadline: Option<Deadline>,
        (blocking, queue): (Option<Blocking<'_>>, Option<SeparateQueue>),
    ) -> Outcome {
        let answers = &self.0.answers;
        let needs = waiter.query.filter(|_| queue.is_some());
        let note = |kind| {
            let query = waiter.query.map_or(0, Id::noted);
            uruk_recorder::note(|| Entry::new(kind).of(self.0.tag.noted()).with(query, 0));
        };
        wait_span.record_id("query", waiter.query);
        note(Kind::Blocked);
        let (met, waited) = wait_span.around(|| {
            let latch = if blocking.is_some() { Blocking::latch } else { Latch::new };
            let met = answers.meet(asked, latch);
            waiter.stage = WaitStage::HasMet;
            let sleep = |latch: &Arc<Latch>| self.sleep((waiter.number, latch), deadline, needs);
            let waited = met.as_ref().err().map_or(Ok(true), sleep);
            (met, waited)
        });
        note(Kind::Unblocked);
        drop((blocking, queue));
        if let (Ok(false), Some(query), Err(latch)) = (&waited, waiter.query, &met) {
            // The answer may have come meanwhile, and is as good.
            self.transact(|state, effects| state.expire(query, effects));
            // The thread that ended the query may still be about to give the answer, and does not block before it has.
            if !weakened("deadline::takes_what_is_not_there_yet") {
                latch.wait();
            }
        }
        // The answer may come between a refusal and the withdrawal; either is true then.
        waited?;
        waiter.hear(met.ok())
    }

    /// Blocks in a lookup until the latch is open, or the time is over; says whether it is open. When the session closes, that ends
    /// sooner or later. In place, above another frame, `needs` is the lookup.
    fn sleep(
        &self,
        (waiter, latch): (WaiterId, &Latch),
        deadline: Option<Deadline>,
        needs: Option<QueryId>,
    ) -> Result<bool, WaitError> {
        if latch.is_open() {
            return Ok(true);
        }
        let is_over = || self.is_over(deadline);
        frame::fail_dropped();
        self.run_needed(|| !latch.is_open() && !is_over(), needs)?;
        if deadline.is_some() {
            crate::task::in_place::run_while(|| !latch.is_open() && !is_over())?;
        }
        if latch.is_open() {
            return Ok(true);
        }
        // Only now: a thread that runs what it waits for moves. It is excused until the answer is given, not until it wakes.
        let _waits = frame::waits(self, Wait::Lookup(waiter, latch));
        match deadline {
            None => self.wait_for(latch).map(|()| true),
            Some(deadline) => self.0.dispatcher.wait_until(latch, &|| self.left_until(deadline)),
        }
    }

    /// Runs what is queued on this thread, first what the lookup needs, if it needs to.
    fn run_needed(&self, goes_on: impl Fn() -> bool, needs: Option<QueryId>) -> Result<(), WaitError> {
        let Some(query) = needs else { return Ok(()) };
        crate::task::in_place::run_needed(goes_on, || {
            let claims = self.locked(|Locked { state, .. }| state.claims_needed_by(query));
            claims.into_iter().map(|claim| (self.tag(), claim)).collect()
        })
    }
}

/// A thread that has asked and waits for an answer. If it does so no more, because it may not or unwinds, the lookup is withdrawn.
struct Waiter<'a> {
    session: &'a ExecutionSession,
    number: WaiterId,
    query: Option<QueryId>,
    stage: WaitStage,
}

/// How far a thread that waits has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitStage {
    /// It has not asked, or has taken the answer.
    AtNothing,
    HasAsked,
    /// It has been where answers from other threads are.
    HasMet,
}

/// Runs, when it is dropped, what this thread was left with.
struct RunsReady;

impl Drop for RunsReady {
    fn drop(&mut self) {
        crate::task::in_place::run_ready();
    }
}

impl Waiter<'_> {
    /// The answer, which the thread has or is there.
    fn hear(mut self, met: Option<Outcome>) -> Outcome {
        self.stage = WaitStage::AtNothing;
        met.or_else(|| self.session.0.answers.take(self.number)).unwrap_or(Err(LookupError::Closed))
    }

    #[cold]
    fn give_up(&self) {
        let withdraw = |query| self.session.transact(|state, effects| state.withdraw(query, effects));
        let withdrawn = self.query.is_some_and(withdraw);
        self.session.0.answers.give_up(self.number, !withdrawn, self.stage == WaitStage::HasMet);
    }
}

impl Drop for Waiter<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.stage != WaitStage::AtNothing {
            self.give_up();
        }
    }
}

/// The first symbols of a search, for those who watch.
struct WaitedNames<'a>(&'a Search);

impl fmt::Display for WaitedNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FEW: usize = 3;
        for (index, (name, _)) in self.0.symbols.iter().take(FEW).enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            f.write_str(name.as_str())?;
        }
        match self.0.symbols.len().saturating_sub(FEW) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
