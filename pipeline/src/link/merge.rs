//! Several objects as one graph.
//!
//! For objects that only work within one graph: with sections of one name that must lie side by side (`__start_X`), or with thread-local
//! variables of hidden visibility that they share. Names are bound as a static linker binds them: a strong definition beats a weak or
//! tentative one, of equals the first wins, COMDAT groups with a signature that was there before go.

use std::collections::{BTreeSet, HashMap};

use rustc_hash::FxHashSet;

use super::error::LinkError;
use super::graph::{
    Binding, Block, BlockId, Frame, Group, GroupId, LinkGraph, Location, ObjectId, Section, SectionId,
    Symbol, SymbolId,
};

/// The references of one object of a merged graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReferencesOfObject {
    /// Other objects of the graph whose definitions it refers to.
    pub(crate) objects: BTreeSet<usize>,
    /// Symbols that the graph does not define.
    pub(crate) externals: FxHashSet<SymbolId>,
}

impl<'a> LinkGraph<'a> {
    /// Merges graphs into one, in their order.
    ///
    /// # Errors
    /// [`LinkError::Duplicate`] if two define a name strongly; [`LinkError::Object`] if the sum is too large for the
    /// graph's ids, or if the graphs are for different processors.
    ///
    /// # Cost
    /// Linear in the sum of the graphs.
    pub fn merge(graphs: impl IntoIterator<Item = LinkGraph<'a>>) -> Result<LinkGraph<'a>, LinkError> {
        let mut merged = LinkGraph::default();
        let mut known = Known::default();
        for graph in graphs {
            merged.absorb(graph, &mut known)?;
        }
        Ok(merged)
    }

    /// The references of each object of the graph. Only blocks that take part in the link count, and the ends of sections belong to no
    /// object.
    ///
    /// # Cost
    /// One pass over the edges.
    pub(crate) fn references_of_objects(&self) -> Vec<ReferencesOfObject> {
        let mut references = vec![ReferencesOfObject::default(); self.objects.len()];
        for (id, block) in self.live_blocks() {
            let from = self.sections[block.section.index()].object.index();
            for edge in self.edges(id) {
                match self.symbols[edge.target.index()].location {
                    Location::Block(target, _) => {
                        let to = self.section_of(target).object.index();
                        if to != from {
                            references[from].objects.insert(to);
                        }
                    }
                    Location::Undefined => drop(references[from].externals.insert(edge.target)),
                    _ => {}
                }
            }
        }
        references
    }

    fn absorb(&mut self, other: LinkGraph<'a>, known: &mut Known) -> Result<(), LinkError> {
        if !self.objects.is_empty() {
            other.check_architecture(self.arch)?;
        }
        let base = Base::of(self, &other)?;
        let LinkGraph {
            arch,
            objects,
            names,
            sections,
            contents,
            blocks,
            mut symbols,
            mut edges,
            groups,
            frames,
            files,
        } = other;
        self.files.extend(files);
        self.arch = arch;
        self.objects.extend(objects);
        self.names.push_str(&names);
        self.sections.extend(sections.into_iter().map(|section| base.section(section)));
        self.contents.extend(contents);
        self.blocks.extend(blocks.into_iter().map(|block| base.block(block)));
        for symbol in &mut symbols {
            *symbol = base.symbol(*symbol);
        }
        let dropped = self.absorb_groups(groups, &base, known);
        // Names of groups that were there before are references to the group that stays.
        if !dropped.is_empty() {
            for symbol in symbols.iter_mut().filter(|symbol| symbol.binding != Binding::Local) {
                if let Location::Block(block, _) = symbol.location
                    && dropped.contains(&self.blocks[block.index()].section)
                {
                    symbol.location = Location::Undefined;
                }
            }
        }
        let targets = self.absorb_symbols(symbols, known)?;
        for edge in &mut edges {
            edge.target = targets[edge.target.index()];
        }
        let first_edge = self.edges.len() as u32;
        self.edges.append(&mut edges);
        self.frames.extend(frames.into_iter().map(|frame| Frame {
            block: BlockId(frame.block.0 + base.blocks),
            function: frame.function + first_edge,
        }));
        Ok(())
    }

    /// Adds the groups that are new, and marks the sections of the others as going.
    fn absorb_groups(
        &mut self,
        groups: Vec<Group>,
        base: &Base,
        known: &mut Known,
    ) -> rustc_hash::FxHashSet<SectionId> {
        let mut dropped = rustc_hash::FxHashSet::default();
        for group in groups {
            let group = base.group(group);
            let signature: Box<str> = self.text(group.signature).into();
            let id = GroupId::of(self.groups.len());
            if *known.groups.entry(signature).or_insert(id) == id {
                self.groups.push(group);
                continue;
            }
            for section in group.sections {
                for block in self.sections[section.index()].blocks() {
                    self.blocks[block.index()].discardable = true;
                }
                dropped.insert(section);
            }
        }
        dropped
    }

    /// Adds symbols, one for each name; says which symbol of the merged graph each of `symbols` is.
    fn absorb_symbols(
        &mut self,
        symbols: Vec<Symbol>,
        known: &mut Known,
    ) -> Result<Vec<SymbolId>, LinkError> {
        let mut targets = Vec::with_capacity(symbols.len());
        for symbol in symbols {
            let next = SymbolId::of(self.symbols.len());
            let name = self.text(symbol.name);
            if symbol.binding == Binding::Local || name.is_empty() {
                self.symbols.push(symbol);
                targets.push(next);
                continue;
            }
            match known.symbols.get(name) {
                None => {
                    known.symbols.insert(name.into(), next);
                    self.symbols.push(symbol);
                    targets.push(next);
                }
                Some(&id) => {
                    self.compete(id, symbol)?;
                    targets.push(id);
                }
            }
        }
        Ok(targets)
    }

    /// Settles which of two symbols of one name counts.
    fn compete(&mut self, id: SymbolId, new: Symbol) -> Result<(), LinkError> {
        let old = self.symbols[id.index()];
        let winner = match (strength(&old), strength(&new)) {
            (Strength::Strong, Strength::Strong) => {
                return Err(LinkError::Duplicate {
                    symbol: self.text(old.name).into(),
                    first: self.objects[old.object.index()].clone(),
                    second: self.objects[new.object.index()].clone(),
                });
            }
            (Strength::Tentative, Strength::Tentative) if new.size > old.size => new,
            (left, right) if left >= right => old,
            _ => new,
        };
        let loser = if winner.location == old.location { new } else { old };
        if let (Strength::Tentative, Strength::Tentative) = (strength(&old), strength(&new)) {
            self.align_as(&winner, &loser);
        }
        if let Location::Block(block, _) = loser.location
            && loser.location != winner.location
        {
            self.release(block, &loser);
        }
        let mut winner = winner;
        // The strictest visibility of all mentions holds, and one strong reference makes the name required.
        winner.exported = old.exported && new.exported;
        if strength(&winner) == Strength::Reference && old.binding != new.binding {
            winner.binding = Binding::Strong;
        }
        self.symbols[id.index()] = winner;
        Ok(())
    }

    /// Gives a tentative definition the alignment of another one, if that asks for more.
    fn align_as(&mut self, winner: &Symbol, loser: &Symbol) {
        if let (Location::Block(kept, _), Location::Block(lost, _)) = (winner.location, loser.location) {
            let asked = self.blocks[lost.index()].align_log2;
            let kept = &mut self.blocks[kept.index()].align_log2;
            *kept = asked.max(*kept);
        }
    }

    /// Lets go of the block of a definition that lost, if it was all the block held.
    fn release(&mut self, block: BlockId, loser: &Symbol) {
        let section = self.blocks[block.index()].section;
        let holds_it_alone = loser.size == self.blocks[block.index()].size && loser.size > 0;
        if self.sections[section.index()].is_grouped || holds_it_alone {
            self.blocks[block.index()].discardable = true;
        }
    }
}

/// The definitions of the merged graph so far, by name.
#[derive(Default)]
struct Known {
    symbols: HashMap<Box<str>, SymbolId>,
    groups: HashMap<Box<str>, GroupId>,
}

/// How far a definition prevails, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    Reference,
    Weak,
    Tentative,
    Strong,
}

