//! The bytes of a file. `format.rs` has the drawing.

use std::collections::{HashMap, HashSet};

use super::elf;
use super::error::HostPartError;
use super::format::{
    CHECKSUM, FORMAT, HEADER_AT, HEADER_BYTES, INTERFACE, MAGIC, PAGE_BYTES, REGIONS, Region, checksum,
    hash_of_name, id_of,
};
use super::host::HostParts;
use super::link::{BuiltFunction, BuiltImage, BuiltSymbol, BuiltTarget, BuiltVersion};
use super::tables::TableWriter;
use crate::memory::SegmentKind;

impl BuiltImage {
    /// Adds what the host has besides the files. `is_elsewhere` says whether something else than the image defines a name.
    ///
    /// # Errors
    /// [`HostPartError::NoSymbol`]: nothing defines a function of a code instance.
    pub fn with_host(
        mut self,
        host: HostParts,
        is_elsewhere: impl Fn(&str) -> bool,
    ) -> Result<Self, HostPartError> {
        let global = self.symbols.iter().filter(|symbol| symbol.is_global());
        let own: HashSet<&str> = global.map(|BuiltSymbol { name, .. }| &**name).collect();
        let mut symbols = host.functions();
        if let Some(missing) = symbols.find(|symbol| !own.contains(symbol) && !is_elsewhere(symbol)) {
            return Err(HostPartError::NoSymbol { symbol: missing.into() });
        }
        drop(symbols);
        self.host = host;
        Ok(self)
    }

    /// The bytes of its file.
    ///
    /// # Cost
    /// A copy of the contents, and two passes over them for the id.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut file = vec![0; PAGE_BYTES as usize];
        for (segment, contents) in self.segments.iter().zip(&self.contents) {
            file.resize(segment.file_offset as usize, 0);
            file.extend_from_slice(contents);
        }
        let align = |file: &mut Vec<u8>| file.resize(file.len().next_multiple_of(PAGE_BYTES as usize), 0);
        let (mut packed, mut assumptions) = (Vec::with_capacity(self.packed.len()), 0);
        for unit in &self.packed {
            align(&mut file);
            let assumed = unit.assumptions.len() as u64;
            let place = [file.len() as u64, unit.image.len() as u64];
            packed.push([unit.traits.bits(), place[0], place[1], assumptions | assumed << 32]);
            assumptions += assumed;
            file.extend_from_slice(&unit.image);
        }
        align(&mut file);
        let sections = self.host.append_sections(&mut file);
        align(&mut file);
        let tables_at = file.len();
        let (tables, regions) = self.tables(&packed, &sections);
        file.extend_from_slice(&tables);
        elf::append(self, &mut file);

