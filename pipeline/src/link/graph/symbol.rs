//! Symbols: names for places, and how they compete.

use super::{BlockId, Name, ObjectId};

/// Where a symbol is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In another object, the process, or nowhere.
    Undefined,
    /// At an offset in a block; one that is larger than the block leads out of it, and wraps around.
    Block(BlockId, u64),
    /// A number.
    Absolute(u64),
    /// Nowhere: the name of a source file, or a place in unwind tables without a record.
    NotLoaded,
    /// The start of the graph's global offset table.
    GotBase,
    /// Eight bytes of zero that are the graph's own: `__dso_handle`, by which code says who it is.
    DsoHandle,
    /// The start of the graph's thread-local module: `_TLS_MODULE_BASE_`.
    TlsModuleBase,
    /// The start of all sections with a name; an index into the layout's bounds.
    SectionStart(u32),
    /// The end of all sections with a name; an index into the layout's bounds.
    SectionStop(u32),
}

/// How a symbol competes with others of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Known within its object only.
    Local,
    /// The one definition, or a reference that must be satisfied.
    Strong,
    /// Yields to a strong definition; as a reference, may stay undefined.
    Weak,
}

/// The kind of thing that a symbol names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolKind {
    /// The object does not say.
    Unknown,
    /// Data.
    Data,
    /// Code.
    Code,
    /// A function that returns the address of the code.
    IndirectFunction,
    /// A thread-local variable.
    ThreadLocal,
    /// The start of a section.
    Section,
}

/// A name for a place.
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    pub(in crate::link) name: Name,
    pub(in crate::link) location: Location,
    pub(in crate::link) size: u64,
    pub(in crate::link) object: ObjectId,
    pub(in crate::link) binding: Binding,
    pub(in crate::link) kind: SymbolKind,
    /// Default or protected visibility.
    pub(in crate::link) exported: bool,
    /// A tentative definition.
    pub(in crate::link) common: bool,
}

impl Symbol {
    /// Where the symbol is.
    pub fn location(&self) -> Location {
        self.location
    }

    /// How the symbol competes.
    pub fn binding(&self) -> Binding {
        self.binding
    }

    /// The kind of thing that the symbol names.
    pub fn kind(&self) -> SymbolKind {
        self.kind
    }

    /// Whether other dylibs may see the symbol.
    pub fn is_exported(&self) -> bool {
        self.exported
    }
}
