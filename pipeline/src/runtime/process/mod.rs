//! Symbols of the process: those that linked code finds in the C library and its friends, and in loaded libraries.
//!
//! A native program sees the libraries it was linked with, not the libraries that the engine happens to be made
//! of. So the search goes over a list of libraries: those that `LD_PRELOAD` names, those that were loaded by
//! [`ProcessSymbols::load_library`] in order and what those need (`scope.rs`), then the system's. Memory allocation functions are an exception: they are
//! taken from where the process itself takes them, because memory passes between linked code and libraries.
//!
//! Thread-local variables come back as the address of a descriptor (see [`tls`](super::tls)).

mod copies;
pub(super) mod entries;
mod generator;
mod handlers;
mod images;
mod instances;
mod library;
pub(super) mod overrides;
mod program;
mod scope;
mod stand_in;

use std::collections::HashSet;
use std::ffi::CString;
use std::fmt;
use std::path::Path;
use std::ptr;

#[cfg(doc)]
use uruk_core::ExecutionSession;
use uruk_core::sync::{Arc, Mutex};
use uruk_core::{ExecutorSymbolDef, JitDylib, SymbolFlags, WeakJitDylib};

#[cfg(feature = "helpers")]
pub(crate) use copies::moved_variable;
pub(crate) use copies::{is_variable, low_variable};
pub(crate) use entries::KnownEntry;
pub use generator::ProcessSymbolsGenerator;
pub use library::LoadLibraryError;
pub use overrides::{ProgramSymbols, jit_overrides, set_program_symbols};
pub use program::LibraryReferences;

use crate::arch::host;
use images::Images;
use library::{Library, LibraryName};
use program::ForProgram;
use scope::{Scope, is_of_process};

/// A view of the symbols in this process.
///
/// # Concurrency
/// Any thread may look up and load. No lock is held while the dynamic linker works, so constructors of libraries
/// may call back.
///
/// ORC: `DynamicLibrarySearchGenerator`, `EPCDynamicLibrarySearchGenerator`.
#[doc(alias = "DynamicLibrarySearchGenerator")]
pub struct ProcessSymbols {
    scope: LookupScope,
    allowed: Option<HashSet<Box<str>>>,
    /// Loaded on request, in order, behind the preloaded ones. Replaced as a whole.
    loaded: Mutex<Arc<LoadedLibraries>>,
    system: Vec<Library>,
    images: Images,
    /// State for a program, if the process is for one.
    program: Option<ForProgram>,
    /// Dylibs that define what is found here. Their sessions hear of each library that comes.
    told: Mutex<Vec<WeakJitDylib>>,
}

/// Libraries that were named, and the order in which they and those that they need are searched.
#[derive(Debug, Default)]
struct LoadedLibraries {
    named: Vec<Arc<Library>>,
    scope: Scope,
    /// Those that came with them, by the offsets that are added to their addresses.
    came: Vec<u64>,
}

impl LoadedLibraries {
    fn new(named: Vec<Arc<Library>>, came: Vec<u64>) -> Self {
        let scope = Scope::of(handles(&named));
        Self { named, scope, came }
    }
}

