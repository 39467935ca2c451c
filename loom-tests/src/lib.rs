//! Models of every protocol that more than one thread runs; empty unless built with --cfg uruk_loom.
//!
//! | file in `tests/` | protocol |
//! |---|---|
//! | `lookup.rs` | two threads look up what one unit provides, while it is materialized, fails or is removed |
//! | `emit.rs` | units that depend on each other are emitted on two threads; one may fail |
//! | `symbol_name.rs` | the last handle of a name goes while another thread interns its text |
//! | `pool.rs` | the work-stealing pool: parking, replacement, shutdown |
//!
//! Each names the steps without which it fails; `make weaken` leaves them out one at a time.
//!
//! A model replays its orders, so what it drives must be deterministic: no clocks, no random seeds, no
//! maps in the order of addresses. Loom notices late, by an assertion of its own about locks or branches.
