//! Definition generators: definitions made when a lookup misses them.

use std::fmt;

use crate::failure::shared_error;
use crate::protocol::ids::{self, QueryId};
use crate::session::SessionTag;
use crate::{ExecutionSession, JitDylib, JitDylibLookupFlags, LookupKind, LookupSet, SharedError};

/// A generator that was added to a dylib of one session: no other session takes it for one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GeneratorId {
    pub(crate) id: ids::GeneratorId,
    pub(crate) session: SessionTag,
}

/// Adds definitions to a dylib when a lookup finds that they are missing.
///
/// # Concurrency
/// Asked about one lookup at a time: others that miss symbols queue until the request is finished. No
/// lock is held; the generator may define units, look symbols up, and finish the request later from any
/// thread. Waiting, inside `generate`, for symbols this generator would have to provide never ends.
///
/// Source: ORC `DefinitionGenerator::tryToGenerate`.
pub trait DefinitionGenerator: Send + Sync {
    /// What to call the generator in errors and traces.
    fn name(&self) -> &str;

    /// Defines what it can of `request.symbols()` in `request.dylib()`, then finishes the request.
    ///
    /// Symbols it does not know are left alone: the lookup goes on to the next generator or dylib.
    fn generate(&self, request: GenerateRequest);
}

/// A suspended lookup asking one generator. Dropping it unfinished fails the lookup.
///
/// Source: ORC `LookupState`.
pub struct GenerateRequest {
    pub(crate) dylib: JitDylib,
    pub(crate) query: QueryId,
    pub(crate) generator: ids::GeneratorId,
    pub(crate) kind: LookupKind,
    pub(crate) lookup_flags: JitDylibLookupFlags,
    pub(crate) symbols: LookupSet,
    pub(crate) finished: bool,
}

impl GenerateRequest {
    /// The session of the lookup.
    pub fn session(&self) -> &ExecutionSession {
        self.dylib.session()
    }

    /// The dylib that misses the symbols.
    pub fn dylib(&self) -> &JitDylib {
        &self.dylib
    }

    /// On whose behalf the lookup runs.
    pub fn kind(&self) -> LookupKind {
        self.kind
    }

    /// Which definitions of the dylib the lookup may see.
    pub fn lookup_flags(&self) -> JitDylibLookupFlags {
        self.lookup_flags
    }

    /// The symbols the dylib does not define.
    pub fn symbols(&self) -> &LookupSet {
        &self.symbols
    }

    /// Lets the lookup go on, or fails it.
    pub fn finish(mut self, outcome: Result<(), SharedError>) {
        self.conclude(outcome);
    }

    fn conclude(&mut self, outcome: Result<(), SharedError>) {
        if !std::mem::replace(&mut self.finished, true) {
            self.dylib
                .session()
                .transact(|state, effects| state.generated(self.generator, self.query, outcome, effects));
        }
    }
}

impl Drop for GenerateRequest {
    fn drop(&mut self) {
        if !self.finished {
            let reason =
                if std::thread::panicking() { "it panicked" } else { "it dropped the request unfinished" };
            self.conclude(Err(shared_error(reason)));
        }
    }
}

impl fmt::Debug for GenerateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenerateRequest")
            .field("dylib", &self.dylib.name())
            .field("kind", &self.kind)
            .field("symbols", &self.symbols)
            .finish_non_exhaustive()
    }
}
