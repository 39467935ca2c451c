//! Functions that run before the program's `main`, and after it.
//!
//! Their addresses are read from the contents of the sections, after the fixups: an assembler may have put
//! anything there, an offset from a symbol included.

use uruk_core::ExecutorAddr;

use super::graph::{InitRole, LinkGraph, SectionRole};
use super::layout::{Layout, Segment};

/// What an object wants to be run, in the order of its sections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Initializers {
    /// Functions that run before all initializers of the program, in order.
    pub preinitializers: Vec<ExecutorAddr>,
    /// Functions that run before the program, first to last: by priority, lower first, then in order.
    pub initializers: Vec<(u16, ExecutorAddr)>,
    /// Functions that run after the program, *last to first*.
    pub finalizers: Vec<(u16, ExecutorAddr)>,
}

/// Reads the functions of each object of the graph from the fixed constants.
pub(super) fn read(graph: &LinkGraph<'_>, layout: &Layout, constants: &[u8]) -> Vec<Initializers> {
    let mut found = vec![Initializers::default(); graph.objects.len()];
    for section in graph.sections.iter().filter(|section| section.role == SectionRole::ReadOnly) {
        let Some(role) = section.init else { continue };
        for id in section.blocks() {
            let block = &graph.blocks[id.index()];
            let place = layout.places[id.index()];
            if block.live && place.segment == Segment::ReadOnly {
                let functions = constants.get(place.offset as usize..(place.offset + block.size) as usize);
                found[section.object.index()].add(role, functions.unwrap_or_default());
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
    fn add(&mut self, role: InitRole, functions: &[u8]) {
        // Lists of the old kind may begin with -1 and end with 0.
        let functions = functions
            .chunks_exact(8)
            .filter_map(|word| word.try_into().ok().map(u64::from_le_bytes))
            .filter(|address| !matches!(*address, 0 | u64::MAX))
            .map(ExecutorAddr::new);
        match role {
            InitRole::Preinit => self.preinitializers.extend(functions),
            InitRole::Init(priority) => {
                self.initializers.extend(functions.map(|function| (priority, function)))
            }
            InitRole::Fini(priority) => {
                self.finalizers.extend(functions.map(|function| (priority, function)))
            }
            InitRole::Ctors(priority) => {
                self.initializers.extend(functions.rev().map(|function| (priority, function)));
            }
            InitRole::Dtors(priority) => {
                self.finalizers.extend(functions.rev().map(|function| (priority, function)));
            }
        }
    }
}
