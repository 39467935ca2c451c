//! Needs: what each node of the wait-for graph cannot go on without.

use std::ops::ControlFlow;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::RequiredState;
use crate::protocol::state::{Claim, Generator, Payload, Phase, RowState, SessionState};
use crate::protocol::storage::{ClaimId, GeneratorId, QueryId, RowId, WaitId};
use crate::task::serial_queue::SerialQueueId;

use super::threads::{Blocked, Held};

/// Something that a blocked thread may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WaitNode {
    /// A blocked thread goes on.
    Wait(WaitId),
    /// A lookup ends.
    Lookup(QueryId),
    /// A row comes so far.
    Row(RowId, RequiredState),
    /// The emitted rows of a component of the forest, which can only become Ready together.
    Together(u32),
    /// A generator finishes the request for a lookup.
    Request(GeneratorId, QueryId),
    /// The task that runs in a strand leaves it.
    Strand(SerialQueueId),
}

/// Is given what a node needs, one after another; none for what was looked at and is not needed. Says whether to go on.
pub(super) type Each<'a> = &'a mut dyn FnMut(Option<WaitNode>) -> ControlFlow<()>;

impl<P: Payload> SessionState<P> {
    /// The certain needs of `node`: each edge of the graph, and each here alone. It goes no further than `each` does.
    pub(super) fn needs(&self, node: WaitNode, each: Each<'_>) -> ControlFlow<()> {
        let holder = |what| self.waits.holder(what).map(WaitNode::Wait);
        match node {
            WaitNode::Wait(wait) => {
                let Some(&Blocked { query, above, .. }) = self.waits.waits.get(wait) else {
                    return ControlFlow::Continue(());
                };
                all([above.map(WaitNode::Wait), Some(WaitNode::Lookup(query))], each)
            }
            WaitNode::Lookup(query) => self.lookup_needs(query, each),
            WaitNode::Row(row, required) => self.row_needs(row, required, each),
            WaitNode::Together(component) => {
                let mut rows = self.forest.dependencies_of_component(component);
                rows.try_for_each(|row| each(Some(WaitNode::Row(row, RequiredState::Ready))))
            }
            WaitNode::Request(_, query) => all([holder(Held::Request(query))], each),
            WaitNode::Strand(queue) => all([holder(Held::Strand(queue))], each),
        }
    }

    fn lookup_needs(&self, id: QueryId, each: Each<'_>) -> ControlFlow<()> {
        match self.lookups.live(id).map(|query| &query.phase) {
            Some(Phase::Lodged(lodged)) if !lodged.ended => lodged.entries.iter().try_for_each(|entry| {
                each(entry.waits().then_some(WaitNode::Row(entry.row, lodged.required_state)))
            }),
            Some(Phase::Suspended(suspended)) => {
                let Some(generator) = suspended.waits_at() else { return ControlFlow::Continue(()) };
                // A generator that was removed is busy with the lookup it serves and with no other. A lookup that is served apart does
                // not wait for lookups served there meanwhile.
                let busy = self.lookups.generator(generator).filter(|_| !suspended.is_apart());
                let served = busy.map_or(Some(id), Generator::occupant);
                let question = suspended.question();
                all(
                    [
                        served.map(|served| WaitNode::Request(generator, served)),
                        question.map(WaitNode::Lookup),
                    ],
                    each,
                )
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn row_needs(&self, id: RowId, required: RequiredState, each: Each<'_>) -> ControlFlow<()> {
        let Some(row) = self
            .definitions
            .row(id)
            .filter(|row| row.is_behind(required) && !self.definitions.row_is_removing(row))
        else {
            return ControlFlow::Continue(());
        };
        if matches!(row.state, RowState::Emitted { .. }) {
            all([self.component_of(id).map(WaitNode::Together)], each)?;
        }
        let Some(claim) = row.claim() else { return ControlFlow::Continue(()) };
        let needed = [
            self.waits.holder(Held::Claim(claim)).map(WaitNode::Wait),
            self.definitions.get_claim(claim).and_then(Claim::queued_in).map(WaitNode::Strand),
            self.lookups.source_of(id).map(|source| WaitNode::Row(source, required)),
            self.lookups.sought_by(id).map(WaitNode::Lookup),
        ];
        all(needed, each)
    }

    /// The claims of all units that the lookup needs, directly or not: for a thread that must run them itself. Lookups on behalf of a
    /// unit count as needed by it: a detached responsibility mostly goes on with the answer.
    ///
    /// # Cost
    /// One step for each lookup of the session, and for each symbol and edge that is needed.
    pub(crate) fn claims_needed_by(&mut self, query: QueryId) -> FxHashSet<ClaimId> {
        let mut asked: FxHashMap<ClaimId, Vec<QueryId>> = FxHashMap::default();
        for (id, query) in self.lookups.queries() {
            if let Some(claim) = query.asked_by {
                asked.entry(claim).or_default().push(id);
            }
        }
        let (mut claims, mut seen) = (FxHashSet::default(), FxHashSet::default());
        let mut ahead = vec![WaitNode::Lookup(query)];
        while let Some(node) = ahead.pop() {
            if !seen.insert(node) {
                continue;
            }
            let _all = self.needs(node, &mut |needed| {
                ahead.extend(needed.filter(|&needed| !node.lies_beneath(needed)));
                ControlFlow::Continue(())
            });
            let WaitNode::Row(row, required) = node else { continue };
            let row = self.definitions.row(row).filter(|row| row.is_behind(required));
            if let Some(claim) = row.and_then(|row| row.claim())
                && claims.insert(claim)
            {
                ahead.extend(asked.remove(&claim).into_iter().flatten().map(WaitNode::Lookup));
            }
        }
        self.agenda.count_steps(self.lookups.len() + seen.len());
        claims
    }
}

impl WaitNode {
    /// Whether it needs the other by the stack of their thread.
    pub(super) fn lies_beneath(self, needed: Self) -> bool {
        matches!((self, needed), (Self::Wait(_), Self::Wait(_)))
    }
}

/// Gives those that are there.
fn all<const N: usize>(needed: [Option<WaitNode>; N], each: Each<'_>) -> ControlFlow<()> {
    needed.into_iter().flatten().try_for_each(|node| each(Some(node)))
}
