//! [`Jit`]: the engine behind one type.

use std::fmt;
use std::path::Path;

use uruk_core::sync::Arc;
use uruk_core::{
    ExecutionSession, ExecutorSymbolDef, JitDylib, LookupSet, MaterializationUnit, SharedError, SymbolFlags,
    SymbolLookupFlags, SymbolName,
};
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::{
    CompileError, IrCompileLayer, IrMaterializationUnit, JitTargetMachineBuilder, ModuleInterface,
    ThreadSafeModule,
};
#[cfg(feature = "llvm")]
use uruk_pipeline::layer::IrLayer;
use uruk_pipeline::link::ObjectLinkingLayer;
use uruk_pipeline::memory::{MemoryManager, MemoryUsage};
use uruk_pipeline::object::{
    ArchiveIndex, FileKind, ObjectBuffer, ObjectError, ObjectMaterializationUnit, StaticArchiveGenerator,
};
use uruk_pipeline::platform::Platform;
use uruk_pipeline::runtime::process::ProcessSymbols;

use crate::unit::LinkedUnit;
use crate::{FunctionPointer, JitBuilder, JitError};

/// A program in this process: files go in, functions come out.
///
/// Definitions live in one dylib, [`Jit::main_dylib`]. What they refer to is searched there first, then in the C
/// and C++ libraries and whatever else was loaded.
///
/// # Concurrency
/// Every method may be called from any thread.
///
/// Source: ORC `LLJIT`.
#[doc(alias = "LLJIT")]
pub struct Jit {
    pub(crate) session: ExecutionSession,
    pub(crate) main: JitDylib,
    pub(crate) process: Arc<ProcessSymbols>,
    pub(crate) platform: Arc<Platform>,
    pub(crate) memory: Arc<dyn MemoryManager>,
    pub(crate) object_layer: Arc<ObjectLinkingLayer>,
    #[cfg(feature = "llvm")]
    pub(crate) ir_layer: Arc<IrCompileLayer>,
    #[cfg(feature = "llvm")]
    pub(crate) target: JitTargetMachineBuilder,
}

impl Jit {
    /// An engine with the defaults of [`JitBuilder`].
    ///
    /// # Errors
    /// Those of [`JitBuilder::build`].
    pub fn new() -> Result<Self, JitError> {
        JitBuilder::new().build()
    }

    /// Starts to set up an engine.
    pub fn builder() -> JitBuilder {
        JitBuilder::new()
    }

    /// Adds a file of any kind: textual IR, bitcode, object, archive, or shared library.
    ///
    /// # Errors
    /// [`JitError`], which names the file and what is wrong with it.
    pub fn add_file(&self, path: impl AsRef<Path>) -> Result<(), JitError> {
        let path = path.as_ref();
        let file = ObjectBuffer::open(path)
            .map_err(|source| JitError::Read { path: path.to_owned(), source: Arc::new(source) })?;
        let foreign = |what| Err(JitError::Foreign { path: path.to_owned(), what });
        match FileKind::of(file.bytes()) {
            FileKind::Empty => foreign("the file is empty"),
            FileKind::Object => self.add_object(file),
            FileKind::Archive | FileKind::ThinArchive => self.add_archive(&file),
            FileKind::SharedLibrary => self.load_library(path),
            FileKind::OtherElf => {
                foreign("an ELF file, but neither a relocatable object (.o) nor a shared library (.so)")
            }
            #[cfg(feature = "llvm")]
            FileKind::Bitcode => self.add_ir(file),
            #[cfg(feature = "llvm")]
            FileKind::Other if path.extension().is_some_and(|extension| extension == "ll") => {
                self.add_ir(file)
            }
            _ => foreign(if cfg!(feature = "llvm") {
                "neither bitcode, an object, an archive nor a shared library; textual IR must be named *.ll"
            } else {
                "neither an object, an archive nor a shared library"
            }),
        }
    }

    /// Adds a module of LLVM IR from memory: bitcode or text, named by the buffer.
    ///
    /// # Errors
    /// [`JitError::Compile`] if it cannot be read, [`JitError::Define`] if its symbols are refused.
    #[cfg(feature = "llvm")]
    pub fn add_ir(&self, source: ObjectBuffer) -> Result<(), JitError> {
        let layer: Arc<dyn IrLayer> = self.ir_layer.clone();
        let unit = IrMaterializationUnit::from_source(&self.session, layer, &self.target, source)?;
        self.add_unit(Box::new(unit))
    }

