//! The symbol protocol of Uruk: sessions, dylibs, queries, materializers and the waiting forest.

pub mod sync;

mod address;
mod dylib;
mod error;
mod event;
mod failure;
mod generator;
mod in_place;
mod panics;
mod protocol;
mod query;
mod record;
mod resource;
mod responsibility;
mod session;
mod symbol;
mod task;
mod unit;
mod units;

pub use address::{ExecutorAddr, ExecutorSymbolDef};
pub use dylib::{JitDylib, SearchOrder};
pub use error::{
    CloseError, DefineError, DelegateError, DylibError, EmitError, LookupError, RemoveError, ResolveError,
    SessionError, TrackerError,
};
pub use event::{EventKind, SessionEvent};
pub use failure::{Failure, FailureCause, SharedError, shared_error};
pub use generator::{DefinitionGenerator, GenerateRequest, GeneratorId};
pub use in_place::InPlaceTaskDispatcher;
pub use query::{LookupRequest, LookupResult, SymbolFuture};
pub use resource::{Resource, ResourceTracker};
pub use responsibility::{
    DependenceGroup, Dependency, Detached, MaterializationResponsibility, Refused, ResolvedResponsibility,
};
pub use session::{ExecutionSession, ExecutionSessionBuilder};
pub use symbol::flags::SymbolFlags;
pub use symbol::name::{SymbolName, SymbolStringPool};
pub use symbol::set::{
    JitDylibLookupFlags, LookupKind, LookupSet, RequiredState, SymbolFlagsMap, SymbolLookupFlags, SymbolMap,
};
pub use task::{Task, TaskDispatcher, TaskPriority, WaitError};
pub use unit::{MaterializationInterface, MaterializationUnit};
pub use units::absolute::absolute_symbols;
pub use units::reexports::{AliasMap, AliasTarget, reexports, symbol_aliases};
