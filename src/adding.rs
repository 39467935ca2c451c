//! How files are added to a dylib.

use std::error::Error;
use std::path::{Path, PathBuf};

#[cfg(feature = "llvm")]
use uruk_core::SymbolName;
use uruk_core::sync::Arc;
use uruk_core::{ExecutionSession, MaterializationUnit, ResourceTracker, SymbolFlags};
use uruk_pipeline::image::ImageFile;
#[cfg(feature = "cache")]
use uruk_pipeline::image::UnitKey;
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::inkwell::module::Module;
#[cfg(feature = "llvm")]
use uruk_pipeline::ir::{LinkerInfo, ModuleInterface, OptimizationPipeline, ThreadSafeModule};
use uruk_pipeline::object::{FileKind, ObjectBuffer, UnitTraits, foreign_format};

use crate::error::JitError;
use crate::files::Files;
use crate::image_options::ImageOptions;
use crate::object_unit::ObjectUnit;
use crate::scope::Scope;
use crate::units::FileUnits;

impl Scope {
    /// Adds a file of any kind: textual IR, bitcode, object, archive, shared library, or [image](Self::load_image).
    ///
    /// Its first bytes say what it is. A name that ends in `.ll` says so too: what is wrong with such a file, LLVM tells.
    ///
    /// # Errors
    /// [`JitError`], which names the file and what is wrong with it.
    pub fn add_file(&self, path: impl AsRef<Path>) -> Result<(), JitError> {
        let path = path.as_ref();
        if ImageFile::is_image(path) {
            return self.load_image(path, ImageOptions::new()).map(drop);
        }
        let file = ObjectBuffer::open(path)
            .map_err(|source| JitError::Read { path: path.to_owned(), source: Arc::new(source) })?;
        match FileKind::of(file.bytes()) {
            // The dynamic linker searches its own directories for a name without one.
            FileKind::SharedLibrary if path.parent() == Some(Path::new("")) => {
                self.load_library(Path::new(".").join(path))
            }
            FileKind::SharedLibrary => self.load_library(path),
            #[cfg(feature = "llvm")]
            FileKind::Other
                if path.extension().is_some_and(|extension| extension == "ll")
                    && foreign_format(file.bytes()).is_none() =>
            {
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
        let foreign =
            |what: &str| Err(JitError::Foreign { path: PathBuf::from(&**file.name()), what: what.into() });
        match FileKind::of(file.bytes()) {
            FileKind::Empty => foreign("the file is empty"),
            FileKind::Object => self.add_object(file),
            FileKind::Archive | FileKind::ThinArchive => self.add_archive(&file),
            FileKind::SharedLibrary => foreign("a shared library is loaded from a file, by its path"),
            FileKind::OtherElf => foreign(
                "an ELF file that is linked already, or cut off; name the relocatable objects (.o) it was made of, or a shared library (.so)",
            ),
            #[cfg(feature = "llvm")]
            FileKind::Bitcode | FileKind::TextualIr => self.add_ir(file),
            _ => match foreign_format(file.bytes()) {
                Some(what) => foreign(&what),
                None if cfg!(feature = "llvm") => {
                    foreign("neither LLVM IR, an object, an archive nor a shared library")
                }
                None => foreign("neither an object, an archive nor a shared library"),
            },
        }
    }

    /// Adds a module of LLVM IR from memory: bitcode or text, named by the buffer. It is compiled when something of it is wanted.
    ///
    /// # Errors
    /// [`JitError::Compile`] if it cannot be read, [`JitError::Define`] if its symbols are refused or the scope's tracker was removed.
    #[cfg(feature = "llvm")]
    pub fn add_ir(&self, source: ObjectBuffer) -> Result<(), JitError> {
        let (files, tracker) = (&*self.engine.files, self.tracker());
        files.add(&files.modules, &tracker, source)
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
        self.add_units(|files, tracker| files.modules.units_of_interface(tracker, source, interface))
    }

    /// Adds a module of LLVM IR whose names are unique in it alone: what they mean in the program, what it defines and what it refers to,
    /// says `info`. The linker is told; the compiler and the [cache](crate::JitBuilder::cache) are not, so the same module is found in
    /// a cache, independent of the meaning of its names.
    ///
    /// # Errors
    /// As [`Scope::add_ir`]. That a meaning is not defined fails what needs it, when it is linked.
    ///
    /// # Examples
    /// Two compiles of one module, which calls something else each time:
    /// ```
    /// use uruk::pipeline::ir::LinkerInfo;
    /// use uruk::pipeline::object::ObjectBuffer;
    ///
    /// # fn main() -> Result<(), uruk::JitError> {
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// jit.add_ir_text("callees.ll", "define i64 @one() { ret i64 1 } define i64 @two() { ret i64 2 }")?;
    /// let module = "declare i64 @callee() define i64 @f() { %x = call i64 @callee() %y = add i64 %x, 40 ret i64 %y }";
    /// for (name, callee) in [("f#1", "one"), ("f#2", "two")] {
    ///     let info = LinkerInfo::new().define("f", name).refer_to("callee", callee);
    ///     jit.add_translation_unit(ObjectBuffer::new("f.ll", module.as_bytes()), info)?;
    /// }
    /// // SAFETY: that is the function's signature.
    /// let second = unsafe { jit.get::<extern "C" fn() -> i64>("f#2") }?;
    /// assert_eq!(second(), 42);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "llvm")]
    pub fn add_translation_unit(&self, source: ObjectBuffer, info: LinkerInfo) -> Result<(), JitError> {
        self.add_units(|files, tracker| files.modules.units_of_translation(tracker, source, info))
    }

    /// Adds a module that the [cache](crate::JitBuilder::cache) knows by its *shape*: addresses of this process that it has as constants, and the
    /// names of its definitions, do not count. So a query that was compiled before, here or by another process, is linked and not compiled, although
    /// its structures lie elsewhere and its functions are numbered anew. The result is that of [`add_module`](Self::add_module).
    ///
    /// An address is an `i64`, or an `inttoptr` of one, from 0x5500_0000_0000 up to 2^47; whether it is one does not matter. A module with aliases,
    /// assembly, COMDATs, sections, constructors or debug information has no shape: the cache knows it by its contents.
    ///
    /// `passes` run instead of the engine's own, and only if the module is compiled. `name` is for messages. The module stays the caller's, and is
    /// not used after this returns. Answers the definitions that others see.
    ///
    /// # Concurrency
    /// Uses the module's context on this thread alone. Of all who want one shape at a time, one compiles it, and the others wait when they want a
    /// symbol of it.
    ///
    /// # Errors
    /// [`JitError::Compile`] if the module breaks LLVM's rules, which a hit does not look for, or the engine
    /// [compiles in helpers](crate::JitBuilder::compile_in), which do not see shapes; [`JitError::Define`] if its symbols are refused.
    ///
    /// # Cost
    /// A hit reads the module once; a miss copies it by way of bitcode, and compiles it when something of it is wanted. Code loads
    /// addresses from a table; addresses at most 64 bytes apart are found from one.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use uruk::pipeline::cache::MemoryCache;
    /// use uruk::pipeline::ir::ThreadSafeModule;
    /// use uruk::pipeline::object::ObjectBuffer;
    ///
    /// # fn main() -> Result<(), uruk::JitError> {
    /// let jit = uruk::Jit::builder().threads(1).cache(Arc::new(MemoryCache::new(1 << 20))).build()?;
    /// for (number, row) in [Box::new(40_i64), Box::new(2)].into_iter().map(Box::leak).enumerate() {
    ///     let text = format!(
    ///         "define i64 @query_{number}() {{ %x = load i64, ptr inttoptr (i64 {} to ptr) ret i64 %x }}",
    ///         std::ptr::from_ref(row).addr(),
    ///     );
    ///     let module = ThreadSafeModule::parse(&ObjectBuffer::new("query.ll", text.into_bytes()))?;
    ///     module.with_module(|module| jit.add_shaped("query", module, None))??;
    ///     // SAFETY: that is the function's signature.
    ///     let query = unsafe { jit.get::<extern "C" fn() -> i64>(&format!("query_{number}")) }?;
    ///     assert_eq!(query(), *row);
    /// }
    /// // The second was not compiled.
    /// assert_eq!(jit.cache_stats().unwrap().object_misses, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "llvm")]
    pub fn add_shaped(
        &self,
        name: &str,
        module: &Module<'_>,
        passes: Option<&OptimizationPipeline>,
    ) -> Result<Vec<SymbolName>, JitError> {
        let (files, tracker) = (&*self.engine.files, self.tracker());
        let units = files.modules.units_of_shape(&tracker, name, module, passes)?;
        let names = units.unit.interface().symbols.into_keys().collect();
        files.define(&tracker, units)?;
        Ok(names)
    }

    /// [`add_shaped`](Self::add_shaped) for a module in bitcode or text.
    ///
    /// # Cost
    /// The source is read and verified first, into a context of its own.
    ///
    /// # Errors
    /// As there, and [`JitError::Compile`] if it cannot be read.
    #[cfg(feature = "llvm")]
    pub fn add_shaped_ir(
        &self,
        source: &ObjectBuffer,
        passes: Option<&OptimizationPipeline>,
    ) -> Result<Vec<SymbolName>, JitError> {
        self.engine.files.modules.refuse_shapes()?;
        let module = ThreadSafeModule::parse(source)?;
        module.with_module(|module| self.add_shaped(source.name(), module, passes))?
    }

    /// Adds a module of textual LLVM IR under a name for messages.
    ///
    /// # Errors
    /// As [`Scope::add_ir`].
    #[cfg(feature = "llvm")]
    pub fn add_ir_text(&self, name: &str, text: &str) -> Result<(), JitError> {
        self.add_ir(ObjectBuffer::new(name, text.as_bytes().to_vec()))
    }

    /// Adds a module that was built in memory. Where functions are [compiled when they are called](crate::JitBuilder::compile_on_call), or in
    /// [tiers](crate::JitBuilder::tiers), so are those of the module.
    ///
    /// # Cost
    /// There the module is written as bitcode first, and verified when it is read.
    ///
    /// # Errors
    /// As [`Scope::add_ir`].
    #[cfg(feature = "llvm")]
    pub fn add_module(&self, module: ThreadSafeModule) -> Result<(), JitError> {
        self.add_units(|files, tracker| files.modules.units_of_module(tracker, module))
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
        let (files, tracker) = (&*self.engine.files, self.tracker());
        files.add(&files.objects, &tracker, object)
    }

    /// The key of a file as a source of an [image](crate::ImageOptions::source): of its contents, and of the options that it is compiled with
    /// here. It is the same on every machine and in every directory.
    ///
    /// # Cost
    /// One hash of the file.
    #[cfg(feature = "cache")]
    pub fn key_of_source(&self, source: &ObjectBuffer) -> UnitKey {
        self.engine.files.key_of_source(source)
    }

    /// Adds a static archive, whose members join the program when something needs them, or when they give a value to a
    /// variable that files define tentatively. In a tracker's scope those members belong to the tracker, and when it is removed the archive
    /// serves nothing more.
    ///
    /// # Errors
    /// [`JitError::Object`] if the archive is broken.
    pub fn add_archive(&self, archive: &ObjectBuffer) -> Result<(), JitError> {
        self.check_open()?;
        self.engine.files.add_archive(&self.tracker(), archive, self.is_of_tracker())
    }

    /// Loads a shared library for the whole process, and searches it for symbols from now on.
    ///
    /// # Errors
    /// [`JitError::LoadLibrary`] with the dynamic linker's message.
    pub fn load_library(&self, path: impl AsRef<Path>) -> Result<(), JitError> {
        self.check_open()?;
        #[cfg(feature = "llvm")]
        if let Some(remote) = &self.engine.remote {
            remote.executor.load_library(path.as_ref())?;
            self.session().generators_changed();
            return Ok(());
        }
        Ok(self.engine.files.process.load_library(path)?)
    }

    /// Adds any unit, as a file that takes part in the program: it gets a place in the order of
    /// initialisation, and [`Jit::link`](crate::Jit::link) materializes it.
    ///
    /// # Errors
    /// [`JitError::Define`] if its symbols are refused.
    pub fn add_unit(&self, unit: Box<dyn MaterializationUnit>) -> Result<(), JitError> {
        self.add_units(|_, _| Ok(FileUnits::alone(unit, UnitTraits::default())))
    }

    /// Adds functions that a compiler of one's own makes: `compile` is called once, when one of them is first looked up, and gives a relocatable
    /// object that defines them.
    ///
    /// References of the object are found as those of any other are. Its other definitions are its own.
    ///
    /// # Concurrency
    /// `compile` runs on a compile thread, under no lock, and may look symbols up. If it panics, the functions fail.
    ///
    /// # Errors
    /// [`JitError::Define`] if a name is defined already, or the scope's tracker was removed. An error of `compile` fails the functions.
    ///
    /// # Panics
    /// If there are no functions.
    ///
    /// # Examples
    /// ```
    /// # #[cfg(feature = "llvm")]
    /// # fn main() -> Result<(), uruk::JitError> {
    /// # use uruk::pipeline::ir::ThreadSafeModule;
    /// # use uruk::pipeline::object::ObjectBuffer;
    /// # let jit = uruk::Jit::builder().threads(1).build()?;
    /// # let compiler = jit.ir_layer().compiler().clone();
    /// # let compile = move |name: &str, source: &str| {
    /// #     ThreadSafeModule::parse(&ObjectBuffer::new(name, source.as_bytes().to_vec())).and_then(|module| compiler.compile(module))
    /// # };
    /// // `compile` is any function from a source to the bytes of an object.
    /// jit.add_object_fn(["f"], move || compile("f", "define i64 @f() { ret i64 42 }"))?;
    /// // SAFETY: that is the function's signature.
    /// let f = unsafe { jit.get::<extern "C" fn() -> i64>("f") }?;
    /// assert_eq!(f(), 42);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "llvm"))]
    /// # fn main() {}
    /// ```
    pub fn add_object_fn<'n, E: Into<Box<dyn Error + Send + Sync>> + 'static>(
        &self,
        functions: impl IntoIterator<Item = &'n str>,
        compile: impl FnOnce() -> Result<ObjectBuffer, E> + Send + 'static,
    ) -> Result<(), JitError> {
        self.add_object_unit(functions, |_| compile())
    }

    /// As [`add_object_fn`](Self::add_object_fn), with the session for `compile`.
    pub(crate) fn add_object_unit<'n, E: Into<Box<dyn Error + Send + Sync>> + 'static>(
        &self,
        functions: impl IntoIterator<Item = &'n str>,
        compile: impl FnOnce(&ExecutionSession) -> Result<ObjectBuffer, E> + Send + 'static,
    ) -> Result<(), JitError> {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        let names: Vec<_> = functions.into_iter().map(|function| self.intern(function)).collect();
        let name = names.first().expect("a unit promises at least one function").clone();
        let symbols = names.into_iter().map(|name| (name, flags)).collect();
        self.add_unit(Box::new(ObjectUnit { name, symbols, layer: self.object_layer().clone(), compile }))
    }

    fn add_units(
        &self,
        units: impl FnOnce(&Files, &ResourceTracker) -> Result<FileUnits, JitError>,
    ) -> Result<(), JitError> {
        let (files, tracker) = (&*self.engine.files, self.tracker());
        files.define(&tracker, units(files, &tracker)?)
    }
}
