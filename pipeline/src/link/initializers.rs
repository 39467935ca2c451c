//! Functions that run before the program's `main`, and after it.
//!
//! Their addresses are read from the contents of the sections, after the fixups: an assembler may have put
//! anything there, an offset from a symbol included.

use uruk_core::ExecutorAddr;

use super::graph::{InitRole, SectionRole};
use super::layout::Segment;
use super::placed::Placed;

/// The priority of fragments of code in `.init` and `.fini`: they run before everything in `.init_array`, and after
/// everything in `.fini_array`.
pub(crate) const FRAGMENT_PRIORITY: i32 = -1;

/// What an object wants to be run, in the order of its sections. Priorities are those of sections, and -1 for fragments
/// of code in `.init` and `.fini`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Initializers {
    /// Functions that run before all initializers of the program, in order.
    pub preinitializers: Vec<ExecutorAddr>,
    /// Functions that run before the program, first to last: by priority, lower first, then in order.
    pub initializers: Vec<(i32, ExecutorAddr)>,
    /// Functions that run after the program, *last to first*; but fragments run first to last.
    pub finalizers: Vec<(i32, ExecutorAddr)>,
}

/// Reads the functions of each object of the graph from the fixed constants, and finds those that are code themselves.
pub(super) fn read(placed: &Placed, constants: &[u8]) -> Vec<Initializers> {
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
                    let content = constants.get(place.offset as usize..(place.offset + block.size) as usize);
                    functions.add_array(role, content.unwrap_or_default());
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
    found
}

impl Initializers {
    fn add_fragment(&mut self, role: InitRole, function: ExecutorAddr) {
        match role {
            InitRole::InitFragment => self.initializers.push((FRAGMENT_PRIORITY, function)),
            InitRole::FiniFragment => self.finalizers.push((FRAGMENT_PRIORITY, function)),
            _ => {}
        }
    }

    fn add_array(&mut self, role: InitRole, functions: &[u8]) {
        // Lists of the old kind may begin with -1 and end with 0.
        let functions = functions
            .chunks_exact(8)
            .filter_map(|word| word.try_into().ok().map(u64::from_le_bytes))
            .filter(|address| !matches!(*address, 0 | u64::MAX))
            .map(ExecutorAddr::new);
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
