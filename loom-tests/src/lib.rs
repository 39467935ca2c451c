//! Models of every protocol that more than one thread runs; empty unless built with --cfg uruk_loom.
//!
//! | file in `tests/models`, or in `tests` | protocol |
//! |---|---|
//! | `lookup.rs` | two threads look up what one unit provides |
//! | `lodge.rs` | lookups come while their symbol gets its address and is emitted |
//! | `emit.rs` | units that depend on each other are emitted on two threads; one may fail |
//! | `deadlock.rs` | threads block on each other, or on what a third one finishes; the last edge comes from an emission, an alias, a turn |
//! | `fail.rs` | lookups come while their symbol fails |
//! | `remove.rs` | symbols are removed while their unit is at work, and while others come to depend on them |
//! | `transfer.rs` | a tracker's symbols and resources move while their unit is at work, and beside a removal |
//! | `generate.rs` | a lookup is suspended at a generator, finished on another thread, while others queue and the generator goes |
//! | `withdraw.rs` | a lookup is given up while its unit is about to start |
//! | `urgency.rs` | a unit becomes more urgent while its ticket is on its way to a worker |
//! | `deadline.rs` | a lookup's time is over while its answer is on the way |
//! | `future.rs` | a future is polled while its lookup is answered |
//! | `close.rs` | the session ends while lookups, generators, definitions, tasks and parked responsibilities do not know it |
//! | `serial_queue.rs` | tasks of one serial queue end, leave, arrive, overtake each other and are refused |
//! | `in_place.rs` | the dispatcher without threads is shut down while another thread dispatches |
//! | `transaction.rs` | a reader beside a transaction that changes two names at once |
//! | `publish.rs` | records are read without the lock while names are removed and defined again |
//! | `shadow.rs` | what is Ready is looked up while something appears in an earlier dylib |
//! | `ready.rs` | a symbol is looked up with and without the lock while it becomes Ready |
//! | `recorder.rs` | notes are read while their ring is overwritten; texts get numbers, threads rings |
//! | `code_instance.rs` | code pointers are published, read and replaced by better code; one thread compiles what several want |
//! | `invalidate.rs` | a definition changes while code that assumes it is compiled and called |
//! | `symbol_name.rs` | the last handle of a name goes while another thread interns its text |
//! | `sleep.rs` | threads of a pool sleep and are woken: the parking protocol alone |
//! | `pool.rs` | the work-stealing pool: parking, replacement, shutdown |
//! | `overload.rs` | producers wait for room while turns of serial queues block; tickets are counted out once |
//! | `section_groups.rs` | objects that are linked together come, are removed, refused and fail |
//! | `unwind_index.rs` | exceptions look addresses up while objects are registered and removed |
//! | `call_through.rs` | a stub is called for the first time while others begin to hold it and its body goes |
//! | `id_table.rs` | calls find the cells of stubs by ids while units come and go |
//! | `redirect.rs` | a stub is led elsewhere while it is called for the first time, and while bodies go |
//! | `promote.rs` | a stub gets a better body while others call it for the first time and lead it elsewhere |
//! | `image_validate.rs` | a unit of an image is used for the first time while code that it contains is redefined |
//! | `group.rs` | several functions are led elsewhere at one moment, while they are called, for the first time too |
//! | `guard.rs` | code is replaced and freed while threads run it under guards |
//! | `single_flight.rs` | threads that want one cache entry: one makes it, fails or gives up, and the others wait |
//! | `helpers.rs` | requests are handed to helper processes that end, of a pool that lets idle ones go |
//! | `remote.rs` | code is published to an executor, and requests to run it come; code there makes first calls |
//! | `write_behind.rs` | entries are pushed to a queue while it is flushed, and while its thread retires |
//!
//! Those from `section_groups.rs` on are the pipeline's. They include its files, which need nothing but core for that: no LLVM, and no linker, is built.
//!
//! A model never seen to fail proves nothing. So each names, in the table at its head, the steps without which it fails,
//! and `weakenings` leaves them out one at a time, in every run of the models.
//!
//! A model replays its orders, so what it drives must be deterministic: no clocks, no random seeds, no
//! maps in the order of addresses. Loom notices late, by an assertion of its own about locks or branches.
#![cfg(uruk_loom)]

pub mod queue;
pub mod stage;
pub mod weakenings;
pub mod witness;
