//! Units as a program is linked from them: each with its place in link order, and without the definitions
//! that loaded libraries already have.

use uruk_core::{
    JitDylib, MaterializationInterface, MaterializationResponsibility, MaterializationUnit, SerialQueue,
    SymbolFlags, SymbolName, TaskPriority,
};
use uruk_pipeline::runtime::process::ProcessSymbols;

/// A unit whose initializer symbol is the platform's.
pub(crate) struct LinkedUnit {
    inner: Box<dyn MaterializationUnit>,
    interface: MaterializationInterface,
}

impl LinkedUnit {
    /// Wraps `inner`, whose code runs at start if looking up `initializer` is what start-up does.
    pub(crate) fn new(inner: Box<dyn MaterializationUnit>, initializer: Option<SymbolName>) -> Self {
        let mut interface = inner.interface();
        if let Some(own) = interface.initializer.take() {
            interface.symbols.remove(&own);
        }
        if let Some(initializer) = initializer {
            interface = interface.with_initializer(initializer);
        }
        Self { inner, interface }
    }

    /// Gives up the variables that a loaded library defines too.
    ///
    /// Inline variables, guards, vtables and type information exist in every unit that uses them. Natively
    /// the program and its libraries agree on one instance at load time; libraries that are loaded already
    /// use theirs, so the program has to.
    pub(crate) fn yield_to_libraries(&mut self, dylib: &JitDylib, process: &ProcessSymbols) {
        let vague = SymbolFlags::WEAK | SymbolFlags::EXPORTED;
        let not_vague = SymbolFlags::CALLABLE | SymbolFlags::COMMON | SymbolFlags::THREAD_LOCAL;
        let yielded: Vec<SymbolName> = self
            .interface
            .symbols
            .iter()
            .filter(|(name, flags)| {
                flags.contains(vague)
                    && !flags.intersects(not_vague)
                    && process.lookup(name.as_str()).is_some()
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in yielded {
            self.discard(dylib, &name);
        }
    }
}

impl MaterializationUnit for LinkedUnit {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn interface(&self) -> MaterializationInterface {
        self.interface.clone()
    }

    fn priority(&self) -> TaskPriority {
        self.inner.priority()
    }

    fn serial_queue(&self) -> Option<SerialQueue> {
        self.inner.serial_queue()
    }

    fn is_leaf(&self) -> bool {
        self.inner.is_leaf()
    }

    fn memory_bytes(&self) -> usize {
        self.inner.memory_bytes()
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        self.inner.materialize(responsibility);
    }

    fn discard(&mut self, dylib: &JitDylib, symbol: &SymbolName) {
        self.interface.symbols.remove(symbol);
        self.inner.discard(dylib, symbol);
    }
}
