//! A unit of one function, which a closure makes.

use uruk_core::{
    JitDylib, MaterializationInterface, MaterializationResponsibility, MaterializationUnit, SymbolFlags,
    SymbolName,
};

struct FunctionUnit {
    name: SymbolName,
    materialize: Box<dyn FnOnce(MaterializationResponsibility) + Send>,
}

impl MaterializationUnit for FunctionUnit {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn interface(&self) -> MaterializationInterface {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        MaterializationInterface::new([(self.name.clone(), flags)].into_iter().collect())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        (self.materialize)(responsibility);
    }

    fn discard(&mut self, _: &JitDylib, _: &SymbolName) {}
}

/// A unit of the function `name`, which `materialize` makes.
pub(crate) fn function_unit(
    name: SymbolName,
    materialize: impl FnOnce(MaterializationResponsibility) + Send + 'static,
) -> Box<dyn MaterializationUnit> {
    Box::new(FunctionUnit { name, materialize: Box::new(materialize) })
}
