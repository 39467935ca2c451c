//! Random histories of operations on a state with integers for units and handlers, against a naive model.
//!
//! | file | what it holds |
//! |---|---|
//! | `world.rs` | the naive model: plain maps |
//! | `define.rs`, `search.rs`, `materialize.rs`, `remove.rs`, `dependants.rs`, `waits.rs` | its rules, each stated once, derived from what ORC documents and DESIGN adds |
//! | `follow.rs` | what follows: Ready, failed, answered, claimed, gone; computed from scratch after every operation |
//! | `operation.rs`, `blocking.rs` | what histories are made of |
//! | `driver.rs`, `drive_*.rs` | each operation, done to the state and to the model |
//! | `compare.rs` | answers, errors with their first cause, states of all symbols, everything that leaves |
//! | `end.rs` | the end, after which nothing is left |
//! | `seeds.rs` | which histories are tried, and how to try one again |
//!
//! `check.rs` runs after each operation too. All consequences are settled before the next operation begins; what comes
//! between two slices of it is `slices.rs`'s to try, and priorities are `priorities.rs`'s.

mod blocking;
mod compare;
mod define;
mod dependants;
mod drive_aliases;
mod drive_definitions;
mod drive_dependants;
mod drive_removal;
mod drive_responsibilities;
mod drive_waits;
mod driver;
mod end;
mod follow;
mod materialize;
mod operation;
mod remove;
mod search;
pub(in crate::protocol) mod seeds;
mod waits;
mod world;

use std::fmt;

use proptest::prelude::*;

use driver::Harness;
use end::{End, end};
use operation::{Operation, Theme, operation};

struct History {
    operations: Vec<Operation>,
    end: End,
}

/// One operation a line.
impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operations.iter().try_for_each(|operation| writeln!(f, "    {operation:?}"))?;
        write!(f, "    {:?}", self.end)
    }
}

fn histories() -> impl Strategy<Value = History> {
    let operations = |theme| prop::collection::vec(operation(theme), 1..80);
    let operations = prop_oneof![
        operations(Theme::Work),
        operations(Theme::Generators),
        operations(Theme::Aliases),
        operations(Theme::Dylibs),
        operations(Theme::Trackers),
        operations(Theme::Products),
        // Needs and dependants take a while to come about.
        prop::collection::vec(operation(Theme::Dependants), 60..240),
        operations(Theme::BlockedThreads),
        operations(Theme::WaitsForAliases),
        operations(Theme::WaitsForGenerators),
    ];
    (operations, end()).prop_map(|(operations, end)| History { operations, end })
}

#[test]
fn random_histories_agree_with_a_naive_model() {
    seeds::try_histories(300, &histories(), |History { operations, end }| {
        let mut harness = Harness::new();
        for operation in &operations {
            harness.run(operation);
        }
        harness.finish(end);
    });
}
