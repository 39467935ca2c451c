//! [`StaticArchiveGenerator`]: members of an archive, defined when a symbol of theirs is missing.

use std::collections::BTreeSet;
use std::fmt;

use rustc_hash::FxHashSet;
use uruk_core::sync::Mutex;
use uruk_core::{DefinitionGenerator, GenerateRequest, JitDylib, SharedError, SymbolLookupFlags};

use super::{ArchiveIndex, ObjectBuffer};

/// How a member becomes definitions of a dylib: as an object or as bitcode.
type DefineMember = dyn Fn(&JitDylib, ObjectBuffer) -> Result<(), SharedError> + Send + Sync;

/// Adds the members of a static archive to a dylib, each once, when somebody asks for what they define.
///
/// As with a static linker, a weak reference does not pull a member in. Members wanted by one lookup are
/// added in the archive's order.
///
/// Source: ORC `StaticLibraryDefinitionGenerator`.
#[doc(alias = "StaticLibraryDefinitionGenerator")]
pub struct StaticArchiveGenerator {
    index: ArchiveIndex,
    define: Box<DefineMember>,
    /// Positions of the members that have been added.
    added: Mutex<FxHashSet<usize>>,
}

impl StaticArchiveGenerator {
    /// Serves the members of `index`; `define` is to define one in a dylib.
    pub fn new(
        index: ArchiveIndex,
        define: impl Fn(&JitDylib, ObjectBuffer) -> Result<(), SharedError> + Send + Sync + 'static,
    ) -> Self {
        Self { index, define: Box::new(define), added: Mutex::default() }
    }

    /// The archive's table of contents.
    pub fn index(&self) -> &ArchiveIndex {
        &self.index
    }

    /// Adds the first member that `counts` says to define `symbol` in the way that is asked for, if there is one.
    ///
    /// # Errors
    /// What defining the member ended with.
    pub fn add_member_if(
        &self,
        dylib: &JitDylib,
        symbol: &str,
        counts: impl Fn(&ObjectBuffer) -> bool,
    ) -> Result<(), SharedError> {
        let contents = |position: &usize| self.index.members()[*position].contents();
        let found = self.index.members_defining(symbol).find(|position| counts(contents(position)));
        found.map_or(Ok(()), |position| self.add_member(dylib, position))
    }

    fn add_members(&self, request: &GenerateRequest) -> Result<(), SharedError> {
        let wanted: BTreeSet<usize> = request
            .symbols()
            .iter()
            .filter(|(_, flags)| *flags == SymbolLookupFlags::RequiredSymbol)
            .filter_map(|(name, _)| self.index.member_defining(name.as_str()))
            .collect();
        wanted.into_iter().try_for_each(|position| self.add_member(request.dylib(), position))
    }

    fn add_member(&self, dylib: &JitDylib, position: usize) -> Result<(), SharedError> {
        // The mark is set first, so that the lock is not held while the member is defined.
        if !self.added.lock().insert(position) {
            return Ok(());
        }
        let member = self.index.members()[position].contents().clone();
        (self.define)(dylib, member).inspect_err(|_| {
            self.added.lock().remove(&position);
        })
    }
}

impl DefinitionGenerator for StaticArchiveGenerator {
    fn name(&self) -> &str {
        self.index.name()
    }

    fn generate(&self, request: GenerateRequest) {
        let outcome = self.add_members(&request);
        request.finish(outcome);
    }
}

impl fmt::Debug for StaticArchiveGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticArchiveGenerator")
            .field("archive", self.index.name())
            .field("members", &self.index.members().len())
            .field("added", &self.added.lock().len())
            .finish_non_exhaustive()
    }
}
