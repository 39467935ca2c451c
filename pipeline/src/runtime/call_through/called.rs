//! [`CalledStub`]: a stub of this process, or of another one, to a function that looks for its body.

use uruk_core::ExecutorAddr;
use uruk_core::sync::Arc;

use super::SlotAddr;
use crate::executor::{StubLead, StubTarget, StubsThere};

/// A stub that leads to its body from now on.
#[derive(Clone)]
pub(crate) enum CalledStub {
    Here(SlotAddr),
    There(StubThere),
}

/// A stub of another process.
#[derive(Clone)]
pub(crate) struct StubThere {
    pub(crate) stubs: Arc<dyn StubsThere>,
    /// The function's address.
    pub(crate) stub: ExecutorAddr,
}

/// Stands for the cold part of a stub whose code this process cannot read.
const NEXT_CALL: u64 = 0;

impl StubThere {
    fn lead(&self, target: StubTarget) {
        self.stubs.lead(&[StubLead { stub: self.stub, target }]);
    }

    /// Where a slot leads that has `address`, which was loaded or found.
    pub(crate) fn target(address: u64) -> StubTarget {
        if address == NEXT_CALL { StubTarget::NextCall } else { StubTarget::Body(ExecutorAddr::new(address)) }
    }
}

impl CalledStub {
    pub(crate) fn load(&self) -> u64 {
        match self {
            Self::Here(slot) => slot.load(),
            Self::There(_) => NEXT_CALL, // It is asked for once, before the first call.
        }
    }

    pub(crate) fn store(&self, address: u64) {
        match self {
            Self::Here(slot) => slot.store(address),
            Self::There(stub) => stub.lead(StubThere::target(address)),
        }
    }

    /// The same, and so many calls are counted.
    pub(crate) fn store_counted(&self, address: u64, calls: u32) {
        match self {
            Self::Here(slot) => slot.store_counted(address, calls),
            Self::There(stub) => stub.lead(StubTarget::CountedBody(ExecutorAddr::new(address), calls)),
        }
    }

    pub(crate) fn count(&self, calls: u32) {
        match self {
            Self::Here(slot) => slot.count(calls),
            Self::There(stub) => stub.lead(StubTarget::CountAgain(calls)),
        }
    }

    /// Waits until the stub leads where it was led.
    pub(crate) fn settle(&self) {
        if let Self::There(stub) = self {
            stub.stubs.settle();
        }
    }

    /// Notes that `body` is this function's, for programs that ask which function they are in. Another process does that itself.
    pub(crate) fn note(&self, body: ExecutorAddr) {
        if let Self::Here(slot) = self {
            slot.note(body);
        }
    }

    /// An address in the code beside the stub; if calls can be counted.
    pub(crate) fn code(&self) -> Option<ExecutorAddr> {
        match self {
            Self::Here(slot) => slot.counting_part(),
            Self::There(stub) => Some(stub.stub),
        }
    }
}
