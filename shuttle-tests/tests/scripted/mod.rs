//! Units made of closures.

use uruk_core::{
    ExecutorAddr, ExecutorSymbolDef, JitDylib, MaterializationInterface, MaterializationResponsibility,
    MaterializationUnit, SymbolFlags, SymbolFlagsMap, SymbolName,
};

type Script = Box<dyn FnOnce(MaterializationResponsibility) + Send>;

/// A unit that does what a closure says.
pub(crate) struct Scripted {
    symbols: SymbolFlagsMap,
    materialize: Script,
}

impl Scripted {
    pub(crate) fn new(
        symbols: impl IntoIterator<Item = (SymbolName, SymbolFlags)>,
        materialize: impl FnOnce(MaterializationResponsibility) + Send + 'static,
    ) -> Box<Self> {
        Box::new(Self { symbols: symbols.into_iter().collect(), materialize: Box::new(materialize) })
    }
}

impl MaterializationUnit for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new(self.symbols.clone())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        (self.materialize)(responsibility);
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

/// The definitions of all of a responsibility's symbols, at `address`.
pub(crate) fn all_at(responsibility: &MaterializationResponsibility, address: u64) -> uruk_core::SymbolMap {
    let at = |(name, flags): (&SymbolName, &SymbolFlags)| {
        (name.clone(), ExecutorSymbolDef::new(ExecutorAddr::new(address), *flags))
    };
    responsibility.symbols().iter().map(at).collect()
}
