//! The session: owns the protocol's state, takes its lock, delivers what follows.
//!
//! **Architecture Invariant:** the session lock is taken in this file alone, for transactions by [`ExecutionSession::transact`], and no
//! code of the embedder, no drop of its values included, runs inside it.
//!
#![doc = include_str!("session/README.md")]

pub(crate) mod answers;
mod blocked;
mod blocking;
mod builder;
mod close;
pub(crate) mod deadline;
mod deliver;
mod drain;
pub(crate) mod dylib;
mod flags;
pub(crate) mod frame;
pub(crate) mod generator;
mod here;
pub(crate) mod holding;
pub(crate) mod lodge;
mod metrics;
mod on_caller;
pub(crate) mod platform;
mod presence;
pub(crate) mod query;
pub(crate) mod queued_unit;
mod ready;
pub(crate) mod removal;
pub(crate) mod resource;
pub(crate) mod resource_memory;
pub(crate) mod responsibility;
mod retry;
pub(crate) mod search_order;
pub(crate) mod unit;
mod user_tasks;
mod watch;
pub(crate) mod weak_dylib;
mod why;

use std::fmt;

use crossbeam_utils::CachePadded;
use sync_wrapper::SyncWrapper;

use crate::hints::Hints;
use crate::ids::SessionTag;
use crate::protocol::state::SessionState;
use crate::protocol::state::demand::DemandLost;
use crate::protocol::state::effects::Effects;
use crate::protocol::state::payload::Payload;
use crate::protocol::state::pending::ClaimedUnit;
use crate::protocol::symbols::absolute::Addresses;
use crate::protocol::symbols::define::Definition;
use crate::ready_index::ReadyIndex;
use crate::session::resource::Registered;
use crate::sync::{Arc, BusyMutex, Latch, unique};
use crate::{
    DefineError, DefinitionGenerator, JitDylib, MaterializationUnit, Platform, ResourceTracker, SessionError,
    SymbolName, SymbolStringPool, Task, TaskDispatcher, WaitError,
};

use answers::Answers;
use builder::{Held, Observer, Reporter};
use deadline::Clock;
use drain::Drain;
use metrics::HoldMeter;
use query::Completion;

pub use builder::ExecutionSessionBuilder;
pub use deadline::Deadline;
pub use holding::thread_is_engaged;
pub use metrics::{LockHolds, SessionMetrics};
pub use query::{LookupRequest, SymbolFuture};
pub use watch::DefinitionWatch;

/// A session: dylibs, their symbols, and the work that materializes them.
///
/// A handle: cloning it is cheap, and all clones are the same session. The session lives until its last
/// handle is gone; dylibs, responsibilities and futures hold one.
///
/// # Concurrency
/// Any thread may use it, but not from the destructor of a thread-local value. Writers learn from such a value that a
/// thread still reads Ready symbols, and it may be gone by then. Calls that find, publish or remove Ready symbols
/// panic in that case, and a panic in such a destructor ends the process.
///
/// Dropping the last handle frees the rest: units are dropped unrun, resources without being told. If one of these drops panics, the
/// dropping thread panics; a second panic ends the process. A handle inside the session keeps all of it alive: that of a unit,
/// generator, resource or platform of the embedder, or of a lookup that nothing answers. [`close`](Self::close) a session that must
/// surely be gone. Units and generators of this crate hold none.
///
/// # Examples
/// ```
/// use uruk_core::{ExecutionSession, ExecutorAddr, FnUnit};
///
/// let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// let answer = session.intern("answer");
/// let unit = FnUnit::new([answer.clone()], |request| request.addresses([("answer", ExecutorAddr::new(0x1000))]));
/// main.define(Box::new(unit))?; // Nothing has run.
/// let found = session.lookup_symbol(&main.link_order(), &answer)?; // Now it has, once.
/// assert_eq!(found.address, ExecutorAddr::new(0x1000));
/// session.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ORC: `ExecutionSession`.
#[derive(Clone)]
pub struct ExecutionSession(Arc<Inner>);

