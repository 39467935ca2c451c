//! Facts about lazy functions from their definition on: names, and whether they were called or compiled ahead.

use std::collections::BTreeMap;

use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uruk_core::{AliasMap, SymbolName, WeakJitDylib};

use super::order::FunctionOfFile;
use super::trace::TracedFunction;
#[cfg(feature = "llvm")]
use crate::cache::KeyBuilder;
#[cfg(feature = "llvm")]
use crate::object::ObjectBuffer;

/// The file that functions are of, for messages, orders of calls and traces.
pub(crate) struct FileOfUnit {
    pub(crate) name: Arc<str>,
    /// The suffix of names of functions that are local to the file. Orders and traces are without it.
    pub(crate) ends_of_locals: Box<str>,
    /// The beginning of the hash of its contents, if functions are noted in a trace.
    pub(crate) source: Option<u64>,
    /// The name of the unit of an image, if that has the code: it was compiled before.
    pub(crate) in_image: Option<Box<str>>,
}

impl FileOfUnit {
    /// The file of a `source`.
    #[cfg(feature = "llvm")]
    pub(crate) fn of(source: &ObjectBuffer, ends_of_locals: String, wants_source: bool) -> Self {
        let number = || {
            let mut key = KeyBuilder::new("source in a trace");
            key.bytes("source", source.bytes());
            let key = key.finish();
            key.as_bytes()[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let name = source.name().clone();
        let source = wants_source.then(number);
        Self { name, ends_of_locals: ends_of_locals.into(), source, in_image: None }
    }

    /// One whose functions all have names for others.
    pub(super) fn named(name: &str) -> Self {
        Self { name: name.into(), ends_of_locals: "".into(), source: None, in_image: None }
    }
}

/// Functions that are defined together.
pub(super) struct LazyUnit {
    file: FileOfUnit,
    /// Where the bodies are.
    pub(super) dylib: WeakJitDylib,
    pub(super) functions: Box<[KnownFunction]>,
}

/// A function as it was defined.
pub(super) struct KnownFunction {
    pub(super) body: SymbolName,
    /// Its names.
    pub(super) names: Vec<SymbolName>,
    /// The number of its first call; none is zero.
    call: AtomicU64,
    /// Whether it was compiled before that.
    is_ahead: AtomicBool,
    /// Whether its first compilation is noted in a trace.
    is_traced: AtomicBool,
}

impl LazyUnit {
    /// A unit of functions, with their bodies in `dylib`.
    pub(super) fn new(file: FileOfUnit, dylib: WeakJitDylib, functions: &AliasMap) -> Self {
        // Names of one body share a stub, which is the address of each.
        let mut names = BTreeMap::<&SymbolName, Vec<SymbolName>>::new();
        for (name, function) in functions {
            names.entry(&function.source).or_default().push(name.clone());
        }
        let known = |(body, names): (&SymbolName, _)| KnownFunction {
            body: body.clone(),
            names,
            call: AtomicU64::new(0),
            is_ahead: AtomicBool::new(false),
            is_traced: AtomicBool::new(false),
        };
        Self { file, dylib, functions: names.into_iter().map(known).collect() }
    }

    /// The name of the unit of stubs.
    pub(super) fn name(&self) -> &str {
        self.file.in_image.as_deref().unwrap_or(&self.file.name)
    }

    /// Whether the functions are compiled when they are first called.
    pub(super) fn is_compiled(&self) -> bool {
        self.file.in_image.is_none()
    }

    /// The function as a trace has it, under the least of its names.
    pub(super) fn traced(&self, function: &KnownFunction) -> Option<TracedFunction> {
        let least = self.names(function).min_by(|a, b| a.function.cmp(&b.function))?;
        Some(TracedFunction { function: least, source: self.file.source })
    }

    /// Whether the file has the contents of this hash, as far as is known.
    pub(super) fn is_of(&self, source: Option<u64>) -> bool {
        source.is_some() && source == self.file.source
    }

    /// The names of a function in its file.
    pub(super) fn names(&self, function: &KnownFunction) -> impl Iterator<Item = FunctionOfFile> {
        let name = |name: &SymbolName| {
            let name = name.as_str();
            FunctionOfFile::new(
                &self.file.name,
                name.strip_suffix(&*self.file.ends_of_locals).unwrap_or(name),
            )
        };
        function.names.iter().map(name)
    }
}

impl KnownFunction {
    /// The number of its first call among those of all functions.
    pub(super) fn first_call(&self) -> Option<u64> {
        // Relaxed: an order and a fact, for statistics and the speculator.
        Some(self.call.load(Ordering::Relaxed)).filter(|call| *call != 0)
    }

    pub(super) fn was_called(&self) -> bool {
        self.first_call().is_some()
    }

    pub(super) fn was_ahead(&self) -> bool {
        self.is_ahead.load(Ordering::Relaxed) // as in `first_call`
    }

    /// Gives its first call a number.
    pub(super) fn note_call(&self, call: u64) {
        // Relaxed: as in `first_call`. Of two that call first, one counts.
        _ = self.call.compare_exchange(0, call, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) fn note_ahead(&self) {
        self.is_ahead.store(true, Ordering::Relaxed); // as in `first_call`
    }

    /// Says whether it is the first time.
    pub(super) fn note_traced(&self) -> bool {
        !self.is_traced.swap(true, Ordering::Relaxed) // as in `first_call`
    }
}
