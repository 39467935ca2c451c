//! Holding: what only this thread can finish, and the lookups it is blocked in.
//!
//! A responsibility that is attached, a generator's request that is not detached, and a serial queue's turn cannot leave their thread:
//! while the thread is blocked nobody finishes them. The thread keeps the list for itself, without a lock, and tells
//! the protocol when it blocks (`protocol/deadlock/`). What was detached is in no list.
//!
//! What the thread runs while it is blocked, above the lookup, may close a session, and a close leaves every turn on the stack; or it
//! may detach what it has taken out of a thread-local. Who was told of it is told of that before anybody else has it.
//!
//! What a frame has left behind when it ends, in a thread-local say, is in the list and is not told: nobody knows
//! who would finish it.

use std::cell::RefCell;
use std::time::Duration;

use crate::protocol::deadlock::{FIRST_PAUSE, Holdings};
use crate::protocol::state::SessionState;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::query::Asker;
use crate::protocol::storage::ids::{QueryId, WaitId};
use crate::serial_queue::SerialQueueId;
use crate::sync::{Latch, thread_local};

pub(crate) use crate::protocol::deadlock::Held;

use super::{ExecutionSession, Live, Locked, SessionTag};

/// A place in the list of the thread that took it; to be given back there.
#[derive(Debug)]
pub(crate) struct Hold(usize);

#[derive(Default)]
struct ThisThread {
    /// What the thread holds; places of what it gave back are reused.
    held: Vec<Option<HeldHere>>,
    free: Vec<usize>,
    /// The frames on the thread's stack, outermost first.
    frames: Vec<FrameHere>,
    frames_begun: u64,
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

struct FrameHere {
    /// Frame 0 is the thread itself, and in no list.
    number: u64,
    /// The unit that it materializes, or answers on behalf of.
    unit: Option<(SessionTag, Asker)>,
}

struct HeldHere {
    /// None for what concerns all.
    session: Option<SessionTag>,
    what: Held,
    /// The frame that was innermost.
    frame: u64,
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
}

thread_local! {
    static THIS_THREAD: RefCell<ThisThread> = RefCell::default();
}

/// Borrows this thread's part for a moment, in which no code of the embedder runs. None while the thread is being
/// torn down, when its part is gone: what it holds then is not known, and no deadlock over it is certain.
fn with<R>(operation: impl FnOnce(&mut ThisThread) -> R) -> Option<R> {
    THIS_THREAD.try_with(|thread| operation(&mut thread.borrow_mut())).ok()
}

impl Hold {
    /// Notes that this thread holds something of `session`.
    pub(crate) fn take(session: &ExecutionSession, what: Held) -> Option<Self> {
        Self::take_of(Some(session.tag()), what)
    }

    /// Notes that a task of `queue` runs on this thread, of whatever session.
    pub(crate) fn take_section(queue: SerialQueueId) -> Option<Self> {
        Self::take_of(None, Held::Turn(queue))
    }

    #[inline]
    fn take_of(session: Option<SessionTag>, what: Held) -> Option<Self> {
        with(|thread| {
            thread.taken += 1;
            let (frame, number) = (thread.innermost(), thread.taken);
            match thread.free.pop() {
                Some(place) => {
                    thread.held[place] = Some(HeldHere { session, what, frame, number });
                    Self(place)
                }
                None => {
                    thread.held.push(Some(HeldHere { session, what, frame, number }));
                    Self(thread.held.len() - 1)
                }
            }
        })
    }

