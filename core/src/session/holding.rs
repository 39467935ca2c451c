//! Holding: the work that only this thread can finish, and the lookups it is blocked in meanwhile.
//!
//! Three things cannot leave their thread: an attached responsibility, a generator's request that is not detached, and the start of a task
//! in a strand. They cannot be finished while the thread is blocked. The record of the thread's tasks has the strands
//! (`task/serial_queue/strand.rs`). The thread lists the rest for itself, without a lock, and passes the list to the protocol when it
//! blocks (`protocol/deadlock/`). A detached responsibility or request leaves the list.
//!
//! The thread runs code while it is blocked, above the lookup. That code may give up an entry that the protocol was told of:
//!
//! - It closes a session, and each task on the stack leaves its strand.
//! - It detaches a responsibility that it has taken out of a thread-local.
//!
//! [`Hold::pass_on`] then tells the protocol, before another thread can have the entry.
//!
//! A frame may end and leave a responsibility behind, in a thread-local say. It stays in the list, but the protocol is not told:
//! which code would finish it is unknown.

use std::time::Duration;

use crate::ids::{QueryId, SessionTag, WaitId};
use crate::protocol::deadlock::FIRST_PAUSE;
use crate::protocol::deadlock::threads::Holdings;
use crate::protocol::state::SessionState;
use crate::protocol::state::effects::Effects;
use crate::sync::Latch;
use crate::task::serial_queue::{SerialQueueId, strand};

pub(crate) use crate::protocol::deadlock::threads::Held;

use super::frame::{self, FrameNumber, Frames};
use super::{ExecutionSession, Live, Locked, here};

/// A place in the list of the thread that took it; to be given back there.
#[derive(Debug)]
pub(crate) struct Hold(usize);

/// The things that a thread holds, and the lookups it is blocked in.
#[derive(Default)]
pub(super) struct Holding {
    /// The things that the thread holds; places of those given back are reused.
    held: Vec<Option<HeldHere>>,
    free: Vec<usize>,
    /// How much the thread has ever taken.
    taken: u64,
    /// The lookups the thread is blocked in and the protocol knows of, outermost first.
    levels: Vec<Level>,
}

/// A lookup in which the thread is blocked, the session that knows of it, and what that was told the thread holds.
struct Told {
    session: ExecutionSession,
    wait: WaitId,
    what: Held,
}

struct HeldHere {
    session: SessionTag,
    what: Held,
    /// The frame that was innermost.
    frame: FrameNumber,
    /// Its number among all that the thread has taken.
    number: u64,
}

struct Level {
    /// Never the last handle: who blocks borrows another.
    session: ExecutionSession,
    /// None until the lookup is known to wait.
    wait: Option<WaitId>,
    /// How much the thread had taken before: earlier levels have told that. Frames are no measure of it, for a task that
    /// no session knows runs without one.
    taken: u64,
    /// The places of strands that the thread had before, in the same way.
    strands: usize,
}

/// Borrows this thread's part. None while the thread ends: what it holds then is not known, and no deadlock over it is certain.
#[inline]
fn with<R>(operation: impl FnOnce(&mut Holding) -> R) -> Option<R> {
    here::with(|thread| operation(&mut thread.holding))
}

impl Hold {
    /// Notes that this thread holds something of `session`.
    pub(crate) fn take(session: &ExecutionSession, what: Held) -> Option<Self> {
        let session = session.tag();
        here::with(|thread| {
            let (frame, holding) = (thread.frames.innermost(), &mut thread.holding);
            holding.taken += 1;
            let held = HeldHere { session, what, frame, number: holding.taken };
            match holding.free.pop() {
                Some(place) => {
                    holding.held[place] = Some(held);
                    Self(place)
                }
                None => {
                    holding.held.push(Some(held));
                    Self(holding.held.len() - 1)
                }
            }
        })
    }

    /// Gives the thing back, to be called before another thread can have it. The sessions of blocked lookups further down the stack
    /// are told that this thread no longer holds it.
    pub(crate) fn pass_on(self) {
        let told = with(|thread| thread.told_of(&self));
        self.give_back();
        told.into_iter().flatten().for_each(Told::lose);
    }

    /// Notes that it no longer does. To be called on the thread that took it.
    pub(crate) fn give_back(self) {
        with(|thread| {
            // Mostly it is the newest.
            if self.0 + 1 == thread.held.len() {
                thread.held.pop();
            } else {
                thread.held[self.0] = None;
                thread.free.push(self.0);
            }
            if thread.free.len() == thread.held.len() {
                thread.held.clear();
                thread.free.clear();
            }
        });
    }
}

/// The task at that place has left its strand, which another may have from now on.
fn pass_on_strand(place: usize, queue: SerialQueueId) {
    let told = with(|thread| thread.told_of_strand(place, queue));
    told.into_iter().flatten().for_each(Told::lose);
}

impl Told {
    /// Tells the session that the thread has it no more. Seldom needed: a thread that passes something on is mostly not blocked.
    fn lose(self) {
        let Self { session, wait, what } = self;
        // Nothing follows from it, so nothing is run here.
        session.locked(|Locked { state, .. }| state.lose(wait, what));
    }
}

/// Whether this thread holds something of any session.
fn holds_any(holding: &Holding) -> bool {
    let mut holds = holding.free.len() < holding.held.len();
    if !holds {
        strand::for_each_from(0, |_| holds = true);
    }
    holds
}

