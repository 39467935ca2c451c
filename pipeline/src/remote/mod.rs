//! Another process as the place where linked code runs: code that crashes ends that process, and not this one.
//!
//! ```text
//!  host                                              executor
//!    RemoteExecutor::reach ── program ─────────────▶   serve_executor
//!      descriptors: shared memory, stdin ──────────▶   maps the memory at addresses of its own
//!      Hello ──────────────────────────────────────▶
//!      ◀───────────────────────── Ready: addresses
//!    links: writes through its own view
//!      Publish ─────── no answer is awaited ───────▶   unwind tables, thread-local variables
//!      Find names ─────────────────────────────────▶
//!      ◀──────────────────────────────────── Found
//!      Start, Call, Run ───────────────────────────▶   its first thread runs code, one request after another
//!      ◀──────────────────────────────── FirstCall     a thread there has called a stub that has no body yet
//!    compiles, links: Publish, Lead, FirstCalled ───▶   the stub leads to the body, and the thread goes on
//!      ◀───────────────────────────────────── Name     `dlsym` there looks for a name of the program
//!    links: Publish, Named ────────────────────────▶   constructors run, and the thread goes on
//!      ◀───────────────────────────────── Returned
//!      Retire ─────────────────────────────────────▶   runs what the code has registered for its end; forgets it
//!      ◀────────────────────────────────── Retired     memory may be used again
//!    end of the process: how it ended, and where
//! ```
//!
//! An executor may also listen for hosts (`listen.rs`), on this machine or on another. Where it has no memory in common with the host, `Publish` brings
//! the contents, which are copied to their places.
//!
//! The host owns the map of addresses and the numbers of thread-local modules, so that no object waits for a message. Frames are those of
//! [`peer`](crate::peer), bodies are by `postcard`.
//!
//! Holds:
//!
//! - Code is published before any of it is called: both are messages of one channel, which the executor takes in order (`serve.rs`). The model is
//!   `loom-tests/tests/remote.rs`.
//! - A first call is answered by a thread of its own (`calls.rs`), and goes on when the code that it asked for is published, and its stub leads
//!   there (`answers.rs`). Stubs lead on in the order of the locks of the host's functions: one thread there writes them.
//! - Memory is used again only when the executor has said that it has forgotten the code (`connection.rs`).
//! - Each request is answered once, or the executor has ended, and the error says how.
//! - An executor that sends what makes no sense is ended.
//! - An executor does not outlive its host, nor its connection.
//!
//! Missing: code below 2 GiB, images, first calls in a child that the program forks.

mod address;
mod answers;
mod asking;
mod attend;
mod below;
mod calls;
mod connection;
mod copies;
mod dial;
mod error;
mod exchange;
mod faults;
mod finds;
mod first_calls;
mod forward;
mod jobs;
mod last_thread;
mod listen;
mod messages;
mod names;
mod place;
mod program_names;
mod published;
mod reach;
mod replies;
mod running;
mod serve;
mod settings;
mod supervised;
mod symbols;
mod values;
mod variables;

pub use address::{ExecutorAddress, ExecutorAddressError};
pub use error::RemoteError;
pub use exchange::become_executor;
pub use listen::ExecutorListener;
pub use place::RemoteExecutor;
pub use program_names::FindsNames;
pub use serve::{serve_executor, serve_executor_watched};
pub use settings::RemoteProgram;
pub use symbols::RemoteSymbolsGenerator;
pub use values::{CallArguments, CallRegisters, CallResult, CallValue};
