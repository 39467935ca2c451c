//! What becomes of those who need what is removed.

/// What a removal does about symbols that stay and need some that go: their code would refer to what is no longer there.
///
/// For dylibs that keep who depends on their symbols
/// ([`create_jit_dylib_keeping_dependants`](crate::ExecutionSession::create_jit_dylib_keeping_dependants)). A dependant is a symbol, of
/// whatever dylib, that was emitted with a dependence on one that goes, whether that was Ready then or not. One that is still being
/// materialized is none: its emission is refused if it comes after the removal.
///
/// ORC: it removes, and leaves dependants as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalPolicy {
    /// If there are dependants that would stay, nothing is removed, and the error names them.
    Refuse,
    /// They go as well, and those who need them, whatever tracker or dylib they belong to; each with all that was emitted with it.
    /// Dependants go before what they need.
    ///
    /// In a dylib that does not keep dependants the chain ends: its symbols go, and nobody knows who needs them.
    Cascade,
}