    /// Gives back what somebody else may have from now on, to be called before that can be. Lookups beneath which it is passed on keep
    /// nobody from going on with it: their sessions are told.
    pub(crate) fn pass_on(self) {
        let told = with(|thread| thread.told_of(&self));
        self.give_back();
        // Mostly nobody was told: who passes something on is not blocked.
        for Told { session, wait, what } in told.into_iter().flatten() {
            // Nothing follows from it, so nothing is run here.
            session.locked(|Locked { state, .. }| state.lose(wait, what));
        }
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

impl ThisThread {
    fn innermost(&self) -> u64 {
        self.frames.last().map_or(0, |frame| frame.number)
    }

    fn holds_any(&self) -> bool {
        self.free.len() < self.held.len()
    }

    /// The lookups that began when the thread had this already: each session was told of it by the first of its own.
    fn told_of(&self, hold: &Hold) -> Vec<Told> {
        let Some(Some(held)) = self.held.get(hold.0) else { return Vec::new() };
        let concerns = |level: &&Level| held.session.is_none_or(|of| of == level.session.tag());
        let later = self.levels.iter().filter(|level| held.number <= level.taken).filter(concerns);
        let told =
            |level: &Level| Some(Told { session: level.session.clone(), wait: level.wait?, what: held.what });
        later.filter_map(told).collect()
    }

    /// What frames that are still on the stack hold of the session and have not told at an earlier level.
    fn untold(&self, session: SessionTag) -> Option<Holdings> {
        let is_known = |level: &&Level| level.session.tag() == session && level.wait.is_some();
        let below = self.levels.iter().rev().find(is_known);
        if below.is_none() && !self.holds_any() {
            return None;
        }
        let mut holdings = Holdings { below: below.and_then(|level| level.wait), ..Holdings::default() };
        for held in self.held.iter().flatten().filter(|held| held.session.is_none_or(|of| of == session)) {
            let told = below.is_some_and(|level| held.number <= level.taken);
            if told
                || (held.frame > 0
                    && self.frames.binary_search_by_key(&held.frame, |frame| frame.number).is_err())
            {
                continue;
            }
            holdings.held.push(held.what);
        }
        (!holdings.is_empty()).then_some(holdings)
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
    with(|thread| !thread.frames.is_empty() || thread.holds_any()).unwrap_or(false)
}

/// Whether others may wait for what this thread goes on with: it holds something, or works for a unit of the session.
pub(super) fn is_waited_for(session: SessionTag) -> bool {
    with(|thread| thread.holds_any()).unwrap_or(false) || asks(session).is_some()
}

/// A frame of the embedder's code on this thread, until it is dropped.
pub(super) struct OnStack(());

/// Notes that a frame begins, and which unit it materializes, if any, which was that urgent when it began.
#[inline]
pub(super) fn enter(materializes: Option<(SessionTag, Asker)>) -> OnStack {
    with(|thread| {
        thread.frames_begun += 1;
        thread.frames.push(FrameHere { number: thread.frames_begun, unit: materializes });
    });
    OnStack(())
}

impl Drop for OnStack {
    fn drop(&mut self) {
        with(|thread| thread.frames.pop());
    }
}

/// Notes that the innermost frame goes on with what `asker` has asked for.
pub(super) fn answers(session: SessionTag, asker: Asker) {
    with(|thread| thread.frames.last_mut().map(|frame| frame.unit = Some((session, asker))));
}

/// The unit of the session on whose behalf this thread asks, if it asks from a unit's own frame or from an answer to it.
pub(super) fn asks(session: SessionTag) -> Option<Asker> {
    with(|thread| {
        let (tag, asker) = thread.frames.last()?.unit?;
        (tag == session).then_some(asker)
    })
    .flatten()
}

/// A lookup that may block this thread, which holds something; until it is dropped.
pub(super) struct Blocking<'a> {
    session: &'a ExecutionSession,
}

/// Notes that this thread is about to block in a lookup of `session`. Nothing if it holds nothing that anybody could
/// wait for: then no deadlock comes of it, and it need not be known.
pub(super) fn about_to_block(session: &ExecutionSession) -> Option<(Blocking<'_>, Holdings)> {
    let tag = session.tag();
    let holdings = with(|thread| {
        let holdings = thread.untold(tag)?;
        let taken = thread.taken;
        thread.levels.push(Level { session: session.clone(), wait: None, taken });
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
    let innermost = |thread: &mut ThisThread| {
        let level = thread.levels.last()?;
        Some((level.session.clone(), level.wait?))
    };
    match with(innermost).flatten() {
        Some((session, wait)) => session.transact(|state, effects| state.look(wait, effects)),
        None => FIRST_PAUSE,
    }
}

impl Blocking<'_> {
    /// What this thread waits on for its answer: it looks for deadlocks meanwhile.
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
