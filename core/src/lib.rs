#![doc = include_str!("../README.md")]
//!
//! | to see | read |
//! |---|---|
//! | where the lock is taken and what happens after it | `session.rs`, `session/deliver.rs` |
//! | the state machine, one file per verb | `protocol/` |
//! | who waits for whom | `protocol/dependences/` |
//! | lookups of Ready symbols without the lock | `ready_index.rs`, `session/search_order.rs` |
//! | the responsibility that a unit must fulfil | `session/unit.rs`, `session/responsibility.rs` |
//! | how a lookup is answered: blocking, handler, future | `session/ready.rs`, `session/lodge.rs`, `session/query.rs`, `lookup_result.rs` |
//! | symbols and resources that are removed together | `session/resource.rs` |
//! | changes that are made together | `transaction.rs` |
//! | limits of a panic of the embedder or of a subscriber | `panics.rs`, `in_span.rs` |
//! | where tasks run, which not at the same time, their hints | `task.rs` and its folder, `hints.rs` |
//! | a thread's records of its own stack | `task/this_thread.rs`, `session/here.rs` |
//!
//! # Invariants
//!
//! | | enforced by |
//! |---|---|
//! | a definition is started at most once | claiming moves the unit out of the state |
//! | a query ends exactly once | ending it takes it out of its slab; `protocol/check/mod.rs`; `protocol/tests/model/` |
//! | no code of the embedder runs under the session lock | its values leave the state as `Effects` |
//! | Ready means: everything it transitively needs is emitted | the waiting forest; `protocol/tests/model/` |
//! | no way out of a unit leaves a query waiting | dropping a responsibility fails its symbols |
//! | the ready path answers as the locked path would | the gate in `ready_index.rs` |

pub mod sync;

mod causes;
mod deadlock;
mod error;
mod event;
mod failure;
mod hints;
mod ids;
mod in_span;
mod link_order;
mod lookup_result;
mod owned_tracker;
mod panics;
mod priority;
mod protocol;
mod ready_index;
mod removal_policy;
mod session;
mod symbol;
mod task;
mod transaction;
mod units;
mod why;

pub use causes::{SharedError, WithCauses, shared_error};
pub use deadlock::DeadlockStep;
pub use error::{
    CloseError, CompleteError, DefineError, DelegateError, DylibError, EmitError, HeldResource, LimitReached,
    LookupError, RemoveError, ResolveError, RetryError, SearchedDylib, SessionError, TrackerError, WaitError,
};
pub use event::{EventKind, SessionEvent};
pub use failure::{Failure, FailureCause, Remedy};
pub use in_span::{Inside, PhaseSpan, in_span, inside};
pub use lookup_result::LookupResult;
pub use owned_tracker::{OwnedTracker, RefusedRemoval};
pub use priority::TaskPriority;
pub use protocol::state::dependency::{DependenceGroup, Dependency};
pub use protocol::state::stage::Shutdown;
pub use removal_policy::RemovalPolicy;
pub use session::dylib::JitDylib;
pub use session::generator::{DefinitionGenerator, DetachedRequest, GenerateRequest, GeneratorId};
pub use session::platform::{AddedUnit, Platform, UnitNumber};
pub use session::resource::{RemovalNumber, Resource, ResourceTracker, WeakResourceTracker};
pub use session::resource_memory::{HeldMemory, ResourceMemory};
pub use session::responsibility::{Detached, MaterializationResponsibility, Refused, ResolvedResponsibility};
pub use session::search_order::SearchOrder;
pub use session::unit::{MaterializationInterface, MaterializationUnit};
pub use session::weak_dylib::WeakJitDylib;
pub use session::{
    Deadline, DefinitionWatch, ExecutionSession, ExecutionSessionBuilder, LockHolds, LookupRequest,
    SessionMetrics, SymbolFuture, thread_is_engaged,
};
pub use symbol::address::{ExecutorAddr, ExecutorSymbolDef};
pub use symbol::flags::SymbolFlags;
#[cfg(uruk_loom)]
pub use symbol::follow_counts;
pub use symbol::map::{IntoIter as NameMapIntoIter, Iter as NameMapIter, NameMap};
pub use symbol::name::{SymbolName, SymbolStringPool};
pub use symbol::readable::{Readable, body_name, nearest_symbol};
pub use symbol::set::{
    IntoSymbols, JitDylibLookupFlags, LookupKind, LookupSet, RequiredState, SymbolFlagsMap,
    SymbolLookupFlags, SymbolMap,
};
pub use task::in_place::InPlaceTaskDispatcher;
pub use task::serial_queue::SerialQueue;
pub use task::this_thread::refuse_wait_in_leaf;
pub use task::{Task, TaskDispatcher, TaskLabel, Waiting};
pub use transaction::{RefusedTransaction, Transaction, TransactionError};
pub use units::absolute::absolute_symbols;
pub use units::function::{FnRequest, FnUnit};
pub use units::reexports::{AliasMap, AliasTarget, reexports, symbol_aliases};
pub use units::reexports_generator::ReexportsGenerator;
pub use why::{
    Demand, SymbolStage, WaitedFor, WaitedSymbol, WaitingLookup, Why, WhyGenerator, WhyState, Work,
};
