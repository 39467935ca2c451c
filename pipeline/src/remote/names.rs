//! [`PublishedNames`]: names and debug information of code, for debuggers and profilers of the executor.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use uruk_core::sync::Arc;

use crate::debug::{DebugFile, NamedCode, NamedSymbol, SymbolTable};

/// Objects with more bytes together are told without their DWARF: a message has an end.
const FILE_BYTES_MAX: usize = 32 << 20;

/// A [`NamedCode`] for which an executor has asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PublishedNames {
    dylib: Box<str>,
    units: Box<[Box<str>]>,
    code: Range<u64>,
    ranges: Box<[Range<u64>]>,
    eh_frame_hdr: Option<u64>,
    is_stubs: bool,
    symbols: Vec<PublishedSymbol>,
    files: Vec<PublishedFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PublishedSymbol {
    name: Box<str>,
    unit: u32,
    range: Range<u64>,
    is_code: bool,
}

/// An object with DWARF.
#[derive(Debug, Serialize, Deserialize)]
struct PublishedFile {
    bytes: Vec<u8>,
    sections: Vec<(u32, u64)>,
}

impl PublishedNames {
    /// With the DWARF of objects if there are readers of that.
    pub(super) fn new(named: &NamedCode, has_readers: bool) -> Self {
        let bytes = named.files.iter().map(|file| file.bytes().len()).sum::<usize>();
        let files = if has_readers && bytes <= FILE_BYTES_MAX { &named.files[..] } else { &[] };
        let NamedCode { dylib, units, code, ranges, eh_frame_hdr, is_stubs, symbols, .. } = named;
        let symbol = |symbol: NamedSymbol| PublishedSymbol {
            name: symbols.name(&symbol).into(),
            unit: symbol.unit,
            range: symbol.start..symbol.start.saturating_add(symbol.size),
            is_code: symbol.is_code,
        };
        let file =
            |file: &DebugFile| PublishedFile { bytes: file.bytes().into(), sections: file.sections.clone() };
        Self {
            dylib: dylib.clone(),
            units: units.clone(),
            code: code.clone(),
            ranges: ranges.to_vec().into(),
            eh_frame_hdr: *eh_frame_hdr,
            is_stubs: *is_stubs,
            symbols: symbols.iter().map(symbol).collect(),
            files: files.iter().map(file).collect(),
        }
    }

    /// Ranges that those who are told of the code read.
    pub(super) fn ranges_read(&self) -> impl Iterator<Item = (u64, u64)> {
        let index = self.eh_frame_hdr.map(|at| (at, at.saturating_add(8)));
        let code = (self.code.start, self.code.end);
        self.ranges.iter().map(|range| (range.start, range.end)).chain([code]).chain(index)
    }
}

impl From<PublishedNames> for NamedCode {
    fn from(published: PublishedNames) -> Self {
        let PublishedNames { dylib, units, code, ranges, eh_frame_hdr, is_stubs, symbols, files } = published;
        let name_bytes = symbols.iter().map(|symbol| symbol.name.len()).sum();
        let mut table = SymbolTable::with_room(symbols.len(), name_bytes);
        for PublishedSymbol { name, unit, range, is_code } in symbols {
            table.add(&name, unit, range, is_code);
        }
        let file = |PublishedFile { bytes, sections }| {
            let range = 0..bytes.len();
            DebugFile { owner: Arc::new(bytes), range, sections }
        };
        Self {
            dylib,
            units,
            code,
            ranges: ranges.into_vec().into(),
            eh_frame_hdr,
            is_stubs,
            symbols: table,
            files: files.into_iter().map(file).collect(),
        }
    }
}
