//! The names of a graph whose every part has its address, for those who look at it from outside.

use super::graph::{Location, SectionRole, SymbolKind};
use super::phases::{Allocated, Link};
use crate::debug::{NamedCode, SymbolTable};

impl Link<Allocated> {
    /// The names of the code and data. The dylib, the segments and the files with DWARF are for the owner of the graph to add.
    ///
    /// # Cost
    /// One pass over the symbols; a copy of the names of those that the graph defines.
    pub(crate) fn names(&self) -> NamedCode {
        let placed = self.placed();
        let graph = &placed.graph;
        let named = || {
            graph.symbols().iter().filter_map(|symbol| {
                let Location::Block(block, offset) = symbol.location else { return None };
                let (home, section) = (&graph.blocks()[block.index()], graph.section_of(block));
                let name = graph.text(symbol.name);
                let is_named =
                    symbol.kind != SymbolKind::Section && !name.is_empty() && !name.starts_with(".L");
                let is_code_or_data = !section.role.is_tls() && section.role != SectionRole::EhFrame;
                (home.live && is_named && is_code_or_data).then_some((symbol, block, offset, name))
            })
        };
        let (count, bytes) =
            named().fold((0, 0), |(count, bytes), (.., name)| (count + 1, bytes + name.len()));
        let mut symbols = SymbolTable::with_room(count, bytes);
        for (symbol, block, offset, name) in named() {
            let (home, section) = (&graph.blocks()[block.index()], graph.section_of(block));
            let start = placed.at(placed.layout.places[block.index()]).wrapping_add(offset);
            let rest = home.size.saturating_sub(offset);
            let size = if symbol.size == 0 { rest } else { symbol.size.min(rest) };
            let range = start..start.saturating_add(size);
            symbols.add(name, symbol.object.index() as u32, range, section.role == SectionRole::Code);
        }
        NamedCode {
            units: graph.objects.clone().into(),
            code: placed.code(),
            eh_frame_hdr: placed.unwind_table().map(|table| table.eh_frame_hdr),
            symbols,
            ..NamedCode::default()
        }
    }

    /// For each file of the graph with DWARF, its number and the addresses of its sections by their numbers.
    pub(crate) fn files_with_dwarf(&self) -> Vec<(usize, Vec<(u32, u64)>)> {
        let placed = self.placed();
        let graph = &placed.graph;
        let with_dwarf = graph.files.iter().enumerate().filter(|(_, has_dwarf)| **has_dwarf);
        let mut files: Vec<_> = with_dwarf.map(|(file, _)| (file, Vec::new())).collect();
        if files.is_empty() {
            return files;
        }
        for section in graph.sections().iter().filter(|section| section.number != 0) {
            let block = section.first_block.index();
            let Ok(file) = files.binary_search_by_key(&(section.file as usize), |(file, _)| *file) else {
                continue;
            };
            if graph.blocks()[block].live {
                files[file].1.push((section.number, placed.at(placed.layout.places[block])));
            }
        }
        files.iter_mut().for_each(|(_, sections)| sections.sort_unstable());
        files
    }
}