struct Inner {
    /// No other session of this process has, had or will have it.
    tag: SessionTag,
    /// Apart from what all threads read, like all that they write.
    state: CachePadded<BusyMutex<Locked>>,
    /// The Ready symbols, for lookups that do not read the state.
    ready_index: Arc<ReadyIndex>,
    /// Tells a unit about to start whether it may have lost its demand, without a look at the state.
    losses: Arc<DemandLost>,
    pool: SymbolStringPool,
    /// The name of units of absolute symbols.
    absolute_symbols: SymbolName,
    dispatcher: Arc<dyn TaskDispatcher>,
    observer: Option<Observer>,
    reporter: Option<Reporter>,
    platform: Option<Arc<dyn Platform>>,
    drain: CachePadded<Drain>,
    answers: CachePadded<Answers>,
    held: Option<Held>,
    clock: Clock,
    /// How long `state` is held, if the embedder wants to know.
    holds: Option<HoldMeter>,
}

/// The data under the session's lock.
struct Locked {
    state: SessionState<Live>,
    /// Where a transaction puts its effects; empty between transactions. Most transactions leave it empty, and then it
    /// need neither be made nor moved nor dropped.
    effects: Effects<Live>,
}

/// The payload of a live session's state.
pub(crate) enum Live {}

/// A unit as live sessions carry it: no thread looks at it before it is taken out.
pub(crate) type Unit = SyncWrapper<Box<dyn MaterializationUnit>>;

/// The name of every unit of absolute symbols.
pub(crate) const ABSOLUTE_SYMBOLS: &str = "<absolute symbols>";

/// Units that were claimed together.
type ClaimedUnits = Vec<ClaimedUnit<Unit>>;

impl Payload for Live {
    type Unit = Unit;
    type Handler = Completion;
    type Generator = Arc<dyn DefinitionGenerator>;
    type Resource = Registered;
}

impl ExecutionSession {
    /// A session whose units run on the threads that look them up.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A session with choices.
    pub fn builder() -> ExecutionSessionBuilder {
        ExecutionSessionBuilder::default()
    }

    /// Runs `operation` on the state under the lock, and delivers its effects afterwards: tasks are enqueued, waiters wake, then code of
    /// the embedder runs.
    ///
    /// # Concurrency
    /// The lock is not recursive. Effects run after it is gone, in place only from the outermost frame.
    pub(crate) fn transact<R>(
        &self,
        operation: impl FnOnce(&mut SessionState<Live>, &mut Effects<Live>) -> R,
    ) -> R {
        let mut left = None;
        let (result, attendance) = self.locked(|Locked { state, effects }| {
            state.noted.act_for(None);
            let result = operation(state, effects);
            let attendance = state.finish_transaction(effects).map(|attendance| (attendance, self.coming(1)));
            // They are large: what leaves nothing moves nothing.
            if !effects.is_empty() {
                left = Some(self.take_effects(effects));
            }
            (result, attendance)
        });
        if let Some((attendance, attends)) = attendance {
            // Long consequences come in slices; between two of them the lock is free for others.
            self.attend(attendance, attends, left);
        } else if let Some(effects) = left {
            self.deliver_and_run(effects);
        }
        result
    }

    /// Runs `operation` under the lock. For [`Self::transact`] and for what leaves no effects, or delivers them itself (`deliver.rs`).
    fn locked<R>(&self, operation: impl FnOnce(&mut Locked) -> R) -> R {
        let mut locked = self.0.state.lock();
        let Some(meter) = &self.0.holds else { return operation(&mut locked) };
        meter.measure(|| operation(&mut locked))
    }

    /// Interns a symbol name in the session's pool.
    pub fn intern(&self, name: &str) -> SymbolName {
        self.0.pool.intern(name)
    }

    /// The pool of the session's symbol names.
    pub fn symbol_string_pool(&self) -> &SymbolStringPool {
        &self.0.pool
    }

    /// Runs a task of the embedder on the session's dispatcher.
    ///
    /// # Concurrency
    /// Closing the session waits for it. If the dispatcher takes no more tasks, the task is dropped.
    pub fn dispatch(&self, task: Task) {
        self.transact(|_, effects| effects.more().tasks.push(task));
    }

