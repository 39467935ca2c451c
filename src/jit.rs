//! [`Jit`]: the engine behind one type.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use uruk_core::sync::Arc;
use uruk_core::{
    ExecutionSession, ExecutorSymbolDef, JitDylib, LookupError, LookupKind, LookupSet, MaterializationUnit,
    SearchOrder, SymbolFlags, SymbolLookupFlags, SymbolName,
};
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::{ModuleInterface, ThreadSafeModule};
use uruk_pipeline::link::LowAddresses;
use uruk_pipeline::memory::{MemoryManager, MemoryUsage};
use uruk_pipeline::object::{FileKind, ObjectBuffer};
use uruk_pipeline::platform::{LatentUnit, Platform, UnitTraits};
use uruk_pipeline::runtime::process::ProcessSymbols;

use crate::files::Files;
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
    pub(crate) memory: Arc<dyn MemoryManager>,
    pub(crate) files: Arc<Files>,
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
    /// What it is, its first bytes say. A name that ends in `.ll` says so too: what is wrong with such a file, LLVM tells.
    ///
    /// # Errors
    /// [`JitError`], which names the file and what is wrong with it.
    pub fn add_file(&self, path: impl AsRef<Path>) -> Result<(), JitError> {
        let path = path.as_ref();
        let file = ObjectBuffer::open(path)
            .map_err(|source| JitError::Read { path: path.to_owned(), source: Arc::new(source) })?;
        match FileKind::of(file.bytes()) {
            // The dynamic linker searches its own directories for a name without one.
            FileKind::SharedLibrary if path.parent() == Some(Path::new("")) => {
                self.load_library(Path::new(".").join(path))
            }
            FileKind::SharedLibrary => self.load_library(path),
            #[cfg(feature = "llvm")]
            FileKind::Other if path.extension().is_some_and(|extension| extension == "ll") => {
                self.add_ir(file)
            }
            _ => self.add_buffer(file),
        }
    }

    /// Adds what is in memory, of any kind but a shared library: textual IR, bitcode, object or archive.
    ///
    /// # Errors
    /// [`JitError`], which names the buffer and what is wrong with it.
    pub fn add_buffer(&self, file: ObjectBuffer) -> Result<(), JitError> {
        let foreign = |what| Err(JitError::Foreign { path: PathBuf::from(&**file.name()), what });
        match FileKind::of(file.bytes()) {
            FileKind::Empty => foreign("the file is empty"),
            FileKind::Object => self.add_object(file),
            FileKind::Archive | FileKind::ThinArchive => self.add_archive(&file),
            FileKind::SharedLibrary => foreign("a shared library is loaded from a file, by its path"),
            FileKind::OtherElf => {
                foreign("an ELF file, but neither a relocatable object (.o) nor a shared library (.so)")
            }
            #[cfg(feature = "llvm")]
            FileKind::Bitcode | FileKind::TextualIr => self.add_ir(file),
            _ => foreign(if cfg!(feature = "llvm") {
                "neither LLVM IR, an object, an archive nor a shared library"
            } else {
                "neither an object, an archive nor a shared library"
            }),
        }
    }

    /// Adds a module of LLVM IR from memory: bitcode or text, named by the buffer. It is compiled when something of it is wanted.
    ///
    /// # Errors
    /// [`JitError::Compile`] if it cannot be read, [`JitError::Define`] if its symbols are refused.
    #[cfg(feature = "llvm")]
    pub fn add_ir(&self, source: ObjectBuffer) -> Result<(), JitError> {
        self.files.add_ir(&self.main, source)
    }

    /// Adds a module of LLVM IR from memory whose interface is known, from an earlier look at the same source: nothing
    /// of it is read before something of it is wanted.
    ///
    /// # Errors
    /// [`JitError::Define`] if its symbols are refused.
    #[cfg(feature = "llvm")]
    pub fn add_ir_with_interface(
        &self,
        source: ObjectBuffer,
        interface: &ModuleInterface,
    ) -> Result<(), JitError> {
        self.files.add_ir_with_interface(&self.main, source, interface)
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
        self.files.add_module(&self.main, module)
    }

    /// Adds a relocatable object. It is linked when something of it is wanted.
    ///
    /// # Cost
    /// Its symbol table is read. The contents stay where they are, shared with `object`.
    ///
    /// # Errors
    /// [`JitError::Object`] if it is broken or for another machine, [`JitError::Define`] if its symbols are
    /// refused.
    pub fn add_object(&self, object: ObjectBuffer) -> Result<(), JitError> {
        self.files.add_object(&self.main, object)
    }

    /// Adds a static archive, whose members join the program when something needs them, or when they give a value to a
    /// variable that files define tentatively.
    ///
    /// # Errors
    /// [`JitError::Object`] if the archive is broken.
    pub fn add_archive(&self, archive: &ObjectBuffer) -> Result<(), JitError> {
        self.files.add_archive(&self.main, archive)
    }

    /// Loads a shared library and searches it for symbols from now on.
    ///
    /// # Errors
    /// [`JitError::LoadLibrary`] with the dynamic linker's message.
    pub fn load_library(&self, path: impl AsRef<Path>) -> Result<(), JitError> {
        Ok(self.files.process.load_library(path)?)
    }

    /// Adds any unit, as a file that takes part in the program: it gets a place in the order of
    /// initialisation, and [`Jit::link`] materializes it.
    ///
    /// # Errors
    /// [`JitError::Define`] if its symbols are refused.
    pub fn add_unit(&self, unit: Box<dyn MaterializationUnit>) -> Result<(), JitError> {
        self.files.define(&self.main, unit, UnitTraits::default())
    }

    /// Looks up `symbol`, compiling and linking what it needs.
    ///
    /// # Concurrency
    /// Callable from any thread; blocks until the symbol is Ready. Without compile threads all of it happens on this one.
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

    /// Materializes `entry` and everything that it or another part of the program needs; answers where the entry is.
    ///
    /// As with a static linker, each file takes part: what it runs at start is linked, and what it refers to has to be defined
    /// somewhere. Members of archives take part only if something refers to them. All that is needed is compiled at once, on
    /// all threads.
    ///
    /// A file that nothing refers to, and that does nothing by being there, stays as it is until somebody looks one of its
    /// symbols up. It does something if it runs code at start or end, has thread-local variables, sections that lie beside those
    /// of other files, tentative definitions or module-level assembly.
    ///
    /// # Errors
    /// [`JitError::Lookup`] for the first thing that is missing or fails, and [`JitError::NotCallable`] if the entry is
    /// data.
    pub fn link(&self, entry: &str) -> Result<ExecutorSymbolDef, JitError> {
        let entry = self.session.intern(entry);
        let order = self.main.link_order();
        let mut found = None;
        loop {
            let mut needed = self.files.platform.take_needed(Some(&entry));
            if needed.is_empty() && found.is_some() {
                let latent = self.files.platform.take_latent();
                if latent.is_empty() {
                    break;
                }
                // What is missing may have come out of archives, and brings files with it.
                needed = self.incomplete(&order, latent);
            }
            // An initializer symbol has no address, so it is never required; its unit runs all the same.
            let mut symbols = LookupSet::weakly_referenced(needed);
            symbols.add(entry.clone(), SymbolLookupFlags::RequiredSymbol);
            found = self.session.lookup(&order, symbols)?.get(&entry);
        }
        // Whoever asks for an entry is going to call it.
        found
            .filter(|found| found.flags.contains(SymbolFlags::CALLABLE))
            .ok_or_else(|| JitError::NotCallable { symbol: entry.as_str().into() })
    }

    /// Those of `units` that refer to something that nobody defines. Linking them says so.
    fn incomplete(&self, order: &SearchOrder, units: Vec<LatentUnit>) -> Vec<SymbolName> {
        let undefined = LookupSet::required(units.iter().flat_map(|unit| unit.undefined.iter().cloned()));
        let missing: HashSet<SymbolName> =
            match self.session.lookup_flags(LookupKind::Static, order, undefined) {
                Ok(_) => return Vec::new(),
                Err(LookupError::NotFound { symbols, .. }) => symbols.into_iter().collect(),
                // Whichever of them it concerns is going to say so.
                Err(_) => return units.into_iter().map(|unit| unit.symbol).collect(),
            };
        let incomplete =
            units.into_iter().filter(|unit| unit.undefined.iter().any(|name| missing.contains(name)));
        incomplete.map(|unit| unit.symbol).collect()
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
        &self.files.platform
    }

    /// The symbols found outside of the program.
    pub fn process_symbols(&self) -> &ProcessSymbols {
        &self.files.process
    }

    /// What stands below 2 GiB for functions and variables of libraries, where objects without position-independent
    /// code need it there.
    pub fn low_addresses(&self) -> &LowAddresses {
        self.files.object_layer.low_addresses()
    }

    /// How much memory the linked code takes, in bytes by kind.
    ///
    /// # Cost
    /// A system call for each 64 MiB that is mapped, to learn what of it is resident; whoever allocates memory for code waits for it.
    pub fn memory_usage(&self) -> MemoryUsage {
        self.memory.usage()
    }

    /// Interns a name.
    pub fn intern(&self, name: &str) -> SymbolName {
        self.session.intern(name)
    }
}

