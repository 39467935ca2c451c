//! Interned symbol names: a stand-in with the final surface.

use std::fmt;

use rustc_hash::FxHashSet;

use crate::sync::{Arc, Mutex};

/// Interns symbol names, so that equal names are one object.
#[derive(Clone, Debug, Default)]
pub struct SymbolStringPool(Arc<Mutex<FxHashSet<Arc<str>>>>);

impl SymbolStringPool {
    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// The one name with these characters.
    pub fn intern(&self, name: &str) -> SymbolName {
        let mut names = self.0.lock();
        if let Some(found) = names.get(name) {
            return SymbolName(found.clone());
        }
        let fresh: Arc<str> = name.into();
        names.insert(fresh.clone());
        SymbolName(fresh)
    }
}

/// An interned symbol name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SymbolName(Arc<str>);

impl SymbolName {
    /// The characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for SymbolName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SymbolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SymbolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
