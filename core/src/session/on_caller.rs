//! Lookups that run on their caller what they claim ([`LookupRequest::here`](crate::LookupRequest::here)).
//!
//! ```text
//!  transact: match ─ claim ─ keep what was claimed    the claimed units are this thread's
//!  queue them on this thread                          (`task/in_place.rs`)
//!  wait: run the queue ─ sleep until others are done  as in place
//! ```
//!
//! From the queue on everything is as in place: a unit that blocks in a lookup runs what is queued behind it, and the queue is apart for
//! a lookup that lies above other code. So two units of one lookup may need each other's addresses.

use crate::protocol::state::Effects;
use crate::sync::weakened;

use super::queued_unit::QueuedUnits;
use super::{ExecutionSession, Live};

impl ExecutionSession {
    /// Takes the units that a lookup has just claimed for this thread, but for those that wait in serial queues for their turns. To be
    /// called under the lock.
    pub(super) fn keep_for_this_thread(&self, effects: &mut Effects<Live>) -> Option<QueuedUnits> {
        let (waits, kept): (Vec<_>, Vec<_>) =
            effects.claimed.drain(..).partition(|unit| unit.pending.serial_queue().is_some());
        effects.claimed.extend(waits);
        if kept.is_empty() {
            return None;
        }
        // Counted under the lock, or a close that begins now does not wait for them.
        let count = if weakened("on_caller::counts_when_it_queues") { 0 } else { kept.len() };
        Some(QueuedUnits::new(kept, self.coming(count).later(count)))
    }
}