        let mut header = [0; HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &FORMAT.to_le_bytes());
        put(12, &INTERFACE.to_le_bytes());
        put(16, &(file.len() as u64).to_le_bytes());
        put(24, &(tables_at as u64).to_le_bytes());
        put(32, &(tables.len() as u64).to_le_bytes());
        let words = self.layout.words().map(u64::to_le_bytes).concat();
        put(88, &words);
        let regions = regions.map(|(start, count)| u64::from(start) | u64::from(count) << 32);
        put(192, &regions.map(u64::to_le_bytes).concat());
        put(56, &id_of(&self.layout, &file[PAGE_BYTES as usize..]));
        let sum = checksum(&header, &tables);
        header[CHECKSUM].copy_from_slice(&sum);
        file[HEADER_AT..HEADER_AT + HEADER_BYTES].copy_from_slice(&header);
        file
    }

    fn tables(&self, packed: &[[u64; 4]], sections: &[[u64; 2]]) -> (Vec<u8>, [(u32, u32); REGIONS]) {
        let mut tables = TableWriter::default();
        for segment in &self.segments {
            let kind: u32 = match segment.kind {
                SegmentKind::Code => 0,
                SegmentKind::ReadOnly => 1,
                SegmentKind::Data => 2,
                SegmentKind::FarData => 3,
            };
            tables.halves([kind, segment.is_written.into()]);
            let (address, file_offset) = (segment.address, segment.file_offset);
            tables.words([address, file_offset, segment.content_bytes, segment.zero_fill_bytes]);
        }
        tables.end(Region::Segments);
        tables.halves(self.relative.iter().copied());
        tables.end(Region::Relative);
        tables.halves(self.import_words.iter().flat_map(|&(address, import)| [address, import]));
        tables.end(Region::ImportWords);
        self.fields.iter().for_each(|field| tables.field(field));
        tables.end(Region::Fields);
        for (name, traits) in &self.imports {
            let name = tables.name(name);
            tables.halves([name, traits.bits()]);
        }
        tables.end(Region::Imports);
        for BuiltSymbol { name, unit, traits, size_bytes, address } in &self.symbols {
            let name = tables.name(name);
            let size = u32::try_from(*size_bytes).unwrap_or(u32::MAX);
            tables.halves([name, *unit, traits.bits(), size]);
            tables.words([*address]);
        }
        tables.end(Region::Symbols);
        tables.halves(self.name_index());
        tables.end(Region::NameIndex);
        for &BuiltFunction { when, priority, target } in &self.functions {
            tables.halves([when, priority.cast_unsigned(), target.err().map_or(0, |import| import + 1), 0]);
            tables.words([target.unwrap_or(0)]);
        }
        tables.end(Region::Functions);
        tables.halves(self.indirect.iter().copied());
        tables.end(Region::Indirect);
        tables.halves(self.descriptors.iter().flat_map(|&(address, offset)| [address, offset]));
        tables.end(Region::Descriptors);
        for unit in &self.units {
            let name = tables.name(unit);
            tables.halves([name]);
        }
        tables.end(Region::Units);
        for BuiltTarget { target, needs } in &self.targets {
            let name = tables.name(&target.name);
            tables.halves([name, needs.vector_bits]);
            let sets = [target.features, needs.features].map(|set| set.bits().to_le_bytes());
            tables.bytes(sets.as_flattened());
        }
        tables.end(Region::Targets);
        tables.halves(
            self.versions.iter().flat_map(|&BuiltVersion { slot, target, code }| [slot, target, code]),
        );
        tables.end(Region::Versions);
        tables.words(packed.iter().flatten().copied());
        tables.end(Region::Packed);
        for (unit, packed) in (0..).zip(&self.packed) {
            packed.sources.iter().for_each(|(name, key)| tables.key(unit, name, key));
        }
        tables.end(Region::Sources);
        let homes = self.homes();
        for (name, key) in self.packed.iter().flat_map(|packed| &packed.assumptions) {
            tables.key(homes.get(&**name).map_or(0, |unit| unit + 1), name, key);
        }
        tables.end(Region::Assumptions);
        self.host.write(&mut tables, sections);
        tables.finish()
    }

    /// The unit of each name, if units are packed: that of the first symbol of the name, as in the index.
    fn homes(&self) -> HashMap<&str, u32> {
        let mut homes = HashMap::new();
        if !self.packed.is_empty() {
            for symbol in self.symbols.iter().filter(|symbol| symbol.is_global()) {
                homes.entry(&*symbol.name).or_insert(symbol.unit);
            }
        }
        homes
    }

    /// Slots with a symbol's number + 1, or 0. At least half of them are empty.
    fn name_index(&self) -> Vec<u32> {
        let global = self.symbols.iter().zip(1..).filter(|(symbol, _)| symbol.is_global());
        let mut slots = vec![0; (2 * self.symbols.len()).next_power_of_two()];
        for (symbol, number) in global {
            let mut slot = hash_of_name(&symbol.name) as usize & (slots.len() - 1);
            while slots[slot] != 0 {
                slot = (slot + 1) & (slots.len() - 1);
            }
            slots[slot] = number;
        }
        slots
    }
}

/// Gives a file whose header or tables were changed the checksum that they need, so that readers look at the change. For tests.
///
/// A file whose header says that the tables lie elsewhere stays as it is.
pub fn seal(file: &mut [u8]) {
    let number = |at: usize| {
        let bytes = file.get(HEADER_AT + at..HEADER_AT + at + 8)?;
        usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    let tables =
        number(24).zip(number(32)).and_then(|(start, size)| file.get(start..start.checked_add(size)?));
    let header = file.get(HEADER_AT..HEADER_AT + HEADER_BYTES).and_then(|header| header.try_into().ok());
    if let Some((header, tables)) = header.zip(tables) {
        let sum = checksum(header, tables);
        file[HEADER_AT..][CHECKSUM].copy_from_slice(&sum);
    }
}
