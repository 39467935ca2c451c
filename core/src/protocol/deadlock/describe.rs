//! Describe: a cycle of the wait-for graph in the embedder's words.

use crate::DeadlockStep;
use crate::protocol::state::{Payload, SessionState};
use crate::protocol::storage::{GeneratorId, RowId};
use crate::sync::Arc;

use super::needs::WaitNode;

impl<P: Payload> SessionState<P> {
    /// One step for each symbol and generator of the cycle, each with how it waits for the next.
    pub(super) fn describe_deadlock(&self, cycle: &[WaitNode]) -> Arc<[DeadlockStep]> {
        let names_something = |node: &WaitNode| matches!(node, WaitNode::Row(..) | WaitNode::Request(..));
        let Some(first) = cycle.iter().position(names_something) else { return Arc::from([]) };
        let around = || cycle[first..].iter().chain(&cycle[..first]);
        let mut path = Vec::new();
        let mut rest = around().peekable();
        while let Some(&node) = rest.next() {
            let mut waits = 0;
            let (mut together, mut queued) = (false, false);
            while let Some(between) = rest.next_if(|node| !names_something(node)) {
                waits += usize::from(matches!(between, WaitNode::Wait(_)));
                together |= matches!(between, WaitNode::Together(_));
                queued |= matches!(between, WaitNode::Strand(_));
            }
            path.extend(match node {
                WaitNode::Row(row, _) => self.symbol_step(row, waits, together, queued),
                WaitNode::Request(generator, _) => Some(self.generator_step(generator)),
                WaitNode::Together(_) | WaitNode::Lookup(_) | WaitNode::Strand(_) | WaitNode::Wait(_) => None,
            });
        }
        path.into()
    }

    fn symbol_step(&self, row: RowId, waits: usize, together: bool, queued: bool) -> Option<DeadlockStep> {
        let row = self.definitions.row(row)?;
        let (symbol, unit, dylib) =
            (row.name.clone(), row.unit_name.clone(), self.definitions.dylib_name_of(row));
        Some(match waits {
            _ if queued => DeadlockStep::Queued { symbol, dylib, unit },
            0 if together => DeadlockStep::DependsOn { symbol, dylib, unit },
            0 => DeadlockStep::AliasOf { symbol, dylib, unit },
            1 => DeadlockStep::LooksUp { symbol, dylib, unit },
            _ => DeadlockStep::Beneath { symbol, dylib, unit },
        })
    }

    fn generator_step(&self, generator: GeneratorId) -> DeadlockStep {
        let (dylib, generator) = match self.lookups.generator(generator) {
            Some(generator) => (self.definitions[generator.dylib].name.clone(), generator.name.clone()),
            None => ("(removed)".into(), "(removed)".into()),
        };
        DeadlockStep::Generator { dylib, generator }
    }
}
