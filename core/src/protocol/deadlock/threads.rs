//! The blocked threads that hold something, and what each holds.

use std::collections::hash_map::Entry;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::protocol::storage::{ClaimId, QueryId, Slab, WaitId};
use crate::task::serial_queue::SerialQueueId;

/// The blocked threads that hold something.
#[derive(Debug)]
pub(crate) struct BlockedThreads {
    pub(super) waits: Slab<WaitId, Blocked>,
    pub(super) of_query: FxHashMap<QueryId, WaitId>,
    /// Which of them holds what.
    pub(super) holders: FxHashMap<Held, WaitId>,
}

/// A thing that only one thread can finish, as long as it has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Held {
    /// The responsibility for a claim.
    Claim(ClaimId),
    /// A generator's request on behalf of a lookup.
    Request(QueryId),
    /// The place of the task that runs in a strand.
    Strand(SerialQueueId),
}

/// A thread's statement about itself before it blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holdings {
    /// The lookup in which the thread is blocked already, beneath this one on its stack.
    pub(crate) below: Option<WaitId>,
    pub(crate) held: Vec<Held>,
    /// The lookup has a deadline.
    pub(crate) ends_by_itself: bool,
}

/// A lookup in which a thread is blocked.
#[derive(Debug)]
pub(super) struct Blocked {
    pub(super) query: QueryId,
    pub(super) holdings: Holdings,
    /// The lookup in which the same thread is blocked above this one.
    pub(super) above: Option<WaitId>,
    /// How many steps its next look may take.
    pub(super) budget: usize,
    /// How long it sleeps after that.
    pub(super) pause: Duration,
}

impl BlockedThreads {
    pub(crate) fn new() -> Self {
        Self { waits: Slab::new(), of_query: FxHashMap::default(), holders: FxHashMap::default() }
    }

    /// The lookup in which the holder of the claim is blocked.
    pub(crate) fn blocked_with(&self, claim: ClaimId) -> Option<QueryId> {
        self.holder(Held::Claim(claim)).map(|wait| self.waits[wait].query)
    }

    /// The claims that the thread blocked in `query` holds.
    pub(crate) fn held_in(&self, query: QueryId) -> impl Iterator<Item = ClaimId> {
        let wait = self.of_query.get(&query).and_then(|&wait| self.waits.get(wait));
        let held = wait.into_iter().flat_map(|wait| &wait.holdings.held);
        held.filter_map(|held| if let Held::Claim(claim) = *held { Some(claim) } else { None })
    }

    pub(super) fn holder(&self, what: Held) -> Option<WaitId> {
        self.holders.get(&what).copied()
    }

    /// The thing is no longer held by this thread, if it was. Another may have it by now.
    pub(super) fn forget(&mut self, what: Held, wait: WaitId) {
        if let Entry::Occupied(holder) = self.holders.entry(what)
            && *holder.get() == wait
        {
            holder.remove();
        }
    }

    /// I8: what a blocked thread has told of is known as its own, and nothing else is; no stack has two innermost waits.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check(&self) {
        let held = self
            .waits
            .iter()
            .flat_map(|(wait, blocked)| blocked.holdings.held.iter().map(move |&held| (held, wait)));
        let held: FxHashMap<Held, WaitId> = held.collect();
        assert!(held == self.holders, "what blocked threads hold is not what they have told of");
        assert_eq!(self.of_query.len(), self.waits.len(), "lookups of blocked threads");
        for (wait, Blocked { query, holdings, above, .. }) in self.waits.iter() {
            assert_eq!(self.of_query.get(query), Some(&wait), "{wait:?} is known by its lookup");
            let is_above =
                |above: WaitId| self.waits.get(above).is_some_and(|above| above.holdings.below == Some(wait));
            assert!(above.is_none_or(is_above), "{above:?} lies above {wait:?}");
            let is_below =
                |below: WaitId| self.waits.get(below).is_none_or(|below| below.above == Some(wait));
            assert!(holdings.below.is_none_or(is_below), "{wait:?} lies above {:?}", holdings.below);
        }
    }
}

impl Holdings {
    /// Whether no wait can lead to this thread.
    pub(crate) fn is_empty(&self) -> bool {
        self.below.is_none() && self.held.is_empty()
    }
}

#[cfg(all(test, not(uruk_loom)))]
mod parts {
    //! For tests alone.
    use super::*;

    impl BlockedThreads {
        /// How many threads are blocked, and how much they hold.
        pub(crate) fn len(&self) -> (usize, usize) {
            (self.waits.len(), self.holders.len())
        }

        /// Forgets who holds what.
        pub(crate) fn break_holders(&mut self) {
            self.holders.clear();
        }
    }
}