fn handles(libraries: &[Arc<Library>]) -> impl Iterator<Item = usize> {
    libraries.iter().filter_map(|library| library.handle())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookupScope {
    /// One library, and its dependencies.
    OneLibrary,
    Libraries,
    WholeProcess,
}

impl ProcessSymbols {
    /// The libraries a C or C++ program is linked with, and nothing of the engine.
    pub fn new() -> Self {
        let preloaded: Vec<_> = preloaded().into_iter().map(Arc::new).collect();
        let system = [c"libc.so.6", c"libm.so.6", c"libgcc_s.so.1", host::DYNAMIC_LINKER, c"libstdc++.so.6"];
        Self {
            scope: LookupScope::Libraries,
            allowed: None,
            loaded: Mutex::new(Arc::new(LoadedLibraries::new(preloaded, Vec::new()))),
            system: system.into_iter().map(Library::system).collect(),
            images: Images::default(),
            program: None,
            told: Mutex::default(),
        }
    }

    /// The same for a process that is a program's alone: libraries that are loaded may refer to the program, and use the program's
    /// definitions where natively they would (`program.rs`). Their constructors run when the program starts.
    pub fn of_program() -> Self {
        Self { program: Some(ForProgram::default()), ..Self::new() }
    }

    /// Everything that the process itself can see: the executable's exports, its libraries, and libraries that are loaded globally.
    pub fn whole_process() -> Self {
        Self { scope: LookupScope::WholeProcess, ..Self::new() }
    }

    /// One shared library, which is loaded now and for good: its exports, and those of the libraries it depends on.
    ///
    /// With a [`ProcessSymbolsGenerator`] over it, a dylib stands for that library.
    ///
    /// # Errors
    /// [`LoadLibraryError`] with the dynamic linker's message.
    ///
    /// ORC: `DynamicLibrarySearchGenerator::Load`.
    pub fn of_library(path: impl AsRef<Path>) -> Result<Self, LoadLibraryError> {
        let mut came = Vec::new();
        let library = scope::load(path.as_ref(), Vec::new(), &mut came)?;
        let loaded = Mutex::new(Arc::new(LoadedLibraries::new(vec![Arc::new(library)], came)));
        Ok(Self { scope: LookupScope::OneLibrary, loaded, system: Vec::new(), ..Self::new() })
    }

    /// Restricts the view to `names`; all other symbols are unknown.
    #[must_use]
    pub fn allow_only<LibraryName: Into<Box<str>>>(
        mut self,
        names: impl IntoIterator<Item = LibraryName>,
    ) -> Self {
        self.allowed = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Loads a library, for good, and searches it behind those loaded before.
    ///
    /// A name without a slash is searched for as the dynamic linker does.
    ///
    /// # Errors
    /// [`LoadLibraryError`] with the dynamic linker's message.
    pub fn load_library(&self, path: impl AsRef<Path>) -> Result<(), LoadLibraryError> {
        let mut came = Vec::new();
        let library = match &self.program {
            Some(program) => program.load(path.as_ref())?,
            None if self.scope == LookupScope::WholeProcess => Library::load(path.as_ref())?,
            None => {
                let loaded = Arc::clone(&self.loaded.lock());
                came.clone_from(&loaded.came);
                scope::load(path.as_ref(), handles(&loaded.named).collect(), &mut came)?
            }
        };
        let mut loaded = self.loaded.lock();
        came.extend(&loaded.came);
        if !loaded.named.iter().any(|known| known.is(&library)) {
            let named = loaded.named.iter().cloned().chain([Arc::new(library)]).collect();
            *loaded = Arc::new(LoadedLibraries::new(named, came));
        }
        drop(loaded);
        self.tell();
        Ok(())
    }

    /// Will tell the session of `dylib` when a library comes: see [`ExecutionSession::generators_changed`].
    fn will_tell(&self, dylib: &JitDylib) {
        let mut told = self.told.lock();
        if !told.iter().any(|known| known.is(dylib)) {
            told.retain(|known| !known.is_gone());
            told.push(dylib.downgrade());
        }
    }

    /// A library has come.
    fn tell(&self) {
        let told = self.told.lock().clone();
        told.iter().filter_map(WeakJitDylib::upgrade).for_each(|dylib| dylib.session().generators_changed());
    }

    /// Whether `name` that is not found is found only when a library has come through these symbols. Other code of the process loads
    /// libraries too, but these are searched for some names alone.
    fn is_certain_of(&self, name: &str) -> bool {
        match self.scope {
            LookupScope::OneLibrary => true,
            LookupScope::Libraries => !is_allocation_function(LibraryName::unversioned(name)),
            LookupScope::WholeProcess => false,
        }
    }

    /// The definition of `name`, which may ask for a version (`memcpy@GLIBC_2.2.5`).
    ///
    /// # Cost
    /// A hash lookup in each library on the way.
    pub fn lookup(&self, name: &str) -> Option<ExecutorSymbolDef> {
        if !self.allows(name) {
            return None;
        }
        let symbol = LibraryName::new(name)?;
        let name = LibraryName::unversioned(name);
        let from_process = || library::find(ptr::null_mut(), &symbol);
        let loaded = Arc::clone(&self.loaded.lock());
        let from_libraries = || {
            let system = |library: &&Library| library.is_loaded() || may_load(library, name);
            loaded.scope.find(&symbol).or_else(|| {
                self.system.iter().filter(system).find_map(|library| self.find_in(library, &symbol))
            })
        };
        let address = match self.scope {
            LookupScope::OneLibrary => from_libraries(),
            LookupScope::Libraries if !is_allocation_function(name) => from_libraries(),
            LookupScope::Libraries if self.program.is_none() && !is_of_process(symbol.symbol()) => {
                let of_libraries = loaded.scope.find_in(&loaded.came, symbol.symbol());
                of_libraries.or_else(from_process).or_else(from_libraries)
            }
            LookupScope::Libraries | LookupScope::WholeProcess => from_process().or_else(from_libraries),
        };
        let found = self.images.describe(address?);
        if !found.flags.intersects(SymbolFlags::CALLABLE | SymbolFlags::THREAD_LOCAL)
            && !loaded.scope.lies_in(&self.came(&loaded), found.address.value())
            && let Some(copy) = from_process().filter(|&address| copies::is_executables(address))
        {
            // An executable built without -fPIC has copies of the variables of libraries that it uses itself, and
            // everybody else uses those then.
            return Some(self.images.describe(copy));
        }
        Some(found)
    }

    /// The libraries that linked code has brought into the process, by the offsets that are added to their addresses.
    fn came(&self, loaded: &LoadedLibraries) -> Vec<u64> {
        self.program.as_ref().map_or_else(|| loaded.came.clone(), ForProgram::bases)
    }

    /// The address of a symbol in a library of the system, which may have to be loaded.
    fn find_in(&self, library: &Library, symbol: &LibraryName) -> Option<u64> {
        let was_loaded = library.is_loaded();
        let found = library.find(symbol);
        if !was_loaded && library.is_loaded() {
            self.tell();
        }
        found
    }

    /// Whether linked code is to have the engine's functions in place of some of the process's.
    fn is_overridden(&self) -> bool {
        self.scope != LookupScope::OneLibrary
    }

    /// Whether the allow-list lets `name` pass, in any version.
    fn allows(&self, name: &str) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(LibraryName::unversioned(name)))
    }

    /// Where symbols are searched, for messages about missing ones.
    pub fn searched(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.loaded.lock().named.iter().map(|library| library.name.to_string()).collect();
        names.extend(self.system.iter().map(|library| library.name.to_string()));
        if self.scope == LookupScope::WholeProcess {
            names.insert(0, "the process".into());
        }
        names
    }
}

