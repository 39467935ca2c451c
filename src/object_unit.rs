//! A unit that a function makes an object for.

use std::error::Error;

use uruk_core::sync::Arc;
use uruk_core::{
    ExecutionSession, JitDylib, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    SymbolFlagsMap, SymbolName, shared_error,
};
use uruk_pipeline::linking::ObjectLinkingLayer;
use uruk_pipeline::object::{ObjectBuffer, ObjectLayer};

/// Promises symbols, and calls a function for the object that has them.
pub(crate) struct ObjectUnit<F> {
    pub(crate) name: SymbolName,
    pub(crate) symbols: SymbolFlagsMap,
    pub(crate) layer: Arc<ObjectLinkingLayer>,
    pub(crate) compile: F,
}

impl<F, E> MaterializationUnit for ObjectUnit<F>
where
    F: FnOnce(&ExecutionSession) -> Result<ObjectBuffer, E> + Send,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn interface(&self) -> MaterializationInterface {
        MaterializationInterface::new(self.symbols.clone())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        match (self.compile)(responsibility.session()) {
            Ok(object) => self.layer.emit(responsibility, object),
            Err(error) => responsibility.fail(shared_error(error)),
        }
    }

    /// The object's own definition loses against the other when it is linked.
    fn discard(&mut self, _dylib: &JitDylib, symbol: &SymbolName) {
        self.symbols.remove(symbol);
    }
}
