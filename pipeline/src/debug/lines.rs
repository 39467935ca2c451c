//! The place in a source of an address in linked code.

use addr2line::Context;
use gimli::{EndianSlice, LittleEndian};

use super::code::NamedCode;
use super::dwarf::Dwarf;

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourcePlace {
    /// The file, as the compiler was given it.
    pub file: Box<str>,
    /// The line; the first one is 1.
    pub line: u32,
    /// The column, where it is known; the first one is 1.
    pub column: Option<u32>,
}

/// The place of an address of `code`, if its objects have DWARF that says so.
pub(super) fn place_of(code: &NamedCode, address: u64) -> Option<SourcePlace> {
    code.files.iter().find_map(|file| {
        let mut dwarf = Dwarf::default();
        dwarf.add(file)?;
        places_in(&dwarf, &mut |context| {
            let location = context.find_location(address).ok()??;
            let column = location.column.filter(|&column| column != 0);
            Some(SourcePlace {
                file: location.file?.into(),
                line: location.line.filter(|&line| line != 0)?,
                column,
            })
        })
    })
}

/// The places of all addresses of `code` where they change, sorted by address.
pub(super) fn of(code: &NamedCode) -> Vec<(u64, SourcePlace)> {
    let mut lines = Vec::new();
    for file in &code.files {
        let mut dwarf = Dwarf::default();
        if dwarf.add(file).is_none() {
            continue;
        }
        places_in(&dwarf, &mut |context| {
            for (address, _, location) in context.find_location_range(code.code.start, code.code.end).ok()? {
                if let (Some(file), Some(line @ 1..)) = (location.file, location.line) {
                    lines.push((address, SourcePlace { file: file.into(), line, column: location.column }));
                }
            }
            Some(())
        });
    }
    lines.sort_by_key(|(address, _)| *address);
    lines
}

/// Reads DWARF for `ask`.
pub(super) fn places_in<T>(
    dwarf: &Dwarf,
    ask: &mut dyn FnMut(&Context<EndianSlice<'_, LittleEndian>>) -> Option<T>,
) -> Option<T> {
    let section = |id: gimli::SectionId| EndianSlice::new(dwarf.section(id.name()), LittleEndian);
    let dwarf = gimli::Dwarf::load(|id| Ok::<_, gimli::Error>(section(id))).ok()?;
    ask(&Context::from_dwarf(dwarf).ok()?)
}
