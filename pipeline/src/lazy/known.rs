//! Facts about lazy functions from their definition on: names, and whether they were called or compiled ahead.

use std::collections::BTreeMap;

use uruk_core::sync::Arc;
use uruk_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uruk_core::{AliasMap, SymbolName, WeakJitDylib};

use super::order::FunctionOfFile;

/// Functions that are defined together.
pub(super) struct LazyUnit {
    file: Arc<str>,
    /// The suffix of names of functions that are local to the file.
    ends_of_locals: Box<str>,
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
}

impl LazyUnit {
    /// A unit of functions, with their bodies in `dylib`.
    pub(super) fn new(
        file: Arc<str>,
        ends_of_locals: Box<str>,
        dylib: WeakJitDylib,
        functions: &AliasMap,
    ) -> Self {
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
        };
        Self { file, ends_of_locals, dylib, functions: names.into_iter().map(known).collect() }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// The names of a function in its file.
    pub(super) fn names(&self, function: &KnownFunction) -> impl Iterator<Item = FunctionOfFile> {
        let name = |name: &SymbolName| {
            let name = name.as_str();
            FunctionOfFile::new(&self.file, name.strip_suffix(&*self.ends_of_locals).unwrap_or(name))
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
}
