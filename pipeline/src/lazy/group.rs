//! Stubs that are led elsewhere together: they jump through one table, and one store gives all of them another.
//!
//! ```text
//!   stub f: load root, load f of it, jump        root ─┬─▶ (before) table 1: f g h
//!   stub g: load root, load g of it, jump              └─▶ (after)  table 2: f' g' h
//! ```
//!
//! First calls and redirections of one function write the present table. A switch of several functions copies the table, writes the copy,
//! and publishes it, all under the group's lock. A first call takes the lock too, whenever it looks where its stub leads. Without the lock
//! it could find a new body in the middle of a switch, while other stubs still lead to old ones.
//!
//! A thread may have loaded the root and not jumped yet, for an unknown time. So tables stay until the stubs go.
//!
//! The model is `loom-tests/tests/group.rs`, which compiles this file.
//!
//! **Holds.** A thread that has reached the new body of one function reaches no older body of another that was led elsewhere with it.

use uruk_core::sync::atomic::AtomicU64;
use uruk_core::sync::{Arc, Mutex, weakened};

/// Where a group's stubs lead, by their numbers.
pub(super) type GroupTable = Arc<[AtomicU64]>;

/// The word that all stubs of a group load. Its user holds one of them.
pub(super) trait Root {
    /// The entries of the present table.
    fn read(&self) -> Vec<u64>;
    /// Gives the stubs another one, which stays as long as they do.
    fn publish(&self, table: &GroupTable);
}

/// The tables that were published, under the lock of the group.
#[derive(Default)]
pub(super) struct StubGroup(Mutex<Vec<GroupTable>>);

impl StubGroup {
    /// Runs `look` while no switch is under way.
    pub(super) fn while_settled<T>(&self, look: impl FnOnce() -> T) -> T {
        let _tables = (!weakened("group::looks_while_it_switches")).then(|| self.0.lock());
        look()
    }

    /// Has `lead` write a copy of the table. Stubs jump through the copy when this returns.
    pub(super) fn switch<T>(&self, root: &impl Root, lead: impl FnOnce(&GroupTable) -> T) -> T {
        let mut tables = self.0.lock();
        let next: GroupTable = root.read().into_iter().map(AtomicU64::new).collect();
        if weakened("group::publishes_before_it_writes") {
            root.publish(&next);
        }
        let led = lead(&next);
        root.publish(&next);
        tables.push(next);
        led
    }
}