    /// The dispatcher that runs the session's tasks.
    pub fn dispatcher(&self) -> &Arc<dyn TaskDispatcher> {
        &self.0.dispatcher
    }

    /// The platform, which is told of dylibs and units.
    pub(crate) fn platform(&self) -> Option<&Arc<dyn Platform>> {
        self.0.platform.as_ref()
    }

    /// Tells the error reporter, which runs as code of the embedder.
    pub(crate) fn report(&self, error: SessionError) {
        if let Some(reporter) = &self.0.reporter {
            // A panic of the reporter itself cannot be reported.
            let _ = crate::panics::guard(|| reporter(&error));
        }
    }

    /// The same from a task that is counted and in none of its frames any more: the reporter may close the session,
    /// which must know of every counted task that it runs inside of.
    fn report_from_task(&self, error: SessionError) {
        let _ = frame::run(self, || self.report(error));
    }

    /// Blocks until the latch is open.
    ///
    /// First this thread does what only it can do: tasks that the dispatcher has refused lie in its own queue, and
    /// symbols that a caught panic has dropped wait for the end of a frame which may be the one that waits here.
    fn wait_for(&self, latch: &Latch) -> Result<(), WaitError> {
        if latch.is_open() {
            return Ok(());
        }
        frame::fail_dropped();
        crate::task::in_place::run_until(latch)?;
        self.0.dispatcher.wait(latch)
    }

    /// Tells tokens of this session from those of others, also of others that are gone.
    pub(crate) fn tag(&self) -> SessionTag {
        self.0.tag
    }

    pub(crate) fn define(
        &self,
        dylib: &JitDylib,
        tracker: Option<&ResourceTracker>,
        mut unit: Box<dyn MaterializationUnit>,
    ) -> Result<(), DefineError> {
        if tracker.is_some_and(|tracker| tracker.dylib() != dylib) {
            let unit = self.intern(unit.name());
            return Err(DefineError::ForeignTracker { unit, dylib: dylib.shared_name() });
        }
        let id_in = |state: &SessionState<Live>| tracker.map(|tracker| tracker.id_in(state));
        if let Some(symbols) = unit.known_addresses() {
            let addresses = Addresses { unit_name: self.unit_name(&*unit), symbols, by_task: self.in_task() };
            if let Some(platform) = self.platform() {
                self.announce_addresses(platform, dylib, tracker, &addresses)?;
            }
            return self.transact(|state, effects| {
                state.define_addresses(dylib.id(), id_in(state), addresses, effects)
            });
        }
        if let Some(platform) = self.platform() {
            return self.define_on_platform(platform, dylib, tracker, unit);
        }
        let (mut definition, unit) = self.describe(unit);
        definition.number = definition.initializer.is_some().then(unique);
        self.transact(|state, effects| state.define(dylib.id(), id_in(state), definition, unit, effects))
    }

    /// Asks a unit what it is, before any lock is taken.
    pub(crate) fn describe(&self, unit: Box<dyn MaterializationUnit>) -> (Definition, Unit) {
        let mut interface = unit.interface();
        if let Some(initializer) = interface.initializer.take() {
            interface = interface.with_initializer(initializer);
        }
        let definition = Definition {
            unit_name: self.unit_name(&*unit),
            symbols: interface.symbols,
            initializer: interface.initializer,
            priority: unit.priority(),
            serial_queue: unit.serial_queue(),
            hints: Hints::default().leaf(unit.is_leaf()),
            number: None,
            by_task: self.in_task(),
        };
        (definition, SyncWrapper::new(unit))
    }

    fn unit_name(&self, unit: &dyn MaterializationUnit) -> SymbolName {
        match unit.name() {
            // The one name that comes a million times.
            ABSOLUTE_SYMBOLS => self.0.absolute_symbols.clone(),
            name => self.intern(name),
        }
    }
}

impl Default for ExecutionSession {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for ExecutionSession {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ExecutionSession {}

impl fmt::Debug for ExecutionSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutionSession").field("dispatcher", &self.0.dispatcher).finish_non_exhaustive()
    }
}
