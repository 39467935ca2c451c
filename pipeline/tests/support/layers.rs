//! A layer that stands where the linker would, and writes down what it is given.

use std::error::Error;

use uruk_core::sync::Mutex;
use uruk_core::{ExecutorAddr, ExecutorSymbolDef, MaterializationResponsibility, SymbolFlags};
use uruk_pipeline::object::ObjectBuffer;
use uruk_pipeline::object::ObjectLayer;

/// A unit that the layer was asked to link.
pub(crate) struct Linked {
    pub(crate) unit: String,
    /// The symbols to define, sorted, without the one that stands for initializers.
    pub(crate) symbols: Vec<String>,
    pub(crate) has_initializer: bool,
    pub(crate) object: ObjectBuffer,
}

/// Gives each symbol an address that means nothing.
#[derive(Default)]
pub(crate) struct RecordingLayer(Mutex<Vec<Linked>>);

impl RecordingLayer {
    /// The units that were linked since the last call.
    pub(crate) fn take(&self) -> Vec<Linked> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl ObjectLayer for RecordingLayer {
    fn emit(&self, responsibility: MaterializationResponsibility, object: ObjectBuffer) {
        let placed = responsibility
            .symbols()
            .iter()
            .filter(|(_, flags)| !flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY));
        let addresses: uruk_core::SymbolMap = placed
            .map(|(name, flags)| (name.clone(), ExecutorSymbolDef::new(ExecutorAddr::new(0x1000), *flags)))
            .collect();
        let mut symbols: Vec<_> = addresses.keys().map(|name| name.as_str().to_owned()).collect();
        symbols.sort();
        self.0.lock().push(Linked {
            unit: responsibility.unit_name().to_owned(),
            symbols,
            has_initializer: responsibility.initializer_symbol().is_some(),
            object,
        });
        let resolved = responsibility.notify_resolved(&addresses).expect("every symbol has an address");
        resolved.notify_emitted(Vec::new()).expect("nothing to wait for");
    }
}

/// An error with all that lies behind it.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text += &format!(": {error}");
        next = error.source();
    }
    text
}
