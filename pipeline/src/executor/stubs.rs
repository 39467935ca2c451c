//! Stubs of another process, as a linker has them lead on.

use uruk_core::ExecutorAddr;

/// Where a stub is to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StubLead {
    /// The stub: the address of its function.
    pub stub: ExecutorAddr,
    /// Its target from now on.
    pub target: StubTarget,
}

/// The target of a stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StubTarget {
    /// The function's body.
    Body(ExecutorAddr),
    /// The same, and so many calls of it are counted.
    CountedBody(ExecutorAddr, u32),
    /// The body that the next call asks for.
    NextCall,
    /// As before. So many calls more are counted.
    CountAgain(u32),
}

/// The stubs of a place whose memory the linker does not write once it is published.
///
/// # Concurrency
/// Called from every thread, under locks of functions. The place does as it is told in the order of the calls.
pub trait StubsThere: Send + Sync {
    /// Has stubs lead on, together if there are several. The place hears of it with the next message.
    ///
    /// A place that is gone has no stubs: there is no error.
    fn lead(&self, leads: &[StubLead]);

    /// Waits until all stubs lead where the place was told.
    fn settle(&self);
}
