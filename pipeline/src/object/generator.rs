//! [`StaticArchiveGenerator`]: members of an archive, defined when a symbol of theirs is missing.

use std::collections::BTreeSet;
use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};
use uruk_core::sync::{Arc, Mutex};
use uruk_core::{DefinitionGenerator, GenerateRequest, JitDylib, SharedError, SymbolLookupFlags, SymbolName};

use super::{ArchiveIndex, ObjectBuffer};

/// The symbols that came with a member.
type Brought = Arc<[SymbolName]>;

/// How a member becomes definitions of a dylib: as an object or as bitcode.
type DefineMember = dyn Fn(&JitDylib, ObjectBuffer) -> Result<(), SharedError> + Send + Sync;

/// Adds the members of a static archive to a dylib when somebody asks for what they define.
///
/// As with a static linker, a weak reference does not pull a member in. Members wanted by one lookup are
/// added in the archive's order.
///
/// A member is there once. The dylib says whether it still is: when all symbols that it brought have been removed, it can be
/// added again. A member of which the dylib took nothing stays added.
///
/// # Examples
/// ```
/// # #[cfg(not(feature = "llvm"))]
/// # fn main() {}
/// # #[cfg(feature = "llvm")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use uruk_core::{ExecutionSession, LookupSet};
/// # use uruk_pipeline::link::ObjectLinkingLayer;
/// # use uruk_pipeline::memory::InProcessMemoryManager;
/// # use uruk_pipeline::platform::Platform;
/// use uruk_pipeline::object::ObjectLayer;
/// # use uruk_pipeline::ir::{IrCompiler, OptimizationLevel, ThreadSafeModule};
/// use uruk_pipeline::object::{ArchiveIndex, ObjectBuffer, StaticArchiveGenerator, define_object};
///
/// # let source = ObjectBuffer::new("answer.o", "define i64 @answer() { ret i64 42 }".as_bytes());
/// # let object = IrCompiler::host(OptimizationLevel::O2)?.compile(ThreadSafeModule::parse(&source)?)?;
/// # let size = object.bytes().len();
/// # let header = format!("!<arch>\n{:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", "answer.o/", 0, 0, 0, 644);
/// # let archive = ObjectBuffer::new("libanswer.a", [header.as_bytes(), object.bytes()].concat());
/// # let memory = Arc::new(InProcessMemoryManager::new()?);
/// # let layer: Arc<dyn ObjectLayer> = Arc::new(ObjectLinkingLayer::new(memory, Arc::new(Platform::new())));
/// # let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// let index = ArchiveIndex::read(&archive)?; // `answer.o` is in it.
/// let generator = StaticArchiveGenerator::new(index, move |dylib, member| define_object(dylib, &layer, member));
/// main.add_generator(Arc::new(generator));
/// assert!(main.lookup(LookupSet::one(session.intern("answer"))).is_ok());
/// # session.close()?;
/// # Ok(())
/// # }
/// ```
///
/// ORC: `StaticLibraryDefinitionGenerator`.
#[doc(alias = "StaticLibraryDefinitionGenerator")]
pub struct StaticArchiveGenerator {
    index: ArchiveIndex,
    define: Box<DefineMember>,
    /// By position, what the dylib had of each member once that was added; nothing while it is.
    brought: Mutex<FxHashMap<usize, Option<Brought>>>,
}

impl StaticArchiveGenerator {
    /// Serves the members of `index`; `define` is to define one in a dylib.
    pub fn new(
        index: ArchiveIndex,
        define: impl Fn(&JitDylib, ObjectBuffer) -> Result<(), SharedError> + Send + Sync + 'static,
    ) -> Self {
        Self { index, define: Box::new(define), brought: Mutex::default() }
    }

    /// The archive's table of contents.
    pub fn index(&self) -> &ArchiveIndex {
        &self.index
    }

    /// Adds the first member that `counts` says to define `symbol` in the way that is asked for, if there is one. It is told the
    /// member's position too.
    ///
    /// # Errors
    /// What defining the member ended with.
    pub fn add_member_if(
        &self,
        dylib: &JitDylib,
        symbol: &str,
        counts: impl Fn(usize, &ObjectBuffer) -> bool,
    ) -> Result<(), SharedError> {
        let counts = |position: &usize| counts(*position, self.index.members()[*position].contents());
        let found = self.index.members_defining(symbol).find(counts);
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

    /// Adds a member, unless the dylib has it or somebody is about to add it.
    fn add_member(&self, dylib: &JitDylib, position: usize) -> Result<(), SharedError> {
        let earlier = self.brought.lock().get(&position).cloned();
        let is_there =
            |brought: &Brought| brought.is_empty() || !dylib.flags(brought.iter().cloned()).is_empty();
        match &earlier {
            Some(None) => return Ok(()),
            Some(Some(brought)) if is_there(brought) => return Ok(()),
            _ => {}
        }
        // The mark is set first, so that the lock is not held while the member is defined.
        if self.brought.lock().insert(position, None) == Some(None) {
            return Ok(());
        }
        let member = &self.index.members()[position];
        let names = || member.symbols().map(|name| dylib.session().intern(name));
        let before: FxHashSet<_> = dylib.flags(names()).into_iter().map(|(name, _)| name).collect();
        let defined = (self.define)(dylib, member.contents().clone());
        let after = dylib.flags(names()).into_iter().map(|(name, _)| name);
        let brought = after.filter(|name| !before.contains(name)).collect();
        match defined {
            Ok(()) => drop(self.brought.lock().insert(position, Some(brought))),
            Err(_) => drop(self.brought.lock().remove(&position)),
        }
        defined
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
            .field("added", &self.brought.lock().len())
            .finish_non_exhaustive()
    }
}
