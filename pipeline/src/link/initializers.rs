//! Functions that run before the program's `main`, and after it.
//!
//! Their addresses are read from the contents of the sections, after the fixups: an assembler may have put anything there, an offset from a
//! symbol included. Each address is going to be called, so it must be code: the graph's own, or a function that is defined elsewhere.

use uruk_core::ExecutorAddr;

use super::error::LinkError;
use super::graph::{BlockId, Edge, InitRole, Location, SectionRole};
use super::layout::Segment;
use super::placed::Placed;
use super::resolution::Resolution;
use crate::executor::{FRAGMENT_PRIORITY, Initializers};

/// Reads the functions of each object of the graph from the fixed constants, and finds those that are code themselves.
///
/// # Errors
/// [`LinkError::Object`] for the first one that is no code.
pub(super) fn read(
    placed: &Placed,
    resolution: &Resolution,
    constants: &[u8],
) -> Result<Vec<Initializers>, LinkError> {
    let graph = &placed.graph;
    let mut found = vec![Initializers::default(); graph.objects.len()];
    for section in &graph.sections {
        let Some(role) = section.init else { continue };
        let functions = &mut found[section.object.index()];
        for id in section.blocks() {
            let block = &graph.blocks[id.index()];
            let place = placed.layout.places[id.index()];
            match (section.role, place.segment) {
                _ if !block.live => {}
                (SectionRole::ReadOnly, Segment::ReadOnly) => {
                    let words = constants.get(place.offset as usize..(place.offset + block.size) as usize);
                    let words = words.unwrap_or_default();
                    check(placed, resolution, id, words)?;
                    functions.add_array(role, words);
                }
                (SectionRole::Code, Segment::Code) => {
                    functions.add_fragment(role, ExecutorAddr::new(placed.at(place)))
                }
                _ => {}
            }
        }
    }
    // Stable, so that equal priorities keep the order of the object.
    for object in &mut found {
        object.initializers.sort_by_key(|(priority, _)| *priority);
        object.finalizers.sort_by_key(|(priority, _)| *priority);
    }
    Ok(found)
}

/// Checks that the block's `words` lead to code.
fn check(placed: &Placed, resolution: &Resolution, id: BlockId, words: &[u8]) -> Result<(), LinkError> {
    let code = placed.code();
    let elsewhere: Vec<(u64, u64)> =
        functions(words).filter(|(_, function)| !code.contains(function)).collect();
    if elsewhere.is_empty() {
        return Ok(());
    }
    let mut edges: Vec<&Edge> = placed.graph.edges(id).iter().collect();
    edges.sort_by_key(|edge| edge.offset);
    for (offset, function) in elsewhere {
        let after = edges.partition_point(|edge| edge.offset <= offset);
        let edge = after.checked_sub(1).map(|index| edges[index]).filter(|edge| edge.offset == offset);
        if !edge.is_some_and(|edge| is_function_of_others(placed, resolution, edge)) {
            let symbol =
                edge.map(|edge| placed.graph.symbol_name(edge.target)).filter(|name| !name.is_empty());
            let symbol = symbol.map(|name| format!(" (`{name}`)")).unwrap_or_default();
            let what = format!(
                "the address {function:#x}{symbol} is to be called before or after the program, and is not that of a \
                 function"
            );
            return Err(LinkError::Object {
                site: Box::new(placed.graph.site(id, offset)),
                what: what.into(),
            });
        }
    }
    Ok(())
}

fn is_function_of_others(placed: &Placed, resolution: &Resolution, edge: &Edge) -> bool {
    let (graph, target) = (&placed.graph, edge.target.index());
    let is_external = graph.symbols[target].location == Location::Undefined;
    is_external && resolution.callable[target] && edge.addend == 0 && edge.kind == graph.arch.pointer()
}

/// The functions in a list, each with its offset.
fn functions(words: &[u8]) -> impl DoubleEndedIterator<Item = (u64, u64)> {
    let words = words.chunks_exact(8).enumerate();
    let words =
        words.filter_map(|(index, word)| Some((index as u64 * 8, u64::from_le_bytes(word.try_into().ok()?))));
    // Lists of the old kind may begin with -1 and end with 0.
    words.filter(|(_, function)| !matches!(*function, 0 | u64::MAX))
}

impl Initializers {
    fn add_fragment(&mut self, role: InitRole, function: ExecutorAddr) {
        match role {
            InitRole::InitFragment => self.initializers.push((FRAGMENT_PRIORITY, function)),
            InitRole::FiniFragment => self.finalizers.push((FRAGMENT_PRIORITY, function)),
            _ => {}
        }
    }

    fn add_array(&mut self, role: InitRole, words: &[u8]) {
        let functions = functions(words).map(|(_, function)| ExecutorAddr::new(function));
        match role {
            InitRole::Preinit => self.preinitializers.extend(functions),
            InitRole::Init(priority) => {
                self.initializers.extend(functions.map(|function| (priority.into(), function)))
            }
            InitRole::Fini(priority) => {
                self.finalizers.extend(functions.map(|function| (priority.into(), function)))
            }
            InitRole::Ctors(priority) => {
                self.initializers.extend(functions.rev().map(|function| (priority.into(), function)));
            }
            InitRole::Dtors(priority) => {
                self.finalizers.extend(functions.rev().map(|function| (priority.into(), function)));
            }
            InitRole::InitFragment | InitRole::FiniFragment => {}
        }
    }
}
