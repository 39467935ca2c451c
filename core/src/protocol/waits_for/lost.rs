//! Lost: what a thread has no longer, though it is still blocked in the lookup that told of it.

use std::collections::hash_map::Entry;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::protocol::ids::WaitId;
use crate::protocol::{Payload, SessionState};
use crate::session::holding::Held;

use super::Blocked;

impl<P: Payload> SessionState<P> {
    /// The thread has passed on, beneath the lookup in which it is blocked, what only it could finish. Nothing if this wait has not told
    /// of it.
    pub(crate) fn lose(&mut self, wait: WaitId, what: Held) {
        let graph = &mut self.waits_for;
        let Some(Blocked { holdings, .. }) = graph.waits.get_mut(wait) else { return };
        match what {
            Held::Claim(claim) => {
                forget(&mut graph.claims, &claim, wait);
                holdings.claims.retain(|&held| held != claim);
            }
            Held::Request(query) => {
                forget(&mut graph.requests, &query, wait);
                holdings.requests.retain(|&held| held != query);
            }
            Held::Section(queue) => {
                forget(&mut graph.sections, &queue, wait);
                holdings.sections.retain(|&held| held != queue);
            }
        }
    }

    /// Whether each turn that a blocked thread has told of is known to be its own, and no other is known.
    #[cfg(any(test, debug_assertions))]
    pub(in crate::protocol) fn turns_agree(&self) -> bool {
        let graph = &self.waits_for;
        let told = || graph.waits.iter().map(|(wait, blocked)| (wait, &blocked.holdings.sections));
        let count: usize = told().map(|(_, sections)| sections.len()).sum();
        let mut known = told().flat_map(|(wait, queues)| queues.iter().map(move |queue| (wait, queue)));
        count == graph.sections.len() && known.all(|(wait, queue)| graph.sections.get(queue) == Some(&wait))
    }
}

/// Forgets who is blocked with it, if it is this one: another may have it by now.
pub(super) fn forget<K: Copy + Eq + Hash>(held: &mut FxHashMap<K, WaitId>, what: &K, wait: WaitId) {
    if let Entry::Occupied(who) = held.entry(*what)
        && *who.get() == wait
    {
        who.remove();
    }
}
