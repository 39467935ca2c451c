//! Names that are unique within an object become global.
//!
//! A compiler of many small modules has to tell their functions apart. A counter in their names would make each object another
//! one in each process, and no cache would find it again. So a name is unique within its module only, and the linker gives it
//! the name that the session knows it by, in definitions and references alike.
//!
//! Two symbols may have one name afterwards: a reference and the definition that it means, say. They are bound as those of two
//! objects are (`merge.rs`).

use rustc_hash::FxHashSet;
#[cfg(feature = "llvm")]
use uruk_core::ExecutorAddr;

use super::error::LinkError;
use super::graph::{Binding, LinkGraph, Location, Name};
use crate::object::is_bound_by_linker;

/// The new name of a name. `None` if it stays.
pub type Rename<'r> = &'r dyn Fn(&str) -> Option<Box<str>>;

impl<'a> LinkGraph<'a> {
    /// Gives symbols and COMDAT groups the names that `rename` says, all at once: two names may be exchanged. Names that are local
    /// to an object, and those that the linker itself gives (`_GLOBAL_OFFSET_TABLE_`), stay.
    ///
    /// # Errors
    /// [`LinkError::Duplicate`] if two strong definitions have one name afterwards; [`LinkError::Object`] if there is no room for
    /// more names.
    ///
    /// # Cost
    /// A call of `rename` for each name. If one is found, linear in the graph.
    pub fn rename(mut self, rename: Rename<'_>) -> Result<Self, LinkError> {
        let mut is_renamed = false;
        for index in 0..self.symbols.len() {
            let symbol = &self.symbols[index];
            let has_place =
                matches!(symbol.location, Location::Undefined | Location::Block(..) | Location::Absolute(_));
            if !has_place || symbol.binding == Binding::Local {
                continue;
            }
            if let Some(name) = self.renamed(symbol.name, rename)? {
                self.symbols[index].name = name;
                is_renamed = true;
            }
        }
        for index in 0..self.groups.len() {
            if let Some(name) = self.renamed(self.groups[index].signature, rename)? {
                self.groups[index].signature = name;
                is_renamed = true;
            }
        }
        if is_renamed && self.has_a_name_twice() { Self::merge([self]) } else { Ok(self) }
    }

    /// Has references lead to the addresses that `address` gives, so that they are not looked up.
    #[cfg(feature = "llvm")]
    pub(crate) fn place(mut self, address: &dyn Fn(&str) -> Option<ExecutorAddr>) -> Self {
        for index in 0..self.symbols.len() {
            let symbol = &self.symbols[index];
            if symbol.location == Location::Undefined
                && let Some(address) = address(self.text(symbol.name))
            {
                self.symbols[index].location = Location::Absolute(address.value());
                self.symbols[index].binding = Binding::Local;
            }
        }
        self
    }

    /// Adds the functions that `adapter` has for names which the graph refers to. They are the graph's own.
    #[cfg(feature = "llvm")]
    pub(crate) fn adapt(
        self,
        adapter: &dyn Fn(&str) -> Option<Result<LinkGraph<'a>, LinkError>>,
    ) -> Result<Self, LinkError> {
        let (mut names, mut graphs) = (Vec::<Box<str>>::new(), Vec::new());
        for symbol in self.symbols.iter().filter(|symbol| symbol.location == Location::Undefined) {
            let name = self.text(symbol.name);
            if let Some(graph) = adapter(name) {
                names.push(name.into());
                graphs.push(graph?);
            }
        }
        if graphs.is_empty() {
            return Ok(self);
        }
        let whole = self.name();
        let mut graph = Self::merge(std::iter::once(self).chain(graphs))?;
        graph.make_one_object(&whole);
        for index in 0..graph.symbols.len() {
            if names.iter().any(|name| **name == *graph.text(graph.symbols[index].name)) {
                graph.symbols[index].binding = Binding::Local;
            }
        }
        Ok(graph)
    }

    fn renamed(&mut self, name: Name, rename: Rename<'_>) -> Result<Option<Name>, LinkError> {
        let old = self.text(name);
        if old.is_empty() || is_bound_by_linker(old) {
            return Ok(None);
        }
        match rename(old) {
            Some(new) => self.add_name(&new).map(Some),
            None => Ok(None),
        }
    }

    fn has_a_name_twice(&self) -> bool {
        let mut seen = FxHashSet::default();
        let global = self.symbols.iter().filter(|symbol| symbol.binding != Binding::Local);
        let mut names = global.map(|symbol| self.text(symbol.name)).filter(|name| !name.is_empty());
        let mut signatures = FxHashSet::default();
        !names.all(|name| seen.insert(name))
            || !self.groups.iter().all(|group| signatures.insert(self.text(group.signature)))
    }
}