impl Drop for Jit {
    /// Closes the session: work in flight ends, what is queued fails, code is unmapped.
    fn drop(&mut self) {
        // What resources had to say has been reported to the session's error reporter already. A thread that may not wait (it holds a
        // context, or runs a leaf) leaves the session open: its work ends by itself, and the last handle frees all of it.
        let _ = self.session.close();
    }
}

impl fmt::Debug for Jit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jit")
            .field("session", &self.session)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "llvm"))]
mod tests {
    use uruk_core::{WaitError, WithCauses};
    use uruk_pipeline::ir::{JitTargetMachineBuilder, OptimizationLevel};

    use super::*;

    fn told(error: &JitError) -> String {
        WithCauses(error).to_string()
    }

    #[test]
    fn a_lookup_that_would_wait_while_the_thread_holds_a_context_is_refused() {
        let jit = Jit::builder().threads(1).build().expect("an engine for this machine");
        jit.add_ir_text("answer.ll", "define i32 @answer() { ret i32 42 }").expect("the module is valid");
        let module = ThreadSafeModule::new(&uruk_pipeline::ir::ThreadSafeContext::new(), "held");
        let refused = module.with_module(|_| jit.lookup("answer")).expect("the context is sound");
        assert!(
            matches!(refused, Err(JitError::Lookup(LookupError::Wait(WaitError::Holding { .. })))),
            "{refused:?}"
        );
        let message = refused.map(drop).unwrap_err().to_string();
        assert!(message.contains("an LLVM context, taken at src/jit.rs:"), "{message}");
        assert!(jit.lookup("answer").is_ok());
        // What is Ready already is answered without a wait.
        let ready = module.with_module(|_| jit.lookup("answer")).expect("the context is sound");
        assert!(ready.is_ok());
    }