impl Default for ProcessSymbols {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ProcessSymbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessSymbols").field("searched", &self.searched()).finish_non_exhaustive()
    }
}

/// Whether a miss of `name` is a reason to load a system library that is not there yet. The C++ library is loaded only for names that look
/// like C++: a C program with an absent weak reference should not pay for it.
fn may_load(library: &Library, name: &str) -> bool {
    const CXX: [&str; 5] = ["_Z", "__cxa_", "__gxx_", "__gnu_cxx", "__dynamic_cast"];
    !library.name.starts_with("libstdc++") || CXX.iter().any(|prefix| name.starts_with(prefix))
}

/// Functions whose results are freed, or whose arguments were allocated, on the other side.
fn is_allocation_function(name: &str) -> bool {
    const C: [&str; 16] = [
        "malloc",
        "free",
        "calloc",
        "realloc",
        "reallocarray",
        "memalign",
        "aligned_alloc",
        "posix_memalign",
        "valloc",
        "pvalloc",
        "malloc_usable_size",
        "malloc_trim",
        "mallinfo2",
        "mallopt",
        "malloc_stats",
        "cfree",
    ];
    // operator new, new[], delete, delete[] in all their forms
    C.contains(&name) || ["_Znw", "_Zna", "_Zdl", "_Zda"].iter().any(|prefix| name.starts_with(prefix))
}

/// The libraries that `LD_PRELOAD` put in front of all others.
fn preloaded() -> Vec<Library> {
    let Some(names) = std::env::var_os("LD_PRELOAD") else { return Vec::new() };
    names
        .to_string_lossy()
        .split([' ', ':'])
        .filter_map(|name| CString::new(name).ok())
        .filter(|name| !name.is_empty())
        .map(|name| Library::system(&name))
        .filter(Library::is_loaded)
        .collect()
}
