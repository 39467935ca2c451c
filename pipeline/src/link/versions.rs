//! Versions: functions of a graph that have code for several processors.
//!
//! ```text
//!   f ─▶ stub: jmp *slot ─▶ slot ─┬─▶ f@base                   the word that is in the slot at first
//!                                 └─▶ f@x86-64-v3              the loader's choice, on processors that have what it uses
//! ```
//!
//! `ir/versions.cpp` makes the code, and names it: the function's name, `@`, the target's. All of it is there at first. A version stays if its
//! instructions promise something that the base's do not; otherwise calls of it become calls of the function. Code of a version calls that of
//! the same version directly. All else goes by the stub, so a function has one address.

use std::collections::HashMap;

use super::error::LinkError;
use super::graph::{
    Binding, Block, BlockId, Edge, LinkGraph, Location, Name, ObjectId, Section, SectionId, SectionRole,
    Symbol, SymbolId, SymbolKind,
};
use super::prune;
use crate::arch::{CodeField, CodeNeeds, CodeTemplate, ProcessorTarget};

/// The functions of a graph that have versions.
#[derive(Debug, Default)]
pub(crate) struct GraphVersions {
    /// The slot of each, with the numbers of targets and their code.
    pub(crate) functions: Vec<(SymbolId, Vec<(u32, SymbolId)>)>,
    /// All code of targets beside the base, also where calls are direct.
    pub(crate) code: Vec<(u32, SymbolId)>,
}

/// An upper bound for the fields of a slot or a stub.
const FIELDS_MAX: usize = 4;

/// The content of a slot before the link.
const SLOT: [u8; 8] = [0; 8];

/// A block, and where in it.
type CodePlace = (BlockId, u64);

/// The stub of a function, its size, and the symbol of the function's code.
struct VersionStub {
    block: BlockId,
    size: u64,
    base: SymbolId,
}

