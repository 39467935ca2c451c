//! `__start_X` and `__stop_X`: the ends of all sections called `X`, where that is a C identifier.
//!
//! Within a graph the sections of one such name lie side by side (`layout.rs`), in the order of their objects,
//! as a linker would put them. A program that spreads a section over several objects and wants one range has
//! these objects merged into one graph first (`merge.rs`).

use std::collections::{HashMap, HashSet};

use rustc_hash::FxHashMap;

use super::graph::{BlockId, LinkGraph, Location, SectionId, SectionRole};

const START: &str = "__start_";
const STOP: &str = "__stop_";

impl LinkGraph<'_> {
    /// The names of the graph's sections that `__start_` and `__stop_` symbols can refer to, each once.
    pub fn named_sections(&self) -> Vec<&str> {
        let mut seen = HashSet::new();
        let names = (0..self.sections.len()).map(SectionId::of).filter(|section| has_bounds(self, *section));
        names.map(|section| self.section_name(section)).filter(|name| seen.insert(*name)).collect()
    }

    /// The names of the sections whose start or end the graph asks for, each once. Where other objects have
    /// sections of that name, all of them have to be merged into one graph.
    pub fn wanted_section_bounds(&self) -> Vec<&str> {
        let mut seen = HashSet::new();
        let undefined = self.symbols.iter().filter(|symbol| symbol.location == Location::Undefined);
        let names = undefined.filter_map(|symbol| {
            let name = self.text(symbol.name);
            name.strip_prefix(START).or_else(|| name.strip_prefix(STOP))
        });
        names.filter(|name| is_identifier(name) && seen.insert(*name)).collect()
    }
}

/// The sections of one name, which lie side by side.
#[derive(Debug)]
pub(super) struct NamedSections {
    pub(super) name: Box<str>,
    /// The role that all of them take: writable if one is.
    pub(super) role: SectionRole,
    pub(super) blocks: Vec<BlockId>,
}

/// The named sections of a graph.
#[derive(Debug, Default)]
pub(super) struct SectionBounds {
    pub(super) groups: Vec<NamedSections>,
    by_section: FxHashMap<SectionId, u32>,
}

impl SectionBounds {
    /// Whether the section lies among others of its name.
    pub(super) fn contains(&self, section: SectionId) -> bool {
        !self.by_section.is_empty() && self.by_section.contains_key(&section)
    }
}

/// Collects the named sections; with `bind`, also binds references to their ends within the graph.
pub(super) fn collect(graph: &mut LinkGraph<'_>, bind: bool) -> SectionBounds {
    let mut bounds = SectionBounds::default();
    let mut by_name: HashMap<&str, u32> = HashMap::new();
    for index in 0..graph.sections.len() {
        let section = &graph.sections[index];
        let name = graph.text(section.name);
        if !has_bounds(graph, SectionId::of(index)) {
            continue;
        }
        let live = section.blocks().filter(|block| graph.blocks[block.index()].live);
        let group = *by_name.entry(name).or_insert_with(|| {
            bounds.groups.push(NamedSections { name: name.into(), role: section.role, blocks: Vec::new() });
            bounds.groups.len() as u32 - 1
        });
        let named = &mut bounds.groups[group as usize];
        named.blocks.extend(live);
        named.role = common_role(named.role, section.role);
        bounds.by_section.insert(SectionId::of(index), group);
    }
    if bind && !by_name.is_empty() {
        let mut bound = Vec::new();
        for (index, symbol) in graph.symbols.iter().enumerate() {
            if symbol.location != Location::Undefined {
                continue;
            }
            let name = graph.text(symbol.name);
            let find = |prefix: &str| by_name.get(name.strip_prefix(prefix)?).copied();
            if let Some(group) = find(START) {
                bound.push((index, Location::SectionStart(group)));
            } else if let Some(group) = find(STOP) {
                bound.push((index, Location::SectionStop(group)));
            }
        }
        for (index, location) in bound {
            graph.symbols[index].location = location;
        }
    }
    bounds
}

/// Sections of one name share one segment, so the more permissive role wins. Code and data do not mix: data that
/// sits in a section of code is code.
fn common_role(left: SectionRole, right: SectionRole) -> SectionRole {
    use SectionRole as R;
    match (left, right) {
        _ if left == right => left,
        (R::Code, _) | (_, R::Code) => R::Code,
        (R::LargeZeroFill, R::ZeroFill) | (R::ZeroFill, R::LargeZeroFill) => R::LargeZeroFill,
        (R::LargeData | R::LargeZeroFill, _) | (_, R::LargeData | R::LargeZeroFill) => R::LargeData,
        _ => R::Data,
    }
}

fn has_bounds(graph: &LinkGraph<'_>, section: SectionId) -> bool {
    let role = graph.sections[section.index()].role;
    let name = graph.section_name(section);
    // The parser's own section of common symbols is no section of the program.
    let is_common = name == "COMMON" && role.is_zero_fill();
    is_identifier(name) && !is_common && !role.is_tls() && role != SectionRole::EhFrame
}

pub(super) fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    let head = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    head && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
