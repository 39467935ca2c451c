//! The steps of a history, tame or wild.

use proptest::prelude::*;

use crate::TaskPriority;

pub(super) const NAMES: usize = 8;
pub(super) const PRIORITIES: [TaskPriority; 4] =
    [TaskPriority::Idle, TaskPriority::Speculative, TaskPriority::Lazy, TaskPriority::Demanded];

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// On no unit's behalf, at a priority or without one.
    LookUp {
        names: u16,
        priority: Option<usize>,
        ready: bool,
    },
    /// On behalf of a claim.
    Ask {
        claim: usize,
        names: u16,
        ready: bool,
    },
    Withdraw(usize),
    Begin(usize),
    Emit {
        claim: usize,
        dependencies: u16,
    },
    /// By a unit that says another priority of itself.
    Replace {
        claim: usize,
        own: usize,
    },
    Fail(usize),
    RemoveName(usize),
    Delegate {
        claim: usize,
        names: u16,
    },
    Slice,
    Drain,
}

fn names() -> impl Strategy<Value = u16> {
    (1u16..1 << NAMES, any::<u16>()).prop_map(|(names, mask)| match names & mask {
        0 => names,
        fewer => fewer,
    })
}

pub(super) fn tame() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (names(), proptest::option::of(0usize..4))
            .prop_map(|(names, priority)| Step::LookUp { names, priority, ready: true }),
        5 => (0usize..8, names()).prop_map(|(claim, names)| Step::Ask { claim, names, ready: true }),
        4 => (0usize..8).prop_map(Step::Withdraw),
        3 => (0usize..8).prop_map(Step::Begin),
        4 => (0usize..8, names()).prop_map(|(claim, dependencies)| Step::Emit { claim, dependencies }),
        3 => (0usize..8, 0usize..4).prop_map(|(claim, own)| Step::Replace { claim, own }),
        3 => Just(Step::Slice),
        3 => Just(Step::Drain),
    ]
}

pub(super) fn wild() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => tame(),
        2 => (names(), proptest::option::of(0usize..4))
            .prop_map(|(names, priority)| Step::LookUp { names, priority, ready: false }),
        2 => (0usize..8, names()).prop_map(|(claim, names)| Step::Ask { claim, names, ready: false }),
        1 => (0usize..8).prop_map(Step::Fail),
        1 => (0usize..NAMES).prop_map(Step::RemoveName),
        1 => (0usize..8, names()).prop_map(|(claim, names)| Step::Delegate { claim, names }),
    ]
}
