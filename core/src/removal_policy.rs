//! The policy for dependants of removed symbols.

/// The treatment of dependants at a removal: they would stay, and their code refers to symbols that go.
///
/// For dylibs that keep the dependants of their symbols
/// ([`create_jit_dylib_keeping_dependants`](crate::ExecutionSession::create_jit_dylib_keeping_dependants)). A dependant is a symbol, of
/// any dylib, that was emitted with a dependence on a symbol that goes, Ready or not. A symbol that is still being materialized is
/// none: its emission is refused if it comes after the removal.
///
/// ORC: it removes, and leaves dependants as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalPolicy {
    /// If there are dependants that would stay, nothing is removed, and the error names them.
    Refuse,
    /// They go as well, and their own dependants, of any tracker or dylib; each with all symbols that were emitted with it.
    /// Dependants go before the symbols they need.
    ///
    /// In a dylib that does not keep dependants the chain ends: its symbols go, and their dependants are unknown.
    Cascade,
}
