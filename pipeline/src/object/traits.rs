//! Traits of a file that are known before it is compiled or linked.

use std::fmt;

use uruk_core::SymbolName;
use uruk_core::sync::Arc;

/// What matters about a unit before it is compiled.
#[derive(Clone, Debug, Default)]
pub struct UnitTraits {
    /// Whether it has sections that lie next to those of the same name in other units, or asks where they are.
    pub shares_sections: bool,
    /// A measure of how long compiling it takes: the size of its source. Zero for what is compiled already.
    pub work_bytes: usize,
    /// Whether a program that refers to nothing of it runs the same without it.
    pub is_passive: bool,
    /// Whether it has initializers.
    pub runs_at_start: bool,
    /// Its functions that are compiled when they are called: linking the unit does not say what they miss.
    pub compiled_on_call: Option<CompiledOnCall>,
    /// What it defines and refers to, as far as that is known.
    pub references: References,
}

/// What a file gives to a program, and what it cannot do without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// What it defines, and nobody else can.
    pub defined: Box<[SymbolName]>,
    /// What it refers to and does not define. Weak references are left out.
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
