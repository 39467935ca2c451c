//! The unit of a function that is compiled by itself.

use uruk_core::{
    JitDylib, MaterializationInterface, MaterializationResponsibility, MaterializationUnit, SymbolName,
};

use super::lazy_module::LazyModule;

/// The body of one function.
#[derive(Clone, Debug)]
pub(super) struct BodyInModule {
    pub(super) module: LazyModule,
    pub(super) function: u32,
    /// Which attempt it is to compile it better; zero is the first compilation.
    pub(super) attempt: u32,
    pub(super) interface: MaterializationInterface,
}

impl MaterializationUnit for BodyInModule {
    fn name(&self) -> &str {
        self.module.name()
    }

    fn interface(&self) -> MaterializationInterface {
        self.interface.clone()
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let object = self.module.compile(self.function, self.attempt);
        self.module.emit(responsibility, object, self.attempt);
    }

    fn spare(&self) -> Option<Box<dyn MaterializationUnit>> {
        Some(Box::new(self.clone()))
    }

    fn discard(&mut self, _dylib: &JitDylib, symbol: &SymbolName) {
        self.interface.symbols.remove(symbol);
    }
}
