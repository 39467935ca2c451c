//! Traits of a file that are known before it is compiled or linked.

use std::fmt;

use uruk_core::SymbolName;
use uruk_core::sync::Arc;

/// Facts about a unit before it is compiled.
#[derive(Clone, Debug, Default)]
pub struct UnitTraits {
    /// Whether it has sections that lie next to those of the same name in other units, or asks where they are.
    pub shares_sections: bool,
    /// A measure of how long compiling it takes: the size of its source. Zero if it is compiled already.
    pub work_bytes: usize,
    /// Whether a program that refers to nothing of it runs the same without it.
    pub is_passive: bool,
    /// Whether it has initializers.
    pub runs_at_start: bool,
    /// Its functions that are compiled when they are called. Linking the unit does not show what they miss.
    pub compiled_on_call: Option<CompiledOnCall>,
    /// Its definitions and references, as far as they are known.
    pub references: References,
}

/// Definitions that a file gives to a program, and references that it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Definitions that no other file can replace.
    pub defined: Box<[SymbolName]>,
    /// References without a definition of its own, weak ones left out.
    pub undefined: Box<[SymbolName]>,
}

/// Functions of a unit that are compiled when they are called: those that take part in a program as if the unit were compiled as a whole.
#[derive(Clone)]
pub struct CompiledOnCall(Arc<dyn Fn() -> Vec<SymbolName> + Send + Sync>);

impl CompiledOnCall {
    /// `bodies` finds out under which names they are compiled. It is asked only if something is missing.
    pub fn new(bodies: impl Fn() -> Vec<SymbolName> + Send + Sync + 'static) -> Self {
        Self(Arc::new(bodies))
    }

    /// Under which names they are compiled.
    pub fn bodies(&self) -> Vec<SymbolName> {
        (self.0)()
    }
}

impl fmt::Debug for CompiledOnCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompiledOnCall")
    }
}
