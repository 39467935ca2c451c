//! Choices a session is made with.

use std::fmt;
use std::time::Instant;

use crate::ids::SessionTag;
use crate::protocol::state::SessionState;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::noted::Noted;
use crate::sync::{Arc, BusyMutex};
use crate::{
    HeldResource, InPlaceTaskDispatcher, Platform, SessionError, SessionEvent, SymbolStringPool,
    TaskDispatcher,
};

use super::answers::Answers;
use super::deadline::Clock;
use super::drain::Drain;
use super::metrics::HoldMeter;
use super::{ABSOLUTE_SYMBOLS, ExecutionSession, Inner, Locked};

pub(super) type Observer = Arc<dyn Fn(&SessionEvent) + Send + Sync>;
pub(super) type Held = fn() -> Option<HeldResource>;
pub(super) type Reporter = Arc<dyn Fn(&SessionError) + Send + Sync>;

/// Choices a session is made with.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use uruk_core::{ExecutionSession, SessionError};
///
/// let reported = Arc::new(AtomicUsize::new(0));
/// let count = reported.clone();
/// let session = ExecutionSession::builder()
///     .error_reporter(Arc::new(move |_: &SessionError| {
///         count.fetch_add(1, Ordering::Relaxed);
///     }))
///     .build();
/// session.create_jit_dylib("main")?;
/// assert_eq!(reported.load(Ordering::Relaxed), 0);
/// # Ok::<(), uruk_core::DylibError>(())
/// ```
#[derive(Default)]
pub struct ExecutionSessionBuilder {
    dispatcher: Option<Arc<dyn TaskDispatcher>>,
    pool: Option<SymbolStringPool>,
    observer: Option<Observer>,
    reporter: Option<Reporter>,
    platform: Option<Arc<dyn Platform>>,
    held: Option<Held>,
    measure_lock_holds: bool,
    report_all_failures: bool,
    clock: Option<Clock>,
}

impl ExecutionSessionBuilder {
    /// The dispatcher that runs the session's tasks. In place by default.
    #[must_use]
    pub fn dispatcher(mut self, dispatcher: Arc<dyn TaskDispatcher>) -> Self {
        self.dispatcher = Some(dispatcher);
        self
    }

    /// A pool of symbol names to share with other sessions.
    #[must_use]
    pub fn symbol_string_pool(mut self, pool: SymbolStringPool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// A function that is given the session's events. Called without locks, on any thread, possibly on several at once.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Fn(&SessionEvent) + Send + Sync>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// A function that is given the errors that no caller waits for.
    #[must_use]
    pub fn error_reporter(mut self, reporter: Arc<dyn Fn(&SessionError) + Send + Sync>) -> Self {
        self.reporter = Some(reporter);
        self
    }

    /// Whether the reporter is also given the failure of each unit that a lookup is told of, as ORC's session is. Off unless said otherwise.
    #[must_use]
    pub fn report_all_failures(mut self, report: bool) -> Self {
        self.report_all_failures = report;
        self
    }

    /// The platform. It is told of dylibs and of units, so that static initialisers run when they should.
    #[must_use]
    pub fn platform(mut self, platform: Arc<dyn Platform>) -> Self {
        self.platform = Some(platform);
        self
    }

    /// Refuses waits of a thread that holds something it must not hold meanwhile, such as an LLVM context.
    /// `held` says what the calling thread holds and where it took it; a blocking lookup that would have to
    /// wait fails with that.
    #[must_use]
    pub fn refuse_waits_while(mut self, held: fn() -> Option<HeldResource>) -> Self {
        self.held = Some(held);
        self
    }

    /// Whether to measure how long the session's lock is held, for [`ExecutionSession::take_lock_holds`]. Off unless
    /// said otherwise.
    ///
    /// # Cost
    /// On: two looks at the clock for each transaction. Off: a branch.
    #[must_use]
    pub fn measure_lock_holds(mut self, measure: bool) -> Self {
        self.measure_lock_holds = measure;
        self
    }

    /// The clock of [deadlines](crate::Deadline). The system's clock by default.
    ///
    /// A thread that waits reads it again once the remaining time has passed on the system's clock. Workers in the midst of a unit
    /// read it too, so it has to answer at once: a clock that waits stalls them. Its panic reaches the caller of a lookup with a
    /// deadline or of [`why`](ExecutionSession::why). A unit begins all the same, with a report, and an answer counts as in time.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Fn() -> Instant + Send + Sync>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Makes the session.
    pub fn build(self) -> ExecutionSession {
        let tag = SessionTag::new();
        let mut state = SessionState::new(self.observer.is_some());
        state.noted = Noted::of(tag.noted());
        state.report_all_failures(self.report_all_failures);
        let pool = self.pool.unwrap_or_default();
        let clock = self.clock.unwrap_or_else(|| Arc::new(Instant::now));
        ExecutionSession(Arc::new(Inner {
            tag,
            ready_index: state.ready_index(),
            losses: state.losses(),
            state: BusyMutex::new(Locked { state, effects: Effects::default() }).into(),
            absolute_symbols: pool.intern(ABSOLUTE_SYMBOLS),
            pool,
            dispatcher: self.dispatcher.unwrap_or_else(|| Arc::new(InPlaceTaskDispatcher::default())),
            observer: self.observer,
            reporter: self.reporter,
            drain: Drain::default().into(),
            answers: Answers::default().into(),
            platform: self.platform,
            held: self.held,
            clock,
            holds: self.measure_lock_holds.then(HoldMeter::default),
        }))
    }
}

impl fmt::Debug for ExecutionSessionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutionSessionBuilder")
            .field("dispatcher", &self.dispatcher)
            .finish_non_exhaustive()
    }
}
