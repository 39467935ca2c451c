//! The parts of operations of blocked threads.

use proptest::prelude::*;

use super::operation::{Operation, QUEUES};

/// A thread blocks in a lookup, and holds things that no blocked thread holds.
#[derive(Clone, Debug)]
pub(super) struct Blocking {
    /// On the stack of a thread that is blocked already.
    pub(super) above: Option<usize>,
    pub(super) duties: Vec<usize>,
    pub(super) requests: Vec<usize>,
    /// The turns of these serial queues.
    pub(super) turns: u8,
    pub(super) deadline: bool,
    /// The lookup is made for one of the requests.
    pub(super) for_its_request: bool,
    /// Definitions: of those on their way, or any.
    pub(super) wanted: Vec<(usize, bool)>,
    /// A dylib that generates is searched first.
    pub(super) past: Option<usize>,
    pub(super) ready: bool,
    pub(super) flags_only: bool,
    pub(super) by_task: bool,
}

/// Threads block, look for cycles, lose what they hold meanwhile, and go on.
pub(super) fn blocking() -> impl Strategy<Value = Operation> {
    let few = || prop::collection::vec(0usize..8, 0..3);
    let turns = prop_oneof![3 => Just(0u8), 1 => 1u8..1 << QUEUES];
    let holds = (prop::option::weighted(0.15, 0usize..8), few(), few(), turns);
    let wanted = prop::collection::vec((0usize..24, prop::bool::weighted(0.2)), 1..4);
    let how = (prop::bool::weighted(0.15), any::<bool>(), prop::option::weighted(0.3, 0usize..4));
    let seen = [0.9, 0.1, 0.9].map(prop::bool::weighted);
    let block = (holds, how, wanted, seen).prop_map(|(holds, how, wanted, [ready, flags_only, by_task])| {
        let (above, duties, requests, turns) = holds;
        let (deadline, for_its_request, past) = how;
        let held = Blocking {
            above,
            duties,
            requests,
            turns,
            deadline,
            for_its_request,
            wanted,
            past,
            ready,
            flags_only,
            by_task,
        };
        Operation::Block(held)
    });
    let go_on = (0usize..8, prop::bool::weighted(0.3))
        .prop_map(|(wait, gives_up)| Operation::GoOn { wait, gives_up });
    let lose = (0usize..8, 0usize..8, 0..QUEUES).prop_map(|(wait, what, queue)| Operation::Lose {
        wait,
        what,
        queue,
    });
    let look = (0usize..8).prop_map(|wait| Operation::Look { wait });
    prop_oneof![6 => block, 2 => go_on, 4 => look, 1 => lose]
}