    #[test]
    fn a_module_whose_interface_is_known_is_read_when_it_is_wanted() {
        let jit = Jit::builder().threads(1).build().expect("an engine for this machine");
        let target = JitTargetMachineBuilder::host().expect("host target");
        let source = |name: &str, text: &str| ObjectBuffer::new(name, text.as_bytes().to_vec());
        let text = source("sound.ll", "define i32 @sound() { ret i32 42 }");
        let bitcode =
            ThreadSafeModule::parse(&text).and_then(|module| module.to_bitcode()).expect("valid IR");
        let interface = ModuleInterface::of_bitcode(&bitcode, &target).expect("valid bitcode");
        jit.add_ir_with_interface(bitcode, &interface).expect("the name is new");
        // SAFETY: the function has this signature, and the engine outlives the call.
        let sound: extern "C" fn() -> i32 = unsafe { jit.function("sound") }.expect("compiles");
        assert_eq!(sound(), 42);

        let named = |name: &str| {
            let mut renamed = interface.clone();
            renamed.symbols[0].name = name.into();
            renamed
        };
        let damaged = source("damaged.ll", "define i32 @damaged(");
        jit.add_ir_with_interface(damaged, &named("damaged")).expect("nobody has looked at the source");
        let error = told(&jit.lookup("damaged").expect_err("the source is no module"));
        assert!(error.contains("damaged.ll"), "{error}");
        let other = source("other.ll", "define i32 @other() { ret i32 1 }");
        jit.add_ir_with_interface(other, &named("promised")).expect("the name is new");
        let error = told(&jit.lookup("promised").expect_err("the module does not define it"));
        assert!(error.contains("promised"), "{error}");
    }

    #[test]
    fn the_verifier_runs_unless_told_otherwise() {
        // Against the rules, and harmless.
        let contradiction = "define i32 @answer() alwaysinline noinline { ret i32 42 }";
        let lookup = |jit: Result<Jit, JitError>| -> Result<ExecutorSymbolDef, JitError> {
            let text = ObjectBuffer::new("answer.ll", contradiction.as_bytes().to_vec());
            let bitcode = ThreadSafeModule::parse_unverified(&text)?.to_bitcode()?;
            let jit = jit?;
            jit.add_ir(bitcode)?;
            jit.lookup("answer")
        };
        let builder = || Jit::builder().threads(1).optimization(OptimizationLevel::O0);
        let refused = told(&lookup(builder().build()).expect_err("the module breaks a rule"));
        assert!(refused.contains("incompatible"), "{refused}");
        assert!(lookup(builder().verify_ir(false).build()).is_ok());
    }
}