impl Holding {
    /// The lookups that began when the thread had this already: each session was told of it by the first of its own.
    fn told_of(&self, hold: &Hold) -> Vec<Told> {
        let Some(Some(held)) = self.held.get(hold.0) else { return Vec::new() };
        let is_told = |level: &&Level| held.number <= level.taken && held.session == level.session.tag();
        self.levels.iter().filter(is_told).filter_map(|level| level.told(held.what)).collect()
    }

    /// The same for a strand, which concerns all sessions.
    fn told_of_strand(&self, place: usize, queue: SerialQueueId) -> Vec<Told> {
        let is_told = |level: &&Level| place < level.strands;
        let told = |level: &Level| level.told(Held::Strand(queue));
        self.levels.iter().filter(is_told).filter_map(told).collect()
    }

    /// The session's things that frames on the stack hold and that were not told at an earlier level.
    fn untold(&self, session: SessionTag, frames: &Frames) -> Option<Holdings> {
        let is_known = |level: &&Level| level.session.tag() == session && level.wait.is_some();
        let below = self.levels.iter().rev().find(is_known);
        if below.is_none() && !holds_any(self) {
            return None;
        }
        let mut holdings = Holdings { below: below.and_then(|level| level.wait), ..Holdings::default() };
        for held in self.held.iter().flatten().filter(|held| held.session == session) {
            let told = below.is_some_and(|level| held.number <= level.taken);
            if !told && frames.has(held.frame) {
                holdings.held.push(held.what);
            }
        }
        // Strands end with their tasks, so no frame leaves one behind.
        let first_untold = below.map_or(0, |level| level.strands);
        strand::for_each_from(first_untold, |queue| holdings.held.push(Held::Strand(queue)));
        (!holdings.is_empty()).then_some(holdings)
    }
}

impl Level {
    fn told(&self, what: Held) -> Option<Told> {
        Some(Told { session: self.session.clone(), wait: self.wait?, what })
    }
}

/// Whether the running thread is inside code that a session runs (a unit, a handler, a task), or holds a responsibility or a
/// generator's request: whether others may wait for what only this stack can go on to finish.
///
/// For dispatchers that are given threads whose stacks they do not know: a task that is run there and blocks keeps what lies
/// beneath from going on, for which it may wait itself.
///
/// # Concurrency
/// Takes no lock.
pub fn thread_is_engaged() -> bool {
    here::with(|thread| thread.frames.is_inside_any() || holds_any(&thread.holding)).unwrap_or(false)
}

/// Whether others may wait for what this thread goes on with: it holds something, or works for a unit of the session.
pub(super) fn is_waited_for(session: SessionTag) -> bool {
    with(|thread| holds_any(thread)).unwrap_or(false) || frame::asks(session).is_some()
}

/// A lookup that may block this thread, which holds something; until it is dropped.
pub(super) struct Blocking<'a> {
    session: &'a ExecutionSession,
}

/// Notes that this thread is about to block in a lookup of `session`. Nothing if it holds nothing that anybody could
/// wait for: then no deadlock comes of it, and it need not be known.
pub(super) fn about_to_block(session: &ExecutionSession) -> Option<(Blocking<'_>, Holdings)> {
    let tag = session.tag();
    let holdings = here::with(|thread| {
        let (holding, frames) = (&mut thread.holding, &thread.frames);
        let holdings = holding.untold(tag, frames)?;
        let (taken, strands) = (holding.taken, strand::places());
        if strands > 0 {
            strand::tell_of_leaving(pass_on_strand);
        }
        holding.levels.push(Level { session: session.clone(), wait: None, taken, strands });
        Some(holdings)
    });
    holdings.flatten().map(|holdings| (Blocking { session }, holdings))
}

/// Tells the protocol that this thread is about to block in `query`, and notes by which name it knows that wait. Called under the lock,
/// before any task can run on this thread: a lookup in one must find it.
pub(super) fn tell(
    query: QueryId,
    holdings: Holdings,
    state: &mut SessionState<Live>,
    effects: &mut Effects<Live>,
) {
    let wait = state.begin_wait(query, holdings, effects);
    with(|thread| {
        if let Some(level) = thread.levels.last_mut() {
            level.wait = wait;
        }
    });
}

/// Looks for a deadlock on behalf of the innermost lookup in which this thread is blocked. Gives the time to sleep until the next look.
fn look() -> Duration {
    let innermost = |thread: &mut Holding| {
        let level = thread.levels.last()?;
        Some((level.session.clone(), level.wait?))
    };
    match with(innermost).flatten() {
        Some((session, wait)) => session.transact(|state, effects| state.look(wait, effects)),
        None => FIRST_PAUSE,
    }
}

impl Blocking<'_> {
    /// The latch at which this thread waits for its answer: it looks for deadlocks meanwhile.
    pub(super) fn latch() -> Latch {
        Latch::looking(FIRST_PAUSE, look)
    }
}

impl ExecutionSession {
    /// Looks for a deadlock on behalf of each blocked thread that holds something, as they do themselves now and then.
    ///
    /// For tests and models, which do not wait for time.
    #[doc(hidden)]
    pub fn look_for_deadlocks(&self) {
        self.transact(|state, effects| state.look_at_all(effects));
    }
}

impl Drop for Blocking<'_> {
    fn drop(&mut self) {
        let level = with(|thread| thread.levels.pop()).flatten();
        if let Some(wait) = level.and_then(|level| level.wait) {
            self.session.transact(|state, effects| state.end_wait(wait, effects));
        }
    }
}
