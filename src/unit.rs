//! Units as a program is linked from them: each with its place in link order, and without the definitions
//! that loaded libraries already have.

use uruk_core::{
    JitDylib, MaterializationInterface, MaterializationResponsibility, MaterializationUnit, SerialQueue,
    SymbolFlags, SymbolName, TaskPriority,
};
use uruk_pipeline::platform::Declaration;
use uruk_pipeline::runtime::process::ProcessSymbols;

/// A unit whose initializer symbol is the platform's.
pub(crate) struct LinkedUnit {
    inner: Box<dyn MaterializationUnit>,
    interface: MaterializationInterface,
    declaration: Declaration,
    /// It may be made once more.
    leaves_spare: bool,
}

impl LinkedUnit {
    /// Wraps `inner`, whose code runs at start if looking up what was declared for it is what start-up does.
    pub(crate) fn new(
        inner: Box<dyn MaterializationUnit>,
        declaration: Declaration,
        leaves_spare: bool,
    ) -> Self {
        let mut interface = inner.interface();
        if let Some(own) = interface.initializer.take() {
            interface.symbols.remove(&own);
        }
        let interface = interface.with_initializer(declaration.symbol().clone());
        Self { inner, interface, declaration, leaves_spare }
    }

    /// Gives up the variables that a loaded library defines too.
    ///
    /// Inline variables, guards, vtables and type information exist in every unit that uses them. Natively
    /// the program and its libraries agree on one instance at load time; libraries that have run already
    /// use theirs, so the program has to (`pipeline/README.md`, *The program's definition or a library's*).
    pub(crate) fn yield_to_libraries(&mut self, dylib: &JitDylib, process: &ProcessSymbols) {
        let symbols = self.interface.symbols.iter();
        let yielded = symbols.filter(|(name, flags)| yields_to_libraries(name.as_str(), **flags, process));
        let yielded: Vec<SymbolName> = yielded.map(|(name, _)| name.clone()).collect();
        for name in yielded {
            self.discard(dylib, &name);
        }
    }
}

/// Whether a definition is a vague one of a variable of which a loaded library has the instance that counts.
pub(crate) fn yields_to_libraries(name: &str, flags: SymbolFlags, process: &ProcessSymbols) -> bool {
    let vague = SymbolFlags::WEAK | SymbolFlags::EXPORTED;
    let not_vague = SymbolFlags::CALLABLE | SymbolFlags::COMMON | SymbolFlags::THREAD_LOCAL;
    flags.contains(vague) && !flags.intersects(not_vague) && process.has_instance_of(name)
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

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        self.declaration.note_materialized();
        // From here on the declaration ends with what becomes of the unit. A tracker that is gone refuses it, and drops it.
        let _ = responsibility.add_resource(Box::new(self.declaration));
        self.inner.materialize(responsibility);
    }

    fn spare(&self) -> Option<Box<dyn MaterializationUnit>> {
        let inner = if self.leaves_spare { self.inner.spare()? } else { return None };
        let (interface, declaration) = (self.interface.clone(), self.declaration.clone());
        Some(Box::new(Self { inner, interface, declaration, leaves_spare: true }))
    }

    fn discard(&mut self, dylib: &JitDylib, symbol: &SymbolName) {
        self.interface.symbols.remove(symbol);
        self.inner.discard(dylib, symbol);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Jit;

    /// Is dropped when it is asked for, which fails its one symbol.
    struct Lost(SymbolName);

    impl MaterializationUnit for Lost {
        fn name(&self) -> &str {
            "lost"
        }

        fn interface(&self) -> MaterializationInterface {
            MaterializationInterface::new([(self.0.clone(), SymbolFlags::EXPORTED)].into_iter().collect())
        }

        fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
            drop(responsibility);
        }

        fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
    }

    /// Declarations stayed for ever: a later [`Jit::link`](crate::Jit::link) asked for what was gone, and every file that came and went left its
    /// names behind.
    #[test]
    fn a_unit_that_is_gone_is_declared_no_more() {
        let jit = Jit::builder().threads(0).build().expect("an engine for this machine");
        let add = || jit.add_unit(Box::new(Lost(jit.intern("lost"))));
        let clear = || jit.main_dylib().clear().expect("nothing goes wrong");
        add().expect("the name is new");
        clear();
        assert_eq!(jit.platform().take_needed(None), [], "removed before anybody asked");

        add().expect("the name is new");
        jit.lookup("lost").expect_err("it is dropped");
        clear();
        assert_eq!(jit.platform().take_needed(None), [], "removed after it had failed");

        add().expect("the name is new");
        jit.platform().take_needed(None);
        add().expect_err("the name is taken");
        assert_eq!(jit.platform().take_needed(None), [], "refused");
    }
}