fn strength(symbol: &Symbol) -> Strength {
    match (symbol.location, symbol.binding) {
        (Location::Undefined | Location::NotLoaded, _) => Strength::Reference,
        _ if symbol.common => Strength::Tentative,
        (_, Binding::Weak) => Strength::Weak,
        _ => Strength::Strong,
    }
}

/// How many of everything come before the graph being added.
struct Base {
    names: u32,
    objects: u32,
    files: u32,
    sections: u32,
    blocks: u32,
    edges: u32,
}

impl Base {
    fn of(merged: &LinkGraph<'_>, other: &LinkGraph<'_>) -> Result<Self, LinkError> {
        let sum = |left: usize, right: usize| match u32::try_from(left + right) {
            Ok(_) => Ok(left as u32),
            Err(_) => Err(other.too_large("the merged objects are too large together")),
        };
        sum(merged.symbols.len(), other.symbols.len())?;
        Ok(Self {
            names: sum(merged.names.len(), other.names.len())?,
            objects: sum(merged.objects.len(), other.objects.len())?,
            files: sum(merged.files.len(), other.files.len())?,
            sections: sum(merged.sections.len(), other.sections.len())?,
            blocks: sum(merged.blocks.len(), other.blocks.len())?,
            edges: sum(merged.edges.len(), other.edges.len())?,
        })
    }

    fn section(&self, section: Section) -> Section {
        Section {
            name: section.name.moved(self.names),
            object: ObjectId(section.object.0 + self.objects),
            file: section.file + self.files,
            first_block: BlockId(section.first_block.0 + self.blocks),
            ..section
        }
    }

    fn block(&self, block: Block) -> Block {
        Block {
            section: SectionId(block.section.0 + self.sections),
            edges: (block.edges.0 + self.edges, block.edges.1 + self.edges),
            ..block
        }
    }

    fn symbol(&self, symbol: Symbol) -> Symbol {
        Symbol {
            name: symbol.name.moved(self.names),
            object: ObjectId(symbol.object.0 + self.objects),
            location: match symbol.location {
                Location::Block(block, offset) => Location::Block(BlockId(block.0 + self.blocks), offset),
                other => other,
            },
            ..symbol
        }
    }

    fn group(&self, group: Group) -> Group {
        Group {
            signature: group.signature.moved(self.names),
            sections: group.sections.iter().map(|section| SectionId(section.0 + self.sections)).collect(),
        }
    }
}