    /// Adds a module of textual LLVM IR under a name for messages.
    ///
    /// # Errors
    /// As [`Jit::add_ir`].
    #[cfg(feature = "llvm")]
    pub fn add_ir_text(&self, name: &str, text: &str) -> Result<(), JitError> {
        self.add_ir(ObjectBuffer::new(name, text.as_bytes().to_vec()))
    }

    /// Adds a module that was built in memory.
    ///
    /// # Errors
    /// As [`Jit::add_ir`].
    #[cfg(feature = "llvm")]
    pub fn add_module(&self, module: ThreadSafeModule) -> Result<(), JitError> {
        let layer: Arc<dyn IrLayer> = self.ir_layer.clone();
        let unit = IrMaterializationUnit::from_module(&self.session, layer, &self.target, module)?;
        self.add_unit(Box::new(unit))
    }

    /// Adds a relocatable object.
    ///
    /// # Errors
    /// [`JitError::Object`] if it is broken or for another machine, [`JitError::Define`] if its symbols are
    /// refused.
    pub fn add_object(&self, object: ObjectBuffer) -> Result<(), JitError> {
        let unit = ObjectMaterializationUnit::new(&self.session, self.object_layer.clone(), object)?;
        self.add_unit(Box::new(unit))
    }

    /// Adds a static archive, whose members join the program when something needs them.
    ///
    /// # Errors
    /// [`JitError::Object`] if the archive is broken.
    pub fn add_archive(&self, archive: &ObjectBuffer) -> Result<(), JitError> {
        let index = ArchiveIndex::read(archive, |member| self.bitcode_symbols(member))?;
        let members = Members {
            platform: self.platform.clone(),
            process: self.process.clone(),
            object_layer: self.object_layer.clone(),
            #[cfg(feature = "llvm")]
            ir_layer: self.ir_layer.clone(),
            #[cfg(feature = "llvm")]
            target: self.target.clone(),
        };
        let define = move |dylib: &JitDylib, member| members.define(dylib, member);
        self.main.add_generator(Arc::new(StaticArchiveGenerator::new(index, define)));
        Ok(())
    }

    /// Loads a shared library and searches it for symbols from now on.
    ///
    /// # Errors
    /// [`JitError::LoadLibrary`] with the dynamic linker's message.
    pub fn load_library(&self, path: impl AsRef<Path>) -> Result<(), JitError> {
        Ok(self.process.load_library(path)?)
    }

    /// Adds any unit, as a file that takes part in the program: it gets a place in the order of
    /// initialisation, and [`Jit::link`] materializes it.
    ///
    /// # Errors
    /// [`JitError::Define`] if its symbols are refused.
    pub fn add_unit(&self, unit: Box<dyn MaterializationUnit>) -> Result<(), JitError> {
        let initializer = self.platform.declare(&self.session, unit.name());
        let mut unit = LinkedUnit::new(unit, Some(initializer.clone()));
        unit.yield_to_libraries(&self.main, &self.process);
        self.main.define(Box::new(unit)).inspect_err(|_| self.platform.withdraw(&initializer))?;
        Ok(())
    }

    /// Looks up `symbol`, compiling and linking what it needs.
    ///
    /// # Errors
    /// [`JitError::Lookup`], which names what is missing or failed, and why.
    pub fn lookup(&self, symbol: &str) -> Result<ExecutorSymbolDef, JitError> {
        let symbol = self.session.intern(symbol);
        Ok(self.session.lookup_symbol(&self.main.link_order(), &symbol)?)
    }

    /// Looks up a function and hands it out as a pointer of type `F`.
    ///
    /// # Safety
    /// The function must have the signature `F` says, and the pointer must not be used after the code is
    /// gone: when the `Jit` is dropped, or the function's tracker removed.
    ///
    /// # Errors
    /// As [`Jit::lookup`], and [`JitError::NotCallable`] if the symbol is data.
    pub unsafe fn function<F: FunctionPointer>(&self, symbol: &str) -> Result<F, JitError> {
        let found = self.lookup(symbol)?;
        if found.flags.contains(SymbolFlags::CALLABLE) {
            // SAFETY: the symbol is Ready, so its code is complete and executable; signature and lifetime are
            // the caller's promise.
            Ok(unsafe { F::from_address(found.address) })
        } else {
            Err(JitError::NotCallable { symbol: symbol.into() })
        }
    }

