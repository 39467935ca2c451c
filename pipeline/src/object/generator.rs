//! [`StaticArchiveGenerator`]: members of an archive, defined when a symbol of theirs is missing.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};
use uruk_core::sync::{Arc, Latch, Mutex};
use uruk_core::{
    DefinitionGenerator, GenerateRequest, JitDylib, SharedError, SymbolLookupFlags, SymbolName, shared_error,
};

use super::{ArchiveIndex, ObjectBuffer};

/// The symbols that came with a member.
type Brought = Arc<[SymbolName]>;

/// How a member becomes definitions of a dylib: as an object or as bitcode.
type DefineMember = dyn Fn(&JitDylib, ObjectBuffer) -> Result<(), SharedError> + Send + Sync;

/// Adds the members of a static archive to a dylib when symbols that they define are looked up.
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
/// use uruk_core::{ExecutionSession, LookupRequest, LookupSet};
/// # use uruk_pipeline::linking::ObjectLinkingLayer;
/// # use uruk_pipeline::runtime::in_process::InProcessExecutor;
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
/// # let layer: Arc<dyn ObjectLayer> = Arc::new(ObjectLinkingLayer::new(Arc::new(InProcessExecutor::new(memory)), Arc::new(Platform::new())));
/// # let session = ExecutionSession::new();
/// let main = session.create_jit_dylib("main")?;
/// let index = ArchiveIndex::read(&archive)?; // `answer.o` is in it.
/// let generator = StaticArchiveGenerator::new(index, move |dylib, member| define_object(dylib, &layer, member));
/// main.add_generator(Arc::new(generator));
/// assert!(session.lookup(LookupRequest::along(&main, LookupSet::one(session.intern("answer")))).is_ok());
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
    /// The stage of each requested member, by position.
    brought: Mutex<FxHashMap<usize, MemberStage>>,
}

/// The stage of a member.
#[derive(Clone)]
enum MemberStage {
    /// A thread defines it, and opens the latch when it has.
    Defining(Arc<Latch>),
    /// The definitions that the dylib took of it.
    Added(Brought),
}

thread_local! {
    /// How many members this thread is about to define.
    static DEFINES: Cell<usize> = const { Cell::new(0) };
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

    /// Adds a member, unless the dylib has it. If another thread is about to add it, this one waits until it has.
    fn add_member(&self, dylib: &JitDylib, position: usize) -> Result<(), SharedError> {
        let is_there =
            |brought: &Brought| brought.is_empty() || !dylib.flags(brought.iter().cloned()).is_empty();
        loop {
            let earlier = self.brought.lock().get(&position).cloned();
            match &earlier {
                Some(MemberStage::Added(brought)) if is_there(brought) => return Ok(()),
                // A member may be asked for while it, or another one, is defined: for its variables that others have as tentative ones. It comes in
                // any case, and threads that define wait for none that do.
                Some(MemberStage::Defining(_)) if DEFINES.get() > 0 => return Ok(()),
                Some(MemberStage::Defining(defined)) => {
                    dylib.session().blocking(|| defined.wait()).map_err(shared_error)?;
                    continue;
                }
                Some(MemberStage::Added(_)) | None => {}
            }
            // The mark is set first, so that the lock is not held while the member is defined.
            let Some(mark) = self.mark(position, earlier.is_some()) else { continue };
            return mark.define(dylib);
        }
    }

    /// Notes that this thread defines a member. None if another thread has come first.
    fn mark(&self, position: usize, again: bool) -> Option<Mark<'_>> {
        let mut stages = self.brought.lock();
        let is_as_before = match stages.get(&position) {
            None => !again,
            Some(MemberStage::Added(_)) => again,
            Some(MemberStage::Defining(_)) => false,
        };
        is_as_before.then(|| {
            stages.insert(position, MemberStage::Defining(Arc::default()));
            DEFINES.set(DEFINES.get() + 1);
            Mark { generator: self, position, brought: None }
        })
    }
}

/// A member that this thread defines. Dropping it tells those who wait.
struct Mark<'a> {
    generator: &'a StaticArchiveGenerator,
    position: usize,
    /// Nothing if it was refused, or its definition has panicked.
    brought: Option<Brought>,
}

impl Mark<'_> {
    fn define(mut self, dylib: &JitDylib) -> Result<(), SharedError> {
        let StaticArchiveGenerator { index, define, .. } = self.generator;
        let member = &index.members()[self.position];
        let names = || member.symbols().map(|name| dylib.session().intern(name));
        let before: FxHashSet<_> = dylib.flags(names()).into_iter().map(|(name, _)| name).collect();
        define(dylib, member.contents().clone())?;
        let after = dylib.flags(names()).into_iter().map(|(name, _)| name);
        self.brought = Some(after.filter(|name| !before.contains(name)).collect());
        Ok(())
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        DEFINES.set(DEFINES.get() - 1);
        let mut stages = self.generator.brought.lock();
        let defining = match self.brought.take() {
            Some(brought) => stages.insert(self.position, MemberStage::Added(brought)),
            None => stages.remove(&self.position),
        };
        drop(stages);
        if let Some(MemberStage::Defining(defined)) = defining {
            defined.open();
        }
    }
}

impl DefinitionGenerator for StaticArchiveGenerator {
    fn name(&self) -> &str {
        self.index.name()
    }

    fn generate(&self, mut request: GenerateRequest) {
        request.rule_out(|symbol| self.index.member_defining(symbol.as_str()).is_none());
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
