//! [`MappedImage`]: the tables of an image that lies somewhere, and the names of its code for debuggers.

use uruk_core::sync::Arc;
use uruk_core::{JitDylib, SymbolName};

use crate::debug::{NamedCode, NamedSymbol, SymbolSource, SymbolTable};
use crate::executor::UnwindTable;
use crate::image::{ImageReader, SymbolTraits};

/// The tables of a mapped image, and where it lies.
#[derive(Debug)]
pub(super) struct MappedImage {
    pub(super) reader: ImageReader,
    pub(super) base: u64,
    /// Stands for the image as a whole.
    pub(super) anchor: SymbolName,
}

/// The names of the code, for debuggers and reports. They stay in the tables.
pub(super) fn names(
    tables: &Arc<MappedImage>,
    ranges: &Arc<[std::ops::Range<u64>]>,
    unwind: Option<&UnwindTable>,
    dylib: &JitDylib,
) -> NamedCode {
    let MappedImage { reader, base, .. } = &**tables;
    let code = reader.code();
    NamedCode {
        dylib: dylib.name().into(),
        units: reader.units().map(Box::from).collect(),
        code: base + code.start..base + code.end,
        ranges: ranges.clone(),
        eh_frame_hdr: unwind.map(|table| table.eh_frame_hdr),
        symbols: SymbolTable::elsewhere(tables.clone()),
        ..NamedCode::default()
    }
}

impl SymbolSource for MappedImage {
    fn count(&self) -> usize {
        self.reader.symbols().len()
    }

    fn symbol(&self, number: usize) -> Option<NamedSymbol> {
        let symbol = self.reader.symbol_of(number)?;
        let is_placed = !symbol.traits.intersects(SymbolTraits::ABSOLUTE | SymbolTraits::THREAD_LOCAL);
        is_placed.then(|| NamedSymbol {
            start: self.base.wrapping_add(symbol.address),
            size: symbol.size_bytes.into(),
            is_code: self.reader.code().contains(&symbol.address),
            unit: symbol.unit,
            name: (number as u32, 0),
        })
    }

    fn name(&self, number: u32) -> &str {
        self.reader.symbol_of(number as usize).map_or("", |symbol| symbol.name)
    }
}
