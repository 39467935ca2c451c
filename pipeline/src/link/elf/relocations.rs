//! Relocations become edges; each section's edges lie together, in the order of the object.

use object::SectionIndex;
use object::elf;
use object::read::elf::{Crel, SectionHeader};
use rustc_hash::FxHashMap;

use super::symbols::block_at;
use super::{ENDIAN, Parser};
use crate::arch::Meaning;
use crate::link::eh_frame;
use crate::link::error::{LinkError, Site};
use crate::link::graph::{BlockId, Edge, Section, SectionId, SectionRole, SymbolId};
use crate::object::Relocations;

/// All relocations of a section, and how many there are at most.
#[derive(Default)]
struct Tables<'a> {
    tables: Vec<Relocations<'a>>,
    count_max: usize,
}

/// A common information entry, and the symbol that its dependants refer to it by.
pub(super) struct Cie {
    pub(super) section: SectionId,
    pub(super) offset: u64,
    pub(super) block: BlockId,
    pub(super) symbol: Option<SymbolId>,
}

impl<'a> Parser<'a> {
    /// Adds the edges of every section that takes part.
    pub(super) fn read_relocations(&mut self) -> Result<(), LinkError> {
        let mut tables = self.relocation_tables()?;
        for index in 0..self.graph.sections.len() {
            let section = SectionId::of(index);
            let relocations = tables.remove(&section);
            if self.graph.sections[index].role == SectionRole::EhFrame {
                self.read_frame_relocations(section, relocations.unwrap_or_default())?;
            } else if let Some(relocations) = relocations {
                self.read_plain_relocations(section, relocations)?;
            }
        }
        let blocks = &self.graph.blocks;
        self.graph.frames.retain(|frame| blocks[frame.block.index()].live);
        match u32::try_from(self.graph.edges.len()) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.graph.too_large("more than 2^32 relocations")),
        }
    }

    /// The relocation tables of each section; nearly always one.
    fn relocation_tables(&self) -> Result<FxHashMap<SectionId, Tables<'a>>, LinkError> {
        let mut tables: FxHashMap<SectionId, Tables<'a>> = FxHashMap::default();
        for (index, header) in self.sections.enumerate() {
            let kind = header.sh_type(ENDIAN);
            if !matches!(kind, elf::SHT_RELA | elf::SHT_REL | elf::SHT_CREL) {
                continue;
            }
            let fail = |what: &str| self.error(&self.section_name_or_number(index.0), 0, what);
            let Some(&target) = self.section_ids.get(header.info_link(ENDIAN).0) else {
                return Err(fail("the relocated section does not exist"));
            };
            let Some(target) = target else { continue };
            if header.link(ENDIAN) != self.symbols.section() || header.link(ENDIAN) == SectionIndex(0) {
                return Err(fail("the relocations refer to another symbol table"));
            }
            let relocations = Relocations::of(header, self.bytes)
                .map_err(|_| fail("the relocations reach beyond the end of the object"))?
                .ok_or_else(|| fail("relocations without explicit addends are not part of the ABI"))?;
            let of_section = tables.entry(target).or_default();
            of_section.count_max += relocations.count_max(header.sh_size(ENDIAN));
            of_section.tables.push(relocations);
        }
        Ok(tables)
    }

    fn read_plain_relocations(
        &mut self,
        section: SectionId,
        Tables { tables, count_max }: Tables<'a>,
    ) -> Result<(), LinkError> {
        let Section { role, size, first_block, .. } = self.graph.sections[section.index()];
        if role.is_zero_fill() {
            return Err(self.error(
                self.graph.section_name(section),
                0,
                "a section without contents has relocations",
            ));
        }
        let first = self.graph.edges.len();
        self.graph.edges.reserve(count_max);
        for relocation in tables.into_iter().flatten() {
            if let Some(edge) = self.read_edge(section, size, relocation)? {
                self.graph.edges.push(edge);
            }
        }
        self.graph.blocks[first_block.index()].edges = (first as u32, self.graph.edges.len() as u32);
        Ok(())
    }

    /// Distributes the relocations of `.eh_frame` over its records, and adds what the records owe each other.
    fn read_frame_relocations(
        &mut self,
        section: SectionId,
        Tables { tables, count_max }: Tables<'a>,
    ) -> Result<(), LinkError> {
        let size = self.graph.sections[section.index()].size;
        let mut edges = Vec::with_capacity(count_max);
        for relocation in tables.into_iter().flatten() {
            edges.extend(self.read_edge(section, size, relocation)?);
        }
        // Assemblers write them in order; the sort then costs one pass.
        edges.sort_by_key(|edge| edge.offset);
        let mut rest = edges.as_slice();
        let mut frame = self
            .graph
            .frames
            .partition_point(|frame| self.graph.blocks[frame.block.index()].section < section);
        for id in self.graph.sections[section.index()].blocks() {
            let block = self.graph.blocks[id.index()];
            let first = self.graph.edges.len();
            let end = block.offset + block.size;
            let count = rest.partition_point(|edge| edge.offset < end);
            let (mine, others) = rest.split_at(count);
            rest = others;
            self.add_cie_edge(section, id)?;
            for edge in mine {
                let Some(offset) = edge.offset.checked_sub(block.offset) else { continue };
                if offset + self.graph.arch.field_bytes(edge.kind) as u64 > block.size {
                    let name = self.graph.section_name(section);
                    return Err(self.error(name, edge.offset, "a relocation straddles two records"));
                }
                self.graph.edges.push(Edge { offset, ..*edge });
            }
            self.graph.blocks[id.index()].edges = (first as u32, self.graph.edges.len() as u32);
            if self.graph.frames.get(frame).is_some_and(|frame| frame.block == id) {
                self.find_frame_function(frame);
                frame += 1;
            }
        }
        Ok(())
    }

    /// Gives a frame description entry the edge to its common entry, which may move.
    fn add_cie_edge(&mut self, section: SectionId, block: BlockId) -> Result<(), LinkError> {
        let content = self.graph.content(block);
        let record_offset = self.graph.blocks[block.index()].offset;
        let Some(cie_offset) = eh_frame::cie_of(content, record_offset) else { return Ok(()) };
        let index = self.cies.binary_search_by(|cie| (cie.section, cie.offset).cmp(&(section, cie_offset)));
        match index.ok().and_then(|index| self.cies[index].symbol) {
            Some(target) => {
                self.graph.edges.push(Edge {
                    offset: eh_frame::CIE_POINTER_OFFSET,
                    addend: 0,
                    target,
                    kind: self.graph.arch.distance_back(),
                });
                Ok(())
            }
            None => {
                let what = format!(
                    "a frame description entry refers to a common entry at {cie_offset:#x}; there is none"
                );
                Err(self.error(self.graph.section_name(section), record_offset, what))
            }
        }
    }

    /// Finds the edge to the function of a frame description entry. One without is of a function that an
    /// earlier partial link dropped; it goes too.
    fn find_frame_function(&mut self, frame: usize) {
        let graph = &mut self.graph;
        let frame = &mut graph.frames[frame];
        let block = &mut graph.blocks[frame.block.index()];
        let range = block.edge_range();
        let found =
            graph.edges[range.clone()].iter().position(|edge| edge.offset == eh_frame::FUNCTION_OFFSET);
        match found {
            Some(index) => frame.function = (range.start + index) as u32,
            None => block.live = false,
        }
    }

    fn read_edge(
        &self,
        section: SectionId,
        size: u64,
        relocation: Result<Crel, object::read::Error>,
    ) -> Result<Option<Edge>, LinkError> {
        let relocation = relocation.map_err(|error| {
            let what = format!("a relocation cannot be read: {error}");
            self.error(self.graph.section_name(section), 0, what)
        })?;
        let Crel { r_offset: offset, r_sym: target, r_type: number, r_addend: addend } = relocation;
        if target as usize >= self.symbols.len().max(1) {
            let what = format!("a relocation refers to symbol {target} of {}", self.symbols.len());
            return Err(self.error(self.graph.section_name(section), offset, what));
        }
        let target = SymbolId(target);
        let arch = self.graph.arch;
        let kind = match arch.meaning(number) {
            Meaning::Edge(kind) => kind,
            Meaning::Nothing => return Ok(None),
            Meaning::Unsupported => {
                let (site, kind, symbol) = self.foreign(section, offset, number, target);
                let advice = "; it belongs into linked files, or is newer than this linker";
                return Err(LinkError::UnsupportedRelocation { site, kind, symbol, advice });
            }
        };
        let end = offset.checked_add(arch.field_bytes(kind) as u64);
        if end.is_none_or(|end| end > size) || block_at(&self.graph, section, offset).is_none() {
            let what = format!(
                "a relocation {} lies beyond the {size:#x} bytes of the section",
                arch.kind_name(kind)
            );
            return Err(self.error(self.graph.section_name(section), offset, what));
        }
        Ok(Some(Edge { offset, addend, target, kind }))
    }

    fn foreign(
        &self,
        section: SectionId,
        offset: u64,
        number: elf::RelocationType,
        target: SymbolId,
    ) -> (Box<Site>, Box<str>, Box<str>) {
        let object = self.graph.objects[super::OBJECT.index()].clone();
        let site = Site { object, section: self.graph.section_name(section).into(), offset };
        let symbol = self
            .graph
            .symbols
            .get(target.index())
            .map(|_| self.graph.symbol_name(target))
            .unwrap_or_default();
        (Box::new(site), self.graph.arch.foreign_name(number), symbol.into())
    }
}
