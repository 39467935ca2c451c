//! One loaded library, and the calls of the dynamic linker.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

/// A library that is searched. It is never unloaded: addresses out of it are everywhere.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) name: Box<str>,
    /// The handle as a number; absent while the library has not been needed, `None` if it cannot be had.
    handle: OnceLock<Option<usize>>,
}

/// Why a library cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadLibraryError {
    /// The dynamic linker refused.
    #[error("cannot load library `{path}`: {message}")]
    Refused {
        /// The library.
        path: Box<str>,
        /// The dynamic linker's message.
        message: Box<str>,
    },
}

impl Library {
    /// A library of the system: taken if it is loaded, else loaded when first needed.
    pub(super) fn system(name: &CStr) -> Self {
        let library = Self { name: name.to_string_lossy().into(), handle: OnceLock::new() };
        if let Some(handle) = open(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) {
            library.handle.get_or_init(|| Some(handle));
        }
        library
    }

    /// Loads a library now, for the whole process.
    pub(super) fn load(path: &Path) -> Result<Self, LoadLibraryError> {
        Self::load_by(path, |name| open(name, libc::RTLD_LAZY | libc::RTLD_GLOBAL).ok_or_else(last_error))
    }

    /// The same, where `open` opens it, or says why it cannot.
    pub(super) fn load_by(
        path: &Path,
        open: impl FnOnce(&CStr) -> Result<usize, String>,
    ) -> Result<Self, LoadLibraryError> {
        let refused = |message: String| {
            let path = path.to_string_lossy();
            // The dynamic linker begins with the path too.
            let message =
                message.strip_prefix(&*path).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&message);
            LoadLibraryError::Refused { path: (&*path).into(), message: message.into() }
        };
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| refused("the name contains a zero byte".to_owned()))?;
        let handle = open(&name).map_err(refused)?;
        Ok(Self { name: path.to_string_lossy().into(), handle: OnceLock::from(Some(handle)) })
    }

    /// The handle, if it is in the process already.
    pub(super) fn handle(&self) -> Option<usize> {
        self.handle.get().copied().flatten()
    }

    /// Whether it is in the process already.
    pub(super) fn is_loaded(&self) -> bool {
        self.handle().is_some()
    }

    /// The address of `name` here, or in a library that this one depends on. Loads the library if need be.
    pub(super) fn find(&self, name: &LibraryName) -> Option<u64> {
        let load = || {
            let library = CString::new(&*self.name).ok()?;
            open(&library, libc::RTLD_LAZY | libc::RTLD_GLOBAL)
        };
        let handle = (*self.handle.get_or_init(load))?;
        find(ptr::with_exposed_provenance_mut(handle), name)
    }

    /// Whether both are the same library.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.handle().is_some_and(|handle| other.handle() == Some(handle))
    }
}

/// An object's name for a library's symbol: `name`, or `name@VERSION` where it asks for one of several.
#[derive(Debug)]
pub(super) struct LibraryName {
    symbol: CString,
    version: Option<CString>,
}

impl LibraryName {
    /// Splits `name`. `None` if it contains a zero byte, as no symbol of a library does.
    pub(super) fn new(name: &str) -> Option<Self> {
        let (symbol, version) = match name.split_once('@') {
            // The default version is written with two signs.
            Some((symbol, version)) => (symbol, Some(version.trim_start_matches('@'))),
            None => (name, None),
        };
        let version = version.map(CString::new).transpose().ok()?;
        Some(Self { symbol: CString::new(symbol).ok()?, version })
    }

    /// A library's own name for its symbol, in its default version.
    pub(super) fn of_default(symbol: &CStr) -> Self {
        Self { symbol: symbol.to_owned(), version: None }
    }

    /// The symbol's name in its library.
    pub(super) fn symbol(&self) -> &CStr {
        &self.symbol
    }

    /// The name without its version.
    pub(super) fn unversioned(name: &str) -> &str {
        name.split_once('@').map_or(name, |(symbol, _)| symbol)
    }
}

/// The address of `name` in the scope of `handle`.
pub(super) fn find(handle: *mut c_void, name: &LibraryName) -> Option<u64> {
    // SAFETY: the handle is one of `dlopen` that is never closed, or a constant of the interface.
    let address = unsafe {
        match &name.version {
            Some(version) => libc::dlvsym(handle, name.symbol.as_ptr(), version.as_ptr()),
            None => libc::dlsym(handle, name.symbol.as_ptr()),
        }
    };
    (!address.is_null()).then(|| address.expose_provenance() as u64)
}

pub(super) fn open(name: &CStr, flags: i32) -> Option<usize> {
    // SAFETY: loading runs the library's constructors, as its user wants; nothing else is touched.
    let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
    (!handle.is_null()).then(|| handle.expose_provenance())
}

/// The dynamic linker's message about the last failure on this thread.
pub(super) fn last_error() -> String {
    // SAFETY: the answer is null or a terminated string that stays until the next call on this thread.
    unsafe {
        let message = libc::dlerror();
        if message.is_null() {
            "no reason given".into()
        } else {
            CStr::from_ptr(message).to_string_lossy().into()
        }
    }
}
