//! Random schedules of scenarios that are too large for a model; empty unless built with --cfg uruk_shuttle.
//!
//! | file in `tests/` | scenario |
//! |---|---|
//! | `ready.rs` | lookups beside definitions, removals, redefinitions, link orders, generators and dylibs that come and go: each answer is one that the locked path gave within the call |
//! | `gate.rs` | sets of names looked up while each is redefined, shadowed and unshadowed: all of an answer is of one moment |
//! | `storm.rs` | three units that depend on each other, a generator, removal and failure together: each lookup ends once, with nothing that was never emitted |
//! | `redefine.rs` | functions called under guards, redefined, promoted and removed: who calls reaches what is defined, and nothing that is freed |
//! | `pool.rs` | units that block on each other, in random graphs without cycles, on a pool of few workers |
//! | `blocking.rs` | units that wait in every way, with random priorities, on pools of any size and any limits: the same answers, always |
//! | `on_caller.rs` | units and threads that run on themselves what they look up, beside a close: what was accepted is answered, and nothing runs after it |
//! | `priorities.rs` | units in random graphs, asked for at every priority, by lookups some of which are given up: the most urgent starts first |
//!
//! `make shuttle` runs them. A run is as long as `URUK_SHUTTLE_SECONDS` says, for each test; without it each test runs a fixed
//! number of schedules. Scenario and schedule follow from one seed. A failing run prints the seed of the failing schedule:
//!
//! ```text
//! SHUTTLE_RANDOM_SEED=<seed> URUK_SHUTTLE_ITERATIONS=1 make shuttle TEST=ready
//! ```
//!
//! replays exactly that one. (`gate.rs` and `priorities.rs` print the seed of the whole run instead, which `URUK_SHUTTLE_SEED` sets.) It also prints the schedule itself, for shuttle's own tools.
