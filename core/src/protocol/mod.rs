//! The symbol protocol as a pure state machine: `&mut SessionState` in, [`Effects`](state::effects::Effects) out.
//!
//! | operation | file | what it does |
//! |---|---|---|
//! | define, replace | `symbols/define.rs` | rows appear, `NeverSearched`; weak ones yield |
//! | define addresses | `symbols/absolute.rs` | the same without a unit; a search makes them Ready at once |
//! | lookup | `lookups/lookup.rs` | names are matched, units claimed, the query lodged |
//! | generate | `lookups/generate.rs` | what is missing is asked of generators; lookups suspend and resume |
//! | complete, withdraw | `state/lookups/end.rs` | a query is answered, fails, or is given up |
//! | claim, begin, delegate | `symbols/claim.rs` | a unit leaves its rows, and may come back before it starts |
//! | resolve | `symbols/resolve.rs` | addresses are recorded |
//! | emit | `symbols/emit.rs` | rows become Ready, or wait in the forest |
//! | fail | `symbols/fail.rs` | rows fail, and everything that waits on them |
//! | remove | `symbols/remove.rs`, `removal/remove.rs` | rows disappear, at one moment for everybody |
//! | depend | `dependants/`, `removal/policy.rs` | who needs what is Ready is kept, and asked by a removal |
//! | settle | `slices/settle.rs` | long consequences are worked off in slices |
//! | begin_wait, look, end_wait | `deadlock/` | threads block; a cycle that never ends is an error |
//! | rise | `urgency/` | priority follows demand upwards |
//! | why, expire | `lookups/why.rs` | nothing changes, or a query ends with an explanation |
//! | transfer | `removal/remove.rs` | what a tracker has goes to another |
//! | commit | `removal/transaction.rs` | several of the above happen together or not at all |
//!
//! No locks, no callbacks, no threads, no I/O: values of the embedder are moved, never called, never
//! dropped.
//!
//! Three things leave an operation beside its `Effects`. Each is a store to an atomic that others read without the session lock:
//!
//! | what | written by | read by |
//! |---|---|---|
//! | `ReadyIndexWriter` | `state/definitions/`: which symbols are Ready | lookups of Ready symbols (`ready_index.rs`) |
//! | `DemandLost` | `state/demand.rs`: how often demand may have been lost | a unit that is about to start |
//! | `Ticketed::raise` | `urgency/rise.rs`: how urgent a queued unit is | a ticket that is about to run (`task/ticket.rs`) |
//!
//! They cannot wait for the `Effects`, which are delivered after the lock is free. A reader must not find what a transaction has
//! removed before.
//!
//! **Architecture Invariant:** after each operation the state satisfies `check/`.
//!
#![doc = include_str!("README.md")]

#[cfg(any(test, debug_assertions))]
mod check;
pub(crate) mod deadlock;
mod dependants;
mod dependences;
pub(crate) mod lookups;
pub(crate) mod removal;
pub(crate) mod slices;
pub(crate) mod state;
pub(crate) mod storage;
pub(crate) mod symbols;
#[cfg(all(test, not(uruk_loom)))]
mod tests;
pub(crate) mod urgency;
