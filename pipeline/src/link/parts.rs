//! The graph of a module, also of one that was compiled in parts.
//!
//! A value that was local to the module and is needed in several parts has a name in their objects, for the time between the two. Here it
//! becomes local again: no other module can mean it, and the session never hears of it. The names need only be unique within the module, so
//! no hash of it is in them, and a part stays the same when another one is edited.

use super::elf;
use super::error::{LinkError, Site};
use super::graph::{Binding, LinkGraph, Location, ObjectId};
use super::order::may_go;
use crate::object::{self, LOCAL_PREFIX, ObjectBuffer};

/// Reads an object, or the objects of a module that was compiled in parts.
pub(crate) fn parse(object: &ObjectBuffer) -> Result<LinkGraph<'_>, LinkError> {
    let name = object.name();
    let Some(parts) = object::parts(object) else { return elf::parse(name, object.bytes()) };
    let broken = |error: ::object::read::Error| LinkError::Object {
        site: Box::new(Site { object: (&**name).into(), section: "".into(), offset: 0 }),
        what: format!("the parts of a module cannot be told apart: {error}").into(),
    };
    let graphs = parts.map_err(broken)?.into_iter().map(|part| elf::parse(name, part));
    let mut graph = LinkGraph::merge(graphs.collect::<Result<Vec<_>, _>>()?)?;
    graph.make_one_object(name);
    Ok(graph)
}

impl LinkGraph<'_> {
    /// Makes the merged objects one, with the module's local symbols local to it. Local symbols without references are to be pruned.
    pub(super) fn make_one_object(&mut self, name: &str) {
        const ONLY: ObjectId = ObjectId::of(0);
        self.objects = vec![name.into()];
        self.sections.iter_mut().for_each(|section| section.object = ONLY);
        for index in 0..self.symbols.len() {
            let is_local = self.text(self.symbols[index].name).starts_with(LOCAL_PREFIX);
            let symbol = &mut self.symbols[index];
            symbol.object = ONLY;
            if is_local && !symbol.exported {
                symbol.binding = Binding::Local;
                symbol.name = symbol.name.without_first(LOCAL_PREFIX.len());
                // The optimizer drops what is local and unused, and could not know that of this.
                if let Location::Block(block, _) = symbol.location {
                    let goes = may_go(self, self.section_of(block));
                    self.blocks[block.index()].discardable |= goes;
                }
            }
        }
    }
}