    /// Materializes every file that was added, everything they need, and `entry`; answers where that is.
    ///
    /// As with a static linker, each file takes part whether or not something refers to it; members of
    /// archives do only if something does. All of it is compiled at once, on all threads.
    ///
    /// # Errors
    /// [`JitError::Lookup`] for the first thing that is missing or fails.
    pub fn link(&self, entry: &str) -> Result<ExecutorSymbolDef, JitError> {
        let entry = self.session.intern(entry);
        let order = self.main.link_order();
        let mut found = None;
        loop {
            // An initializer symbol has no address, so it is never required; its unit runs all the same.
            let mut symbols = LookupSet::weakly_referenced(self.platform.take_declared());
            if symbols.is_empty() && found.is_some() {
                break;
            }
            symbols.add(entry.clone(), SymbolLookupFlags::RequiredSymbol);
            found = self.session.lookup(&order, symbols)?.get(&entry).copied();
        }
        found.ok_or_else(|| JitError::NotCallable { symbol: entry.as_str().into() })
    }

    /// The session, for everything that has no method here.
    pub fn session(&self) -> &ExecutionSession {
        &self.session
    }

    /// Where files are defined.
    pub fn main_dylib(&self) -> &JitDylib {
        &self.main
    }

    /// Initialisers and finalisers of what was linked. Nobody runs them but you.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// The symbols found outside of the program.
    pub fn process_symbols(&self) -> &ProcessSymbols {
        &self.process
    }

    /// How much memory the linked code takes.
    pub fn memory_usage(&self) -> MemoryUsage {
        self.memory.usage()
    }

    /// Interns a name.
    pub fn intern(&self, name: &str) -> SymbolName {
        self.session.intern(name)
    }

    #[cfg(feature = "llvm")]
    fn bitcode_symbols(&self, member: &ObjectBuffer) -> Result<Vec<Box<str>>, JitError> {
        let interface = ModuleInterface::of_bitcode(member, &self.target)?;
        Ok(interface.symbols.into_iter().map(|symbol| symbol.name).collect())
    }

    #[cfg(not(feature = "llvm"))]
    fn bitcode_symbols(&self, _member: &ObjectBuffer) -> Result<Vec<Box<str>>, JitError> {
        Ok(Vec::new())
    }
}

/// Turns members of an archive into units. Holds what that takes and not the engine: the generator lives
/// inside of the engine's session.
struct Members {
    platform: Arc<Platform>,
    process: Arc<ProcessSymbols>,
    object_layer: Arc<ObjectLinkingLayer>,
    #[cfg(feature = "llvm")]
    ir_layer: Arc<IrCompileLayer>,
    #[cfg(feature = "llvm")]
    target: JitTargetMachineBuilder,
}

impl Members {
    fn define(&self, dylib: &JitDylib, member: ObjectBuffer) -> Result<(), SharedError> {
        let unit = self.unit(dylib.session(), member)?;
        let runs_code = unit.interface().initializer.is_some();
        let initializer = runs_code.then(|| self.platform.declare(dylib.session(), unit.name()));
        let mut unit = LinkedUnit::new(unit, initializer.clone());
        unit.yield_to_libraries(dylib, &self.process);
        dylib.define(Box::new(unit)).map_err(|error| {
            if let Some(initializer) = &initializer {
                self.platform.withdraw(initializer);
            }
            Arc::new(error) as SharedError
        })
    }

    fn unit(
        &self,
        session: &ExecutionSession,
        member: ObjectBuffer,
    ) -> Result<Box<dyn MaterializationUnit>, SharedError> {
        #[cfg(feature = "llvm")]
        if FileKind::of(member.bytes()) == FileKind::Bitcode {
            let layer: Arc<dyn IrLayer> = self.ir_layer.clone();
            let unit = IrMaterializationUnit::from_source(session, layer, &self.target, member)
                .map_err(|error: CompileError| Arc::new(error) as SharedError)?;
            return Ok(Box::new(unit));
        }
        let unit = ObjectMaterializationUnit::new(session, self.object_layer.clone(), member)
            .map_err(|error: ObjectError| Arc::new(error) as SharedError)?;
        Ok(Box::new(unit))
    }
}

impl Drop for Jit {
    /// Closes the session: work in flight ends, what is queued fails, code is unmapped.
    fn drop(&mut self) {
        // A close that fails has been reported to the session's error reporter already.
        let _ = self.session.close();
    }
}

impl fmt::Debug for Jit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jit")
            .field("session", &self.session)
            .field("platform", &self.platform)
            .finish_non_exhaustive()
    }
}
