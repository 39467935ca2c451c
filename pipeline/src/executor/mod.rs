//! The door to the place where code runs.
//!
//! ```text
//!   graph ─▶ plan ─▶ layout ─▶ fixups ─▶ filled memory and actions ─▶ Executor::publish ─▶ Published
//!            └─ reads entries, TLS placements, addresses ─┘             makes the code runnable
//! ```
//!
//! Linking is arithmetic on bytes. Its result is memory that has been filled, and [`Actions`]: the steps of the place before the code can
//! run, as data. [`Executor::publish`] performs all of it in one function, and dropping [`Published`] takes it back in the opposite
//! order. Before that a link only takes room: memory, and a place for thread-local variables.
//!
//! This process is one such place ([`InProcessExecutor`](crate::runtime::in_process::InProcessExecutor)). `pipeline/tests/link/other_process.rs`
//! has another: a child of `fork` that shares its code memory with the linker.
//!
//! **Never:** nothing here runs code, allocates pages or names a system call. These are types, and the trait between them.

mod array_function;
mod code;
mod initializers;
mod stubs;
mod tls;
mod unwind;

use std::error::Error;

use uruk_core::ExecutorAddr;
use uruk_core::sync::Arc;

pub use array_function::{ArrayFunction, Startup};
pub use code::{CodeExtent, CodeNumber, Home, WeakHome};
pub(crate) use initializers::FRAGMENT_PRIORITY;
pub use initializers::Initializers;
pub use stubs::{StubLead, StubTarget, StubsThere};
pub use tls::{HeldTls, NotStatic, TlsError, TlsImage, TlsPlacement, TlsReservation, TlsResolvers, TlsShape};
pub(crate) use unwind::BEFORE_CODE_BYTES;
pub use unwind::UnwindTable;

use crate::arch::Architecture;
use crate::debug::NamedCode;
use crate::memory::{InFlightAlloc, MemoryError, MemoryManager};

/// A place where linked code runs, as its linker sees it.
///
/// # Concurrency
/// Called from every worker at once.
///
/// ORC: `ExecutorProcessControl`, with the plugins of `ObjectLinkingLayer` that change the executing process.
#[doc(alias = "ExecutorProcessControl")]
pub trait Executor: Send + Sync {
    /// The architecture of its processors: the code that it runs is of this one.
    fn architecture(&self) -> Architecture;

    /// Memory of the place: its final addresses, and working views for the linker.
    fn memory(&self) -> &dyn MemoryManager;

    /// The functions there that linked code calls without naming them.
    fn entries(&self) -> RuntimeEntries;

    /// Takes room for an object's thread-local variables. Threads get their values from [`publish`](Self::publish) on.
    ///
    /// # Errors
    /// [`TlsError`] if there can be no more such objects.
    fn place_tls(&self, shape: TlsShape) -> Result<TlsReservation, TlsError>;

    /// The thread-local variable of a loaded library that the descriptor at an address stands for.
    fn tls_placement(&self, descriptor: ExecutorAddr) -> Option<TlsPlacement>;

    /// How far from the thread pointer a variable is, on every thread there is and will be.
    ///
    /// # Errors
    /// [`NotStatic`] if threads do not agree, or if that cannot be found out.
    fn tls_distance(&self, variable: TlsPlacement) -> Result<i64, NotStatic>;

    /// Whether the address is known to be that of a variable, although it may lie in memory that can be executed.
    fn is_variable(&self, address: ExecutorAddr) -> bool;

    /// Where a variable of a loaded library lies below 2 GiB, for code that holds its address in 32 bits. A variable that has not moved yet
    /// moves there if it `may_move`. `None` if it cannot.
    fn low_variable(&self, variable: ExecutorAddr, may_move: bool) -> Option<ExecutorAddr>;

    /// The stubs of linked code, if they are led on by messages. `None` where the linker reads and writes their slots itself, which is the default.
    fn stubs_there(&self) -> Option<Arc<dyn StubsThere>> {
        None
    }

    /// Gives the memory its protection and makes the code known to its place, as `actions` say. The code can run from then on.
    ///
    /// # Errors
    /// [`PublishError`]; all that had been done is taken back, and the memory is given back.
    fn publish(
        &self,
        memory: InFlightAlloc,
        tls: Option<TlsReservation>,
        actions: Actions,
    ) -> Result<Box<dyn Published>, PublishError>;
}

/// Code that can run. Dropping it takes back what its publication did, the last step first, and then its memory.
///
/// Dropping it runs the functions that the code has registered for its end, if it has a [number](Self::number).
pub trait Published: Send + Sync {
    /// The number by which the place knows the code's end. `None` if the code stays until its process ends.
    fn number(&self) -> Option<CodeNumber>;

    /// The address of segment number `segment`, in the order in which memory was asked for.
    fn address(&self, segment: usize) -> ExecutorAddr;
}

/// Addresses of functions that linked code calls without naming them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuntimeEntries {
    /// The functions behind TLS descriptors.
    pub tls_resolvers: TlsResolvers,
    /// The target of the first call of an indirect function; `link/ifunc.rs` says what it must do.
    pub ifunc_thunk: ExecutorAddr,
    /// The function that the thunk calls for a stub that has not been called yet; see `runtime/call_through.rs`.
    pub first_call: ExecutorAddr,
    /// The same, for a stub whose calls are counted.
    pub counted_call: ExecutorAddr,
}

/// The steps of the place before linked code can run. It takes them in the order of the fields.
#[derive(Debug, Default)]
pub struct Actions {
    /// The address is one of a function that lies elsewhere. A program that asks for the owner of the address gets the program.
    pub low_entry: Option<ExecutorAddr>,
    /// Threads get copies of this image as their thread-local variables. The reservation says which variables these are.
    pub tls: Option<TlsImage>,
    /// Exceptions find their way through the code.
    pub unwind: Option<UnwindTable>,
    /// The code consists of stubs of ours. A program that asks which function it is in gets the stub's address.
    pub is_stubs: bool,
    /// The names of the code, for debuggers, profilers and reports of the place.
    pub names: Option<NamedCode>,
    /// Functions that the code registers for its end run before it goes.
    pub end: Option<CodeExtent>,
}

/// Why code could not be made known to the place where it was to run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// Its memory could not be protected.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The place refused an action.
    #[error(transparent)]
    Action(Box<dyn Error + Send + Sync>),
}