/// The place among `targets` of the one that the name of a version has behind it, also of code that the optimizer has derived from a version:
/// `f@x86-64-v3.resume`.
pub(crate) fn target_in_name<'t>(name: &str, mut targets: impl Iterator<Item = &'t str>) -> Option<usize> {
    let (_, behind) = name.rsplit_once('@')?;
    targets.position(|target| {
        behind.strip_prefix(target).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

impl LinkGraph<'_> {
    /// Gives functions that have versions for some of `targets` a stub and a slot. The first target is the base.
    ///
    /// # Errors
    /// [`LinkError::Object`] if there is no room.
    ///
    /// # Cost
    /// Linear in the graph; the code of functions with versions is decoded.
    pub(crate) fn choose_versions(
        &mut self,
        targets: &[ProcessorTarget],
        is_discarded: &dyn Fn(&str) -> bool,
    ) -> Result<GraphVersions, LinkError> {
        let named = self.version_code(targets);
        if named.is_empty() {
            return Ok(GraphVersions::default());
        }
        let code = self.discard_versions(&named);
        let mut chosen = GraphVersions { code, ..GraphVersions::default() };
        let live = prune::live(self);
        let (mut redirected, mut stubs) = (HashMap::new(), HashMap::new());
        for (base, versions) in self.versions_by_base(&named) {
            let Location::Block(block, _) = self.symbols[base.index()].location else { continue };
            let is_global = self.symbols[base.index()].binding != Binding::Local;
            if !live[block.index()] || is_global && is_discarded(self.symbol_name(base)) {
                continue;
            }
            let of_base = self.needs(base, &targets[0]);
            let stays = |(target, code): &(u32, SymbolId)| {
                let target = &targets[*target as usize];
                target.is_whole || self.needs(*code, target).is_faster_than(of_base)
            };
            let (stay, go): (Vec<_>, Vec<_>) = versions.into_iter().partition(stays);
            redirected.extend(go.into_iter().map(|(_, code)| (code, base)));
            if stay.is_empty() {
                continue;
            }
            for (_, code) in &stay {
                if let Location::Block(block, _) = self.symbols[code.index()].location {
                    self.blocks[block.index()].discardable = false;
                }
            }
            let (slot, place, stub) = self.add_slot(base)?;
            stubs.insert(place, stub);
            chosen.functions.push((slot, stay));
        }
        self.move_to_stubs(&stubs);
        self.redirect(&redirected);
        chosen.code.retain(|(_, code)| !redirected.contains_key(code));
        Ok(chosen)
    }

    /// The code for targets beside the base.
    fn version_code(&self, targets: &[ProcessorTarget]) -> Vec<(u32, SymbolId)> {
        let target = |symbol: &Symbol| {
            let is_code = symbol.kind == SymbolKind::Code && symbol.binding == Binding::Local;
            let (_, name) = self.text(symbol.name).rsplit_once('@').filter(|_| is_code)?;
            let number = targets.iter().skip(1).position(|target| *target.name == *name)?;
            matches!(symbol.location, Location::Block(..)).then_some(number as u32 + 1)
        };
        let symbols = self.symbols.iter().enumerate();
        symbols.filter_map(|(index, symbol)| Some((target(symbol)?, SymbolId::of(index)))).collect()
    }

    /// Has files with code of versions go, but for what something refers to: nothing else needs them. Gives all code of these files: the
    /// optimizer gives what it derives from a function other names.
    fn discard_versions(&mut self, named: &[(u32, SymbolId)]) -> Vec<(u32, SymbolId)> {
        let mut target_of_file = vec![None; self.files.len()];
        for &(target, code) in named {
            if let Location::Block(block, _) = self.symbols[code.index()].location {
                target_of_file[self.section_of(block).file as usize] = Some(target);
            }
        }
        let target = |section: &Section| target_of_file.get(section.file as usize).copied().flatten();
        for block in &mut self.blocks {
            block.discardable |= target(&self.sections[block.section.index()]).is_some();
        }
        let code = self.symbols.iter().enumerate().filter(|(_, symbol)| symbol.kind == SymbolKind::Code);
        let code = code.filter_map(|(index, symbol)| match symbol.location {
            Location::Block(block, _) => Some((target(self.section_of(block))?, SymbolId::of(index))),
            _ => None,
        });
        code.collect()
    }

    /// The versions of each function of the base, in the order of its symbols. A function whose definition is another file's has none.
    fn versions_by_base(&self, code: &[(u32, SymbolId)]) -> Vec<(SymbolId, Vec<(u32, SymbolId)>)> {
        let mut known = HashMap::<(ObjectId, &str), SymbolId>::new();
        for (index, symbol) in self.symbols.iter().enumerate() {
            if symbol.kind == SymbolKind::Code && matches!(symbol.location, Location::Block(..)) {
                known.entry((symbol.object, self.text(symbol.name))).or_insert(SymbolId::of(index));
            }
        }
        let mut found = std::collections::BTreeMap::<SymbolId, Vec<_>>::new();
        for &(target, code) in code {
            let symbol = &self.symbols[code.index()];
            let name = self.text(symbol.name).rsplit_once('@').map_or("", |(name, _)| name);
            if let Some(base) = known.get(&(symbol.object, name)) {
                found.entry(*base).or_default().push((target, code));
            }
        }
        found.into_iter().collect()
    }

    fn needs(&self, function: SymbolId, target: &ProcessorTarget) -> CodeNeeds {
        let symbol = &self.symbols[function.index()];
        let Location::Block(block, start) = symbol.location else { return CodeNeeds::default() };
        let (start, size) = (start as usize, symbol.size as usize);
        let code = self.content(block).get(start..start.saturating_add(size)).unwrap_or_default();
        CodeNeeds::of_code(code, target.features)
    }

    /// Makes the slot and the stub of a function that lies in a block, and another symbol for its code. Gives the slot, the place of the
    /// code, and what is to be there for all that refer to the function.
    fn add_slot(&mut self, function: SymbolId) -> Result<(SymbolId, CodePlace, VersionStub), LinkError> {
        let symbol = self.symbols[function.index()];
        let Location::Block(body, start) = symbol.location else {
            return Err(self.too_large("a function without code"));
        };
        let name = self.add_name(&format!("{}@base", self.text(symbol.name)))?;
        let (binding, exported) = (Binding::Local, false);
        let base = self.add_symbol(Symbol { name, binding, exported, ..symbol })?;
        let section = *self.section_of(body);
        let slot = Section { role: SectionRole::ReadOnly, is_grouped: false, ..section };
        let pointer = CodeField { offset: 0, kind: self.arch.pointer(), addend: 0 };
        let (slot, _) = self.add_block(".data.rel.ro", slot, &SLOT, ([pointer], base))?;
        self.blocks[slot.index()].discardable = true;
        let slot = Symbol {
            name: Name::default(),
            location: Location::Block(slot, 0),
            size: SLOT.len() as u64,
            kind: SymbolKind::Data,
            ..self.symbols[base.index()]
        };
        let slot = self.add_symbol(slot)?;
        let CodeTemplate { code, fields } = self.arch.lazy_templates().slot_stub;
        // All of them lead to the slot.
        let fields = fields.iter().map(|(_, field)| *field);
        let (stub, size) = self.add_block(".text.versions", section, code, (fields, slot))?;
        self.blocks[stub.index()].discardable = symbol.binding == Binding::Local;
        Ok((slot, (body, start), VersionStub { block: stub, size, base }))
    }

    /// Has the names of functions, all of them, mean their stubs. Unwind tables go on meaning the code.
    fn move_to_stubs(&mut self, stubs: &HashMap<CodePlace, VersionStub>) {
        let mut moved = HashMap::new();
        for (index, symbol) in self.symbols.iter_mut().enumerate() {
            let Location::Block(block, start) = symbol.location else { continue };
            let Some(stub) = stubs.get(&(block, start)) else { continue };
            if symbol.kind != SymbolKind::Section && SymbolId::of(index) != stub.base {
                (symbol.location, symbol.size) = (Location::Block(stub.block, 0), stub.size);
                moved.insert(SymbolId::of(index), stub.base);
            }
        }
        for frame in &self.frames {
            let edge = &mut self.edges[frame.function as usize];
            edge.target = moved.get(&edge.target).copied().unwrap_or(edge.target);
        }
    }

    fn add_symbol(&mut self, symbol: Symbol) -> Result<SymbolId, LinkError> {
        let id = SymbolId::of(self.symbols.len());
        if u32::try_from(self.symbols.len() + 1).is_err() {
            return Err(self.too_large("more symbols than the graph can number"));
        }
        self.symbols.push(symbol);
        Ok(id)
    }

    /// Adds a block whose fields lead to one symbol, in a section of its own that is like `like`. Gives its size too.
    fn add_block(
        &mut self,
        name: &str,
        like: Section,
        content: &'static [u8],
        (fields, target): (impl IntoIterator<Item = CodeField>, SymbolId),
    ) -> Result<(BlockId, u64), LinkError> {
        let (block, section) = (BlockId::of(self.blocks.len()), SectionId::of(self.sections.len()));
        let numbers = [self.blocks.len(), self.sections.len(), self.edges.len()];
        if numbers.iter().any(|&number| u32::try_from(number + FIELDS_MAX).is_err()) {
            return Err(self.too_large("more blocks than the graph can number"));
        }
        let (size, align_log2) = (content.len() as u64, content.len().ilog2() as u8);
        let name = self.add_name(name)?;
        self.sections.push(Section {
            name,
            size,
            align_log2,
            init: None,
            first_block: block,
            block_count: 1,
            ..like
        });
        self.contents.push(content);
        let first_edge = self.edges.len() as u32;
        let edge = |CodeField { offset, kind, addend }| Edge { offset, kind, target, addend };
        self.edges.extend(fields.into_iter().map(edge));
        self.blocks.push(Block {
            section,
            offset: 0,
            size,
            align_log2,
            discardable: false,
            live: true,
            edges: (first_edge, self.edges.len() as u32),
        });
        Ok((block, size))
    }

    /// Has edges to some symbols lead to others, but for those of unwind tables.
    fn redirect(&mut self, to: &HashMap<SymbolId, SymbolId>) {
        if to.is_empty() {
            return;
        }
        for index in 0..self.blocks.len() {
            let block = self.blocks[index];
            if self.sections[block.section.index()].role == SectionRole::EhFrame {
                continue;
            }
            for edge in &mut self.edges[block.edge_range()] {
                edge.target = to.get(&edge.target).copied().unwrap_or(edge.target);
            }
        }
    }
}
