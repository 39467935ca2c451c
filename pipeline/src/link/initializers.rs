//! Functions that run before the program's `main`, and after it.
//!
//! Their addresses are read from the contents of the sections, after the fixups: an assembler may have put
//! anything there, an offset from a symbol included.

use uruk_core::ExecutorAddr;

use super::graph::{InitRole, LinkGraph, SectionRole};
use super::layout::{Layout, Segment};

/// What a graph wants to be run, in the order of its sections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Initializers {
    pub(super) preinitializers: Vec<ExecutorAddr>,
    pub(super) initializers: Vec<(u16, ExecutorAddr)>,
    pub(super) finalizers: Vec<(u16, ExecutorAddr)>,
}

/// Reads the functions from the fixed constants.
pub(super) fn read(graph: &LinkGraph<'_>, layout: &Layout, constants: &[u8]) -> Initializers {
    let mut found = Initializers::default();
    for section in graph.sections.iter().filter(|section| section.role == SectionRole::ReadOnly) {
        let Some(role) = section.init else { continue };
        for id in section.blocks() {
            let block = &graph.blocks[id.index()];
            let place = layout.places[id.index()];
            if block.live && place.segment == Segment::ReadOnly {
                let functions = constants.get(place.offset as usize..(place.offset + block.size) as usize);
                found.add(role, functions.unwrap_or_default());
            }
        }
    }
    // Stable, so that equal priorities keep the order of the object.
    found.initializers.sort_by_key(|(priority, _)| *priority);
    found.finalizers.sort_by_key(|(priority, _)| *priority);
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
