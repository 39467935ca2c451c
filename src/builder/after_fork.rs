//! The engine in the child of a fork.

use uruk_dispatch::AfterFork;

use super::JitBuilder;

impl JitBuilder {
    /// Whether the child of a `fork` may go on in place, on the threads that look up, where the engine has a pool of its own. Otherwise lookups
    /// that need the pool are refused there. A fork waits for a second at most until no task is left; if one is, the child refuses as well.
    ///
    /// The child must not use what other threads of the parent were at work on at that moment, such as responsibilities that they hold.
    #[must_use]
    pub fn after_fork(mut self, after_fork: AfterFork) -> Self {
        self.engine.after_fork = after_fork;
        self
    }
}
